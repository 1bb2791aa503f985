package registry

import (
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
)

// guest is a receiver of the test: it notes what it is told.
type guest struct {
	seat    *Seat
	seated  bool
	yielded int
}

// come lets a guest ask for a seat.
func come(s *Seats, workspace byte) *guest {
	g := &guest{}
	g.seat, g.seated = s.Take(uuid.UUID{workspace}, uuid.Nil, func(msg any) {
		switch msg.(type) {
		case Seated:
			g.seated = true
		case Yield:
			g.yielded++
		}
	})
	return g
}

func TestWhoHasNothingToDoMakesRoomAtOnce(t *testing.T) {
	s := NewSeats(8, nil)
	var all []*guest
	for range 4 { // what one workspace may have
		all = append(all, come(s, 1))
	}
	waiting := come(s, 1)
	if waiting.seated {
		t.Fatal("one workspace has more than half")
	}
	all[2].seat.Rest()
	if all[2].yielded != 1 {
		t.Fatal("nobody asked the one without work to end")
	}
	all[2].seat.Leave()
	if !waiting.seated || s.Used() != 4 || s.Waiting() != 0 {
		t.Errorf("seated %v, %d used, %d wait", waiting.seated, s.Used(), s.Waiting())
	}
}

func TestThoseGoFirstWhoRestedLongest(t *testing.T) {
	s := NewSeats(8, nil)
	var all []*guest
	for range 4 {
		all = append(all, come(s, 1))
	}
	all[3].seat.Rest()
	all[1].seat.Rest()
	all[0].seat.Rest()
	all[3].seat.Work()
	come(s, 1)
	if all[1].yielded != 1 || all[0].yielded+all[3].yielded != 0 {
		t.Errorf("asked to end: %d %d %d", all[0].yielded, all[1].yielded, all[3].yielded)
	}
	all[1].seat.Stay() // it got work just then: the next one is asked
	if all[0].yielded != 1 {
		t.Error("nobody else was asked")
	}
}

// TestNobodyIsLeftWaiting draws guests of three workspaces that come, rest, work and go in any order,
// and answer when they are asked to end: there are never more than seats, the newcomer's workspace
// always finds one, and in the end all had theirs.
func TestNobodyIsLeftWaiting(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		size := 4 + r.IntN(20)
		s := NewSeats(size, nil)
		var all []*guest
		answer := func() {
			for i := 0; i < len(all); i++ {
				if g := all[i]; g.yielded > 0 {
					g.yielded = 0
					if r.IntN(4) == 0 {
						g.seat.Stay()
						continue
					}
					g.seat.Leave()
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
				if g := all[r.IntN(len(all))]; g.seated {
					g.seat.Rest()
				}
			default:
				if g := all[r.IntN(len(all))]; g.seated && g.yielded == 0 {
					g.seat.Work()
				}
			}
			answer()
			if s.Used() > size {
				t.Fatalf("seed %d: %d of %d", seed, s.Used(), size)
			}
		}
		if g := come(s, 9); !g.seated {
			t.Fatalf("seed %d: who comes new waits with %d of %d used", seed, s.Used(), size)
		} else {
			g.seat.Leave()
		}
		for rounds := 0; s.Waiting() > 0; rounds++ {
			if rounds > 10_000 {
				t.Fatalf("seed %d: %d wait for ever, %d of %d used", seed, s.Waiting(), s.Used(), size)
			}
			for _, g := range all {
				if g.seated {
					g.seat.Rest()
				}
			}
			answer()
		}
		for _, g := range all {
			if !g.seated {
				t.Fatalf("seed %d: one never had its turn", seed)
			}
			g.seat.Leave()
			g.seat.Leave()
		}
		if s.Used() != 0 || s.asked != 0 || s.idle.Len() != 0 {
			t.Fatalf("seed %d: %d used, %d asked, %d rest in the end", seed, s.Used(), s.asked, s.idle.Len())
		}
	}
}
