package upload_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/listen"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// TestAnAddressHasNoMoreConnectionsThanAreFree: of five places one address gets three, another one, and a third
// address the last. The same holds with TLS.
func TestAnAddressHasNoMoreConnectionsThanAreFree(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := nettest.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	settings := effort.Must(listen.LoadPair(certFile, keyFile))(t).Config()
	for _, encrypted := range []bool{false, true} {
		registry := prometheus.NewRegistry()
		r := newStorageRig(t, func(o *upload.Options) {
			o.UploadsMax, o.ConnectionsMax, o.Registerer = 1, 5, registry
			if encrypted {
				o.TLS = settings
			}
		})
		dial := func(from string) net.Conn {
			t.Helper()
			return nettest.Dial(t, from, r.storage.Addr().String())
		}
		open := func(want float64) {
			t.Helper()
			effort.Within(t, "the connections to be counted", func() bool {
				return nettest.Metric(t, registry, "rollcall_upload_connections") == want
			})
		}
		refused := func(from string) {
			t.Helper()
			c := dial(from)
			if encrypted {
				c = tls.Client(c, &tls.Config{RootCAs: trusted, ServerName: "localhost"})
			}
			a := effort.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
			again, _ := strconv.Atoi(a.Header.Get("Retry-After"))
			effort.ErrorIf(t, a.StatusCode != 429 || again < 1 || !a.Close, "one too many from %s: %d, Retry-After %d, close %v",
				from, a.StatusCode, again, a.Close)
		}
		first := dial("127.0.0.1")
		dial("127.0.0.1")
		dial("127.0.0.1")
		open(3)
		refused("127.0.0.1")
		dial("127.0.0.2")
		open(4)
		refused("127.0.0.2")
		dial("127.0.0.3")
		open(5)
		refused("127.0.0.4")
		effort.Is(t, nettest.Counts(t, registry, "rollcall_upload_connections_refused_total"), "full=1 share=2")
		_ = first.Close()
		open(4)
		dial("127.0.0.4")
		open(5)
	}
}

// TestSilentConnectionsEnd: silent connections end after the time for the first byte, even if they trickle bytes of a
// request's head.
func TestSilentConnectionsEnd(t *testing.T) {
	t.Parallel()
	r := newStorageRig(t, func(o *upload.Options) { o.FirstByteTimeout = 300 * time.Millisecond })
	silent, trickling := r.dial(), r.dial()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.Tick(50 * time.Millisecond)
		for _, err := io.WriteString(trickling.Conn, "PUT /upload/x HTTP/1.1\r\nX-A: "); err == nil; <-tick {
			_, err = io.WriteString(trickling.Conn, "a")
		}
	}()
	for name, c := range map[string]*rawConn{"silent": silent, "trickling": trickling} {
		rest, err := io.ReadAll(c)
		effort.ErrorIf(t, len(rest) > 0 || listen.IsTimeout(err), "%s: %q, %v, want an end", name, rest, err)
	}
	<-done
}

