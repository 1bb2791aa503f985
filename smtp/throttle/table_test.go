package throttle

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"rollcall/config/effort"
)

// set makes an override of "field=value field=value".
func set(t testing.TB, fields string) Override {
	t.Helper()
	texts := map[string]string{}
	for one := range strings.FieldsSeq(fields) {
		name, text, _ := strings.Cut(one, "=")
		texts[name] = text
	}
	return effort.Must(ParseOverride(texts))(t)
}

// rules makes rules of "name: field=value field=value"; without a name it is everybody's.
func rules(t testing.TB, lines ...string) []Rule {
	t.Helper()
	var out []Rule
	for i, line := range lines {
		name, fields, found := strings.Cut(line, ": ")
		if !found {
			t.Fatalf("%q: no name", line)
		}
		out = append(out, Rule{Name: name, Set: set(t, fields),
			Where: map[Field]string{0: fmt.Sprintf("throttle.toml:%d", i+1)}})
	}
	return out
}

// tableOf makes a table of such rules.
func tableOf(t testing.TB, lines ...string) *Table {
	t.Helper()
	return effort.Must(NewTable(rules(t, lines...)))(t)
}

func TestTableMatch(t *testing.T) {
	table := tableOf(t, ": refused_per_session=8", "Example.NET.: connections=10", ".mx.example.net: connections=20",
		"eu.mx.example.net: rcpt_rate=1/24h", "shop.example: connections=30 pipelining=true",
		"tenant.example.net: connections=40", "net: refused_per_hour=99", "other.example: connections=50",
		"mail.own-domain.example: connections=60",
	)
	for _, tc := range []struct {
		name, receiver, hosts, domain string
		key                           string
		want                          string
	}{
		{"nothing named", "foo.org", "mx.foo.org", "foo.org", "foo.org", ""},
		{"receiver", "example.net", "a.example.net", "foo.org", "example.net", "connections=10 refused_per_hour=99"},
		{"suffix that all hosts match", "example.net", "1.mx.example.net 2.mx.example.net", "foo.org",
			"suffix:mx.example.net", "connections=20 refused_per_hour=99"},
		{"host that is the suffix itself", "example.net", "mx.example.net", "foo.org",
			"suffix:mx.example.net", "connections=20 refused_per_hour=99"},
		{"suffix that one host does not match", "example.net", "1.mx.example.net b.example.net", "foo.org",
			"example.net", "connections=10 refused_per_hour=99"},
		{"longest suffix, field by field", "example.net", "1.eu.mx.example.net", "foo.org",
			"suffix:eu.mx.example.net", "connections=20 rcpt_rate=1/24h refused_per_hour=99"},
		{"label boundary", "badexample.net", "mx.badexample.net", "foo.org", "badexample.net", "refused_per_hour=99"},
		{"mail domain over receiver", "example.net", "a.example.net", "shop.example",
			"domain:shop.example/example.net", "connections=30 pipelining=true refused_per_hour=99"},
		{"mail domain over suffix", "example.net", "1.eu.mx.example.net", "shop.example",
			"domain:shop.example/suffix:eu.mx.example.net",
			"connections=30 pipelining=true rcpt_rate=1/24h refused_per_hour=99"},
		{"mail domain that is the receiver", "example.net", "a.example.net", "example.net", "example.net",
			"connections=10 refused_per_hour=99"},
		{"mail domain under the receiver", "example.net", "a.example.net", "tenant.example.net",
			"domain:tenant.example.net/example.net", "connections=40 refused_per_hour=99"},
		{"mail domain that is its own host", "own-domain.example", "mail.own-domain.example",
			"mail.own-domain.example", "suffix:mail.own-domain.example", "connections=60"},
		{"hosts of two receivers", "example.net", "1.mx.example.net mx.foo.org", "foo.org", "example.net",
			"connections=10 refused_per_hour=99"},
		{"no hosts", "foo.org", "", "other.example", "domain:other.example/foo.org", "connections=50"},
		{"no mail domain", "foo.org", "mx.foo.org", "", "foo.org", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, got := table.Match(tc.receiver, strings.Fields(tc.hosts), tc.domain)
			if want := set(t, tc.want).Apply(DefaultLimits()); key != tc.key || got != want {
				t.Errorf("got  %s %+v\nwant %s %+v", key, got, tc.key, want)
			}
			effort.Is(t, table.For(key), got, "For", key, "Match")
		})
	}
}

func TestTableRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rules []Rule
		want  error
		says  string
	}{
		{"empty name", rules(t, ".: connections=1"), ErrOverrideName, `"."`},
		{"name with a space", rules(t, "a b: connections=1"), ErrOverrideName, `"a b"`},
		{"name with a slash", rules(t, "a/b: connections=1"), ErrOverrideName, `"a/b"`},
		{"international name", rules(t, "bücher.example: connections=1"), ErrOverrideName, "xn--"},
		{"empty label", rules(t, "a..b: connections=1"), ErrOverrideName, "a..b"},
		{"key of a suffix", rules(t, "suffix:mx.example.net: connections=1"), ErrOverrideName,
			`write "mx.example.net"`},
		{"key of a mail domain", rules(t, "domain:shop.example/suffix:mx.example.net: connections=1"),
			ErrOverrideName, `write "shop.example"`},
		{"source that is no address", rules(t, "source:eth0: pause=yes"), ErrOverrideName, "IP addresses"},
		{"receiver with a field of sources", rules(t, "a.example: rcpts_per_day=5"), ErrLimits,
			`"a.example": rcpts_per_day cannot be set there`},
		{"everybody with a field of sources", rules(t, ": rcpts_per_day=5"), ErrLimits, "rcpts_per_day"},
		{"source with a field of receivers", rules(t, "source:192.0.2.1: connections=5"), ErrLimits,
			`"source:192.0.2.1": connections cannot be set there`},
		{"too many", make([]Rule, overridesMax+1), ErrLimits, "at most 100000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table := tableOf(t, "kept.example: connections=7")
			err := table.Replace(LayerFile, tc.rules)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
			effort.Is(t, table.For("kept.example").Connections, 7, "after a refused Replace: connections, want the old 7")
		})
	}
}

// TestTableReplaceBesideMatch: readers see the old or the new state, never a mixture.
func TestTableReplaceBesideMatch(t *testing.T) {
	table := tableOf(t, "a.example: connections=1")
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
	before := table.Version()
	for range 100 {
		for _, line := range []string{"a.example: connections=1", "mx.a.example: connections=2"} {
			effort.OK(t, table.Replace(LayerFile, rules(t, line)))
		}
	}
	readers.Wait()
	effort.Is(t, table.Version()-before, 200, "the version counted changes of 200")
}

func TestDefaultAllowanceIsValid(t *testing.T) {
	effort.OK(t, DefaultLimits().Validate())
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
