package throttle

import "time"

// Turnaround knows the shortest time between a command and its reply. What is
// longer than that is jitter: so much later may the receiver have seen it. The
// first few answers count as seen when they came, until the shortest is known. A
// tenth of it counts as jitter too, or half of what the newest took longer if that is more,
// because a shorter one may yet be seen: on a busy machine one is seen when it isn't busy any more.
type Turnaround struct {
	Lowest  time.Duration
	Samples int
	jitter  time.Duration // of the newest, on average
}

// TurnaroundSamples is how many answers it takes to know the shortest. Guess.
const TurnaroundSamples = 8

// turnaroundKept is over how many answers jitter is an average.
const turnaroundKept = 8

// yetShorter is by how much a time may turn out to be shorter than the shortest so far.
func yetShorter(shortest, jitter time.Duration) time.Duration {
	return max(shortest/10, min(shortest, jitter/2))
}

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
	t.jitter += (took - t.Lowest - t.jitter) / turnaroundKept
	return sent.Add(took - t.Lowest + yetShorter(t.Lowest, t.jitter))
}

// Lead knows how long it takes at least from giving a probe to a session until
// its RCPT is sent: RSET and MAIL come before it, and each is a turn. A rate is
// kept at the time of sending, so that these turns cost nothing of it.
type Lead struct {
	least   time.Duration
	samples int
	jitter  time.Duration
}

// leadSamples is how many probes it takes to know the least. Guess.
const leadSamples = 16

// Learn takes how long it took once.
func (l *Lead) Learn(took time.Duration) {
	if l.samples == 0 || took < l.least {
		l.least = max(0, took)
	}
	l.samples = min(l.samples+1, leadSamples)
	l.jitter += (took - l.least - l.jitter) / turnaroundKept
}

// Known is the least time less what a shorter one may yet be seen to save.
func (l *Lead) Known() time.Duration {
	if l.samples < leadSamples {
		return 0
	}
	return l.least - yetShorter(l.least, l.jitter)
}
