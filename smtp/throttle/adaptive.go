package throttle

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// How an AdaptiveRate decides. Most are guesses that were tuned against the simulated receivers of
// the tests; docs/pacing.md has the figures.
const (
	// startShare is the part of the ceiling at which an unknown site is begun.
	startShare = 5

	// startProof and startAnswers are how long, and over how many answers, a rate has to go
	// well before it is doubled at an unknown site that has never complained.
	startProof   = 2 * time.Second
	startAnswers = 2

	// proofLeast and proofAnswers are the same after a complaint. proofLeast grows when a
	// rate that had gone well for so long turns out to be too high: the far side counts
	// over more than that. proofSpan bounds it, and proofCount does in intervals.
	proofLeast   = 5 * time.Second
	proofAnswers = 8
	proofSpan    = 5 * time.Minute
	proofCount   = 64

	// proofLate is in how many of its lengths a proof turns out to have been too short.
	proofLate = 4

	// proofAbove divides the time to prove a rate above all that was ever too high: a
	// limit that was raised is found sooner.
	proofAbove = 2

	// proofUse is the part of a rate that has to be used for it to be proven.
	proofUse = 0.8

	// proofFades is in how many of its lengths without a complaint the time to prove a rate
	// becomes half.
	proofFades = 40

	// stepLeast and stepMost bound the part by which a rate is raised. Every raise that goes
	// well doubles the next one.
	stepLeast = 0.03
	stepMost  = 0.5

	// freeBelow is up to which part of the rate that was too high raises are free. Above it
	// each needs its price in answers: 1 complaint in trialPrice answers.
	freeBelow  = 0.85
	trialPrice = 250

	// trialGap is how long it takes at least from a complaint to the next raise that may
	// bring one; it doubles with each in a row that did, up to trialGapMost.
	trialGap     = 15 * time.Second
	trialGapMost = time.Minute

	// restLeast is how long nothing is asked after a complaint; while complaints go on
	// without an answer between them it doubles.
	restLeast = time.Second

	// rampLeast and rampMost bound how long it takes from the end of a rest to the full
	// rate: as long as the rest was, in rampSteps steps of which the first is 1 of so many.
	rampLeast = time.Second
	rampMost  = time.Minute
	rampSteps = 4

	// floorShare is the part of the ceiling that an AdaptiveRate never goes below, and floorLeast
	// the least of it in events a second: 1 a minute.
	floorShare = 100
	floorLeast = 1.0 / 60
)

// drops are what is left of a rate that had gone well and was then too high: mild at first,
// and more with each complaint in a row.
var drops = [...]float64{0.95, 0.85, 0.7, 0.5}

// dropUnproven is what is left of a rate of which nothing was known.
const dropUnproven = 0.7

// Phase says what an AdaptiveRate is doing.
type Phase string

// The phases.
const (
	PhaseStarting   Phase = "starting"    // an unknown site, begun gently
	PhaseFull       Phase = "full"        // the ceiling holds, nothing else
	PhaseBackingOff Phase = "backing off" // nothing is asked for a short while
	PhaseRecovering Phase = "recovering"  // from that, step by step
	PhaseHolding    Phase = "holding"     // just below what was too fast
	PhaseRising     Phase = "rising"      // a higher rate is tried
)

// AdaptiveRate finds how many events a second a far side bears that does not say so, and keeps
// just below that. It goes up while nothing happens, in steps that grow, and down when the
// far side complains; it never goes above its ceiling. A raise that may bring a complaint
// is paid for with answers that brought none, so that few do.
//
// Rates are of the far side as a whole; share is the part of them that is ours. Not safe
// for concurrent use.
type AdaptiveRate struct {
	rateBounds
	rateSearch
	rateRests
	rateCounts

	rate  float64 // held or tried; the ceiling holds beside it
	phase Phase
	since time.Time
	why   string
	slow  latency
	flow  flow
}

// rateBounds is what an AdaptiveRate is allowed.
type rateBounds struct {
	ceiling  float64
	share    float64 // above 0
	stated   bool
	restMost time.Duration
	few      int // good answers of a second that tell how fast we were
}

