package throttle

import (
	"fmt"
	"time"
)

const (
	// rowDry bad answers in a row to repeated addresses are enough to slow down.
	rowDry = 4

	// If at most fewInSecond addresses pass in a second, and more than fewBad of the newest first tries are bad, a good
	// answer may have used the limit up.
	fewInSecond, fewBad = 2, 0.3
)

// dry is a row of bad answers to repeated addresses, with no good answer to any address in between.
type dry struct {
	n    int
	from time.Time // when the row began, or when the rate was last halved because of it
}

// runDry handles a bad answer to a repeated address. If no address passes for long, the limit may be lower than the
// known limit. First tries would show the limit, but perhaps no new addresses are left. So runDry halves the rate. Soon
// after a penalty a short row means the next penalty. During a test, rowNothing bad answers in a row mean that nothing
// passes, whatever their kind.
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
			"we ask one at a time", p.dry.n, perSecond(p.rate)))
		return NothingPasses
	case now.Sub(p.dry.from) < quietNothing:
		return Unchanged
	}
	from := p.rate
	p.lower(from/2, from, now)
	p.dry.from = now
	p.enter(PhaseHolding, now, fmt.Sprintf("no address got a good answer for %s at %s; now %s", quietNothing,
		perSecond(from), perSecond(p.rate)))
	return Slower
}

// FewPass reports whether so few addresses pass in a second that one good answer may have used the limit up.
func FewPass(p *Pace, now time.Time) bool {
	return p.flow.over(now) <= fewInSecond && p.firsts.badShare(now.Add(-settledIn)) > fewBad
}
