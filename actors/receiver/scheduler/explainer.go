package scheduler

import (
	"fmt"
	"math"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// explainer says what the receiver is doing, what keeps it from doing more, and how long it takes.
type explainer struct {
	*env
	allowance *allowance
	recorder  *recorder
	sessions  *sessions
	paths     *paths
	queues    *queues
	memory    *memory
}

const (
	// latelySpan is over what it is judged whether the rate or the sessions hold a receiver
	// back. Guess: some times what most RCPTs wait for each other.
	latelySpan = 2 * time.Second

	// latelyPart is for which part of that span sessions have to wait for the rate, before
	// that is what holds the receiver back. More sessions would not make it faster, and
	// they wait for each other's answers beside. Guess.
	latelyPart = 0.25
)

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

// pausedWait is named by a heartbeat while an operator has paused a receiver and nobody knows
// until when. It is said again each second.
const pausedWait = time.Minute

// tellingRefusals is how many refusals say which part of the addresses is refused, unless
// fewer use up what may be refused in an hour: the first one is often that of an address
// that was made up to see whether there are any. Guess.
const tellingRefusals = 3

// explainBlocked says what keeps the scheduler from asking more.
func (ex *explainer) explainBlocked(now time.Time) status.Blocked {
	b := ex.blocked(now)
	b.Why = ex.explainCause(now, b.Cause)
	return b
}

// blocked is hold without the sentence.
func (ex *explainer) blocked(now time.Time) status.Blocked {
	b := ex.findBlocked(now)
	if b.Cause == wire.Cause_NO_SOURCE {
		b.Until = ex.paths.boundEnds(now, b.Until)
	}
	return b
}

// findBlocked is holds, with the ends of days instead of those of their bounds.
func (ex *explainer) findBlocked(now time.Time) status.Blocked {
	if b := ex.unavailable(now); !b.Free() {
		return b
	}
	if b := ex.queues.unreachable(now); !b.Free() || ex.fair.Queued() == 0 {
		return b
	}
	h := &ex.sessions.lately
	if ok, next := ex.paths.mayBeRefused(now); !ok {
		return status.Blocked{Cause: wire.Cause_BUDGET, Until: next}
	}
	for _, cause := range [...]wire.Cause{wire.Cause_BUDGET, wire.Cause_NO_SOURCE} {
		if h.last.found[cause] && !ex.sessions.isAsking() {
			return h.last.blocked(cause)
		}
	}
	switch {
	case h.last.found[wire.Cause_ALLOWANCE], h.over(now, wire.Cause_ALLOWANCE) >= latelyPart:
		return h.last.blocked(wire.Cause_ALLOWANCE)
	case h.last.found[wire.Cause_CONNECTIONS], h.over(now, wire.Cause_CONNECTIONS) >= 1-latelyPart:
		return h.last.blocked(wire.Cause_CONNECTIONS)
	}
	return status.Blocked{}
}

// unavailable is holds for what lets nothing be asked at all; FREE: there is no such thing.
func (ex *explainer) unavailable(now time.Time) status.Blocked {
	a, working := ex.limits, len(ex.sessions.all) > ex.sessions.closing
	switch {
	case a.Pause == throttle.PauseYes, a.Pause == throttle.PauseDrain && !working:
		return status.Blocked{Cause: wire.Cause_PAUSED, Until: ex.paths.pauseEnds(now, ex.key)}
	case nothingAllowed(a):
		return status.Blocked{Cause: wire.Cause_NO_SHARE}
	case ex.options.Facts != nil && !ex.memory.ready:
		return status.Blocked{Cause: wire.Cause_NO_SHARE, Until: ex.memory.asked.Add(knowWithin)}
	case now.Before(ex.paths.receiver.until):
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: ex.paths.receiver.until}
	}
	b := ex.paths.sourcesUnavailable(now)
	if !b.Free() && !(b.Cause == wire.Cause_PAUSED && working) { // else they are drained
		if b.Cause == wire.Cause_PAUSED {
			b.Until = ex.paths.sourcesPaused(now, b.Until)
		}
		return b
	}
	if o := ex.paths.firstToResume(now); o != nil {
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: o.pace.Explain(now).Until}
	}
	return status.Blocked{}
}

// explainCause puts what holds the scheduler back into a sentence.
func (ex *explainer) explainCause(now time.Time, cause wire.Cause) string {
	a := ex.limits
	switch cause {
	case wire.Cause_ALLOWANCE:
		if o := ex.paths.slowedPath(now); o != nil {
			return fmt.Sprintf("RCPT commands at %.3g/s are let go here now, of %s that are allowed: %s",
				ex.paths.permittedRate(now), a.RcptRate, o.pace.Explain(now).Why)
		}
		return fmt.Sprintf("RCPT commands at %s are permitted here now, and used", a.RcptRate)
	case wire.Cause_CONNECTIONS:
		if ex.sessions.slotless {
			return "its workspaces have all the SMTP sessions of this node that they may have at once"
		}
		return fmt.Sprintf("%d of %d sessions are open, and %s may be opened", len(ex.sessions.all)-ex.sessions.closing,
			a.Connections, a.ConnectionRate)
	case wire.Cause_BUDGET:
		if a.RefusedShare > 0 {
			return fmt.Sprintf("it may refuse %d addresses in an hour, or %d %% of its answers, and has",
				a.RefusedPerHour, a.RefusedShare)
		}
		return fmt.Sprintf("it may refuse %d addresses in an hour, and has", a.RefusedPerHour)
	case wire.Cause_PAUSED:
		return ex.paths.pausedBecause()
	case wire.Cause_PENALTY:
		if o := ex.paths.firstToResume(now); o != nil && !now.Before(ex.paths.receiver.until) {
			return o.pace.Explain(now).Why
		}
		if !ex.paths.receiver.excuse.wasAsked() {
			return "it wanted less of us, and rests"
		}
		return fmt.Sprintf("it wanted less of us, and rests: %d %s, %s (rule %s)", ex.paths.receiver.excuse.Attempt.Code,
			ex.paths.receiver.excuse.Attempt.Enhanced, ex.paths.receiver.excuse.Verdict.Reason, ex.paths.receiver.excuse.Verdict.Rule)
	case wire.Cause_NO_SOURCE:
		return ex.explainNoSource(now)
	case wire.Cause_NO_SHARE:
		return ex.explainNoShare()
	case wire.Cause_UNREACHED:
		return "its hosts cannot be reached"
	}
	if ex.fair.Queued() == 0 {
		return "nothing waits"
	}
	return "it asks as fast as it is answered"
}

