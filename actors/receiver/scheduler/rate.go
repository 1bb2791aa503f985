package scheduler

import (
	"fmt"
	"math"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// shortRest is up to how long a source rests without a word to those who wait; what
	// takes longer is told to them, and sessions end. Guess: below it telling them and
	// having their probes again is more work than waiting.
	shortRest = time.Minute
)

// isStated says whether somebody has said how fast a receiver may be asked.
func (o *Options) isStated(key string) bool { return o.Stated == nil || o.Stated(key) }

// readyAt is how many probes the rate of a source lets go at a time of sending, and when it
// lets none go the time to ask again; zero: when an open probe is answered.
func (o *egressPath) readyAt(at time.Time) (int, time.Time) {
	if !o.pace.Limits(at) {
		return math.MaxInt, time.Time{}
	}
	if _, until := o.pace.Permits(at); at.Before(until) {
		return 0, until
	}
	return o.rcpts.Ready(at)
}

// rateLimited says whether a verdict says that we ask too fast.
func rateLimited(v verdict.Verdict) bool {
	return (v.Action == verdict.ActSlow || v.Action == verdict.ActPause) && v.Reason == smtp.ReceiverRateLimited
}

// words are those of an attempt for people: its code, or why there was none.
func words(a evidence.Attempt) string {
	switch {
	case a.Code == 0:
		return a.Trouble.String()
	case a.Enhanced != (smtp.EnhancedCode{}):
		return fmt.Sprintf("%d %s", a.Code, a.Enhanced)
	}
	return fmt.Sprint(a.Code)
}
