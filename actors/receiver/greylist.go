package receiver

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/verdict"
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

// greylisted learns from the answer to a probe that was put off before from the
// same source, and makes the wait of one that is put off now as long as it has to be.
// A wait that the receiver names counts when it is longer.
func (d *desk) greylisted(s *session, a *answered) {
	p, v := a.probe, &a.told.verdict
	put := v.Outcome == smtp.Undecided && v.Reason == smtp.Greylisted
	if p.greyAgo > 0 && (p.greyFrom == s.outlet.name || s.outlet.name == "") {
		waited := p.greyAgo + a.sent.Sub(p.offered)
		switch {
		case put:
			s.outlet.grey.again(waited)
			d.dirty = true
		case v.Outcome != smtp.Undecided:
			s.outlet.grey.passed(waited)
			d.dirty = true
		}
	}
	if put && v.Action == verdict.ActGreylist {
		v.Wait = max(v.Wait, s.outlet.grey.wait())
	}
}
