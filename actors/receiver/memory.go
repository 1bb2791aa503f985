package receiver

import (
	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/verdict"
	"time"
)

// memory keeps what was learned for whoever has this receiver next, and drops it when an
// operator says so.
type memory struct {
	*env
	allowance *allowance
	pool      *pool
	paths     *paths
	queues    *queues
	penalties *penalties
	opening   *openings

	ready   bool      // what others learned of the receiver has been read, or given up
	asked   time.Time // when that was asked for; zero: not yet
	noted   time.Time // when something was noted last
	emptied bool      // something was forgotten: nothing is worth noting too, in place of it
}

const (
	// noteEvery is how often one receiver is noted at most. Guess.
	noteEvery = time.Second

	// worthShare: refusals are worth noting when they are one part in this many of
	// what an hour allows: most receivers see a few and need no place in the ledger.
	// A move can cost so many refusals more. Guess.
	worthShare = 4

	// knowWithin is how long an actor waits for what is known about its receiver.
	// Then it begins as after a loss.
	knowWithin = state.KnowWithin

	// lossShare: after a loss one part in this many of the hour's refusals counts as
	// used. Guess.
	lossShare = 2
)

// restored is what came of a snapshot and waits for its lanes to be made.
type restored struct {
	lanes map[string]state.Lane
	hosts map[string]state.Host // by host and address
	read  time.Time
}

// noteTo adds what a lane knows to a snapshot.
func (l *hostQueue) noteTo(now time.Time, m *state.Snapshot) {
	one := state.Lane{Key: l.Key(), Rests: l.noteRests(now)}
	if mode := l.tlsModeNow(now); mode != smtp.TLSOpportunistic {
		one.TLS, one.Left = uint8(mode), l.tlsUntil.Sub(now).Milliseconds()
	}
	if (one.TLS > 0 || len(one.Rests) > 0) && len(m.Lanes) < state.HostsMax {
		m.Lanes = append(m.Lanes, one)
	}
	for _, c := range l.candidates {
		if c.failures > 0 && now.Before(c.until.Add(learnedFor)) && len(m.Hosts) < state.HostsMax {
			m.Hosts = append(m.Hosts, state.Host{Host: c.host, At: c.at.String(),
				Left: max(0, c.until.Sub(now).Milliseconds()), Failures: min(c.failures, state.CountMax),
				Last: state.AttemptOf(c.last.Attempt)})
		}
	}
}

