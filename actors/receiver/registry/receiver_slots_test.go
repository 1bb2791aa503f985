package registry

import (
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
)

// guest is a receiver of the test: it notes what it is told.
type guest struct {
	slot    *ReceiverSlot
	granted bool
	yielded int
}

// come lets a guest ask for a slot.
func come(s *ReceiverSlots, workspace byte) *guest {
	g := &guest{}
	g.slot, g.granted = s.Take(uuid.UUID{workspace}, uuid.Nil, func(msg any) {
		switch msg.(type) {
		case SlotGranted:
			g.granted = true
		case Yield:
			g.yielded++
		}
	})
	return g
}

func TestWhoHasNothingToDoMakesRoomAtOnce(t *testing.T) {
	s := NewReceiverSlots(8, nil)
	var all []*guest
	for range 4 { // what one workspace may have
		all = append(all, come(s, 1))
	}
	waiting := come(s, 1)
	effort.FatalIf(t, waiting.granted, "one workspace has more than half")
	all[2].slot.SetIdle(true)
	effort.MustBe(t, all[2].yielded, 1, "nobody asked the one without work to end")
	all[2].slot.Leave()
	effort.ErrorIf(t, !waiting.granted || int(s.quota.Used()) != 4 || s.Waiting() != 0,
		"seated %v, %d used, %d wait", waiting.granted, int(s.quota.Used()), s.Waiting())
}

func TestThoseGoFirstWhoRestedLongest(t *testing.T) {
	s := NewReceiverSlots(8, nil)
	var all []*guest
	for range 4 {
		all = append(all, come(s, 1))
	}
	all[3].slot.SetIdle(true)
	all[1].slot.SetIdle(true)
	all[0].slot.SetIdle(true)
	all[3].slot.SetIdle(false)
	come(s, 1)
	effort.ErrorIf(t, all[1].yielded != 1 || all[0].yielded+all[3].yielded != 0,
		"asked to end: %d %d %d", all[0].yielded, all[1].yielded, all[3].yielded)
	all[1].slot.Stay() // it got work just then: the next one is asked
	effort.Is(t, all[0].yielded, 1, "nobody else was asked")
}

// TestNobodyIsLeftWaiting draws guests of three workspaces that come, rest, work and go in any order,
// and answer when they are asked to end: there are never more than slots, the newcomer's workspace
// always finds one, and in the end all had theirs.
func TestNobodyIsLeftWaiting(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		size := 4 + r.IntN(20)
		s := NewReceiverSlots(size, nil)
		var all []*guest
		answer := func() {
			for i := 0; i < len(all); i++ {
				if g := all[i]; g.yielded > 0 {
					g.yielded = 0
					if r.IntN(4) == 0 {
						g.slot.Stay()
						continue
					}
					g.slot.Leave()
					all = append(all[:i], all[i+1:]...)
					i = -1 // others may have been asked meanwhile
				}
			}
		}
		for range 400 {
			switch n := r.IntN(4); {
			case n < 2 || len(all) == 0:
				all = append(all, come(s, byte(r.IntN(2))))
			case n == 2:
				if g := all[r.IntN(len(all))]; g.granted {
					g.slot.SetIdle(true)
				}
			default:
				if g := all[r.IntN(len(all))]; g.granted && g.yielded == 0 {
					g.slot.SetIdle(false)
				}
			}
			answer()
			effort.FatalIf(t, int(s.quota.Used()) > size, "seed %d: %d of %d", seed, int(s.quota.Used()), size)
		}
		if g := come(s, 9); !g.granted {
			t.Fatalf("seed %d: who comes new waits with %d of %d used", seed, int(s.quota.Used()), size)
		} else {
			g.slot.Leave()
		}
		for rounds := 0; s.Waiting() > 0; rounds++ {
			if rounds > 10_000 {
				t.Fatalf("seed %d: %d wait for ever, %d of %d used", seed, s.Waiting(), int(s.quota.Used()), size)
			}
			for _, g := range all {
				if g.granted {
					g.slot.SetIdle(true)
				}
			}
			answer()
		}
		for _, g := range all {
			effort.FatalIf(t, !g.granted, "seed %d: one never had its turn", seed)
			g.slot.Leave()
			g.slot.Leave()
		}
		effort.FatalIf(t, int(s.quota.Used()) != 0 || s.asked != 0 || s.idle.Len() != 0,
			"seed %d: %d used, %d asked, %d rest in the end", seed, int(s.quota.Used()), s.asked, s.idle.Len())
	}
}

// TestWorkspacesShareTheSessionsOfANode draws workspaces of different weights that open and close
// sessions as they can: there are never more than slots, and one that has none gets one whenever those
// of the others are as many as they may be.
func TestWorkspacesShareTheSessionsOfANode(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		size, spaces := 20+r.IntN(200), 1+r.IntN(5)
		s := NewSlots(size)
		weight := func(w int) int { return 1 + w%2 }
		has := make([]int, spaces)
		for range 2000 {
			w := r.IntN(spaces)
			switch {
			case r.IntN(3) > 0:
				if s.Take(uuid.UUID{byte(w)}, weight(w)) {
					has[w]++
				}
			case has[w] > 0:
				s.Give(uuid.UUID{byte(w)})
				has[w]--
			}
			effort.FatalIf(t, s.Free() < 0, "seed %d: %d slots are free", seed, s.Free())
		}
		for more := true; more; { // all want all
			more = false
			for w := range spaces {
				if s.Take(uuid.UUID{byte(w)}, weight(w)) {
					has[w]++
					more = true
				}
			}
		}
		sum, weights := 0, 0
		for w := range spaces {
			sum += has[w]
			weights += weight(w)
		}
		effort.FatalIf(t, sum != size-s.Free(), "seed %d: %d of %d are taken and %d free", seed, sum, size, s.Free())
		effort.ErrorIf(t, !s.Take(uuid.UUID{99}, 1),
			"seed %d: who comes new gets none of %d beside %v", seed, size, has)
		if least := size / (weights + 1); spaces == 1 && has[0] < least {
			t.Errorf("seed %d: one alone has %d of %d", seed, has[0], size)
		}
	}
}
