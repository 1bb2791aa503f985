package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// processOf makes a process; small numbers differ in few bits, as identities of nodes should not have to.
func processOf(n int) ledger.Incarnation {
	var p ledger.Incarnation
	binary.BigEndian.PutUint32(p.Session[12:], uint32(n+1))
	binary.BigEndian.PutUint32(p.Node[12:], uint32(n+1000))
	return p
}

func viewOf(numbers ...int) []ledger.Incarnation {
	var view []ledger.Incarnation
	for _, n := range slices.Sorted(slices.Values(numbers)) {
		view = append(view, processOf(n))
	}
	return view
}

func TestOwnersSpreadEvenlyAndMoveLittle(t *testing.T) {
	const keys = 30000
	three, four := viewOf(0, 1, 2), viewOf(0, 1, 2, 3)
	count, moved := map[uuid.UUID]int{}, 0
	for i := range keys {
		key := fmt.Sprintf("domain-%d.example", i)
		before, after := Owner(three, key), Owner(four, key)
		count[before]++
		if before != after {
			moved++
			effort.MustBe(t, after, processOf(3).Session, key, "moved from", before)
		}
	}
	for session, n := range count {
		effort.ErrorIf(t, n < keys/3*95/100 || n > keys/3*105/100,
			"%s owns %d of %d keys, want a third", session, n, keys)
	}
	effort.ErrorIf(t, moved < keys/4*95/100 || moved > keys/4*105/100,
		"%d of %d keys moved to a fourth member, want a quarter", moved, keys)
}

func TestALaterLifeOfANodeOwnsWhatTheEarlierHad(t *testing.T) {
	before := viewOf(0, 1, 2)
	after := slices.Clone(before)
	after[1].Session = uuid.UUID{15: 200}
	for i := range 1000 {
		key := fmt.Sprintf("domain-%d.example", i)
		old, now := Owner(before, key), Owner(after, key)
		if old == before[1].Session {
			old = after[1].Session
		}
		effort.MustBe(t, old, now, key, "moved when a node began anew")
	}
}

func TestNobodyOwnsWhatNobodySees(t *testing.T) {
	effort.MustBe(t, Owner(nil, "example.net"), uuid.Nil, "owner of an empty view")
}
