package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"rollcall/smtp/throttle"
)

// systemSource is how the source whose address the system chooses is written.
const systemSource = "default"

// unplaced is where a value stands that was in no file and in no variable.
const unplaced = "set by the program"

// fieldFault says what is wrong with the text of a field, without the field's name.
func fieldFault(f throttle.Field, text string) error {
	var a throttle.Limits
	err := a.Set(f, text)
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), throttle.ErrLimits.Error()+": "+f.String()+": "))
}

// fieldText is a field that is set, as throttle reads it.
type fieldText struct {
	field throttle.Field
	text  string
}

// tableField is a field of throttle and its place in the struct of a table.
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

// textOf writes a setting as setText reads it.
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

// ruled is a rule and the key of its table.
type ruled struct {
	throttle.Rule
	key string
}

// tables returns the tables of t that have fields: their keys, the names of their rules and
// what is set in them.
func (t Throttle) tables(visit func(key, name string, set []fieldText)) {
	visit("default", "", fieldTexts(t.Default))
	for _, name := range slices.Sorted(maps.Keys(t.Receivers)) {
		visit(joinKey([]string{"receivers", name}), name, fieldTexts(t.Receivers[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Sources)) {
		visit(joinKey([]string{"sources", name}), sourceName(name), fieldTexts(t.Sources[name]))
	}
}

// sourceName is the name of the rule of a source.
func sourceName(written string) string {
	if written == systemSource {
		return throttle.SourcePrefix
	}
	return throttle.SourcePrefix + written
}

// rules returns t as rules, whose values were checked. The default's fields that nobody wrote
// and that are what the program has anyway are left to it.
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
			_ = r.Set.Set(s.field, s.text) // check has said what is wrong with it
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

// check adds the faults of the allowances; prefix is what stands before the keys.
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
			k.add(prefix+key, "is no source: write one of this service's IP addresses, or %q for the source whose "+
				"address the system chooses", systemSource)
		case name == "" && key != "default":
			k.add(prefix+key, "is no usable name: write a receiver, an MX host suffix or a mail domain")
		case err != nil:
			k.add(prefix+key, "is no usable name: %s",
				strings.TrimPrefix(err.Error(), throttle.ErrOverrideName.Error()+": "))
		case first[clean] != "":
			k.add(prefix+key, "is %s in another spelling: write it once", t.named(prefix, first[clean]))
		default:
			first[clean] = key
		}
	})
}

// named is a key and where it stands.
func (t Throttle) named(prefix, key string) string {
	if at, ok := t.places.nearest(key); ok {
		return prefix + key + " (" + at.String() + ")"
	}
	return prefix + key
}
