package throttle

import (
	"math"
	"time"
)

const (
	// oddUsual is the share of first tries that are put off at a receiver of which nothing
	// is known, and oddMost bounds what is learned: above it nothing can be told any more.
	oddUsual = 0.03
	oddMost  = 0.9

	// oddMargin is how much more than was seen is taken for usual: what was seen is a sample.
	oddMargin = 1.3

	// oddTrials is over how many trials the usual share is learned. Guess.
	oddTrials = 60

	// believedAt is from where on a suspicion is believed: three in a row that are put off
	// where three in a hundred are usual, or half of a dozen.
	believedAt = 7.5

	// sumMost bounds the sum, so that a dozen good answers end what was believed for long.
	sumMost = 2 * believedAt
)

// suspicion is a running sum over first tries in one scope (CUSUM, Page 1954): it rises with
// each that is put off and falls with each that is answered, and never below zero. The zero
// value is ready.
type suspicion struct {
	sum   float64
	since time.Time // when it was last above nothing
	odd   float64   // share of first tries that stay put off, as seen
	said  bool      // that it is believed
}

// usual is the share that is expected to be put off without any cause beyond its address.
func (s *suspicion) usual(floor float64) float64 {
	return min(oddMost, max(oddUsual, floor, oddMargin*s.odd))
}

// steps are what a trial adds that is put off, and what one takes away that is answered.
func steps(usual float64) (up, down float64) {
	far := max(0.5, (1+usual)/2)
	return math.Log(far / usual), math.Log((1 - usual) / (1 - far))
}

// add takes a trial of a weight, above a usual share that a wider scope knows.
func (s *suspicion) add(bad bool, weight, floor float64, at time.Time) {
	if s.sum == 0 {
		s.since = at
	}
	up, down := steps(s.usual(floor))
	if bad {
		s.sum = min(sumMost, s.sum+weight*up)
	} else {
		s.sum = max(0, s.sum-down)
	}
	s.said = s.said && s.believed()
}

// believed reports whether the scope is the cause.
func (s *suspicion) believed() bool { return s.sum >= believedAt }

// settle learns what became of a trial: how likely it is that the address alone is odd.
func (s *suspicion) settle(odd float64) {
	s.odd += (odd - s.odd) / oddTrials
}
