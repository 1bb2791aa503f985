package cluster

import (
	"sync/atomic"
	"time"
)

const (
	// lostAfter is how long the ledger hears nothing of a process until the others
	// may count it out, and fenceAfter how long after its last good heartbeat was
	// sent a process uses nothing any more. The 2 s between them are for clocks that
	// run differently: the first is the ledger's, the second our own.
	lostAfter  = 10 * time.Second
	fenceAfter = 8 * time.Second
)

// fence says whether this process may be counted out by the others. Safe for
// concurrent use.
type fence struct{ sent atomic.Pointer[time.Time] }

// beaten notes a heartbeat that the ledger took, by when it was sent.
func (f *fence) beaten(sent time.Time) { f.sent.Store(&sent) }

// up says that this process may use nothing: it has not reached the ledger for
// too long. A machine that slept has a monotonic clock that slept too, and a
// wall clock that was set says too much; the longer of the two times counts.
func (f *fence) up() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= fenceAfter
}

// until is when the fence goes up; the zero time: it is.
func (f *fence) until() time.Time {
	if sent := f.sent.Load(); sent != nil && !f.up() {
		return sent.Add(fenceAfter)
	}
	return time.Time{}
}

// since is the longer of the times that the monotonic and the wall clock saw pass.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
