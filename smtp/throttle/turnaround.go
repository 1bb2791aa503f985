package throttle

import "time"

// Turnaround learns the shortest time between a command and its reply. Anything longer is jitter: the receiver may have
// seen the command that much later. Until the shortest is known, a command counts as seen when its reply came. A tenth
// of the shortest counts as jitter too, or half of the newest excess if that is more, because a shorter time may yet
// come, such as when a busy machine becomes idle.
type Turnaround struct {
	Lowest  time.Duration
	Samples int
	jitter  time.Duration // of the newest, on average
}

// TurnaroundSamples is how many answers it takes to know the shortest. Guess.
const TurnaroundSamples = 8

// turnaroundKept is how many answers the average of jitter covers.
const turnaroundKept = 8

// yetShorter returns how much shorter than the shortest so far a time may turn out to be.
func yetShorter(shortest, jitter time.Duration) time.Duration {
	return max(shortest/10, min(shortest, jitter/2))
}

// Seen returns the latest time, in times of sending, at which the receiver saw a command.
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

// Lead learns the least time from giving a probe to a session until its RCPT is sent: RSET and MAIL, each a turn, come
// before it. Rates are kept at the time of sending, so that these turns cost none of it.
type Lead struct {
	least   time.Duration
	samples int
	jitter  time.Duration
}

// leadSamples is how many probes it takes to know the least. Guess.
const leadSamples = 16

// Learn takes one such time.
func (l *Lead) Learn(took time.Duration) {
	if l.samples == 0 || took < l.least {
		l.least = max(0, took)
	}
	l.samples = min(l.samples+1, leadSamples)
	l.jitter += (took - l.least - l.jitter) / turnaroundKept
}

// Known returns the least time, lowered by how much shorter one may yet be.
func (l *Lead) Known() time.Duration {
	if l.samples < leadSamples {
		return 0
	}
	return l.least - yetShorter(l.least, l.jitter)
}
