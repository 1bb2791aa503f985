package operate_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"rollcall/http/dashboard/operate/operatetest"
)

// pageMax bounds a page, as package view enforces it.
const pageMax = 512 << 10

// bounded fails unless a page is answered and takes two thirds of what it may.
func (v *visitor) bounded(path string) string {
	v.t.Helper()
	a := v.get(path)
	if a.status != 200 || len(a.body) > pageMax*2/3 {
		v.t.Errorf("%s: %d with %d bytes", path, a.status, len(a.body))
	}
	return a.body
}

func TestTextsOfCustomersFillAPageAndNoMore(t *testing.T) {
	t.Parallel()
	g := operatetest.Start(t)
	w := g.Crowd(t, 130)
	v := visit(t, g, strings.Repeat("&", 200), false)
	path := "/workspaces/" + w.ID.String()
	page := v.bounded(path)
	for what, want := range map[string]int{">Revoke…<": 10, `href="/verifications/`: 100, `>rc_`: 100,
		`formaction="` + path + `/people/`: 200, "/verifications?find=": 1, "30 more aren't shown": 2} {
		if n := strings.Count(page, what); n != want {
			t.Errorf("%q stands %d times on the page of the workspace, want %d", what, n, want)
		}
	}
	for path, rows := range map[string]int{"/verifications": 100, "/workspaces": 3} {
		if n := strings.Count(v.bounded(path), `<th scope="row"`); n != rows {
			t.Errorf("%s has %d rows, want %d", path, n, rows)
		}
	}
	v.bounded("/")
	whole := func(pattern string, bytes int) {
		t.Helper()
		link := regexp.MustCompile(`href="(` + pattern + `[^"?]+)"`).FindStringSubmatch(page)
		if link == nil {
			t.Fatalf("nothing leads to %s", pattern)
		}
		if !strings.Contains(v.bounded(link[1]), html.EscapeString(strings.Repeat("&", bytes-len("129")))) {
			t.Errorf("%s does not show the whole text", link[1])
		}
	}
	whole("/verifications/", 1024)
	whole(path+"/keys/", 200)
}
