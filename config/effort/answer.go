package effort

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Answer is what came back to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string // with plain apostrophes, as people read them
}

// Send makes a request with headers as names and values in turn, and follows no redirect.
func Send(t testing.TB, method, address, body string, headers ...string) Answer {
	t.Helper()
	r := Must(http.NewRequest(method, address, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	OK(t, err, method, address)
	defer a.Body.Close()
	read, err := io.ReadAll(a.Body)
	OK(t, err, method, address)
	return Answer{a.StatusCode, a.Header, strings.ReplaceAll(string(read), "&#39;", "'")}
}

// Is checks the status; of says of what.
func (a Answer) Is(t testing.TB, status int, of ...any) {
	t.Helper()
	Is(t, a.Status, status, append(of, a.Body)...)
}

// Must is Is, and ends the test where it finds a fault.
func (a Answer) Must(t testing.TB, status int, of ...any) {
	t.Helper()
	MustBe(t, a.Status, status, append(of, a.Body)...)
}

// Says checks the status and a part of the body.
func (a Answer) Says(t testing.TB, status int, part string, of ...any) {
	t.Helper()
	Is(t, a.Status, status, of...)
	Has(t, a.Body, part, of...)
}

// Cookie is the value of a cookie that is set; "": it isn't.
func (a Answer) Cookie(name string) string {
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}
