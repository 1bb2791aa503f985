package http_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	httpd "rollcall/http"
	"rollcall/http/proxies"
)

// proxyHeader is a PROXY header of version 2 for a client.
func proxyHeader(client string) string {
	a := netip.MustParseAddr(client)
	family, other := byte(0x11), netip.MustParseAddr("10.0.0.1")
	if a.Is6() {
		family, other = 0x21, netip.MustParseAddr("2001:db8::1")
	}
	payload := append(append(a.AsSlice(), other.AsSlice()...), 0x12, 0x67, 0, 80)
	h := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, family)
	h = binary.BigEndian.AppendUint16(h, uint16(len(payload)))
	return string(append(h, payload...))
}

// trusting has the server believe proxies.
func trusting(t testing.TB, networks ...string) func(*httpd.Options) {
	t.Helper()
	trusted, err := proxies.Parse(networks)
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

// refusals gives the count of a metric by reason, as reason=n of what is not 0.
func counts(t *testing.T, g prometheus.Gatherer, name string) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == name && n > 0 {
				all = append(all, fmt.Sprintf("%s=%g", m.GetLabel()[0].GetValue(), n))
			}
		}
	}
	return strings.Join(all, " ")
}

// TestLimitsGoByTheClientsAddress behind a trusted proxy, and by the peer's otherwise.
func TestLimitsGoByTheClientsAddress(t *testing.T) {
	t.Parallel()
	forwarded := func(line string) string { return badKey("X-Forwarded-For: " + line + "\r\n") }
	proxied := func(client string) string { return proxyHeader(client) + badKey("") }
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
			proxyHeader("192.0.2.1") + forwarded("192.0.2.7"), proxyHeader("192.0.2.1") + forwarded("192.0.2.8"),
			proxyHeader("192.0.2.1") + forwarded("192.0.2.9")}, "401 401 429"},
		{"a trusted proxy behind a trusted proxy", "127.0.0.1,10.0.0.0/8", []string{
			proxyHeader("10.1.1.1") + forwarded("192.0.2.7"), proxyHeader("10.1.1.2") + forwarded("192.0.2.7"),
			proxyHeader("10.1.1.3") + forwarded("192.0.2.7"), proxyHeader("10.1.1.3") + forwarded("192.0.2.8")},
			"401 401 429 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, strings.Split(c.trusted, ",")...))
			if got := statuses(t, e, c.send...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"); got != "" {
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
		{"of a stranger", "10.0.0.1", proxyHeader("192.0.2.1"), "untrusted=1"},
		{"version 1 of a stranger", "10.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "untrusted=1"},
		{"version 1 of a proxy", "127.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "version=1"},
		{"UDP", "127.0.0.1", strings.Replace(proxyHeader("192.0.2.1"), "\x21\x11", "\x21\x12", 1), "malformed=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, c.trusted))
			got := exchange(t, e, c.head+strings.ReplaceAll(good, "KEY", e.key)+good)
			if len(got) != 1 || got[0].status != 400 || got[0].code() != "bad_request" {
				t.Fatalf("got %s, want one answer 400", describe(got))
			}
			if n := counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"); n != c.counted {
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
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
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
	first, conn := open(proxyHeader("192.0.2.1") + get)
	if !answered(first) {
		t.Fatal("the first connection is not answered")
	}
	for _, head := range []string{"", "", proxyHeader("192.0.2.2")} {
		if r, _ := open(head + get); !answered(r) {
			t.Errorf("a connection with %q is not answered", head)
		}
	}
	for _, more := range []string{get, ""} { // one of five is free
		r, _ := open(proxyHeader("192.0.2.1") + more)
		if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
			t.Errorf("a second connection of one client that sends %q: %v, %v, want 429", more, a, err)
		}
	}
	if n := counts(t, e.registry, "rollcall_http_connections_refused_total"); n != "share=2" {
		t.Errorf("counted %q", n)
	}
	_ = conn.Close()
	within(t, "the place to come back", func() bool {
		r, _ := open(proxyHeader("192.0.2.1") + get)
		return answered(r)
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
		{"127.0.0.1", proxyHeader("192.0.2.1"), 404, ""},
		{"10.0.0.1", "", 404, ""},
		{"10.0.0.1", proxyHeader("192.0.2.1"), 400, "untrusted=1"},
		{"127.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", 400, "version=1"},
		{"127.0.0.1", "PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nX-Long: a\r\n b\r\n\r\n", 400, ""}, // a folded line
	} {
		trusted, err := proxies.Parse([]string{c.trusted})
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		r := newStorageRig(t, func(o *httpd.StorageOptions) { o.Trusted, o.Registerer = trusted, registry })
		conn, err := net.Dial("tcp", r.storage.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, c.head+"PUT /upload/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || a.StatusCode != c.status {
			t.Errorf("%q to %s: %v, %v, want %d", c.head, c.trusted, a, err, c.status)
		}
		if n := counts(t, registry, "rollcall_upload_proxy_headers_refused_total"); n != c.counted {
			t.Errorf("%q to %s: counted %q, want %q", c.head, c.trusted, n, c.counted)
		}
	}
}
