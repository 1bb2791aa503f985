package receiver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/actors/view"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// What an operator can have forgotten of a receiver: view.Forgets.
const (
	ForgetPace     = "pace"     // how fast each of our sources may ask it
	ForgetSessions = "sessions" // how many sessions it takes, and how long they may be
	ForgetBlock    = "block"    // that it, its hosts or our sources there rest
	ForgetAll      = "all"      // that, how it greylists, and its TLS
)

// forgets says whether what an operator named has a part in it.
func forgets(what, part string) bool { return what == part || what == ForgetAll }

// Forget drops what the receivers that a key, or the name of a rule, stands for have taught
// this node, and what is kept of it for later: what is one of the constants above. It gives
// one answer for each that lives here, and ends with ctx, as Survey does.
func (l *Living) Forget(ctx context.Context, key, what string) []view.Forgotten {
	return inquire(ctx, l, standsFor(key), func(d *desk, now time.Time) view.Forgotten {
		return view.Forgotten{Key: d.key, Dropped: d.forget(now, what)}
	})
}

// ForgetKept does the same for a receiver that lives on no node: only what is kept for later
// is there. It looks for the key, for it as that of a suffix, and for shards of both.
func (l *Living) ForgetKept(ctx context.Context, key, what string) ([]view.Forgotten, error) {
	l.mu.Lock()
	facts := l.facts
	l.mu.Unlock()
	if facts == nil {
		return nil, nil
	}
	known, err := facts.Known(ctx, keptKeys(key))
	if err != nil {
		return nil, fmt.Errorf("read what is known of %s: %w", key, err)
	}
	var out []view.Forgotten
	var less []state.Fact
	for _, f := range known {
		m, err := state.Decode(f.Data)
		if err != nil {
			continue
		}
		dropped := forgetSnapshot(&m, what)
		if len(dropped) > 0 {
			f.Data = m.Encode()
			less = append(less, f)
		}
		out = append(out, view.Forgotten{Key: f.Key, Dropped: dropped})
	}
	if len(less) == 0 {
		return out, nil
	}
	if err := facts.Learn(ctx, less); err != nil {
		return nil, fmt.Errorf("keep what is left of %s: %w", key, err)
	}
	return out, nil
}

// keptKeys are the keys under which something may be kept of a name. Shards beyond few are
// not looked for: 1,000 keys are a question, and who has that many is never without work.
func keptKeys(name string) []string {
	const few = 8
	var out []string
	for _, key := range []string{name, throttle.SuffixKey(name)} {
		for of := 1; of <= few; of++ {
			for i := range of {
				out = append(out, throttle.ShardKey(key, i, of))
			}
		}
	}
	return out
}

// forget drops what the receiver taught us, and says each thing that is dropped in a
// sentence. What it was seen to be asked, as refusals of the hour, stays.
func (d *desk) forget(now time.Time, what string) (dropped []string) {
	if forgets(what, ForgetBlock) {
		dropped = append(dropped, d.forgetBlock(now)...)
	}
	if forgets(what, ForgetPace) {
		dropped = append(dropped, d.forgetPace(now)...)
	}
	if forgets(what, ForgetSessions) {
		dropped = append(dropped, d.forgetSessions(now)...)
	}
	if what == ForgetAll {
		dropped = append(dropped, d.forgetRest(now)...)
	}
	others := state.Snapshot{Sources: d.others}
	dropped = append(dropped, forgetSnapshot(&others, what)...)
	d.others = others.Sources
	d.dirty, d.emptied = true, true
	for d.aside.Len() > 0 { // what kept them may be over
		d.aside.Pop().lane.Readmit()
	}
	d.options.Log.Info("receiver's lessons forgotten", "receiver", d.key, "what", what, "dropped", len(dropped))
	return dropped
}

// raised begins a new search where somebody allows more than was learned below what was
// allowed before: from what was learned, and at once.
func (d *desk) raised(allowed throttle.Limits, now time.Time) {
	old := d.allowed
	d.allowed = allowed
	if l := &d.learned; allowed != old && old != (throttle.Limits{}) {
		if c := &l.connections; c.most > 0 && c.most < old.Connections && allowed.Connections > old.Connections {
			c.hold, c.step, c.until = capacityHold, 0, now
		}
		l.perSession.raised(old.RcptsPerConnection, allowed.RcptsPerConnection)
		l.refused.raised(old.RefusedPerSession, allowed.RefusedPerSession)
		l.perTransaction.raised(old.RcptsPerTransaction, allowed.RcptsPerTransaction)
	}
}

// raised drops a limit that was learned below what was allowed before, when more is allowed.
func (l *limit) raised(old, allowed int) {
	if l.most < old && allowed > old {
		*l = limit{}
	}
}

