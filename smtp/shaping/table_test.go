package shaping

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// connections makes an override of one field, which the tests tell layers apart by.
func connections(n int) Override { return Override{Connections: &n} }

func TestTableMatch(t *testing.T) {
	slow := Rate{Events: 1, Per: RatePerMax}
	piped := true
	table, err := NewTable(DefaultAllowance(), map[string]Override{
		"Example.NET.":            connections(10),
		".mx.example.net":         connections(20),
		"eu.mx.example.net":       {RcptRate: &slow},
		"shop.example":            {Connections: ptr(30), Pipelining: &piped},
		"tenant.example.net":      connections(40),
		"net":                     {RefusedPerHour: ptr(99)},
		"other.example":           connections(50),
		"mail.own-domain.example": connections(60),
	})
	if err != nil {
		t.Fatal(err)
	}
	def := DefaultAllowance()
	for _, tc := range []struct {
		name, receiver, hosts, domain string
		key                           string
		want                          Override
	}{
		{"nothing named", "foo.org", "mx.foo.org", "foo.org", "foo.org", Override{}},
		{"receiver", "example.net", "a.example.net", "foo.org", "example.net",
			Override{Connections: ptr(10), RefusedPerHour: ptr(99)}},
		{"suffix that all hosts match", "example.net", "1.mx.example.net 2.mx.example.net", "foo.org",
			"suffix:mx.example.net", Override{Connections: ptr(20), RefusedPerHour: ptr(99)}},
		{"host that is the suffix itself", "example.net", "mx.example.net", "foo.org",
			"suffix:mx.example.net", Override{Connections: ptr(20), RefusedPerHour: ptr(99)}},
		{"suffix that one host does not match", "example.net", "1.mx.example.net b.example.net", "foo.org",
			"example.net", Override{Connections: ptr(10), RefusedPerHour: ptr(99)}},
		{"longest suffix, field by field", "example.net", "1.eu.mx.example.net", "foo.org",
			"suffix:eu.mx.example.net",
			Override{Connections: ptr(20), RcptRate: &slow, RefusedPerHour: ptr(99)}},
		{"label boundary", "badexample.net", "mx.badexample.net", "foo.org", "badexample.net",
			Override{RefusedPerHour: ptr(99)}},
		{"mail domain over receiver", "example.net", "a.example.net", "shop.example",
			"domain:shop.example/example.net",
			Override{Connections: ptr(30), Pipelining: &piped, RefusedPerHour: ptr(99)}},
		{"mail domain over suffix", "example.net", "1.eu.mx.example.net", "shop.example",
			"domain:shop.example/suffix:eu.mx.example.net",
			Override{Connections: ptr(30), Pipelining: &piped, RcptRate: &slow, RefusedPerHour: ptr(99)}},
		{"mail domain that is the receiver", "example.net", "a.example.net", "example.net", "example.net",
			Override{Connections: ptr(10), RefusedPerHour: ptr(99)}},
		{"mail domain under the receiver", "example.net", "a.example.net", "tenant.example.net",
			"domain:tenant.example.net/example.net", Override{Connections: ptr(40), RefusedPerHour: ptr(99)}},
		{"mail domain that is its own host", "own-domain.example", "mail.own-domain.example",
			"mail.own-domain.example", "suffix:mail.own-domain.example", Override{Connections: ptr(60)}},
		{"hosts of two receivers", "example.net", "1.mx.example.net mx.foo.org", "foo.org", "example.net",
			Override{Connections: ptr(10), RefusedPerHour: ptr(99)}},
		{"no hosts", "foo.org", "", "other.example", "domain:other.example/foo.org", connections(50)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, got := table.Match(tc.receiver, strings.Fields(tc.hosts), tc.domain)
			if want := tc.want.apply(def); key != tc.key || got != want {
				t.Errorf("got  %s %+v\nwant %s %+v", key, got, tc.key, want)
			}
			if again := table.For(key); again != got {
				t.Errorf("For(%s) = %+v, Match said %+v", key, again, got)
			}
		})
	}
}

