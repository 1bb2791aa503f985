package docs

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger"
)

const (
	root       = ".."
	pagesMax   = 6 // of a shelf, beside its README
	wordsMax   = 40_000
	entriesMax = 60 // of the glossary
)

// documents reads every document of the project, keyed by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	effort.OK(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".md") || d.Name() == "accuracy.md":
			return nil
		}
		text, err := os.ReadFile(name)
		texts[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = string(text)
		return err
	}))
	return texts
}

// read reads one document.
func read(t *testing.T, name string) string {
	t.Helper()
	text := effort.Must(os.ReadFile(filepath.Join(root, name)))(t)
	return string(text)
}

// TestShelves: a folder of documents has few pages, its README links to each of them, and all documents together stay
// short enough to read.
func TestShelves(t *testing.T) {
	texts, words := documents(t), 0
	for _, text := range texts {
		words += len(strings.Fields(text))
	}
	effort.ErrorIf(t, words > wordsMax,
		"the documents have %d words, want at most %d: cut what is said twice", words, wordsMax)
	for _, shelf := range []string{"start", "customers", "operators", "developers"} {
		door, pages := texts["docs/"+shelf+"/README.md"], 0
		for name := range texts {
			page, is := strings.CutPrefix(name, "docs/"+shelf+"/")
			if !is || page == "README.md" {
				continue
			}
			effort.Has(t, door, "("+page+")", "the README of", shelf, "does not lead to", page)
			if !strings.Contains(page, "/") {
				pages++
			}
		}
		effort.ErrorIf(t, pages == 0 || pages > pagesMax, "%s has %d pages, want 1 to %d", shelf, pages, pagesMax)
	}
	n := strings.Count(texts["docs/developers/glossary.md"], "\n- **")
	effort.ErrorIf(t, n == 0 || n > entriesMax, "the glossary has %d words, want 1 to %d", n, entriesMax)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	named   = regexp.MustCompile("`([a-z][a-z_]*/[a-z0-9_/]+\\.go)`")
	unsaid  = regexp.MustCompile(`[^a-z0-9 _-]`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// TestLinks: every link of a document leads to a file that exists and a headline in it, and Go files named by path
// exist.
func TestLinks(t *testing.T) {
	texts := documents(t)
	for name, text := range texts {
		if strings.Contains(name, "/testdata/") {
			continue // the start of a document that a test writes
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(root, m[1]))
			if _, beside := os.Stat(filepath.Join(root, path.Dir(name), m[1])); err != nil && beside != nil {
				t.Errorf("%s names %s: %v", name, m[1], err)
			}
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := cmp.Or(path.Join(path.Dir(name), to), name)
			if to == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s leads to %s: %v", name, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s leads to %s, which has no such headline", name, m[1])
			}
		}
	}
}

// anchors returns the anchors of a document's headlines.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

const architecture = "docs/developers/architecture.md"

