package throttle

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// When the pace falls and when it grows. Shares are of first tries; docs/developers/measured.md has what simulated worlds show.
const (
	// shareFound and shareTold are above which share of transient answers a pace is too high: one that we found
	// ourselves, and one that somebody told us. Up to shareSure it is told apart from mailboxes that defer by
	// themselves by asking slower for a while.
	shareFound = 0.02
	shareTold  = 0.10
	shareSure  = 0.3

	// shareNow of the newest sureTries, or nearTries near a known limit, and shareMany of shareTries are too many as
	// well: worlds lose less until a limit is found.
	shareNow, shareMany = 0.4, 0.22

	// shareMore is by how much more than usual are deferred where a pace is surely too high.
	shareMore = 0.15

	// sureTries, shareTries and laterTries are over how many first tries a share is looked at: one above shareSure, one
	// above shareMany, and a small one; for the latter two shareLeast have to have passed when they were asked again.
	nearTries, sureTries, shareTries, laterTries = 8, 20, 50, 100
	shareLeast                                   = 3

	// measuredIn is the longest span over which a limit is measured by what passed.
	measuredIn = 4 * time.Second

	// quietAgain is after how long without a good answer it shows something to ask again.
	quietAgain = 2 * time.Second

	// rowNearOdds are the logarithm of the odds against a row by chance that are enough near a known limit: 1 in 1,000.
	rowNearOdds = 6.9

	// below is the part of a measured limit that is used, and slower the pace at which a small share is tested.
	below, slower = 0.9, 2.0 / 3

	// settles is how long what was sent before still counts at the receiver: longer than a second, over which most count.
	settles = 1200 * time.Millisecond

	// enoughLess is the part of a pace at which none are deferred any more, if a limit was the reason.
	enoughLess = 0.8

	// decided is the logarithm of the odds at which a test ends: 20 to 1, or 400 to 1 for a limit where the share was
	// small, because few looks at a small share are all too high by chance. fallsTo is the part of the share that is
	// left if it was our pace.
	decided, decidedSmall, fallsTo = 3.0, 6.0, 0.1

	// helped is below which part of the share of before going slower has helped.
	helped = 0.7

	// usualFor is how long a share that stayed when we went slower is not tested again.
	usualFor = 15 * time.Minute

	// usualMore is by how much a share has to be above a usual one to be tested again, and testGap how long it takes at least.
	usualMore = 2
	testGap   = time.Minute
)

// Phase says what a Pace is doing.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting"       // an unknown receiver, begun gently
	PhaseFull     Phase = "full"           // the ceiling holds, nothing else
	PhaseHolding  Phase = "holding"        // just below what was too fast
	PhaseRising   Phase = "rising"         // a higher pace is tried
	PhaseTesting  Phase = "testing"        // slower, to see whether fewer are deferred
	PhaseNothing  Phase = "nothing passes" // one address at a time
)

// Pace is the law of how fast one receiver is asked from one of our sources, for one number: RCPT commands a second.
// It keeps below what is told, finds a limit that is not told by what passes, tells a limit from mailboxes
// that defer by themselves, and from greylisting, by asking again and by asking slower. Words decide one thing: where most
// replies of a row say that the receiver greylists, that is believed until addresses that have waited show otherwise.
//
// Rates are of the receiver as a whole; share is the part of them that is ours. Not safe for concurrent use.
type Pace struct {
	search
	share float64 // that is ours, above 0

	phase Phase
	since time.Time
	why   string
	until time.Time // nothing is sent before

	firsts  firsts    // the newest first tries
	counted time.Time // what was sent before says nothing about the present pace
	stepped time.Time // when a raise near the edge went badly last
	excused time.Time
	later   transients // of those since then
	flow    flow       // good answers
	answer  time.Duration

	test    test
	usual   float64 // share of first tries that are deferred at any pace
	usualAt time.Time
	nothing Nothing
	grey    greylisting
}

