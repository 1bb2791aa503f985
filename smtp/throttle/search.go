package throttle

import "time"

// search finds an unknown limit, of RCPTs or of openings a second, by raising a rate until it is too high (lower).
// Below the last rate that was too high, the edge, the rate rises fast. Near the edge it rises in small steps that good
// answers pay for, and each raise is a trial: if a raise fails, the next raise comes later.
const (
	// At an unknown receiver the rate begins at 1/startShare of the allowed one. It doubles after the good answers of
	// startFor seconds, at least startFew and at most startMany. After startRow times as many in a row, at least
	// startRowLeast, earlier deferrals no longer count: greylisting may end with the first addresses that come back.
	startShare              = 5
	startFor                = 2.0
	startFew, startMany     = 2, 64
	startRow, startRowLeast = 2, 6

	// The rate grows by the factor growth after the good answers of growsFor seconds, at least growsLeast and at most
	// growsAfter. It grows up to nearEdge of the edge.
	growsAfter = 20
	growsLeast = 6
	growsFor   = 3.0
	growth     = 1.25
	nearEdge   = 0.95

	// From there a raise is stepLeast. The step doubles after each raise that went well, up to stepMost. A raise goes well
	// if it lasts for trialFor and gets the good answers of trialTime seconds, at most trialAfter. One raise by stepLong
	// tests whether a limit really counts over a long time.
	stepLeast, stepMost = 0.02, 0.25
	stepLong            = 0.5
	trialAfter          = 100
	trialTime           = 5.0
	trialFor            = 3 * time.Second

	// Near the edge good answers pay for deferrals. creditPrice good answers earn credit for one deferral; at most
	// creditMost is saved. A raise needs a credit of creditTrial.
	creditPrice             = 400
	creditLeast, creditFor  = 150.0, 60.0
	creditMost, creditTrial = 2.0, 1.5

	// After a failed raise we wait for trialGap, doubled after each failure in a row, up to trialGapMost. If nothing
	// passed for a time because of the raise, we wait at least trialWorth times that time. If the ceiling is much higher,
	// a raise can win more: then we wait worthLeast times that time, doubled after each failure in a row.
	trialGap     = 15 * time.Second
	trialGapMost = 5 * time.Minute
	trialWorth   = 20.0
	worthLeast   = 6.0

	// wonShort: after this many good raises in a row, there is no limit over a long time, although one was supposed.
	wonShort = 3

	// If a rate went well for provedAfter good answers and for provedFor, and then fell to less than fellBy of it, the old
	// rate is tried again directly. The first such try comes after returnGap. The wait doubles after each failure, and
	// there are at most returnsMost tries.
	provedAfter = 40
	provedFor   = 4 * time.Second
	fellBy      = 1.0 / 3
	returnGap   = 10 * time.Second
	returnsMost = 5

	// A rate is proven only if at least usedFrom of it was used. If less was used, the check starts again after usedFor.
	usedFrom = 0.7
	usedFor  = 4 * time.Second

	// slowest is the lowest rate: one event every five seconds.
	slowest = 1.0 / 5
)

// search holds the rate and what was learned about its limit.
type search struct {
	ceiling float64
	stated  bool
	rate    float64 // the rate in use now
	proved  float64 // the newest rate that went well
	edge    float64 // the newest rate that was too high; 0: not known
	steps
	raises
	fell   fall
	step   float64       // size of the next raise above the edge
	long   bool          // the limit counts over a long time
	cycle  time.Duration // about the time over which it counts
	trying bool          // the newest raise went above the edge
	credit float64       // deferrals that we may still cause
	gap    time.Time
	hold   time.Time // the rate isn't raised before this time

	counts
}

// counts holds the counts since the rate last changed.
type counts struct {
	began    time.Time // when the rate last changed
	answered int       // answers that don't speak against the rate
	passed   int       // how many of answered are good
	used     int       // all answers
	bads     float64   // estimated number deferred for another reason than their address
	inRow    int       // good answers since the newest such deferral
}

// steps counts the small steps down since the last good raise.
type steps struct {
	stepsFrom  float64 // the rate before the first step; 0: no step
	stepsAt    time.Time
	stepsShare float64 // share that was deferred at stepsFrom
}

// raises counts how many of the newest raises failed in a row, and how many went well in a row.
type raises struct {
	fails, won int
	failedAt   time.Time // when a raise last failed within trialFor
}

