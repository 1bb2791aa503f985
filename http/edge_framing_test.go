package http_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	httpd "rollcall/http"
	"rollcall/http/listen"
)

// exchange writes raw bytes to a new connection and reads every answer until the server closes it. It writes while it
// reads, like a client that does not expect a refusal.
func exchange(t *testing.T, e *edge, raw string) []answer {
	t.Helper()
	c := effort.Must(net.Dial("tcp", e.server.Addr().String()))(t)
	defer c.Close()
	effort.OK(t, c.SetDeadline(time.Now().Add(15*time.Second)))
	go func() { _, _ = io.WriteString(c, raw) }()
	return readAnswers(t, c)
}

// readAnswers reads answers until the connection ends. It must end properly.
func readAnswers(t *testing.T, c net.Conn) []answer {
	t.Helper()
	var all []answer
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			effort.ErrIs(t, err, io.EOF, "end of the connection after", len(all), "answers")
			return all
		}
		res, err := http.ReadResponse(r, nil)
		effort.OK(t, err, "read answer", len(all)+1)
		body, err := io.ReadAll(res.Body)
		effort.OK(t, err, "read body", len(all)+1)
		if res.Close { // the standard library removes the header
			res.Header.Set("Connection", "close")
		}
		all = append(all, answer{status: res.StatusCode, header: res.Header, body: body})
	}
}

// TestFraming sends requests with an ambiguous beginning or end, each followed by a second request on the same
// connection. Exactly one answer may come back: the second request must never be executed (RFC 9112 §11.2).
func TestFraming(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	key := "X-API-Key: " + e.key + "\r\n"
	second := "POST /v1/verifications HTTP/1.1\r\nHost: a\r\n" + key + "\r\n"
	create := "POST /v1/verifications HTTP/1.1\r\nHost: a\r\n" + key
	for _, c := range []struct {
		name, raw string
		status    int
		code      string
	}{
		{"chunked", create + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 411, "length_required"},
		{"chunked in other letters", create + "tRANSFER-eNCODING: cHUNKED\r\n\r\n0\r\n\r\n", 411, "length_required"},
		{"chunked and nothing more", create + "Transfer-Encoding: chunked\r\n\r\n", 411, "length_required"},
		{"identity", create + "Transfer-Encoding: identity\r\n\r\n", 411, "length_required"},
		{"gzip, chunked", create + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 411, "length_required"},
		{"two transfer encodings", create +
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, "length_required"},
		{"length and chunked", create + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411,
			"length_required"},
		{"chunked and length", create + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 411,
			"length_required"},
		{"chunked on HTTP/1.0", "POST /v1/verifications HTTP/1.0\r\nHost: a\r\n" + key +
			"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, "length_required"},
		{"two lengths that differ", create + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", 400, "bad_request"},
		{"two lengths that agree", create + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, "bad_request"},
		{"length +5", create + "Content-Length: +5\r\n\r\nhello", 400, "bad_request"},
		{"length beyond 64 bits", create + "Content-Length: 99999999999999999999\r\n\r\n", 400, "bad_request"},
		{"length negative", create + "Content-Length: -1\r\n\r\n", 400, "bad_request"},
		{"two hosts", "GET /v1/credits HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + key + "\r\n", 400, "bad_request"},
		{"space before the colon", "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key : " + e.key + "\r\n\r\n",
			400, "bad_request"},
		{"folded line", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key + "X-Long: a\r\n b\r\n\r\n", 400, "bad_request"},
		{"folded by a tab", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key + "X-Long: a\r\n\tb\r\n\r\n", 400, "bad_request"},
		{"folded key", "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key:\r\n " + e.key + "\r\n\r\n", 400, "bad_request"},
		{"folded first line", "GET /v1/credits HTTP/1.1\r\n Host: a\r\n" + key + "\r\n", 400, "bad_request"},
		{"folded line and chunked", create + "X-Long: a\r\n b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
			"bad_request"},
		{"folded line and a body", create + "X-Long: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", 400, "bad_request"},
		{"no HTTP", "hello\r\n\r\n", 400, "bad_request"},
		{"headers of 17 KiB", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key + "X-Pad: " + strings.Repeat("a",
			17<<10) + "\r\n\r\n", 431, "headers_too_large"},
		{"request line of 17 KiB", "GET /v1/credits?" + strings.Repeat("a", 17<<10) +
			" HTTP/1.1\r\nHost: a\r\n\r\n", 431, "headers_too_large"},
		{"large body", create + "Content-Length: 8193\r\n\r\n" + strings.Repeat("a", 8193), 422, "unexpected_body"},
		{"large body at credits", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key +
			"Content-Length: 8193\r\n\r\n" + strings.Repeat("a", 8193), 200, ""},
		{"large body that never comes", create + "Content-Length: 1000000\r\n\r\n", 422, "unexpected_body"},
		{"large body that was expected", create + "Expect: 100-continue\r\nContent-Length: 8193\r\n\r\n" +
			strings.Repeat("a", 8193), 422, "unexpected_body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := exchange(t, e, c.raw+second)
			for len(got) > 0 && got[0].status == http.StatusContinue {
				got = got[1:]
			}
			effort.FatalIf(t, len(got) != 1 || got[0].status != c.status || got[0].code() != c.code,
				"got %s, want one answer %d %q", describe(got), c.status, c.code)
			if c.status != 200 {
				e.checker.checkError(t, call{method: "?", path: c.name}, got[0])
			}
			effort.Is(t, got[0].header.Get("Connection"), "close", "Connection")
		})
	}
	logs := e.logs.String()
	effort.ErrorIf(t, strings.Contains(logs, e.key) || strings.Contains(logs, e.key[16:]), "the key is in the log")
}

func describe(all []answer) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, "[%d %s]", a.status, a.body)
	}
	return b.String()
}

