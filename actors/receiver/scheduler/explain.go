package scheduler

import (
	"fmt"
	"math"
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// This file alone decides why a file waits for a receiver. explain returns a Blocked with the cause and its end;
// sentenceOf puts it into words. Pulses, metrics, lists and pages all show this Blocked. The causes, strongest first:
//   - nothing may be asked (unavailable): an operator's pause, no share, the receiver's pause, or no usable source;
//   - asking is limited (slowed): no host can be dialled, no refusals are left, the rate is used up, or all sessions
//     are in use.

const (
	// latelySpan is the time over which we find out whether the rate or the sessions are the limit. latelySpan is several
	// times the gap between two RCPTs at most receivers, so that lists don't flicker.
	latelySpan = 2 * time.Second

	// latelyPart: the rate counts as the cause if it was the limit for at least this part of latelySpan. In that case more
	// sessions wouldn't help.
	latelyPart = 0.25
)

// constraints are the values from which explain decides what keeps us from asking more.
type constraints struct {
	now    time.Time
	limits throttle.Limits // what may be asked here now
	share  registry.Fraction

	ready       bool               // the stored snapshot was read
	readyBy     time.Time          // when we stop waiting for the snapshot
	paused      time.Time          // end of an operator's pause; zero: not known
	pausedUntil time.Time          // end of the receiver's pause
	sources     status.Blocked     // why none of our sources may ask
	resumes     throttle.RateState // rate of the source that resumes first, if all pause briefly; no Until: one may ask
	capEnds     time.Time          // when a source's daily cap ends before the day does; zero: no cap does
	hosts       status.Blocked     // why no host can be dialled
	budget      bool               // the refusal budget is used up
	budgetAt    time.Time          // when the budget has some again
	queued      int
	open        int  // sessions, without those that are closing
	asking      bool // a session is asking
	blocks      blocksNow
	rated       float64 // part of latelySpan in which the rate was the limit
	crowded     float64 // part of latelySpan in which the sessions were the limit

	details details // numbers and reasons for sentenceOf
}

// details are numbers and reasons for the sentences.
type details struct {
	permitted float64   // permitted RCPTs a second
	slowed    string    // why permitted is below the limit; "": permitted is the limit
	pausedFor Judgement // why the whole receiver is paused
	pausedBy  string
	noSource  string
	silent    int       // sessions that ended here and that the receiver may still count
	silentTo  time.Time // when the first of them is over at the latest
	slotless  bool      // the waiting workspaces have all the sessions of this node that they may have
}

// explain returns why we can't ask more, without the sentence.
func explain(s *constraints) status.Blocked {
	b := s.unavailable()
	if b.Free() {
		b = s.slowed()
	}
	if b.Cause == wire.Cause_NO_SOURCE && !s.capEnds.IsZero() && s.capEnds.Before(b.Until) {
		b.Until = s.capEnds
	}
	return b
}

// unavailable returns the cause if nothing may be asked at all.
func (s *constraints) unavailable() status.Blocked {
	switch a := &s.limits; {
	case a.Pause == throttle.PauseYes, a.Pause == throttle.PauseDrain && s.open == 0:
		return status.Blocked{Cause: wire.Cause_PAUSED, Until: s.paused}
	case nothingAllowed(*a):
		return status.Blocked{Cause: wire.Cause_NO_SHARE}
	case !s.ready:
		return status.Blocked{Cause: wire.Cause_NO_SHARE, Until: s.readyBy}
	case s.now.Before(s.pausedUntil):
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: s.pausedUntil}
	case !s.sources.Free() && (s.sources.Cause != wire.Cause_PAUSED || s.open == 0): // else the open sessions drain
		return s.sources
	case s.now.Before(s.resumes.Until):
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: s.resumes.Until}
	}
	return status.Blocked{}
}

// slowed returns what limits us although something may be asked.
func (s *constraints) slowed() status.Blocked {
	switch found := &s.blocks.found; {
	case !s.hosts.Free() || s.queued == 0:
		return s.hosts
	case s.budget:
		return status.Blocked{Cause: wire.Cause_BUDGET, Until: s.budgetAt}
	case found[wire.Cause_BUDGET] && !s.asking:
		return s.blocks.blocked(wire.Cause_BUDGET)
	case found[wire.Cause_NO_SOURCE] && !s.asking:
		return s.blocks.blocked(wire.Cause_NO_SOURCE)
	case found[wire.Cause_ALLOWANCE], s.rated >= latelyPart:
		return s.blocks.blocked(wire.Cause_ALLOWANCE)
	case found[wire.Cause_CONNECTIONS], s.crowded >= 1-latelyPart:
		return s.blocks.blocked(wire.Cause_CONNECTIONS)
	}
	return status.Blocked{}
}

