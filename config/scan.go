package config

import (
	"fmt"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"

	"rollcall/smtp/throttle"
)

// scanner goes through the keys of a document, up to the first syntax error, which the decoder reports. The decoder
// stops at its first fault; the scanner finds all other faults, each with its place.
type scanner struct {
	file  string
	known map[string]form
	at    places // filled: where each key stands

	p     unstable.Parser
	lines lineStarts
	meant map[string]string // suggestions for unknown keys, by their general form
	found []Finding
}

func (s *scanner) scan(data []byte) {
	s.p.Reset(data)
	s.meant = map[string]string{}
	s.lines = lineStartsOf(data)
	var table []string
	skip := false // the table is unknown: report the table, not its keys
	for s.p.NextExpression() {
		e := s.p.Expression()
		parts, at := s.key(e)
		switch {
		case len(parts) == 0:
		case e.Kind == unstable.KeyValue && !skip:
			s.value(append(table[:len(table):len(table)], parts...), e.Value(), at)
		case e.Kind == unstable.Table:
			table = parts
			s.at[joinKey(table)] = at
			if skip = !s.isTable(generalKey(table)); skip {
				s.unknown(table, at)
			}
		case e.Kind == unstable.ArrayTable:
			skip = true
			s.fault(parts, at, "write ["+joinKey(parts)+"] with one bracket on each side: it is not a list of tables")
		}
	}
}

// key returns the parts of an expression's key, and where the key begins.
func (s *scanner) key(e *unstable.Node) (parts []string, at position) {
	if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
		return nil, at
	}
	for it := e.Key(); it.Next(); {
		if len(parts) == 0 {
			at = s.position(it.Node().Raw)
		}
		parts = append(parts, string(it.Node().Data))
	}
	return parts, at
}

func (s *scanner) position(raw unstable.Range) position {
	line, column := s.lines.at(int(raw.Offset))
	return position{s.file, line, column}
}

func (s *scanner) isTable(key string) bool {
	for k := range s.known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

func (s *scanner) fault(parts []string, at position, text string) {
	s.found = append(s.found, at.finding(SeverityError, joinKey(parts)+": "+text))
}

func (s *scanner) unknown(parts []string, at position) {
	key := generalKey(parts)
	text, known := s.meant[key]
	if !known {
		text = meantKey(parts, s.known)
		s.meant[key] = text
	}
	s.found = append(s.found, at.finding(SeverityError, fmt.Sprintf("unknown key %q", joinKey(parts))+text))
}

func (s *scanner) value(parts []string, v *unstable.Node, at position) {
	s.at[joinKey(parts)] = at
	key := generalKey(parts)
	f, ok := s.known[key]
	switch {
	case !ok && s.isTable(key) && v.Kind == unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if inner, at := s.key(it.Node()); len(inner) > 0 {
				s.value(append(parts[:len(parts):len(parts)], inner...), it.Node().Value(), at)
			}
		}
	case !ok && s.isTable(key):
		s.fault(parts, at, fmt.Sprintf("this is a table: write [%s] and its keys below", key))
	case !ok:
		s.unknown(parts, at)
	case v.Kind != f.kind && (f.kind != unstable.Float || v.Kind != unstable.Integer):
		s.fault(parts, at, "write "+f.want)
	default:
		s.read(parts, v, f, at)
	}
}

// read checks a value of the right kind.
func (s *scanner) read(parts []string, v *unstable.Node, f form, at position) {
	of := elem(f.of)
	if v.Kind != unstable.Array {
		s.try(parts, v, of)
		return
	}
	for it := v.Children(); it.Next(); {
		switch node := it.Node(); {
		case node.Kind == unstable.Comment:
		case node.Kind != unstable.String:
			s.fault(parts, at, "write "+f.want)
			return
		case !s.try(parts, node, of.Elem()):
			return
		}
	}
}

// elem is the type that a pointer type t points to, or t.
func elem(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// try reads a value of a type that is written as one string.
func (s *scanner) try(parts []string, v *unstable.Node, t reflect.Type) bool {
	if !readsText(t) {
		return true
	}
	err := setText(reflect.New(t).Elem(), string(v.Data))
	if err != nil {
		s.fault(parts, s.position(v.Raw), err.Error())
	}
	return err == nil
}

// lineStarts are the offsets at which the lines of a document begin. The parser's own way to find the line of a byte
// reads everything before the byte, for each key.
type lineStarts []int

func lineStartsOf(data []byte) lineStarts {
	l := lineStarts{0}
	for i, b := range data {
		if b == '\n' {
			l = append(l, i+1)
		}
	}
	return l
}

// at returns the line and the column of a byte, both from 1.
func (l lineStarts) at(offset int) (line, column int) {
	line = sort.SearchInts(l, offset+1)
	return line, offset - l[line-1] + 1
}

// Duration is a length of time, written like "5m" or "1h30m". It is a struct so
// that a bare number, which would be nanoseconds, is refused.
type Duration struct{ time.Duration }

// UnmarshalText reads Go's form, such as 90s or 1h30m.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time: write a number with a unit, such as \"90s\", \"5m\" or \"2h\"", text)
	}
	d.Duration = v
	return nil
}

// MarshalText writes the shortest form: 5m, not 5m0s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the shortest form: 5m, not 5m0s.
func (d Duration) String() string {
	return throttle.ShortTime(d.Duration)
}

// Rate is a number of events per unit of time, written like "30/min", "5/s" or "100/h".
type Rate throttle.Rate

// UnmarshalText reads forms like 30/min.
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := throttle.ParseRate(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a rate: write a number and a time, such as \"5/s\", \"30/min\" or \"100/h\"", text)
	}
	*r = Rate(v)
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(throttle.Rate(r).String()), nil }

// String returns the form that UnmarshalText reads.
func (r Rate) String() string { return throttle.Rate(r).String() }
