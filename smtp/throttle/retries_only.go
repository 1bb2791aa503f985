package throttle

import (
	"fmt"
	"time"
)

const (
	// rowDry bad answers in a row to addresses asked again are enough to slow down.
	rowDry = 4

	// fewInSecond good answers in a second may be all that a limit lets through, if more than fewBad of the newest first
	// tries are bad.
	fewInSecond, fewBad = 2, 0.3
)

// dry is a row of bad answers to addresses asked again, without a good answer to any address in between.
type dry struct {
	n    int
	from time.Time // when it began, or last slowed us down
}

// runDry handles a bad answer to an address asked again. If no address gets a good answer for long, the limit may be
// lower than the known one. First tries would show that, but there may be none left: so the pace is halved. Soon after
// a penalty a short row means the next penalty. In a test, rowNothing bad answers of any kind mean that nothing passes.
func runDry(p *Pace, sent time.Time, kind string, now time.Time) Effect {
	if p.edge == 0 || p.nothing.on || p.grey.on || sent.Before(p.counted) ||
		!p.test.open && !MayBeOurs(p, kind) {
		return Unchanged
	}
	if p.dry.n++; p.dry.n == 1 {
		p.dry.from = now
	}
	switch x := &p.nothing; {
	case p.dry.n < rowDry, p.test.open && (p.dry.n < rowNothing || now.Sub(x.good) < quietNothing):
		return Unchanged
	case p.test.open, x.closed >= penaltyLeast && now.Sub(x.ended) < penaltyRecent:
		p.stopAsking(now, "", "")
		p.enter(PhaseNothing, now, fmt.Sprintf("none of the newest %d addresses asked again got a good answer at %s: "+
			"one is asked at a time", p.dry.n, perSecond(p.rate)))
		return NothingPasses
	case now.Sub(p.dry.from) < quietNothing:
		return Unchanged
	}
	from := p.rate
	p.lower(from/2, from, now)
	p.dry.from = now
	p.enter(PhaseHolding, now, fmt.Sprintf("nobody got a good answer for %s at %s; now %s", quietNothing, perSecond(from),
		perSecond(p.rate)))
	return Slower
}

// FewPass reports whether so few addresses pass in a second that the newest good answer may have used up the limit.
func FewPass(p *Pace, now time.Time) bool {
	return p.flow.over(now) <= fewInSecond && p.firsts.badShare(now.Add(-settledIn)) > fewBad
}
