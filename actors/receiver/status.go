package receiver

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// firingsMax bounds the replies that are kept because they made us slow down, rest
	// or change, and firingsFor says how long. What one rule makes of one source counts
	// once within firingsApart. A desk keeps 10 KB for all this at most, 1,000 of them
	// 10 MB.
	firingsMax   = 20
	firingsFor   = time.Hour
	firingsApart = 10 * time.Second

	// listedMax bounds the sessions and queues of one receiver that are listed.
	listedMax = 100

	// roomEvery is how often a desk without a record asks for room again.
	roomEvery = time.Minute
)

// deskStatus is what a desk remembers for those who ask what it does. The zero value is
// ready. Mailbox only.
type deskStatus struct {
	history *status.History // nil: not begun, or no room
	tried   time.Time       // when room was asked for

	seconds status.Tallies // RCPTs a second are told over ten of them
	minutes status.Tallies // and the fractions of refusals and deferrals over ten of these

	last, telling remark   // the newest, and the newest that speaks of us or the receiver
	firings       []firing // oldest first
	fresh         int      // of these, how many the consequences are not known yet

	cause    wire.Cause // since observed
	observed time.Time
	queued   int // as the metric has it, under cause
}

// remark is what a receiver said, and when.
type remark struct {
	told  verdictOf
	local string // that was asked for
	at    time.Time
}

// firing is a remark that made us slow down, rest or change.
type firing struct {
	view.Reply
	lane   *lane
	outlet *outlet
}

// history gives the history of the receiver, nil when there is no room for one.
func (d *desk) history(now time.Time) *status.History {
	st := &d.status
	if st.history == nil && (st.tried.IsZero() || now.Sub(st.tried) >= roomEvery) {
		first := st.tried.IsZero()
		st.tried = now
		st.history = d.seat.living.histories.Open(d.key, now, first)
	}
	return st.history
}

// seen notes what a session was told.
func (d *desk) seen(now time.Time, s *session, r *report) {
	history := d.history(now)
	asked := int32(r.onWire)
	for i := range r.answered {
		a := &r.answered[i]
		if a.told.attempt.Code == 0 {
			continue // nothing was sent
		}
		asked++
		d.status.seconds.Of(a.sent.Unix()).Asked++
		d.hear(now, s, remark{a.told, a.probe.address.Local, a.at}, history)
	}
	if r.failure != nil && !r.stale && !r.poisoned && !answersEnd(r) {
		d.hear(now, s, remark{told: *r.failure, at: now}, history)
	}
	d.status.seconds.Of(now.Unix()).Asked += int32(r.onWire)
	d.options.Metrics.rcpts.Add(float64(asked))
	if history != nil {
		domain := ""
		if len(r.answered) > 0 {
			domain = r.answered[0].probe.address.Domain
		}
		history.Asked(now, asked, domain)
	}
}

// answersEnd says whether the failure of a report is its last answer.
func answersEnd(r *report) bool {
	n := len(r.answered)
	return n > 0 && r.answered[n-1].told.attempt == r.failure.attempt
}

// unheard notes why a session did not open.
func (d *desk) unheard(now time.Time, s *session, failed *verdictOf) {
	d.hear(now, s, remark{told: *failed, at: now}, d.history(now))
}

// hear notes one thing that a receiver said, or did not say.
func (d *desk) hear(now time.Time, s *session, r remark, history *status.History) {
	st, a := &d.status, &r.told.attempt
	s.encrypted = a.TLS
	st.last = r
	if a.Code == 0 || telling(&r.told) {
		st.telling = r
	}
	if fires(&r.told) {
		d.fired(s, r)
	}
	if a.Code != 0 && a.Stage == smtp.StageRcpt {
		t := st.minutes.Of(now.Unix() / 60)
		t.Told++
		switch a.Code / 100 {
		case 5:
			t.Refused++
		case 4:
			t.Deferred++
		}
	}
	if history != nil {
		history.Heard(now, a, &r.told.verdict, status.Redact(a.Text, r.local))
	}
}

// telling says whether a verdict speaks of us or the receiver rather than of an address.
func telling(told *verdictOf) bool {
	v := &told.verdict
	ofUs := v.Blame == smtp.BlameReceiver || v.Blame == smtp.BlameSource
	return !v.Outcome.Final() && ofUs && v.Reason != smtp.Greylisted
}