// judgeRecalled gives the verdict on what was noted, which is to come back later: what
// the rules of today take for an answer about an address is none for another one.
func (o *Options) judgeRecalled(m state.Attempt) Judgement {
	told := Judgement{Attempt: m.Evidence()}
	told.Verdict = o.Rules.Decide(&told.Attempt)
	if told.Verdict.Outcome != smtp.Undecided || m.At == 0 {
		return Judgement{Verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	told.Verdict.Action, told.Verdict.Wait = verdict.ActRetry, 0
	return told
}

// note gives the limits that hold.
func (l *learned) note(now time.Time) []state.Limit {
	var out []state.Limit
	for i, one := range l.limits() {
		if now.Before(one.until) {
			out = append(out, state.Limit{Which: i, Most: one.most, Left: one.until.Sub(now).Milliseconds()})
		}
	}
	return out
}

// recall tightens the limits to those that were noted.
func (l *learned) recall(now time.Time, noted []state.Limit, left func(ms int64) time.Time) {
	limits := l.limits()
	for _, n := range noted {
		if until := left(n.Left); n.Which >= 0 && n.Which < len(limits) && until.After(now) {
			one := limits[n.Which]
			until = later(until, one.until)
			one.tighten(n.Most, now)
			one.until = until
		}
	}
}

// note gives what is known; nothing when it is not.
func (c *capacity) note(now time.Time) state.Capacity {
	if c.most == 0 {
		return state.Capacity{}
	}
	return state.Capacity{Most: c.most, Hold: c.hold.Milliseconds(), Left: max(0, c.until.Sub(now).Milliseconds())}
}

// recall takes what was noted. Of what is known already the stricter holds.
func (c *capacity) recall(now time.Time, m state.Capacity, until time.Time) {
	if m.Most <= 0 || c.most > 0 && c.most <= m.Most {
		return
	}
	hold := state.Millis(m.Hold, capacityHoldMost)
	c.most, c.hold = m.Most, max(capacityHold, hold)
	c.until = later(now, until)
	if limit := now.Add(capacityHoldMost); c.until.After(limit) {
		c.until = limit
	}
}

// limits gives all limits in the order in which a snapshot numbers them.
func (l *learned) limits() []*limit {
	return []*limit{&l.perSession, &l.refused, &l.perTransaction}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ledgerTime gives the time of the ledger.
func (o Options) ledgerTime(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}

// snapshot gives what is worth remembering, or false when nothing is and nothing was forgotten.
func (me *memory) snapshot(now time.Time) (state.Fact, bool) {
	m := state.Snapshot{V: state.Version, At: me.options.ledgerTime(now).UnixMilli(), Pauses: min(me.penalties.pauses, state.CountMax),
		Limits: me.allowance.learned.note(now), Capacity: me.allowance.learned.connections.note(now), Sources: me.paths.noteSources(now)}
	if left := me.penalties.paused.Sub(now); left > 0 {
		m.Paused, m.Excuse = left.Milliseconds(), state.AttemptOf(me.penalties.excuse.Attempt)
	}
	for _, l := range me.queues.all {
		l.noteTo(now, &m)
	}
	if m.Empty() && !me.emptied {
		return state.Fact{}, false
	}
	return state.Fact{Key: me.key, Data: m.Encode(), Expires: time.UnixMilli(m.At).Add(m.Life())}, true
}

// recallSnapshot takes what an earlier actor noted of this receiver. Of what is known
// already the stricter holds. Nil, or what cannot be read: nothing is known.
func (me *memory) recallSnapshot(now time.Time, data []byte) {
	me.ready = true
	if len(data) == 0 {
		return
	}
	m, err := state.Decode(data)
	if err != nil {
		me.options.Log.Debug("memory of a receiver cannot be read", "receiver", me.key, "version", m.V, "err", err)
		return
	}
	age := max(0, me.options.ledgerTime(now).Sub(time.UnixMilli(m.At)))
	left := func(ms int64) time.Time { // the time that ms meant
		return now.Add(min(state.Millis(ms, state.HoldMost)-age, state.HoldMost))
	}
	me.allowance.learned.recall(now, m.Limits, left)
	if age < learnedFor {
		me.allowance.learned.connections.recall(now, m.Capacity, left(m.Capacity.Left))
	}
	if until := left(m.Paused); m.Paused > 0 && until.After(now) && until.After(me.penalties.paused) {
		me.penalties.paused, me.penalties.excuse = until, me.options.judgeRecalled(m.Excuse)
		me.penalties.restRates(now)
	}
	if age < learnedFor {
		me.penalties.pauses = max(me.penalties.pauses, state.Count(m.Pauses))
	}
	me.paths.recallSources(now, age, m.Sources)
	me.queues.restored = &restored{lanes: map[string]state.Lane{}, hosts: map[string]state.Host{}, read: now.Add(-age)}
	for _, l := range m.Lanes {
		me.queues.restored.lanes[l.Key] = l
	}
	for _, h := range m.Hosts {
		me.queues.restored.hosts[h.Host+" "+h.At] = h
	}
	for _, l := range me.queues.all {
		me.queues.remindQueue(now, l)
	}
}

// keepSnapshot notes what was learned, when it is time.
func (me *memory) keepSnapshot(now time.Time, urgent bool) {
	if me.options.Facts == nil || !me.dirty {
		return
	}
	if due := me.noted.Add(noteEvery); !urgent && now.Before(due) {
		me.wakeAt(due)
		return
	}
	me.dirty, me.noted = false, now
	if fact, worth := me.snapshot(now); worth {
		me.steps = append(me.steps, KeepFact{fact})
	}
}

// askKnown says whether the scheduler knows what it can know, and sees to it that it will.
// A place that had no share must look again: others may have been here.
func (me *memory) askKnown(now time.Time, share part) bool {
	switch {
	case me.options.Facts == nil:
		return true
	case share.none():
		me.keepSnapshot(now, true)
		me.ready, me.asked = false, time.Time{}
	case !me.ready && me.asked.IsZero():
		me.asked = now
		me.steps = append(me.steps, KnowFact{me.key})
		me.wakeAt(now.Add(knowWithin))
	case !me.ready && now.Sub(me.asked) >= knowWithin:
		me.beginAfterLoss(now)
	case !me.ready:
		me.wakeAt(me.asked.Add(knowWithin))
	}
	return me.ready
}