// test is a pace that was lowered to see whether fewer are deferred.
type test struct {
	open  bool
	saved search     // as it was before
	share float64    // that was deferred then
	later transients // of those since then
	odds  float64    // logarithm: above 0 it is not our pace
	sure  float64    // below -sure it is
	kind  *replyKind // of the newest that was; nil: there was none
	tries float64    // since then
	bad   float64    // of these, how many were deferred for a reason that isn't their own
}

// Effect is what a try leads to.
type Effect uint8

// The effects.
const (
	Unchanged     Effect = iota
	Slower               // what was given and not sent yet is too much
	NothingPasses        // one address at a time from now on
	Refused              // as NothingPasses, and most were refusals of us
)

// NewPace begins at the whole ceiling when somebody has stated it for this receiver, and gently when not.
func NewPace(b RateBounds, now time.Time) *Pace {
	p := &Pace{share: 1, firsts: firsts{kinds: replyKinds{}}}
	p.search.bound(b)
	if b.Share > 0 {
		p.share = b.Share
	}
	p.begin(now)
	return p
}

// RateBounds are the bounds of a Pace.
type RateBounds struct {
	Ceiling Rate    // that is never exceeded: the allowance of the receiver as a whole
	Stated  bool    // somebody has said what it is at this receiver, so it is not begun gently
	Share   float64 // that is ours, above 0; what is not above 0 changes nothing
}

// fullWhy is why a Pace holds nobody back from its beginning.
const fullWhy = "the allowance is stated for this receiver and nothing speaks against it"

// begin is what a Pace does first.
func (p *Pace) begin(now time.Time) {
	p.counted, p.nothing.good = now, now
	p.search.begin(now)
	if p.rate >= p.ceiling {
		p.enter(PhaseFull, now, fullWhy)
		return
	}
	p.enter(PhaseStarting, now, fmt.Sprintf("nothing is known of this receiver: begun at %s", perSecond(p.rate)))
}

func (p *Pace) enter(f Phase, now time.Time, why string) { p.phase, p.since, p.why = f, now, why }

// Set changes the bounds. A ceiling of nothing is for a while and changes nothing: what is
// known of the receiver is as true after it.
func (p *Pace) Set(b RateBounds, now time.Time) {
	if b.Ceiling.PerSecond() <= 0 {
		return
	}
	if b.Share > 0 && b.Share != p.share {
		p.share = b.Share
		p.stretch(now)
	}
	old, stated := p.ceiling, p.stated
	if b.Ceiling.PerSecond() == old && b.Stated == stated {
		return
	}
	p.bound(b)
	switch {
	case old <= 0:
		p.begin(now)
	case p.phase == PhaseFull && (p.stated || p.ceiling <= old), p.phase == PhaseStarting && p.stated:
		p.rate = p.ceiling
		p.enter(PhaseFull, now, fullWhy)
	case p.ceiling > old:
		p.edge, p.step, p.gap = 0, stepLeast, now
		if p.phase == PhaseFull {
			p.rate = old
		}
		p.stretch(now)
		if !p.nothing.on {
			p.enter(PhaseRising, now, fmt.Sprintf("the allowance was raised from %s to %s: a new search begins at %s",
				perSecond(old), perSecond(p.ceiling), perSecond(p.rate)))
		}
	}
	p.rate = min(p.rate, p.ceiling)
}

// Limits reports whether the pace holds us back more than the ceiling does.
func (p *Pace) Limits(now time.Time) bool {
	return now.Before(p.until) || p.nothing.on || p.rate < p.ceiling
}

// Permits returns our share of the rate that is let go now, for a Window, and until when
// nothing is: a time that is over means now.
func (p *Pace) Permits(time.Time) (Rate, time.Time) {
	return windowed(p.rate*p.share, p.answer), p.until
}

// windowed gives a rate as a count in a length for a Window: about a second, so that one
// that is counted by the second is kept exactly, and longer where answers take long,
// because a Window counts what has no answer.
func windowed(perSecond float64, answer time.Duration) Rate {
	span := max(time.Second, 4*answer)
	n := math.Max(1, math.Round(perSecond*span.Seconds()))
	n = min(n, RateEventsMax)
	per := time.Duration(n / max(perSecond, 1e-6) * float64(time.Second))
	return Rate{Events: int(n), Per: min(max(per, RatePerMin), RatePerMax)}
}

