package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// TestWhoWorksOnACopy: one member, as three rolls in a row tell of it. Only the first case is
// a copy; the others may happen on the ledger of this node.
func TestWhoWorksOnACopy(t *testing.T) {
	const never = -1                              // it has no row
	type viewInputs struct{ now, beat, seen int } // seconds by the ledger's clock
	session := uuid.UUID{7}
	for name, c := range map[string]struct {
		sights []viewInputs
		want   bool
	}{
		"it has no row and goes on to beat":   {[]viewInputs{{10, 9, never}, {15, 14, never}, {20, 19, never}}, true},
		"its row is as old as the copy":       {[]viewInputs{{10, 9, 1}, {15, 14, 1}, {20, 19, 1}}, true},
		"it beats here":                       {[]viewInputs{{10, 9, 9}, {15, 14, 14}, {20, 19, 19}}, false},
		"clocks of gateways differ":           {[]viewInputs{{10, 9, 8}, {15, 14, 13}, {20, 19, 18}}, false},
		"it has only begun":                   {[]viewInputs{{10, 0, never}, {15, 0, never}, {20, 0, never}}, false},
		"it reaches its ledger no more":       {[]viewInputs{{10, 9, never}, {15, 9, never}, {20, 9, never}}, false},
		"it was forgotten and beats again":    {[]viewInputs{{30, 9, never}, {35, 9, never}, {40, 39, 39}}, false},
		"a failover lost its row for once":    {[]viewInputs{{10, 9, never}, {15, 14, 14}, {20, 19, never}}, false},
		"the clock was set back":              {[]viewInputs{{10, 19, 9}, {15, 24, 14}, {20, 29, 19}}, false},
		"not for long enough":                 {[]viewInputs{{10, 9, never}, {12, 11, never}, {19, 18, never}}, false},
		"it was paused, and then this node":   {[]viewInputs{{10, 9, never}, {500, 9, never}, {900, 9, never}}, false},
		"it does not go on to beat meanwhile": {[]viewInputs{{10, 10, never}, {15, 10, never}, {20, 10, never}}, false},
	} {
		a := apart{lost: DefaultTimes().Lost}
		found := false
		for _, s := range c.sights {
			roll := ledger.NodeSnapshot{Now: time.Unix(int64(s.now), 0)}
			if s.seen != never {
				roll.Nodes = []ledger.NodeRow{{Heartbeat: ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: session}},
					Seen: time.Unix(int64(s.seen), 0)}}
			}
			found = slices.Contains(a.compareViews(roll, map[uuid.UUID]int64{session: int64(s.beat) * 1000}), session) || found
		}
		if found != c.want {
			t.Errorf("%s: apart is %v, want %v", name, found, c.want)
		}
	}
}
