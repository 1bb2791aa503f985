package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"rollcall/actors/intake"
	"rollcall/config/effort"
	"rollcall/http/web"
)

// TestATableIsWrittenFromItsColumns: each line gives a column, empty columns are left out, and texts are escaped.
func TestATableIsWrittenFromItsColumns(t *testing.T) {
	t.Parallel()
	assets := web.NewAssets()
	type row struct {
		Name, Note string
		Seen       int
	}
	page := func(table string) (*web.Pages, error) {
		text := table + "\n{{define \"who\"}}{{end}}"
		return web.NewPages(assets, fstest.MapFS{"pages/x.html": {Data: []byte(text)}}, nil)
	}
	p := effort.Must(page("{{table .Rows}} Members\nMember | one | {{.Name}}\nSeen | n top | {{num .Seen}}\n" +
		"Note | any:Note | {{.Note}}\n-End it | | \nfoot | All | {{num 3}}\nelse | Nobody.\n{{end table}}"))(t)
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
		effort.Has(t, got, c.want, c.rows)
	}
	for _, wrong := range []string{"Member | big | {{.Name}}", "Member", "Member | | x\nfoot | a | b"} {
		_, err := page("{{table .Rows}} x\n" + wrong + "\n{{end table}}")
		effort.ErrorIf(t, err == nil, "%q is a table", wrong)
	}
}

func TestSpansOfTimeAreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{20 * time.Second: "less than a minute", 2 * time.Minute: "about 2 min",
		43 * time.Minute: "about 45 min", 95 * time.Minute: "about 2 hours", 95*time.Hour + 27*time.Minute: "about 4 days",
		71 * time.Hour: "about 3 days"} {
		effort.Is(t, web.About(d), want, d)
	}
}

// badRow is a row that, by rows.js, would be refused.
type badRow struct {
	Row  int64
	Text string
}

