package http_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// exchange writes raw bytes to a new connection and reads every answer until
// the server closes it. The write goes on beside the reading, as with a client
// that does not expect a refusal.
func exchange(t *testing.T, e *edge, raw string) []answer {
	t.Helper()
	c, err := net.Dial("tcp", e.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, raw) }()
	return readAnswers(t, c)
}

// readAnswers reads answers until the connection ends, which it must do properly.
func readAnswers(t *testing.T, c net.Conn) []answer {
	t.Helper()
	var all []answer
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("connection ended with %v after %d answers, want a proper end", err, len(all))
			}
			return all
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("read answer %d: %v", len(all)+1, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("read body %d: %v", len(all)+1, err)
		}
		if res.Close { // the standard library takes the header away
			res.Header.Set("Connection", "close")
		}
		all = append(all, answer{status: res.StatusCode, header: res.Header, body: body})
	}
}

// TestFraming sends requests whose beginning or end is in doubt, each followed
// by a second request on the same connection. Exactly one answer may come back:
// the second request must never be executed (RFC 9112 §11.2).
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
		{"chunked in other letters", create + "tRANSFER-eNCODING: cHUNKED\r\n\r\n0\r\n\r\n", 411,
			"length_required"},
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
		{"two lengths that differ", create + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", 400,
			"bad_request"},
		{"two lengths that agree", create + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400,
			"bad_request"},
		{"length +5", create + "Content-Length: +5\r\n\r\nhello", 400, "bad_request"},
		{"length beyond 64 bits", create + "Content-Length: 99999999999999999999\r\n\r\n", 400, "bad_request"},
		{"length negative", create + "Content-Length: -1\r\n\r\n", 400, "bad_request"},
		{"two hosts", "GET /v1/credits HTTP/1.1\r\nHost: a\r\nHost: b\r\n" + key + "\r\n", 400, "bad_request"},
		{"space before the colon", "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key : " + e.key + "\r\n\r\n",
			400, "bad_request"},
		{"folded line", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key + "X-Long: a\r\n b\r\n\r\n", 400, "bad_request"},
		{"folded by a tab", "GET /v1/credits HTTP/1.1\r\nHost: a\r\n" + key + "X-Long: a\r\n\tb\r\n\r\n", 400,
			"bad_request"},
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
		{"large body", create + "Content-Length: 8193\r\n\r\n" + strings.Repeat("a", 8193), 422,
			"unexpected_body"},
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
			if len(got) != 1 || got[0].status != c.status || got[0].code() != c.code {
				t.Fatalf("got %s, want one answer %d %q", describe(got), c.status, c.code)
			}
			if c.status != 200 {
				e.checker.checkError(t, call{method: "?", path: c.name}, got[0])
			}
			if got[0].header.Get("Connection") != "close" {
				t.Errorf("Connection %q, want close", got[0].header.Get("Connection"))
			}
		})
	}
	if logs := e.logs.String(); strings.Contains(logs, e.key) || strings.Contains(logs, e.key[16:]) {
		t.Error("the key is in the log")
	}
}

func describe(all []answer) string {
	var b strings.Builder
	for _, a := range all {
		fmt.Fprintf(&b, "[%d %s]", a.status, a.body)
	}
	return b.String()
}

// TestSmuggling hides a create in bodies of many lengths after requests that
// are answered early, and wants that it never runs.
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
				if a.status == 201 {
					t.Fatalf("%q with padding %d: the hidden request ran", head, padding)
				}
			}
		}
	}
	if a := e.do(call{method: "GET", path: "/v1/verifications"}); strings.Contains(string(a.body),
		"uploading") {
		t.Errorf("a hidden request made a verification: %s", a.body)
	}
}

// TestKeyTwice refuses what the library would read as the first of the two.
func TestKeyTwice(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	for _, keys := range [][2]string{{e.key, e.key}, {e.key, "x"}, {"x", e.key}, {e.key, ""}, {"", e.key}} {
		raw := fmt.Sprintf("GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: %s\r\nx-api-key: %s\r\n"+
			"Connection: close\r\n\r\n",
			keys[0], keys[1])
		got := exchange(t, e, raw)
		if len(got) != 1 || got[0].status != 401 || got[0].code() != "invalid_api_key" {
			t.Errorf("keys of %d and %d bytes: got %s, want 401", len(keys[0]), len(keys[1]), describe(got))
		}
	}
}

// TestHeadersTwice refuses the other headers that may come once.
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
		if len(got) != 1 || got[0].code() != c.code {
			t.Errorf("%q: got %s, want %s", c.headers, describe(got), c.code)
		}
	}
}

// TestTargets wants that only the plain spelling of a path is routed, and that
// the host of an absolute target means nothing.
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
		if len(got) != 1 || got[0].status != c.status || got[0].code() != c.code {
			t.Errorf("%s: got %s, want %d %q", c.line, describe(got), c.status, c.code)
		}
	}
}

// TestBodyThatEnds cuts a connection in the middle of a body: nothing is created.
func TestBodyThatEnds(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	c, err := net.Dial("tcp", e.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST /v1/verifications HTTP/1.1\r\nHost: a\r\nX-API-Key: %s\r\nIdempotency-Key: "+
		"11111111-1111-4111-8111-111111111111\r\nX-Upload-Content-Length: 1\r\nContent-Length: 100\r\n\r\nhalf",
		e.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, a := range readAnswers(t, c) {
		if a.status < 400 {
			t.Errorf("answered %d to half a request", a.status)
		}
	}
	if a := e.do(call{method: "GET", path: "/v1/verifications"}); strings.Contains(string(a.body),
		"uploading") {
		t.Errorf("half a request made a verification: %s", a.body)
	}
}

// TestPipelinedRequests answers sound requests on one connection, in order.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	one := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n"
	got := exchange(t, e, one+"\r\n"+one+"Content-Length: 5\r\n\r\nhello"+one+"Connection: close\r\n\r\n")
	if len(got) != 3 {
		t.Fatalf("got %s, want three answers", describe(got))
	}
	for _, a := range got {
		if a.status != 200 || string(a.body) != fmt.Sprintf(`{"credits":%d}`, edgeCredits) {
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
}
