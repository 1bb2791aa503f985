package receiver

import (
	"fmt"
	"time"

	"rollcall/actors/wire"
)

// holdsBack says what keeps the desk from asking more, until when as far as that is
// known, and that in a sentence.
func (d *desk) holdsBack(now time.Time) (cause wire.Cause, until time.Time, why string) {
	if d.share.none() {
		return wire.Cause_NO_SHARE, until, "this node has no share of the allowance now"
	}
	if d.allowance.Pause == "yes" {
		return wire.Cause_PAUSED, until, "an operator has paused it"
	}
	if now.Before(d.paused) {
		return wire.Cause_PENALTY, d.paused, "the receiver wanted less of us"
	}
	if muted, until := d.mute(now); muted {
		return wire.Cause_NO_SOURCE, until, "none of our sources may speak to it"
	}
	if d.tasks.queued == 0 {
		return wire.Cause_FREE, until, "nothing waits"
	}
	if ok, next := d.spendable(now); !ok {
		return wire.Cause_BUDGET, next, fmt.Sprintf("%d refusals an hour are allowed, and used up",
			d.allowance.RefusedPerHour)
	}
	switch {
	case d.hopeful:
		return wire.Cause_ALLOWANCE, until, fmt.Sprintf("%s are allowed", d.allowance.RcptRate)
	case d.pressed:
		return wire.Cause_CONNECTIONS, until, fmt.Sprintf("%d sessions are allowed", d.allowance.Connections)
	}
	return wire.Cause_FREE, until, "it asks as fast as it is answered"
}
