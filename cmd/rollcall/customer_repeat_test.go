package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"rollcall/http/api"
)

// TestTheIdentityIsOfTheContent and of nothing else.
func TestTheIdentityIsOfTheContent(t *testing.T) {
	of := func(name, text, again string) uuid.UUID {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := openInput(file)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		return in.identity(again)
	}
	first := of("a.csv", "a@a.test\n", "")
	// Written down: another one would charge every customer once more for what a repeat recovers.
	if want := "ee88f236-da10-8523-836d-22536a28be18"; first.String() != want {
		t.Errorf("got %s, want %s", first, want)
	}
	if again := of("b.csv", "a@a.test\n", ""); again != first {
		t.Errorf("the same bytes in another file: got %s, want %s", again, first)
	}
	others := map[uuid.UUID]string{first: "the first"}
	for _, x := range [][2]string{{"a@a.test\r\n", ""}, {"a@a.test\n", "2"}, {"a@a.test\n", "3"}, {"b@a.test\n", "2"}} {
		identity := of("a.csv", x[0], x[1])
		if same, taken := others[identity]; taken {
			t.Errorf("%q has the identity of %s", x, same)
		}
		others[identity] = fmt.Sprintf("%q", x)
	}
}

// stuckStorage stands before the storage URL. While stuck it hands on so many bytes of an upload and
// nothing more, and tells; else it hands on everything.
type stuckStorage struct {
	target *url.URL
	part   int64
	told   chan struct{}
	whole  *httputil.ReverseProxy

	mu    sync.Mutex
	stuck bool // guarded by mu
}

func newStuckStorage(t *testing.T, target string, part int64) (s *stuckStorage, front string) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	s = &stuckStorage{target: to, part: part, told: make(chan struct{}, 100),
		whole: httputil.NewSingleHostReverseProxy(to),
		stuck: true}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func (s *stuckStorage) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = false
}

func (s *stuckStorage) isStuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck
}

func (s *stuckStorage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength <= 0 || !s.isStuck() {
		s.whole.ServeHTTP(w, r)
		return
	}
	connection, err := net.Dial("tcp", s.target.Host)
	if err != nil {
		return
	}
	defer connection.Close()
	fmt.Fprintf(connection, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/csv\r\nContent-Range: "+
		"%s\r\nContent-Length: %d\r\n\r\n",
		r.URL.RequestURI(), s.target.Host, r.Header.Get("Content-Range"), r.ContentLength)
	if _, err := io.CopyN(connection, r.Body, s.part); err == nil {
		s.told <- struct{}{}
	}
	_, _ = io.Copy(io.Discard, r.Body) // until the client is gone
}

// TestTwentyInterruptedUploadsAreOneVerification: from two folders and under two names. Then both
// folders finish at once, and the credits are those of one file.
func TestTwentyInterruptedUploadsAreOneVerification(t *testing.T) {
	t.Parallel()
	const interruptions, rows, distinct = 20, 12_000, 7
	j := newStuckRig(t, 8<<10)
	list := "email\n"
	for i := range rows {
		list += fmt.Sprintf("anna%d@one-clean.test\n", i%distinct)
	}
	var folders [2]*cli
	for i, name := range []string{"list.csv", "other.csv"} {
		folders[i] = &cli{t: t, folder: t.TempDir(), environ: []string{"ROLLCALL_KEY=" + j.tenant.Key}}
		folders[i].write(name, list)
	}
	args := func(i int) []string { return []string{"verify", []string{"list.csv", "other.csv"}[i], "--api", j.api} }
	for n := range interruptions {
		b := folders[n%2].start(args(n % 2)...)
		<-j.storage.told
		if code := b.stop(syscall.SIGINT); code != exitStopped {
			t.Fatalf("interruption %d: got code %d", n, code)
		}
	}
	if b := j.balance(); b.Held != 0 || b.Spent != 0 {
		t.Errorf("before the whole file is there: %+v", b)
	}
	j.storage.release()
	var outputs [2]string
	var both sync.WaitGroup
	for i := range folders {
		both.Go(func() {
			code, stdout, stderr := folders[i].run(args(i)...)
			if code != exitDone {
				t.Errorf("folder %d: got code %d and %s", i, code, stderr)
			}
			outputs[i] = stdout
		})
	}
	both.Wait()
	if n := strings.Count(outputs[0], ",valid,"); n != distinct || outputs[0] != outputs[1] {
		t.Errorf("got %d valid addresses, want %d, and the same in both folders", n, distinct)
	}
	j.wantCharged(1, distinct)
	code, stdout, stderr := folders[0].run(args(0)...)
	if code != exitDone || stdout != outputs[0] || !strings.Contains(stderr, "This content was sent before") {
		t.Errorf("once more: got code %d, %q and %q", code, stdout, stderr)
	}
	j.wantCharged(1, distinct)
	for i := range folders { // on purpose: once for each name
		if code, _, stderr := folders[i].run(append(args(i), "--again", "2027")...); code != exitDone {
			t.Errorf("--again: got code %d and %s", code, stderr)
		}
	}
	j.wantCharged(2, 2*distinct)
	j.audit()
}

// stuckRig is a node whose uploads can be stuck.
type stuckRig struct {
	*trialRig
	storage *stuckStorage
}

func newStuckRig(t *testing.T, part int64) *stuckRig {
	t.Helper()
	o := quickLab()
	lab := startLab(t, o)
	r := newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: paced})
	upload := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	storage, front := newStuckStorage(t, "http://"+upload, part)
	r.environ = append(r.environ, "ROLLCALL_UPLOAD_LISTEN="+upload, "ROLLCALL_UPLOAD_PUBLIC_URL="+front)
	node := r.serve()
	node.waitFor("node started")
	r.open(1000)
	return &stuckRig{&trialRig{r, lab, node}, storage}
}

// wantCharged wants so many verifications and so many credits spent in all.
func (j *stuckRig) wantCharged(verifications int, credits int64) {
	j.t.Helper()
	if b := j.balance(); b.Spent != credits || b.Held != 0 {
		j.t.Errorf("got %+v, want %d credits spent", b, credits)
	}
	var h api.History
	if _, err := j.client().AskJSON(j.t.Context(), http.MethodGet, "/v1/verifications?limit=100", nil, &h); err != nil ||
		len(h.Verifications) != verifications {
		j.t.Errorf("got %d verifications and %v, want %d", len(h.Verifications), err, verifications)
	}
}

// TestResultsThatAreGoneNameTheWayToNewOnes: the same content stays paid for, and is never charged anew in silence.
func TestResultsThatAreGoneNameTheWayToNewOnes(t *testing.T) {
	customer := newTestCustomer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/results"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"issue":{"code":"results_expired","message":"Gone."},"request_id":"x"}`)
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"id":"v1","status":"completed"}`)
		default:
			fmt.Fprint(w, `{"id":"v1","status":"completed","created_at":"2026-11-20T10:00:00.000Z","progress":{"total":4,"completed":4}}`)
		}
	})
	r, stdout, stderr := newTestRun(t, customer, verifyFlags{api: customer.Base})
	err := r.left(r.run(t.Context()))
	if err == nil || !strings.Contains(err.Error(), "results_expired") || !strings.Contains(err.Error(),
		"add --again NAME") ||
		strings.Contains(err.Error(), "goes on") || stdout.Len() != 0 {
		t.Errorf("got %v and %q", err, stdout)
	}
	if want := "This content was sent before, on 2026-11-20 10:00Z: this is verification v1 again, and nothing is " +
		"charged"; !strings.Contains(stderr.String(),
		want) {
		t.Errorf("got %q, want %q", stderr, want)
	}
}
