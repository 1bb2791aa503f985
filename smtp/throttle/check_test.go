package throttle

import (
	"strings"
	"testing"

	"rollcall/config/effort"
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rules []string
		want  []string // "rule field: beginning of the text"; empty: nothing is doubtful
	}{
		{"nothing", nil, nil},
		{"ordinary rules", []string{": connections=9", "example.net: connections=50 rcpt_rate=100/s",
			"source:192.0.2.1: rcpts_per_day=500 warm_up_from=2026-11-21", "a.test: pause=yes"}, nil},
		{"more than is known", []string{"google.com: connections=10 rcpt_rate=30/min refused_share=30"},
			[]string{"0 connections: 10 is more than 2, the known limit of google.com (KumoMTA"}},
		{"a narrower suffix of a known one", []string{"aspmx.l.google.com: rcpt_rate=2/s"},
			[]string{"0 rcpt_rate: 2/s is more than 60/min"}},
		{"a mail domain of a known one", []string{"gmail.com: rcpts_per_connection=50"},
			[]string{"0 rcpts_per_connection: 50 is more than 20, the known limit of google.com"}},
		{"less than is known", []string{"google.com: connections=1 rcpt_rate=1/s rcpts_per_connection=20"}, nil},
		{"the default above known ones", []string{": connections=50"}, nil},
		{"of what nobody has published", []string{"yahoodns.net: refused_per_hour=500"}, nil},
		{"a wide rule that known ones beat", []string{"protection.outlook.com: connections=1 pause=yes"},
			[]string{"0 connections: does not apply to hosts under mail.protection.outlook.com, where the known 2",
				"0 connections: does not apply to hosts under olc.protection.outlook.com, where the known 2"}},
		{"a wide rule beside one for the known", []string{"mail.protection.outlook.com: connections=1",
			"olc.protection.outlook.com: connections=1", "protection.outlook.com: connections=1"}, nil},
		{"said again", []string{"a.test: connections=1 rcpt_rate=1/s", "a.test: connections=1", ": pause=yes",
			": pause=no"}, []string{"0 connections: never holds: throttle.toml:2 says connections = 1",
			"2 pause: never holds: throttle.toml:4 says pause = no"}},
		{"a top-level domain", []string{"com: connections=1"}, []string{"0: com is no receiver's name"}},
		{"a public suffix", []string{"co.uk: connections=1"}, []string{"0: co.uk is no receiver's name"}},
		{"one's own top", []string{"test: connections=1"}, []string{"0: test is no receiver's name"}},
		{"a mistyped top", []string{"example.con: connections=1"}, []string{`0: can't match: "con" is no top`}},
		{"an IP address", []string{"192.0.2.1: connections=1"}, []string{"0: can't match: 192.0.2.1 is an IP"}},
		{"no host name", []string{"-a.example.net: connections=1"}, []string{`0: can't match: no host name has`}},
		{"a long label", []string{strings.Repeat("x", 64) + ".net: connections=1"}, []string{"0: can't match"}},
		{"a depth for nothing", []string{"a.test: pipelining_depth=8 pipelining=false"},
			[]string{"0 pipelining_depth: does nothing while pipelining is false"}},
		{"a depth for something", []string{"a.test: pipelining_depth=8"}, nil},
		{"a transaction longer than its session", []string{"a.test: rcpts_per_transaction=60"},
			[]string{"0 rcpts_per_transaction: 60 in a transaction are never reached: rcpts_per_connection is 50"}},
		{"a warm-up of nothing", []string{"source:192.0.2.1: warm_up_from=2026-11-21"},
			[]string{"0 warm_up_from: does nothing without rcpts_per_day"}},
		{"what Replace refuses", []string{"a/b: connections=1", "a.test: rcpts_per_day=1"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Check(rules(t, tc.rules...))
			for i, d := range got {
				text := string(rune('0' + d.Rule))
				if d.Field != 0 {
					text += " " + d.Field.String()
				}
				text += ": " + d.Text
				if i >= len(tc.want) || !strings.HasPrefix(text, tc.want[i]) {
					t.Errorf("%d: %s", i, text)
				}
			}
			effort.Is(t, len(got), len(tc.want), "doubts", tc.want)
		})
	}
}

func TestDiff(t *testing.T) {
	was := rules(t, ": connections=3", "a.test: connections=4 rcpt_rate=1/s", "b.test: pause=yes",
		"c.test: pause=yes", "c.test: pause=drain", "d.test: retry_waits=none")
	is := rules(t, ": connections=3", "a.test: connections=5 tls=off", "c.test: pause=drain",
		"e.test: retry_waits=none", "source:192.0.2.1: pause=yes")
	want := []Change{
		{"a.test", FieldConnections, "4", "5", "throttle.toml:2"},
		{"a.test", FieldRcptRate, "1/s", "", "throttle.toml:2"},
		{"a.test", FieldTLS, "", "off", "throttle.toml:2"},
		{"b.test", FieldPause, "yes", "", "throttle.toml:3"},
		{"d.test", FieldWaits, "none", "", "throttle.toml:6"},
		{"e.test", FieldWaits, "", "none", "throttle.toml:4"},
		{"source:192.0.2.1", FieldPause, "", "yes", "throttle.toml:5"},
	}
	got := Diff(was, is)
	for i, c := range got {
		if i >= len(want) || c != want[i] {
			t.Errorf("%d: %+v", i, c)
		}
	}
	effort.Is(t, len(got), len(want), "changes")
	if again := Diff(is, is); len(again) > 0 {
		t.Errorf("of nothing: %+v", again)
	}
}
