package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/http/web"
	"rollcall/smtp"
)

// Tests keep the house rules: which package may import which, and the few measures that keep files readable.

const (
	HouseRoot    = "../.."
	functionMax  = 70  // lines of a function
	fileLinesMax = 800 // lines of a file
)

// source is one Go file of the repository.
type source struct {
	path   string // from the root, with slashes
	folder string
	test   bool
	text   []byte
	file   *ast.File
	set    *token.FileSet
}

// sources returns every Go file that a person wrote.
func sources(t *testing.T) []source {
	t.Helper()
	effort.Unraced(t, "reads files")
	all := effort.Must(parsed())(t)
	effort.FatalIf(t, len(all) < 50, "only %d Go files were found: is %s the root?", len(all), HouseRoot)
	return all
}

// parsed parses all files once for all tests.
var parsed = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir(HouseRoot, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || name != HouseRoot && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		relative, err := filepath.Rel(HouseRoot, name)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(relative), set: token.NewFileSet()}
		s.folder, s.test = filepath.ToSlash(filepath.Dir(relative)), strings.HasSuffix(name, "_test.go")
		if s.text, err = os.ReadFile(name); err != nil {
			return err
		}
		s.file, err = parser.ParseFile(s.set, name, s.text, parser.ParseComments)
		all = append(all, s)
		return err
	})
	return all, err
})

// mayImport lists the folders that a folder may import; the narrowest entry applies. A folder may always import
// folders below itself.
var mayImport = map[string][]string{
	"cmd":    {"config", "http", "actors", "ledger", "cluster", "smtp"},
	"config": {"smtp"},
	// What operators see is one type of actors/inspect: JSON between nodes and of the API, page and table.
	"http":   {"actors/inspect", "docs", "ledger", "smtp"},
	"docs":   {}, // the parts that nodes serve
	"actors": {"actors", "ledger", "cluster", "smtp"},
	// A receiver never sees money.
	"actors/receiver": {"actors/facts", "actors/process", "actors/inspect", "actors/wire", "cluster",
		"ledger/quota", "ledger/tracing", "smtp"},
	"actors/domain":       {"actors/facts", "actors/process", "actors/inspect", "actors/wire", "ledger", "smtp"},
	"actors/process":      {}, // a leaf, for packages that start goroutines or have much to do
	"actors/wire":         {"smtp"},
	"actors/inspect":      {"actors/process", "cluster", "smtp"},
	"actors/intake":       {"smtp"},
	"ledger":              {"ledger", "smtp"},
	"ledger/transitions":  {"ledger"},
	"ledger/tracing":      {}, // a leaf, for packages that measure how long work takes
	"ledger/quota":        {}, // a leaf, for everything that tenants share
	"cluster/clustertest": {"cluster", "config/effort", "ledger"},
	"cluster":             {"ledger"},
	"cluster/gossip":      {},
	"cluster/secure":      {},
	"smtp":                {},
	"smtp/mx":             {"smtp"},
	"smtp/evidence":       {"smtp"},
	"smtp/verdict":        {"smtp"},
	"smtp/identity":       {"smtp"},
	"smtp/throttle":       {},
	"smtp/smtplab":        {"smtp"},
	"ledger/sqlstore":     {"ledger", "smtp"},
	"ledger/ledgertest":   {"config/effort", "ledger", "smtp"},

	"http/dashboard/pagetest": {"actors/inspect", "config/effort", "http", "ledger", "smtp"},

	"actors/receiver/egress":       {"actors/facts", "actors/process", "smtp"},
	"actors/receiver/fairqueue":    {},
	"actors/receiver/receivertest": {"actors/facts", "actors/receiver/egress", "actors/wire", "smtp"},
	"actors/receiver/registry":     {"actors/process", "actors/receiver/status", "ledger/quota", "smtp"},
	"actors/receiver/scheduler": {"actors/facts", "actors/process", "actors/receiver/egress",
		"actors/receiver/fairqueue", "actors/receiver/registry", "actors/receiver/status", "actors/inspect",
		"actors/wire", "smtp"},
	"actors/receiver/status": {"actors/inspect", "actors/wire", "smtp"},
}