// TestAWorkspaceHasNoMoreUploadsThanAreFree: of four places a workspace of weight 2 gets three; another workspace
// gets the last.
func TestAWorkspaceHasNoMoreUploadsThanAreFree(t *testing.T) {
	t.Parallel()
	const total = 100
	heavy, registry := uuid.New(), prometheus.NewRegistry()
	r := newStorageRig(t, func(o *upload.Options) {
		o.UploadsMax, o.Registerer = 4, registry
		o.Weight = func(workspace uuid.UUID) int {
			if workspace == heavy {
				return 2
			}
			return 1
		}
	})
	slow := func(want float64) *rawConn {
		t.Helper()
		_, path := r.create(total)
		c := r.dial()
		c.begin(path, total, "half of it")
		effort.Within(t, "the place to be taken", func() bool {
			return nettest.Metric(t, registry, "rollcall_uploads_receiving") == want
		})
		return c
	}
	over := func() {
		t.Helper()
		_, path := r.create(total)
		c := r.dial()
		c.put(path, 0, total, bytesOf(total))
		got := c.reply()
		again, err := strconv.Atoi(got.header.Get("Retry-After"))
		effort.ErrorIf(t, err != nil || again < 1 || again > 10 || got.status != 429 || got.code != "rate_limited" ||
			!got.close, "got %s, want 429 rate_limited with Retry-After, close true", got.refusal())
		effort.OK(t, c.ended())
		c = r.dial()
		c.query(path, total)
		effort.Is(t, c.reply().status, 308, "a query, which needs no place")
	}
	light := r.space
	effort.Must(r.store.CreateWorkspace(context.Background(), heavy, "heavy"))(t)
	r.space = heavy
	first := slow(1)
	slow(2)
	slow(3)
	over()
	r.space = light
	slow(4)
	over()
	effort.Is(t, nettest.Counts(t, registry, "rollcall_upload_slots_refused_total"), "full=1 share=1", "counted")
	_ = first.Conn.Close()
	effort.Within(t, "the place to come back", func() bool {
		return nettest.Metric(t, registry, "rollcall_uploads_receiving") == 3
	})
}

// TestStorageBehindAProxy: a trusted proxy's header is accepted, and a stranger's refused.
func TestStorageBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trusted, head string
		status        int
		counted       string
	}{
		{"127.0.0.1", nettest.ProxyHeader("192.0.2.1"), 404, ""},
		{"10.0.0.1", "", 404, ""},
		{"10.0.0.1", nettest.ProxyHeader("192.0.2.1"), 400, "untrusted=1"},
		{"127.0.0.1", "PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nX-Long: a\r\n b\r\n\r\n", 400, ""}, // a folded line
	} {
		trusted := effort.Must(listen.ParseTrusted([]string{c.trusted}))(t)
		registry := prometheus.NewRegistry()
		r := newStorageRig(t, func(o *upload.Options) { o.Trusted, o.Registerer = trusted, registry })
		conn := effort.Must(net.Dial("tcp", r.storage.Addr().String()))(t)
		defer conn.Close()
		_, _ = io.WriteString(conn, c.head+"PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		a := effort.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		effort.Is(t, a.StatusCode, c.status, c.head, "to", c.trusted)
		effort.Is(t, nettest.Counts(t, registry, "rollcall_upload_proxy_headers_refused_total"), c.counted, c.head,
			c.trusted, "counted")
	}
}

// TestStorageTLS: a file can be uploaded over TLS, and an early answer reaches its client.
func TestStorageTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := nettest.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	settings := effort.Must(listen.LoadPair(certFile, keyFile))(t).Config()
	r := newStorageRig(t, func(o *upload.Options) { o.TLS, o.Registerer = settings, prometheus.NewRegistry() })
	dial := func() net.Conn {
		config := &tls.Config{RootCAs: trusted, ServerName: "localhost"}
		c := effort.Must(tls.Dial("tcp", r.storage.Addr().String(), config))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	_, path := r.create(11)
	put := "PUT " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"
	effort.Is(t, nettest.Ask(t, dial(), put+"a@b.example").StatusCode, 200, "upload")
	nobody := "PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nhalf"
	effort.Is(t, nettest.Ask(t, dial(), nobody).StatusCode, 404, "nobody's upload")
}

// TestWhatTheLedgerTakesNoMoreOf: if the ledger has no room for a chunk, the client has to come again. If the chunk
// leaves a gap, the answer has the end of the stored bytes. Bytes stored before stay.
func TestWhatTheLedgerTakesNoMoreOf(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	for fault, want := range map[error]string{ledger.ErrNoRoom: "503 storage_unavailable, again after 60, close true",
		ledger.ErrGap: "308 , again after , close true"} {
		id, path := rig.create(20)
		rig.book.hook(func(func() (ledger.Upload, error)) (ledger.Upload, error) { return ledger.Upload{}, fault })
		conn := rig.dial()
		conn.put(path, 0, 20, bytesOf(20))
		got := conn.reply()
		effort.Is(t, got.refusal(), want)
		effort.Is(t, got.durable, "", "Range")
		rig.book.hook(nil)
		conn = rig.dial()
		conn.put(path, 0, 20, bytesOf(20))
		effort.Is(t, conn.reply().status, 200, "afterwards")
		effort.Is(t, rig.durable(id), 20)
	}
}

