package scheduler

import (
	"fmt"
	"math"
	"slices"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// Why a file waits for a receiver is found here alone: explain makes the one Blocked of what holds, and sentence puts it into
// words. Heartbeats, metrics, lists and pages tell this one.

const (
	// latelySpan is over what it is judged whether the rate or the sessions hold a receiver back: several times what most RCPTs
	// wait for each other, so that a list doesn't flicker.
	latelySpan = 2 * time.Second

	// latelyPart is for which part of that span sessions have to wait for the rate, before that is what holds the receiver back:
	// more sessions would not make it faster, and they wait for each other's answers beside.
	latelyPart = 0.25
)

// Standing is what explain goes by.
type Standing struct {
	now    time.Time
	limits throttle.Limits // what may be asked here now
	share  registry.Fraction

	ready    bool           // what other nodes know is known here
	readyBy  time.Time      // or isn't waited for any more
	paused   time.Time      // until when an operator has paused it; zero: nobody knows
	rests    time.Time      // until when the whole receiver is left alone
	sources  status.Blocked // why none of our sources may ask
	resumes  *egressPath    // the first that may ask when all rest for a short while; nil: one may
	capEnds  time.Time      // when a cap of a source ends by itself; zero: at the end of the day
	hosts    status.Blocked // why no host can be dialled
	budget   bool           // none may be refused any more
	budgetAt time.Time      // before that
	queued   int
	open     int  // sessions that don't end
	asking   bool // one of them is asked something
	blocks   blocksNow
	rated    float64 // part of the last while in which the rate held us back
	crowded  float64 // and in which sessions did
}

// explain returns what keeps us from asking more, without a sentence.
func explain(s *Standing) status.Blocked {
	b := s.unavailable()
	if b.Free() {
		b = s.slowed()
	}
	if b.Cause == wire.Cause_NO_SOURCE && !s.capEnds.IsZero() && s.capEnds.Before(b.Until) {
		b.Until = s.capEnds
	}
	return b
}

// unavailable returns what lets nothing be asked at all.
func (s *Standing) unavailable() status.Blocked {
	switch a := &s.limits; {
	case a.Pause == throttle.PauseYes, a.Pause == throttle.PauseDrain && s.open == 0:
		return status.Blocked{Cause: wire.Cause_PAUSED, Until: s.paused}
	case nothingAllowed(*a):
		return status.Blocked{Cause: wire.Cause_NO_SHARE}
	case !s.ready:
		return status.Blocked{Cause: wire.Cause_NO_SHARE, Until: s.readyBy}
	case s.now.Before(s.rests):
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: s.rests}
	case !s.sources.Free() && (s.sources.Cause != wire.Cause_PAUSED || s.open == 0): // else they are drained
		return s.sources
	case s.resumes != nil:
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: s.resumes.pace.Explain(s.now).Until}
	}
	return status.Blocked{}
}

