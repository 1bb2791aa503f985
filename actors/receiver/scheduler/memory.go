package scheduler

import (
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// memory keeps what was learned for whoever has this receiver next, and drops it when an
// operator says so.
type memory struct {
	*env
	allowance *allowance
	sessions  *sessions
	paths     *paths
	queues    *queues
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

// judgeRecalled gives the verdict on what was noted, which is to come back later: what
// the rules of today take for an answer about an address is none for another one.
func (o *Options) judgeRecalled(m state.Attempt) Judgement {
	told := Judgement{Attempt: m.Evidence()}
	told.Verdict = o.Rules().Decide(&told.Attempt)
	if told.Verdict.Outcome != smtp.Undecided || m.At == 0 {
		return Judgement{Verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	told.Verdict.Action, told.Verdict.Wait = verdict.ActRetry, 0
	return told
}

// noteLearned gives the limits that hold.
func noteLearned(l *throttle.Learned, now time.Time) []state.Limit {
	var out []state.Limit
	for i, one := range learnedLimits(l) {
		if now.Before(one.Until) {
			out = append(out, state.Limit{Which: i, Most: one.Most, Left: one.Until.Sub(now).Milliseconds()})
		}
	}
	return out
}

// recallLearned tightens the limits to those that were noted.
func recallLearned(l *throttle.Learned, now time.Time, noted []state.Limit, left func(ms int64) time.Time) {
	limits := learnedLimits(l)
	for _, n := range noted {
		if until := left(n.Left); n.Which >= 0 && n.Which < len(limits) && until.After(now) {
			one := limits[n.Which]
			until = later(until, one.Until)
			one.Tighten(n.Most, now)
			one.Until = until
		}
	}
}

// noteCapacity gives what is known; nothing when it is not.
func noteCapacity(c *throttle.Capacity, now time.Time) state.Capacity {
	if c.Most == 0 {
		return state.Capacity{}
	}
	return state.Capacity{Most: c.Most, Hold: c.Hold.Milliseconds(), Left: max(0, c.Until.Sub(now).Milliseconds())}
}

// recallCapacity takes what was noted. Of what is known already the stricter holds.
func recallCapacity(c *throttle.Capacity, now time.Time, m state.Capacity, until time.Time) {
	if m.Most <= 0 || c.Most > 0 && c.Most <= m.Most {
		return
	}
	hold := state.Millis(m.Hold, throttle.CapacityHoldMost)
	c.Most, c.Hold = m.Most, max(throttle.CapacityHold, hold)
	c.Until = later(now, until)
	if limit := now.Add(throttle.CapacityHoldMost); c.Until.After(limit) {
		c.Until = limit
	}
}

// learnedLimits gives all limits in the order in which a snapshot numbers them.
func learnedLimits(l *throttle.Learned) []*throttle.LearnedLimit {
	return []*throttle.LearnedLimit{&l.PerSession, &l.Refused, &l.PerTransaction}
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
	learned := &me.allowance.learned
	m := state.Snapshot{V: state.Version, At: me.options.ledgerTime(now).UnixMilli(),
		Pauses: min(me.paths.receiver.inRow, state.CountMax), Limits: noteLearned(learned, now),
		Capacity: noteCapacity(&learned.Connections, now), Sources: me.paths.noteSources(now)}
	if left := me.paths.receiver.until.Sub(now); left > 0 {
		m.Paused, m.Excuse = left.Milliseconds(), state.AttemptOf(me.paths.receiver.excuse.Attempt)
	}
	for _, l := range me.paths.routes {
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
	recallLearned(&me.allowance.learned, now, m.Limits, left)
	if age < throttle.LearnedFor {
		recallCapacity(&me.allowance.learned.Connections, now, m.Capacity, left(m.Capacity.Left))
	}
	if until := left(m.Paused); m.Paused > 0 && until.After(now) && until.After(me.paths.receiver.until) {
		me.paths.receiver.until, me.paths.receiver.excuse = until, me.options.judgeRecalled(m.Excuse)
	}
	if age < throttle.LearnedFor {
		me.paths.receiver.inRow = max(me.paths.receiver.inRow, state.Count(m.Pauses))
	}
	me.paths.recallSources(now, age, m.Sources, len(me.sessions.all) == 0)
	me.paths.restored = &restored{queues: map[string]state.Lane{}, hosts: map[string]state.Host{}, read: now.Add(-age)}
	for _, l := range m.Lanes {
		me.paths.restored.queues[l.Key] = l
	}
	for _, h := range m.Hosts {
		me.paths.restored.hosts[h.Host+" "+h.At] = h
	}
	for _, l := range me.paths.routes {
		me.paths.remindRoute(now, l)
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
func (me *memory) askKnown(now time.Time, share registry.Fraction) bool {
	switch {
	case me.options.Facts == nil:
		return true
	case share.IsNone():
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