// TestEarlyAnswerNeverRunsTheBody hides a request in the body of every request that is answered before its last byte.
// With some lengths fasthttp in stream mode would run the hidden request; a second answer on the connection would
// show that.
func TestEarlyAnswerNeverRunsTheBody(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, open := rig.create(100)
	_, full := rig.create(3)
	_, large := rig.create(200_000)
	_, expired := rig.createFor(100, time.Nanosecond)
	for path, text := range map[string]string{open: bytesOf(40), full: "abc", large: bytesOf(100_000)} {
		seed := rig.dial()
		seed.put(path, 0, map[string]int64{open: 100, full: 3, large: 200_000}[path], text)
		seed.reply()
	}
	hidden := "PUT " + open + " HTTP/1.1\r\nHost: storage.example\r\nContent-Range: bytes */100\r\n" +
		"Content-Length: 0\r\n\r\n"
	const length = "Content-Length: %d"
	cases := []struct {
		name, method, path string
		headers            []string // with %d for the body's length, %old and %gap for the last byte of such a range
		status             int
	}{
		{"complete", "PUT", full, []string{length}, 200},
		{"old data", "PUT", large, []string{length, "Content-Range: bytes 0-%old/200000"}, 308},
		{"gap", "PUT", large, []string{length, "Content-Range: bytes 100001-%gap/200000"}, 308},
		{"too large", "PUT", open, []string{length}, 413},
		{"other length than the range", "PUT", open, []string{length, "Content-Range: bytes 40-41/100"}, 400},
		{"other total", "PUT", open, []string{length, "Content-Range: bytes 40-41/77"}, 400},
		{"bad range", "PUT", open, []string{length, "Content-Range: nonsense"}, 400},
		{"query with a body", "PUT", open, []string{length, "Content-Range: bytes */100"}, 400},
		{"encoded", "PUT", open, []string{length, "Content-Encoding: br"}, 415},
		{"unknown token", "PUT", "/upload/x", []string{length}, 404},
		{"unknown path", "PUT", "/x", []string{length}, 404},
		{"expired", "PUT", expired, []string{length}, 410},
		{"post", "POST", open, []string{length}, 405},
		{"get", "GET", open, []string{length}, 405},
		{"options", "OPTIONS", open, []string{length}, 204},
		{"options of another origin", "OPTIONS", open, []string{length, "Origin: null"}, 403},
		{"identity", "PUT", open, []string{"Transfer-Encoding: identity", length}, 411},
		{"identity, no length", "PUT", open, []string{"Transfer-Encoding: identity"}, 411},
		{"chunked and length", "PUT", open, []string{"Transfer-Encoding: chunked", length}, 411},
		{"no length", "PUT", open, nil, 411},
	}
	try := effort.EveryNth(3)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for padding := 0; padding <= 70_000; padding += 350 {
				if !try() {
					continue
				}
				body := strings.Repeat("x", padding) + hidden
				numbers := strings.NewReplacer("%d", strconv.Itoa(len(body)), "%old", strconv.Itoa(len(body)-1),
					"%gap", strconv.Itoa(100_000+len(body)))
				headers := make([]string, 0, len(c.headers))
				for _, h := range c.headers {
					headers = append(headers, numbers.Replace(h))
				}
				conn := rig.dial()
				conn.send(c.method, c.path, headers, body)
				if got := conn.reply(); got.status != c.status {
					t.Fatalf("padding %d: got %d %q, want %d", padding, got.status, got.code, c.status)
				}
				effort.OK(t, conn.ended(), "padding", padding)
				_ = conn.Close()
			}
		})
	}
}

