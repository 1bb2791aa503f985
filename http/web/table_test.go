package web_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollcall/http/web"
)

// TestATableIsWrittenFromItsColumns: one line is a column, an empty one is left out, and texts are escaped.
func TestATableIsWrittenFromItsColumns(t *testing.T) {
	t.Parallel()
	assets, err := web.NewAssets()
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Name, Note string
		Seen       int
	}
	page := func(table string) (*web.Pages, error) {
		text := table + "\n{{define \"who\"}}{{end}}"
		return web.NewPages(assets, fstest.MapFS{"pages/x.html": {Data: []byte(text)}}, nil)
	}
	p, err := page("{{table .Rows}} Members\nMember | one | {{.Name}}\nSeen | n top | {{num .Seen}}\n" +
		"Note | any:Note | {{.Note}}\n-End it | | \nfoot | All | {{num 3}}\nelse | Nobody.\n{{end table}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows []row
		want string
	}{
		{[]row{{"<b>", "", 2}},
			`class="one">&lt;b&gt;</th><td class="n top" data-label="Seen">2</td><td class="do"></td></tr>`},
		{[]row{{"a", "x", 1}}, `<td data-label="Note">x</td><td class="do"></td></tr>`},
		{[]row{{"a", "", 1}}, `<th scope="row">All</th><td class="n top" data-label="Seen">3</td></tr></tfoot>`},
		{nil, `<p>Nobody.</p>`},
	} {
		got := string(p.Part("x", "body", map[string]any{"Body": map[string][]row{"Rows": c.rows}}))
		if !strings.Contains(got, c.want) {
			t.Errorf("%v: no %s in %s", c.rows, c.want, got)
		}
	}
	for _, wrong := range []string{"Member | big | {{.Name}}", "Member", "Member | | x\nfoot | a | b"} {
		if _, err := page("{{table .Rows}} x\n" + wrong + "\n{{end table}}"); err == nil {
			t.Errorf("%q is a table", wrong)
		}
	}
}

func TestSpansOfTimeAreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{20 * time.Second: "less than a minute", 2 * time.Minute: "about 2 min",
		43 * time.Minute: "about 45 min", 95 * time.Minute: "about 2 hours", 95*time.Hour + 27*time.Minute: "about 4 days",
		71 * time.Hour: "about 3 days"} {
		if got := web.About(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
