package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rollcall/smtp/throttle"
)

// manyRules is a throttle file with n rules of which some lines are replaced.
func manyRules(n int, odd map[int]string) string {
	var b strings.Builder
	b.WriteString("# generated\n[default]\nconnections = 2\n\n")
	for i := range n {
		if text, is := odd[i]; is {
			b.WriteString(text)
			continue
		}
		fmt.Fprintf(&b, "[receivers.\"mx%d.host%d.example.com\"]\nrcpt_rate = \"%d/s\"\nconnections = %d\n", i, i%97, 1+i%50,
			1+i%8)
	}
	return b.String()
}

// TestAFileInPiecesSaysTheSame as the whole of it: the same rules, and the same faults at the
// same places. A key outside of every table keeps a file whole.
func TestAFileInPiecesSaysTheSame(t *testing.T) {
	const n = 3*pieceTables + 7
	for name, odd := range map[string]map[int]string{
		"nothing": {},
		"faults in two pieces": {3: "[receivers.a]\nconections = 1\n", 2 * pieceTables: "[receivers.b]\nconnections = 0\n",
			2*pieceTables + 1: "[sources.\"no address\"]\nrcpts_per_day = 5\n"},
		"a table twice, far apart": {1: "[receivers.a]\nconnections = 1\n", n - 1: "\n  [receivers.\"a\"]\nconnections = 3\n"},
		"a table twice, nearby":    {n - 2: "[receivers.a]\nconnections = 1\n", n - 1: "[receivers.a]\nconnections = 3\n"},
		"a key twice":              {n - 1: "[receivers.a]\nconnections = 1\nconnections = 3\n"},
		"bad syntax":               {n - 1: "[receivers.a]\nconnections 1\n"},
		"text over lines":          {5: "[receivers.a]\ntls = \"\"\"\n[receivers.b]\"\"\"\n"},
	} {
		text := manyRules(n, odd)
		head := "receivers.\"first.example.com\".connections = 2\n"
		rules, found := CheckThrottleText("throttle.toml", []byte("#\n"+text), Throttle{})
		wholeRules, wholeFound := CheckThrottleText("throttle.toml", []byte(head+text), Throttle{})
		wholeRules = slices.DeleteFunc(wholeRules, func(r throttle.Rule) bool { return r.Name == "first.example.com" })
		if !reflect.DeepEqual(rules, wholeRules) || !slices.Equal(found, wholeFound) {
			t.Errorf("%s: %d rules and %v in pieces, %d and %v as a whole", name, len(rules), found, len(wholeRules), wholeFound)
		}
		if (len(found) > 0) != (len(odd) > 0) {
			t.Errorf("%s: found %v", name, found)
		}
		p := scanner{file: "f", known: keysOf(&throttleForm{}), at: places{}}
		p.scan([]byte(text))
		if got := len(p.pieces.cut([]byte(text), p.lines)); name != "bad syntax" && got != 4 {
			t.Errorf("%s: it is read in %d pieces", name, got)
		}
	}
}

// TestHeadingsOfAllNamedTablesAreBorne: one alone, and twice they are a fault as anywhere.
func TestHeadingsOfAllNamedTablesAreBorne(t *testing.T) {
	const n = 2 * pieceTables
	for headings, want := range map[int]string{1: "", 2: "receivers: table receivers already exists"} {
		odd := map[int]string{}
		for i := range headings {
			odd[n-1-i*(pieceTables+9)] = "[receivers]\n"
		}
		_, found := CheckThrottleText("throttle.toml", []byte(manyRules(n, odd)), Throttle{})
		if (len(found) > 0) != (want != "") || len(found) > 0 && found[0].Text != want {
			t.Errorf("%d: %v", headings, found)
		}
	}
}

func TestKeysAreTakenApart(t *testing.T) {
	for _, parts := range [][]string{{"default"}, {"receivers", "a.b"}, {"receivers", `q"u.o\te`, "tls"}, {"", "x"}, {"a", ""}} {
		if got := splitKey(joinKey(parts)); !slices.Equal(got, parts) {
			t.Errorf("%q became %q and then %q", parts, joinKey(parts), got)
		}
	}
}
