package throttle

import "time"

// Turnaround knows the shortest time between a command and its reply. What is
// longer than that is jitter: so much later may the receiver have seen it. The
// first few answers count as seen when they came, until the shortest is known; and a
// tenth of it counts as jitter too, because a shorter one may yet be seen.
type Turnaround struct {
	Lowest  time.Duration
	Samples int
}

// TurnaroundSamples is how many answers it takes to know the shortest. Guess.
const TurnaroundSamples = 8

// Seen says when, counted in the times of sending, the receiver saw a command at
// the latest.
func (t *Turnaround) Seen(sent, at time.Time) time.Time {
	took := at.Sub(sent)
	if t.Samples == 0 || took < t.Lowest {
		t.Lowest = took
	}
	if t.Samples < TurnaroundSamples {
		t.Samples++
		return at
	}
	return sent.Add(took - t.Lowest + t.Lowest/10)
}

// Lead knows how long it takes at least from giving a probe to a session until
// its RCPT is sent: RSET and MAIL come before it, and each is a turn. A rate is
// kept at the time of sending, so that these turns cost nothing of it.
type Lead struct {
	least   time.Duration
	samples int
}

// leadSamples is how many probes it takes to know the least. Guess.
const leadSamples = 16

// Learn takes how long it took once.
func (l *Lead) Learn(took time.Duration) {
	if l.samples == 0 || took < l.least {
		l.least = max(0, took)
	}
	l.samples = min(l.samples+1, leadSamples)
}

// Known is the least time less a tenth, because a shorter one may yet be seen.
func (l *Lead) Known() time.Duration {
	if l.samples < leadSamples {
		return 0
	}
	return l.least - l.least/10
}