// rateSearch is what an AdaptiveRate knows of the highest rate that goes well, and what it may risk to learn more.
type rateSearch struct {
	good    float64   // the highest that was proven; 0: none
	rose    time.Time // when it was
	goodWas float64   // that before it
	edge    float64   // where it was last too fast; 0: not known
	known   float64   // where it last was so by more than a few put-offs; 0: nowhere
	step    float64
	proof   time.Duration
	faded   time.Time // when proof last became shorter
	credit  float64   // complaints that may still be caused
	cost    float64   // complaints that a lesson brings
	trials  int       // in a row that brought a complaint
	gap     time.Time
}

// rateRests is what the last complaints taught, and how long nothing is sent because of them.
type rateRests struct {
	lesson  time.Time // events that were sent before teach nothing
	around  float64   // complaints about the same haste
	rising  bool      // the newest lesson ended a trial of a higher rate
	strikes int       // lessons without a proof between them
	clean   int       // good answers since the last rest
	rest    time.Duration
	until   time.Time // nothing is sent before
	ramp    time.Duration
	trouble time.Time     // since when there is no good answer
	tried   bool          // it began with a trial of a higher rate
	dear    time.Duration // how long the last trouble lasted
	before  int           // good answers between the last two long troubles
	lowered time.Time     // when the rate was, for being too fast
}

// rateCounts is what was heard of late.
type rateCounts struct {
	began time.Time // of the stretch at one rate
	heard int       // good answers to events of the stretch
	other int       // answers to them that prove nothing

	cycle  time.Time // of all since the last long rest
	passed int       // good answers in it
	last   time.Time // when the newest of them was sent
}

// flow counts good answers by when their events were sent, in steps of flowStep.
type flow struct {
	counts [flowSteps]int
	newest int64 // number of the newest step
}

const (
	flowStep  = 250 * time.Millisecond
	flowSteps = 48
)

func (f *flow) add(sent time.Time) {
	at := sent.UnixNano() / int64(flowStep)
	for f.newest < at-flowSteps {
		f.newest = at - flowSteps
	}
	for ; f.newest < at; f.newest++ {
		f.counts[(f.newest+1)%flowSteps] = 0
	}
	if at > f.newest-flowSteps {
		f.counts[at%flowSteps]++
	}
}

// over gives how many went well of those that were sent in a span before a time.
func (f *flow) over(sent time.Time, span time.Duration) int {
	at, n := sent.UnixNano()/int64(flowStep), 0
	for k := at - int64(span/flowStep); k <= at; k++ {
		if k > f.newest-flowSteps && k <= f.newest {
			n += f.counts[k%flowSteps]
		}
	}
	return n
}

// RateBounds are the bounds of an AdaptiveRate.
type RateBounds struct {
	Ceiling Rate          // that is never exceeded: the allowance of the far side as a whole
	Stated  bool          // somebody has said what the ceiling is at this site, so it is not begun gently
	Share   float64       // that is ours, above 0; what is not above 0 changes nothing
	Rest    time.Duration // the longest that it rests by itself
	Few     int           // good answers of a second that tell how fast we were; 0: eight
}

// fullWhy is why an AdaptiveRate holds nobody back from its beginning.
const fullWhy = "the allowance is stated for this receiver and nothing speaks against it"

// NewAdaptiveRate begins at the whole ceiling when it is stated for this site, and gently when not.
func NewAdaptiveRate(b RateBounds, now time.Time) *AdaptiveRate {
	t := &AdaptiveRate{
		rateBounds: rateBounds{ceiling: b.Ceiling.PerSecond(), share: 1, stated: b.Stated, restMost: b.Rest,
			few: cmp.Or(b.Few, proofAnswers)},
		rateSearch: rateSearch{step: stepLeast, proof: proofLeast, credit: 3, cost: 1, faded: now},
		rateCounts: rateCounts{began: now, cycle: now, last: now},
	}
	if b.Share > 0 {
		t.share = b.Share
	}
	t.begin(now)
	return t
}

// begin is what an AdaptiveRate does first.
func (t *AdaptiveRate) begin(now time.Time) {
	if t.stated {
		t.enter(PhaseFull, now, fullWhy)
		return
	}
	t.rate = t.gently()
	t.enter(PhaseStarting, now, fmt.Sprintf("nothing is known of this receiver: begun at %s", perSecond(t.rate)))
}

