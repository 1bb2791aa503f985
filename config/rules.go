package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rollcall/smtp/throttle"
)

// systemSource is the name, in files, of the source whose address the system chooses.
const systemSource = "default"

// unplaced is the place of a value that was in no file and no variable.
const unplaced = "set by the program"

// fieldFault returns what is wrong with the text of a field, without the field's name.
func fieldFault(f throttle.Field, text string) error {
	var a throttle.Limits
	err := a.Set(f, text)
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), throttle.ErrLimits.Error()+": "+f.String()+": "))
}

// fieldText is a field that is set, and its value in the form that package throttle reads.
type fieldText struct {
	field throttle.Field
	text  string
}

// tableField is a field of package throttle and its index in the struct of a table.
type tableField struct {
	place int
	field throttle.Field
}

// The fields of the two kinds of tables, looked up once: a file may have 100,000 of them.
var (
	allowanceFields = tableFieldsOf(reflect.TypeFor[Allowance]())
	sourceFields    = tableFieldsOf(reflect.TypeFor[Source]())
)

func tableFieldsOf(t reflect.Type) (out []tableField) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
		if f, ok := throttle.ParseField(name); ok {
			out = append(out, tableField{i, f})
		}
	}
	return out
}

// fieldTexts returns the fields that are set in an Allowance or a Source.
func fieldTexts(table any) (set []fieldText) {
	v, fields := reflect.ValueOf(table), allowanceFields
	if _, isSource := table.(Source); isSource {
		fields = sourceFields
	}
	for _, at := range fields {
		if v.Field(at.place).IsNil() {
			continue
		}
		text := textOf(v.Field(at.place).Elem())
		var a throttle.Limits
		if a.Set(at.field, text) == nil {
			text = a.Text(at.field) // one form of each value
		}
		set = append(set, fieldText{at.field, text})
	}
	return set
}

// textOf writes a setting in the form that setText reads.
func textOf(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = textOf(v.Index(i))
	}
	return strings.Join(parts, ",")
}

type ruled struct {
	throttle.Rule
	key string
}