// Took takes how long an answer took.
func (p *Pace) Took(d time.Duration) { p.answer += (d - p.answer) / 16 }

// Good takes a good answer to a first try: 2xx, or 5xx about the mailbox.
func (p *Pace) Good(t Try, now time.Time) Effect {
	p.passed(t.Sent, now)
	if t.Sent.Before(p.counted) {
		return Unchanged
	}
	add(p, &t)
	if p.nothing.on {
		p.resume(&t, now)
		return Unchanged
	}
	p.nothing.votes = 0
	p.grey.fresh(p, now)
	p.judge(0, now)
	return Unchanged
}

// passed counts a good answer.
func (p *Pace) passed(sent, now time.Time) {
	p.flow.add(sent)
	p.nothing.good = later(p.nothing.good, sent)
	if p.nothing.from.IsZero() {
		p.nothing.from = now
	}
	p.nothing.cycled++
	if p.nothing.on || p.test.open {
		return
	}
	if p.search.good(sent, now, p.share, usualNow(p, now)) {
		rose(p, now)
	}
}

// rose notes that the pace was raised.
func rose(p *Pace, now time.Time) {
	if p.rate >= p.ceiling {
		p.enter(PhaseFull, now, fmt.Sprintf("no sign of a limit below the whole allowance of %s", perSecond(p.ceiling)))
		return
	}
	f := PhaseRising
	switch {
	case p.phase == PhaseStarting && p.edge == 0:
		f = PhaseStarting
	case p.edge > 0 && p.rate >= nearEdge*p.edge && !p.trying:
		f = PhaseHolding
	}
	p.enter(f, now, perSecond(p.proved)+" went well")
}

// Bad takes a bad answer to a first try: it was deferred, refused about us, or cut.
func (p *Pace) Bad(t Try, now time.Time) Effect {
	if t.Sent.Before(p.counted) || t.Sent.Before(p.until) {
		return Unchanged // it was on its way when we learned
	}
	add(p, &t)
	switch {
	case p.nothing.on:
		return p.failedAlone(&t, now)
	case p.grey.on:
		if now.Sub(later(p.nothing.good, p.grey.since)) <= p.grey.patience {
			return Unchanged
		}
		p.grey.end(p, now, "nobody passes, however long they have waited: it isn't greylisting, whatever its replies say")
		p.grey.wrong = now
		return p.nothingPasses(now)
	case p.firsts.rowFails(), p.firsts.isBlocked(), p.firsts.row >= rowQuiet && now.Sub(p.nothing.good) >= quietNothing:
		return p.nothingPasses(now)
	}
	usual, newest := usualNow(p, now), &p.firsts.newest().entry
	if p.firsts.isRow(usual, rowNearOdds) && p.edge > 0 && p.rate >= below*p.edge && !p.test.open {
		return p.stepBack(now)
	}
	chance := p.firsts.chance(newest)
	p.search.bad(t.Sent, chance)
	if p.edge > 0 && p.proved > 0 && p.rate > p.proved && usual == 0 && !p.test.open && newest.kind.isTransient() {
		return p.endTrial(now)
	}
	if chance >= likelyOwn {
		p.spend(chance)
	}
	if p.test.open {
		p.judge(chance, now)
		return Unchanged
	}
	return p.suspect(now)
}

// add notes a first try.
func add(p *Pace, t *Try) {
	p.firsts.add(t)
	p.later.tried()
	p.test.later.tried()
}

