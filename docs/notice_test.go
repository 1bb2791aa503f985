package docs

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rollcall/config/effort"
)

var updateNotice = flag.Bool("update-notice", false, "write NOTICE anew from the module cache")

// module is a module that is linked into the binary.
type module struct{ Path, Dir string }

// licences are known by words of their texts. A text may have several, each for parts of its module.
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

// noticeFoot is what is shipped beside modules.
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

// linked are the modules of the binary, ascending, without our own.
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

// licenceText is the licence of a module.
func licenceText(m module) (string, error) {
	text, err := os.ReadFile(first(m.Dir, "LICEN[CS]E*"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.Path, err)
	}
	return string(text), nil
}

// first is the first file of a folder that fits, or a name that does not exist.
func first(folder, pattern string) string {
	if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
		return found[0]
	}
	return filepath.Join(folder, pattern)
}
