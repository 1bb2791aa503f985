package throttle

import (
	"fmt"
	"math"
	"time"
)

const (
	// unchangedFrom is the part of the share before from which on the share after is taken for
	// unchanged.
	unchangedFrom = 0.6

	// experimentTrials is how many new addresses tell whether a share has changed, and
	// experimentFew how many do after experimentSteps steps.
	experimentTrials = 20
	experimentFew    = 8
	experimentSteps  = 3

	// oddBesideLimit is which share of addresses is odd at most where it was our pace: more was learned
	// from what we did ourselves. Guess.
	oddBesideLimit = 0.25

	// clearFrom is by which part of the share before our pace must have made the share smaller, if it is our
	// pace, for the comparison to show anything. Guess.
	clearFrom = 0.25

	// failChance is how likely it is at most that all who are asked again fail, if it is our pace.
	failChance = 0.05
)

// Finding is what an Experiment has shown.
type Finding uint8

// The findings.
const (
	NotKnown   Finding = iota
	OurPace            // fewer are put off since we go slower
	NotOurPace         // as many are
)

// Experiment answers whether it is our pace that a receiver puts new addresses off for: it
// compares the share that is put off before we went slower with that after it, and looks
// whether those who were put off pass when they are asked again. The zero value is closed.
// Not safe for concurrent use.
type Experiment struct {
	open           bool
	saved          AdaptiveRate // as it was before
	before         float64
	answeredBefore bool // some new address was ever answered before
	steps          int
	bad, trials    int
	changes        int // from good to bad
	last           bool
	passed, failed int     // addresses that were asked again
	through        float64 // good answers a second before: what it allows, if it is our pace
	expected       float64 // of trials, how many would be bad then
	penalties      int     // begun since, and no session could be opened in them
	chance         float64 // logarithm of how likely it is then that all who failed did
	causes         *Causes
}

// badIfPace is the share that is bad at a pace, if the receiver allows what got through before.
func (e *Experiment) badIfPace(pace float64) float64 {
	if pace <= 0 {
		return 0
	}
	return min(e.before, max(0, 1-e.through/pace))
}

// Open reports whether an experiment is being made.
func (e *Experiment) Open() bool { return e.open }

// Unproven reports whether the rate before it was one of which nobody knew that it goes well.
func (e *Experiment) Unproven() bool { return e.open && e.saved.Unproven() }

// Steps is how often the rate was lowered since the experiment was begun.
func (e *Experiment) Steps() int { return e.steps }

// Begin is called before the rate is lowered: for the first time, or once more. Penalty: no session could be opened
// when somebody was put off.
func (e *Experiment) Begin(rate *AdaptiveRate, c *Causes, penalty bool, now time.Time) {
	through := rate.through(now)
	c.logSmall(kindBegin, penalty, through)
	if !e.open {
		e.saved = *rate
	}
	e.begin(c, penalty, through)
}

// begin is Begin without the rate.
func (e *Experiment) begin(c *Causes, penalty bool, through float64) {
	c.experiment = e
	if e.open {
		e.steps++
		if penalty {
			e.penalties++
		}
		return
	}
	share, _ := c.Share()
	*e = Experiment{open: true, saved: e.saved, before: max(share, 1.0/64), answeredBefore: !c.Good.IsZero(), steps: 1,
		through: through, causes: c}
}

// Trial takes a first try that was sent since, at a pace.
func (e *Experiment) Trial(bad bool, pace float64) {
	e.causes.logSmall(kindTrial, bad, pace)
	e.expected += e.badIfPace(pace)
	if e.trials++; bad {
		e.bad++
	}
	if bad && !e.last && e.trials > 1 {
		e.changes++
	}
	e.last = bad
}

// Looked takes what came of asking an address again, at a pace.
func (e *Experiment) Looked(passed bool, pace float64) {
	e.causes.logSmall(kindLooked, passed, pace)
	if passed {
		e.passed++
		return
	}
	e.failed++
	e.chance += math.Log(max(0.01, e.badIfPace(pace)))
}

// Finding says what the experiment has shown, and which share of new addresses is put off
// whatever we do.
func (e *Experiment) Finding() (Finding, float64) {
	good := e.trials - e.bad
	share := float64(e.bad) / float64(max(1, e.trials))
	fell := share < unchangedFrom*e.before
	ifPace := e.expected / float64(max(1, e.trials))
	unchanged := !fell && e.penalties == 0 && e.passed*2 <= e.failed && e.mixed(share) &&
		e.before-ifPace >= clearFrom*e.before && share > (e.before+ifPace)/2
	switch {
	case !e.open:
	case e.steps >= experimentSteps && !e.answeredBefore && good == 0:
		return NotOurPace, 1
	case e.passed == 0 && e.failed >= 3 && good >= 3 && e.chance <= math.Log(failChance):
		return NotOurPace, min(e.before, 0.5)
	case e.trials >= experimentTrials && unchanged && good > 0:
		return NotOurPace, share
	case e.steps >= experimentSteps && e.trials >= experimentFew && unchanged && good > 1:
		return NotOurPace, share
	case e.passed >= 2 && e.passed > e.failed, e.trials >= experimentTrials && fell:
		return OurPace, share
	}
	return NotKnown, 0
}

// mixed reports whether bad answers come between good ones, as they do when addresses are odd,
// and not in one go, as they do when a limit is reached.
func (e *Experiment) mixed(share float64) bool {
	return float64(e.changes) >= 0.5*float64(e.trials)*share*(1-share)
}

// End closes the experiment; with NotOurPace the rate goes on as it was before it.
func (e *Experiment) End(f Finding, rate *AdaptiveRate, now time.Time) {
	found, _ := e.Finding()
	e.causes.logEnd(f, f == found, now)
	b := e.close(f)
	if f == NotOurPace {
		rate.Restore(&e.saved, now, b.Why)
	}
	if f == found {
		e.causes.logBelief(b)
	}
}

// close ends it, and says what is believed because of a finding.
func (e *Experiment) close(f Finding) Belief {
	e.open = false
	switch f {
	case OurPace:
		e.causes.capOdd(oddBesideLimit)
		return Belief{Scope: ScopeReceiver, Why: OurPaceWhy}
	case NotOurPace:
		return Belief{Scope: ScopeAddress, Why: fmt.Sprintf("as many new addresses are put off at any pace (%.0f %%): it isn't our pace",
			100*max(e.before, float64(e.bad)/float64(max(1, e.trials))))}
	}
	return Belief{}
}

// OurPaceWhy is the sentence of the finding that it is our pace.
const OurPaceWhy = "those who were put off pass now that we go slower: it is our pace"
