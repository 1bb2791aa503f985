package scheduler

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// TestTheDocumentTellsWhatAMoveLoses: docs/operators/cluster.md names these constants, from which its bound follows.
func TestTheDocumentTellsWhatAMoveLoses(t *testing.T) {
	text := effort.Must(os.ReadFile("../../../docs/operators/cluster.md"))(t)
	for _, said := range []string{
		fmt.Sprintf("%.0f s (`leaveWithin`)", leaveWithin.Seconds()),
		fmt.Sprintf("%d ms (`flushEvery`)", flushEvery.Milliseconds()),
		fmt.Sprintf("%.0f s (`silentFor`)", silentFor.Seconds()),
		fmt.Sprintf("%.1f s of its RCPTs", (silentFor + flushEvery).Seconds()),
		fmt.Sprintf("%d addresses of each of its sessions (`workMax`)", workMax),
	} {
		effort.Has(t, strings.Join(strings.Fields(string(text)), " "), said, "docs/operators/cluster.md does not say")
	}
}
