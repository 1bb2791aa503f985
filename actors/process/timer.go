package process

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Timer is one actor's next wake-up. The zero Timer is not set. Mailbox only.
type Timer struct {
	set   bool
	timer *time.Timer // of the newest turn; nil: it was due at once
	due   time.Time
	turn  uint64
}

// WakeUp is the message that a timer sends to its actor.
type WakeUp struct{ turn uint64 }

// Set wakes the actor of c at a time, or now if that is past. A timer already set to an earlier time stays; the zero
// time sets nothing.
func (t *Timer) Set(c actor.Context, now, wake time.Time) {
	if wake.IsZero() || t.set && !wake.Before(t.due) {
		return
	}
	t.Stop()
	t.turn++
	root, self, turn := c.ActorSystem().Root, c.Self(), t.turn
	t.set, t.due = true, wake
	if !wake.After(now) {
		// Never a timer of length zero: in a synctest bubble Go 1.26 runs it on the caller's stack, where the race
		// detector crashes.
		root.Send(self, WakeUp{turn})
		return
	}
	t.timer = GuardOf(c.ActorSystem()).After(wake.Sub(now), "timer", func() { root.Send(self, WakeUp{turn}) }, nil)
}

// Rang takes a WakeUp, unsets the timer, and returns how late it is. False: the message is of an older setting.
func (t *Timer) Rang(m WakeUp, now time.Time) (late time.Duration, ok bool) {
	if m.turn != t.turn || !t.set {
		return 0, false
	}
	t.set, t.timer = false, nil
	return now.Sub(t.due), true
}

// Stop unsets the timer.
func (t *Timer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.set, t.timer = false, nil
}
