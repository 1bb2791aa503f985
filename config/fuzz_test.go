package config

import (
	"testing"

	"rollcall/smtp/throttle"
)

// FuzzThrottleText: whatever stands in a throttle file, every fault has its place, and what
// has none is taken by a table and looks the same when it is written and read again.
func FuzzThrottleText(f *testing.F) {
	f.Add([]byte(everyField))
	f.Add([]byte("[default]\nconections = 3\nrcpt_rate = \"\\u0066ast\"\n[[receivers]]\n[default"))
	f.Add([]byte("receivers = { \"a b\" = { tls = '''on''', retry_waits = [\"\", 7, [\"5m\"]] } }"))
	f.Add([]byte("[sources.\"\"]\nrcpts_per_day = 0x_10\nwarm_up_from = 2026-11-21\n\"\\t\".x = 1"))
	f.Add([]byte("[default]\nidle_time = \"\"\"\n5s\"\"\"\nsession_age = \"\"\n\"tls\" = 'off'"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, findings := CheckThrottleText("throttle.toml", text, Throttle{})
		faults := 0
		for _, found := range findings {
			if found.Line < 1 || found.Column < 1 || found.File != "throttle.toml" || found.Text == "" {
				t.Errorf("%q: a finding without a place: %+v", text, found)
			}
			if found.Severity == SeverityError {
				faults++
			}
		}
		if faults > 0 {
			if rules != nil {
				t.Errorf("%q: rules of a file with faults", text)
			}
			return
		}
		if _, err := throttle.NewTable(rules); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
