package scheduler

import (
	"fmt"
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/inspect"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// The parts of what was learned of a receiver that an operator can drop: inspect.Forgets.
const (
	ForgetPace     = "pace"     // how fast each of our sources may ask the receiver
	ForgetSessions = "sessions" // how many sessions the receiver allows, and how long
	ForgetBlock    = "block"    // pauses of the receiver, of its hosts and of our sources there
	ForgetAll      = "all"      // all of the above, and greylisting, TLS and software
)

// forgets reports whether the operator's choice includes a part.
func forgets(what, part string) bool { return what == part || what == ForgetAll }

// ForgetSnapshot drops parts of a snapshot and returns a sentence for each.
func ForgetSnapshot(m *facts.Snapshot, what string) (dropped []string) {
	drop := func(there bool, text string) {
		if there {
			dropped = append(dropped, text)
		}
	}
	if forgets(what, ForgetSessions) {
		drop(len(m.Limits) > 0 || m.Capacity != (facts.Capacity{}) || m.Opening != (facts.Rate{}),
			"the stored limits of its sessions")
		m.Limits, m.Capacity, m.Opening = nil, facts.Capacity{}, facts.Rate{}
	}
	if forgets(what, ForgetBlock) {
		drop(m.Pauses > 0 || m.Paused > 0, "the stored pause of the whole receiver")
		drop(len(m.Hosts) > 0, "the stored pauses of its hosts")
		m.Pauses, m.Paused, m.PauseCause, m.Hosts = 0, 0, facts.Attempt{}, nil
		suspended := false
		for i := range m.HostSets {
			suspended = suspended || len(m.HostSets[i].Suspensions) > 0
			m.HostSets[i].Suspensions = nil
		}
		drop(suspended, "the stored suspensions of our sources at its hosts")
	}
	if what == ForgetAll {
		drop(len(m.HostSets) > 0, "the stored TLS modes of its hosts")
		m.HostSets = nil
	}
	m.HostSets = slices.DeleteFunc(m.HostSets, func(l facts.HostSet) bool {
		return l.TLS == 0 && len(l.Suspensions) == 0
	})
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

// forgetSource drops what was stored of one source. The refusals of the hour stay, because they happened.
func forgetSource(m *facts.Source, what string) (dropped []string) {
	name := sourceWords(m.Source)
	if forgets(what, ForgetPace) && m.Rate != (facts.Rate{}) {
		dropped = append(dropped, fmt.Sprintf("the stored pace of %s, %.3g/s", name, float64(m.Rate.Rate)/1000))
		m.Rate = facts.Rate{}
	}
	if forgets(what, ForgetBlock) {
		if m.Left > 0 {
			dropped = append(dropped, "the stored suspension of "+name)
		}
		m.Left, m.Suspensions, m.Last = 0, 0, facts.Attempt{}
	}
	if what == ForgetAll && (m.Enough > 0 || m.Short > 0) {
		dropped = append(dropped, "how long it greylists "+name+", as stored")
		m.Enough, m.Short = 0, 0
	}
	return dropped
}

// sourceWords names one of our sources in a sentence.
func sourceWords(name string) string { return "our source " + inspect.SourceName(name) }

func (ps *paths) forgetPace(now time.Time, b throttle.RateBounds) (dropped []string) {
	for _, o := range ps.all {
		old, found := o.pace.Explain(), o.pace.Lasting()
		_, knew := o.pace.Remember()
		if o.beginRate(b, now); !knew {
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

// forgetBlock ends the pauses of the receiver and its hosts, and the suspensions of our sources.
func (ps *paths) forgetBlock(now time.Time) (dropped []string) {
	gone := func(until time.Time, judged Judgement, format string, args ...any) {
		if now.Before(until) {
			dropped = append(dropped, fmt.Sprintf(format, args...)+fmt.Sprintf(" until %s (%s)",
				until.UTC().Format(time.TimeOnly), judged.Verdict.Reason))
		}
	}
	gone(ps.receiver.until, ps.receiver.judgement, "the pause of the whole receiver")
	ps.receiver = pause{}
	for _, o := range ps.all {
		o.pace.Wake(now)
		gone(o.until, o.last, "the suspension of %s at the whole receiver", sourceWords(o.name))
		o.suspension = suspension{}
		clear(o.refusing)
	}
	ps.restored = nil // stored pauses of hosts that have no queue yet
	for _, l := range ps.routes {
		for o, r := range l.refusals {
			gone(r.until, r.last, "the suspension of %s at %s", sourceWords(o.name), l.inWords())
		}
		l.refusals = nil
		for _, c := range l.candidates {
			gone(c.until, c.last, "the pause of the host %s [%s]", c.host, c.at)
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

// forgetOthers drops everything but rates, sessions and pauses.
func (ps *paths) forgetOthers(now time.Time) (dropped []string) {
	for _, o := range ps.all {
		if o.grey.Enough > 0 || o.grey.Short > 0 {
			dropped = append(dropped, fmt.Sprintf("how long it greylists %s: %s sufficed", sourceWords(o.name),
				o.grey.Enough.Round(time.Second)))
		}
		o.grey = throttle.Greylist{}
	}
	for _, l := range ps.routes {
		if mode := l.tlsModeNow(now); mode != smtp.TLSOpportunistic {
			dropped = append(dropped, "the TLS mode of "+l.inWords())
		}
		l.tls, l.tlsUntil, l.alone = smtp.TLSOpportunistic, time.Time{}, time.Time{}
	}
	slices.Sort(dropped)
	return dropped
}