// TestUnreadableRequestIsRefused sends bytes that are no HTTP request and contain a key; the rig checks that the key
// is not in the log.
func TestUnreadableRequestIsRefused(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.create(10)
	put := "PUT " + path + " HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, text string
		status     int
		code       string
	}{
		{"bad header", put + "X-API-Key " + keyCanary + "\r\n\r\n", 400, "bad_request"},
		{"bad header value", put + "X-API-Key: " + keyCanary + "\x01\r\n\r\n", 400, "bad_request"},
		{"no host", "PUT " + path + " HTTP/1.1\r\nX-API-Key: " + keyCanary + "\r\nContent-Length: 0\r\n\r\n",
			400, "bad_request"},
		{"large head", put + "X-API-Key: " + keyCanary + "\r\nX: " +
			strings.Repeat("x", 17<<10) + "\r\n\r\n", 431, "headers_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := rig.dial()
			_, _ = io.WriteString(conn.Conn, c.text)
			if got := conn.reply(); got.status != c.status || got.code != c.code || !got.close {
				t.Errorf("got %d %q close %v, want %d %q true", got.status, got.code, got.close, c.status, c.code)
			}
			effort.OK(t, conn.ended())
		})
	}
}

// options returns the options of another listener over the same ledger.
func (r *storageRig) options() upload.Options {
	o := upload.DefaultOptions()
	o.Listen, o.Book, o.Tokens = "127.0.0.1:0", r.book, r.tokens
	o.Wake, o.Log, o.Registerer = func() {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	return o
}

// TestStopAtOnce stops a listener between Start and fasthttp's first accept, and one that never started.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	for i := range 50 {
		s := upload.New(rig.options())
		if i > 0 {
			effort.OK(t, s.Start())
		}
		effort.OK(t, s.Stop(t.Context()))
		effort.Is(t, s.Addr() != nil, i > 0, "has an address")
	}
}

func TestUsedPortIsSaid(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	o := rig.options()
	o.Listen = rig.storage.Addr().String()
	s := upload.New(o)
	var op *net.OpError
	err := s.Start()
	effort.ErrorIf(t, !errors.As(err, &op), "start on a used port: %v", err)
}

// TestAnUploadEndsWithItsUser: somebody begins an upload at one node and then loses the right at another node. The
// upload ends at the first node too.
func TestAnUploadEndsWithItsUser(t *testing.T) {
	t.Parallel()
	r := newStorageRig(t, nil)
	other := newStorageRig(t, func(o *upload.Options) { o.Book = r.store })
	d, ctx := ledgertest.NewFixture(t, r.store, 0), t.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	role := func(to ledger.Role) func(ledger.SignedIn) error {
		return func(in ledger.SignedIn) error { return r.store.SetRole(ctx, d.Workspace, in.User.ID, to) }
	}
	for name, c := range map[string]struct {
		end  func(in ledger.SignedIn) error
		want string
	}{
		"member":  {role(ledger.Member), "200 "},
		"viewer":  {role(ledger.Viewer), "403 action_not_allowed"},
		"removed": {role(""), "403 action_not_allowed"},
		"disabled": {func(in ledger.SignedIn) error {
			_, err := r.store.DisableUser(ctx, in.User.ID, true)
			return err
		}, "403 action_not_allowed"},
		"signed out": {func(in ledger.SignedIn) error {
			return r.store.EndSession(ctx, in.User.ID, in.Session.ID)
		}, "403 action_not_allowed"},
	} {
		in := d.Joins(name[:3]+"@acme.test", ledger.Owner)
		v := effort.Must(effort.First(r.store.Create(ledger.WithActor(ctx, "user:"+in.User.ID.String()), d.Asks(8))))(t)
		path := upload.PathPrefix + r.tokens.Token(v.ID)
		here := r.dial()
		here.put(path, 0, 8, "a@b.")
		if got := here.reply(); got.status != 308 {
			t.Errorf("%s: the first bytes: %s", name, got.refusal())
		}
		effort.OK(t, c.end(in))
		there := other.dial()
		there.put(path, 4, 8, "tst\n")
		got := there.reply()
		after, err := r.store.UploadState(ctx, v.ID)
		whole := err == nil && after.Status == ledger.Preparing
		effort.ErrorIf(t, fmt.Sprintf("%d %s", got.status, got.code) != c.want || whole != (got.status == 200),
			"%s: the last bytes: %s, want %s; then %+v, %v", name, got.refusal(), c.want, after, err)
	}
}

