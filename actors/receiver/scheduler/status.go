package scheduler

import (
	"cmp"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// observePlan notes, at the end of a plan, what limits the scheduler from now on.
func (sc *Scheduler) observePlan(now time.Time) {
	st := &sc.recorder.record
	for i := len(st.firings) - st.fresh; i < len(st.firings); i++ {
		f := &st.firings[i]
		f.Until = sc.paths.consequenceOf(now, place{route: f.route, path: f.path})
	}
	st.fresh = 0
	s := sc.gatherConstraints(now)
	b := explain(&s)
	if !st.observed.IsZero() {
		sc.options.Metrics.waited(st.cause, st.queued, now.Sub(st.observed))
	}
	queued := sc.fair.Queued() + sc.queues.tasks.behind
	sc.options.Metrics.waiting(st, b.Cause, queued)
	if sc.fair.Queued() > 0 || len(sc.sessions.all) > 0 {
		if history := sc.recorder.openHistory(now); history != nil {
			history.Observe(now, status.Moment{Sessions: len(sc.sessions.all), Queued: queued,
				Permitted: sc.paths.all.permittedRate(now, sc.limits.RcptRate),
				Cause:     b.Cause}, st.cause, st.observed)
		}
	}
	st.cause, st.observed = b.Cause, now
}

// Status returns the receiver's present state.
func (sc *Scheduler) Status(now time.Time) inspect.Receiver {
	st := &sc.recorder.record
	b := sc.explainBlocked(now)
	recent := st.minutes.Sum(now.Unix() / 60)
	out := inspect.Receiver{Key: sc.key, Cause: b.Word(), Until: b.Until, Why: b.Why,
		Behind:   sc.queues.tasks.behind,
		Sessions: len(sc.sessions.all), Most: sc.limits.Connections,
		Allowed: sc.paths.all.permittedRate(now, sc.limits.RcptRate),
		Ceiling: sc.limits.RcptRate.PerSecond(),
		Rcpts:   float64(st.seconds.Sum(now.Unix()-1).Asked) / status.Spans,
		Refused: part32(recent.Refused, recent.Answered), Deferred: part32(recent.Deferred, recent.Answered)}
	n, oldest := sc.queues.countUnanswered()
	if out.Queued = n; !oldest.IsZero() {
		out.Oldest = now.Sub(oldest).Seconds()
	}
	for _, one := range sc.sessions.all {
		out.InFlight += len(one.given)
	}
	out.Last = st.telling.view()
	if at := st.telling.at; at.IsZero() || now.Sub(at) >= firingsFor {
		out.Last = st.last.view()
	}
	if !out.Last.At.IsZero() {
		out.LastAt = now.Sub(out.Last.At).Seconds()
	}
	out.Sources = sc.paths.sourceStatus(now, sc.sessions.countByPath())
	for _, o := range out.Sources {
		out.Budget = max(out.Budget, o.Budget)
	}
	s := sc.gatherConstraints(now)
	out.State = s.word(b.Cause, out.InFlight > 0 || out.Rcpts > 0, sc.handingOff)
	out.PerHour = int(sc.perHour(now))
	for _, n := range slices.Backward(sc.notes) {
		if now.Sub(n.at) < firingsFor {
			out.Causes = append(out.Causes, n.sentence())
		}
	}
	return out
}

// Detail returns everything about the receiver.
func (sc *Scheduler) Detail(now time.Time) inspect.ReceiverDetail {
	out := inspect.ReceiverDetail{Receiver: sc.Status(now), Queues: sc.queues.queueStatus(now),
		Learned: learnedStatus(&sc.allowance.learned, now), Software: sc.allowance.softwareStatus(),
		SessionList: []inspect.Session{}, Firings: []inspect.Reply{}, Minutes: []inspect.Minute{}}
	for _, s := range sc.sessions.all {
		out.SessionList = append(out.SessionList, s.status(now))
	}
	slices.SortFunc(out.SessionList, func(a, b inspect.Session) int { return cmp.Compare(a.ID, b.ID) })
	out.SessionList = out.SessionList[:min(len(out.SessionList), listedMax)]
	for _, f := range slices.Backward(sc.recorder.record.firings) {
		if now.Sub(f.At) < firingsFor {
			out.Firings = append(out.Firings, f.Reply)
		}
	}
	if history := sc.recorder.record.history; history != nil {
		out.Minutes = append(out.Minutes, history.Last(now, 60)...)
	}
	return out
}

func (s *constraints) word(cause wire.Cause, asks, handingOff bool) string {
	switch {
	case cause == wire.Cause_PAUSED:
		return "paused"
	case handingOff || s.limits.Pause == throttle.PauseDrain:
		return "draining"
	case s.now.Before(s.pausedUntil):
		return "suspended"
	case s.queued == 0 && !asks:
		return "idle"
	case asks && cause <= wire.Cause_CONNECTIONS:
		return "asking"
	}
	return "waiting"
}

// pausedWait is the wait that a pulse names during an operator's pause without a known end. Pulses repeat it each
// second.
const pausedWait = time.Minute

// tellingRefusals is how many refusals it takes to estimate the refused part. If the hour's budget is smaller, as many
// as the budget allows are enough. The first refusal is often a control probe's.
const tellingRefusals = 3

// sendHeartbeat sends a client a pulse. The pulse says that the client's addresses wait here, and why.
func (sc *Scheduler) sendHeartbeat(now time.Time, t *task, b status.Blocked) {
	m := &wire.Pulse{Task: t.chunks[0].named, Credit: sc.queues.tasks.countCredit(t)}
	for _, c := range t.chunks {
		if !c.shed {
			m.Chunks = append(m.Chunks, c.number)
		}
	}
	m.Cause, m.WaitingMs = heartbeatCause(now, b)
	m.PerHour = sc.perHourOf(now, t)
	m.BarrenMs, m.BarrenReason = t.barren()
	t.beatAt = now
	sc.emitTo(t.client, m)
}

// heartbeatCause returns the cause for a pulse, and for how long nothing can be asked.
func heartbeatCause(now time.Time, b status.Blocked) (wire.Cause, int64) {
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

// perHourOf returns how many addresses of a task's verification we expect to ask in an hour; 0: not known.
func (sc *Scheduler) perHourOf(now time.Time, t *task) int64 {
	all := sc.perHour(now)
	if all <= 0 {
		return 0
	}
	return max(1, int64(all*sc.fair.Fraction(sc.flowOf(t))))
}

// perHour returns how many addresses we expect to ask in an hour, by the permitted rate, the refusals and the speed of
// answers. During a pause with a known end, perHour is for the time after the pause; 0: not known.
func (sc *Scheduler) perHour(now time.Time) float64 {
	a, limiting := sc.limits, sc.gatherConstraints(now)
	switch b := limiting.unavailable(); {
	case b.Free(), b.Cause == wire.Cause_PENALTY:
	case b.Cause == wire.Cause_PAUSED && !b.Until.IsZero():
	default:
		return 0
	}
	n := min(a.RcptRate.PerSecond(), sc.paths.all[0].pace.Lasting()) * 3600
	accepted, refused := sc.paths.all.answered()
	perSession := float64(a.RcptsPerConnection)
	if refused >= max(1, min(tellingRefusals, a.RefusedPerHour)) {
		part := float64(refused) / float64(accepted+refused)
		if part*100 > float64(a.RefusedShare) {
			n = min(n, sc.paths.perHourByRefusals(now, part, sc.fair.Queued()+sc.queues.tasks.behind))
		}
		perSession = max(1, min(perSession, float64(a.RefusedPerSession)/part))
	}
	n = min(n, a.ConnectionRate.PerSecond()*3600*perSession)
	if turn := sc.allowance.replies.Lowest.Seconds(); turn > 0 {
		opening := 2 * sc.allowance.openings.Lowest.Seconds() / perSession
		n = min(n, 3600*float64(a.Connections)/(sc.allowance.turnsPerAddress()*turn+opening))
	}
	return n
}

// gatherConstraints gathers the values that explain needs.
func (sc *Scheduler) gatherConstraints(now time.Time) constraints {
	s := constraints{now: now, limits: sc.limits, share: sc.allowance.share,
		ready: sc.options.Facts == nil || sc.memory.ready, readyBy: sc.memory.asked.Add(knowWithin),
		pausedUntil: sc.paths.receiver.until, sources: sc.paths.sourcesUnavailable(now),
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
	if o := sc.paths.all.firstToResume(now); o != nil {
		s.resumes = o.pace.Explain()
	}
	if !s.unavailable().Free() {
		return s
	}
	if s.hosts = sc.queues.unreachable(now); s.queued > 0 && s.hosts.Free() {
		ok, at := sc.paths.mayBeRefused(now)
		s.budget, s.budgetAt = !ok, at
		lately := sc.sessions.lately
		s.rated, s.crowded = lately.over(now, wire.Cause_ALLOWANCE), lately.over(now, wire.Cause_CONNECTIONS)
	}
	return s
}

// explainBlocked returns why we can't ask more, with a sentence.
func (sc *Scheduler) explainBlocked(now time.Time) status.Blocked {
	s := sc.gatherConstraints(now)
	s.details = details{permitted: sc.paths.all.permittedRate(now, sc.limits.RcptRate),
		pausedFor: sc.paths.receiver.judgement, pausedBy: sc.paths.pausedBecause(),
		noSource: sc.paths.noSourceBecause(now), slotless: sc.sessions.slotless}
	s.details.silent, s.details.silentTo = sc.allowance.handle.Silent()
	if o := sc.paths.all.slowedPath(now); o != nil {
		s.details.slowed = o.pace.Explain().Why
	}
	b := explain(&s)
	b.Why = sentenceOf(&s, b.Cause)
	return b
}
