package upload_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/listen"
	"rollcall/http/upload"
	"rollcall/ledger"
)

// TestAnAddressHasNoMoreConnectionsThanAreFree also when connections are encrypted: of five places one address gets
// three, the next one, and a third the last.
func TestAnAddressHasNoMoreConnectionsThanAreFree(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := effort.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
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
			return effort.Dial(t, from, r.storage.Addr().String())
		}
		open := func(want float64) {
			t.Helper()
			effort.Within(t, "the connections to be counted", func() bool {
				return effort.Metric(t, registry, "rollcall_upload_connections") == want
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
		effort.Is(t, effort.Counts(t, registry, "rollcall_upload_connections_refused_total"), "full=1 share=2")
		_ = first.Close()
		open(4)
		dial("127.0.0.4")
		open(5)
	}
}

// TestSilentConnectionsEnd after the time for the first byte, and those that send one now and then too.
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

// TestAWorkspaceHasNoMoreUploadsThanAreFree: of four places one of weight 2 gets three; who comes new gets the last.
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
			return effort.Metric(t, registry, "rollcall_uploads_receiving") == want
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
	effort.Is(t, effort.Counts(t, registry, "rollcall_upload_places_refused_total"), "full=1 share=1", "counted")
	_ = first.Conn.Close()
	effort.Within(t, "the place to come back", func() bool {
		return effort.Metric(t, registry, "rollcall_uploads_receiving") == 3
	})
}

// TestStorageBehindAProxy takes a header of a trusted proxy, and refuses that of a stranger.
func TestStorageBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trusted, head string
		status        int
		counted       string
	}{
		{"127.0.0.1", effort.ProxyHeader("192.0.2.1"), 404, ""},
		{"10.0.0.1", "", 404, ""},
		{"10.0.0.1", effort.ProxyHeader("192.0.2.1"), 400, "untrusted=1"},
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
		effort.Is(t, effort.Counts(t, registry, "rollcall_upload_proxy_headers_refused_total"), c.counted, c.head,
			c.trusted, "counted")
	}
}

// TestStorageTLS takes a file over TLS, and an early answer reaches its client.
func TestStorageTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := effort.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
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
	effort.Is(t, effort.Ask(t, dial(), put+"a@b.example").StatusCode, 200, "upload")
	nobody := "PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\nhalf"
	effort.Is(t, effort.Ask(t, dial(), nobody).StatusCode, 404, "nobody's upload")
}

// TestWhatTheLedgerTakesNoMoreOf: the customer is told to come again when there is no room, and the true end when a
// chunk begins elsewhere. What was stored before stays.
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
