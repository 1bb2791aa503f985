package operate_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/dashboard/pagetest"
)

const cookieName = "__Host-rollcall-operator"

// visitor is a browser: it keeps the cookies of the pages.
type visitor struct {
	t      *testing.T
	g      *pagetest.Rig
	cookie string // of the session
	next   string // of the page to land on
}

// cookieOf is the name of the session's cookie at a host.
func cookieOf(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil {
		return cookieName + "-" + port
	}
	return cookieName
}

// answer is what it got.
type answer struct {
	status int
	header http.Header
	body   string // with plain apostrophes, as people read them
}

// is checks the status; of says of what.
func (a answer) is(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.Is(t, a.status, status, append(of, a.body)...)
}

// must is is, and ends the test where it finds a fault.
func (a answer) must(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.MustBe(t, a.status, status, append(of, a.body)...)
}

// says checks the status and a part of the page.
func (a answer) says(t testing.TB, status int, part string, of ...any) {
	t.Helper()
	effort.Is(t, a.status, status, of...)
	effort.Has(t, a.body, part, of...)
}

// send makes a request; form nil means that there is no body.
func (v *visitor) send(method, path string, form url.Values, header ...string) answer {
	v.t.Helper()
	sent := strings.NewReader(form.Encode())
	r := effort.Must(http.NewRequestWithContext(v.t.Context(), method, v.g.URL+path, sent))(v.t)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	name := cookieOf(r.Host)
	if v.cookie != "" {
		r.Header.Add("Cookie", name+"="+v.cookie)
	}
	if v.next != "" {
		r.Header.Add("Cookie", name+"-next="+v.next)
	}
	a := effort.Must(http.DefaultTransport.RoundTrip(r))(v.t)
	defer a.Body.Close()
	body := effort.Must(io.ReadAll(a.Body))(v.t)
	for _, c := range a.Cookies() {
		if strings.HasPrefix(c.Name, "__Host-") && (!c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "") {
			v.t.Errorf("the cookie %s", c.Raw)
		}
		switch c.Name {
		case name:
			v.cookie = c.Value
		case name + "-next":
			v.next = c.Value
		}
	}
	return answer{a.StatusCode, a.Header, strings.ReplaceAll(string(body), "&#39;", "'")}
}

func (v *visitor) get(path string) answer { v.t.Helper(); return v.send("GET", path, nil) }

// visit signs somebody in.
func visit(t *testing.T, g *pagetest.Rig, author string, readOnly bool) *visitor {
	t.Helper()
	v := &visitor{t: t, g: g}
	a := v.send("POST", g.Link(author, readOnly), url.Values{})
	effort.FatalIf(t, a.status != 303 || v.cookie == "", "the link answers %d, with the cookie %q", a.status, v.cookie)
	return v
}
