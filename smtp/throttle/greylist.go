package throttle

import (
	"fmt"
	"time"
)

// greyMarginLeast is the least by which a wait is longer than one that sufficed;
// otherwise it is a twentieth. Clocks differ, and receivers count whole seconds.
const greyMarginLeast = time.Second

// Greylist is how long a receiver that greylists lets one of our sources
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

// Again learns that an address was deferred again after a wait. When less has
// sufficed before, the receiver has changed its mind.
func (g *Greylist) Again(waited time.Duration) {
	g.Short = max(g.Short, waited)
	if g.Enough <= g.Short {
		g.Enough = 0
	}
}

// Wait is what to tell an address that was deferred just now; 0: not known.
func (g *Greylist) Wait() time.Duration {
	if g.Enough == 0 {
		return 0
	}
	return g.Enough + max(g.Enough/20, greyMarginLeast)
}

// How greylisting of every address is found, and told from a limit.
const (
	// greyVotes is how often a fresh address has to fail right behind one that passed when it was asked again.
	greyVotes = 3

	// greyMargin is how much more often those pass that have waited than those that are new, where a receiver greylists: a limit doesn't
	// tell them apart. It takes freshPass new ones, and dueLeast of the others, to see.
	greyMargin = 0.25
	freshPass  = 3
	dueLeast   = 6

	// greyPatience is how long nobody may pass where words alone say that a receiver greylists: most make an address wait for five minutes.
	greyPatience = 12 * time.Minute

	// wrongFor is how long the words are not believed again.
	wrongFor = 10 * time.Minute

	// greyHelps is how much more of them pass when we ask slower, if it was our pace.
	greyHelps = 0.1

	// dueTries is how many of those that have waited long enough tell whether they pass.
	dueTries = 20
)

// greylisting is whether every fresh address is deferred whatever we do, and passes later. First tries go at the whole pace
// then, and say nothing about it; those who are asked again when they are due do.
type greylisting struct {
	on    bool
	since time.Time
	wrong time.Time
	found bool // by who passes, and not by words alone

	patience time.Duration // that nobody passes at all
	due, ok  float64       // of the newest that were due, how many there were, and how many passed

	lowered, shareThen float64 // the pace before it fell because due ones didn't pass, and the share that passed; 0: it didn't fall
	usual              float64 // share of them that doesn't pass at any pace
}

// Greylisting reports whether every fresh address is deferred, and passes later.
func (p *Pace) Greylisting() bool { return p.grey.on }

// wasWrong reports whether words that said so were found to lie.
func (g *greylisting) wasWrong(now time.Time) bool {
	return !g.wrong.IsZero() && now.Sub(g.wrong) < wrongFor
}

// begin believes that the receiver greylists.
func (g *greylisting) begin(p *Pace, now time.Time) {
	if g.on {
		return
	}
	*g = greylisting{on: true, since: now, wrong: g.wrong, found: p.nothing.on, patience: greyPatience}
	if g.found {
		g.patience = 2*now.Sub(p.nothing.since) + time.Minute
	}
	p.test.open = false
	p.search.begin(now) // what was learned was about that
	p.rate = p.ceiling
	p.firsts.forgetRow()
	p.nothing.on = false
	p.counted, p.until = now, now
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("every new address is greylisted: all are asked at %s, and again when they are due", perSecond(p.rate)))
}

// end believes it no longer.
func (g *greylisting) end(p *Pace, now time.Time, why string) {
	g.on = false
	p.firsts.forgetRow()
	p.counted = now
	p.stretch(now)
	p.enter(phaseOf(p), now, why)
}

// fresh takes a good answer to a first try while the receiver is believed to greylist.
func (g *greylisting) fresh(p *Pace, now time.Time) {
	if !g.on {
		return
	}
	passed, n := p.firsts.goodSince(g.since)
	switch {
	case n >= dueTries && 2*passed >= n:
		g.end(p, now, "new addresses pass at once now: it greylists no longer")
	case passed >= freshPass && g.isWrong(float64(passed)/float64(n)):
		g.end(p, now, "new addresses pass as often as those that have waited: it isn't greylisting, whatever its replies say")
		g.wrong = now
	}
}

// isWrong reports whether those that have waited don't pass more often than a part of the new ones does.
func (g *greylisting) isWrong(fresh float64) bool {
	if g.due < dueLeast {
		return !g.found
	}
	return g.ok < (fresh+greyMargin)*g.due
}

// Retried takes what came of asking an address again, at a time, that was deferred before; due: it has waited for as long as
// others had to. While every address is greylisted those that were due show whether we are too fast.
func (p *Pace) Retried(sent time.Time, passed, due bool, now time.Time) Effect {
	if passed {
		p.passed(sent, now)
	}
	if p.nothing.on {
		return p.againAlone(passed, now)
	}
	g := &p.grey
	if !g.on || !due && !passed {
		return Unchanged
	}
	keep := 1 - 1.0/dueTries
	g.due, g.ok = g.due*keep+1, g.ok*keep
	if passed {
		g.ok, g.found = g.ok+1, true
		return Unchanged
	}
	share := g.ok / g.due
	if g.due < dueTries/2 || 1-share < max(shareSure, g.usual+shareMore) {
		return Unchanged
	}
	if g.ok < greyMargin*g.due {
		g.end(p, now, "those that have waited don't pass either: it isn't greylisting, whatever its replies say")
		g.wrong = now
		return Slower
	}
	g.due, g.ok = 0, 0
	if g.lowered > 0 && share < g.shareThen+greyHelps {
		p.rate, p.edge = g.lowered, 0
		g.lowered, g.usual = 0, 1-share
		p.stretch(now)
		p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses that had waited long enough are deferred when we ask slower: "+
			"it is about these addresses; %s again, the pace of before", perSecond(p.rate)))
		return Unchanged
	}
	g.lowered, g.shareThen = p.rate, share
	p.lower(max(below*share*p.rate, p.rate/2), p.rate, now)
	p.enter(PhaseHolding, now, fmt.Sprintf("addresses that had waited long enough were deferred again; now %s", perSecond(p.rate)))
	return Slower
}
