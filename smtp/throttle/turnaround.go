package throttle

import "time"

// Turnaround learns the shortest of the times that something takes, such as a reply to a command. Anything longer is
// jitter. A tenth of the shortest counts as jitter too, or half of the newest excess if that is more, because a shorter
// time may yet come, such as when a busy machine becomes idle.
type Turnaround struct {
	Lowest  time.Duration
	Samples int           // at most TurnaroundSamples
	jitter  time.Duration // of the newest, on average
}

// TurnaroundSamples is how many samples show the shortest time. Guess.
const TurnaroundSamples = 8

// turnaroundKept is how many times the average of jitter covers.
const turnaroundKept = 8

// Learn adds one sample.
func (t *Turnaround) Learn(took time.Duration) {
	if t.Samples == 0 || took < t.Lowest {
		t.Lowest = max(0, took)
	}
	t.Samples = min(t.Samples+1, TurnaroundSamples)
	t.jitter += (took - t.Lowest - t.jitter) / turnaroundKept
}

// isKnown reports whether the shortest is known.
func (t *Turnaround) isKnown() bool { return t.Samples >= TurnaroundSamples }

// yetShorter returns how much shorter than the shortest so far a time may turn out to be.
func (t *Turnaround) yetShorter() time.Duration { return max(t.Lowest/10, min(t.Lowest, t.jitter/2)) }

// Seen returns when the receiver saw a command at the latest, on the scale of sending times: when the reply came,
// less the shortest time to a reply once that is known.
func (t *Turnaround) Seen(sent, at time.Time) time.Time {
	took, known := at.Sub(sent), t.isKnown()
	if t.Learn(took); !known {
		return at
	}
	return sent.Add(took - t.Lowest + t.yetShorter())
}

// Least returns the shortest time, lowered by how much shorter one may yet be; 0 until it is known.
func (t *Turnaround) Least() time.Duration {
	if !t.isKnown() {
		return 0
	}
	return t.Lowest - t.yetShorter()
}