// slowed returns what keeps us from asking more where something may be asked.
func (s *Standing) slowed() status.Blocked {
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

// standing gathers what explain goes by, as far as it is asked for.
func (sc *Scheduler) standing(now time.Time) Standing {
	s := Standing{now: now, limits: sc.limits, share: sc.allowance.share, ready: sc.options.Facts == nil || sc.memory.ready,
		readyBy: sc.memory.asked.Add(knowWithin), rests: sc.paths.receiver.until, sources: sc.paths.sourcesUnavailable(now),
		queued: sc.fair.Queued(), open: len(sc.sessions.all) - sc.sessions.closing, asking: sc.sessions.isAsking(),
		blocks: sc.sessions.lately.last}
	if s.limits.Pause == throttle.PauseYes || s.limits.Pause == throttle.PauseDrain {
		s.paused = sc.pauseEnds(now, sc.key)
	}
	if s.sources.Cause == wire.Cause_PAUSED {
		s.sources.Until = sc.paths.sourcesPaused(now, s.sources.Until)
	}
	if s.sources.Cause == wire.Cause_NO_SOURCE || s.blocks.found[wire.Cause_NO_SOURCE] {
		s.capEnds = sc.paths.capEnds(now)
	}
	if s.resumes = sc.paths.all.firstToResume(now); !s.unavailable().Free() {
		return s
	}
	if s.hosts = sc.queues.unreachable(now); s.queued > 0 && s.hosts.Free() {
		ok, at := sc.paths.mayBeRefused(now)
		s.budget, s.budgetAt = !ok, at
		s.rated, s.crowded = sc.sessions.lately.over(now, wire.Cause_ALLOWANCE), sc.sessions.lately.over(now, wire.Cause_CONNECTIONS)
	}
	return s
}

// explainBlocked returns what keeps us from asking more, in a sentence.
func (sc *Scheduler) explainBlocked(now time.Time) status.Blocked {
	s := sc.standing(now)
	b := explain(&s)
	b.Why = sc.sentence(&s, b.Cause)
	return b
}

// sentence puts a cause into words, with its numbers.
func (sc *Scheduler) sentence(s *Standing, cause wire.Cause) string {
	a, excuse := &s.limits, &sc.paths.receiver.excuse
	switch cause {
	case wire.Cause_ALLOWANCE:
		if o := sc.paths.all.slowedPath(s.now); o != nil {
			return fmt.Sprintf("RCPT commands at %.3g/s are let go here now, of %s that are allowed: %s",
				sc.paths.all.permittedRate(s.now, sc.limits.RcptRate), a.RcptRate, o.pace.Explain(s.now).Why)
		}
		return fmt.Sprintf("RCPT commands at %s are permitted here now, and used", a.RcptRate)
	case wire.Cause_CONNECTIONS:
		if sc.sessions.slotless {
			return "its workspaces have all the SMTP sessions of this node that they may have at once"
		}
		return fmt.Sprintf("%d of %d sessions are open, and %s may be opened", s.open, a.Connections, a.ConnectionRate)
	case wire.Cause_BUDGET:
		if a.RefusedShare > 0 {
			return fmt.Sprintf("it may refuse %d addresses in an hour, or %d %% of its answers, and has", a.RefusedPerHour,
				a.RefusedShare)
		}
		return fmt.Sprintf("it may refuse %d addresses in an hour, and has", a.RefusedPerHour)
	case wire.Cause_PAUSED:
		return sc.paths.pausedBecause()
	case wire.Cause_PENALTY:
		switch {
		case s.resumes != nil && !s.now.Before(s.rests):
			return s.resumes.pace.Explain(s.now).Why
		case !excuse.wasAsked():
			return "it wanted less of us, and rests"
		}
		return fmt.Sprintf("it wanted less of us, and rests: %d %s, %s (rule %s)", excuse.Attempt.Code, excuse.Attempt.Enhanced,
			excuse.Verdict.Reason, excuse.Verdict.Rule)
	case wire.Cause_NO_SOURCE:
		return sc.paths.noSourceBecause(s.now)
	case wire.Cause_NO_SHARE:
		switch {
		case s.share.IsNone():
			return "this node has no share of the allowance, or has lost the ledger"
		case nothingAllowed(*a):
			return fmt.Sprintf("this node's share of the allowance, %d of %d, is too small to ask anything", s.share.K, s.share.N)
		}
		return "what other nodes know of it is being read"
	case wire.Cause_UNREACHED:
		return "its hosts cannot be reached"
	}
	if s.queued == 0 {
		return "nothing waits"
	}
	return "it asks as fast as it is answered"
}

// noSourceBecause says why none of our sources may ask.
func (ps *paths) noSourceBecause(now time.Time) string {
	for _, o := range ps.all {
		today := ps.options.ledgerTime(now)
		if most := egress.DailyCap(ps.options.Sources.Limits(o.index), today); most > 0 && !now.Before(o.until) {
			name := view.SourceName(o.name)
			if left, _ := ps.options.Sources.Remaining(o.index, "", today, false); left > 0 {
				return fmt.Sprintf("our source %s may ask %d addresses today; other receivers have their part of "+
					"the %d that are left", name, most, left)
			}
			return fmt.Sprintf("our source %s has asked the %d addresses that it may ask today", name, most)
		}
	}
	return "our sources rest, because many receivers refuse them"
}

// blocksNow is what kept a scheduler from asking more when it looked: by cause, until when.
type blocksNow struct {
	found [wire.Cause_UNREACHED + 1]bool
	until [wire.Cause_UNREACHED + 1]time.Time // zero: until something is answered
}

// add notes a cause; of several ends the soonest holds.
func (l *blocksNow) add(cause wire.Cause, until time.Time) {
	if !l.found[cause] || until.Before(l.until[cause]) {
		l.until[cause] = until
	}
	l.found[cause] = true
}

// blocked gives one of the causes.
func (l *blocksNow) blocked(cause wire.Cause) status.Blocked {
	return status.Blocked{Cause: cause, Until: l.until[cause]}
}

// blocksLately is for which part of the last while each cause was there.
type blocksLately struct {
	at   time.Time
	last blocksNow
	part [wire.Cause_UNREACHED + 1]float64
}

// note takes what is lacking from now on.
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

// over gives the parts as they are now.
func (h blocksLately) over(now time.Time, cause wire.Cause) float64 {
	h.note(now, h.last)
	return h.part[cause]
}

// soonEnds is when a pause whose end is over is expected to be ended here.
const soonEnds = time.Second

// whoSaid gives who says what of a field of a receiver, or of one of our sources; none:
// nobody knows.
func (e *env) whoSaid(name string, f throttle.Field) []throttle.Said {
	if e.options.Said == nil {
		return nil
	}
	return e.options.Said(name, f)
}

// hostTime turns a time of the ledger's clock into one of this host's, which is not over.
func (e *env) hostTime(now, at time.Time) time.Time {
	return now.Add(max(soonEnds, at.Sub(e.options.ledgerTime(now))))
}

// pauseEnds is until when a name is paused; zero: until somebody ends it.
func (e *env) pauseEnds(now time.Time, name string) time.Time {
	var until time.Time
	for _, s := range slices.Backward(e.whoSaid(name, throttle.FieldPause)) {
		switch {
		case s.Text == string(throttle.PauseNo): // what holds when those before are over
			return until
		case s.Until.IsZero():
			return time.Time{}
		}
		until = later(until, e.hostTime(now, s.Until))
	}
	return until
}

// sourcesPaused is until when the first of our sources is used again that the receiver
// takes and that is paused, or until a time before.
func (ps *paths) sourcesPaused(now, until time.Time) time.Time {
	for _, o := range ps.all {
		if o.pause != throttle.PauseYes && o.pause != throttle.PauseDrain || now.Before(o.until) {
			continue
		}
		ends := ps.pauseEnds(now, throttle.SourcePrefix+o.name)
		if until.IsZero() || !ends.IsZero() && ends.Before(until) {
			until = ends
		}
	}
	return until
}

// pausedBy says who has paused a name, and why; what names it in the sentence.
func (e *env) pausedBy(name, what string, how throttle.Pause) string {
	by, reason := "an operator", ""
	if said := e.whoSaid(name, throttle.FieldPause); len(said) > 0 {
		s := said[len(said)-1]
		switch {
		case s.Author != "":
			by = s.Author
		case s.Where != "":
			by = s.Where
		}
		if s.Reason != "" {
			reason = ": " + status.Clip(s.Reason)
		}
	}
	if how == throttle.PauseDrain {
		return fmt.Sprintf("%s drains %s, no session is opened any more%s", by, what, reason)
	}
	return fmt.Sprintf("%s paused %s%s", by, what, reason)
}

// pausedBecause says who has paused the receiver, or our sources.
func (ps *paths) pausedBecause() string {
	if how := ps.limits.Pause; how == throttle.PauseYes || how == throttle.PauseDrain {
		return ps.pausedBy(ps.key, "it", how)
	}
	for _, o := range ps.all {
		if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
			return ps.pausedBy(throttle.SourcePrefix+o.name, "our source "+view.SourceName(o.name), o.pause)
		}
	}
	return "an operator has paused the sources of ours that it takes"
}

// capEnds is when the first override ends that says how much one of our sources may ask in a day; zero: none ends.
func (ps *paths) capEnds(now time.Time) (first time.Time) {
	today := ps.options.ledgerTime(now)
	for _, o := range ps.all {
		if now.Before(o.until) || egress.DailyCap(ps.options.Sources.Limits(o.index), today) == 0 {
			continue
		}
		if ok, _ := ps.options.Sources.Usable(o.index, ps.key, now); !ok {
			continue
		}
		said := ps.whoSaid(throttle.SourcePrefix+o.name, throttle.FieldRcptsPerDay)
		if len(said) == 0 || said[len(said)-1].Until.IsZero() {
			continue
		}
		if ends := ps.hostTime(now, said[len(said)-1].Until); first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	return first
}