// TestStatesAreDrawn: the drawing has exactly the transitions of the code.
func TestStatesAreDrawn(t *testing.T) {
	drawn := map[[2]string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(\S+) --> (\S+)$`).FindAllStringSubmatch(read(t, architecture), -1) {
		drawn[[2]string{m[1], m[2]}] = true
	}
	states := []ledger.State{ledger.New, ledger.WaitingCredits, ledger.WaitingReceivers}
	for _, s := range []ledger.Status{ledger.Uploading, ledger.Preparing, ledger.Verifying, ledger.Cancelling, ledger.Completed,
		ledger.CompletedWithErrors, ledger.Cancelled, ledger.Failed} {
		states = append(states, ledger.State(s))
	}
	for _, from := range states {
		for _, to := range states {
			step := [2]string{cmp.Or(string(from), "[*]"), string(to)}
			effort.Is(t, from != to && ledger.Step(from, to) == nil, drawn[step], step[0], ">", step[1], "legal")
			delete(drawn, step)
		}
	}
	for step := range drawn {
		t.Errorf("%s --> %s is drawn between states that do not exist", step[0], step[1])
	}
}

// TestRulesAreWhereTheListSays: each file of the list exists and has the rule's name.
func TestRulesAreWhereTheListSays(t *testing.T) {
	rows := regexp.MustCompile("(?m)^- ([^:`]+): `([^`]+)`, `([^`]+)`$").FindAllStringSubmatch(read(t, architecture), -1)
	effort.Is(t, len(rows), 20, "the list has rules")
	for _, row := range rows {
		code, err := os.ReadFile(filepath.Join(root, row[2]))
		if err != nil {
			t.Errorf("%s: %v", row[1], err)
		} else if !regexp.MustCompile(`\b` + regexp.QuoteMeta(row[3]) + `\b`).Match(code) {
			t.Errorf("%s: %s has no %s", row[1], row[2], row[3])
		}
	}
}

var updateNotice = flag.Bool("update-notice", false, "write NOTICE anew from the module cache")

// module is a module that is linked into the binary.
type module struct{ Path, Dir string }

// licences are recognized by words of their texts. A text may contain several, each for a part of its module.
var licences = []struct {
	name  string
	words *regexp.Regexp
}{
	{"MPL-2.0", regexp.MustCompile(`Mozilla Public License,? (Version|version) 2\.0`)},
	{"BSD-3-Clause", regexp.MustCompile(`(?s)Redistribution and use in source and binary.*(Neither the name|endorse or promote)`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary`)},
	{"Apache-2.0", regexp.MustCompile(`Apache License\s+Version 2\.0`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge`)},
}

const noticeHead = `Rollcall
Licensed under the Apache License, Version 2.0 (LICENSE).

The binary has these modules in it. Their licences and sources are at their paths, in the versions that go.mod names.
Written by go test ./docs -run Notice -update-notice.

`

// noticeFoot is about everything shipped that is not a module.
const noticeFoot = `
Also shipped:
htmx 4.0.1 (npm htmx.org): 0BSD, http/web/assets/LICENSES.md
SQLite, translated to Go in modernc.org/sqlite: public domain
musl and others, translated to Go in modernc.org/libc: LICENSE-3RD-PARTY.md there
Samples of replies in smtp/verdict/rules: quoted from public postmaster pages, bounce parsers and logs; each rule names its source
`

// TestNotice: NOTICE names every module in the binary with its licence, and repeats their notices.
func TestNotice(t *testing.T) {
	var b strings.Builder
	b.WriteString(noticeHead)
	var notices []string
	for _, m := range linked(t) {
		text := effort.Must(licenceText(m))(t)
		var names []string
		for _, l := range licences {
			if l.words.MatchString(text) && (l.name != "BSD-2-Clause" || !slices.Contains(names, "BSD-3-Clause")) {
				names = append(names, l.name)
			}
		}
		effort.ErrorIf(t, names == nil, "%s: its licence is not known here", m.Path)
		fmt.Fprintf(&b, "%s: %s\n", m.Path, strings.Join(names, ", "))
		if notice, err := os.ReadFile(first(m.Dir, "NOTICE*")); err == nil {
			notices = append(notices, fmt.Sprintf("\n%s says:\n\n%s\n", m.Path, strings.TrimSpace(string(notice))))
		}
	}
	b.WriteString(noticeFoot + strings.Join(notices, ""))
	file := filepath.Join(root, "NOTICE")
	if *updateNotice {
		effort.OK(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	effort.Is(t, read(t, "NOTICE"), b.String(), "NOTICE is old: run go test ./docs -run Notice -update-notice")
}

// linked returns the modules of the binary in order, without our own.
func linked(t *testing.T) (modules []module) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Module", "./cmd/rollcall")
	list.Dir = root
	out := effort.Must(list.Output())(t)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				module
				Main bool
			}
		}
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
			return slices.Compact(modules)
		case err != nil:
			t.Fatal(err)
		case p.Module != nil && !p.Module.Main:
			modules = append(modules, p.Module.module)
		}
	}
}

// licenceText returns the licence of a module.
func licenceText(m module) (string, error) {
	text, err := os.ReadFile(first(m.Dir, "LICEN[CS]E*"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.Path, err)
	}
	return string(text), nil
}

// first returns the first file of a folder that matches, or a name that does not exist.
func first(folder, pattern string) string {
	if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
		return found[0]
	}
	return filepath.Join(folder, pattern)
}
