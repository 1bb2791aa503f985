package receiver

import "time"

// turnaround knows the shortest time between a command and its reply. What is
// longer than that is jitter: so much later may the receiver have seen it. The
// first few answers count as seen when they came, until the shortest is known; and a
// tenth of it counts as jitter too, because a shorter one may yet be seen.
type turnaround struct {
	lowest  time.Duration
	samples int
}

// turnaroundSamples is how many answers it takes to know the shortest. Guess.
const turnaroundSamples = 8

// seen says when, counted in the times of sending, the receiver saw a command at
// the latest.
func (t *turnaround) seen(sent, at time.Time) time.Time {
	took := at.Sub(sent)
	if t.samples == 0 || took < t.lowest {
		t.lowest = took
	}
	if t.samples < turnaroundSamples {
		t.samples++
		return at
	}
	return sent.Add(took - t.lowest + t.lowest/10)
}

// lead knows how long it takes at least from giving a probe to a session until
// its RCPT is sent: RSET and MAIL come before it, and each is a turn. A rate is
// kept at the time of sending, so that these turns cost nothing of it.
type lead struct {
	least   time.Duration
	samples int
}

// leadSamples is how many probes it takes to know the least. Guess.
const leadSamples = 16

func (l *lead) learn(took time.Duration) {
	if l.samples == 0 || took < l.least {
		l.least = max(0, took)
	}
	l.samples = min(l.samples+1, leadSamples)
}

// known is the least time less a tenth, because a shorter one may yet be seen.
func (l *lead) known() time.Duration {
	if l.samples < leadSamples {
		return 0
	}
	return l.least - l.least/10
}
