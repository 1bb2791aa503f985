package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/verdict"
)

// harvestFor is how long a receiver is left alone whose guard against address
// harvesting has spoken, when it names no time: Cisco's counts by the hour.
const harvestFor = time.Hour

// penaltyWaits are those of a penalty that names no time.
func (e *env) penaltyWaits() []time.Duration {
	if own := e.limits.Waits.List(); len(own) > 0 {
		return own
	}
	return e.options.Waits
}

// firstWait is the shortest time after which an address is asked again, when a receiver names none.
func (e *env) firstWait() time.Duration { return e.penaltyWaits()[0] }

// restFirst is how long a source rests when it is refused for the first time: no longer than firstWait.
func (e *env) restFirst() time.Duration {
	return min(e.options.restHour().Of(suspendFirst), e.firstWait())
}

// restUntold is the longest rest of our sources that those who wait aren't told of: the first rest is below
// it, and the next one above.
func (e *env) restUntold() time.Duration {
	return min(suspendUntold, e.firstWait()*4/3)
}

// penaltyWait is how long the nth trouble in a row keeps us away.
func (e *env) penaltyWait(v verdict.Verdict, nth int) time.Duration {
	if v.Wait > 0 {
		return v.Wait
	}
	waits := e.penaltyWaits()
	wait := waits[min(nth, len(waits)-1)]
	if v.Reason == smtp.HarvestGuard {
		wait = max(wait, e.options.scaleHour(harvestFor))
	}
	return wait
}

// downFor is how long a host is left alone after so many tries that failed.
func (e *env) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return e.options.Stretched(wait + e.jitter(wait/10))
}