// fall holds the rate that had gone well before it fell. The cause may have ended, so search tries it again.
type fall struct {
	from      float64 // good answers a second at that rate; 0: no such rate
	returnAt  time.Time
	returned  int
	returning bool // the newest raise went back to the old rate
}

// bound sets the allowed rate.
func (s *search) bound(b RateBounds) { s.ceiling, s.stated = b.Ceiling.PerSecond(), b.Stated }

// begin starts at a stated ceiling, and otherwise at a part of the ceiling.
func (s *search) begin(now time.Time) {
	s.rate, s.step, s.credit = s.ceiling, stepLeast, creditMost
	if !s.stated {
		s.rate = max(s.floor(), s.ceiling/startShare)
	}
	s.stretch(now)
}

func (s *search) floor() float64 { return min(s.ceiling, slowest) }

// stretch starts new counts for a new rate.
func (s *search) stretch(now time.Time) {
	s.counts = counts{began: now}
}

// good handles a good answer, and reports whether it raised the rate. usual is the share that is deferred at any rate.
func (s *search) good(sent, now time.Time, share, usual float64) bool {
	s.credit = min(creditMost, s.credit+1/s.goodPerDeferral()+usual)
	if sent.Before(s.began) {
		return false
	}
	s.answered++
	s.passed++
	if s.inRow++; s.edge == 0 && s.inRow >= max(startRow*s.needed(share), startRowLeast) {
		s.bads = 0
	}
	if ran := sent.Sub(s.began); s.passed >= provedAfter && ran >= provedFor {
		if well := float64(s.passed) / share / ran.Seconds(); well > s.fell.from {
			s.fell.from, s.fell.returned = well, 0
		}
	}
	if s.used++; s.rate >= s.ceiling || float64(s.passed) < (1-nearlyAll)*float64(s.used) { // perhaps a penalty
		return false
	}
	ran := sent.Sub(s.began)
	if float64(s.answered) < (1-usual)*float64(s.needed(share)) || s.bads > (shareSet+usual)*float64(s.used) ||
		now.Before(s.hold) || s.trying && ran < max(trialFor, s.cycle) {
		return false
	}
	if float64(s.used) < usedFrom*s.rate*share*ran.Seconds() {
		if ran > usedFor { // too little of the rate was used to prove it
			s.stretch(now)
		}
		return false
	}
	return s.raise(now)
}

// goodPerDeferral returns how many good answers pay for a deferral: as many as come in about a minute, from creditLeast
// to creditPrice. So a low rate doesn't wait longer than a high one.
func (s *search) goodPerDeferral() float64 {
	return min(max(creditFor*s.rate, creditLeast), creditPrice)
}

// needed returns how many good answers prove the rate.
func (s *search) needed(share float64) int {
	switch {
	case s.trying:
		return min(max(int(trialTime*s.rate*share), growsLeast), trialAfter)
	case s.edge == 0 && !s.stated && s.rate < s.ceiling:
		return min(max(int(startFor*s.rate*share), startFew), startMany)
	}
	return min(max(int(growsFor*s.rate*share), growsLeast), growsAfter)
}

// raise tries a higher rate.
func (s *search) raise(now time.Time) bool {
	s.proved = s.rate
	if s.trying { // the receiver tolerates more than before
		if s.step >= stepLong { // a limit over a long time would have stopped this raise
			s.long, s.cycle = false, 0
		}
		s.trying, s.fails, s.steps, s.step = false, 0, steps{}, min(2*s.step, s.stepMost())
		if s.edge = max(s.edge, s.rate/nearEdge); s.fell.returning { // so the rate fell for another reason than a limit
			s.edge, s.fell.returning = 0, false
		}
		if s.won++; s.won >= wonShort {
			s.long, s.cycle = false, 0
		}
	}
	to := s.rate
	switch {
	case s.fell.returned < returnsMost && to < fellBy*s.fell.from && !now.Before(s.fell.returnAt):
		to, s.trying, s.fell.returning = min(s.fell.from, nearEdge*s.ceiling), true, true
	case s.edge == 0 && s.stated:
		to = s.ceiling
	case s.edge == 0:
		to *= 2
	case s.rate < nearEdge*s.edge:
		to = min(growth*s.rate, max((s.rate+s.edge)/2, (1+stepLeast)*s.rate))
	case s.credit >= creditTrial && !now.Before(s.gap):
		to, s.trying = (1+s.step)*s.rate, true
	}
	if to >= s.ceiling {
		to, s.trying = s.ceiling, false
		if s.edge <= s.ceiling {
			s.edge = 0
		}
	}
	raised := to > s.rate
	s.rate = to
	s.stretch(now)
	return raised
}