// TestSmuggling hides a create in bodies of many lengths, after requests that are answered early. The create must
// never run.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	hidden := "POST /v1/verifications HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n" +
		"Idempotency-Key: 11111111-1111-4111-8111-111111111111\r\nX-Upload-Content-Length: 1\r\n\r\n"
	paddings := []int{0, 1, 100, 1000, 4000, 8192 - len(hidden), 8192, 8193, 16384, 40000, 70000}
	for _, head := range []string{
		"POST /v1/verifications HTTP/1.1\r\nHost: a\r\n",
		"POST /nowhere HTTP/1.1\r\nHost: a\r\n",
		"PUT /v1/credits HTTP/1.1\r\nHost: a\r\n",
		"GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: bad\r\n",
		"POST /v1/verifications HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n",
	} {
		for _, padding := range paddings {
			body := strings.Repeat("a", padding) + hidden
			raw := head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body +
				"GET /openapi.yaml HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
			for _, a := range exchange(t, e, raw) {
				effort.FatalIf(t, a.status == 201, "%q with padding %d: the hidden request ran", head, padding)
			}
		}
	}
	a := e.do(get("/v1/verifications"))
	effort.ErrorIf(t, strings.Contains(string(a.body), "uploading"), "a hidden request made a verification: %s", a.body)
}

// TestKeyTwice: a request with two keys is refused, because the library would use the first one.
func TestKeyTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	for _, keys := range [][2]string{{e.key, e.key}, {e.key, "x"}, {"x", e.key}, {e.key, ""}, {"", e.key}} {
		raw := fmt.Sprintf("GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: %s\r\nx-api-key: %s\r\n"+
			"Connection: close\r\n\r\n", keys[0], keys[1])
		got := exchange(t, e, raw)
		if len(got) != 1 || got[0].status != 401 || got[0].code() != "invalid_api_key" {
			t.Errorf("keys of %d and %d bytes: got %s, want 401", len(keys[0]), len(keys[1]), describe(got))
		}
	}
}

// TestHeadersTwice: other headers that may come only once are refused too.
func TestHeadersTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id, length, name := "Idempotency-Key: 11111111-1111-4111-8111-111111111111\r\n",
		"X-Upload-Content-Length: 1\r\n", "X-Upload-Filename: a\r\n"
	for _, c := range []struct{ headers, code string }{
		{id + id + length, "invalid_idempotency_key"},
		{id + length + length, "invalid_upload_length"},
		{id + length + name + name, "invalid_filename"},
		{id + length + "Origin: " + listedOrigin + "\r\nOrigin: " + listedOrigin + "\r\n", "origin_not_allowed"},
	} {
		got := exchange(t, e, "POST /v1/verifications HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+
			"X-API-Key: "+e.key+"\r\n"+c.headers+"\r\n")
		effort.ErrorIf(t, len(got) != 1 || got[0].code() != c.code,
			"%q: got %s, want %s", c.headers, describe(got), c.code)
	}
}

