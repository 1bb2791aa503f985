package config

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"rollcall/config/effort"
)

func TestEveryKeyComesBackFromItsOwnText(t *testing.T) {
	c := Default()
	five, rate := 5, Rate{Events: 7, Per: c.Throttle.Default.RcptRate.Per}
	c.Throttle.Receivers = map[string]Allowance{"example.net": {Connections: &five, RcptRate: &rate}}
	leaves("", reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		change(v)
	})
	c.HTTP.Listen, c.Upload.Listen, c.Admin.Listen = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	c.Cluster.GossipListen, c.Cluster.ActorListen = "127.0.0.1:4", "127.0.0.1:5"
	c.HTTP.PublicURL, c.Upload.PublicURL = "https://a.test", "https://b.test"
	c.Upload.Connections, c.Upload.BytesPerSecond = 78, 1<<20
	c.Admin.Hosts = []string{"node.test"}
	c.HTTP.TrustedProxies = []string{"192.0.2.0/24", "2001:db8::1"}
	c.HTTP.AllowedOrigins, c.DNS.Servers = []string{"https://c.test"}, []string{"127.0.0.1:6"}
	c.Cluster.Join, c.Ledger.URL = []string{"127.0.0.1:7"}, "postgresql://u@h/d"
	c.Cluster.Advertise, c.Cluster.AllowNetworks = "127.0.0.2", []string{"127.0.0.0/8"}
	c.SMTP.HelloName, c.SMTP.ReturnPath = "d.test", "postmaster@d.test"
	c.SMTP.SourceAddresses, c.SMTP.AllowNetworks = []string{"127.0.0.1"}, []string{"127.0.0.0/8"}
	c.Identity.PublicAddresses = []string{"192.0.2.1"}
	off, v6, drain, day := "off", "ipv6", "drain", "2026-11-21"
	c.Throttle.Default.TLS, c.Throttle.Default.AddressFamily, c.Throttle.Default.Pause = &off, &v6, &drain
	c.Throttle.Sources = map[string]Source{"default": {Pause: &drain}, "192.0.2.1": {RcptsPerDay: &five, WarmUpFrom: &day}}
	c.Tracing.Endpoint = "127.0.0.1:8"
	c.Dashboard.OIDCIssuer = "https://login.test"
	c.Log = Log{Level: "debug", Format: "text"}
	text := show(t, c)
	got, err := Load(write(t, text), nil)
	effort.OK(t, err, text)
	got.Throttle.places = nil
	effort.Same(t, got, c, show(t, got), text)
}

func TestEveryKeyCanBeSetByTheEnvironment(t *testing.T) {
	c := Default()
	leaves("", reflect.ValueOf(&c).Elem(), func(key string, v reflect.Value) {
		if strings.Contains(key, "*") {
			return
		}
		got := Default()
		effort.Is(t, len(applyEnviron(&got, []string{EnvironName(key) + "=" + sample(v)}, places{})), 0, key)
		if reflect.DeepEqual(got, Default()) {
			t.Errorf("%s=%s changes nothing", EnvironName(key), sample(v))
		}
	})
}

func TestShowNeverTellsThePassword(t *testing.T) {
	c := Default()
	var asJSON []byte
	for _, url := range []string{
		"postgresql://rollcall:hunter2@db.test:26257/rollcall?sslmode=verify-full",
		"postgres://db.test:26257/rollcall?user=rollcall&password=hunter2&sslpassword=hunter2",
		"postgresql://rollcall:hunter2@db.test:26257,db2.test:26257,[::1]:26257/rollcall?password=hunter2",
	} {
		c.Ledger.URL = url
		asJSON = effort.Must(c.ShowJSON())(t)
		_, hosts, _ := strings.Cut(url, "db.test")
		hosts, _, _ = strings.Cut(hosts, "/")
		text := show(t, c) + string(asJSON)
		effort.Lacks(t, text, "hunter2")
		effort.Has(t, text, "db.test"+hosts+"/")
	}
	var tree map[string]map[string]any
	err := json.Unmarshal(asJSON, &tree)
	effort.ErrorIf(t, err == nil || len(asJSON) == 0, "got %v, want data_dir to be a text beside tables", err)
}

func show(t *testing.T, c Config) string {
	t.Helper()
	text := effort.Must(c.ShowTOML())(t)
	return string(text)
}

// change gives a setting another usable value.
func change(v reflect.Value) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	if err := setText(v, sample(v)); err != nil {
		panic(err)
	}
}

// sample returns a usable text for a setting that differs from its present one.
func sample(v reflect.Value) string {
	t := v.Type()
	switch formOf(t).want {
	case formOf(reflect.TypeFor[Duration]()).want:
		return "7s"
	case formOf(reflect.TypeFor[Rate]()).want:
		return "3/min"
	case formOf(reflect.TypeFor[[]Duration]()).want:
		return "1m,2m"
	case formOf(reflect.TypeFor[bool]()).want:
		if t.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		return strconv.FormatBool(!v.Bool())
	case formOf(reflect.TypeFor[int]()).want:
		return "77"
	case formOf(reflect.TypeFor[float64]()).want:
		return "0.5"
	}
	return "some-text"
}

// document is generated from the comments of config.go, so the two can't differ.
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
	comments := map[string]string{} // by "type" or "type.field"
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

// writeFields documents the fields of a table; for an Allowance it refers to [throttle.default].
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

// about joins the comments of a type and of the field that has this type.
func about(parts ...string) string {
	return strings.TrimSpace(oneLine(parts[0]) + " " + oneLine(parts[1]))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// fieldName finds words that may be names of fields: those with a capital inside, or with a capital where no sentence
// begins.
var fieldName = regexp.MustCompile(
	`\b[A-Z]+[a-z]+[A-Z]\w+\b|\b(OIDC|TLS)[A-Z]\w+\b|\b[A-Z][a-z]+URL\b|[a-z,] [A-Z][a-z]+\b-?`)

// explained returns the comment of a field without the field's name, because the key stands beside it. It replaces
// names of other fields by their keys.
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
