package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"rollcall/config/effort"
)

// lowerHouse has the list written anew with what is better than it says. A number never rises by it.
var lowerHouse = flag.Bool("lower-house", false, "write testdata/house.txt anew where the code is better than it says")

const (
	methodsMax = 40  // of one type
	fieldsMax  = 20  // of one type that behaves
	recordMax  = 3   // methods of a struct that is only a list of values
	filesMax   = 30  // of one package, doc.go and tests not counted
	columnsMax = 120 // of a line
)

// TestHouseMeasures: what breaks a measure today is listed in testdata/house.txt, and the list may only shrink.
func TestHouseMeasures(t *testing.T) {
	t.Parallel()
	listed, found := housePlaces(t), measureHouse(t)
	names := slices.Collect(maps.Keys(listed))
	for name := range found {
		if listed[name] == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		switch may, has := listed[name], found[name]; {
		case has > may && may == 0:
			t.Errorf("%s %d: this is new; the measures are at the top of house_measures_test.go", name, has)
		case has > may:
			t.Errorf("%s %d: testdata/house.txt allows %d", name, has, may)
		case *lowerHouse && has < may:
			listed[name] = has
		case has == 0:
			t.Errorf("%s is good now: delete its line in testdata/house.txt (-lower-house does it)", name)
		case has < may:
			t.Errorf("%s %d: testdata/house.txt still has %d (-lower-house writes the new number)", name, has, may)
		}
	}
	if *lowerHouse {
		writeHouse(t, listed)
	}
}

// housePlaces reads the list: what is measured, where, and the number that is allowed there.
func housePlaces(t *testing.T) map[string]int {
	t.Helper()
	return effort.Must(readHouse())(t)
}

const houseFile = "testdata/house.txt"

var readHouse = sync.OnceValues(func() (map[string]int, error) {
	file, err := os.Open(houseFile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	places, lines := map[string]int{}, bufio.NewScanner(file)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		count := 0
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if _, err := fmt.Sscan(lines.Text()[at+1:], &count); err != nil || at < 0 || count < 1 {
			return nil, fmt.Errorf("%s: %q does not end in a number", houseFile, lines.Text())
		}
		places[lines.Text()[:at]] = count
	}
	return places, lines.Err()
})

// writeHouse writes the list anew.
func writeHouse(t *testing.T, places map[string]int) {
	t.Helper()
	text := "# What breaks a measure of the house today, and how often. The list may only shrink: TestHouseMeasures.\n"
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if places[name] > 0 {
			text += fmt.Sprintf("%s %d\n", name, places[name])
		}
	}
	effort.OK(t, os.WriteFile(houseFile, []byte(text), 0o644))
}

// measureHouse counts what breaks a measure.
func measureHouse(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	files, methods, fields := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		found["columns "+s.folder] += longLines(s.text)
		found["guess "+s.folder] += guesses(s.file)
		if s.test {
			continue
		}
		if path.Base(s.path) != "doc.go" {
			files[s.folder]++
		}
		for _, target := range upward(s) {
			found["import "+target]++
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				methods[s.folder+" "+receiverName(d.Recv.List[0].Type)]++
				if name := d.Name.Name; name == strings.ToLower(name) {
					found["one-word "+s.folder]++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if kind, ok := spec.(*ast.TypeSpec); ok {
						if is, ok := kind.Type.(*ast.StructType); ok {
							fields[s.folder+" "+kind.Name.Name] = is.Fields.NumFields()
						}
					}
				}
			}
		}
	}
	maps.DeleteFunc(fields, func(name string, _ int) bool { return methods[name] <= recordMax })
	above(found, "files", files, filesMax)
	above(found, "methods", methods, methodsMax)
	above(found, "fields", fields, fieldsMax)
	countCitations(t, found)
	maps.DeleteFunc(found, func(_ string, n int) bool { return n == 0 })
	return found
}

// above adds what is more than a measure allows.
func above(found map[string]int, what string, counts map[string]int, most int) {
	for where, n := range counts {
		if n > most {
			found[what+" "+where] = n
		}
	}
}

func longLines(text []byte) (n int) {
	for line := range strings.Lines(string(text)) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > columnsMax {
			n++
		}
	}
	return n
}

var guess = regexp.MustCompile(`(?i)\bguess(es|ed)?\b`)

func guesses(file *ast.File) (n int) {
	for _, group := range file.Comments {
		n += len(guess.FindAllString(group.Text(), -1))
	}
	return n
}

// upward are the imports of a file that go against the directions, each with the rule that it breaks.
func upward(s source) (out []string) {
	rule, allowed := importRule(s.folder)
	for _, i := range s.file.Imports {
		own, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "rollcall/")
		if ok && !within(own, rule) && !within(own, allowed...) {
			out = append(out, rule+" "+own)
		}
	}
	return out
}

// inCapitals are the names of documents that nobody can look up.
const inCapitals = "RELIABILITY|PROTOACTOR|DASHBOARD|NEWCOMER|DESIGN|STYLE|CAUSES|HEART|PEERS|SPEED|HOUSE"

var (
	// citation finds them, and the names of documents in docs.
	citation = regexp.MustCompile(`\b(?:` + inCapitals + `)\b` +
		`|\b(?:SPEC|MEASURED)\.md|\bRECEIVERS [A-Z]\d|\bdocs/[a-z/-]+\.md`)
	// mayCite are parts of which each citation has one: to look for them is fast.
	mayCite = append(strings.Split(inCapitals, "|"), "SPEC.md", "MEASURED.md", "RECEIVERS", "docs/")
)

// countCitations counts what texts of the repository cite and the repository does not have.
func countCitations(t *testing.T, found map[string]int) {
	t.Helper()
	effort.OK(t, filepath.WalkDir(HouseRoot, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != HouseRoot && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !slices.Contains([]string{".go", ".toml", ".txt", ".md", ".sql"}, filepath.Ext(name)) {
			return nil
		}
		relative, err := filepath.Rel(HouseRoot, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil || path.Base(name) == "house_measures_test.go" || relative == "CHANGELOG.md" {
			return err
		}
		cites := func(part string) bool { return bytes.Contains(text, []byte(part)) }
		if !slices.ContainsFunc(mayCite, cites) {
			return nil
		}
		for _, cited := range citation.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(HouseRoot, filepath.FromSlash(cited))); err != nil {
				found["cites "+filepath.ToSlash(filepath.Dir(relative))]++
			}
		}
		return nil
	}))
}

// receiverName is the name of a method's type.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
