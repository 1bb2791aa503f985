package clerk

import (
	"testing"
	"time"

	"rollcall/actors/inspect"
)

// TestTheDefaultSourceIsNamed in all that is told of a receiver.
func TestTheDefaultSourceIsNamed(t *testing.T) {
	d := inspect.ReceiverDetail{Receiver: inspect.Receiver{Last: inspect.Reply{At: time.Unix(1, 0)},
		Sources: []inspect.ReceiverSource{{}}}, SessionList: []inspect.Session{{}}, Firings: []inspect.Reply{{}}}
	nameAllSources(&d)
	for where, got := range map[string]string{"last": d.Last.Source, "sources": d.Sources[0].Source,
		"sessions": d.SessionList[0].Source, "firings": d.Firings[0].Source} {
		if got != "default" {
			t.Errorf("%s: %q", where, got)
		}
	}
}