// explainNoSource is because for NO_SOURCE.
func (ex *explainer) explainNoSource(now time.Time) string {
	for _, o := range ex.paths.all {
		today := ex.options.ledgerTime(now)
		if most := egress.DailyCap(ex.options.Sources.Limits(o.index), today); most > 0 && !now.Before(o.until) {
			name := inspect.SourceName(o.name)
			if left, _ := ex.options.Sources.Remaining(o.index, "", today, false); left > 0 {
				return fmt.Sprintf("source %s: %d addresses left today for this receiver (%d in total)", name, most, left)
			}
			return fmt.Sprintf("our source %s has asked the %d addresses that it may ask today", name, most)
		}
	}
	return "our sources rest, because many receivers refuse them"
}

// explainNoShare is because for NO_SHARE.
func (ex *explainer) explainNoShare() string {
	switch {
	case ex.allowance.share.IsNone():
		return "this node has no share of the allowance, or has lost the ledger"
	case nothingAllowed(ex.limits):
		return fmt.Sprintf("this node's share of the allowance, %d of %d, is too small to ask anything",
			ex.allowance.share.K, ex.allowance.share.N)
	}
	return "what other nodes know of it is being read"
}

// heartbeatCause is what a heartbeat tells of what holds the scheduler back, and how long nothing can be asked.
func (ex *explainer) heartbeatCause(now time.Time) (wire.Cause, int64) {
	b := ex.blocked(now)
	switch b.Cause {
	case wire.Cause_PAUSED:
		if b.Until.IsZero() {
			b.Until = now.Add(pausedWait)
		}
		return b.Cause, wire.Left(now, b.Until)
	case wire.Cause_NO_SHARE:
		return b.Cause, shareWait.Milliseconds()
	case wire.Cause_BUDGET, wire.Cause_NO_SOURCE:
		return b.Cause, wire.Left(now, b.Until)
	}
	return b.Cause, 0
}

// perHourOf is how many addresses of a task's verification the scheduler expects to ask in an
// hour; 0: it cannot say.
func (ex *explainer) perHourOf(now time.Time, t *task) int64 {
	all := ex.perHour(now)
	if all <= 0 {
		return 0
	}
	return max(1, int64(all*ex.fair.Fraction(ex.flowOf(t))))
}

// perHour is how many addresses the scheduler expects to ask in an hour as things are, by what
// is permitted, by how many are refused, and by how fast it is answered; 0: it cannot say.
// In a rest or a pause of which the end is known it is what is expected after it.
func (ex *explainer) perHour(now time.Time) float64 {
	a := ex.limits
	switch b := ex.unavailable(now); {
	case b.Free(), b.Cause == wire.Cause_PENALTY:
	case b.Cause == wire.Cause_PAUSED && !b.Until.IsZero():
	default:
		return 0
	}
	n := min(a.RcptRate.PerSecond(), ex.paths.all[0].pace.Lasting()) * 3600
	accepted, refused := ex.paths.answered()
	perSession := float64(a.RcptsPerConnection)
	if refused >= max(1, min(tellingRefusals, a.RefusedPerHour)) {
		part := float64(refused) / float64(accepted+refused)
		if part*100 > float64(a.RefusedShare) {
			n = min(n, ex.paths.perHourByRefusals(now, part, ex.fair.Queued()+ex.queues.tasks.behind))
		}
		perSession = max(1, min(perSession, float64(a.RefusedPerSession)/part))
	}
	n = min(n, a.ConnectionRate.PerSecond()*3600*perSession)
	if turn := ex.allowance.replies.Lowest.Seconds(); turn > 0 {
		opening := 2 * ex.allowance.openings.Lowest.Seconds() / perSession
		n = min(n, 3600*float64(a.Connections)/(ex.allowance.turnsPerAddress()*turn+opening))
	}
	return n
}

func (ex *explainer) sendHeartbeat(now time.Time, t *task) {
	m := &wire.Pulse{Task: t.chunks[0].named, Credit: ex.queues.tasks.credit(t)}
	for _, c := range t.chunks {
		if !c.shed {
			m.Chunks = append(m.Chunks, c.number)
		}
	}
	m.Cause, m.WaitingMs = ex.heartbeatCause(now)
	m.PerHour = ex.perHourOf(now, t)
	m.BarrenMs, m.BarrenReason = t.barren()
	t.beatAt = now
	ex.emitTo(t.client, m)
}
