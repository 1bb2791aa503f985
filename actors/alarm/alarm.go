package alarm

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/guard"
)

// Alarm is one actor's next wake-up. The zero Alarm is not set. Mailbox only.
type Alarm struct {
	set   bool
	timer *time.Timer // of the newest turn; nil: it was due at once
	due   time.Time
	turn  uint64
}

// WakeUp is the message that an alarm sends to its actor.
type WakeUp struct{ turn uint64 }

// Set wakes the actor of c at a time, now at the earliest. An alarm that is set to
// an earlier time stays as it is; the zero time sets nothing.
func (a *Alarm) Set(c actor.Context, now, wake time.Time) {
	if wake.IsZero() || a.set && !wake.Before(a.due) {
		return
	}
	a.Stop()
	a.turn++
	root, self, turn := c.ActorSystem().Root, c.Self(), a.turn
	a.set, a.due = true, wake
	if !wake.After(now) {
		// Not a timer of no length: Go 1.26 runs those of a synctest bubble on the
		// caller's stack, where the race detector crashes.
		root.Send(self, WakeUp{turn})
		return
	}
	a.timer = guard.Of(c.ActorSystem()).After(wake.Sub(now), "alarm", func() { root.Send(self, WakeUp{turn}) }, nil)
}

// Rings takes a WakeUp and says whether it is the newest alarm's, which is not set
// any more then, and how late it is.
func (a *Alarm) Rings(m WakeUp, now time.Time) (late time.Duration, ok bool) {
	if m.turn != a.turn || !a.set {
		return 0, false
	}
	a.set, a.timer = false, nil
	return now.Sub(a.due), true
}

// Stop unsets the alarm.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.set, a.timer = false, nil
}
