package domain

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// finalsMax is how many addresses become final in one round before the parent gets them, and drainPause is the pause
// before the next: a million cases at once would take some hundred megabytes, and the parent has to keep up.
const (
	finalsMax  = 1000
	drainPause = time.Millisecond
)

type step any

type (
	findRoute    struct{}
	findReceiver struct{ after time.Duration } // of the route
	leave        struct{}                      // forget the receiver
	tell         struct{ msg proto.Message }   // to the receiver
	reply        struct{ msg proto.Message }   // to the sender of the message at hand
	recall       struct{ keys []string }       // what the cluster knows of hosts: see behaviourKey
)

// job is what the parts of a planner share: the work, and the steps and finals of this round.
type job struct {
	options Options
	work    Work
	start   time.Time
	left    int // addresses without a final outcome
	finals  []Final
	steps   []step
}

// since turns a time into the form of pending.
func (j *job) since(now time.Time) time.Duration { return now.Sub(j.start) }

func (j *job) addStep(s step) { j.steps = append(j.steps, s) }

// isCut reports whether finalsMax addresses became final in this round, so that others wait for the next.
func (j *job) isCut() bool { return len(j.finals) >= finalsMax }

var finalRooms = sync.Pool{New: func() any { return new([]Final) }}

func (j *job) takeFinals() []Final {
	finals := slices.Clone(j.finals)
	if room := j.finals; room != nil {
		clear(room)
		j.finals = nil
		finalRooms.Put(&room)
	}
	return finals
}

// conclude gives an address its outcome, if its case is closed. It is the only place where a Final is made, and
// verdict.Conclude the only one where an outcome is.
func (j *job) conclude(now time.Time, ordinal uint32, c evidence.Case) bool {
	outcome, reason := verdict.Conclude(c)
	if !outcome.Final() {
		return false
	}
	j.left--
	if j.finals == nil {
		j.finals = (*finalRooms.Get().(*[]Final))[:0]
	}
	j.finals = append(j.finals, Final{Ordinal: ordinal, Outcome: outcome, Reason: reason,
		At: caseTime(now, c), Case: c})
	return true
}

// giveUp ends an address without an answer: its case is closed as it is. why is smtp.ReasonNone when the last attempt
// says it.
func (j *job) giveUp(now time.Time, ordinal uint32, c evidence.Case, why smtp.Reason) {
	last, asked := c.Last()
	switch {
	case why == smtp.DNSFailed:
		c.NoRoute = why
	case !asked || why != last.Reason:
		c.Why = why
	}
	c.GaveUp = true
	j.conclude(now, ordinal, c)
}

// caseTime returns the time of the last attempt of a case, or now if DNS decided or there is none.
func caseTime(now time.Time, c evidence.Case) time.Time {
	if n := len(c.Attempts); n > 0 && c.NoRoute == smtp.ReasonNone && !c.Attempts[n-1].At.IsZero() {
		return c.Attempts[n-1].At
	}
	return now
}

// earliest returns the earliest of some times; the zero time is never.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// after returns a time, or the zero time when it is past.
func after(now, t time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}
