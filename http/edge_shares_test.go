package http_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	httpd "rollcall/http"
	"rollcall/http/listen"
	"rollcall/http/listen/listentest"
)

func TestAnAddressHasNoMoreConnectionsThanAreFree(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) { o.Limits.ConnsMax = 5 })
	listentest.Crowded{Name: "rollcall_http", At: e.server.Addr().String(), Registry: e.registry, Full: 503,
		Client: func(c net.Conn) net.Conn { return c }}.CheckShares(t)
}

// TestSilentConnectionsToTheAPIEnd after the time for a request, which is told.
func TestSilentConnectionsToTheAPIEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 10 s: left out with -short")
	}
	c := listentest.Dial(t, "127.0.0.1", newEdge(t, nil).server.Addr().String())
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	if err != nil || a.StatusCode != 408 || !a.Close {
		t.Fatalf("got %v, %v, want 408", a, err)
	}
	_, _ = io.Copy(io.Discard, a.Body)
	if n, err := io.Copy(io.Discard, r); n > 0 || listen.IsTimeout(err) {
		t.Errorf("%d bytes more, %v, want an end", n, err)
	}
}
