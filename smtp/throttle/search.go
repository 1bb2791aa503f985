package throttle

import "time"

// How a number grows that a receiver doesn't tell.
const (
	// startShare is the part of what is allowed at which an unknown receiver is begun. It is doubled after as many
	// good answers as come in startFor, between startFew and startMany.
	startShare          = 5
	startFor            = 2.0
	startFew, startMany = 2, 64

	// growsAfter good answers, or as many as come in growsFor but growsLeast, a number grows by growth, up to nearEdge of
	// where it was too much.
	growsAfter = 20
	growsLeast = 6
	growsFor   = 3.0
	growth     = 1.25
	nearEdge   = 0.95

	// From there it is raised by stepLeast, twice as much after each raise that went well, up to stepMost, and each
	// raise has to go well for trialAfter good answers and trialFor.
	stepLeast, stepMost = 0.02, 0.25
	trialAfter          = 100
	trialTime           = 5.0
	trialFor            = 3 * time.Second

	// Deferrals near the edge are paid for with good answers: one in creditPrice, of which creditMost are kept and
	// creditTrial are needed for a raise.
	creditPrice             = 400
	creditMost, creditTrial = 2.0, 1.5

	// trialGap is how long it takes at least from a raise that went badly to the next one, twice as long after each in a
	// row up to trialGapMost, and trialWorth times as long as nothing passed because of it.
	trialGap     = 15 * time.Second
	trialGapMost = 5 * time.Minute
	trialWorth   = 20

	// wonShort raises in a row that go well, and a limit that was taken for one that counts over long is none.
	wonShort = 3

	// usedFrom is the part of a number that has to be used for it to be proven; else it is looked at anew after usedFor.
	usedFrom = 0.7
	usedFor  = 4 * time.Second

	// slowest is the least: one every five seconds.
	slowest = 1.0 / 5
)

// search finds how many events a second a receiver bears that doesn't say so. It grows while all goes well: fast up to where
// it was too much, and from there in small steps that good answers have to pay for.
type search struct {
	ceiling float64
	stated  bool
	rate    float64 // that is used now
	proved  float64 // the newest that went well
	edge    float64 // where it was too much; 0: not known
	steps
	step   float64       // of the next raise beyond the edge
	long   bool          // the limit counts over long
	cycle  time.Duration // about as long
	trying bool          // the newest raise went beyond the edge
	credit float64       // deferrals that may be caused
	fails  int           // raises in a row that went badly
	won    int           // raises in a row that went well
	gap    time.Time
	hold   time.Time // no raise before

	began    time.Time // of the stretch at this rate
	answered int       // good answers to events of it
	used     int       // all answers to them
	bads     float64   // of these, how many were deferred for a reason that isn't their own
}

// steps are small steps down since a raise went well.
type steps struct {
	stepsFrom  float64 // the rate before the first; 0: there are none
	stepsAt    time.Time
	stepsShare float64 // that was deferred then
}

// bound takes what is allowed.
func (s *search) bound(b RateBounds) { s.ceiling, s.stated = b.Ceiling.PerSecond(), b.Stated }

// begin starts at what is told, or gently.
func (s *search) begin(now time.Time) {
	s.rate, s.step, s.credit = s.ceiling, stepLeast, creditMost
	if !s.stated {
		s.rate = max(s.floor(), s.ceiling/startShare)
	}
	s.stretch(now)
}

// floor is what the rate never falls below.
func (s *search) floor() float64 { return min(s.ceiling, slowest) }

// stretch begins to count at a rate.
func (s *search) stretch(now time.Time) { s.began, s.answered, s.used, s.bads = now, 0, 0, 0 }

// good takes a good answer to an event and reports whether the rate was raised. Usual is the share that is deferred at any pace.
func (s *search) good(sent, now time.Time, share, usual float64) bool {
	s.credit = min(creditMost, s.credit+1.0/creditPrice+usual)
	if sent.Before(s.began) {
		return false
	}
	s.answered++
	if s.used++; s.rate >= s.ceiling {
		return false
	}
	ran := sent.Sub(s.began)
	if s.answered < s.needed(share) || s.bads > (shareTold+usual)*float64(s.used) || now.Before(s.hold) ||
		s.trying && ran < max(trialFor, s.cycle) {
		return false
	}
	if float64(s.used) < usedFrom*s.rate*share*ran.Seconds() {
		if ran > usedFor { // others hold us back, or there is little to ask: it proves nothing
			s.stretch(now)
		}
		return false
	}
	return s.raise(now)
}

// needed is how many good answers prove the rate.
func (s *search) needed(share float64) int {
	switch {
	case s.trying:
		return min(max(int(trialTime*s.rate*share), growsLeast), trialAfter)
	case s.edge == 0 && !s.stated && s.rate < s.ceiling:
		return min(max(int(startFor*s.rate*share), startFew), startMany)
	}
	return min(max(int(growsFor*s.rate*share), growsLeast), growsAfter)
}

// raise tries more than what went well.
func (s *search) raise(now time.Time) bool {
	s.proved = s.rate
	if s.trying { // it bears more than it did
		s.trying, s.fails, s.steps, s.step = false, 0, steps{}, min(2*s.step, s.stepMost())
		s.edge = max(s.edge, s.rate/nearEdge)
		if s.won++; s.won >= wonShort {
			s.long, s.cycle = false, 0
		}
	}
	to := s.rate
	switch {
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

// bad takes a bad answer to an event that was sent at a time, by how likely it is that it is our doing.
func (s *search) bad(sent time.Time, chance float64) {
	if !sent.Before(s.began) {
		s.used++
		s.bads += chance
	}
}

// stepMost is the largest step: where too much is found out late it is small.
func (s *search) stepMost() float64 {
	if s.long {
		return 2 * stepLeast
	}
	return stepMost
}

// spend takes a deferral, by how likely it is that it is our doing.
func (s *search) spend(chance float64) { s.credit = max(s.credit-chance, -creditMost) }

// lower goes down to a rate, because another one was too much.
func (s *search) lower(to, edge float64, now time.Time) {
	s.rate, s.edge = min(s.ceiling, max(to, s.floor())), max(edge, s.floor())
	s.won = 0
	s.trying, s.steps, s.step, s.credit = false, steps{}, stepLeast, max(s.credit, 0)
	s.gap = later(s.gap, now.Add(trialGap))
	s.stretch(now)
}

// failedTrial notes that a raise went badly, and for how long nothing passed because of it.
func (s *search) failedTrial(now time.Time, lasted time.Duration) {
	if s.trying {
		s.fails++
	}
	s.gap = later(s.gap, now.Add(max(min(trialGap<<min(s.fails, 10), trialGapMost), trialWorth*lasted)))
}

// flow counts good answers by when their events were sent, in steps of flowStep.
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

// over returns how many went well of those that were sent in a span before a time.
func (f *flow) over(sent time.Time, span time.Duration) int {
	at, n := sent.UnixNano()/int64(flowStep), 0
	for k := at - int64(span/flowStep); k <= at; k++ {
		if k > f.newest-flowSteps && k <= f.newest {
			n += int(f.counts[k%flowSteps])
		}
	}
	return n
}
