package throttle

import "time"

const (
	// transientBelow is the part of a rate at which put-offs that pass later aren't about our pace any
	// more: a limit so far below it puts off so many that the receiver is believed to be the cause.
	transientBelow = 0.7

	// transientSettles is how long a limit may still count what was asked before we went slower. Guess:
	// receivers count over a minute at most.
	transientSettles = 65 * time.Second

	// transientEnough is how many put-offs at the lower rate show that it isn't our pace, and
	// transientFor how long that holds. Guesses.
	transientEnough = 3
	transientFor    = 15 * time.Minute

	// transientMargin is how much more than was usual is put off until our pace is suspected again,
	// and transientTrials over how many new addresses that is counted. Guesses.
	transientMargin = 0.02
	transientTrials = 100

	// transientQuiet is how many would have been put off among those that were answered in a row, at the
	// share of before. Guess: one chance in 150.
	transientQuiet = 5

	// transientMost is above which share of new addresses put-offs aren't now and then. Guess.
	transientMost = 0.1
)

// Transients tells new addresses that are put off now and then at any pace, and pass a moment
// later, from those that are put off because we are a little too fast: these stop when we go
// slower. The zero value is ready. Not safe for concurrent use.
type Transients struct {
	share float64 // of the newest new addresses

	open  bool
	saved AdaptiveRate // as it was before
	from  float64      // how fast we asked then
	low   time.Time    // since when we ask at the lower rate
	bad   int          // that were put off at that
	high  float64      // share before we went slower
	quiet int          // answered since one was put off last

	until time.Time // it isn't our pace
	usual float64
}

// Answered takes a new address that was answered at once. So many in a row that the share of before is out
// of the question show that it was our pace: what comes next is a new case.
func (s *Transients) Answered() {
	s.share -= s.share / transientTrials
	if s.quiet++; s.open && float64(s.quiet)*s.high >= transientQuiet {
		s.open = false
	}
}

// Reset forgets a test that is being made: the receiver was believed to be the cause.
func (s *Transients) Reset() { s.open = false }

// Passed takes a new address that was sent at a time, was put off with some words and passed later,
// and lowers the rate when that may be because we go too fast.
func (s *Transients) Passed(rate *AdaptiveRate, sent, now time.Time, words string) {
	if !s.tooFast(rate, sent, now) {
		return
	}
	rate.OnDeferred(sent, now, words)
	if least := 0.97 * transientBelow * s.from; s.share <= transientMost { // lower would tell nothing more
		rate.rate = max(rate.rate, min(least, rate.ceiling))
	}
}

func (s *Transients) tooFast(rate *AdaptiveRate, sent, now time.Time) bool {
	s.share += (1 - s.share) / transientTrials
	s.quiet = 0
	if now.Before(s.until) && s.share <= min(2*s.usual+transientMargin, transientMost) {
		return false
	}
	if !s.open {
		*s = Transients{share: s.share, open: true, saved: *rate, from: rate.pace(sent), high: s.share}
		return true
	}
	low := rate.present(now) <= max(transientBelow*s.from, rate.floor())
	if !low {
		s.high = max(s.high, s.share)
	}
	if !low || s.share > transientMost {
		return true
	}
	switch {
	case s.low.IsZero():
		s.low = now
	case sent.Sub(s.low) > transientSettles:
		s.bad++
	}
	if s.bad >= transientEnough {
		s.open, s.until, s.usual = false, now.Add(transientFor), s.share
		rate.Restore(&s.saved, now, "some new addresses are put off at any pace and pass later: it isn't our pace")
		rate.unlearn(now)
	}
	return false
}