func sentenceOf(s *constraints, cause wire.Cause) string {
	a, excuse := &s.limits, &s.details.pausedFor
	switch cause {
	case wire.Cause_ALLOWANCE:
		if s.details.slowed != "" {
			return fmt.Sprintf("RCPT commands at %.3g/s are permitted here now, of %s allowed: %s",
				s.details.permitted, a.RcptRate, s.details.slowed)
		}
		return fmt.Sprintf("RCPT commands at %s are permitted here now, and all are used", a.RcptRate)
	case wire.Cause_CONNECTIONS:
		if s.details.slotless {
			return "its workspaces have all the SMTP sessions of this node that they may have at once"
		}
		silent := ""
		if n := s.details.silent; n > 0 {
			silent = fmt.Sprintf("; it may also count %d that we ended and it didn't confirm, one of them until %s UTC", n,
				s.details.silentTo.UTC().Format(time.TimeOnly))
		}
		return fmt.Sprintf("%d of %d sessions are open, and %s may be opened%s", s.open, a.Connections, a.ConnectionRate,
			silent)
	case wire.Cause_BUDGET:
		if a.RefusedShare > 0 {
			return fmt.Sprintf("it may refuse %d addresses in an hour, or %d %% of its answers, and has refused as many",
				a.RefusedPerHour, a.RefusedShare)
		}
		return fmt.Sprintf("it may refuse %d addresses in an hour, and has refused as many", a.RefusedPerHour)
	case wire.Cause_PAUSED:
		return s.details.pausedBy
	case wire.Cause_PENALTY:
		switch {
		case !s.now.Before(s.pausedUntil) && s.now.Before(s.resumes.Until):
			return s.resumes.Why
		case !excuse.wasAsked():
			return "it asked for less, and is paused"
		}
		return fmt.Sprintf("it asked for less, and is paused: %d %s, %s (rule %s)", excuse.Attempt.Code,
			excuse.Attempt.Enhanced, excuse.Verdict.Reason, excuse.Verdict.Rule)
	case wire.Cause_NO_SOURCE:
		return s.details.noSource
	case wire.Cause_NO_SHARE:
		switch {
		case s.share.IsNone():
			return "this node has no share of the limits, or has lost the ledger"
		case nothingAllowed(*a):
			return fmt.Sprintf("this node's share of the limits, %d of %d, is too small to ask anything",
				s.share.K, s.share.N)
		}
		return "what other nodes know of it is being read"
	case wire.Cause_UNREACHED:
		return "its hosts cannot be reached"
	}
	switch {
	case s.queued == 0 && s.asking:
		return "its last addresses are being asked"
	case s.queued == 0:
		return "nothing waits"
	}
	return "it asks as fast as it is answered"
}

// blocksNow holds the causes that limited the last plan, and when each ends.
type blocksNow struct {
	found [wire.Cause_UNREACHED + 1]bool
	until [wire.Cause_UNREACHED + 1]time.Time // zero: the cause ends with the next answer
}

// add notes a cause. If a cause is noted twice, the earlier end counts.
func (l *blocksNow) add(cause wire.Cause, until time.Time) {
	if !l.found[cause] || until.Before(l.until[cause]) {
		l.until[cause] = until
	}
	l.found[cause] = true
}

func (l *blocksNow) blocked(cause wire.Cause) status.Blocked {
	return status.Blocked{Cause: cause, Until: l.until[cause]}
}

// blocksLately holds for which part of the last latelySpan each cause held.
type blocksLately struct {
	at   time.Time
	last blocksNow
	part [wire.Cause_UNREACHED + 1]float64
}

// note records the causes that hold from now on.
func (h *blocksLately) note(now time.Time, l blocksNow) {
	if keep := math.Exp(-now.Sub(h.at).Seconds() / latelySpan.Seconds()); now.After(h.at) {
		for i := range h.part {
			h.part[i] *= keep
			if h.last.found[i] {
				h.part[i] += 1 - keep
			}
		}
	}
	h.at, h.last = now, l
}

// over returns the part of a cause as of now.
func (h blocksLately) over(now time.Time, cause wire.Cause) float64 {
	h.note(now, h.last)
	return h.part[cause]
}