// staysIn lists where a foreign module or a part of the standard library may be used.
var staysIn = map[string][]string{
	"database/sql":                      {"ledger/sqlstore"},
	"modernc.org/sqlite":                {"ledger/sqlstore"},
	"github.com/jackc/pgx":              {"ledger/sqlstore", "ledger/ledgertest"},
	"github.com/cockroachdb":            {"ledger/sqlstore"},
	"github.com/hashicorp/memberlist":   {"cluster"},
	"github.com/valyala/fasthttp":       {"http"},
	"github.com/miekg/dns":              {"smtp/mx", "smtp/smtplab", "smtp/identity"},
	"github.com/asynkron/protoactor-go": {"actors", "cluster"},
	"github.com/spf13/cobra":            {"cmd"},
	"github.com/pires/go-proxyproto":    {"http/listen"},
	"github.com/pelletier/go-toml":      {"config", "smtp/verdict"},
	"go.opentelemetry.io":               {"ledger/tracing", "cmd/rollcall/node"},
	"github.com/coreos/go-oidc":         {"http/dashboard/signin"},
	"golang.org/x/oauth2":               {"http/dashboard/signin"},
	"github.com/alexedwards/argon2id":   {"http/dashboard/signin"},
	"rsc.io/qr":                         {"http/dashboard/signin"},
	"github.com/google/renameio":        {"cmd/rollcall/term", "cluster/gossip"},
	"github.com/xuri/excelize":          {"cmd/rollcall/list"},
	"github.com/yuin/goldmark":          {"http/web"},
}

// within reports whether folder is one of parents or lies below one.
func within(folder string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(p string) bool {
		return folder == p || strings.HasPrefix(folder, p+"/")
	})
}

// importRule returns the narrowest entry of mayImport for a folder, or "".
func importRule(folder string) (rule string, allowed []string) {
	for of, targets := range mayImport {
		if within(folder, of) && len(of) > len(rule) {
			rule, allowed = of, targets
		}
	}
	return rule, allowed
}

// TestImportsStayWhereTheyMay: foreign modules are imported only in their folders. TestHouseMeasures checks our own
// packages, which have a rule each.
func TestImportsStayWhereTheyMay(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		rule, _ := importRule(s.folder)
		effort.ErrorIf(t, rule == "", "%s: no rule says what %s may import", s.path, s.folder)
		for _, i := range s.file.Imports {
			for module, places := range staysIn {
				effort.ErrorIf(t, within(strings.Trim(i.Path.Value, `"`), module) && !within(s.folder, places...),
					"%s imports %s, which stays in %v", s.path, i.Path.Value, places)
			}
		}
	}
}

// oldWords are names that we once gave to things for which the field has a name. Neither such a word nor its plural
// may be part of the name of a package, type, function, method, field, package variable, constant, metric, JSON field
// or field between nodes. docs/developers/glossary.md has the words to use.
var oldWords = map[string]string{
	"overrule": "insert an override", "lift": "end an override", "tuning": "settings", "card": "node meta",
	"farewell": "leave", "errand": "query", "clerk": "inspector", "sight": "view inputs",
	"roll": "node snapshot", "alarm": "timer", "runqueue": "run queue", "tank": "fluid queue", "memo": "cache",
	"nobodies": "random locals", "archive": "attempt log", "driven": "in CRDB", "lookout": "peek conn", "chore": "task",
	"overlooked": "visibility", "outlet": "egress path", "haste": "rate limited", "hasty": "rate limited",
	"complained": "throttled", "scrub": "redact", "shaping": "throttle", "surplus": "excess",
	"muted": "unavailable", "agenda": "planner", "strike": "backoff", "crew": "workspace queue", "adopt": "apply",
	"desk": "service or scheduler", "survey": "inspector or status", "unheard": "unreachable", "keeper": "store",
	"comply": "apply shares", "careful": "stranger limits", "habit": "accept behaviour", "seat": "slot",
	"rested": "suspended", "resting": "suspended", "tempo": "rate", "standing": "constraints", "unfit": "ineligible",
	"excuse": "pause cause", "told": "judgement or published",
}

// nameWord matches one word of a name in camel or snake case.
var nameWord = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