// bad handles a bad answer. chance is the probability that our rate is the cause. If that probability is very low, the
// answer proves the rate as a good answer does.
func (s *search) bad(sent time.Time, chance float64) {
	if sent.Before(s.began) {
		return
	}
	s.used++
	s.bads += chance
	if chance < likelyOwn {
		s.answered++
	} else {
		s.inRow = 0
	}
}

// useRate counts an answer that shows how much of the rate was used, and nothing else.
func (s *search) useRate(sent time.Time) {
	if !sent.Before(s.began) {
		s.used++
	}
}

// stepMost returns the largest step. The step is small at a limit over a long time, where an excess shows late.
func (s *search) stepMost() float64 {
	if s.long {
		return 2 * stepLeast
	}
	return stepMost
}

// spend takes credit for a deferral. chance is the probability that our rate is the cause.
func (s *search) spend(chance float64) { s.credit = max(s.credit-chance, -creditMost) }

// lower lowers the rate, because a higher one was too much.
func (s *search) lower(to, edge float64, now time.Time) {
	s.credit = max(s.credit, 0)
	if s.edge == 0 { // the limit may be short or mistaken: find out soon
		s.credit = creditTrial
	}
	if s.trying && (s.fell.returning || s.step >= stepLong) { // the raise was far above the edge, so the edge stays
		edge = min(edge, max(s.edge, to))
	}
	if s.fell.returning {
		s.fell.returned, s.fell.returning = s.fell.returned+1, false
	}
	if s.rate >= fellBy*s.fell.from {
		s.fell.returnAt = now.Add(returnGap << s.fell.returned)
	}
	s.rate, s.edge = min(s.ceiling, max(to, s.floor())), max(edge, s.floor())
	s.won = 0
	s.trying, s.steps, s.step = false, steps{}, stepLeast
	s.gap = later(s.gap, now.Add(trialGap))
	s.stretch(now)
}

// failedTrial notes a failed raise. lasted is how long nothing passed because of the raise, and next is the rate after
// the raise.
func (s *search) failedTrial(now time.Time, lasted time.Duration, next float64) {
	if s.trying {
		if s.fails++; now.Sub(s.began) < trialFor {
			s.failedAt = now
		}
	}
	worth := max(worthLeast, trialWorth*2*next/max(s.ceiling-next, next))
	worth = min(worth*float64(int(1)<<min(s.fails, 10)), trialWorth)
	least := min(trialGap<<min(s.fails, 10), trialGapMost)
	s.gap = later(s.gap, now.Add(max(least, time.Duration(worth*float64(lasted)))))
}

// spentUntil is for a raise far above a limit that counts over a long time. If the raise used the limit up, spentUntil
// returns when the limit lets more through. In other cases spentUntil returns zero.
func (s *search) spentUntil() time.Time {
	if !s.trying || s.step < stepLong {
		return time.Time{}
	}
	return s.began.Add(s.cycle)
}

// flow counts answers by the sending times of their events, in steps of flowStep.
type flow struct {
	counts [flowSteps]int32
	newest int64 // number of the newest step
}

const (
	flowStep  = 100 * time.Millisecond
	flowSteps = 64
	flowSpan  = (flowSteps - 1) * flowStep
)

func (f *flow) add(sent time.Time) {
	at := sent.UnixNano() / int64(flowStep)
	f.newest = max(f.newest, at-flowSteps)
	for ; f.newest < at; f.newest++ {
		f.counts[(f.newest+1)%flowSteps] = 0
	}
	if at > f.newest-flowSteps {
		f.counts[at%flowSteps]++
	}
}

// mostInSecond returns the most events in any second of the newest flowSpan, and all events of that span.
func (f *flow) mostInSecond() (most, all int) {
	for at := max(0, f.newest-flowSteps+1); at <= f.newest; at++ {
		most = max(most, f.inSecond(at))
		all += int(f.counts[at%flowSteps])
	}
	return most, all
}

// over returns how many events were sent in the second before a time.
func (f *flow) over(sent time.Time) int { return f.inSecond(sent.UnixNano() / int64(flowStep)) }

func (f *flow) inSecond(at int64) (n int) {
	for k := max(0, at-int64(time.Second/flowStep)); k <= at; k++ {
		if k > f.newest-flowSteps && k <= f.newest {
			n += int(f.counts[k%flowSteps])
		}
	}
	return n
}
