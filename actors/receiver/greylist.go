package receiver

import (
	"time"
)

// greyMarginLeast is the least by which a wait is longer than one that sufficed;
// otherwise it is a twentieth. Guess: clocks differ, and receivers count whole seconds.
const greyMarginLeast = time.Second

// greylist is how long a receiver that puts addresses off lets one of our sources
// wait, as far as it has shown that. Receivers count from the first time that they
// saw an address (RFC 6647 §5.1), so waits are counted from there.
type greylist struct {
	enough time.Duration // the shortest wait that sufficed; 0: not known
	short  time.Duration // the longest that did not
}

// passed learns that an address was answered after a wait.
func (g *greylist) passed(waited time.Duration) {
	if g.enough == 0 || waited < g.enough {
		g.enough = waited
	}
}

// again learns that an address was put off again after a wait. When less has
// sufficed before, the receiver has changed its mind.
func (g *greylist) again(waited time.Duration) {
	g.short = max(g.short, waited)
	if g.enough <= g.short {
		g.enough = 0
	}
}

// wait is what to tell an address that was put off just now; 0: not known.
func (g *greylist) wait() time.Duration {
	if g.enough == 0 {
		return 0
	}
	return g.enough + max(g.enough/20, greyMarginLeast)
}
