package scheduler

import (
	"fmt"
	"time"

	"rollcall/actors/facts"
	"rollcall/smtp/throttle"
)

// memory decides when the stored snapshot of this receiver is read, and when a new one is stored for the next owner.
type memory struct {
	*env
	ready bool      // the stored snapshot was read, or we no longer wait for it
	asked time.Time // when we asked for it; zero: not yet
	noted time.Time // when the last snapshot was stored
	kept  bool      // a snapshot is stored, so an empty one must replace it
}

const (
	// noteEvery is the least time between two snapshots of one receiver. The node's writer gathers them for two seconds.
	noteEvery = time.Second

	// worthShare: refusals are stored from 1/worthShare of the hour's budget on, because most receivers send only a few.
	// So after a move we may exceed the hour's refusals by at most a quarter.
	worthShare = 4

	// knowWithin is how long an actor waits for the stored snapshot. Then the actor begins as after a loss.
	knowWithin = facts.KnowWithin

	// lossShare: after a loss 1/lossShare of the hour's refusals counts as used. So even two losses in an hour keep within
	// the budget.
	lossShare = 2
)

func (me *memory) isDue(now time.Time, urgent bool) bool {
	if me.options.Facts == nil || !me.dirty {
		return false
	}
	if due := me.noted.Add(noteEvery); !urgent && now.Before(due) {
		me.wakeAt(due)
		return false
	}
	me.dirty, me.noted = false, now
	return true
}

// askKnown asks for the stored snapshot. askKnown reports whether the wait for the snapshot has just ended in vain. A
// receiver without a share asks again later, because another node may have learned more.
func (me *memory) askKnown(now time.Time, hasShare bool) (lost bool) {
	switch {
	case me.options.Facts == nil:
		me.ready = true
	case !hasShare:
		me.ready, me.asked = false, time.Time{}
	case me.ready:
	case me.asked.IsZero():
		me.asked = now
		me.steps = append(me.steps, KnowFact{me.key})
		me.wakeAt(now.Add(knowWithin))
	case now.Sub(me.asked) >= knowWithin:
		me.ready = true
		return true
	default:
		me.wakeAt(me.asked.Add(knowWithin))
	}
	return false
}

// snapshot returns the state to store; false: there is no state, and none was stored before.
func (sc *Scheduler) snapshot(now time.Time) (facts.Fact, bool) {
	m := facts.Snapshot{V: facts.SnapshotVersion, At: sc.options.ledgerTime(now).UnixMilli()}
	sc.allowance.noteTo(now, &m)
	if opening := sc.opening.rate.Remember(); opening.Rate > 0 {
		m.Opening = facts.RateOf(opening)
	}
	sc.paths.noteTo(now, &m)
	if m.Empty() && !sc.memory.kept {
		return facts.Fact{}, false
	}
	sc.memory.kept = !m.Empty()
	return facts.Fact{Key: sc.key, Data: m.Encode(), Expires: time.UnixMilli(m.At).Add(m.Life())}, true
}

// keepSnapshot stores a snapshot if one is due.
func (sc *Scheduler) keepSnapshot(now time.Time, urgent bool) {
	if !sc.memory.isDue(now, urgent) {
		return
	}
	if fact, worth := sc.snapshot(now); worth {
		sc.steps = append(sc.steps, KeepFact{fact})
	}
}

// Recall adopts a stored snapshot. The stricter of stored and present state counts. If the snapshot is nil or
// unreadable, nothing changes.
func (sc *Scheduler) Recall(now time.Time, data []byte) {
	sc.memory.ready = true
	if len(data) == 0 {
		return
	}
	m, err := facts.Decode(data)
	if err != nil {
		sc.options.Log.Debug("unreadable snapshot of a receiver", "receiver", sc.key, "version", m.V, "err", err)
		return
	}
	sc.memory.kept = true
	age := max(0, sc.options.ledgerTime(now).Sub(time.UnixMilli(m.At)))
	sc.allowance.recall(now, age, &m)
	if age < throttle.LearnedFor {
		sc.opening.rate.Recall(m.Opening.Memory(), now)
	}
	sc.paths.recall(now, age, &m, len(sc.sessions.all) == 0)
}

// Forget drops what was learned of the receiver, and returns a sentence for each thing dropped. what is ForgetPace,
// ForgetSessions, ForgetBlock or ForgetAll. Counts, such as the refusals of the hour, stay.
func (sc *Scheduler) Forget(now time.Time, what string) (dropped []string) {
	if forgets(what, ForgetBlock) {
		dropped = append(dropped, sc.paths.forgetBlock(now)...)
	}
	if forgets(what, ForgetPace) {
		dropped = append(dropped, sc.paths.forgetPace(now, sc.allowance.rateBounds(sc.allowance.allowedWhole()))...)
	}
	if forgets(what, ForgetSessions) {
		dropped = append(dropped, sc.allowance.forgetLearned(now)...)
		sc.opening.forgetSearch(now)
	}
	if what == ForgetAll {
		dropped = append(dropped, sc.paths.forgetOthers(now)...)
		dropped = append(dropped, sc.allowance.forgetSoftware()...)
		for _, l := range sc.queues.all {
			l.greyed = time.Time{}
		}
	}
	others := facts.Snapshot{Sources: sc.paths.others}
	dropped = append(dropped, ForgetSnapshot(&others, what)...)
	sc.paths.others = others.Sources
	sc.dirty, sc.memory.kept = true, true
	sc.queues.readmitAll()
	sc.options.Log.Info("learned limits cleared", "receiver", sc.key, "what", what, "dropped", len(dropped))
	return dropped
}

