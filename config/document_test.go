package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"rollcall/config/effort"
)

// document is written from the comments of config.go, so the two can't differ.
const document = "../docs/operators/config.md"

var update = flag.Bool("update", false, "write "+document+" anew")

const documentHead = `# Configuration

Written from the comments in config/config.go by ` + "`go test ./config -update`" + `; don't edit it by hand.

A node runs with no file at all. ` + "`rollcall serve --config FILE`" + ` reads a TOML file; an unknown key is an error with its line
and column. The environment takes precedence over the file: ` + "`http.listen`" + ` is ` + "`ROLLCALL_HTTP_LISTEN`" + ` there, and lists are written with
commas. Each key is shown with its default. Times are texts such as "90s", "5m" or "2h"; rates are texts such as "5/s", "30/min" or "100/h". ` + "`rollcall config check FILE`" + ` says
what is wrong with a file, ` + "`rollcall config show`" + ` prints what is in effect.

` + "`ROLLCALL_ADMIN`" + `, ` + "`ROLLCALL_ADMIN_TOKEN`" + `, ` + "`ROLLCALL_AUTHOR`" + ` and ` + "`ROLLCALL_KEY`" + ` are for commands only; they are not settings.
`

func TestTheDocumentSaysWhatTheCommentsSay(t *testing.T) {
	want := writeDocument(t)
	if *update {
		effort.OK(t, os.WriteFile(document, []byte(want), 0o644))
	}
	got := effort.Must(os.ReadFile(document))(t)
	effort.Is(t, string(got), want, document, "old: run go test ./config -update")
}

// writeDocument goes through Config and the comments of its source.
func writeDocument(t *testing.T) string {
	t.Helper()
	file := effort.Must(parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments))(t)
	comments := map[string]string{} // by type, or type.field
	ast.Inspect(file, func(n ast.Node) bool {
		g, ok := n.(*ast.GenDecl)
		if !ok {
			return true
		}
		for _, spec := range g.Specs {
			s, isType := spec.(*ast.TypeSpec)
			if !isType {
				continue
			}
			comments[s.Name.Name] = g.Doc.Text()
			for _, f := range s.Type.(*ast.StructType).Fields.List {
				comments[s.Name.Name+"."+f.Names[0].Name] = f.Doc.Text()
			}
		}
		return false
	})
	var b strings.Builder
	b.WriteString(documentHead + "\n")
	c := Default()
	writeTable(t, &b, "", reflect.ValueOf(c), comments)
	return b.String()
}

// writeTable writes the settings of one struct, then its tables.
func writeTable(t *testing.T, b *strings.Builder, prefix string, v reflect.Value, comments map[string]string) {
	t.Helper()
	var tables []func()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
		key := prefix + name
		comment := comments[v.Type().Name()+"."+field.Name]
		switch {
		case field.Type.Kind() == reflect.Struct && !readsText(field.Type):
			tables = append(tables, func() {
				fmt.Fprintf(b, "\n## [%s]\n\n%s\n\n", key, about(comments[field.Type.Name()], comment))
				writeTable(t, b, key+".", v.Field(i), comments)
			})
		case field.Type.Kind() == reflect.Map:
			tables = append(tables, func() {
				fmt.Fprintf(b, "\n## [%s.\"NAME\"]\n\n%s\n\n", key, about(comment, "They can't be set by the environment."))
				writeFields(t, b, key+".\"NAME\".", field.Type.Elem(), comments)
			})
		default:
			effort.Not(t, comment, "", key, "has no comment")
			text := defaultText(t, v.Field(i))
			fmt.Fprintf(b, "- `%s = %s`: %s\n", key, text, withoutDefault(explained(field.Name, comment), text))
		}
	}
	for _, table := range tables {
		table()
	}
}

// writeFields writes the fields of an exception, or refers to those of the default.
func writeFields(t *testing.T, b *strings.Builder, prefix string, table reflect.Type, comments map[string]string) {
	t.Helper()
	if table == reflect.TypeFor[Allowance]() {
		b.WriteString("The fields are those of `[throttle.default]`.\n")
		return
	}
	for i := range table.NumField() {
		name, _, _ := strings.Cut(table.Field(i).Tag.Get("toml"), ",")
		comment := comments[table.Name()+"."+table.Field(i).Name]
		effort.Not(t, comment, "", prefix, name, "has no comment")
		fmt.Fprintf(b, "- `%s%s`: %s\n", prefix, name, explained(table.Field(i).Name, comment))
	}
}

// about joins what is said about a type and about the field that has it.
func about(parts ...string) string {
	return strings.TrimSpace(oneLine(parts[0]) + " " + oneLine(parts[1]))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// fieldName is what may be the name of a field: with a capital within it, or where no sentence begins.
var fieldName = regexp.MustCompile(
	`\b[A-Z]+[a-z]+[A-Z]\w+\b|\b(OIDC|TLS)[A-Z]\w+\b|\b[A-Z][a-z]+URL\b|[a-z,] [A-Z][a-z]+\b-?`)

// explained is the comment of a field without the name that the key beside it says, with
// the keys of other fields for their names.
func explained(name, comment string) string {
	text := strings.TrimPrefix(oneLine(comment), name+" ")
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	return fieldName.ReplaceAllStringFunc(text, func(found string) string {
		name := found[strings.IndexByte(found, ' ')+1:]
		for _, table := range []reflect.Type{reflect.TypeFor[HTTP](), reflect.TypeFor[Upload](), reflect.TypeFor[Dashboard](),
			reflect.TypeFor[Limits](), reflect.TypeFor[SMTP](), reflect.TypeFor[Allowance](), reflect.TypeFor[Source](),
			reflect.TypeFor[Cluster](), reflect.TypeFor[Config]()} {
			if field, ok := table.FieldByName(name); ok {
				key, _, _ := strings.Cut(field.Tag.Get("toml"), ",")
				return found[:len(found)-len(name)] + "`" + key + "`"
			}
		}
		return found
	})
}

// withoutDefault leaves out the sentence of a comment that only repeats the default.
func withoutDefault(comment, text string) string {
	value := strings.NewReplacer(`"`, "", "[", "", "]", "").Replace(text)
	for _, said := range []string{value, "none", "empty", `"` + value + `"`} {
		comment = strings.Replace(comment+" ", " Default "+said+". ", " ", 1)
	}
	return strings.TrimSpace(comment)
}

// defaultText writes a default as TOML.
func defaultText(t *testing.T, v reflect.Value) string {
	t.Helper()
	text := effort.Must(toml.Marshal(map[string]any{"x": v.Interface()}))(t)
	return strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(string(text), "x = ")), "'", `"`)
}
