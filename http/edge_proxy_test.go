package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	httpd "rollcall/http"
	"rollcall/http/listen"
	"rollcall/http/listen/listentest"
)

// trusting has the server believe proxies.
func trusting(t testing.TB, networks ...string) func(*httpd.Options) {
	t.Helper()
	trusted, err := listen.ParseTrusted(networks)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *httpd.Options) {
		o.Trusted = trusted
		o.Limits = httpd.DefaultLimits()
		o.Limits.BadKeys = httpd.Rate{PerSecond: 0.01, Burst: 2}
	}
}

// badKey is a request with a key that is rejected.
func badKey(headers string) string {
	return "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: bad\r\n" + headers + "Connection: close\r\n\r\n"
}

// statuses sends texts, each on a connection of its own, and gives what they are answered.
func statuses(t *testing.T, e *edge, texts ...string) string {
	t.Helper()
	var all []string
	for _, text := range texts {
		for _, a := range exchange(t, e, text) {
			all = append(all, fmt.Sprint(a.status))
		}
	}
	return strings.Join(all, " ")
}

// TestLimitsGoByTheClientsAddress behind a trusted proxy, and by the peer's otherwise.
func TestLimitsGoByTheClientsAddress(t *testing.T) {
	t.Parallel()
	forwarded := func(line string) string { return badKey("X-Forwarded-For: " + line + "\r\n") }
	proxied := func(client string) string { return listentest.ProxyHeader(client) + badKey("") }
	for _, c := range []struct {
		name    string
		trusted string
		send    []string
		want    string
	}{
		{"X-Forwarded-For of a proxy", "127.0.0.1", []string{forwarded("192.0.2.1"), forwarded("192.0.2.1"),
			forwarded("192.0.2.1"), forwarded("192.0.2.2"), forwarded("192.0.2.9, 192.0.2.1")}, "401 401 429 401 429"},
		{"X-Forwarded-For of a stranger", "10.0.0.0/8", []string{forwarded("192.0.2.1"), forwarded("192.0.2.2"),
			forwarded("192.0.2.3")}, "401 401 429"},
		{"PROXY header of a proxy", "127.0.0.0/8", []string{proxied("192.0.2.1"), proxied("192.0.2.1"),
			proxied("192.0.2.1"), proxied("192.0.2.2"), badKey("")}, "401 401 429 401 401"},
		{"an IPv6 /64 is one client", "127.0.0.1", []string{proxied("2001:db9::1"), proxied("2001:db9::ffff:2"),
			proxied("2001:db9::3"), proxied("2001:db9:0:1::3")}, "401 401 429 401"},
		{"a PROXY header goes before the stranger's X-Forwarded-For", "127.0.0.1", []string{
			listentest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.7"),
			listentest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.8"),
			listentest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.9")}, "401 401 429"},
		{"a trusted proxy behind a trusted proxy", "127.0.0.1,10.0.0.0/8", []string{
			listentest.ProxyHeader("10.1.1.1") + forwarded("192.0.2.7"),
			listentest.ProxyHeader("10.1.1.2") + forwarded("192.0.2.7"),
			listentest.ProxyHeader("10.1.1.3") + forwarded("192.0.2.7"),
			listentest.ProxyHeader("10.1.1.3") + forwarded("192.0.2.8")},
			"401 401 429 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, strings.Split(c.trusted, ",")...))
			if got := statuses(t, e, c.send...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := listentest.Counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"); got != "" {
				t.Errorf("refused headers: %s", got)
			}
		})
	}
}

// TestProxyHeadersThatAreRefused end the connection with 400 and are counted.
func TestProxyHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	good := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: KEY\r\n\r\n"
	for _, c := range []struct{ name, trusted, head, counted string }{
		{"of a stranger", "10.0.0.1", listentest.ProxyHeader("192.0.2.1"), "untrusted=1"},
		{"version 1 of a stranger", "10.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "untrusted=1"},
		{"version 1 of a proxy", "127.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "version=1"},
		{"UDP", "127.0.0.1", strings.Replace(listentest.ProxyHeader("192.0.2.1"), "\x21\x11", "\x21\x12", 1), "malformed=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, c.trusted))
			got := exchange(t, e, c.head+strings.ReplaceAll(good, "KEY", e.key)+good)
			if len(got) != 1 || got[0].status != 400 || got[0].code() != "bad_request" {
				t.Fatalf("got %s, want one answer 400", describe(got))
			}
			if n := listentest.Counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"); n != c.counted {
				t.Errorf("counted %q, want %q", n, c.counted)
			}
		})
	}
}

// TestConnectionsCountForTheClient: a proxy may open any number, a client behind it not, also before it has
// sent anything of its own.
func TestConnectionsCountForTheClient(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) {
		trusting(t, "127.0.0.1")(o)
		o.Limits.ConnsMax = 5
	})
	const get = "GET /openapi.yaml HTTP/1.1\r\nHost: a\r\n\r\n"
	open := func(head string) (*bufio.Reader, net.Conn) {
		c, err := net.Dial("tcp", e.server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(listentest.Patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, head)
		return bufio.NewReader(c), c
	}
	answered := func(r *bufio.Reader) bool {
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, a.Body)
		return a.StatusCode == 200
	}
	first, conn := open(listentest.ProxyHeader("192.0.2.1") + get)
	if !answered(first) {
		t.Fatal("the first connection is not answered")
	}
	for _, head := range []string{"", "", listentest.ProxyHeader("192.0.2.2")} {
		if r, _ := open(head + get); !answered(r) {
			t.Errorf("a connection with %q is not answered", head)
		}
	}
	for _, more := range []string{get, ""} { // one of five is free
		r, _ := open(listentest.ProxyHeader("192.0.2.1") + more)
		if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
			t.Errorf("a second connection of one client that sends %q: %v, %v, want 429", more, a, err)
		}
	}
	if n := listentest.Counts(t, e.registry, "rollcall_http_connections_refused_total"); n != "share=2" {
		t.Errorf("counted %q", n)
	}
	_ = conn.Close()
	listentest.Within(t, "the place to come back", func() bool {
		r, _ := open(listentest.ProxyHeader("192.0.2.1") + get)
		return answered(r)
	})
}
