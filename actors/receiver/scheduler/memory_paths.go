package scheduler

import (
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// noteRate returns a Pace in the form of a snapshot.
func noteRate(t *throttle.Pace) facts.Rate {
	m, worth := t.Remember()
	if !worth {
		return facts.Rate{}
	}
	return facts.RateOf(m)
}

// noteSources returns the state of our sources, and the stored state of other nodes' sources.
func (ps *paths) noteSources(now time.Time) []facts.Source {
	var out []facts.Source
	for _, o := range ps.all {
		m := facts.Source{Source: o.name, Suspensions: min(o.count, facts.CountMax),
			Enough: o.grey.Enough.Milliseconds(), Short: o.grey.Short.Milliseconds(),
			Rate: noteRate(o.pace)}
		if left := o.until.Sub(now); left > 0 {
			m.Left, m.Last = left.Milliseconds(), facts.AttemptOf(o.last.Attempt)
		}
		most := o.refusals.PerHour
		if most < throttle.RefusalsUnlimited && o.refusals.RefusedAt(now)*worthShare >= max(1, most) {
			for _, one := range o.refusals.Minutes {
				m.Minutes = append(m.Minutes, facts.Minute{Ago: now.Sub(one.Began).Milliseconds(),
					Accepted: one.Accepted,
					Refused:  one.Refused})
			}
		}
		if !m.Empty() && len(out) < facts.SourcesMax {
			out = append(out, m)
		}
	}
	passed := now.Sub(ps.othersAt)
	for _, m := range ps.others {
		m.Left = max(0, m.Left-passed.Milliseconds())
		minutes := m.Minutes
		m.Minutes, m.HandedOn = nil, true
		for _, one := range minutes {
			if one.Ago += passed.Milliseconds(); one.Ago <= ps.options.scaleHour(time.Hour+time.Minute).Milliseconds() {
				m.Minutes = append(m.Minutes, one)
			}
		}
		if passed < m.Life() && !m.Empty() && len(out) < facts.SourcesMax {
			out = append(out, m)
		}
	}
	return out
}

// recallSources adopts the stored state of our sources and keeps that of other nodes' sources. A source without stored
// state begins with the rate and greylisting of the last node's first source, unless that source was suspended.
func (ps *paths) recallSources(now time.Time, age time.Duration, noted []facts.Source, unused bool) {
	ps.others, ps.othersAt = nil, now.Add(-age)
	noted = noted[:min(len(noted), facts.SourcesMax)]
	for _, o := range ps.all {
		at := slices.IndexFunc(noted, func(m facts.Source) bool { return o.name == m.Source })
		if at >= 0 {
			ps.recallPath(now, age, o, &noted[at], unused)
		} else if len(noted) > 0 && !noted[0].HandedOn && noted[0].Left == 0 {
			o.recallLaw(now, age, &noted[0])
		}
	}
	for _, m := range noted {
		if !slices.ContainsFunc(ps.all, func(o *egressPath) bool { return o.name == m.Source }) {
			ps.others = append(ps.others, m)
		}
	}
}

// recallPath adopts the stored state of one source. The stricter of stored and present state counts.
func (ps *paths) recallPath(now time.Time, age time.Duration, o *egressPath, m *facts.Source, unused bool) {
	left := facts.Millis(m.Left, facts.HoldMost)
	if until := now.Add(min(left-age, facts.HoldMost)); m.Left > 0 && until.After(now) && until.After(o.until) {
		o.until, o.last = until, ps.options.judgeRecalled(m.Last)
	}
	if age < left+throttle.LearnedFor {
		o.count = max(o.count, facts.Count(m.Suspensions))
	}
	o.recallLaw(now, age, m)
	if unused {
		o.recallRefusals(now, age, m.Minutes)
	}
}

// recallLaw adopts a source's stored rate and greylisting.
func (o *egressPath) recallLaw(now time.Time, age time.Duration, m *facts.Source) {
	if age < facts.RateFor {
		o.pace.Recall(m.Rate.Memory(), now)
	}
	if age < facts.GreyFor && o.grey == (throttle.Greylist{}) {
		o.grey = throttle.Greylist{Enough: facts.Millis(m.Enough, facts.GreyFor),
			Short: facts.Millis(m.Short, facts.GreyFor)}
	}
}

// recallRefusals adopts the stored refusals of the last hour.
func (o *egressPath) recallRefusals(now time.Time, age time.Duration, noted []facts.Minute) {
	var minutes []throttle.RefusalMinute
	for _, n := range noted {
		began := now.Add(-age - facts.Millis(n.Ago, facts.HoldMost))
		if last := len(minutes) - 1; o.refusals.IsOver(began, now) ||
			last >= 0 && !began.After(minutes[last].Began) {
			continue // these counts are expired or inconsistent
		}
		minutes = append(minutes, throttle.RefusalMinute{Began: began, Accepted: max(0, n.Accepted),
			Refused: max(0, n.Refused)})
	}
	o.refusals.Inherit(minutes)
}

// noteTo adds the state of our sources, hosts and pauses to a snapshot.
func (ps *paths) noteTo(now time.Time, m *facts.Snapshot) {
	m.Pauses, m.Sources = min(ps.receiver.inRow, facts.CountMax), ps.noteSources(now)
	if left := ps.receiver.until.Sub(now); left > 0 {
		m.Paused, m.PauseCause = left.Milliseconds(), facts.AttemptOf(ps.receiver.judgement.Attempt)
	}
	for _, l := range ps.routes {
		l.noteTo(now, m)
	}
}

// recall adopts a snapshot of a given age. unused: nothing was asked here yet.
func (ps *paths) recall(now time.Time, age time.Duration, m *facts.Snapshot, unused bool) {
	if until := leftAfter(now, age)(m.Paused); m.Paused > 0 && until.After(now) && until.After(ps.receiver.until) {
		ps.receiver.until, ps.receiver.judgement = until, ps.options.judgeRecalled(m.PauseCause)
	}
	if age < throttle.LearnedFor {
		ps.receiver.inRow = max(ps.receiver.inRow, facts.Count(m.Pauses))
	}
	ps.recallSources(now, age, m.Sources, unused)
	ps.restored = &restored{queues: map[string]facts.HostSet{}, hosts: map[string]facts.Host{}, read: now.Add(-age)}
	for _, l := range m.HostSets {
		ps.restored.queues[l.Key] = l
	}
	for _, h := range m.Hosts {
		ps.restored.hosts[h.Host+" "+h.At] = h
	}
	for _, l := range ps.routes {
		ps.recallRoute(now, l)
	}
}

// beginAfterLoss counts a part of each hourly budget as used, because the stored refusals are lost.
func (ps *paths) beginAfterLoss(now time.Time) {
	for _, o := range ps.all {
		if most := o.refusals.PerHour; most < throttle.RefusalsUnlimited {
			o.refusals.Inherit([]throttle.RefusalMinute{{Began: now, Refused: most / lossShare}})
		}
	}
}

// noteTo adds the state of a set of hosts to a snapshot.
func (l *route) noteTo(now time.Time, m *facts.Snapshot) {
	one := facts.HostSet{Key: l.key, Suspensions: l.noteSuspensions(now)}
	if mode := l.tlsModeNow(now); mode != smtp.TLSOpportunistic {
		one.TLS, one.Left = uint8(mode), l.tlsUntil.Sub(now).Milliseconds()
	}
	if (one.TLS > 0 || len(one.Suspensions) > 0) && len(m.HostSets) < facts.HostsMax {
		m.HostSets = append(m.HostSets, one)
	}
	for _, c := range l.candidates {
		if c.failures > 0 && now.Before(c.until.Add(throttle.LearnedFor)) && len(m.Hosts) < facts.HostsMax {
			m.Hosts = append(m.Hosts, facts.Host{Host: c.host, At: c.at.String(),
				Left: max(0, c.until.Sub(now).Milliseconds()), Failures: min(c.failures, facts.CountMax),
				Last: facts.AttemptOf(c.last.Attempt)})
		}
	}
}

// noteSuspensions returns the suspensions of our sources at the hosts.
func (l *route) noteSuspensions(now time.Time) []facts.Suspension {
	var out []facts.Suspension
	for o, r := range l.refusals {
		if left := r.until.Sub(now); left > 0 && len(out) < facts.SourcesMax {
			out = append(out, facts.Suspension{Source: o.name, Left: left.Milliseconds(),
				Suspensions: min(r.count, facts.CountMax), Last: facts.AttemptOf(r.last.Attempt)})
		}
	}
	return out
}

// restored holds the hosts of a snapshot until their routes are made.
type restored struct {
	queues map[string]facts.HostSet
	hosts  map[string]facts.Host // stored hosts by name and address
	read   time.Time
}

// recallRoute gives a new route the stored state of its hosts.
func (ps *paths) recallRoute(now time.Time, l *route) {
	m := ps.restored
	if m == nil {
		return
	}
	until := func(ms int64) time.Time {
		return m.read.Add(facts.Millis(ms, facts.HoldMost))
	}
	one, ok := m.queues[l.key]
	if ok {
		ps.recallSuspensions(now, l, one.Suspensions, until)
	}
	if ok && one.Left > 0 && one.TLS <= uint8(smtp.TLSOffHELO) && now.Before(until(one.Left)) {
		l.tls, l.tlsUntil = smtp.TLSMode(one.TLS), until(one.Left)
	}
	for _, c := range l.candidates {
		h, ok := m.hosts[c.host+" "+c.at.String()]
		if !ok || c.failures > 0 || !now.Before(until(h.Left).Add(throttle.LearnedFor)) {
			continue
		}
		c.until, c.failures, c.last = until(h.Left), facts.Count(h.Failures), ps.options.judgeRecalled(h.Last)
	}
}

// recallSuspensions gives a route the stored suspensions of sources. The longer of a stored and a present one counts.
func (ps *paths) recallSuspensions(now time.Time, l *route, noted []facts.Suspension, until func(ms int64) time.Time) {
	for _, m := range noted[:min(len(noted), facts.SourcesMax)] {
		for _, o := range ps.all {
			if o.name != m.Source || !now.Before(until(m.Left)) {
				continue
			}
			if r := l.refusalOf(o); until(m.Left).After(r.until) {
				r.until, r.count = until(m.Left), max(1, facts.Count(m.Suspensions))
				r.last = ps.options.judgeRecalled(m.Last)
			}
		}
	}
}
