package throttle

import "time"

// How a number grows whose limit is unknown.
const (
	// An unknown receiver begins at 1/startShare of the allowance. The number doubles after the good answers of
	// startFor seconds, from startFew to startMany. startRow times as many in a row, but at least startRowLeast,
	// outweigh earlier deferrals: greylisting may end with the first addresses that come back.
	startShare              = 5
	startFor                = 2.0
	startFew, startMany     = 2, 64
	startRow, startRowLeast = 2, 6

	// After growsAfter good answers, or those of growsFor seconds but at least growsLeast, the number grows by
	// growth, up to nearEdge of the last number that was too high.
	growsAfter = 20
	growsLeast = 6
	growsFor   = 3.0
	growth     = 1.25
	nearEdge   = 0.95

	// From there it is raised by stepLeast, doubled after each raise that went well, up to stepMost; each raise must go
	// well for trialAfter good answers and for trialFor. One raise by stepLong tests whether the limit really counts
	// over a long time.
	stepLeast, stepMost = 0.02, 0.25
	stepLong            = 0.5
	trialAfter          = 100
	trialTime           = 5.0
	trialFor            = 3 * time.Second

	// Good answers pay for deferrals near the edge: creditPrice of them earn one, up to creditMost are saved, and a
	// raise needs creditTrial.
	creditPrice             = 400
	creditLeast, creditFor  = 150.0, 60.0
	creditMost, creditTrial = 2.0, 1.5

	// trialGap is the least time from a failed raise to the next one, doubled for each in a row up to trialGapMost.
	// It is at least trialWorth times the time in which nothing passed because of it. If the ceiling is much higher,
	// more can be won: then worthLeast times are enough, doubled for each in a row.
	trialGap     = 15 * time.Second
	trialGapMost = 5 * time.Minute
	trialWorth   = 20.0
	worthLeast   = 6.0

	// wonShort: after this many successful raises in a row, a limit that seemed to count over a long time is no limit.
	wonShort = 3

	// A rate that went well for provedAfter good answers and provedFor is tried again at once after it fell to less than
	// its fellBy: after returnGap, twice as long after each failure, returnsMost times.
	provedAfter = 40
	provedFor   = 4 * time.Second
	fellBy      = 1.0 / 3
	returnGap   = 10 * time.Second
	returnsMost = 5

	// usedFrom is the part of a number that must be used to prove it; otherwise the check starts again after usedFor.
	usedFrom = 0.7
	usedFor  = 4 * time.Second

	// slowest is the lowest rate: one every five seconds.
	slowest = 1.0 / 5
)

// search finds how many events a second a receiver tolerates. The rate grows while all goes well: fast up to the last
// one that was too high, and from there in small steps that good answers pay for.
type search struct {
	ceiling float64
	stated  bool
	rate    float64 // that is used now
	proved  float64 // the newest rate that went well
	edge    float64 // the rate that was too high; 0: unknown
	steps
	raises
	fell   fall
	step   float64       // size of the next raise beyond the edge
	long   bool          // the limit counts over a long time
	cycle  time.Duration // over about this time
	trying bool          // the newest raise went beyond the edge
	credit float64       // deferrals that may be caused
	gap    time.Time
	hold   time.Time // no raise before this time

	counts
}

// counts are of the present rate.
type counts struct {
	began    time.Time // since when the rate holds
	answered int       // answers to events since began that don't speak against the rate
	passed   int       // of answered, good ones
	used     int       // all answers to events since began
	bads     float64   // of used, how many were deferred for a reason that isn't their own
	inRow    int       // good answers since the newest such deferral
}

// steps counts the small steps down since a raise went well.
type steps struct {
	stepsFrom  float64 // the rate before the first step; 0: there is none
	stepsAt    time.Time
	stepsShare float64 // share that was deferred then
}

// raises counts the newest ones in a row that failed, and that went well.
type raises struct {
	fails, won int
	failedAt   time.Time // when one last failed within trialFor
}

