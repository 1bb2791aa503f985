package receiver

import (
	"cmp"
	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
	"slices"
	"time"
)

// observe notes what holds the desk back from now on. It is the last thing that a plan does.
func (ex *explainer) observe(now time.Time) {
	st := &ex.recorder.status
	for i := len(st.firings) - st.fresh; i < len(st.firings); i++ {
		st.firings[i].Until = ex.penalties.consequence(now, &st.firings[i])
	}
	st.fresh = 0
	b := ex.holds(now)
	if !st.observed.IsZero() {
		ex.options.Metrics.waited(st.cause, st.queued, now.Sub(st.observed))
	}
	queued := ex.inbox.tasks.queue.Queued() + ex.inbox.tasks.behind
	ex.options.Metrics.waiting(st, b.Cause, queued)
	if ex.inbox.tasks.queue.Queued() > 0 || len(ex.pool.sessions) > 0 {
		if history := ex.recorder.history(now); history != nil {
			history.Observe(now, status.Moment{Sessions: len(ex.pool.sessions), Queued: queued, Permitted: ex.paths.permitted(now),
				Cause: b.Cause}, st.cause, st.observed)
		}
	}
	st.cause, st.observed = b.Cause, now
}

// tell says what the desk does now.
func (ex *explainer) tell(now time.Time) view.Receiver {
	st := &ex.recorder.status
	b := ex.hold(now)
	recent := st.minutes.Sum(now.Unix() / 60)
	out := view.Receiver{Key: ex.key, Cause: b.Word(), Until: b.Until, Why: b.Why,
		Queued: ex.inbox.unanswered(), Behind: ex.inbox.tasks.behind,
		Sessions: len(ex.pool.sessions), Most: ex.allowance.limits.Connections, Allowed: ex.paths.permitted(now),
		Ceiling: ex.allowance.limits.RcptRate.PerSecond(),
		Rcpts:   float64(st.seconds.Sum(now.Unix()-1).Asked) / status.Spans,
		Refused: part32(recent.Refused, recent.Told), Deferred: part32(recent.Deferred, recent.Told)}
	if since := ex.inbox.oldest(); !since.IsZero() {
		out.Oldest = now.Sub(since).Seconds()
	}
	for _, s := range ex.pool.sessions {
		out.InFlight += len(s.given)
	}
	out.Last = st.telling.view()
	if at := st.telling.at; at.IsZero() || now.Sub(at) >= firingsFor {
		out.Last = st.last.view()
	}
	if !out.Last.At.IsZero() {
		out.LastAt = now.Sub(out.Last.At).Seconds()
	}
	out.Sources = ex.paths.tellSources(now)
	for _, o := range out.Sources {
		out.Budget = max(out.Budget, o.Budget)
	}
	out.State = ex.state(now, b.Cause, out.InFlight > 0 || out.Rcpts > 0)
	out.PerHour = int(ex.perHour(now))
	for _, b := range slices.Backward(ex.suspicions.beliefs) {
		if now.Sub(b.at) < firingsFor {
			out.Causes = append(out.Causes, b.sentence())
		}
	}
	return out
}

// state is what the desk does, in a word.
func (ex *explainer) state(now time.Time, cause wire.Cause, asks bool) string {
	switch {
	case cause == wire.Cause_PAUSED:
		return "paused"
	case ex.leaving || ex.allowance.limits.Pause == throttle.PauseDrain:
		return "draining"
	case now.Before(ex.penalties.paused):
		return "resting"
	case ex.inbox.tasks.queue.Queued() == 0 && !asks:
		return "idle"
	case asks && cause <= wire.Cause_CONNECTIONS:
		return "asking"
	}
	return "waiting"
}

// tellAllOf says everything about the desk.
func (ex *explainer) tellAllOf(now time.Time) view.ReceiverDetail {
	out := view.ReceiverDetail{Receiver: ex.tell(now), Queues: ex.inbox.tellQueues(now), Learned: ex.allowance.learned.tell(now),
		SessionList: []view.Session{}, Firings: []view.Reply{}, Minutes: []view.Minute{}}
	for _, s := range ex.pool.sessions {
		out.SessionList = append(out.SessionList, s.tell(now))
	}
	slices.SortFunc(out.SessionList, func(a, b view.Session) int { return cmp.Compare(a.ID, b.ID) })
	out.SessionList = out.SessionList[:min(len(out.SessionList), listedMax)]
	for _, f := range slices.Backward(ex.recorder.status.firings) {
		if now.Sub(f.At) < firingsFor {
			out.Firings = append(out.Firings, f.Reply)
		}
	}
	if history := ex.recorder.status.history; history != nil {
		out.Minutes = append(out.Minutes, history.Last(now, 60)...)
	}
	return out
}