// Again takes what came of asking an address again, at a time, that got a bad answer to its first try a moment ago.
func (p *Pace) Again(first Try, sent time.Time, passed bool, now time.Time) Effect {
	if passed {
		p.passed(sent, now)
	}
	if p.nothing.on || p.grey.on {
		return p.againAlone(passed, now)
	}
	if !passed && p.firsts.row > 0 { // others don't pass either: it says nothing about the address
		return Unchanged
	}
	chance := p.firsts.kinds.of(first.Kind).transientChance()
	if !passed && chance >= likelyOwn && chance < surelyOurs { // it was paid for
		p.credit = min(creditMost, p.credit+chance)
	}
	p.firsts.settle(&first, passed)
	if !passed || first.Sent.Before(p.counted) {
		return Unchanged
	}
	kind := p.firsts.kinds.of(first.Kind)
	stands := kind.stands()
	if kind.transientChance() < likelyOwn { // it wasn't paid for
		p.spend(stands)
	}
	p.later.passed(stands)
	if p.test.open {
		p.test.later.passed(stands)
		return Unchanged
	}
	return p.suspect(now)
}

// Worth reports whether it shows something to ask an address again soon that got such an answer: the first dozen of
// a kind, then a sample.
func (p *Pace) Worth(kind string) bool { return p.firsts.kinds.worth(kind) }

// InRow is how many of the newest first tries got a bad answer, without a good one between them.
func (p *Pace) InRow() int { return p.firsts.row }

// Ignore forgets the newest first tries: it is known what they were about. The pace from before a test comes back.
func (p *Pace) Ignore(now time.Time) {
	if p.test.open {
		p.test.open = false
		p.search = p.test.saved
		p.enter(phaseOf(p), now, "what was deferred wasn't about our pace")
	}
	p.firsts.forgetRow()
	p.later, p.counted = transients{}, now
}

// Excuse notes that a limit on sessions or openings was found: what goes wrong just then is its penalty, and not about the pace.
func (p *Pace) Excuse(now time.Time) {
	p.Ignore(now)
	p.excused = now
}

// Cost notes for how long no session could be opened. Where a raise was taken back just before, it was its penalty.
func (p *Pace) Cost(since, now time.Time) {
	if p.stepped.After(since.Add(-PenaltyWithin)) {
		p.failedTrial(now, now.Sub(since))
	}
}

// Calm reports whether asking again shows something: the newest first try was answered, or none was for a while.
func (p *Pace) Calm(now time.Time) bool {
	return !p.nothing.on && (p.firsts.row == 0 || now.Sub(p.nothing.good) >= quietAgain)
}

// usualNow is the share that is deferred at any pace, as far as that is known. A large one isn't usual any more
// when a third as many are.
func usualNow(p *Pace, now time.Time) float64 {
	if p.usual == 0 {
		return 0
	}
	if x := p.firsts.since(p.counted, firstsKept); p.usual > shareTold && x.n >= shareTries && 3*x.likely < p.usual {
		p.usual = x.likely
	}
	if now.Sub(p.usualAt) > usualFor {
		p.usual = 0
	}
	return p.usual
}

// suspect looks whether so many of the newest first tries are deferred that we are too fast.
func (p *Pace) suspect(now time.Time) Effect {
	x, usual := p.firsts.since(p.counted, firstsKept), usualNow(p, now)
	told := p.stated && p.rate >= p.ceiling
	switch {
	case x.n >= sureTries && now.Sub(p.firsts.firstBad(p.counted)) < time.Second: // it is measured over a second
		return Unchanged
	case tooMany(p, &x, usual):
		return p.slow(now, x.likely, measured(p, now), true)
	case p.later.tries < laterTries, p.later.seen < shareLeast, p.later.share <= usualMore*usual+shareFound,
		now.Sub(p.usualAt) < testGap, p.edge > 0 && p.rate >= enoughLess*p.edge && p.later.share <= shareTold:
		return p.overspent(now)
	case told && p.later.share <= shareTold:
		return p.slow(now, p.later.share, asked(p, now, x)*slower/below, false)
	}
	return p.slow(now, max(p.later.share, x.likely), measured(p, now), false)
}