// gently is the rate at which an unknown site is begun.
func (t *AdaptiveRate) gently() float64 { return max(t.floor(), t.ceiling/startShare) }

// Set changes the bounds. A ceiling of nothing is for a while and changes nothing: what is
// known of the far side is as true after it.
func (t *AdaptiveRate) Set(b RateBounds, now time.Time) {
	if b.Ceiling.PerSecond() <= 0 {
		return
	}
	old := t.ceiling
	t.ceiling, t.stated, t.restMost = b.Ceiling.PerSecond(), b.Stated, b.Rest
	if b.Share > 0 && b.Share != t.share {
		t.share = b.Share
		t.stretch(now)
	}
	switch {
	case old <= 0 && (t.phase == PhaseFull || t.phase == PhaseStarting): // made while nothing was allowed
		t.begin(now)
		t.stretch(now)
	case old <= 0 && t.rate <= 0: // and it has rested since
		if t.rate = t.ceiling; !t.stated {
			t.rate = t.gently()
		}
	case t.phase == PhaseFull && t.ceiling > old && !t.stated:
		t.rate = old
		t.enter(PhaseStarting, now, fmt.Sprintf("the allowance was raised from %s to %s", perSecond(old),
			perSecond(t.ceiling)))
		t.stretch(now)
	case t.phase == PhaseStarting && t.stated:
		t.enter(PhaseFull, now, fullWhy)
	case old > 0 && t.ceiling > old && t.stated && t.phase != PhaseFull && t.edge <= old:
		t.seek(old, now)
	}
}

// seek begins a new search from the present rate, because somebody says that a site bears
// more than it was found to bear below an older ceiling. A rest goes on to its end.
func (t *AdaptiveRate) seek(old float64, now time.Time) {
	t.good, t.edge, t.known, t.step, t.proof = 0, 0, 0, stepMost, proofLeast
	t.strikes, t.trials, t.gap, t.credit = 0, 0, now, max(t.credit, t.cost)
	why := fmt.Sprintf("the allowance was raised from %s to %s: a new search begins at %s", perSecond(old),
		perSecond(t.ceiling), perSecond(t.rate))
	if now.Before(t.until) {
		t.why = why
		return
	}
	t.enter(PhaseRising, now, why)
	t.stretch(now)
}

// floor is what the rate never falls below.
func (t *AdaptiveRate) floor() float64 { return min(t.ceiling, max(t.ceiling/floorShare, floorLeast)) }

func (t *AdaptiveRate) enter(p Phase, now time.Time, why string) {
	t.phase, t.since, t.why = p, now, why
}

// stretch begins to count at a rate.
func (t *AdaptiveRate) stretch(now time.Time) { t.began, t.heard, t.other = now, 0, 0 }

// Limits says whether the tempo holds us back more than the ceiling does.
func (t *AdaptiveRate) Limits(now time.Time) bool {
	return t.phase != PhaseFull && (now.Before(t.until) || t.present(now) < t.ceiling)
}

// present is the rate at a time, after any rest.
func (t *AdaptiveRate) present(now time.Time) float64 {
	if t.phase == PhaseFull {
		return t.ceiling
	}
	r := t.rate
	if now.Before(t.until.Add(t.ramp)) {
		done := int(now.Sub(t.until) * rampSteps / max(1, t.ramp))
		r *= float64(min(max(0, done), rampSteps-1)+1) / rampSteps
	}
	return min(t.ceiling, max(r, t.floor()))
}

// Permits gives our share of the rate that is let go now, for a Window, and until when
// nothing is: a time that is over means now.
func (t *AdaptiveRate) Permits(now time.Time) (Rate, time.Time) {
	return windowed(t.present(now)*t.share, t.slow.recent), t.until
}