// begin sends the head of a PUT of the whole file and some of its bytes.
func (c *rawConn) begin(path string, total int, sent string) {
	c.send("PUT", path, []string{
		fmt.Sprintf("Content-Range: bytes 0-%d/%d", total-1, total), fmt.Sprintf("Content-Length: %d", total),
	}, sent)
}

// TestCutConnectionKeepsWhatArrived ends a body early in every way that a client can, at places around the chunk's
// edge. To the program each looks like a clean end.
func TestCutConnectionKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const chunk = upload.ChunkBytes
	total := 2*chunk + 1000
	file := bytesOf(total)
	for _, sent := range []int{1, 2, 8192, chunk - 1, chunk, chunk + 1, 2*chunk + 999} {
		for _, how := range []string{"half close", "close"} {
			t.Run(fmt.Sprintf("%s after %d", how, sent), func(t *testing.T) {
				id, path := rig.create(int64(total))
				conn := rig.dial()
				conn.begin(path, total, file[:sent])
				if how == "half close" {
					effort.OK(t, conn.Conn.(*net.TCPConn).CloseWrite())
					got := conn.reply()
					if want := fmt.Sprintf("bytes=0-%d", sent-1); got.status != 308 || got.durable != want || !got.close {
						t.Errorf("got %d Range %q close %v, want 308 %q true", got.status, got.durable, got.close, want)
					}
				} else if err := conn.Close(); err != nil {
					t.Fatal(err)
				}
				rig.waitDurable(id, int64(sent))
				conn = rig.dial()
				conn.put(path, int64(sent), int64(total), file[sent:])
				effort.Is(t, conn.reply().status, 200, "the rest")
				effort.Is(t, string(rig.file(id)), file, "the stored bytes are not the sent ones")
			})
		}
	}
}

// TestStalledClientIsCut: a client that stops sending loses its connection but not the session.
func TestStalledClientIsCut(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) {
		o.Window, o.WindowBytes, o.FirstByteTimeout = 200*time.Millisecond, 1000, 300*time.Millisecond
	})
	file := bytesOf(100_000)
	t.Run("stops in the body", func(t *testing.T) {
		id, path := rig.create(100_000)
		conn := rig.dial()
		conn.begin(path, 100_000, file[:5000])
		effort.Is(t, len(effort.Must(io.ReadAll(conn))(t)), 0, "read")
		rig.waitDurable(id, 5000)
	})
	t.Run("stops after the head", func(t *testing.T) {
		id, path := rig.create(100_000)
		conn := rig.dial()
		conn.begin(path, 100_000, "")
		effort.Is(t, len(effort.Must(io.ReadAll(conn))(t)), 0, "read")
		rig.waitDurable(id, 0)
	})
}

