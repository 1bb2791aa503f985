package registry

import (
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
)

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