func TestHouseWordsAreTheFields(t *testing.T) {
	refuse := func(where any, name string) {
		for _, word := range nameWord.FindAllString(name, -1) {
			word = strings.ToLower(word)
			better := cmp.Or(oldWords[word], oldWords[strings.TrimSuffix(word, "s")])
			effort.Is(t, better, "", where, name, "has an old word: say")
		}
	}
	for file, name := range map[string]string{"docs/operators/metrics.md": `\brollcall_\w+`,
		"actors/wire/wire.proto": `\w+ = \d`, "cluster/wire/wire.proto": `\w+ = \d`} {
		text := effort.Must(os.ReadFile(filepath.Join(HouseRoot, file)))(t)
		for _, found := range regexp.MustCompile(name).FindAllString(string(text), -1) {
			refuse(file, found)
		}
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		named := func(ids ...*ast.Ident) {
			for _, id := range ids {
				refuse(s.set.Position(id.Pos()), id.Name)
			}
		}
		named(s.file.Name)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				named(n.Name)
				return false
			case *ast.TypeSpec:
				named(n.Name)
			case *ast.Field:
				named(n.Names...)
				if n.Tag != nil {
					refuse(s.set.Position(n.Pos()), reflect.StructTag(strings.Trim(n.Tag.Value, "`")).Get("json"))
				}
			case *ast.ValueSpec:
				named(n.Names...)
			}
			return true
		})
	}
}

func TestEveryPackageIntroducesItselfInDocGo(t *testing.T) {
	introduced := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		isDoc := filepath.Base(s.path) == "doc.go" && s.file.Doc != nil && len(s.file.Doc.Text()) > 60
		introduced[s.folder] = introduced[s.folder] || isDoc
	}
	for folder, ok := range introduced {
		effort.ErrorIf(t, !ok, "%s has no doc.go with a package comment", folder)
	}
}

func TestFunctionsAndFilesStayReadable(t *testing.T) {
	for _, s := range sources(t) {
		n := strings.Count(string(s.text), "\n")
		effort.ErrorIf(t, n > fileLinesMax, "%s has %d lines, at most %d are wanted", s.path, n, fileLinesMax)
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			effort.ErrorIf(t, f.Recv == nil && f.Name.Name == "init",
				"%s has an init function: do it where it can be seen", s.path)
			lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
			if lines > functionMax && !s.test {
				t.Errorf("%s: %s has %d lines, at most %d are wanted", s.path, f.Name.Name, lines, functionMax)
			}
		}
	}
}

// insteadOf lists calls that are forbidden: what to use instead, and the package that may still make the call. Only
// config/effort decides how many cases a run of the tests tries.
var insteadOf = []struct {
	call         *regexp.Regexp
	instead, but string
}{
	{regexp.MustCompile(`time\.Sleep\b`), "wait for what you wait for", ""},
	{regexp.MustCompile(`rapid\.Check\(`), "write effort.Check", "config/effort"},
	{regexp.MustCompile(`flag\.\w+\("long"`), "ask effort.Long", "config/effort"},
}

func TestNobodyCallsWhatHasABetterCall(t *testing.T) {
	for _, s := range sources(t) {
		for _, x := range insteadOf {
			found := x.call.Find(s.text)
			effort.ErrorIf(t, found != nil && s.folder != x.but, "%s: %s: %s", s.path, found, x.instead)
		}
	}
}

