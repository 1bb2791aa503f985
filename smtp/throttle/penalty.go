package throttle

import (
	"fmt"
	"time"
)

// What an AdaptiveRate makes of a time in which nothing is answered.
const (
	// longRest is from when on a rest speaks of the length that the far side counts over,
	// so that what got through in the whole of it says how fast we may go.
	longRest = 30 * time.Second

	// windowLeast is for how long at the present rate what got through would have gone well: less is
	// what a penalty lets through before it begins. Guess: most limits that have one are by the second.
	windowLeast = 3 * time.Second

	// dearFrom is from how long on a trouble may be dear: shorter ones are rests of our own. Longer
	// ones than dearMost are most likely of a limit that is counted by the hour.
	dearFrom = 10 * time.Second
	dearMost = 5 * time.Minute

	// longTimes is up to how many times the length of the trouble that trials bring the gap between
	// them grows. Where in that time dearAnswers could have been had, it is a penalty, and the gap
	// is dearFirst times as long at once, twice that after another one, and dearTimes then. Guess: a
	// tenth of the time in the end.
	longTimes   = 2
	dearFirst   = 3
	dearTimes   = 10
	dearAnswers = 40
)

// over ends a time of trouble. A long one says that the far side counts over as long, and
// then what got through is what it allows.
func (t *AdaptiveRate) over(now time.Time) {
	lasted := now.Sub(t.trouble)
	tried := t.tried && t.good > 0 && t.proof >= lasted*4/5
	t.trouble = time.Time{}
	t.dear = lasted
	t.gap = later(t.gap, now.Add(t.nextTrial()))
	t.proof = max(t.proof, min(lasted, t.proofMost()))
	if lasted < longRest || lasted.Seconds() < 4/max(t.rate*t.share, floorLeast) {
		return
	}
	before := t.before
	t.before = t.passed
	// A penalty says nothing about what is borne, nor does a trial when what went well before it did
	// so for as long.
	counted := near(t.passed, before) && float64(t.passed) >= max(proofAnswers, windowLeast.Seconds()*t.rate*t.share)
	if tried && t.isDear() || !counted && lasted < 3*longRest {
		t.cycle, t.passed = now, 0
		return
	}
	// When it began to take events again is not known: in the middle of the last rest, say.
	through := float64(t.passed) / max(1, (now.Sub(t.cycle)-t.rest/2).Seconds()) / t.share
	t.credit = max(t.credit, t.cost)
	t.cycle, t.passed = now, 0
	if r := max(t.floor(), through*drops[0]); r < t.rate {
		t.rate, t.good, t.step = r, 0, stepLeast
		t.edge = min(t.edge, 1.25*r)
		t.proof = max(t.proof, min(lasted, t.proofMost()))
		t.why = fmt.Sprintf("%s; after %s without a good answer %s is what got through", t.why,
			lasted.Round(time.Second), perSecond(through))
	}
}

// isDear reports whether the last trouble cost many answers.
func (t *AdaptiveRate) isDear() bool {
	return t.dear > dearFrom && t.dear <= dearMost && t.dear.Seconds()*t.rate*t.share >= dearAnswers
}

// nextTrial is how long it takes at least to the next trial: the longer, the more in a row have
// failed and the longer nothing went then.
func (t *AdaptiveRate) nextTrial() time.Duration {
	switch most := trialGapMost; {
	case t.isDear():
		return min(min(dearTimes*t.dear, dearFirst*t.dear<<min(t.trials, 2)), time.Hour)
	case t.dear > dearFrom:
		most = max(most, min(longTimes*t.dear, time.Hour))
		fallthrough
	default:
		return min(trialGap<<min(t.trials, 10), most)
	}
}

// Unproven reports whether the rate is one that it isn't known yet to go well: a trouble that comes now
// is most likely our doing.
func (t *AdaptiveRate) Unproven() bool {
	return t.phase == PhaseStarting || t.phase == PhaseRising
}