// TestFencedWriterOfAnotherNodeIsCut: the newer writer comes only through the ledger, as from another node.
func TestFencedWriterOfAnotherNodeIsCut(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const total = 2 * upload.ChunkBytes
	file := bytesOf(total)
	id, path := rig.create(total)
	older := rig.dial()
	older.begin(path, total, file[:upload.ChunkBytes])
	rig.waitDurable(id, upload.ChunkBytes)
	effort.Must(rig.store.OpenUpload(context.Background(), id))(t)
	_, _ = io.WriteString(older.Conn, file[upload.ChunkBytes:])
	b, err := io.ReadAll(older)
	effort.ErrorIf(t, len(b) > 0, "older writer read %q, %v; want a bare end", b, err)
	effort.Is(t, rig.durable(id), upload.ChunkBytes, "durable")
}

// TestNothingIsConfirmedBeforeItIsDurable holds the ledger's last write and checks that no answer comes until it
// ends.
func TestNothingIsConfirmedBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	id, path := rig.create(100)
	held, release := make(chan struct{}), make(chan struct{})
	rig.book.hook(func(write func() (ledger.Upload, error)) (ledger.Upload, error) {
		close(held)
		<-release
		return write()
	})
	conn := rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	<-held
	query := rig.dial()
	query.query(path, 100)
	if got := query.reply(); got.status != 308 || got.durable != "" {
		t.Errorf("query during the write got %d Range %q, want 308 without Range", got.status, got.durable)
	}
	n := conn.Reader.Buffered()
	effort.ErrorIf(t, n > 0, "%d bytes of answer before the write ended", n)
	close(release)
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("got %d with %d durable", got.status, rig.durable(id))
	}
	select {
	case <-rig.woken:
	case <-time.After(effort.Patience):
		t.Error("nobody was woken")
	}
}

// storageAway is the answer to every fault of the storage, and while a node stops.
const storageAway = "503 storage_unavailable, again after 5, close true"

var errDisk = errors.New("database or disk is full")

// TestLedgerFaultAsksToComeAgain makes the second chunk fail, once before it is written and once after. The client's
// query then shows how much is stored.
func TestLedgerFaultAsksToComeAgain(t *testing.T) {
	t.Parallel()
	const chunk = upload.ChunkBytes
	const total = 2*chunk + 10
	file := bytesOf(total)
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written %v", written), func(t *testing.T) {
			rig := newStorageRig(t, nil)
			id, path := rig.create(total)
			writes := 0
			rig.book.hook(func(write func() (ledger.Upload, error)) (ledger.Upload, error) {
				if writes++; writes != 2 {
					return write()
				}
				if written {
					if _, err := write(); err != nil {
						return ledger.Upload{}, err
					}
				}
				return ledger.Upload{}, errDisk
			})
			conn := rig.dial()
			conn.put(path, 0, total, file)
			effort.Is(t, conn.reply().refusal(), storageAway)
			want := int64(chunk)
			if written {
				want = 2 * chunk
			}
			conn = rig.dial()
			conn.query(path, total)
			effort.Is(t, conn.reply().durable, fmt.Sprintf("bytes=0-%d", want-1), "Range")
			conn = rig.dial()
			conn.put(path, 0, total, file)
			if got := conn.reply(); got.status != 200 || string(rig.file(id)) != file {
				t.Errorf("the repeat got %d %q", got.status, got.code)
			}
		})
	}
}

// TestStateOfTheFenceDecides: another node stores more after this node has read the session and before the fence.
// Nothing is stored twice.
func TestStateOfTheFenceDecides(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	file := bytesOf(100)
	id, path := rig.create(100)
	rig.book.onOpen = func() {
		ctx := context.Background()
		u, err := rig.store.OpenUpload(ctx, id)
		if err == nil {
			_, err = rig.store.AppendChunk(ctx, id, u.Writer, 0, []byte(file[:60]))
		}
		effort.ErrIs(t, err, nil)
	}
	conn := rig.dial()
	conn.put(path, 0, 100, file[:50])
	got := conn.reply()
	effort.ErrorIf(t, got.status != 308 || got.durable != "bytes=0-59" || !got.close || rig.durable(id) != 60,
		"got %d Range %q close %v with %d durable", got.status, got.durable, got.close, rig.durable(id))
}

