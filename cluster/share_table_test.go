package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rowOf makes a row that is in, has read everything and votes for a view.
func rowOf(n int, view []ledger.Incarnation) ledger.NodeRow {
	return ledger.NodeRow{Heartbeat: ledger.Heartbeat{Incarnation: processOf(n), View: view, Read: 10}, Seen: midnight,
		Generation: 1}
}

// keyOf finds a key that a process owns in each of some views.
func keyOf(t *testing.T, n int, views ...[]ledger.Incarnation) string {
	t.Helper()
	for i := range 10_000 {
		key := uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(i), byte(i >> 8)}).String()
		ok := true
		for _, v := range views {
			ok = ok && Owner(v, key) == processOf(n).Session
		}
		if ok {
			return key
		}
	}
	t.Fatal("no such key")
	return ""
}

func TestShares(t *testing.T) {
	all, pair, single := viewOf(0, 1, 2), viewOf(0, 1), viewOf(2)
	mine := keyOf(t, 0, all, pair) // of 0, whether 2 is there or not
	moved := keyOf(t, 2, all)      // of 2 while it is there,
	for Owner(pair, moved) != processOf(0).Session {
		moved += "x"
		if Owner(all, moved) != processOf(2).Session {
			moved += "y"
		}
	}
	for Owner(all, moved) != processOf(2).Session || Owner(pair, moved) != processOf(0).Session {
		moved += "z"
	}
	for _, c := range []struct {
		name   string
		key    string
		change func(rows []ledger.NodeRow)
		k, n   int
	}{
		{"all agree", mine, func([]ledger.NodeRow) {}, 3, 3},
		{"another's key", moved, func([]ledger.NodeRow) {}, 0, 3},
		{"a partition, for the key that stays", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View, r[2].View = pair, pair, single
		}, 2, 3},
		{"a partition, for the key of the other side", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View, r[2].View = pair, pair, single
		}, 2, 3},
		{"votes that nobody has read count for nobody", moved, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = pair, all, 11
			r[1].View, r[1].Before, r[1].Generation = pair, all, 11
		}, 0, 3},
		{"a vote that means the same before and after counts", mine, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = pair, all, 11
			r[1].View, r[1].Before, r[1].Generation = pair, all, 11
		}, 3, 3},
		{"one slow reader keeps votes from counting", moved, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation, r[0].Read = pair, all, 5, 6
			r[1].View, r[1].Before, r[1].Generation, r[1].Read = pair, all, 6, 6
			r[2].Read = 4
		}, 0, 3},
		{"a lost process that is not known to be dead keeps its receivers at rest", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 0, 2},
		{"who leaves itself out has nothing, although the others vote for it", mine, func(r []ledger.NodeRow) {
			r[0].View = nil
		}, 0, 3},
		{"nor while its vote may still mean that", mine, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = all, []ledger.Incarnation{}, 11
		}, 0, 3},
		{"but no others", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 2, 2},
		{"one that was lost in the middle of a change, of what it had before", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before = all, single
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 0, 2},
		{"what another process calls silent is nobody else's, though all vote for it", mine, func(r []ledger.NodeRow) {
			r[2].Silent = []uint64{Hash(mine)}
		}, 0, 3},
		{"other keys are", mine, func(r []ledger.NodeRow) {
			r[2].Silent = []uint64{Hash(mine) - 1, Hash(mine) + 1}
		}, 3, 3},
		{"what it calls silent itself has its place in its own share", mine, func(r []ledger.NodeRow) {
			r[0].Silent = []uint64{Hash(mine)}
		}, 3, 3},
		{"a dead process leaves what is silent", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Dead, r[2].Silent = ledger.NodeLost, 9, true, []uint64{Hash(mine)}
		}, 0, 2},
		{"so does one who left", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Silent = ledger.NodeLeft, 9, []uint64{Hash(mine)}
		}, 0, 2},
		{"until receivers have forgotten it", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Silent = ledger.NodeLeft, 9, []uint64{Hash(mine)}
			r[2].Seen = midnight.Add(-LingerMax)
		}, 2, 2},
		{"until it is known to be dead", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Dead = ledger.NodeLost, 9, true
		}, 2, 2},
		{"or receivers have ended its sessions", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Seen = ledger.NodeLost, 9, midnight.Add(-LingerMax)
		}, 2, 2},
		{"the instant before they rest", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Seen = ledger.NodeLost, 9, midnight.Add(time.Millisecond-LingerMax)
		}, 0, 2},
		{"an end that somebody has not read counts the process in", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLeft, 11
		}, 2, 3},
		{"one who left", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLeft, 9
		}, 2, 2},
		{"who begins counts for nobody at first", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before, r[2].Generation = single, nil, 11
		}, 2, 3},
		{"unless it can only mean this process", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before, r[2].Generation = all, nil, 11
		}, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := []ledger.NodeRow{rowOf(0, all), rowOf(1, all), rowOf(2, all)}
			c.change(rows)
			table := ComputeShares(ledger.NodeSnapshot{Now: midnight, Generation: 11, Nodes: rows},
				processOf(0).Session, LingerMax)
			k, n := table.Of(c.key)
			effort.FatalIf(t, k != c.k || n != c.n, "may use %d of %d, want %d of %d", k, n, c.k, c.n)
		})
	}
}