// tooMany reports whether so many are deferred that a pace is surely too high: the fewer are looked at the more.
func tooMany(p *Pace, x *sample, usual float64) bool {
	newest := p.firsts.since(p.counted, sureTries)
	switch {
	case newest.n < sureTries:
		return false
	case newest.likely > max(shareNow, usual+shareSure), x.likely > max(shareSure, usual+shareMore):
		return true
	}
	return x.n >= shareTries && x.likely > usual+shareMany && p.later.seen >= shareLeast
}

// measured is the limit, as far as what passed shows it: how many were let through in the second before one that wasn't,
// right behind one that was. By the clock's seconds that may be more than the limit.
func measured(p *Pace, now time.Time) float64 {
	var through []int
	since := later(p.counted, now.Add(-measuredIn))
	for _, at := range p.firsts.rowStarts(since) {
		n := p.flow.over(at, time.Second-flowStep)
		if at.Sub(since) >= time.Second || n > 0 && len(through) == 0 { // what began later than a second ago shows less
			through = append(through, n)
		}
	}
	if len(through) == 0 {
		through = append(through, p.flow.over(p.firsts.badSince(now), time.Second))
	}
	slices.Sort(through)
	passed := float64(through[(len(through)-1)/2])
	if passed == 0 {
		return p.rate / 2 / below
	}
	return min(p.rate, max(p.floor(), passed/p.share))
}

// asked is how many we asked a second of late, which may be fewer than we might.
func asked(p *Pace, now time.Time, x sample) float64 {
	n, ran := p.used, now.Sub(p.began)
	if x.span >= time.Second && n < x.n {
		n, ran = x.n, x.span
	}
	if ran < time.Second || n == 0 {
		return p.rate
	}
	most := max(float64(n)/ran.Seconds(), float64(p.flow.over(p.firsts.newest().sent, time.Second))) // there may be a gap in it
	return min(p.rate, max(p.floor(), most/p.share))
}

// slow goes below what was measured, and begins to test whether that helps.
func (p *Pace) slow(now time.Time, share, limit float64, rests bool) Effect {
	p.test = test{open: true, saved: p.search, share: share, sure: decided, kind: p.firsts.newestKind()}
	p.later = transients{}
	if share <= shareTold {
		p.test.sure = decidedSmall
	}
	from := p.rate
	p.lower(below*limit, limit, now)
	p.enter(PhaseTesting, now, fmt.Sprintf("%.0f %% of the newest addresses were deferred at %s; now %s, to see whether fewer are",
		100*share, perSecond(from), perSecond(p.rate)))
	p.counted = now.Add(settles)
	if rests {
		p.until = p.counted
	}
	p.stretch(p.counted)
	return Slower
}

// judge takes how likely it is that a first try was deferred for a reason that isn't its own, and ends the test when it is clear
// what the deferrals were about.
func (p *Pace) judge(bad float64, now time.Time) {
	if !p.test.open {
		return
	}
	s := min(p.test.share, 0.95)
	p.test.odds += bad*math.Log(1/fallsTo) - (1-bad)*math.Log((1-fallsTo*s)/(1-s))
	p.test.tries++
	p.test.bad += bad
	switch left := p.test.bad / p.test.tries; {
	case p.test.odds >= decided && (p.test.tries < sureTries || left == 1): // few, or a penalty
	case p.test.odds >= decided && left < helped*s: // it isn't slow enough
		saved := p.test.saved
		p.slow(now, left, p.rate*(1-left), false)
		p.test.saved = saved
	case p.test.odds >= decided:
		p.test.open = false
		p.search = p.test.saved
		p.usual, p.usualAt = left, now
		p.stretch(now)
		p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses are deferred when we ask slower (%.0f %%): it is about these addresses; "+
			"%s again, the pace of before", 100*p.test.share, perSecond(p.rate)))
		p.counted = now
	case p.test.odds <= -p.test.sure && p.test.kind != nil && p.test.kind.transientChance() < likelyOwn:
		p.Ignore(now) // those that were deferred are deferred again
	case p.test.odds <= -p.test.sure:
		p.test.open = false
		p.credit = creditTrial
		p.stretch(now)
		p.enter(PhaseHolding, now, fmt.Sprintf("fewer addresses are deferred at %s than at %s: a limit of about %s", perSecond(p.rate),
			perSecond(p.test.saved.rate), perSecond(p.edge)))
	}
}