func TestNoNakedToDo(t *testing.T) {
	naked := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b[^(]`)
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			if naked.MatchString(group.Text() + " ") {
				t.Errorf("%s: a note without an issue number", s.set.Position(group.Pos()))
			}
		}
	}
}

func TestEveryExportedNameIsExplained(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.folder == "cmd/rollcall" {
			continue
		}
		for _, d := range s.file.Decls {
			for _, name := range unexplained(d) {
				t.Errorf("%s: %s has no comment", s.path, name)
			}
		}
	}
}

// unexplained returns the exported names of a declaration that have no comment.
func unexplained(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && !wellKnown(d.Name.Name) &&
			(d.Recv == nil || ast.IsExported(receiverName(d.Recv.List[0].Type))) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				names = append(names, s.Name.Name)
			}
			if s, ok := spec.(*ast.ValueSpec); ok && s.Doc == nil && s.Comment == nil && d.Doc == nil &&
				s.Names[0].IsExported() {
				names = append(names, s.Names[0].Name)
			}
		}
	}
	return names
}

// wellKnown are methods whose meaning an interface of the standard library fixes.
func wellKnown(name string) bool {
	return slices.Contains([]string{"Error", "String", "Unwrap", "Is", "Write", "Read", "Close", "Len", "Less",
		"Swap"}, name)
}

func TestEveryCitedStandardIsListed(t *testing.T) {
	t.Parallel()
	listed := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "docs", "developers", "standards.md")))(t)
	citation := regexp.MustCompile(`\bRFC (\d{3,5})\b`)
	row := func(number string) string { return fmt.Sprintf("| %s |", number) }
	missing := map[string]string{}
	for _, s := range sources(t) {
		if !bytes.Contains(s.text, []byte("RFC ")) {
			continue
		}
		for _, found := range citation.FindAllStringSubmatch(string(s.text), -1) {
			if !strings.Contains(string(listed), row(found[1])) {
				missing[found[1]] = s.path
			}
		}
	}
	for number, path := range missing {
		t.Errorf("RFC %s is cited in %s and not listed in docs/developers/standards.md", number, path)
	}
}

func TestEveryIssueCodeIsDocumented(t *testing.T) {
	page, err := web.Guide("errors") // as a node serves it
	effort.OK(t, err)
	var description struct {
		Components struct {
			Schemas struct {
				Issue struct {
					Properties struct {
						Code struct{ Enum []string }
					}
				} `yaml:"Issue"`
			}
		}
	}
	effort.OK(t, yaml.Unmarshal(api.OpenAPI, &description))
	described := description.Components.Schemas.Issue.Properties.Code.Enum
	code := regexp.MustCompile(`(?m)^\s*(?:const )?(?:Code)?[A-Z]\w+ +(?:Code)? *= "([a-z_]+)"`)
	found := 1 // funding_expired is a code of the ledger
	for _, s := range sources(t) {
		if s.path != "http/api/codes.go" && s.path != "actors/intake/errors.go" {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(string(s.text), -1) {
			if found++; strings.Count(string(page.Text), `<code id="`+m[1]+`">`) != 1 {
				t.Errorf("%s of %s has no place in docs/customers/errors.md for links", m[1], s.path)
			}
			effort.ErrorIf(t, !slices.Contains(described, m[1]), "%s of %s is missing in openapi.yaml", m[1], s.path)
		}
	}
	effort.ErrorIf(t, found < 40 || found != len(described),
		"%d codes were found and %d are described: is the pattern right?", found, len(described))
}

func TestEveryReasonIsDocumented(t *testing.T) {
	documented := effort.Must(os.ReadFile(filepath.Join(HouseRoot, "docs", "customers", "api.md")))(t)
	for r := smtp.ReasonNone + 1; r.Known(); r++ {
		token, sentence, _ := strings.Cut(r.Message(), " ")
		row := fmt.Sprintf("| `%s` | %s |", token, sentence)
		effort.ErrorIf(t, !strings.Contains(string(documented), row), "docs/customers/api.md has no row %s", row)
	}
}

// schedulerParts are the parts of the scheduler, by their types. Code that holds a pointer to such a type knows the
// part.
var schedulerParts = map[string]string{"queues": "queues", "inbox": "queues", "tasks": "queues",
	"sessions": "sessions", "allowance": "sessions", "openings": "sessions",
	"paths": "paths", "memory": "memory", "recorder": "record"}

// decidesAlone reports whether a declaration of the scheduler must know no part, because it decides from values.
func decidesAlone(file, name string) bool {
	return file == "learn.go" || file == "explain.go" || strings.HasPrefix(name, "decide") ||
		slices.Contains([]string{"View", "supply", "room"}, name)
}

// TestSchedulerPartsKnowFew: the parts of the scheduler once held each other by 69 pointers. Now a type may know two
// other parts; only Scheduler, which puts them together, may know more.
func TestSchedulerPartsKnowFew(t *testing.T) {
	found := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || s.folder != "actors/receiver/scheduler" {
			continue
		}
		for _, d := range s.file.Decls {
			name, owner, known, look := "", "", map[string]bool{}, ast.Node(d)
			switch d := d.(type) {
			case *ast.FuncDecl:
				name = d.Name.Name
				if d.Recv != nil {
					owner = receiverName(d.Recv.List[0].Type)
				}
				look = d.Type // the arguments; the rest comes through the receiver
			case *ast.GenDecl:
				if spec, ok := d.Specs[0].(*ast.TypeSpec); ok {
					name, owner = spec.Name.Name, spec.Name.Name
					found[owner] = true
				}
			}
			ast.Inspect(look, func(n ast.Node) bool {
				if star, ok := n.(*ast.StarExpr); ok {
					if part := schedulerParts[receiverName(star.X)]; part != "" && part != schedulerParts[owner] {
						known[part] = true
					}
				}
				return true
			})
			most := 2
			if decidesAlone(filepath.Base(s.path), name) || decidesAlone("", owner) {
				most = 0
				if part := schedulerParts[owner]; part != "" {
					known[part] = true
				}
			}
			effort.ErrorIf(t, owner != "Scheduler" && len(known) > most, "%s: %s %s knows %v, at most %d other parts",
				s.path, owner, name, slices.Sorted(maps.Keys(known)), most)
		}
	}
	for name := range schedulerParts {
		effort.ErrorIf(t, !found[name], "the scheduler has no type %s: who took its part?", name)
	}
}

// lowerHouse writes the list again with lower numbers where the code is better than the list. It never raises a
// number.
var lowerHouse = flag.Bool("lower-house", false, "write testdata/house.txt anew where the code is better than it says")

const (
	methodsMax = 40  // of one type
	fieldsMax  = 20  // of one type with behaviour
	recordMax  = 3   // methods of a struct that is only a list of values
	filesMax   = 30  // of one package, doc.go and tests not counted
	columnsMax = 120 // of a line
)

// TestHouseMeasures: testdata/house.txt lists what breaks a measure today, and the list may only shrink.
func TestHouseMeasures(t *testing.T) {
	t.Parallel()
	listed, found := effort.Must(readHouse())(t), measureHouse(t)
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
			t.Errorf("%s %d is not in testdata/house.txt: keep the measure, see methodsMax and its neighbours", name, has)
		case has > may:
			t.Errorf("%s %d: testdata/house.txt allows %d", name, has, may)
		case *lowerHouse && has < may:
			listed[name] = has
		case has == 0:
			t.Errorf("%s keeps its measure now: delete its line in testdata/house.txt (-lower-house does it)", name)
		case has < may:
			t.Errorf("%s %d: testdata/house.txt still has %d (-lower-house writes the new number)", name, has, may)
		}
	}
	if *lowerHouse {
		writeHouse(t, listed)
	}
}

const houseFile = "testdata/house.txt"

// readHouse reads the list: the measure, the place, and the number that is allowed there.
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

// writeHouse writes the list again.
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

// above adds to found the counts that exceed a measure.
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

// upward returns the imports of a file that break the directions, each with the rule that it breaks.
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

// inCapitals matches names of documents that are outside of the repository.
const inCapitals = "RELIABILITY|PROTOACTOR|DASHBOARD|NEWCOMER|DESIGN|STYLE|CAUSES|HEART|PEERS|SPEED|HOUSE"

var (
	// citation finds these names, and names of documents in docs.
	citation = regexp.MustCompile(`\b(?:` + inCapitals + `)\b` +
		`|\b(?:SPEC|MEASURED)\.md|\bRECEIVERS [A-Z]\d|\bdocs/[a-z/-]+\.md`)
	// mayCite are strings; every citation contains at least one. Searching for them is faster than citation.
	mayCite = append(strings.Split(inCapitals, "|"), "SPEC.md", "MEASURED.md", "RECEIVERS", "docs/")
)

// countCitations counts citations of documents that the repository does not have.
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
		if err != nil || path.Base(name) == "house_test.go" || relative == "CHANGELOG.md" {
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

// receiverName returns the name of a method's type.
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
