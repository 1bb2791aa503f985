package http_test

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

	httpd "rollcall/http"
)

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// value is that of a metric without labels.
func value(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// aCrowdedListener is one of the two, with places for five connections.
type aCrowdedListener struct {
	name, at string
	registry *prometheus.Registry
	full     int // the status when no place is free
	client   func(net.Conn) net.Conn
}

func crowdedListeners(t *testing.T) []aCrowdedListener {
	t.Helper()
	plain := func(c net.Conn) net.Conn { return c }
	e := newEdge(t, func(o *httpd.Options) { o.Limits.ConnsMax = 5 })
	list := []aCrowdedListener{{"rollcall_http", e.server.Addr().String(), e.registry, 503, plain}}
	settings, trusted := pair(t)
	for _, encrypted := range []bool{false, true} {
		registry, client := prometheus.NewRegistry(), plain
		r := newStorageRig(t, func(o *httpd.StorageOptions) {
			o.UploadsMax, o.ConnectionsMax, o.Registerer = 1, 5, registry
			if encrypted {
				o.TLS = settings
			}
		})
		if encrypted {
			client = func(c net.Conn) net.Conn {
				return tls.Client(c, &tls.Config{RootCAs: trusted, ServerName: "localhost"})
			}
		}
		list = append(list, aCrowdedListener{"rollcall_upload", r.storage.Addr().String(), registry, 429, client})
	}
	return list
}

// TestAnAddressHasNoMoreConnectionsThanAreFree: of five places one address gets three, the next one one, and
// the next the last.
func TestAnAddressHasNoMoreConnectionsThanAreFree(t *testing.T) {
	t.Parallel()
	for _, l := range crowdedListeners(t) {
		t.Run(l.name, func(t *testing.T) {
			open := func(want float64) {
				t.Helper()
				within(t, "the connections to be counted", func() bool {
					return value(t, l.registry, l.name+"_connections") == want
				})
			}
			refused := func(from string, status int) {
				t.Helper()
				a, err := http.ReadResponse(bufio.NewReader(l.client(dialFrom(t, from, l.at))), nil)
				if err != nil {
					t.Fatalf("one too many from %s: %v", from, err)
				}
				again, _ := strconv.Atoi(a.Header.Get("Retry-After"))
				if a.StatusCode != status || again < 1 || !a.Close {
					t.Errorf("one too many from %s: %d, Retry-After %d, close %v, want %d", from, a.StatusCode, again,
						a.Close, status)
				}
			}
			first := dialFrom(t, "127.0.0.1", l.at)
			dialFrom(t, "127.0.0.1", l.at)
			dialFrom(t, "127.0.0.1", l.at)
			open(3)
			refused("127.0.0.1", 429)
			dialFrom(t, "127.0.0.2", l.at)
			open(4)
			refused("127.0.0.2", 429)
			dialFrom(t, "127.0.0.3", l.at)
			open(5)
			refused("127.0.0.4", l.full)
			if n := counts(t, l.registry, l.name+"_connections_refused_total"); n != "full=1 share=2" {
				t.Errorf("counted %q", n)
			}
			_ = first.Close()
			open(4)
			dialFrom(t, "127.0.0.4", l.at)
			open(5)
		})
	}
}

// TestSilentConnectionsEnd after the time for the first byte, and those that send one now and then too.
func TestSilentConnectionsEnd(t *testing.T) {
	t.Parallel()
	r := newStorageRig(t, func(o *httpd.StorageOptions) { o.FirstByteTimeout = 300 * time.Millisecond })
	silent, trickling := r.dial(), r.dial()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for _, err := io.WriteString(trickling.Conn, "PUT /upload/x HTTP/1.1\r\nX-A: "); err == nil; <-tick.C {
			_, err = io.WriteString(trickling.Conn, "a")
		}
	}()
	for name, c := range map[string]*rawConn{"silent": silent, "trickling": trickling} {
		if rest, err := io.ReadAll(c); len(rest) > 0 || isTimeout(err) {
			t.Errorf("%s: %q, %v, want an end", name, rest, err)
		}
	}
	<-done
}

// TestSilentConnectionsToTheAPIEnd after the time for a request, which is told.
func TestSilentConnectionsToTheAPIEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 10 s: left out with -short")
	}
	c := dialFrom(t, "127.0.0.1", newEdge(t, nil).server.Addr().String())
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	if err != nil || a.StatusCode != 408 || !a.Close {
		t.Fatalf("got %v, %v, want 408", a, err)
	}
	_, _ = io.Copy(io.Discard, a.Body)
	if n, err := io.Copy(io.Discard, r); n > 0 || isTimeout(err) {
		t.Errorf("%d bytes more, %v, want an end", n, err)
	}
}

// TestAWorkspaceHasNoMoreUploadsThanAreFree: of four places one of weight 2 gets three; who comes
// new gets the last.
func TestAWorkspaceHasNoMoreUploadsThanAreFree(t *testing.T) {
	t.Parallel()
	const total = 100
	heavy, registry := uuid.New(), prometheus.NewRegistry()
	r := newStorageRig(t, func(o *httpd.StorageOptions) {
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
		within(t, "the place to be taken", func() bool { return value(t, registry, "rollcall_uploads_receiving") == want })
		return c
	}
	over := func() {
		t.Helper()
		_, path := r.create(total)
		c := r.dial()
		c.put(path, 0, total, bytesOf(total))
		got := c.reply()
		again, err := strconv.Atoi(got.header.Get("Retry-After"))
		if err != nil || again < 1 || again > 10 || got.status != 429 || got.code != "rate_limited" {
			t.Errorf("got %s, want 429 rate_limited with Retry-After", got.refusal())
		}
	}
	light := r.space
	if _, err := r.store.CreateWorkspace(context.Background(), heavy, "heavy"); err != nil {
		t.Fatal(err)
	}
	r.space = heavy
	first := slow(1)
	slow(2)
	slow(3)
	over()
	r.space = light
	slow(4)
	over()
	if n := counts(t, registry, "rollcall_upload_places_refused_total"); n != "full=1 share=1" {
		t.Errorf("counted %q", n)
	}
	_ = first.Conn.Close()
	within(t, "the place to come back", func() bool { return value(t, registry, "rollcall_uploads_receiving") == 3 })
}
