package receiver

import (
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/verdict"
)

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

// note gives what is worth remembering, or false when nothing is and nothing was forgotten.
func (d *desk) note(now time.Time) (state.Fact, bool) {
	m := state.Snapshot{V: state.Version, At: d.options.clock(now).UnixMilli(), Pauses: min(d.pauses, state.CountMax),
		Limits: d.learned.note(now), Capacity: d.learned.connections.note(now), Sources: d.noteSources(now)}
	if left := d.paused.Sub(now); left > 0 {
		m.Paused, m.Excuse = left.Milliseconds(), state.AttemptOf(d.excuse.attempt)
	}
	for _, l := range d.lanes {
		l.note(now, &m)
	}
	if m.Empty() && !d.emptied {
		return state.Fact{}, false
	}
	return state.Fact{Key: d.key, Data: m.Encode(), Expires: time.UnixMilli(m.At).Add(m.Life())}, true
}

// note adds what a lane knows to a snapshot.
func (l *lane) note(now time.Time, m *state.Snapshot) {
	one := state.Lane{Key: l.Key(), Rests: l.noteRests(now)}
	if mode := l.mode(now); mode != smtp.TLSOpportunistic {
		one.TLS, one.Left = uint8(mode), l.tlsUntil.Sub(now).Milliseconds()
	}
	if (one.TLS > 0 || len(one.Rests) > 0) && len(m.Lanes) < state.HostsMax {
		m.Lanes = append(m.Lanes, one)
	}
	for _, c := range l.candidates {
		if c.failures > 0 && now.Before(c.until.Add(learnedFor)) && len(m.Hosts) < state.HostsMax {
			m.Hosts = append(m.Hosts, state.Host{Host: c.host, At: c.at.String(),
				Left: max(0, c.until.Sub(now).Milliseconds()), Failures: min(c.failures, state.CountMax),
				Last: state.AttemptOf(c.last.attempt)})
		}
	}
}

// recalled gives the verdict on what was noted, which is to come back later: what
// the rules of today take for an answer about an address is none for another one.
func (o *Options) recalled(m state.Attempt) verdictOf {
	told := verdictOf{attempt: m.Evidence()}
	told.verdict = o.Rules.Decide(&told.attempt)
	if told.verdict.Outcome != smtp.Undecided || m.At == 0 {
		return verdictOf{verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	told.verdict.Action, told.verdict.Wait = verdict.ActRetry, 0
	return told
}

// recall takes what an earlier actor noted of this receiver. Of what is known
// already the stricter holds. Nil, or what cannot be read: nothing is known.
func (d *desk) recall(now time.Time, data []byte) {
	d.known = true
	if len(data) == 0 {
		return
	}
	m, err := state.Decode(data)
	if err != nil {
		d.options.Log.Debug("memory of a receiver cannot be read", "receiver", d.key, "version", m.V, "err", err)
		return
	}
	age := max(0, d.options.clock(now).Sub(time.UnixMilli(m.At)))
	left := func(ms int64) time.Time { // the time that ms meant
		return now.Add(min(state.Millis(ms, state.HoldMost)-age, state.HoldMost))
	}
	d.learned.recall(now, m.Limits, left)
	if age < learnedFor {
		d.learned.connections.recall(now, m.Capacity, left(m.Capacity.Left))
	}
	if until := left(m.Paused); m.Paused > 0 && until.After(now) && until.After(d.paused) {
		d.paused, d.excuse = until, d.options.recalled(m.Excuse)
		d.rested(now)
	}
	if age < learnedFor {
		d.pauses = max(d.pauses, state.Count(m.Pauses))
	}
	d.recallSources(now, age, m.Sources)
	d.restored = &restored{lanes: map[string]state.Lane{}, hosts: map[string]state.Host{}, read: now.Add(-age)}
	for _, l := range m.Lanes {
		d.restored.lanes[l.Key] = l
	}
	for _, h := range m.Hosts {
		d.restored.hosts[h.Host+" "+h.At] = h
	}
	for _, l := range d.lanes {
		d.remind(now, l)
	}
}

// remind tells a lane what is remembered of its hosts.
func (d *desk) remind(now time.Time, l *lane) {
	m := d.restored
	if m == nil {
		return
	}
	until := func(ms int64) time.Time {
		return m.read.Add(state.Millis(ms, state.HoldMost))
	}
	one, ok := m.lanes[l.Key()]
	if ok {
		d.remindRests(now, l, one.Rests, until)
	}
	if ok && one.Left > 0 && one.TLS <= uint8(smtp.TLSRequired) && now.Before(until(one.Left)) {
		l.tls, l.tlsUntil = smtp.TLSMode(one.TLS), until(one.Left)
	}
	for _, c := range l.candidates {
		h, ok := m.hosts[c.host+" "+c.at.String()]
		if !ok || c.failures > 0 || !now.Before(until(h.Left).Add(learnedFor)) {
			continue
		}
		c.until, c.failures, c.last = until(h.Left), state.Count(h.Failures), d.options.recalled(h.Last)
	}
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

// clock gives the time of the ledger.
func (o Options) clock(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}

// remember notes what was learned, when it is time.
func (d *desk) remember(now time.Time, urgent bool) {
	if d.options.Facts == nil || !d.dirty {
		return
	}
	if due := d.noted.Add(noteEvery); !urgent && now.Before(due) {
		d.at(due)
		return
	}
	d.dirty, d.noted = false, now
	if fact, worth := d.note(now); worth {
		d.steps = append(d.steps, keepFact{fact})
	}
}

// know says whether the desk knows what it can know, and sees to it that it will.
// A place that had no share must look again: others may have been here.
func (d *desk) know(now time.Time, share part) bool {
	switch {
	case d.options.Facts == nil:
		return true
	case share.none():
		d.remember(now, true)
		d.known, d.asked = false, time.Time{}
	case !d.known && d.asked.IsZero():
		d.asked = now
		d.steps = append(d.steps, knowFact{d.key})
		d.at(now.Add(knowWithin))
	case !d.known && now.Sub(d.asked) >= knowWithin:
		d.forgotten(now)
	case !d.known:
		d.at(d.asked.Add(knowWithin))
	}
	return d.known
}
