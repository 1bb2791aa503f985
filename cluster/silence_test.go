package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster/share"
	"rollcall/ledger"
)

// hashed gives silent receivers as a row has them.
func hashed(keys ...string) (out []uint64) {
	for _, key := range keys {
		out = append(out, share.Hash(key))
	}
	slices.Sort(out)
	return out
}

// TestAHeartbeatNamesWhatIsSilent: each once, in order, with the turn that it was complied with.
func TestAHeartbeatNamesWhatIsSilent(t *testing.T) {
	l := &table{otherRead: 1}
	n := newBeating(l, obey)
	var keys []string
	n.options.Silent = func() []string { return keys }
	sees(n, 1)
	beat := func() ledger.Heartbeat {
		t.Helper()
		if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l.beats[len(l.beats)-1]
	}
	if b := beat(); len(b.Silent) != 0 {
		t.Errorf("silent are %v, want none", b.Silent)
	}
	keys = []string{"b.example", "a.example", "c.example", "a.example"}
	b := beat()
	if want := hashed("a.example", "b.example", "c.example"); !slices.Equal(b.Silent, want) || b.Read != 1 || b.Check() != nil {
		t.Errorf("silent are %v at turn %d, want %v; %v", b.Silent, b.Read, want, b.Check())
	}
	for i := range ledger.SilentMax + 1 {
		keys = append(keys, fmt.Sprintf("%d.example", i))
	}
	l.turn++ // of another process
	beat()
	if b = beat(); len(b.Silent) != ledger.SilentMax || b.Read != 1 || b.Check() != nil {
		t.Errorf("%d of too many are silent at turn %d, which nobody may count on; %v", len(b.Silent), b.Read, b.Check())
	}
	keys = nil
	if b = beat(); len(b.Silent) != 0 || b.Read != 2 {
		t.Errorf("%d are silent at turn %d, want none at 2", len(b.Silent), b.Read)
	}
}

// TestANodeRestsWhenItsRowNamesAllThatIsSilent: who takes its word uses everything else.
func TestANodeRestsWhenItsRowNamesAllThatIsSilent(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then []string // in two heartbeats
		lost        bool     // the answer to the second one
		now         []string // behind the fence
		rests       bool
	}{
		{"nothing is silent", nil, nil, false, nil, true},
		{"what was named", nil, []string{"a", "b"}, false, []string{"b"}, true},
		{"what was not named", nil, []string{"a"}, false, []string{"a", "b"}, false},
		{"what was named once", []string{"a"}, nil, false, []string{"a"}, false},
		{"what may not have been written", nil, []string{"a"}, true, []string{"a"}, false},
		{"what may have been written over", []string{"a"}, nil, true, []string{"a"}, false},
		{"what was named in any case", []string{"a", "b"}, []string{"a", "c"}, true, []string{"a"}, true},
	} {
		l := &table{otherRead: 1}
		n := newBeating(l, obey)
		keys := c.first
		n.options.Silent = func() []string { return keys }
		sees(n, 1)
		if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		keys, l.lose = c.then, c.lost
		if err := n.heartbeats.writeHeartbeat(t.Context()); (err != nil) != c.lost {
			t.Fatal(err)
		}
		keys = c.now
		n.heartbeats.fence.beaten(time.Now().Add(-n.times.Fence))
		if !n.heartbeats.rest(t.Context()) || n.rested.Load() != c.rests {
			t.Errorf("%s: rests is %v, want %v", c.name, n.rested.Load(), c.rests)
		}
	}
}

// farewells is a ledger that notes who leaves.
type farewells struct {
	table
	left int
}

// Leave implements ledger.Nodes.
func (l *farewells) Leave(context.Context, uuid.UUID) error {
	l.left++
	return nil
}

// TestWhoLeavesNamesWhatIsSilent: after a while in which receivers may hear that it is over.
func TestWhoLeavesNamesWhatIsSilent(t *testing.T) {
	l := &farewells{table: table{otherRead: 1}}
	n := newBeating(&l.table, obey)
	n.peers.Book = l
	asked, heard := 0, 3
	n.options.Silent = func() []string {
		if asked++; asked > heard {
			return nil
		}
		return []string{"a.example"}
	}
	sees(n, 1)
	if err := n.heartbeats.writeHeartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.writeLeave(t.Context()); err != nil || l.left != 1 || len(l.beats) != 1 {
		t.Errorf("receivers have heard it: %v, left %d times, %d heartbeats", err, l.left, len(l.beats))
	}
	heard = 1 << 30
	if err := n.writeLeave(t.Context()); err != nil || l.left != 2 || len(l.beats) != 2 ||
		!slices.Equal(l.beats[1].Silent, hashed("a.example")) {
		t.Errorf("a receiver has not: %v, left %d times, %d heartbeats", err, l.left, len(l.beats))
	}
}