func TestSame(t *testing.T) {
	all, pair := viewOf(0, 1, 2), viewOf(0, 1)
	for _, c := range []struct {
		name   string
		change func(r *ledger.NodeSnapshot)
		same   bool
	}{
		{"seen later, and a turn that was read", func(r *ledger.NodeSnapshot) {
			r.Now, r.Nodes[1].Seen, r.Nodes[1].Leases = r.Now.Add(time.Second), r.Now, 7
		}, true},
		{"another view", func(r *ledger.NodeSnapshot) { r.Nodes[1].View = pair }, false},
		{"a vote that is not settled", func(r *ledger.NodeSnapshot) {
			r.Nodes[1].Generation, r.Nodes[1].Before = 11,
				pair
		}, false},
		{"one who left", func(r *ledger.NodeSnapshot) { r.Nodes[1].Status = ledger.NodeLeft }, false},
		{"one who is lost", func(r *ledger.NodeSnapshot) { r.Nodes[1].Status = ledger.NodeLost }, false},
		{"one more", func(r *ledger.NodeSnapshot) { r.Nodes = append(r.Nodes, rowOf(3, all)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh := func() ledger.NodeSnapshot {
				return ledger.NodeSnapshot{Now: midnight, Generation: 11, Nodes: []ledger.NodeRow{rowOf(0, all), rowOf(1, all),
					rowOf(2, all)}}
			}
			before, after := fresh(), fresh()
			c.change(&after)
			self := processOf(0).Session
			effort.MustBe(t, ComputeShares(before, self, LingerMax).Same(ComputeShares(after, self, LingerMax)), c.same, "same")
		})
	}
	some := ComputeShares(ledger.NodeSnapshot{Nodes: []ledger.NodeRow{rowOf(0, all)}}, processOf(0).Session, LingerMax)
	if none := (*ShareTable)(nil); !none.Same(nil) || none.Same(some) || some.Same(none) {
		t.Fatal("no table is the same as none, and as no other")
	}
}

func TestWhoIsNotInMayUseNothing(t *testing.T) {
	roll := ledger.NodeSnapshot{Now: midnight, Generation: 1, Nodes: []ledger.NodeRow{rowOf(1, viewOf(1))}}
	table := ComputeShares(roll, processOf(0).Session, LingerMax)
	k, _ := table.Of("example.net")
	effort.FatalIf(t, k != 0 || table.Settled() || table.Voters() != 0, "a process without a row may use %d parts", k)
	roll.Nodes[0].Status = ledger.NodeLost
	k, _ = ComputeShares(roll, processOf(1).Session, LingerMax).Of("example.net")
	effort.FatalIf(t, k != 0, "a process that was counted out may use %d parts", k)
}

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
