package throttle

import (
	"time"
)

// greyMarginLeast is the least by which a wait is longer than one that sufficed;
// otherwise it is a twentieth. Guess: clocks differ, and receivers count whole seconds.
const greyMarginLeast = time.Second

// Greylist is how long a receiver that puts addresses off lets one of our sources
// wait, as far as it has shown that. Receivers count from the first time that they
// saw an address (RFC 6647 §5.1), so waits are counted from there.
type Greylist struct {
	Enough time.Duration // the shortest wait that sufficed; 0: not known
	Short  time.Duration // the longest that did not
}

// Passed learns that an address was answered after a wait.
func (g *Greylist) Passed(waited time.Duration) {
	if g.Enough == 0 || waited < g.Enough {
		g.Enough = waited
	}
}

// Again learns that an address was put off again after a wait. When less has
// sufficed before, the receiver has changed its mind.
func (g *Greylist) Again(waited time.Duration) {
	g.Short = max(g.Short, waited)
	if g.Enough <= g.Short {
		g.Enough = 0
	}
}

// Wait is what to tell an address that was put off just now; 0: not known.
func (g *Greylist) Wait() time.Duration {
	if g.Enough == 0 {
		return 0
	}
	return g.Enough + max(g.Enough/20, greyMarginLeast)
}