// messyTexts are the samples of package intake that are ASCII and that rows.js can decide alone.
func messyTexts(t *testing.T) (texts []string) {
	t.Helper()
	text, err := os.ReadFile("../../actors/intake/testdata/messy.json")
	var samples []struct{ Name, Text string }
	if err == nil {
		err = json.Unmarshal(text, &samples)
	}
	effort.OK(t, err)
	for _, s := range samples {
		ascii := !strings.ContainsFunc(s.Text, func(r rune) bool { return r > '~' })
		if ascii && s.Text != "" && s.Name != "web page" && !strings.Contains(s.Text, `"`) {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

// TestRowsAreCheckedInTheBrowserAsTheServerDoes: rows.js names the same row in the same words as intake.Read, and
// refuses nothing that intake.Read accepts. The second table has the rows that it leaves to the server.
func TestRowsAreCheckedInTheBrowserAsTheServerDoes(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here: the tests of the pages in a browser need it too")
	}
	script := effort.Must(os.ReadFile("assets/rows.js"))(t)
	long := strings.Repeat("a", 64)
	same := []string{"a@x.test\n", "email\na@x.test\r\nb@y.test", "a@x.test\n\nb@x.test\n", "a@x.test\n \t\n",
		"a@x.test,b\n", "email,name\na@x.test\n", "a@x.test\nb\"@x.test\n", "a@x.test\rb@x.test\n",
		"a@x.test\nb@x.test\r", "a\x00@x.test\n", "", "email\n", "\n", "a@x.test\nnobody\n",
		"\"a@x.test\"\n\"b@x\"\"\"\n", "x\n" + long + "a@x.test\n", "x\n" + long + "@x.test\n",
		"x\n" + strings.Repeat("b", 1025) + "\n", "x\na@" + strings.Repeat("a", 64) + ".test\n",
		"x\n" + long + "@" + strings.Repeat("a.", 94) + "bc\n", "x\n" + long + "@" + strings.Repeat("a.",
			94) + "b\n", "x\na@" + strings.Repeat("a.", 127) + "b\n", "x\na@[192.0.2.1]\n", "x\na@x_y.test\n",
		"x\na@x.test \n", "x\n a@x.test\n", "x\na@x..test\n", "x\na@x.test.\n", "x\na@.test\n",
		"x\na@-x.test\n", "x\na@x-.test\n", "x\n@x.test\n", "x\na@\n", "x\n.a@x.test\n", "x\na.@x.test\n",
		"x\na..b@x.test\n", "x\na b@x.test\n", "x\na(b)@x.test\n", "x\na\x01@x.test\n", "x\na@b@c.test\n",
		"x\na@x y.test\n", "x\na@-_.test\n", "x\na@1.2.3.4\n"}
	same = append(same, messyTexts(t)...)
	left := []string{"\"a\nb\"@x.test\n", "ä@x.test\n", "x\na@ä_.test\n", "x\n\"a b\"@x.test\n",
		"x\na@xn--a.test\n", "x\n\"\"\"a b\"\"@x.test\"\n", "x\n\"a@x.test\" \n"}
	files := effort.Must(json.Marshal(append(append([]string{}, same...), left...)))(t)
	run := exec.CommandContext(t.Context(), node, "-e", string(script)+`
		const files = JSON.parse(require("fs").readFileSync(0));
		console.log(JSON.stringify(files.map((text) => {
			const c = new RowCheck();
			for (let i = 0; i < text.length; i += 7) c.push(text.slice(i, i + 7));
			c.end();
			return c.found;
		})));`)
	run.Stdin, run.Stderr = strings.NewReader(string(files)), os.Stderr
	out, err := run.Output()
	var found [][]badRow
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	effort.FatalIf(t, err != nil || len(found) != len(same)+len(left), "%d answers, %v", len(found), err)
	for i, text := range append(same, left...) {
		var d *intake.Defect
		_, err := intake.Read(strings.NewReader(text), intake.Limits{RowsMax: 1000})
		refused := errors.As(err, &d)
		effort.FatalIf(t, err != nil && !refused, "%v", err)
		switch got := found[i]; {
		case len(got) > 0 && !refused:
			t.Errorf("%q: the browser refuses it: %+v", text, got)
		case len(got) > 0 && (got[0].Row != d.Row || !strings.HasPrefix(d.Message, got[0].Text)): // it also counts other rows
			t.Errorf("%q: the browser says %+v, the server %d %s", text, got[0], d.Row, d.Message)
		case len(got) == 0 && refused && i < len(same):
			t.Errorf("%q: the browser finds no fault, the server %d %s", text, d.Row, d.Message)
		}
	}
}

func TestAMomentToComeHasItsDay(t *testing.T) {
	now := time.Date(2026, 12, 30, 23, 30, 0, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		10 * time.Minute: "today at 23:40 UTC", time.Hour: "tomorrow at 00:30 UTC", 24 * time.Hour: "tomorrow at 23:30 UTC",
		25 * time.Hour: "on 1 Jan 2027 at 00:30 UTC", -48 * time.Hour: "on 28 Dec at 23:30 UTC",
	} {
		effort.Is(t, web.Soon(now.Add(after), now), want, fmt.Sprintf("%s later", after))
	}
}

func TestNumbersHaveThinGroups(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -1234567: "-1\u202f234\u202f567"} {
		effort.Is(t, web.Thin(n), want, n)
	}
}

func TestATextIsShortInARegister(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "anna@acme.test": "anna@acme.test", "\xff": "\ufffd",
		strings.Repeat("x", 120): strings.Repeat("x", 120), strings.Repeat("x", 121): strings.Repeat("x", 117) + "…",
		strings.Repeat("é", 60): strings.Repeat("é", 60), strings.Repeat("é", 61): strings.Repeat("é", 58) + "…",
		strings.Repeat("&", 48): strings.Repeat("&", 48), strings.Repeat("&", 49): strings.Repeat("&", 47) + "…",
		strings.Repeat("\xff&", 99): strings.Repeat("\ufffd&", 29) + "…",
	} {
		got := web.Short(text)
		effort.ErrorIf(t, got != want || !utf8.ValidString(got) || len(got) > web.ShortMax ||
			len(template.HTMLEscapeString(got)) > 2*web.ShortMax, "%.20q of %d bytes: %q, want %q", text, len(text),
			got, want)
	}
	for _, r := range "\"&'+<>" {
		effort.Is(t, web.Short(strings.Repeat(string(r), 1000)), strings.Repeat(string(r), 47)+"…", r)
	}
}

func TestAssetsAreCompressedForWhoTakesIt(t *testing.T) {
	assets := web.NewAssets()
	name := assets.URLs()[0][len("/assets/"):]
	for text, want := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip;q=0.0": false,
		"br": false, "": false, "GZIP": true} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", text)
		if !assets.Serve(w, r, name) || (w.Header().Get("Content-Encoding") == "gzip") != want {
			t.Errorf("Accept-Encoding %q: %v", text, w.Header())
		}
	}
	effort.ErrorIf(t, assets.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "none.css"),
		"an asset that is not there was served")
}

func TestNounsHaveTheirPlural(t *testing.T) {
	for unit, want := range map[string]string{"credit": "2 credits", "address": "2 addresses", "entry": "2 entries",
		"day": "2 days",
		"box": "2 boxes", "batch": "2 batches"} {
		effort.Is(t, web.Plural(2, unit), want, "two")
		effort.Is(t, web.Plural(int64(1), unit), "1 "+unit, "one")
	}
	effort.Is(t, web.Plural(0, "address"), "0 addresses", "none")
}
