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

// finalsMax is how many addresses may become final before the parent gets them, and drainPause is the pause until the
// next finals. A million cases at once would take some hundred megabytes, and the parent has to keep up.
const (
	finalsMax  = 1000
	drainPause = time.Millisecond
)

type step any

type (
	findRoute    struct{}
	findReceiver struct{ after time.Duration } // looks up the receiver of the route
	leave        struct{}                      // forgets the receiver
	tell         struct{ msg proto.Message }   // sends a message to the receiver
	reply        struct{ msg proto.Message }   // answers the message under way
	recall       struct{ keys []string }       // asks what the cluster knows of hosts: see behaviourKey
)

// job is what the parts of a planner share: the work, the steps, and the finals of this round.
type job struct {
	options Options
	work    Work
	start   time.Time
	left    int // addresses without a final outcome
	finals  []Final
	steps   []step
}

// since returns a time as pending has it: since the start of the planner.
func (j *job) since(now time.Time) time.Duration { return now.Sub(j.start) }

func (j *job) addStep(s step) { j.steps = append(j.steps, s) }

// isCut reports whether finalsMax addresses became final in this round. Other addresses wait for the next round.
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

// conclude gives an address its outcome, if its case is closed. Only conclude makes a Final, and only verdict.Conclude
// makes an outcome.
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

// giveUp ends an address by closing its case as it is. why is smtp.ReasonNone if the last attempt has the reason.
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

// caseTime returns the time of the last attempt of a case. Without an attempt, or if DNS decided, caseTime returns now.
func caseTime(now time.Time, c evidence.Case) time.Time {
	if n := len(c.Attempts); n > 0 && c.NoRoute == smtp.ReasonNone && !c.Attempts[n-1].At.IsZero() {
		return c.Attempts[n-1].At
	}
	return now
}

// earliest returns the earliest of some times. The zero time stands for never.
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

// after returns a time, or the zero time if the time is past.
func after(now, t time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}
