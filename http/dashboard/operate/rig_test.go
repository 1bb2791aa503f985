package operate_test

import (
	"net"
	"net/http"
	"net/url"
	"slices"
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
type answer struct{ effort.Answer }

// send makes a request; form nil means that there is no body.
func (v *visitor) send(method, path string, form url.Values, header ...string) answer {
	v.t.Helper()
	host := strings.TrimPrefix(v.g.URL, "http://")
	if i := slices.Index(header, "Host"); i >= 0 {
		host = header[i+1]
	}
	name := cookieOf(host)
	var cookies []string
	if v.cookie != "" {
		cookies = append(cookies, name+"="+v.cookie)
	}
	if v.next != "" {
		cookies = append(cookies, name+"-next="+v.next)
	}
	if cookies != nil {
		header = append(header, "Cookie", strings.Join(cookies, "; "))
	}
	if form != nil {
		header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	}
	a := effort.Send(v.t, method, v.g.URL+path, form.Encode(), header...)
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
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
	return answer{a}
}

func (v *visitor) get(path string) answer { v.t.Helper(); return v.send("GET", path, nil) }

// visit signs somebody in.
func visit(t *testing.T, g *pagetest.Rig, author string, readOnly bool) *visitor {
	t.Helper()
	v := &visitor{t: t, g: g}
	a := v.send("POST", g.Link(author, readOnly), url.Values{})
	effort.FatalIf(t, a.Status != 303 || v.cookie == "", "the link answers %d, with the cookie %q", a.Status, v.cookie)
	return v
}