// TestCancelDuringUploadEndsIt cancels while the body is on its way.
func TestCancelDuringUploadEndsIt(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	const total = 2*upload.ChunkBytes + 10
	file := bytesOf(total)
	id, path := rig.create(total)
	conn := rig.dial()
	conn.begin(path, total, file[:upload.ChunkBytes])
	rig.waitDurable(id, upload.ChunkBytes)
	effort.Must(rig.store.Cancel(context.Background(), rig.space, id))(t)
	_, _ = io.WriteString(conn.Conn, file[upload.ChunkBytes:])
	if got := conn.reply(); got.status != 410 || got.code != "upload_cancelled" || !got.close {
		t.Errorf("got %d %q close %v, want 410 upload_cancelled true", got.status, got.code, got.close)
	}
}

// TestStopKeepsWhatArrived stops the listener in the middle of a body. The client has to come again, and durable
// bytes stay.
func TestStopKeepsWhatArrived(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) { o.LingerTimeout = 100 * time.Millisecond })
	const total = 2 * upload.ChunkBytes
	id, path := rig.create(total)
	conn, idle := rig.dial(), rig.dial()
	idle.query(path, total)
	idle.reply()
	conn.begin(path, total, bytesOf(upload.ChunkBytes+100))
	rig.waitDurable(id, upload.ChunkBytes)
	rig.stop()
	effort.Is(t, conn.reply().refusal(), storageAway)
	got := rig.durable(id)
	effort.ErrorIf(t, got < upload.ChunkBytes || got > upload.ChunkBytes+100, "durable %d", got)
	effort.ErrIs(t, idle.ended(), nil, "idle connection")
	rig.stop() // twice is fine
	_, err := net.Dial("tcp", rig.storage.Addr().String())
	effort.ErrorIf(t, err == nil, "the listener still takes connections")
}

// TestEarlyAnswerSurvivesALargeBody sends megabytes to a finished session. The answer must reach a client that writes
// everything before it reads.
func TestEarlyAnswerSurvivesALargeBody(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.create(3)
	seed := rig.dial()
	seed.put(path, 0, 3, "abc")
	seed.reply()
	body := strings.Repeat("x", 8<<20)
	for range 5 {
		conn := rig.dial()
		conn.send("PUT", path, []string{fmt.Sprintf("Content-Length: %d", len(body))}, body)
		got := conn.reply()
		effort.FatalIf(t, got.status != 200 || !got.close, "got %d close %v", got.status, got.close)
	}
}

func TestExpectContinueIsAnswered(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	id, path := rig.create(100)
	conn := rig.dial()
	conn.send("PUT", path, []string{"Expect: 100-continue", "Content-Length: 100"}, "")
	line, err := conn.ReadString('\n')
	effort.FatalIf(t, err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 "), "got %q, %v", line, err)
	effort.MustBe(t, effort.Must(conn.ReadString('\n'))(t), "\r\n")
	_, _ = io.WriteString(conn.Conn, bytesOf(100))
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("got %d with %d durable", got.status, rig.durable(id))
	}
}

// TestPanicIsAnAnswer: after a panic below the handler the client gets an answer, the log does not contain the
// panic's value, and the node keeps serving.
func TestPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) { o.UploadsMax = 1 })
	id, path := rig.create(100)
	rig.book.hook(func(func() (ledger.Upload, error)) (ledger.Upload, error) { panic(keyCanary) })
	conn := rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	got, want := conn.reply().refusal(), "503 internal_error, again after 5, close true"
	effort.ErrorIf(t, got != want, "got %s, want %s", got, want)
	rig.book.hook(nil)
	conn = rig.dial()
	conn.put(path, 0, 100, bytesOf(100))
	if got := conn.reply(); got.status != 200 || rig.durable(id) != 100 {
		t.Errorf("after the panic: got %s with %d durable", got.refusal(), rig.durable(id))
	}
}
