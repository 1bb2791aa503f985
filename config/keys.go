package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// suggestDistanceMax is how many letters of a mistyped key may differ from the one suggested, at most a third of them.
// Guess.
const suggestDistanceMax = 3

// leaves calls visit for every setting below v, with its dotted key. It passes nil pointers as they are. For a map it
// visits each entry; for a map type it visits the fields once, under the name *.
func leaves(prefix string, v reflect.Value, visit func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		name := v.Type().Field(i).Tag.Get("toml")
		name, _, _ = strings.Cut(name, ",")
		key, field := name, v.Field(i)
		if prefix != "" {
			key = prefix + "." + name
		}
		switch {
		case field.Kind() == reflect.Struct && !readsText(field.Type()):
			leaves(key, field, visit)
		case field.Kind() == reflect.Map:
			leaves(key+".*", reflect.New(field.Type().Elem()).Elem(), visit)
		default:
			visit(key, field)
		}
	}
}

// readsText reports whether a value of type t is written as a single string.
func readsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// form is how a setting is written in TOML.
type form struct {
	kind unstable.Kind
	want string // for people: what to write
	of   reflect.Type
}

// keysOf returns every key of a settings struct, with its form.
func keysOf(target any) map[string]form {
	known := map[string]form{}
	leaves("", reflect.ValueOf(target).Elem(), func(key string, v reflect.Value) {
		f := formOf(v.Type())
		f.of = v.Type()
		known[key] = f
	})
	return known
}

func formOf(t reflect.Type) form {
	switch t = elem(t); {
	case t == reflect.TypeFor[Duration]():
		return form{kind: unstable.String, want: `a time in quotes, such as "5m"`}
	case t == reflect.TypeFor[Rate]():
		return form{kind: unstable.String, want: `a rate in quotes, such as "30/min"`}
	case t == reflect.TypeFor[[]Duration]():
		return form{kind: unstable.Array, want: `a list of times, such as ["5m", "1h"]`}
	case t.Kind() == reflect.Slice:
		return form{kind: unstable.Array, want: `a list of texts, such as ["a", "b"]`}
	case t.Kind() == reflect.Bool:
		return form{kind: unstable.Bool, want: "true or false"}
	case t.Kind() == reflect.String:
		return form{kind: unstable.String, want: "a text in quotes"}
	case t.Kind() == reflect.Float64:
		return form{kind: unstable.Float, want: "a number, such as 0.5"}
	}
	return form{kind: unstable.Integer, want: "a whole number"}
}

// meantKey says which key an unknown one may have meant.
func meantKey(key []string, known map[string]form) string {
	for _, k := range []string{generalKey(key), key[0]} {
		if s := suggest(k, known); s != "" {
			return fmt.Sprintf(": did you mean %q?", s)
		}
	}
	return ": the known ones are in docs/operators/config.md and in `rollcall config show`"
}

// suggest returns the known key or table that is most like key, or "".
func suggest(key string, known map[string]form) string {
	candidates := make([]string, 0, len(known))
	for k := range known {
		candidates = append(candidates, k)
		if table, _, nested := strings.Cut(k, "."); nested {
			candidates = append(candidates, table)
		}
	}
	sort.Strings(candidates)
	if best := Nearest(key, candidates); best != "" {
		return best
	}
	last := key[strings.LastIndex(key, ".")+1:]
	for _, c := range candidates {
		if strings.HasSuffix(c, "."+last) {
			return c
		}
	}
	return ""
}

// Nearest returns the candidate that a mistyped word most likely means, or "" if none is similar.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", min(suggestDistanceMax, (len(word)+2)/3)+1
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or change between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// joinKey writes the parts of a key as TOML does.
func joinKey(parts []string) string {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = p
		if p == "" || strings.ContainsFunc(p, notBare) {
			quoted[i] = strconv.Quote(p)
		}
	}
	return strings.Join(quoted, ".")
}

