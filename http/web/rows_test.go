package web_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"rollcall/actors/intake"
)

// badRow is a row that rows.js says would be refused.
type badRow struct {
	Row  int64
	Text string
}

// messyTexts are the samples of package intake that are ASCII and that rows.js decides by itself.
func messyTexts(t *testing.T) (texts []string) {
	t.Helper()
	text, err := os.ReadFile("../../actors/intake/testdata/messy.json")
	var samples []struct{ Name, Text string }
	if err == nil {
		err = json.Unmarshal(text, &samples)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		ascii := !strings.ContainsFunc(s.Text, func(r rune) bool { return r > '~' })
		if ascii && s.Text != "" && s.Name != "web page" && !strings.Contains(s.Text, `"`) {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

// TestRowsAreCheckedInTheBrowserAsTheServerDoes: rows.js names the row and the words of intake.Read, and refuses
// nothing that intake.Read takes. What it leaves to the server is in the second table.
func TestRowsAreCheckedInTheBrowserAsTheServerDoes(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here: the tests of the pages in a browser need it too")
	}
	script, err := os.ReadFile("assets/rows.js")
	if err != nil {
		t.Fatal(err)
	}
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
	files, err := json.Marshal(append(append([]string{}, same...), left...))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil || len(found) != len(same)+len(left) {
		t.Fatalf("%d answers, %v", len(found), err)
	}
	for i, text := range append(same, left...) {
		var d *intake.Defect
		_, err := intake.Read(strings.NewReader(text), intake.Limits{RowsMax: 1000})
		refused := errors.As(err, &d)
		if err != nil && !refused {
			t.Fatal(err)
		}
		switch got := found[i]; {
		case len(got) > 0 && !refused:
			t.Errorf("%q: the browser refuses it: %+v", text, got)
		case len(got) > 0 && (got[0].Row != d.Row || !strings.HasPrefix(d.Message, got[0].Text)): // it also counts others
			t.Errorf("%q: the browser says %+v, the server %d %s", text, got[0], d.Row, d.Message)
		case len(got) == 0 && refused && i < len(same):
			t.Errorf("%q: the browser sees nothing, the server %d %s", text, d.Row, d.Message)
		}
	}
}