func TestTableRefuses(t *testing.T) {
	for _, tc := range []struct {
		name      string
		change    func(*Allowance)
		overrides map[string]Override
		want      error
		says      string
	}{
		{"default out of range", func(a *Allowance) { a.Connections = 0 }, nil, ErrAllowance, "connections is 0"},
		{"rate out of range", func(a *Allowance) { a.RcptRate.Events = 0 }, nil, ErrRate, "rcpt_rate"},
		{"override out of range", nil, map[string]Override{"a.example": connections(ConnectionsMax + 1)},
			ErrAllowance, `"a.example": not an allowance: connections is 10001`},
		{"empty name", nil, map[string]Override{".": {}}, ErrOverrideName, `"."`},
		{"name with a space", nil, map[string]Override{"a b": {}}, ErrOverrideName, `"a b"`},
		{"name with a slash", nil, map[string]Override{"a/b": {}}, ErrOverrideName, `"a/b"`},
		{"international name", nil, map[string]Override{"bücher.example": {}}, ErrOverrideName, "xn--"},
		{"empty label", nil, map[string]Override{"a..b": {}}, ErrOverrideName, "a..b"},
		{"twice", nil, map[string]Override{"a.example": {}, ".A.example": {}}, ErrOverrideName, "twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := DefaultAllowance()
			if tc.change != nil {
				tc.change(&def)
			}
			table, err := NewTable(DefaultAllowance(), map[string]Override{"kept.example": connections(7)})
			if err != nil {
				t.Fatal(err)
			}
			err = table.Replace(def, tc.overrides)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
			if got := table.For("kept.example").Connections; got != 7 {
				t.Errorf("after a refused Replace: %d connections, want the old 7", got)
			}
		})
	}
}

// TestTableReplaceBesideMatch: readers see the old or the new state, never a mixture.
func TestTableReplaceBesideMatch(t *testing.T) {
	table, err := NewTable(DefaultAllowance(), map[string]Override{"a.example": connections(1)})
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 1000 {
				key, a := table.Match("a.example", []string{"mx.a.example"}, "foo.org")
				wide := key == "a.example" && a.Connections == 1
				narrow := key == "suffix:mx.a.example" && a.Connections == 2
				if !wide && !narrow {
					t.Errorf("%s with %d connections", key, a.Connections)
				}
			}
		})
	}
	for range 100 {
		for name, n := range map[string]int{"a.example": 1, "mx.a.example": 2} {
			if err := table.Replace(DefaultAllowance(), map[string]Override{name: connections(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	readers.Wait()
}

func TestDefaultAllowanceIsValid(t *testing.T) {
	if err := DefaultAllowance().Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseRate(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"30/min", "30/min"}, {"5/s", "5/s"}, {"100/h", "100/h"}, {" 7 / s", "7/s"}, {"1/2s", "1/2s"},
		{"60/60s", "60/min"}, {"1000000/1ms", "1000000/1ms"}, {"1/24h", "1/24h0m0s"},
		{"", ""}, {"5", ""}, {"/s", ""}, {"5/", ""}, {"0/s", ""}, {"-1/s", ""}, {"1.5/s", ""}, {"5/day", ""},
		{"1000001/s", ""}, {"99999999999999999999/s", ""}, {"5/0s", ""}, {"5/-1s", ""}, {"5/25h", ""},
		{"5/999us", ""}, {"5/s/s", ""},
	} {
		r, err := ParseRate(tc.text)
		if tc.want == "" {
			if !errors.Is(err, ErrRate) {
				t.Errorf("ParseRate(%q) = %v, %v, want ErrRate", tc.text, r, err)
			}
			continue
		}
		if err != nil || r.String() != tc.want {
			t.Errorf("ParseRate(%q) = %s, %v, want %s", tc.text, r, err, tc.want)
			continue
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Errorf("ParseRate(%q) = %v, %v, want the rate it was written from", r, again, err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func BenchmarkTableMatch(b *testing.B) {
	table, err := NewTable(DefaultAllowance(), map[string]Override{"example.net": {}, "mx.example.net": {}})
	if err != nil {
		b.Fatal(err)
	}
	hosts := []string{"alt1.mx.example.net", "alt2.mx.example.net"}
	b.ReportAllocs()
	for range b.N {
		table.Match("example.net", hosts, "shop.example")
	}
}