// notBare reports whether r in a key makes quotes necessary; all characters of host names but the dot don't.
func notBare(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// generalKey is joinKey with the name of a receiver or source replaced by *.
func generalKey(parts []string) string {
	general := append([]string(nil), parts...)
	for i := range general[:max(len(general)-1, 0)] {
		if general[i] == "receivers" || general[i] == "sources" {
			general[i+1] = "*"
			break
		}
	}
	return strings.Join(general, ".")
}

// ShowTOML writes c as a file that Load reads, without the password of the ledger's URL.
func (c Config) ShowTOML() ([]byte, error) {
	c.Ledger.URL = hidePassword(c.Ledger.URL)
	text, err := toml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration as TOML: %w", err)
	}
	return text, nil
}

// ShowJSON writes what ShowTOML does, as JSON.
func (c Config) ShowJSON() ([]byte, error) {
	text, err := c.ShowTOML()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read the configuration back: %w", err)
	}
	out, err := json.MarshalIndent(tree, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the configuration as JSON: %w", err)
	}
	return append(out, '\n'), nil
}

// severalHosts finds the second and later hosts in a database URL.
var severalHosts = regexp.MustCompile(`^([a-z]+://(?:[^/?#]*@)?[^/?#,]*)((?:,[^/?#,]*)+)(.*)$`)

// hidePassword replaces the passwords in a database URL: before the @, and among the parameters.
func hidePassword(text string) string {
	// Go parses no URL with several hosts and ports: only the first host is parsed.
	hosts := severalHosts.FindStringSubmatch(text)
	if hosts != nil {
		text = hosts[1] + hosts[3]
	}
	u, err := url.Parse(text)
	if err != nil {
		return "(unreadable)"
	}
	if hosts != nil {
		u.Host += hosts[2]
	}
	if u.Scheme == "sqlite" {
		return text
	}
	q := u.Query()
	for name := range q {
		if strings.Contains(strings.ToLower(name), "password") {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}

// ErrInvalid is in every error about the content of a file or the environment. The text has a line for each fault:
// where it is, what is wrong, what to do.
var ErrInvalid = errors.New("config: invalid")

type fault struct {
	key  string // dotted, such as smtp.port
	text string // what is wrong and what to do
}

// Severity tells whether a file with a Finding can be used.
type Severity string

const (
	// SeverityError is a fault: the file is not used.
	SeverityError Severity = "error"

	// SeverityWarning marks what is valid but perhaps not intended.
	SeverityWarning Severity = "warning"
)

// Finding is an error or a warning about a place in a file.
type Finding struct {
	File     string   `json:"file"` // or a variable of the environment
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // the key, what is wrong, what to do
}

// String is "file:line:column: text", as far as these are known.
func (f Finding) String() string {
	if f.File == "" {
		return f.Text
	}
	return position{f.File, f.Line, f.Column}.String() + ": " + f.Text
}

// position is a place in a file, or a variable of the environment.
type position struct {
	file         string
	line, column int // from 1; 0: not known
}

// String is "file:line:column", or the file alone.
func (p position) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column)
}

// where is "file:line", for people who open the file.
func (p position) where() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

func (p position) finding(s Severity, text string) Finding {
	return Finding{p.file, p.line, p.column, s, text}
}

// places holds the position of each dotted key.
type places map[string]position

// nearest returns the place of a key, or of the table or list it is in.
func (p places) nearest(key string) (position, bool) {
	for key != "" {
		if at, ok := p[key]; ok {
			return at, true
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			break
		}
		key = key[:cut]
	}
	return position{}, false
}

// below returns the places of the keys in a table, without the table's name.
func (p places) below(table string) places {
	out := places{}
	for key, at := range p {
		if rest, found := strings.CutPrefix(key, table+"."); found {
			out[rest] = at
		}
	}
	return out
}

func (p places) locate(faults []fault) []Finding {
	var out []Finding
	for _, f := range faults {
		at, _ := p.nearest(f.key)
		out = append(out, at.finding(SeverityError, f.key+": "+f.text))
	}
	return out
}

// invalid returns findings as an error; nil if there are none.
func invalid(findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	return &invalidError{findings}
}

type invalidError struct{ findings []Finding }

func (e *invalidError) Error() string {
	lines := make([]string, len(e.findings))
	for i, f := range e.findings {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }
