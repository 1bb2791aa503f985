package scheduler

import (
	"fmt"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// What an operator can have forgotten of a receiver: inspect.Forgets.
const (
	ForgetPace     = "pace"     // how fast each of our sources may ask it
	ForgetSessions = "sessions" // how many sessions it takes, and how long they may be
	ForgetBlock    = "block"    // that it, its hosts or our sources there rest
	ForgetAll      = "all"      // that, how it greylists, its TLS and its software
)

// forgets says whether what an operator named has a part in it.
func forgets(what, part string) bool { return what == part || what == ForgetAll }

// sourceWords names a source of ours in a sentence.
func sourceWords(name string) string { return "our source " + inspect.SourceName(name) }

// ForgetSnapshot drops parts of a snapshot and says what, in a sentence each.
func ForgetSnapshot(m *state.Snapshot, what string) (dropped []string) {
	drop := func(there bool, text string) {
		if there {
			dropped = append(dropped, text)
		}
	}
	if forgets(what, ForgetSessions) {
		drop(len(m.Limits) > 0 || m.Capacity != (state.Capacity{}), "the kept limits of its sessions")
		m.Limits, m.Capacity = nil, state.Capacity{}
	}
	if forgets(what, ForgetBlock) {
		drop(m.Pauses > 0 || m.Paused > 0, "the kept rest of the whole receiver")
		drop(len(m.Hosts) > 0, "the kept rests of its hosts")
		m.Pauses, m.Paused, m.Excuse, m.Hosts = 0, 0, state.Attempt{}, nil
		rests := false
		for i := range m.Lanes {
			rests = rests || len(m.Lanes[i].Rests) > 0
			m.Lanes[i].Rests = nil
		}
		drop(rests, "the kept rests of our sources at its hosts")
	}
	if what == ForgetAll {
		drop(len(m.Lanes) > 0, "the kept TLS modes of its hosts")
		m.Lanes = nil
	}
	m.Lanes = slices.DeleteFunc(m.Lanes, func(l state.Lane) bool { return l.TLS == 0 && len(l.Rests) == 0 })
	left := m.Sources[:0:0]
	for _, s := range m.Sources {
		dropped = append(dropped, forgetSource(&s, what)...)
		if !s.Empty() {
			left = append(left, s)
		}
	}
	m.Sources = left
	return dropped
}

// forgetSource drops what was kept of one source. The refusals of the hour stay: they happened.
func forgetSource(m *state.Source, what string) (dropped []string) {
	name := sourceWords(m.Source)
	if forgets(what, ForgetPace) && m.Tempo != (state.Rate{}) {
		dropped = append(dropped, fmt.Sprintf("the kept pace of %s, %.3g/s", name, float64(m.Tempo.Rate)/1000))
		m.Tempo = state.Rate{}
	}
	if forgets(what, ForgetBlock) {
		if m.Left > 0 {
			dropped = append(dropped, "the kept rest of "+name)
		}
		m.Left, m.Rests, m.Last = 0, 0, state.Attempt{}
	}
	if what == ForgetAll && (m.Enough > 0 || m.Short > 0) {
		dropped = append(dropped, "how long it greylists "+name+", as kept")
		m.Enough, m.Short = 0, 0
	}
	return dropped
}

// forgetLearned drops what the receiver taught us, and says each thing that is dropped in a
// sentence. What it was seen to be asked, as refusals of the hour, stays.
func (me *memory) forgetLearned(now time.Time, what string) (dropped []string) {
	if forgets(what, ForgetBlock) {
		dropped = append(dropped, me.forgetBlock(now)...)
	}
	if forgets(what, ForgetPace) {
		dropped = append(dropped, me.forgetPace(now)...)
	}
	if forgets(what, ForgetSessions) {
		dropped = append(dropped, me.forgetSessions(now)...)
	}
	if what == ForgetAll {
		dropped = append(dropped, me.forgetRest(now)...)
	}
	others := state.Snapshot{Sources: me.paths.others}
	dropped = append(dropped, ForgetSnapshot(&others, what)...)
	me.paths.others = others.Sources
	me.dirty, me.emptied = true, true
	for me.queues.aside.Len() > 0 { // what kept them may be over
		me.queues.aside.Pop().queue.Readmit()
	}
	me.options.Log.Info("receiver's lessons forgotten", "receiver", me.key, "what", what, "dropped", len(dropped))
	return dropped
}

// noteRaised begins a new search where somebody allows more than was learned below what was
// allowed before: from what was learned, and at once.
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

// forgetPace begins the pace of each source anew.
func (me *memory) forgetPace(now time.Time) (dropped []string) {
	b := me.allowance.rateBounds(me.allowance.allowedWhole())
	for _, o := range me.paths.all {
		old, found := o.pace.Explain(now), o.pace.Lasting()
		_, knew := o.pace.Remember()
		o.pace = throttle.NewPace(b, now)
		rate, _ := o.pace.Permits(now)
		o.rcpts = throttle.NewWindow(rate, now)
		if !knew {
			continue // nothing was learned
		}
		text := fmt.Sprintf("the pace of %s, %.3g/s", sourceWords(o.name), found)
		if old.Edge > 0 {
			text += fmt.Sprintf(" since %.3g/s was too fast", old.Edge)
		}
		dropped = append(dropped, text)
	}
	return dropped
}

// forgetSessions drops what was learned of the number and the length of sessions.
func (me *memory) forgetSessions(now time.Time) (dropped []string) {
	for _, l := range learnedStatus(&me.allowance.learned, now) {
		dropped = append(dropped, fmt.Sprintf("the learned limit %s=%s, which would hold until %s", l.Field, l.Value,
			l.Until.UTC().Format(time.TimeOnly)))
	}
	if c := me.allowance.learned.Connections; c.Most > 0 && !now.Before(c.Until) {
		dropped = append(dropped, fmt.Sprintf("that it takes %d sessions at once", c.Most))
	}
	me.allowance.learned = throttle.Learned{}
	me.opening.forgetSearch(now)
	return dropped
}

// forgetBlock ends the rests of the receiver, of our sources at it, and of its hosts.
func (me *memory) forgetBlock(now time.Time) (dropped []string) {
	gone := func(until time.Time, told Judgement, format string, args ...any) {
		if now.Before(until) {
			dropped = append(dropped, fmt.Sprintf(format, args...)+fmt.Sprintf(" until %s (%s)",
				until.UTC().Format(time.TimeOnly), told.Verdict.Reason))
		}
	}
	gone(me.paths.receiver.until, me.paths.receiver.excuse, "the rest of the whole receiver")
	me.paths.receiver = pause{}
	for _, o := range me.paths.all {
		o.pace.Wake(now)
		gone(o.until, o.last, "the rest of %s at the whole receiver", sourceWords(o.name))
		o.suspension = suspension{}
		clear(o.refusing)
	}
	me.paths.restored = nil // of hosts and queues that were not met yet
	for _, l := range me.paths.routes {
		for o, r := range l.refusals {
			gone(r.until, r.last, "the rest of %s at %s", sourceWords(o.name), l.inWords())
		}
		l.refusals = nil
		for _, c := range l.candidates {
			gone(c.until, c.last, "the rest of the host %s [%s]", c.host, c.at)
			if now.Before(c.aside) {
				dropped = append(dropped, fmt.Sprintf("that the host %s is asked after the others until %s", c.host,
					c.aside.UTC().Format(time.TimeOnly)))
			}
			c.until, c.failures, c.last, c.aside, c.doubts, c.fails = time.Time{}, 0, Judgement{}, time.Time{}, 0, 0
		}
	}
	slices.Sort(dropped)
	return slices.Compact(dropped) // queues share hosts
}

// forgetRest drops what is neither pace, nor sessions, nor a block.
func (me *memory) forgetRest(now time.Time) (dropped []string) {
	for _, o := range me.paths.all {
		if o.grey.Enough > 0 || o.grey.Short > 0 {
			dropped = append(dropped, fmt.Sprintf("how long it greylists %s: %s sufficed", sourceWords(o.name),
				o.grey.Enough.Round(time.Second)))
		}
		o.grey = throttle.Greylist{}
	}
	for _, l := range me.paths.routes {
		if mode := l.tlsModeNow(now); mode != smtp.TLSOpportunistic {
			dropped = append(dropped, "the TLS mode of "+l.inWords())
		}
		l.tls, l.tlsUntil, l.alone = smtp.TLSOpportunistic, time.Time{}, time.Time{}
	}
	for _, l := range me.queues.all {
		l.greyed = time.Time{}
	}
	if text := me.allowance.software.words(); text != "" {
		dropped = append(dropped, text)
	}
	me.allowance.software = shownSoftware{}
	slices.Sort(dropped)
	return dropped
}