// overspent goes a little slower near a known limit, where more were deferred than its answers paid for. When as many are
// after several such steps, there is no limit.
func (p *Pace) overspent(now time.Time) Effect {
	if p.edge == 0 || p.credit > -1 || p.rate < enoughLess*p.edge || p.firsts.row > 1 {
		return Unchanged
	}
	from, first, began := p.rate, p.stepsFrom, p.stepsAt
	if first == 0 {
		first, began = from, p.counted
	}
	x, usual := p.firsts.since(began, firstsKept), usualNow(p, now)
	if p.stepsFrom == 0 {
		began, p.stepsShare = now, x.likely
	}
	few, more := p.firsts.since(began, nearTries), p.firsts.since(began, sureTries)
	if few.n >= nearTries && few.likely > usual+shareNow ||
		more.n >= sureTries && more.likely > usualMore*usual+shareMore {
		return p.slow(now, max(few.likely, more.likely), measured(p, now), false)
	}
	to, share := (1-max(2*stepLeast, min((more.likely-usual)/2, 1-enoughLess)))*from, p.stepsShare
	ours := max(0, 1-(1-share)*first/from) // that are deferred now, if there is a limit
	if to >= enoughLess*first || x.n < shareTries || x.likely < (share+ours)/2 {
		p.failedTrial(now, 0)
		p.lower(to, from, now)
		p.stepsFrom, p.stepsAt, p.stepsShare, p.counted = first, began, share, now
		p.enter(PhaseHolding, now, fmt.Sprintf("some addresses were deferred at %s and passed later; now %s", perSecond(from), perSecond(p.rate)))
		return Slower
	}
	p.usual, p.usualAt = max(p.usual, min(p.later.share, shareTold)), now
	p.rate, p.edge, p.steps, p.credit = first, 0, steps{}, 0
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses are deferred at %s as at %s: it is about these addresses; %s again, "+
		"the pace of before", perSecond(from), perSecond(p.rate), perSecond(p.rate)))
	return Unchanged
}

// endTrial ends a raise with the first deferral of a kind that is known to pass later: it costs that one.
func (p *Pace) endTrial(now time.Time) Effect {
	from := p.rate
	p.spend(1)
	p.failedTrial(now, 0)
	p.lower(min(p.proved, nearEdge*from), from, now)
	p.counted = now
	p.enter(PhaseHolding, now, fmt.Sprintf("one was deferred at %s; now %s", perSecond(from), perSecond(p.rate)))
	return Slower
}

// stepBack ends a raise near a known limit that brings nothing but deferrals.
func (p *Pace) stepBack(now time.Time) Effect {
	if now.Sub(p.stepped) < quietNothing { // it counts over longer: that ends by waiting
		return p.nothingPasses(now)
	}
	from, to, row := p.rate, below*p.edge, p.firsts.row
	p.stepped = now
	if p.trying && p.proved > 0 {
		to = p.proved
	}
	p.failedTrial(now, 0)
	p.lower(min(to, nearEdge*from), from, now)
	p.counted, p.until = now.Add(settles), now.Add(settles)
	p.stretch(p.until)
	p.firsts.forgetRow()
	p.enter(PhaseHolding, now, fmt.Sprintf("%d in a row were deferred at %s; now %s", row, perSecond(from), perSecond(p.rate)))
	return Slower
}

// phaseOf is the phase of a pace at which nothing else happens.
func phaseOf(p *Pace) Phase {
	if p.rate >= p.ceiling {
		return PhaseFull
	}
	return PhaseHolding
}

// RateState says what a Pace does and why.
type RateState struct {
	Rate    float64 // events a second that are let go now, all shares together
	Floor   float64
	Ceiling float64
	Edge    float64 // where it was last too fast; 0: not known
	Phase   Phase
	Since   time.Time
	Until   time.Time // nothing is sent before
	Why     string    // the last change, in a sentence
}