// forgetPace begins the tempo of each source anew.
func (d *desk) forgetPace(now time.Time) (dropped []string) {
	b := d.bounds(d.allow())
	for _, o := range d.outlets {
		old, found := o.tempo.Explain(now), o.tempo.Lasting()
		knew, _ := o.tempo.Remember()
		o.tempo = throttle.NewAdaptiveRate(b, now)
		if d.paused.After(now) {
			o.tempo.Rested(d.paused, now)
		}
		o.causes.DropTrials()
		o.causes, o.experiment, o.lesson = throttle.NewCauses(), throttle.Experiment{}, now
		rate, _ := o.tempo.Permits(now)
		o.rcpts = throttle.NewWindow(rate, now)
		if knows, _ := o.tempo.Remember(); knew == knows {
			continue // nothing was learned
		}
		text := fmt.Sprintf("the pace of %s, %.3g/s", sourceWords(o.name), found)
		if old.Edge > 0 {
			text += fmt.Sprintf(" since %.3g/s was too fast", old.Edge)
		}
		dropped = append(dropped, text)
	}
	d.keepTrials()
	return dropped
}

// sourceWords names a source of ours in a sentence.
func sourceWords(name string) string { return "our source " + view.SourceName(name) }

// words names a lane in a sentence, by its hosts.
func (l *lane) words() string { return strings.TrimSuffix(l.Key(), ",") }

// forgetSessions drops what was learned of the number and the length of sessions.
func (d *desk) forgetSessions(now time.Time) (dropped []string) {
	for _, l := range d.learned.tell(now) {
		dropped = append(dropped, fmt.Sprintf("the learned limit %s=%s, which would hold until %s", l.Field, l.Value,
			l.Until.UTC().Format(time.TimeOnly)))
	}
	if c := d.learned.connections; c.most > 0 && !now.Before(c.until) {
		dropped = append(dropped, fmt.Sprintf("that it takes %d sessions at once", c.most))
	}
	d.learned = learned{}
	d.opening = openings{}
	d.opening.begin(d.bounds(d.allow()), d.allowance.ConnectionRate, now)
	return dropped
}

// forgetBlock ends the rests of the receiver, of our sources at it, and of its hosts.
func (d *desk) forgetBlock(now time.Time) (dropped []string) {
	gone := func(until time.Time, told verdictOf, format string, args ...any) {
		if now.Before(until) {
			dropped = append(dropped, fmt.Sprintf(format, args...)+fmt.Sprintf(" until %s (%s)",
				until.UTC().Format(time.TimeOnly), told.verdict.Reason))
		}
	}
	gone(d.paused, d.excuse, "the rest of the whole receiver")
	if now.Before(d.paused) { // the tempos rest with it: they go on at what they found
		for _, o := range d.outlets {
			d.wakeTempo(now, o)
		}
	}
	d.paused, d.pausedAt, d.pauses, d.excuse = time.Time{}, time.Time{}, 0, verdictOf{}
	for _, o := range d.outlets {
		gone(o.until, o.last, "the rest of %s at the whole receiver", sourceWords(o.name))
		o.rested = rested{}
		clear(o.refusing)
	}
	d.restored = nil // of hosts and lanes that were not met yet
	for _, l := range d.lanes {
		for o, r := range l.refusals {
			gone(r.until, r.last, "the rest of %s at %s", sourceWords(o.name), l.words())
		}
		l.refusals = nil
		for _, c := range l.candidates {
			gone(c.until, c.last, "the rest of the host %s [%s]", c.host, c.at)
			c.until, c.failures, c.last = time.Time{}, 0, verdictOf{}
		}
	}
	slices.Sort(dropped)
	return slices.Compact(dropped) // lanes share hosts
}

// wakeTempo ends the rest of a tempo and keeps what it has found.
func (d *desk) wakeTempo(now time.Time, o *outlet) {
	found, worth := o.tempo.Remember()
	o.tempo = throttle.NewAdaptiveRate(d.bounds(d.allow()), now)
	if worth {
		o.tempo.Recall(found, now)
	}
}

// forgetRest drops what is neither pace, nor sessions, nor a block.
func (d *desk) forgetRest(now time.Time) (dropped []string) {
	for _, o := range d.outlets {
		if o.grey.enough > 0 || o.grey.short > 0 {
			dropped = append(dropped, fmt.Sprintf("how long it greylists %s: %s sufficed", sourceWords(o.name),
				o.grey.enough.Round(time.Second)))
		}
		o.grey = greylist{}
	}
	for _, l := range d.lanes {
		if mode := l.mode(now); mode != smtp.TLSOpportunistic {
			dropped = append(dropped, "the TLS mode of "+l.words())
		}
		l.tls, l.tlsUntil, l.greyed = smtp.TLSOpportunistic, time.Time{}, time.Time{}
	}
	slices.Sort(dropped)
	return dropped
}

// forgetSnapshot drops parts of a snapshot and says what, in a sentence each.
func forgetSnapshot(m *state.Snapshot, what string) (dropped []string) {
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
