package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/api"
	"rollcall/ledger"
)

// Two tenants use one node. Whatever the first tenant does, the second tenant's small file takes at most three times
// as long as alone.

const (
	// slowdownMost is how many times as long as alone a file may take.
	slowdownMost = 3
	// idleLeast is the least time that an idle measurement counts. Alone the file takes 25 ms, most of it one polling
	// step of the client. Both tenants and the node are one process on a machine of two cores that runs other tests
	// too, so 25 ms may easily become three times as long. Faults that these tests look for would make it a minute or
	// endless. The time that the process waits for a processor is allowed on top, see unhindered.
	idleLeast = time.Second
)

// shared is a node with two tenants: the first has no credits.
type shared struct {
	t             *testing.T
	node          *node.Node
	first, second *client.API
}

func newShared(t *testing.T, change func(c *config.Config)) *shared {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "data")
	n := labNode(t, folder, func(c *config.Config) {
		openedWide(t, c, false)
		c.HTTP.CreatesPerSecond, c.HTTP.CreatesBurst = 1000, 1000 // these limits must not slow the first tenant
		c.HTTP.ReadsPerSecond, c.HTTP.Burst = 1000, 1000
		change(c)
	})
	return &shared{t, n, customerOf(t, n, folder, "first", 0), customerOf(t, n, folder, "second", 1000)}
}

// file makes the second tenant send ten addresses. It returns how long it took until the last one was known.
func (s *shared) file() time.Duration {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	s.second.HTTP.CloseIdleConnections() // he comes new
	began := time.Now()
	id, err := handIn(ctx, s.second, "small.csv", []byte(numbered("ghost", "by-clean.test", 10)))
	effort.FatalIf(s.t, err != nil, "the second tenant's file after %s: %v", time.Since(began), err)
	tick := time.Tick(20 * time.Millisecond)
	for ; ; <-tick {
		d, _, err := s.second.Detail(ctx, id)
		switch {
		case err != nil:
			s.t.Fatalf("the second tenant's file after %s: %v", time.Since(began), err)
		case d.CompletedAt != nil && d.Progress.Completed != 10:
			s.t.Fatalf("the second tenant's file ended with %+v", d.Progress)
		case d.CompletedAt != nil:
			return time.Since(began)
		}
	}
}

// unhindered measures the second tenant's file alone, then beside the first tenant, and compares the times.
func (s *shared) unhindered(begin func(ctx context.Context)) {
	s.t.Helper()
	s.file() // so that the facts about the domain are learned before
	alone := []time.Duration{s.file(), s.file(), s.file()}
	slices.Sort(alone)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	begin(ctx)
	before := threadTimes(s.t)
	beside := []time.Duration{s.file(), s.file(), s.file()}
	slices.Sort(beside)
	others := waitedPerRan(before, threadTimes(s.t))
	s.t.Logf("alone %s, beside the first tenant %s; for each second of the processor it waited %.1f s", alone, beside,
		others)
	most := time.Duration((1 + others) * slowdownMost * float64(max(alone[1], idleLeast)))
	if beside[1] > most {
		s.t.Errorf("beside the first tenant the file took %s, alone %s: want at most %s", beside[1], alone[1], most)
	}
}

// threadTime is how long a thread has run, and how long it could have run but waited for a processor, because other
// processes of a busy machine took it.
type threadTime struct{ ran, waited int64 }

// threadTimes reads the times of each thread of this process, by its number. It returns none if the system does not
// report them.
func threadTimes(t *testing.T) map[string]threadTime {
	t.Helper()
	files := effort.Must(filepath.Glob("/proc/self/task/*/schedstat"))(t)
	times := map[string]threadTime{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var one threadTime
		effort.Must(fmt.Sscan(string(text), &one.ran, &one.waited))(t)
		times[file] = one
	}
	return times
}

// waitedPerRan returns how long threads waited for a processor between two readings, for each second that they ran. A
// thread that ended in between doesn't count. A thread with the number of an ended one counts as new.
func waitedPerRan(before, after map[string]threadTime) float64 {
	var sum threadTime
	for number, now := range after {
		was := before[number]
		if now.ran < was.ran || now.waited < was.waited {
			was = threadTime{}
		}
		sum.ran, sum.waited = sum.ran+now.ran-was.ran, sum.waited+now.waited-was.waited
	}
	return float64(sum.waited) / float64(max(sum.ran, int64(time.Millisecond)))
}

