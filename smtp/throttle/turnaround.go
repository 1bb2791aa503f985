package throttle

import "time"

// Turnaround learns the shortest time that something takes, such as a reply to a command. Longer times are jitter. A
// shorter time may still come, for example when a busy machine becomes idle. So a margin also counts as jitter: a tenth
// of the shortest time, or half of the newest excess if that is more.
type Turnaround struct {
	Lowest  time.Duration
	Samples int           // number of samples, at most TurnaroundSamples
	jitter  time.Duration // average of the newest excesses
}

// TurnaroundSamples is how many samples it takes to know the shortest time. Guess.
const TurnaroundSamples = 8

// turnaroundKept is over how many times the jitter is averaged.
const turnaroundKept = 8

// Learn adds one sample.
func (t *Turnaround) Learn(took time.Duration) {
	if t.Samples == 0 || took < t.Lowest {
		t.Lowest = max(0, took)
	}
	t.Samples = min(t.Samples+1, TurnaroundSamples)
	t.jitter += (took - t.Lowest - t.jitter) / turnaroundKept
}

// isKnown reports whether the shortest time is known.
func (t *Turnaround) isKnown() bool { return t.Samples >= TurnaroundSamples }

// yetShorter returns by how much a time may still fall below the shortest so far.
func (t *Turnaround) yetShorter() time.Duration { return max(t.Lowest/10, min(t.Lowest, t.jitter/2)) }

// Seen returns by when the receiver had seen a command, on the scale of sending times: when the reply came, less the
// shortest time to a reply if it is known.
func (t *Turnaround) Seen(sent, at time.Time) time.Time {
	took, known := at.Sub(sent), t.isKnown()
	if t.Learn(took); !known {
		return at
	}
	return sent.Add(took - t.Lowest + t.yetShorter())
}

// Least returns the shortest time less the margin; 0 until the shortest time is known.
func (t *Turnaround) Least() time.Duration {
	if !t.isKnown() {
		return 0
	}
	return t.Lowest - t.yetShorter()
}
