package admin

import "testing"

// TestTheDefaultSourceHasAName in the log.
func TestTheDefaultSourceHasAName(t *testing.T) {
	for name, want := range map[string]string{"source:": "source:default", "source:192.0.2.7": "source:192.0.2.7",
		"example.net": "example.net"} {
		if got := shownName(name); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
}