// fall is what a rate fell from that had gone well for some time: the cause may end by itself.
type fall struct {
	from      float64 // good answers a second; 0: none
	returnAt  time.Time
	returned  int
	returning bool // the newest raise went back to it
}

// bound sets the allowed rate.
func (s *search) bound(b RateBounds) { s.ceiling, s.stated = b.Ceiling.PerSecond(), b.Stated }

// begin starts at the configured rate, or gently.
func (s *search) begin(now time.Time) {
	s.rate, s.step, s.credit = s.ceiling, stepLeast, creditMost
	if !s.stated {
		s.rate = max(s.floor(), s.ceiling/startShare)
	}
	s.stretch(now)
}

// floor is the lowest rate.
func (s *search) floor() float64 { return min(s.ceiling, slowest) }

// stretch starts the counts of a new rate.
func (s *search) stretch(now time.Time) {
	s.counts = counts{began: now}
}

// good handles a good answer to an event and reports whether the rate was raised. usual is the share that is deferred
// at any pace.
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
	if s.used++; s.rate >= s.ceiling || float64(s.passed) < (1-nearlyAll)*float64(s.used) { // or it may be a penalty
		return false
	}
	ran := sent.Sub(s.began)
	if float64(s.answered) < (1-usual)*float64(s.needed(share)) || s.bads > (shareSet+usual)*float64(s.used) ||
		now.Before(s.hold) || s.trying && ran < max(trialFor, s.cycle) {
		return false
	}
	if float64(s.used) < usedFrom*s.rate*share*ran.Seconds() {
		if ran > usedFor { // the rate isn't used: this proves nothing
			s.stretch(now)
		}
		return false
	}
	return s.raise(now)
}

// goodPerDeferral returns how many good answers pay for a deferral: as many as a minute brings, from creditLeast to
// creditPrice, so that a low rate doesn't wait for longer than a high one.
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
		if s.step >= stepLong { // at a limit that counts over a long time, that much more would not have passed
			s.long, s.cycle = false, 0
		}
		s.trying, s.fails, s.steps, s.step = false, 0, steps{}, min(2*s.step, s.stepMost())
		if s.edge = max(s.edge, s.rate/nearEdge); s.fell.returning { // so what ended it was no limit
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

// bad handles a bad answer to an event sent at a time, weighted by how likely our pace is the cause. If that is most
// unlikely, the answer proves the rate as a good one does.
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

// useRate counts an answer that used the rate but says nothing about it.
func (s *search) useRate(sent time.Time) {
	if !sent.Before(s.began) {
		s.used++
	}
}

// stepMost returns the largest step: a small one if an excess shows late.
func (s *search) stepMost() float64 {
	if s.long {
		return 2 * stepLeast
	}
	return stepMost
}

// spend lowers the credit for a deferral by chance, the probability that our pace is its cause.
func (s *search) spend(chance float64) { s.credit = max(s.credit-chance, -creditMost) }

// lower goes down to a rate, because a higher one was too much.
func (s *search) lower(to, edge float64, now time.Time) {
	s.credit = max(s.credit, 0)
	if s.edge == 0 { // so that a short or mistaken limit doesn't slow us for long
		s.credit = creditTrial
	}
	if s.trying && (s.fell.returning || s.step >= stepLong) { // far beyond the edge, so it stays where it was
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

// failedTrial notes a failed raise; lasted is how long nothing passed because of it, next the rate after it.
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

// If a raise far beyond a limit that counts over a long time has used that limit up, spentUntil returns when the
// limit lets more through; otherwise zero.
func (s *search) spentUntil() time.Time {
	if !s.trying || s.step < stepLong {
		return time.Time{}
	}
	return s.began.Add(s.cycle)
}

// flow counts answers by when their events were sent, in steps of flowStep.
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

// mostInSecond returns the most events of a second in the newest flowSpan, and how many these had in all.
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