// TestTargets: only the plain spelling of a path is routed, and the host of an absolute target is ignored.
func TestTargets(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	for _, c := range []struct {
		line   string
		status int
		code   string
	}{
		{"GET /v1/credits", 200, ""},
		{"GET http://elsewhere.test/v1/credits", 200, ""},
		{"GET /v1//credits", 404, "route_not_found"},
		{"GET //v1/credits", 404, "route_not_found"},
		{"GET /v1/./credits", 404, "route_not_found"},
		{"GET /v1/x/../credits", 404, "route_not_found"},
		{"GET /v1/verifications/..", 404, "route_not_found"},
		{"GET /v1/%63redits", 404, "route_not_found"},
		{"GET /v1%2fcredits", 404, "route_not_found"},
		{"GET /v1/%2e%2e/v1/credits", 404, "route_not_found"},
		{"GET /V1/credits", 404, "route_not_found"},
		{"GET /v1/credits;x", 404, "route_not_found"},
		{"GET v1/credits", 400, "bad_request"},
		{"OPTIONS *", 405, "method_not_allowed"},
		{"BREW /v1/credits", 405, "method_not_allowed"},
		{"TRACE /v1/credits", 405, "method_not_allowed"},
		{"CONNECT a:443", 404, "route_not_found"},
	} {
		got := exchange(t, e, c.line+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: "+e.key+"\r\n\r\n")
		effort.ErrorIf(t, len(got) != 1 || got[0].status != c.status || got[0].code() != c.code,
			"%s: got %s, want %d %q", c.line, describe(got), c.status, c.code)
	}
}

// TestBodyThatEnds cuts a connection in the middle of a body: nothing is created.
func TestBodyThatEnds(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	c := effort.Must(net.Dial("tcp", e.server.Addr().String()))(t)
	defer c.Close()
	effort.Must(fmt.Fprintf(c, "POST /v1/verifications HTTP/1.1\r\nHost: a\r\nX-API-Key: %s\r\nIdempotency-Key: "+
		"11111111-1111-4111-8111-111111111111\r\nX-Upload-Content-Length: 1\r\nContent-Length: 100\r\n\r\nhalf",
		e.key))(t)
	effort.OK(t, c.(*net.TCPConn).CloseWrite())
	effort.OK(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	for _, a := range readAnswers(t, c) {
		effort.ErrorIf(t, a.status < 400, "answered %d to half a request", a.status)
	}
	a := e.do(get("/v1/verifications"))
	effort.ErrorIf(t, strings.Contains(string(a.body), "uploading"), "half a request made a verification: %s", a.body)
}

// TestPipelinedRequests: valid requests on one connection are answered in order.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	one := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n"
	got := exchange(t, e, one+"\r\n"+one+"Content-Length: 5\r\n\r\nhello"+one+"Connection: close\r\n\r\n")
	effort.MustBe(t, len(got), 3, describe(got))
	for _, a := range got {
		effort.Is(t, a.status, 200, a.body)
		effort.Is(t, string(a.body), fmt.Sprintf(`{"credits":%d}`, edgeCredits))
	}
}

// TestTLS: the API uses TLS 1.2 and 1.3 with HTTP/1.1, and no other versions. Limits count by the address in a PROXY
// header before the handshake.
func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := nettest.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	settings := effort.Must(listen.LoadPair(certFile, keyFile))(t).Config()
	e := newEdge(t, func(o *httpd.Options) {
		trusting(t, "127.0.0.1")(o)
		o.TLS = settings
	})
	at := e.server.Addr().String()
	good := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n\r\n"
	dial := func(head string, version uint16) *tls.Conn {
		raw := effort.Must(net.Dial("tcp", at))(t)
		_, _ = io.WriteString(raw, head)
		c := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: version,
			MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, head := range []string{"", nettest.ProxyHeader("192.0.2.1")} {
			c := dial(head, version)
			effort.Is(t, nettest.Ask(t, c, good).StatusCode, 200, "version", version)
			effort.Is(t, c.ConnectionState().NegotiatedProtocol, "http/1.1", fmt.Sprintf("version %x: protocol", version))
		}
	}
	for i, want := range []struct {
		client string
		status int
	}{{"192.0.2.1", 401}, {"192.0.2.1", 401}, {"192.0.2.1", 429}, {"192.0.2.2", 401}} {
		c := dial(nettest.ProxyHeader(want.client), tls.VersionTLS13)
		effort.Is(t, nettest.Ask(t, c, badKey("")).StatusCode, want.status, "bad key", i+1, "of", want.client)
	}
	if c, err := tls.Dial("tcp", at, &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS10,
		MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
		_ = c.Close()
	}
	for name, text := range map[string]string{"no TLS": good,
		"a malformed PROXY header": nettest.ProxyHeader("192.0.2.1")[:13] + "\x12\x00\x00" + good} {
		c := effort.Must(net.Dial("tcp", at))(t)
		defer c.Close()
		effort.OK(t, c.SetDeadline(time.Now().Add(effort.Patience)))
		_, _ = io.WriteString(c, text)
		if got, _ := io.ReadAll(c); len(got) > 7 { // an alert, or nothing
			t.Errorf("%s: answered %q", name, got)
		}
	}
}

