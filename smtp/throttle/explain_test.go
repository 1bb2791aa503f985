package throttle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// saidOf is who said what of a field, the one that holds last: "layer name value where", and
// of an override its author, reason and end.
func saidOf(t *testing.T, table *Table, key string, f Field) (value string, said []string) {
	t.Helper()
	for _, e := range table.Explain(key) {
		if e.Field != f {
			continue
		}
		for _, s := range e.Said {
			where, _, _ := strings.Cut(s.Where, ":")
			line := strings.TrimSpace(strings.Join([]string{s.Layer.String(), s.Name, s.Text, where, s.ID, s.Author,
				s.Reason}, " "))
			if !s.Until.IsZero() {
				line += s.Until.Format(" 15:04")
			}
			said = append(said, strings.Join(strings.Fields(line), " "))
		}
		return e.Text, said
	}
	t.Fatalf("%s: nothing is said of %s", key, f)
	return "", nil
}

func TestExplain(t *testing.T) {
	table := tableOf(t, ": connections=5 rcpt_rate=4/s", "google.com: connections=3", "google.com: connections=4",
		"l.google.com: rcpts_per_connection=30", "shop.example: connections=9",
		"big.example: connections=600 rcpt_rate=300/s refused_per_hour=1000000", "source:192.0.2.1: rcpts_per_day=500",
		"source:: pause=drain",
	)
	hour := Rule{Name: "google.com", Set: set(t, "connections=1 pause=yes"), ID: "a", Author: "ann",
		Reason: "slow", Until: start.Add(time.Hour)}
	later := Rule{Name: "Google.com.", Set: set(t, "connections=2"), ID: "b", Author: "bob",
		Until: start.Add(2 * time.Hour)}
	source := Rule{Name: "source:192.0.2.1", Set: set(t, "pause=yes"), ID: "c", Author: "ann"}
	effort.OK(t, table.Replace(LayerOverride, []Rule{hour, later, source}))
	everybody := []string{"default 2 built in", "file 5 throttle.toml"}
	google := slices.Concat(everybody, []string{
		"known google.com 2 KumoMTA policy-extras/shaping.toml 2026-08, google",
		"file google.com 3 throttle.toml", "file google.com 4 throttle.toml",
		"override google.com 1 a ann slow 13:00", "override google.com 2 b bob 14:00"})
	for _, tc := range []struct {
		key   string
		field Field
		value string
		said  []string
	}{
		{"mx.example", FieldConnections, "5", everybody},
		{"mx.example", FieldTLS, "opportunistic", []string{"default opportunistic built in"}},
		{"google.com", FieldConnections, "2", google},
		{"suffix:l.google.com", FieldConnections, "2", google},
		{"suffix:l.google.com", FieldRcptsPerConnection, "30", []string{"default 50 built in",
			"known google.com 20 KumoMTA policy-extras/shaping.toml 2026-08, google",
			"file l.google.com 30 throttle.toml"}},
		{"google.com", FieldPause, "yes", []string{"default no built in", "override google.com yes a ann slow 13:00"}},
		{"google.com", FieldTLS, "required", []string{"default opportunistic built in",
			"known google.com required support.google.com/mail/answer/81126 2026-08"}},
		{"domain:shop.example/suffix:l.google.com", FieldConnections, "9",
			slices.Concat(google, []string{"file shop.example 9 throttle.toml"})},
		{"big.example", FieldConnections, "600", append(slices.Clone(everybody), "file big.example 600 throttle.toml")},
		{"source:192.0.2.1", FieldPause, "yes", []string{"default no built in", "override source:192.0.2.1 yes c ann"}},
		{"source:192.0.2.1", FieldRcptsPerDay, "500", []string{"default 0 built in",
			"file source:192.0.2.1 500 throttle.toml"}},
		{"source:", FieldPause, "drain", []string{"default no built in", "file source: drain throttle.toml"}},
		{"source:192.0.2.2", FieldPause, "no", []string{"default no built in"}},
	} {
		value, said := saidOf(t, table, tc.key, tc.field)
		if value != tc.value || !slices.Equal(said, tc.said) {
			t.Errorf("%s of %s: %s by\n%s\nwant %s by\n%s", tc.field, tc.key, value,
				strings.Join(said, "\n"), tc.value, strings.Join(tc.said, "\n"))
		}
	}
}

// TestExplainSaysWhatHolds: for every field, what Explain says is what For, or Source, gives,
// and nothing is said of fields that the key cannot have.
func TestExplainSaysWhatHolds(t *testing.T) {
	table := tableOf(t, ": connections=5 pause=drain", "example.net: rcpt_rate=4/s", "mx.example.net: tls=off",
		"shop.example: retry_waits=5m", "source:192.0.2.1: rcpts_per_day=500 warm_up_from=2026-11-21")
	for _, key := range []string{"foo.org", "example.net", "suffix:mx.example.net", "suffix:gone.example.net",
		"domain:shop.example/suffix:mx.example.net", "domain:gone.example/example.net", "source:192.0.2.1", "source:"} {
		holds := table.For(key)
		source, isSource := strings.CutPrefix(key, SourcePrefix)
		if isSource {
			holds = table.Source(source)
		}
		explained := table.Explain(key)
		for _, e := range explained {
			if e.Text != holds.Text(e.Field) || e.Said[len(e.Said)-1].Text != e.Text {
				t.Errorf("%s: %s is %s, explained as %s by %+v", key, e.Field, holds.Text(e.Field), e.Text, e.Said)
			}
			if !e.Field.isOf(key) {
				t.Errorf("%s has no %s", key, e.Field)
			}
		}
		if want := map[bool]int{true: 3, false: 16}[isSource]; len(explained) != want {
			t.Errorf("%s: %d fields, want %d", key, len(explained), want)
		}
	}
}

// TestPauseOfEverybodyIsOfReceivers: a pause of all receivers leaves the sources as they are.
func TestPauseOfEverybodyIsOfReceivers(t *testing.T) {
	table := tableOf(t, ": pause=yes", "kept.example: pause=no")
	for key, want := range map[string]Pause{"a.example": PauseYes, "kept.example": PauseNo,
		"domain:kept.example/a.example": PauseNo} {
		effort.Is(t, table.For(key).Pause, want, key)
	}
	effort.Is(t, table.Source("192.0.2.1").Pause, PauseNo, "a source is paused")
}

func TestNames(t *testing.T) {
	for _, tc := range []struct{ key, name string }{
		{"example.net", "example.net"}, {"suffix:mx.example.net", "mx.example.net"},
		{"domain:shop.example/suffix:mx.example.net", "shop.example"},
		{"source:192.0.2.1", "source:192.0.2.1"},
	} {
		effort.Is(t, NameOf(tc.key), tc.name, "NameOf", tc.key, "=")
		effort.Is(t, effort.Must(CleanName(NameOf(tc.key)))(t), tc.name, "is no name")
	}
	for written, want := range map[string]string{"": "", "source:": "source:",
		"source:2001:DB8:0::1": "source:2001:db8::1", "source:::ffff:192.0.2.1": "source:192.0.2.1", ".MX.Example.": "mx.example"} {
		if got, err := CleanName(written); err != nil || got != want {
			t.Errorf("CleanName(%q) = %q, %v, want %q", written, got, err, want)
		}
	}
}
