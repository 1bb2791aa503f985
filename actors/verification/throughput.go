package verification

import (
	"math"
	"time"
)

const (
	// samplesMax bounds what is kept to know how fast a run goes: more of the past
	// than twice of what is looked at.
	samplesMax = 64

	// paceOver is the part of a run over which its pace is taken: what was long ago is
	// no longer true, and one second tells nothing. Guess.
	paceOver = 3

	// lastedSteps is how many lengths of time are told apart between one and its double,
	// and lastedMax how many in all: from a millisecond to a fortnight.
	lastedSteps = 4
	lastedMax   = 30 * lastedSteps
)

// throughput is how fast a run goes. It is plain Go. Mailbox only.
type throughput struct {
	samples []sample // oldest first
	every   time.Duration
}

// sample is how far a run was at a time.
type sample struct {
	at        time.Time
	addresses int // that are final
	domains   int // that are done
}

// note keeps how far the run is, now and then.
func (p *throughput) note(now time.Time, addresses, domains int) {
	if n := len(p.samples); n > 0 && now.Sub(p.samples[n-1].at) < p.every {
		return
	}
	p.samples = append(p.samples, sample{now, addresses, domains})
	if len(p.samples) < samplesMax {
		return
	}
	kept := p.samples[:0]
	for i := 0; i < len(p.samples); i += 2 {
		kept = append(kept, p.samples[i])
	}
	p.samples, p.every = kept, max(2*p.every, tickEvery)
}

// rates returns how many addresses become final and how many domains are done in a second:
// as of late or in the whole run, whichever is more, because domains come in crowds; 0: not
// known.
func (p *throughput) rates(now time.Time, addresses, domains int) (finals, done float64) {
	if len(p.samples) == 0 {
		return 0, 0
	}
	from := p.samples[0]
	finals, done = from.rates(now, addresses, domains)
	ago := now.Sub(from.at) / paceOver
	for _, s := range p.samples {
		if now.Sub(s.at) < ago {
			break
		}
		from = s
	}
	late, doneLate := from.rates(now, addresses, domains)
	return max(finals, late), max(done, doneLate)
}

func (s sample) rates(now time.Time, addresses, domains int) (finals, done float64) {
	over := now.Sub(s.at).Seconds()
	if over <= 0 {
		return 0, 0
	}
	return float64(addresses-s.addresses) / over, float64(domains-s.domains) / over
}

// lasted counts how long domains took, by length.
type lasted [lastedMax]int

func (l *lasted) add(took time.Duration) {
	ms := max(1, float64(took.Milliseconds()))
	l[min(int(math.Ceil(math.Log2(ms)*lastedSteps)), lastedMax-1)]++
}

// longest is how long the longest of so many more is expected to take; false: there is
// nothing to go by.
func (l *lasted) longest(more int) (time.Duration, bool) {
	n := 0
	for _, c := range l {
		n += c
	}
	if n == 0 {
		return 0, false
	}
	want := int(math.Ceil(float64(n) * float64(more) / float64(more+1)))
	for i, c := range l {
		if want -= c; want <= 0 {
			return time.Duration(math.Exp2(float64(i)/lastedSteps) * float64(time.Millisecond)), true
		}
	}
	return 0, false // not reached: want is at most n
}