// sum adds up the series of a metric that have these labels.
func (s *shared) sum(name string, labels ...string) float64 {
	s.t.Helper()
	return nettest.Sum(s.t, s.node.Registry, name, labels...)
}

// raw begins an upload of the first tenant on a connection of its own. The caller sends the body.
func (s *shared) raw(ctx context.Context, size int64) (net.Conn, error) {
	mine := *s.first // a client is for one goroutine
	made, err := mine.Create(ctx, uuid.New(), size, "large.csv")
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(made.Upload.URL)
	if err != nil {
		return nil, err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", at.Path, size)
	return c, err
}

// TestSlowUploadsOfOneTenantLeavePlaces: a tenant without credits sends 130 kB a second over as many uploads as it
// gets.
func TestSlowUploadsOfOneTenantLeavePlaces(t *testing.T) {
	t.Parallel()
	s := newShared(t, func(*config.Config) {})
	const uploads, piece = 80, 2 << 10
	s.unhindered(func(ctx context.Context) {
		for range uploads {
			c := effort.Must(s.raw(ctx, 1<<20))(t)
			go func() {
				tick := time.Tick(time.Second)
				for _, err := c.Write(make([]byte, piece)); err == nil; _, err = c.Write(make([]byte, piece)) {
					<-tick
				}
			}()
		}
		effort.Within(t, "the places to be taken", func() bool {
			return s.sum("rollcall_uploads_receiving") >= 32 &&
				s.sum("rollcall_upload_slots_refused_total", "reason=share") >= uploads-32
		})
	})
	n := s.sum("rollcall_uploads_receiving")
	effort.ErrorIf(t, n > 32, "the first tenant has %v of 64 places", n)
	n = s.sum("rollcall_upload_slots_refused_total", "reason=full")
	effort.ErrorIf(t, n > 0, "%v uploads found no place free", n)
}

// TestSilentSocketsOfOneAddressLeavePlaces: a stranger opens more connections than the listeners accept, sends
// nothing, and replaces those that are closed.
func TestSilentSocketsOfOneAddressLeavePlaces(t *testing.T) {
	t.Parallel()
	// The storage URL has its default number of connections. The API's default would use many of this process's
	// files, because the process has both ends of each connection.
	s := newShared(t, func(c *config.Config) { c.HTTP.Connections = 1024 })
	const sockets = 1064
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	s.unhindered(func(ctx context.Context) {
		for _, target := range []string{s.node.APIURL, s.node.UploadURL} {
			at := strings.TrimPrefix(target, "http://")
			for range sockets {
				go func() {
					for ctx.Err() == nil {
						c, err := stranger.DialContext(ctx, "tcp", at)
						if err != nil {
							return
						}
						stop := context.AfterFunc(ctx, func() { _ = c.Close() })
						_, _ = io.Copy(io.Discard, c)
						stop()
						_ = c.Close()
						_ = term.Sleep(ctx, time.Second)
					}
				}()
			}
		}
		effort.Within(t, "the places to be taken", func() bool {
			return s.sum("rollcall_http_connections") >= 512 && s.sum("rollcall_upload_connections") >= 512 &&
				s.sum("rollcall_http_connections_refused_total", "reason=share") >= sockets-512 &&
				s.sum("rollcall_upload_connections_refused_total", "reason=share") >= sockets-512
		})
	})
	for _, name := range []string{"rollcall_http_connections_refused_total", "rollcall_upload_connections_refused_total"} {
		n := s.sum(name, "reason=full")
		effort.ErrorIf(t, n > 0, "%s: %v connections found no place free", name, n)
	}
}

// TestAFloodOfUploadsLeavesTurns: one tenant uses all its places to create verifications and send chunks, as fast as
// the node accepts them.
func TestAFloodOfUploadsLeavesTurns(t *testing.T) {
	t.Parallel()
	s := newShared(t, func(c *config.Config) { c.Limits.MaxOpenVerifications = 100_000 })
	const uploads, creators = 40, 16
	var created, refused atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	s.unhindered(func(ctx context.Context) {
		block := []byte(strings.Repeat("somebody@example.test\n", 3000))
		for range uploads {
			all.Go(func() {
				for ctx.Err() == nil {
					c, err := s.raw(ctx, 100<<20)
					if err != nil {
						continue
					}
					for err == nil {
						_, err = c.Write(block)
					}
					_ = c.Close()
					_ = term.Sleep(ctx, 100*time.Millisecond) // it has no place
				}
			})
		}
		for range creators {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := s.flood(ctx); err == nil {
						created.Add(1)
					} else if !errors.Is(err, context.Canceled) {
						refused.Add(1)
					}
				}
			})
		}
		effort.Within(t, "the flood", func() bool { return s.sum("rollcall_uploads_receiving") >= 32 && created.Load() > 50 })
	})
	stored := s.sum("rollcall_upload_durable_bytes_total")
	t.Logf("the first created %d verifications, %d were refused, and stored %.0f MB", created.Load(), refused.Load(),
		stored/1e6)
	effort.ErrorIf(t, stored < 10<<20, "the first stored %.0f bytes, which is no flood", stored)
}

