package inspect

import (
	"testing"
	"time"
)

// TestTheDefaultSourceIsNamed in all that is told of a receiver.
func TestTheDefaultSourceIsNamed(t *testing.T) {
	d := ReceiverDetail{Receiver: Receiver{Last: Reply{At: time.Unix(1, 0)},
		Sources: []ReceiverSource{{}}}, SessionList: []Session{{}}, Firings: []Reply{{}}}
	nameAllSources(&d)
	for where, got := range map[string]string{"last": d.Last.Source, "sources": d.Sources[0].Source,
		"sessions": d.SessionList[0].Source, "firings": d.Firings[0].Source} {
		if got != "default" {
			t.Errorf("%s: %q", where, got)
		}
	}
}
