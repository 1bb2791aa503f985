package cluster

import (
	"sync/atomic"
	"time"
)

// fence reports whether this process may be counted out by the others. Safe for
// concurrent use.
type fence struct {
	after time.Duration // Times.Fence
	ahead time.Duration // Times.Unacknowledged
	sent  atomic.Pointer[time.Time]
}

// beaten notes a heartbeat that the ledger took, by when it was sent.
func (f *fence) beaten(sent time.Time) { f.sent.Store(&sent) }

// up says that this process may use nothing: it has not reached the ledger for
// too long. A machine that slept has a monotonic clock that slept too, and a
// wall clock that was set says too much; the longer of the two times counts.
func (f *fence) up() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after
}

// near says that what is sent now may still be on its way when the fence goes up.
func (f *fence) near() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after-f.ahead
}

// until is when the fence goes up; the zero time: it is.
func (f *fence) until() time.Time {
	if sent := f.sent.Load(); sent != nil && !f.up() {
		return sent.Add(f.after)
	}
	return time.Time{}
}

// since is the longer of the times that the monotonic and the wall clock saw pass.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