// flood creates one more verification of the first tenant, without repeats.
func (s *shared) flood(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.node.APIURL+"/v1/verifications", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-API-Key", s.first.Key)
	request.Header.Set("Idempotency-Key", uuid.NewString())
	request.Header.Set("X-Upload-Content-Length", strconv.Itoa(100))
	answer, err := s.first.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("create answers %d: %w", answer.StatusCode, api.ErrRefused)
	}
	return nil
}

// pays gives the first tenant credits.
func (s *shared) pays(credits ledger.Credits) {
	s.t.Helper()
	list, err := s.node.Book.Workspaces(s.t.Context())
	effort.OK(s.t, err)
	for _, w := range list {
		if w.Name == "first" {
			_, err = s.node.Book.Grant(s.t.Context(), uuid.New(), w.ID, credits, "test")
		}
	}
	effort.OK(s.t, err)
}

// sends makes the first tenant send a file with a number of addresses of a domain.
func (s *shared) sends(ctx context.Context, domain string, addresses int) uuid.UUID {
	s.t.Helper()
	return uuid.MustParse(mustHandIn(ctx, s.t, s.first, []byte(numbered("ghost", domain, addresses))))
}

// TestFilesAtSilentReceiversLeaveLeases: one tenant has more files at silent receivers than a node works on at a
// time.
func TestFilesAtSilentReceiversLeaveLeases(t *testing.T) {
	t.Parallel()
	const most, files = 16, 40
	s := newShared(t, func(c *config.Config) { c.Limits.FilesAtOnce = most })
	s.pays(files)
	s.unhindered(func(ctx context.Context) {
		for i := range files {
			s.sends(ctx, fmt.Sprintf("n%d-silent.test", i), 1)
		}
		effort.Within(t, "its share of the leases to be taken", func() bool { return s.sum("rollcall_leases") >= most/2 })
	})
	// Files at silent receivers never end, but the second tenant's last file may just have ended.
	effort.Within(t, "one tenant to have its share of leases", func() bool { return s.sum("rollcall_leases") <= most/2 })
	effort.Is(t, s.sum("rollcall_workspaces_full"), 1, "workspaces have their share")
}

// TestFilesThatWaitForLongTakeNoLease: files that wait long are parked, and can still be cancelled at once.
func TestFilesThatWaitForLongTakeNoLease(t *testing.T) {
	t.Parallel()
	const files = 40
	s := newShared(t, func(c *config.Config) {
		c.Retry.GreylistWaits = []config.Duration{{Duration: 20 * time.Minute}}
		c.Retry.GiveUpAfter = config.Duration{Duration: 6 * time.Hour}
	})
	s.pays(files)
	var last uuid.UUID
	s.unhindered(func(ctx context.Context) {
		for i := range files {
			last = s.sends(ctx, fmt.Sprintf("n%d-tempfail.test", i), 1)
		}
		effort.Within(t, "all to be parked", func() bool {
			return s.sum("rollcall_verifications_parked_total") >= files && s.sum("rollcall_leases") == 0
		})
	})
	d, _, err := s.first.Detail(t.Context(), last.String())
	effort.FatalIf(t, err != nil || d.Status != "waiting", "a parked file is %q: %v", d.Status, err)
	effort.Is(t, s.node.Cluster.Load().Addresses, 0, "addresses count as in work")
	var ended api.Cancellation
	effort.Must(s.first.AskJSON(t.Context(), "POST", "/v1/verifications/"+last.String()+"/cancel", nil, &ended))(t)
	if d, _, err = s.first.Detail(t.Context(), last.String()); err != nil || d.Status != "cancelled" {
		t.Errorf("a parked file that was cancelled is %q: %v", d.Status, err)
	}
}

