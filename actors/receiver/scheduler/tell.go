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

// observePlan notes what holds the scheduler back from now on. It is the last thing that a plan does.
func (ex *explainer) observePlan(now time.Time) {
	st := &ex.recorder.record
	for i := len(st.firings) - st.fresh; i < len(st.firings); i++ {
		st.firings[i].Until = ex.paths.consequenceOf(now, &st.firings[i])
	}
	st.fresh = 0
	b := ex.blocked(now)
	if !st.observed.IsZero() {
		ex.options.Metrics.waited(st.cause, st.queued, now.Sub(st.observed))
	}
	queued := ex.fair.Queued() + ex.queues.tasks.behind
	ex.options.Metrics.waiting(st, b.Cause, queued)
	if ex.fair.Queued() > 0 || len(ex.sessions.all) > 0 {
		if history := ex.recorder.openHistory(now); history != nil {
			history.Observe(now, status.Moment{Sessions: len(ex.sessions.all), Queued: queued,
				Permitted: ex.paths.permittedRate(now),
				Cause:     b.Cause}, st.cause, st.observed)
		}
	}
	st.cause, st.observed = b.Cause, now
}

// status says what the scheduler does now.
func (ex *explainer) status(now time.Time) inspect.Receiver {
	st := &ex.recorder.record
	b := ex.explainBlocked(now)
	recent := st.minutes.Sum(now.Unix() / 60)
	out := inspect.Receiver{Key: ex.key, Cause: b.Word(), Until: b.Until, Why: b.Why,
		Queued: ex.queues.countUnanswered(), Behind: ex.queues.tasks.behind,
		Sessions: len(ex.sessions.all), Most: ex.limits.Connections, Allowed: ex.paths.permittedRate(now),
		Ceiling: ex.limits.RcptRate.PerSecond(),
		Rcpts:   float64(st.seconds.Sum(now.Unix()-1).Asked) / status.Spans,
		Refused: part32(recent.Refused, recent.Told), Deferred: part32(recent.Deferred, recent.Told)}
	if since := ex.queues.oldestWaiting(); !since.IsZero() {
		out.Oldest = now.Sub(since).Seconds()
	}
	for _, s := range ex.sessions.all {
		out.InFlight += len(s.given)
	}
	out.Last = st.telling.view()
	if at := st.telling.at; at.IsZero() || now.Sub(at) >= firingsFor {
		out.Last = st.last.view()
	}
	if !out.Last.At.IsZero() {
		out.LastAt = now.Sub(out.Last.At).Seconds()
	}
	out.Sources = ex.paths.sourceStatus(now, ex.sessions.countByPath())
	for _, o := range out.Sources {
		out.Budget = max(out.Budget, o.Budget)
	}
	out.State = ex.stateWord(now, b.Cause, out.InFlight > 0 || out.Rcpts > 0)
	out.PerHour = int(ex.perHour(now))
	for _, n := range slices.Backward(ex.notes) {
		if now.Sub(n.at) < firingsFor {
			out.Causes = append(out.Causes, n.sentence())
		}
	}
	return out
}

// stateWord is what the scheduler does, in a word.
func (ex *explainer) stateWord(now time.Time, cause wire.Cause, asks bool) string {
	switch {
	case cause == wire.Cause_PAUSED:
		return "paused"
	case ex.handingOff || ex.limits.Pause == throttle.PauseDrain:
		return "draining"
	case now.Before(ex.paths.receiver.until):
		return "resting"
	case ex.fair.Queued() == 0 && !asks:
		return "idle"
	case asks && cause <= wire.Cause_CONNECTIONS:
		return "asking"
	}
	return "waiting"
}

// detail says everything about the scheduler.
func (ex *explainer) detail(now time.Time) inspect.ReceiverDetail {
	out := inspect.ReceiverDetail{Receiver: ex.status(now), Queues: ex.queues.queueStatus(now),
		Learned: learnedStatus(&ex.allowance.learned, now), Software: ex.allowance.softwareStatus(),
		SessionList: []inspect.Session{}, Firings: []inspect.Reply{}, Minutes: []inspect.Minute{}}
	for _, s := range ex.sessions.all {
		out.SessionList = append(out.SessionList, s.status(now))
	}
	slices.SortFunc(out.SessionList, func(a, b inspect.Session) int { return cmp.Compare(a.ID, b.ID) })
	out.SessionList = out.SessionList[:min(len(out.SessionList), listedMax)]
	for _, f := range slices.Backward(ex.recorder.record.firings) {
		if now.Sub(f.At) < firingsFor {
			out.Firings = append(out.Firings, f.Reply)
		}
	}
	if history := ex.recorder.record.history; history != nil {
		out.Minutes = append(out.Minutes, history.Last(now, 60)...)
	}
	return out
}