// tables calls visit for each table of t with its key, the name of its rule and the fields set in it.
func (t Throttle) tables(visit func(key, name string, set []fieldText)) {
	visit("default", "", fieldTexts(t.Default))
	for _, name := range slices.Sorted(maps.Keys(t.Receivers)) {
		visit(joinKey([]string{"receivers", name}), name, fieldTexts(t.Receivers[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Sources)) {
		visit(joinKey([]string{"sources", name}), sourceName(name), fieldTexts(t.Sources[name]))
	}
}

func sourceName(written string) string {
	if written == systemSource {
		return throttle.SourcePrefix
	}
	return throttle.SourcePrefix + written
}

// rules returns t, whose values are checked already, as rules. It leaves out fields of the default table that nobody
// wrote and that equal the program's own limits.
func (t Throttle) rules() (rules []ruled) {
	builtIn := throttle.DefaultLimits()
	t.tables(func(key, name string, set []fieldText) {
		r := ruled{throttle.Rule{Where: map[throttle.Field]string{0: unplaced}}, key}
		r.Name, _ = throttle.CleanName(name)
		for _, s := range set {
			at, written := t.places[key+"."+s.field.String()]
			if name == "" && !written && s.text == builtIn.Text(s.field) {
				continue
			}
			if written {
				r.Where[s.field] = at.where()
			}
			_ = r.Set.Set(s.field, s.text) // check has reported the error
		}
		if r.Set != (throttle.Override{}) {
			rules = append(rules, r)
		}
	})
	return rules
}

// Rules returns t as rules of throttle.LayerFile.
func (t Throttle) Rules() []throttle.Rule { return plain(t.rules()) }

func plain(rules []ruled) []throttle.Rule {
	out := make([]throttle.Rule, len(rules))
	for i, r := range rules {
		out[i] = r.Rule
	}
	return out
}

// check adds the faults of the allowances. prefix stands before the keys.
func (t Throttle) check(k *checker, prefix string) {
	first := map[string]string{} // the keys by clean names
	t.tables(func(key, name string, set []fieldText) {
		for _, s := range set {
			if err := fieldFault(s.field, s.text); err != nil {
				k.add(prefix+key+"."+s.field.String(), "%v", err)
			}
		}
		clean, err := throttle.CleanName(name)
		switch source, isSource := strings.CutPrefix(name, throttle.SourcePrefix); {
		case isSource && (err != nil || source == "" && key != "sources."+systemSource):
			k.add(prefix+key, "is not a source: write one of this service's IP addresses, or %q for the source whose "+
				"address the system chooses", systemSource)
		case name == "" && key != "default":
			k.add(prefix+key, "is not a usable name: write a receiver, an MX host suffix or a mail domain")
		case err != nil:
			k.add(prefix+key, "is not a usable name: %s", strings.TrimPrefix(err.Error(), throttle.ErrOverrideName.Error()+": "))
		case first[clean] != "":
			k.add(prefix+key, "is %s in another spelling: write it once", t.named(prefix, first[clean]))
		default:
			first[clean] = key
		}
	})
}

func (t Throttle) named(prefix, key string) string {
	if at, ok := t.places.nearest(key); ok {
		return prefix + key + " (" + at.String() + ")"
	}
	return prefix + key
}

// throttleForm is the structure of throttle.toml.
type throttleForm struct {
	Default   Allowance            `toml:"default"`
	Receivers map[string]Allowance `toml:"receivers"`
	Sources   map[string]Source    `toml:"sources"`
}

// LoadThrottle returns the rules of base followed by those of the file base.File. A file that does not exist adds none.
// Faults are an ErrInvalid with file, line and column.
func LoadThrottle(base Throttle) ([]throttle.Rule, error) {
	if base.File == "" {
		return base.Rules(), nil
	}
	text, err := readFile(base.File)
	if errors.Is(err, fs.ErrNotExist) {
		return base.Rules(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", base.File, err)
	}
	file, findings := parseThrottle(base.File, text)
	if err := invalid(findings); err != nil {
		return nil, err
	}
	return append(base.Rules(), file.Rules()...), nil
}

// CheckThrottle returns the rules that LoadThrottle would return for another file, which has to exist, and the errors
// and warnings about them. If the findings contain an error, it returns no rules.
func CheckThrottle(file string, base Throttle) (rules []throttle.Rule, findings []Finding, err error) {
	text, err := readFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", file, err)
	}
	rules, findings = CheckThrottleText(file, text, base)
	return rules, findings, nil
}

// CheckThrottleText is CheckThrottle for a file on another machine, given as text.
func CheckThrottleText(file string, text []byte, base Throttle) (rules []throttle.Rule, findings []Finding) {
	candidate, findings := parseThrottle(file, text)
	if len(findings) > 0 {
		return nil, findings
	}
	both := base.rules()
	before := len(both)
	both = append(both, candidate.rules()...)
	rules = plain(both)
	for _, doubt := range throttle.Check(rules) {
		r, at := both[doubt.Rule], candidate.places
		if doubt.Rule < before {
			at = base.places
		}
		key := r.key
		if doubt.Field != 0 {
			key += "." + doubt.Field.String()
		}
		place, _ := at.nearest(key)
		findings = append(findings, place.finding(SeverityWarning, key+": "+doubt.Text))
	}
	inOrder(findings, file)
	return rules, findings
}

// inOrder sorts the findings of a file by line and puts them behind those about other files.
func inOrder(findings []Finding, file string) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		switch {
		case a.File != b.File && a.File == file:
			return 1
		case a.File != b.File && b.File == file:
			return -1
		}
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// parseThrottle reads the text of a throttle file. The findings are its faults.
func parseThrottle(file string, data []byte) (Throttle, []Finding) {
	form, at, findings := decodeAll(file, data, func() (none throttleForm) { return none })
	t := Throttle{Default: form.Default, Receivers: form.Receivers, Sources: form.Sources, places: at}
	k := &checker{}
	t.check(k, "")
	findings = append(findings, at.locate(k.found)...)
	inOrder(findings, file)
	return t, findings
}

// ThrottleState is the rules in effect and the state of the throttle file.
type ThrottleState struct {
	File  string
	Found bool            // whether there was a file when the rules were loaded
	Rules []throttle.Rule // in effect: those of the configuration, then those of the file
	At    time.Time       // when they were loaded

	// Changes are the changes at the last load; nil after the first one and with Err.
	Changes []throttle.Change

	// Err is why the present file is not used: an ErrInvalid with line and column, or the error of reading it; nil when
	// it is used.
	Err error
}

// ThrottleFile follows the throttle file of a node. State may be called at any time.
type ThrottleFile struct {
	base  Throttle
	watch *FileWatch
	state atomic.Pointer[ThrottleState]
}

// OpenThrottle loads what LoadThrottle does, with its errors.
func OpenThrottle(base Throttle) (*ThrottleFile, error) {
	f := &ThrottleFile{base: base, watch: WatchFiles(base.File)}
	rules, err := LoadThrottle(base)
	if err != nil {
		return nil, err
	}
	f.state.Store(&ThrottleState{File: base.File, Found: f.watch.Found(), Rules: rules, At: time.Now()})
	return f, nil
}

// State returns the rules in effect and the error of the last load, if any.
func (f *ThrottleFile) State() ThrottleState { return *f.state.Load() }

// Watch calls apply each time the file has changed, until ctx ends: with new rules, or with Err and the old rules. A
// faulty file is logged, with line and column, and changes nothing.
func (f *ThrottleFile) Watch(ctx context.Context, log *slog.Logger, apply func(ThrottleState)) {
	f.watch.Each(ctx, func() {
		state := f.load()
		if state.Err != nil {
			log.Error("throttle file not used", "err", state.Err)
		} else {
			log.Info("throttle file loaded", "file", f.base.File, "rules", len(state.Rules), "changes", len(state.Changes))
		}
		apply(state)
	})
}

func (f *ThrottleFile) load() ThrottleState {
	state := f.State()
	rules, err := LoadThrottle(f.base)
	if err != nil {
		state.Changes, state.Err = nil, err
	} else {
		state = ThrottleState{File: f.base.File, Found: f.watch.Found(), Rules: rules, At: time.Now(),
			Changes: throttle.Diff(state.Rules, rules)}
	}
	f.state.Store(&state)
	return state
}