// Next is when Permits gives something else though nothing was heard; zero: never.
func (t *AdaptiveRate) Next(now time.Time) time.Time {
	switch end := t.until.Add(t.ramp); {
	case t.phase == PhaseFull:
	case now.Before(t.until):
		return t.until
	case now.Before(end):
		step := t.ramp / rampSteps
		return t.until.Add((now.Sub(t.until)/max(1, step) + 1) * step)
	}
	return time.Time{}
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

// OnSuccess takes a good answer to an event that was sent at a time: anything that is no
// complaint.
func (t *AdaptiveRate) OnSuccess(sent, now time.Time) {
	t.credit = min(t.credit+1.0/trialPrice, 2*max(1, t.cost)+1)
	if t.idle(sent) {
		t.cycle, t.passed = sent, 0
	}
	t.last = sent
	t.passed++
	t.flow.add(sent)
	if sent.Before(t.lesson) || sent.Before(t.until) {
		return
	}
	if t.clean++; t.clean == 1 && !t.trouble.IsZero() {
		t.over(now)
	}
	t.fade(now)
	if sent.Before(t.began) || t.phase == PhaseFull {
		return
	}
	if t.phase == PhaseBackingOff {
		t.recovered(now)
		return
	}
	t.heard++
	t.prove(sent, now)
}

// OnOther takes an answer that is about its address alone: it was sent, and proves nothing.
func (t *AdaptiveRate) OnOther(sent time.Time) {
	if !sent.Before(t.began) {
		t.other++
	}
}

// TakeBack undoes OnOther for an answer that may yet be about our pace.
func (t *AdaptiveRate) TakeBack(sent time.Time) {
	if !sent.Before(t.began) && t.other > 0 {
		t.other--
	}
}

// idle says whether there was nothing to ask for a while before an event.
func (t *AdaptiveRate) idle(sent time.Time) bool {
	gap := min(sent.Sub(t.last), sent.Sub(t.until))
	return t.trouble.IsZero() && gap > time.Minute && gap.Seconds() > 4/max(t.rate*t.share, floorLeast)
}

// proofMost bounds how long a rate has to go well.
func (t *AdaptiveRate) proofMost() time.Duration {
	return max(proofSpan, time.Duration(proofCount/max(t.rate*t.share, floorLeast)*float64(time.Second)))
}

// fade makes proofs shorter again while all goes well.
func (t *AdaptiveRate) fade(now time.Time) {
	if t.proof > proofLeast && now.Sub(t.faded) > proofFades*t.proof {
		t.proof, t.faded = max(proofLeast, t.proof/2), now
	}
}

// recovered goes on at the whole rate when the ramp is over.
func (t *AdaptiveRate) recovered(now time.Time) {
	t.enter(PhaseHolding, now, t.why)
	t.stretch(now)
}

// prove looks whether the rate has gone well for long enough, and raises it.
func (t *AdaptiveRate) prove(sent, now time.Time) {
	span, answers := t.proof, proofAnswers
	switch {
	case t.phase == PhaseStarting:
		span, answers = startProof, startAnswers
	case t.phase == PhaseRising && t.edge == 0:
		span /= proofAbove
	}
	ran := sent.Sub(t.began)
	if ran < span || t.heard < answers {
		return
	}
	if float64(t.heard+t.other) < proofUse*min(t.rate, t.ceiling)*t.share*ran.Seconds() {
		if ran > 2*span { // others hold us back, or there is little to ask: it proves nothing
			t.stretch(now)
		}
		return
	}
	r := min(t.rate, t.ceiling)
	if t.strikes = 0; r > t.good {
		t.goodWas, t.good, t.rose = t.good, r, now
	}
	if t.phase == PhaseRising {
		t.step, t.trials = min(2*t.step, stepMost), 0
		if !t.isDear() {
			t.dear = 0
		}
	}
	if t.good >= t.edge {
		t.edge, t.dear = 0, 0 // it bears that now
	}
	if t.good >= t.known {
		t.known = 0
	}
	t.raise(now)
}

// raise tries more, when that is worth its price.
func (t *AdaptiveRate) raise(now time.Time) {
	if t.rate >= t.ceiling {
		if t.edge <= t.ceiling { // else it is kept in mind for when the ceiling is raised
			t.atCeiling(now)
		}
		return
	}
	if t.slow.rising() {
		t.enter(PhaseHolding, now, fmt.Sprintf("answers take %s, %s at best; holding %s",
			t.slow.recent.Round(time.Millisecond), t.slow.best.Round(time.Millisecond), perSecond(t.rate)))
		t.stretch(now)
		return
	}
	if t.phase == PhaseStarting {
		t.rate = min(2*t.rate, t.ceiling)
		t.why = fmt.Sprintf("nothing was said against %s; now %s", perSecond(t.good), perSecond(t.rate))
		t.stretch(now)
		return
	}
	to := t.good * (1 + t.step)
	switch {
	case t.edge > 0 && t.isDear(): // at once to where it is free, and then by the least steps
		to = max(freeBelow*t.edge, t.good*(1+stepLeast))
	case t.edge > 0:
		to = min(to, max(freeBelow*t.edge, t.good*(1+max(stepLeast, (t.edge/t.good-1)/2))))
	}
	free := t.edge > 0 && to <= freeBelow*t.edge
	if !free && (t.credit < t.cost || now.Before(t.gap)) {
		if t.phase != PhaseHolding {
			t.enter(PhaseHolding, now, t.why)
		}
		return
	}
	if !free && t.isDear() {
		t.gap = now.Add(t.nextTrial())
	}
	t.step = max(stepLeast, to/t.good-1)
	t.rate = min(to, t.ceiling)
	t.enter(PhaseRising, now, fmt.Sprintf("nothing was said against %s; trying %s", perSecond(t.good),
		perSecond(t.rate)))
	t.stretch(now)
}

// atCeiling ends the search: the allowance went well.
func (t *AdaptiveRate) atCeiling(now time.Time) {
	t.edge, t.known, t.step, t.trials = 0, 0, stepLeast, 0
	t.enter(PhaseFull, now, fmt.Sprintf("nothing was said against the whole allowance of %s", perSecond(t.ceiling)))
}

// OnThrottled takes an answer that says "too fast" to an event that was sent at a time, with
// its words for people. False: it is about a haste that was known already.
func (t *AdaptiveRate) OnThrottled(sent, now time.Time, words string) bool {
	return t.throttled(sent, now, words, false)
}

// OnDeferred is OnThrottled for a few answers among many that went well: we were a little too
// fast, so the rate falls and nothing rests.
func (t *AdaptiveRate) OnDeferred(sent, now time.Time, words string) bool {
	return t.throttled(sent, now, words, true)
}

func (t *AdaptiveRate) throttled(sent, now time.Time, words string, gently bool) bool {
	t.credit = max(t.credit-1, -1)
	if sent.Before(t.lesson) || sent.Before(t.until) {
		t.around++
		return false
	}
	if t.around > 0 && t.rising {
		t.cost = (t.cost + t.around) / 2
	}
	t.rising = t.phase == PhaseRising
	pace := t.pace(sent)
	t.around, t.lesson = 1, now
	// What it counts over is still full of what was too fast: that ends by resting, not by going slower.
	full := t.proof >= longRest && t.rest > 0 && now.Sub(t.lowered) < t.proof/4 && !gently
	fresh := (t.clean > 0 || t.rest == 0) && !full
	if fresh && gently && t.phase != PhaseBackingOff {
		t.lower(pace, sent, now)
		t.enter(PhaseHolding, now, fmt.Sprintf("%s at %s, which passed later; now %s", words, perSecond(pace), perSecond(t.rate)))
		t.stretch(now)
		return true
	}
	if fresh {
		t.lower(pace, sent, now)
		t.known = pace
		t.rest = min(restLeast, t.restMost)
	} else {
		t.rest = min(2*t.rest, t.restMost)
	}
	if t.trouble.IsZero() {
		t.trouble, t.tried = now, t.rising
	}
	t.backOff(now, t.rest)
	t.enter(PhaseBackingOff, now, fmt.Sprintf("%s at %s; resting %s, then %s", words, perSecond(pace),
		t.rest.Round(time.Second), perSecond(t.rate)))
	return true
}

// Restore goes on as an earlier state of it did, because what was believed since was wrong.
func (t *AdaptiveRate) Restore(saved *AdaptiveRate, now time.Time, why string) {
	if saved.ceiling != t.ceiling || saved.share != t.share || saved.stated != t.stated {
		saved.ceiling, saved.share, saved.stated = t.ceiling, t.share, t.stated
	}
	live := *t
	*t = *saved
	t.cycle, t.passed, t.last, t.before, t.flow = live.cycle, live.passed, live.last, live.before, live.flow
	t.lesson, t.until, t.ramp, t.trouble, t.rest, t.clean = live.lesson, now, 0, time.Time{}, 0, 1
	if t.phase == PhaseBackingOff {
		t.phase = PhaseHolding
	}
	t.enter(t.phase, now, why)
	t.stretch(now)
}

// unlearn forgets what put-offs taught that weren't about our pace: a higher rate may be tried at once.
func (t *AdaptiveRate) unlearn(now time.Time) {
	if t.edge = t.known; t.edge == 0 {
		t.proof = proofLeast
	}
	t.credit, t.trials, t.gap = max(t.credit, t.cost), 0, now
}

// backOff lets nothing go for a while, and then little by little.
func (t *AdaptiveRate) backOff(now time.Time, rest time.Duration) {
	t.clean, t.until = 0, now.Add(rest)
	t.ramp = min(max(rest, rampLeast), rampMost)
	t.stretch(t.until.Add(t.ramp))
}

// pace is how fast we really were.
func (t *AdaptiveRate) pace(sent time.Time) float64 {
	r := t.present(sent)
	ran := sent.Sub(t.began).Seconds()
	if n := float64(t.heard); n >= proofAnswers && ran >= 1 && t.phase != PhaseFull { // where nobody counts
		r = min(r, 1.1*n/ran/t.share)
	}
	if n := t.flow.over(sent, time.Second); n >= t.few {
		r = min(r, 1.1*float64(n)/t.share)
	}
	return max(r, t.floor())
}

// through is how many good answers a second we had of late.
func (t *AdaptiveRate) through(now time.Time) float64 {
	const span = 4
	return float64(max(span*t.flow.over(now, time.Second), t.flow.over(now, span*time.Second))) / span
}

// lower learns that a pace was too fast.
func (t *AdaptiveRate) lower(pace float64, sent, now time.Time) {
	proven := t.good > 0 && pace <= 1.005*t.good
	if proven && sent.Before(t.rose) && t.goodWas > 0 { // it was no proof: the complaint was on its way
		t.good, proven = t.goodWas, false
	}
	t.strikes++
	to := pace * drops[min(t.strikes, len(drops))-1]
	switch {
	case proven:
		if now.Sub(t.rose) < proofLate*t.proof { // else the limit is another by now
			t.proof = min(2*t.proof, t.proofMost())
		}
		t.good = 0
	case t.good > 0 && t.good >= pace/2: // a trial
		to = t.good
		t.strikes = 0
		t.trials++
	case t.strikes == 1:
		to = pace * dropUnproven
	}
	t.edge, t.step = pace, stepLeast
	t.faded, t.lowered = now, now
	t.gap = now.Add(t.nextTrial())
	t.rate = min(t.ceiling, max(to, t.floor()))
}

// Rested takes over a rest that somebody else has decided: nothing is sent before its end,
// and then little by little.
func (t *AdaptiveRate) Rested(until, now time.Time) {
	if !until.After(t.until) {
		return
	}
	t.backOff(now, until.Sub(now))
	if t.phase == PhaseFull {
		t.rate = t.ceiling
	}
	t.enter(PhaseBackingOff, now, fmt.Sprintf("%s; asked to wait until %s", t.why, until.UTC().Format(time.TimeOnly)))
}

// OnLatency takes how long a good answer took that the far side had no reason to hold back.
func (t *AdaptiveRate) OnLatency(took time.Duration, now time.Time) {
	if !t.slow.add(took, now) || now.Sub(t.slow.lowered) < t.proof || t.phase == PhaseBackingOff {
		return
	}
	r := min(t.present(now), t.ceiling)
	if t.slow.from == 0 {
		t.slow.from = r
	}
	to := max(0.9*r, t.slow.from/2, t.floor())
	if to >= r {
		return
	}
	t.slow.lowered = now
	t.rate, t.good, t.edge, t.step = to, 0, 0, stepLeast
	t.enter(PhaseHolding, now, fmt.Sprintf("answers take %s, %s at best; slowed from %s to %s",
		t.slow.recent.Round(time.Millisecond), t.slow.best.Round(time.Millisecond), perSecond(r), perSecond(to)))
	t.stretch(now)
}

// latency compares how long answers take with how long they took at best.
type latency struct {
	recent, best time.Duration
	samples      int
	at           time.Time // of the newest answer
	lowered      time.Time
	from         float64 // the rate before it was lowered for this; 0: it was not
}

const (
	// latencySamples is how many answers it takes to know. Guess.
	latencySamples = 32

	// Answers that take latencyHold times as long as at best, and latencySlack more, end
	// raises; latencyLower times as long lowers the rate. Guess: greylisting and the like
	// take twice as long as other answers, a busy server ten times.
	latencyHold  = 3
	latencyLower = 8
	latencySlack = 250 * time.Millisecond
)

// add takes one answer and says whether they take much too long.
func (l *latency) add(took time.Duration, now time.Time) bool {
	if l.samples == 0 {
		l.recent, l.best, l.at = took, took, now
	}
	l.samples++
	l.recent += (took - l.recent) / 16
	if took < l.best {
		l.best = took
	} else { // a way that became longer is the best one within hours
		l.best += time.Duration(float64(l.recent-l.best) * min(1, now.Sub(l.at).Hours()))
	}
	l.at = now
	if !l.rising() {
		l.from = 0
	}
	return l.samples >= latencySamples && l.recent > latencyLower*l.best+latencySlack
}

// rising says whether answers take too long to go faster.
func (l *latency) rising() bool {
	return l.samples >= latencySamples && l.recent > latencyHold*l.best+latencySlack
}

// RateState says what an AdaptiveRate does and why.
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

// Explain says what the tempo does now.
func (t *AdaptiveRate) Explain(now time.Time) RateState {
	s := RateState{Rate: t.present(now), Floor: t.floor(), Ceiling: t.ceiling, Edge: t.edge, Phase: t.phase,
		Since: t.since, Until: t.until, Why: t.why}
	if now.Before(t.until) {
		s.Rate = 0
	} else if t.phase == PhaseBackingOff {
		s.Phase, s.Since = PhaseRecovering, t.until
	}
	return s
}

// Lasting is the rate, our share of it, that is gone on with when a rest and what follows it
// are over. While nothing is known of a site that is the ceiling.
func (t *AdaptiveRate) Lasting() float64 {
	if t.phase == PhaseFull || t.phase == PhaseStarting {
		return t.ceiling * t.share
	}
	return min(t.rate, t.ceiling) * t.share
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

// RateMemory is what an AdaptiveRate knows that the next one can begin with.
type RateMemory struct {
	Rate  float64       // that went well, events a second, all shares together
	Edge  float64       // where it was too fast; 0: not known
	Proof time.Duration // how long a rate has to go well to be believed
}

// recallProof bounds what is believed of a RateMemory.
const recallProof = time.Hour

// Remember gives what is worth remembering; false when nothing but the ceiling holds.
func (t *AdaptiveRate) Remember() (RateMemory, bool) {
	if t.phase == PhaseFull || t.phase == PhaseStarting || t.edge == 0 && t.rate >= t.ceiling {
		return RateMemory{}, false
	}
	rate := t.rate
	if t.good > 0 {
		rate = min(rate, t.good)
	}
	return RateMemory{Rate: rate, Edge: t.edge, Proof: t.proof}, true
}

// Recall begins with what an earlier AdaptiveRate knew, little by little. Of what is known
// already the stricter holds.
func (t *AdaptiveRate) Recall(m RateMemory, now time.Time) {
	if !(m.Rate > 0) || t.phase != PhaseFull && t.phase != PhaseStarting && t.rate <= m.Rate {
		return
	}
	t.rate, t.good, t.edge, t.step = max(m.Rate, t.floor()), 0, 0, stepLeast
	if m.Edge > m.Rate {
		t.edge, t.known = m.Edge, m.Edge
	}
	t.proof = min(max(t.proof, m.Proof), recallProof)
	t.backOff(now, 0)
	t.ramp, t.began = rampMost/rampSteps, now.Add(rampMost/rampSteps)
	t.enter(PhaseBackingOff, now, fmt.Sprintf("%s went well before this receiver's place moved, or we began anew",
		perSecond(m.Rate)))
}

// near reports whether two counts are about the same: a limit that is counted over long lets as many
// through each time.
func near(a, b int) bool { return a > 0 && b > 0 && 4*min(a, b) >= 3*max(a, b) }

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