// fires says whether a verdict changes how its receiver is spoken to.
func fires(told *verdictOf) bool {
	switch told.verdict.Action {
	case verdict.ActSlow, verdict.ActPause, verdict.ActOtherSource, verdict.ActTLS, verdict.ActSplit,
		verdict.ActVoid:
		return true
	}
	return false
}

// fired keeps a remark that changes how the receiver is spoken to.
func (d *desk) fired(s *session, r remark) {
	st := &d.status
	for i := len(st.firings) - 1; i >= 0; i-- {
		f := &st.firings[i]
		if r.at.Sub(f.At) >= firingsApart {
			break
		}
		if f.Rule == r.told.verdict.Rule && f.outlet == s.outlet {
			return // one haste, said many times
		}
	}
	if len(st.firings) == firingsMax {
		st.firings = slices.Delete(st.firings, 0, 1)
	}
	st.firings = append(st.firings, firing{r.view(), s.lane, s.outlet})
	st.fresh = min(st.fresh+1, firingsMax)
}

// view gives a remark as people are shown it.
func (r *remark) view() view.Reply {
	a, v := &r.told.attempt, &r.told.verdict
	if r.at.IsZero() {
		return view.Reply{}
	}
	out := view.Reply{At: r.at, Stage: a.Stage.String(), Code: a.Code, Text: status.Clip(status.Redact(a.Text, r.local)),
		Rule: v.Rule, Reason: v.Reason.String(), Source: a.Source, Host: a.Host}
	if a.Code == 0 {
		out.Text = a.Trouble.String()
	}
	if !v.Outcome.Final() {
		out.Action = v.Action.String()
	}
	if a.Enhanced != (smtp.EnhancedCode{}) {
		out.Text = status.Clip(a.Enhanced.String() + " " + out.Text)
	}
	return out
}

// observe notes what holds the desk back from now on. It is the last thing that a plan does.
func (d *desk) observe(now time.Time) {
	st := &d.status
	for i := len(st.firings) - st.fresh; i < len(st.firings); i++ {
		st.firings[i].Until = d.consequence(now, &st.firings[i])
	}
	st.fresh = 0
	b := d.holds(now)
	if !st.observed.IsZero() {
		d.options.Metrics.waited(st.cause, st.queued, now.Sub(st.observed))
	}
	queued := d.tasks.queue.Queued() + d.tasks.behind
	d.options.Metrics.waiting(st, b.Cause, queued)
	if d.tasks.queue.Queued() > 0 || len(d.sessions) > 0 {
		if history := d.history(now); history != nil {
			history.Observe(now, status.Moment{Sessions: len(d.sessions), Queued: queued, Permitted: d.permitted(now),
				Cause: b.Cause}, st.cause, st.observed)
		}
	}
	st.cause, st.observed = b.Cause, now
}

// begun notes that a session is dialled.
func (d *desk) begun(now time.Time) {
	if history := d.history(now); history != nil {
		history.Opened(now)
	}
}

// unobserve takes the desk out of what is told of its node.
func (d *desk) unobserve(now time.Time) {
	d.dropTrials()
	st := &d.status
	d.options.Metrics.gone(st)
	if st.history != nil {
		st.history.Close(now)
		st.history = nil
	}
}