// noteTo adds the learned limits of sessions to a snapshot.
func (al *allowance) noteTo(now time.Time, m *facts.Snapshot) {
	m.Limits, m.Capacity = noteLearned(&al.learned, now), noteCapacity(&al.learned.Connections, now)
}

// recall adopts a snapshot of a given age.
func (al *allowance) recall(now time.Time, age time.Duration, m *facts.Snapshot) {
	left := leftAfter(now, age)
	recallLearned(&al.learned, now, m.Limits, left)
	if age < throttle.LearnedFor {
		recallCapacity(&al.learned.Connections, now, m.Capacity, left(m.Capacity.Left))
	}
}

// leftAfter converts the rest of a wait, which was stored an age ago, into its end.
func leftAfter(now time.Time, age time.Duration) func(ms int64) time.Time {
	return func(ms int64) time.Time { return now.Add(min(facts.Millis(ms, facts.HoldMost)-age, facts.HoldMost)) }
}

// noteLearned returns the learned limits in force.
func noteLearned(l *throttle.Learned, now time.Time) []facts.Limit {
	var out []facts.Limit
	for i, one := range learnedLimits(l) {
		if now.Before(one.Until) {
			out = append(out, facts.Limit{Which: i, Most: one.Most, Left: one.Until.Sub(now).Milliseconds()})
		}
	}
	return out
}

// recallLearned lowers the limits to the stored limits.
func recallLearned(l *throttle.Learned, now time.Time, noted []facts.Limit, left func(ms int64) time.Time) {
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

// noteCapacity returns the learned capacity; zero: none.
func noteCapacity(c *throttle.Capacity, now time.Time) facts.Capacity {
	if c.Most == 0 {
		return facts.Capacity{}
	}
	return facts.Capacity{Most: c.Most, Hold: c.Hold.Milliseconds(), Left: max(0, c.Until.Sub(now).Milliseconds())}
}

// recallCapacity adopts a stored capacity if it is stricter than the present capacity.
func recallCapacity(c *throttle.Capacity, now time.Time, m facts.Capacity, until time.Time) {
	if m.Most <= 0 || c.Most > 0 && c.Most <= m.Most {
		return
	}
	hold := facts.Millis(m.Hold, throttle.CapacityHoldMost)
	c.Most, c.Hold = m.Most, max(throttle.CapacityHold, hold)
	c.Until = later(now, until)
	if limit := now.Add(throttle.CapacityHoldMost); c.Until.After(limit) {
		c.Until = limit
	}
}

// learnedLimits returns all limits in the order of their numbers in a snapshot.
func learnedLimits(l *throttle.Learned) []*throttle.LearnedLimit {
	return []*throttle.LearnedLimit{&l.PerSession, &l.Refused, &l.PerTransaction}
}

// noteRaised begins a new search from the learned limits when an operator allows more.
func (al *allowance) noteRaised(allowed throttle.Limits, now time.Time) {
	old := al.before
	al.before = allowed
	if l := &al.learned; allowed != old && old != (throttle.Limits{}) {
		if c := &l.Connections; c.Most > 0 && c.Most < old.Connections && allowed.Connections > old.Connections {
			c.Hold, c.Step, c.Until = throttle.CapacityHold, 0, now
		}
		l.PerSession.Raise(old.RcptsPerConnection, allowed.RcptsPerConnection)
		l.Refused.Raise(old.RefusedPerSession, allowed.RefusedPerSession)
		l.PerTransaction.Raise(old.RcptsPerTransaction, allowed.RcptsPerTransaction)
	}
}

// forgetLearned drops the learned limits on the number and length of sessions.
func (al *allowance) forgetLearned(now time.Time) (dropped []string) {
	for _, l := range learnedStatus(&al.learned, now) {
		dropped = append(dropped, fmt.Sprintf("the learned limit %s=%s, which would hold until %s", l.Field, l.Value,
			l.Until.UTC().Format(time.TimeOnly)))
	}
	if c := al.learned.Connections; c.Most > 0 && !now.Before(c.Until) {
		dropped = append(dropped, fmt.Sprintf("that it takes %d sessions at once", c.Most))
	}
	al.learned = throttle.Learned{}
	return dropped
}

// forgetSoftware drops what the receiver's hosts showed of their software.
func (al *allowance) forgetSoftware() (dropped []string) {
	if text := al.software.words(); text != "" {
		dropped = append(dropped, text)
	}
	al.software = shownSoftware{}
	return dropped
}