// trusting makes the server trust proxies in these networks.
func trusting(t testing.TB, networks ...string) func(*httpd.Options) {
	t.Helper()
	trusted := effort.Must(listen.ParseTrusted(networks))(t)
	return func(o *httpd.Options) {
		o.Trusted = trusted
		o.Limits = httpd.DefaultLimits()
		o.Limits.BadKeys = httpd.Rate{PerSecond: 0.01, Burst: 2}
	}
}

// badKey returns a request with a key that is rejected.
func badKey(headers string) string {
	return "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: bad\r\n" + headers + "Connection: close\r\n\r\n"
}

// statuses sends each text on a connection of its own, and returns the answers.
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

// TestLimitsGoByTheClientsAddress: behind a trusted proxy limits count by the client's address, and otherwise by the
// peer's.
func TestLimitsGoByTheClientsAddress(t *testing.T) {
	t.Parallel()
	forwarded := func(line string) string { return badKey("X-Forwarded-For: " + line + "\r\n") }
	proxied := func(client string) string { return nettest.ProxyHeader(client) + badKey("") }
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
			nettest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.7"),
			nettest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.8"),
			nettest.ProxyHeader("192.0.2.1") + forwarded("192.0.2.9")}, "401 401 429"},
		{"a trusted proxy behind a trusted proxy", "127.0.0.1,10.0.0.0/8", []string{
			nettest.ProxyHeader("10.1.1.1") + forwarded("192.0.2.7"),
			nettest.ProxyHeader("10.1.1.2") + forwarded("192.0.2.7"),
			nettest.ProxyHeader("10.1.1.3") + forwarded("192.0.2.7"),
			nettest.ProxyHeader("10.1.1.3") + forwarded("192.0.2.8")}, "401 401 429 401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, strings.Split(c.trusted, ",")...))
			effort.Is(t, statuses(t, e, c.send...), c.want)
			effort.Is(t, nettest.Counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"), "", "refused headers")
		})
	}
}

// TestProxyHeadersThatAreRefused: such headers end the connection with 400 and are counted.
func TestProxyHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	good := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: KEY\r\n\r\n"
	for _, c := range []struct{ name, trusted, head, counted string }{
		{"of a stranger", "10.0.0.1", nettest.ProxyHeader("192.0.2.1"), "untrusted=1"},
		{"version 1 of a stranger", "10.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "untrusted=1"},
		{"version 1 of a proxy", "127.0.0.1", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n", "version=1"},
		{"UDP", "127.0.0.1", strings.Replace(nettest.ProxyHeader("192.0.2.1"), "\x21\x11", "\x21\x12", 1), "malformed=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, trusting(t, c.trusted))
			got := exchange(t, e, c.head+strings.ReplaceAll(good, "KEY", e.key)+good)
			effort.FatalIf(t, len(got) != 1 || got[0].status != 400 || got[0].code() != "bad_request",
				"got %s, want one answer 400", describe(got))
			effort.Is(t, nettest.Counts(t, e.registry, "rollcall_http_proxy_headers_refused_total"), c.counted, "counted")
		})
	}
}

// TestConnectionsCountForTheClient: a proxy may open any number of connections. A client behind it may not, and its
// connections count before it sends anything.
func TestConnectionsCountForTheClient(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) {
		trusting(t, "127.0.0.1")(o)
		o.Limits.ConnsMax = 5
	})
	const get = "GET /openapi.yaml HTTP/1.1\r\nHost: a\r\n\r\n"
	open := func(head string) (*bufio.Reader, net.Conn) {
		c := effort.Must(net.Dial("tcp", e.server.Addr().String()))(t)
		t.Cleanup(func() { _ = c.Close() })
		effort.OK(t, c.SetDeadline(time.Now().Add(effort.Patience)))
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
	first, conn := open(nettest.ProxyHeader("192.0.2.1") + get)
	effort.FatalIf(t, !answered(first), "the first connection is not answered")
	for _, head := range []string{"", "", nettest.ProxyHeader("192.0.2.2")} {
		r, _ := open(head + get)
		effort.ErrorIf(t, !answered(r), "a connection with %q is not answered", head)
	}
	for _, more := range []string{get, ""} {
		effort.Within(t, "one of five to be free", func() bool {
			return nettest.Metric(t, e.registry, "rollcall_http_connections") == 4
		})
		r, _ := open(nettest.ProxyHeader("192.0.2.1") + more)
		if a, err := http.ReadResponse(r, nil); err != nil || a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
			t.Errorf("a client's second connection, which sends %q: %v, %v, want 429", more, a, err)
		}
	}
	effort.Is(t, nettest.Counts(t, e.registry, "rollcall_http_connections_refused_total"), "share=2", "counted")
	_ = conn.Close()
	effort.Within(t, "the place to come back", func() bool {
		r, _ := open(nettest.ProxyHeader("192.0.2.1") + get)
		return answered(r)
	})
}