// TestLargeFilesOfOneTenantLetOthersPass: one tenant's files need more memory than there is for files.
func TestLargeFilesOfOneTenantLetOthersPass(t *testing.T) {
	t.Parallel()
	const files, addresses = 5, 120_000
	s := newShared(t, func(c *config.Config) { c.Limits.FileBytesAtOnce = 8 << 20 })
	s.pays(files * addresses)
	s.unhindered(func(ctx context.Context) {
		for range files {
			s.sends(ctx, "many-clean.test", addresses)
		}
		effort.Within(t, "large files to wait for memory", func() bool { return s.sum("rollcall_files_waiting") >= files-2 })
	})
	n := s.sum("rollcall_file_bytes")
	effort.ErrorIf(t, n > 8<<20, "%v bytes of files are in memory", n)
}

// wideAllowance is a throttle file that limits only the rate.
//
//go:embed testdata/wide_allowance.toml
var wideAllowance string

// goodFile makes a file of existing addresses, each at every domain. A domain's number replaces the # in its name.
func goodFile(prefix, domain string, domains, each int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range domains {
		for k := range each {
			fmt.Fprintf(&b, "%s.%s@%s\n", prefix, letters(k), strings.ReplaceAll(domain, "#", fmt.Sprint(i)))
		}
	}
	return b.Bytes()
}

// TestASmallFileBehindABigOne: ten addresses behind a file that takes hours at the same receiver take at most three
// times as long as alone. The small file may be of the same workspace or another one, and the receiver may have a
// host for each of its customers.
func TestASmallFileBehindABigOne(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	rows := 5_000
	if effort.Long() {
		rows = 1_000_000
	}
	for _, x := range []struct {
		name, receiver, domain string
		domains, few           int // addresses of the big file and of a small one
	}{
		{"one domain", limitedDomain, limitedDomain, 1, 1},
		{"an operator with a host for each customer", "mail.protection.outlook.com", "c#-office365.test", rows / 20, 10},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			smallBehindBig(t, x.receiver, goodFile("anna", x.domain, x.domains, rows/x.domains), func(prefix string) []byte {
				return goodFile(prefix, x.domain, x.few, 10/x.few)
			})
		})
	}
}

func smallBehindBig(t *testing.T, receiver string, big []byte, small func(prefix string) []byte) {
	o := quickLab()
	o.Latency = 5 * time.Millisecond
	lab := startLab(t, o)
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), fmt.Sprintf(wideAllowance, receiver))
	node := r.serves()
	r.open(10_000_000)
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	c := r.client()
	takes := func(prefix string) time.Duration {
		return awaitEnd(ctx, t, r.client(), mustHandIn(ctx, t, r.client(), small(prefix)))
	}
	alone := takes("carl")
	bigID := mustHandIn(ctx, t, c, big)
	await(ctx, t, "the big file to be at work", func() bool {
		return effort.Must(look(ctx, c, bigID))(t).Progress.Completed > 100
	})
	own := takes("dora")
	r.tenant = r.tenantOf("another", 1000)
	other := takes("emil")
	t.Logf("ten addresses took %.1f s alone, %.1f s behind %d bytes of the same workspace, %.1f s of another one",
		alone.Seconds(), own.Seconds(), len(big), other.Seconds())
	most := 3 * alone
	if !effort.Long() {
		most += 20 * time.Second // other tests run beside it; waiting for the big file would take minutes
	}
	effort.ErrorIf(t, own > most || other > most, "%v and %v behind the big file, want at most %v", own, other, most)
	node.terminate()
}