// consequence is until when a firing keeps us away; zero: it does not.
func (d *desk) consequence(now time.Time, f *firing) time.Time {
	until := f.outlet.until
	if r := f.lane.refusals[f.outlet]; r != nil {
		until = later(until, r.until)
	}
	_, rests := f.outlet.tempo.Permits(now)
	until = later(later(until, rests), d.paused)
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// permitted is how many RCPTs a second may be sent now, short rests left aside: what is
// allowed here, and what a source that the receiver takes was found to be let go.
func (d *desk) permitted(now time.Time) float64 {
	found := 0.0
	for _, o := range d.outlets {
		if !now.Before(o.until) {
			rate, _ := o.tempo.Permits(now)
			found = max(found, rate.PerSecond())
		}
	}
	return min(d.allowance.RcptRate.PerSecond(), found)
}

// oldest is since when the oldest address waits that has no answer; zero: none does.
func (d *desk) oldest() (since time.Time) {
	for t := range d.tasks.busy {
		for _, c := range t.chunks {
			if c.open > 0 && !c.gone() && (since.IsZero() || c.offered.Before(since)) {
				since = c.offered
			}
		}
	}
	for t := range d.tasks.waiters {
		if since.IsZero() || t.behind.since.Before(since) {
			since = t.behind.since
		}
	}
	return since
}

// unanswered is how many addresses could be asked now and have no answer: those that were handed
// over, on the wire or not, and those that their verifications keep back for it.
func (d *desk) unanswered() int {
	n := d.tasks.behind
	for t := range d.tasks.busy {
		for _, c := range t.chunks {
			n += c.unanswered()
		}
	}
	return n
}

// tell says what the desk does now.
func (d *desk) tell(now time.Time) view.Receiver {
	st := &d.status
	b := d.hold(now)
	recent := st.minutes.Sum(now.Unix() / 60)
	out := view.Receiver{Key: d.key, Cause: b.Word(), Until: b.Until, Why: b.Why,
		Queued: d.unanswered(), Behind: d.tasks.behind,
		Sessions: len(d.sessions), Most: d.allowance.Connections, Allowed: d.permitted(now),
		Ceiling: d.allowance.RcptRate.PerSecond(),
		Rcpts:   float64(st.seconds.Sum(now.Unix()-1).Asked) / status.Spans,
		Refused: part32(recent.Refused, recent.Told), Deferred: part32(recent.Deferred, recent.Told)}
	if since := d.oldest(); !since.IsZero() {
		out.Oldest = now.Sub(since).Seconds()
	}
	for _, s := range d.sessions {
		out.InFlight += len(s.given)
	}
	out.Last = st.telling.view()
	if at := st.telling.at; at.IsZero() || now.Sub(at) >= firingsFor {
		out.Last = st.last.view()
	}
	if !out.Last.At.IsZero() {
		out.LastAt = now.Sub(out.Last.At).Seconds()
	}
	out.Sources = d.tellSources(now)
	for _, o := range out.Sources {
		out.Budget = max(out.Budget, o.Budget)
	}
	out.State = d.state(now, b.Cause, out.InFlight > 0 || out.Rcpts > 0)
	out.PerHour = int(d.perHour(now))
	for _, b := range slices.Backward(d.beliefs) {
		if now.Sub(b.at) < firingsFor {
			out.Causes = append(out.Causes, b.sentence())
		}
	}
	return out
}

// part32 is n of all, from 0 to 1.
func part32(n, all int32) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// state is what the desk does, in a word.
func (d *desk) state(now time.Time, cause wire.Cause, asks bool) string {
	switch {
	case cause == wire.Cause_PAUSED:
		return "paused"
	case d.leaving || d.allowance.Pause == throttle.PauseDrain:
		return "draining"
	case now.Before(d.paused):
		return "resting"
	case d.tasks.queue.Queued() == 0 && !asks:
		return "idle"
	case asks && cause <= wire.Cause_CONNECTIONS:
		return "asking"
	}
	return "waiting"
}

// tellSources says how each of our sources does here.
func (d *desk) tellSources(now time.Time) []view.ReceiverSource {
	out := make([]view.ReceiverSource, 0, len(d.outlets))
	for _, o := range d.outlets {
		one := view.ReceiverSource{Source: o.name, State: "spare"}
		for _, s := range d.sessions {
			if s.outlet == o {
				one.Sessions++
			}
		}
		budget, _ := o.budget.Ready(now)
		one.Budget = max(0, budget)
		one.Tempo = d.tempo(now, o)
		ok, until := d.options.Sources.Usable(o.index, d.key, now)
		_, rests := o.tempo.Permits(now)
		switch pause := d.options.Sources.Limits(o.index).Pause; {
		case pause == throttle.PauseYes:
			one.State = "paused"
		case pause == throttle.PauseDrain:
			one.State = "draining"
		case now.Before(o.until):
			one.State, one.Until, one.Reason = "resting", o.until, o.last.verdict.Reason.String()
		case !ok:
			one.State, one.Until = "resting", until
		case now.Before(rests):
			one.State, one.Until = "resting", rests
		case one.Sessions > 0:
			one.State = "used"
		}
		out = append(out, one)
	}
	return out
}

// tempo is how fast the receiver lets a source go.
func (d *desk) tempo(now time.Time, o *outlet) view.Tempo {
	e := o.tempo.Explain(now)
	return view.Tempo{Rate: e.Rate, Floor: e.Floor, Ceiling: e.Ceiling, Edge: e.Edge, Phase: string(e.Phase),
		Since: e.Since, Why: e.Why}
}

// tellAllOf says everything about the desk.
func (d *desk) tellAllOf(now time.Time) view.ReceiverDetail {
	out := view.ReceiverDetail{Receiver: d.tell(now), Queues: d.tellQueues(now), Learned: d.learned.tell(now),
		SessionList: []view.Session{}, Firings: []view.Reply{}, Minutes: []view.Minute{}}
	for _, s := range d.sessions {
		out.SessionList = append(out.SessionList, s.tell(now))
	}
	slices.SortFunc(out.SessionList, func(a, b view.Session) int { return cmp.Compare(a.ID, b.ID) })
	out.SessionList = out.SessionList[:min(len(out.SessionList), listedMax)]
	for _, f := range slices.Backward(d.status.firings) {
		if now.Sub(f.At) < firingsFor {
			out.Firings = append(out.Firings, f.Reply)
		}
	}
	if history := d.status.history; history != nil {
		out.Minutes = append(out.Minutes, history.Last(now, 60)...)
	}
	return out
}

// tell says what a session does.
func (s *session) tell(now time.Time) view.Session {
	out := view.Session{ID: s.id, Source: s.outlet.name, Host: s.host.host, State: "idle",
		Age: now.Sub(s.opened).Seconds(), Rcpts: s.rcpts, Refused: s.refused, TLS: "not known yet"}
	switch {
	case s.closing || s.doomed:
		out.State = "closing"
	case !s.ready:
		out.State = "opening"
	case len(s.given) > 0:
		out.State = "asking"
	}
	switch {
	case s.encrypted:
		out.TLS = "yes"
	case s.rcpts > 0 || s.tls == smtp.TLSOff:
		out.TLS = "no"
	}
	return out
}

// tellQueues says who waits, the longest queue first.
func (d *desk) tellQueues(now time.Time) []view.Queue {
	of := map[string]*view.Queue{}
	queue := func(t *task) *view.Queue {
		id := t.key.Verification.String()
		if of[id] == nil {
			of[id] = &view.Queue{Verification: id, Workspace: t.space.String(), Weight: d.tasks.flow(t).Weight()}
		}
		return of[id]
	}
	for t := range d.tasks.waiters {
		q := queue(t)
		q.Queued += t.behind.n
		q.Oldest = max(q.Oldest, now.Sub(t.behind.since).Seconds())
	}
	for t := range d.tasks.busy {
		q := queue(t)
		for _, c := range t.chunks {
			q.Queued += c.unanswered()
			if c.open > 0 && !c.gone() {
				q.Oldest = max(q.Oldest, now.Sub(c.offered).Seconds())
			}
		}
	}
	out := []view.Queue{}
	for _, q := range of {
		if q.Queued > 0 {
			out = append(out, *q)
		}
	}
	slices.SortFunc(out, func(a, b view.Queue) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Verification, b.Verification))
	})
	return out[:min(len(out), listedMax)]
}

// tell says what was learned and holds.
func (l *learned) tell(now time.Time) []view.Limit {
	out := []view.Limit{}
	note := func(f throttle.Field, l limit, lasts time.Duration, from string) {
		if now.Before(l.until) {
			out = append(out, view.Limit{Field: f.String(), Value: strconv.Itoa(l.most), Since: l.until.Add(-lasts),
				From: from, Until: l.until})
		}
	}
	c := &l.connections
	note(throttle.FieldConnections, limit{c.most, c.until}, c.hold, "more at once were refused")
	note(throttle.FieldRcptsPerConnection, l.perSession, learnedFor, "it ended sessions after as many")
	note(throttle.FieldRefusedPerSession, l.refused, learnedFor, "it ended sessions after as many")
	note(throttle.FieldRcptsPerTransaction, l.perTransaction, learnedFor, "more in one were refused")
	return out
}
