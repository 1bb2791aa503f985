package admin

import (
	"fmt"
	"testing"

	"rollcall/config/effort"
)

// TestTheDefaultSourceHasAName in the log.
func TestTheDefaultSourceHasAName(t *testing.T) {
	for name, want := range map[string]string{"source:": "source:default", "source:192.0.2.7": "source:192.0.2.7",
		"example.net": "example.net"} {
		effort.Is(t, shownName(name), want, fmt.Sprintf("%q is shown as", name))
	}
}