// Explain says what the pace is now.
func (p *Pace) Explain(now time.Time) RateState {
	s := RateState{Rate: p.rate, Floor: p.floor(), Ceiling: p.ceiling, Edge: p.edge, Phase: p.phase, Since: p.since,
		Until: p.until, Why: p.why}
	if p.nothing.on {
		s.Rate = 0
	}
	return s
}

// HasChanged reports whether a pace has just begun to do something else.
func HasChanged(p *Pace, now time.Time) bool { return p.since.Equal(now) }

// Lasting is our share of the rate that is gone on with when what holds us back now is over.
// While nothing is known of a receiver that is the ceiling.
func (p *Pace) Lasting() float64 {
	if p.phase == PhaseStarting {
		return p.ceiling * p.share
	}
	return p.rate * p.share
}

// RateMemory is what a Pace knows that the next one can begin with.
type RateMemory struct {
	Rate  float64 // that is used, events a second, all shares together
	Edge  float64 // where it was too fast; 0: not known
	Usual float64 // share of addresses that are deferred at any pace
	Grey  bool    // every address is greylisted
	Alone bool    // nothing passed
}

// Remember gives what is worth remembering; false when nothing but the ceiling holds.
func (p *Pace) Remember() (RateMemory, bool) {
	m := RateMemory{Rate: p.rate, Edge: p.edge, Usual: p.usual, Grey: p.grey.on, Alone: p.nothing.on}
	if p.test.open {
		m.Rate, m.Edge = p.test.saved.rate, p.test.saved.edge
	} else if x := &p.nothing; x.on && !x.excused && !x.proven && x.limit > 0 && below*x.limit < clearlyLess*p.rate {
		m.Rate, m.Edge = below*x.limit, x.limit // as it goes on
	}
	return m, m.Grey || m.Alone || m.Usual > 0 || p.phase != PhaseStarting && (m.Edge > 0 || m.Rate < p.ceiling)
}

// Recall begins with what an earlier Pace knew. Of what is known already the stricter holds.
func (p *Pace) Recall(m RateMemory, now time.Time) {
	if m.Grey {
		p.grey.begin(p, now)
	}
	if m.Alone && !m.Grey {
		p.stopAsking(now, "", "")
		p.nothing.stepped, p.nothing.limit = m.Edge > 0, m.Edge
		p.enter(PhaseNothing, now, "nothing passed before this node took the receiver over: one is asked at a time")
	}
	if m.Usual > p.usual && m.Usual < 1 {
		p.usual, p.usualAt = m.Usual, now
	}
	if !(m.Rate > 0) || p.edge > 0 && p.rate <= m.Rate {
		return
	}
	p.rate, p.edge = min(p.ceiling, max(m.Rate, p.floor())), m.Edge
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("%s was the pace before this node took the receiver over", perSecond(m.Rate)))
}

// Wake ends every wait of the pace, because an operator said so or what it waited for is over.
func (p *Pace) Wake(now time.Time) {
	p.until = now
	if p.nothing.on {
		p.nothing = Nothing{good: now}
		p.enter(phaseOf(p), now, "what held it back is over")
	}
}

// perSecond writes a rate for people, in the unit in which it is a number one can see.
func perSecond(r float64) string {
	switch {
	case r >= 1:
		return fmt.Sprintf("%.3g/s", r)
	case r*60 >= 1:
		return fmt.Sprintf("%.3g/min", r*60)
	}
	return fmt.Sprintf("%.3g/h", r*3600)
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// LastBad returns when the newest first try was sent, how many got a good answer that were sent in the second before it, and whether it
// got a bad one itself.
func (p *Pace) LastBad() (sent time.Time, through int, bad bool) {
	if p.firsts.n == 0 {
		return time.Time{}, 0, false
	}
	last := p.firsts.newest()
	return last.sent, p.flow.over(last.sent, time.Second), last.kind != nil
}
