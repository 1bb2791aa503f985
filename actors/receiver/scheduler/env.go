package scheduler

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"
)

// env is what every part of a scheduler has in common.
type env struct {
	options    Options
	key        string
	rand       *rand.Rand // for waits that should not all end at once
	steps      []Step     // that the next plan gives
	now        time.Time  // of the newest plan
	wake       time.Time  // earliest reason to plan again
	dirty      bool       // something was learned and not noted
	handingOff bool       // the place has moved
}

func (e *env) emitTo(to Client, msg proto.Message) {
	e.steps = append(e.steps, Send{To: to, Msg: msg})
}

// jitter returns a random time below most.
func (e *env) jitter(most time.Duration) time.Duration {
	return time.Duration(e.rand.Int64N(int64(max(1, most))))
}

// wakeAt asks to be woken no later than t.
func (e *env) wakeAt(t time.Time) {
	if !t.IsZero() && (e.wake.IsZero() || t.Before(e.wake)) {
		e.wake = t
	}
}
