package receiver

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// downMost bounds how long a host that cannot be reached is left alone between two tries.
	downMost = time.Minute

	// downTells is how many tries in a row fail before those who wait for a host are told to
	// come back: two minutes.
	downTells = 7

	// alone is how long no session is opened before one is to tell whether sessions at once or
	// openings in a second were too many. Guess: longer than the second that receivers count over.
	alone = 1200 * time.Millisecond

	// relapseWithin is how soon after an outage the next one is our own doing. Guess.
	relapseWithin = 30 * time.Second
)

// openings finds how many sessions may be opened in a second, and tells that from how many may
// be open at once. Mailbox only.
type openings struct {
	rate   *throttle.AdaptiveRate
	window *throttle.Window // that keeps to the rate
	recent []time.Time      // when the newest were dialled
	borne  int              // most sessions that were open at once
	room   int              // sessions that may be on their way at once, as none failed of so many

	doubt   bool      // it is not known which of the two was too many
	doubtAt time.Time // when that was dialled
	doubtN  int       // sessions that were open then
	before  capacity  // what was known of sessions at once
	taught  time.Time // when something else was learned

	failedAt time.Time // since when none could be opened
	upAt     time.Time // when one could be opened again after that
	relapses int
}

func (p *openings) begin(b throttle.RateBounds, r throttle.Rate, now time.Time) {
	b.Ceiling, b.Stated, b.Few = r, true, 3
	p.rate = throttle.NewAdaptiveRate(b, now)
	p.window = throttle.NewWindow(r, now)
}

// conduct keeps to what is allowed now.
func (p *openings) conduct(b throttle.RateBounds, whole, ours throttle.Rate, now time.Time) time.Time {
	b.Ceiling, b.Stated = whole, true
	p.rate.Set(b, now)
	if p.rate.Limits(now) {
		ours, _ = p.rate.Permits(now)
	}
	p.window.Set(ours)
	return p.rate.Next(now)
}

// may reports whether one more session may be opened, and if not, when.
func (p *openings) may(now time.Time) (bool, time.Time) {
	if !p.rate.Limits(now) {
		return true, time.Time{}
	}
	if _, until := p.rate.Permits(now); now.Before(until) {
		return false, until
	}
	n, next := p.window.Ready(now)
	return n > 0, next
}

// dialled notes a session that is being opened.
func (p *openings) dialled(now time.Time) {
	kept := p.recent[:0]
	for _, t := range p.recent {
		if now.Sub(t) < alone {
			kept = append(kept, t)
		}
	}
	p.recent = append(kept, now)
}

// roomToOpen reports whether one more may be on its way: no more than are open already, or were, or
// were on their way when none failed, so that a limit on either is met by few.
func (d *desk) roomToOpen() bool {
	ready, opening := d.openingNow()
	return opening < max(1, ready, d.opening.borne-ready, d.opening.room)
}

// openingNow counts the sessions that are open, and those on their way.
func (d *desk) openingNow() (ready, opening int) {
	for _, s := range d.sessions {
		switch {
		case s.ready && !s.closing:
			ready++
		case !s.ready:
			opening++
		}
	}
	return ready, opening
}

// lately is how many others were dialled within a second before one.
func (p *openings) lately(dialled time.Time) int {
	n := 0
	for _, t := range p.recent {
		if t.Before(dialled) && dialled.Sub(t) <= time.Second {
			n++
		}
	}
	return n
}

// wasOpened learns from a session that could be opened.
func (d *desk) wasOpened(now time.Time, s *session) {
	p := &d.opening
	p.rate.OnSuccess(s.dialled, now)
	n, opening := d.openingNow()
	if opening >= p.room { // what is not used is not proven
		p.room = opening + 1
	}
	p.borne = max(p.borne, n+1)
	if !p.failedAt.IsZero() && s.dialled.After(p.failedAt) {
		if d.learned.connections.cost(now.Sub(p.failedAt), now) {
			p.doubt = false
		}
		p.failedAt, p.upAt = time.Time{}, now
	}
	if p.doubt && n+1 > p.doubtN { // as many at once are fine: it was how fast they were opened
		p.doubt = false
		p.rate.OnThrottled(p.doubtAt, now, "too many sessions opened in a second")
		d.learned.connections.forget()
	}
	if s.host.last.attempt.Stage <= smtp.StageTLS { // what fails later can be opened each time
		s.host.failures = 0
	}
}

// notOpened follows a session that could not be opened because its host is down, or because we
// have too many, or open them too fast. False: it was told something else.
func (d *desk) notOpened(now time.Time, s *session, told verdictOf) bool {
	if !comeLater(&told) {
		return false
	}
	n, p := max(s.beside, d.openAt(s.host.host)), &d.opening
	p.room = 1
	before := p.lately(s.dialled)
	first := p.failedAt.IsZero() // what fails after it says nothing more
	if first {
		p.failedAt = now
	}
	if n > 0 && !s.outlet.cautious {
		if first {
			d.crowded(now, s, told, n)
		}
		if d.openAt(s.host.host) > 0 {
			return true
		}
	}
	if s.host.failures == 0 && s.host.served && !s.outlet.cautious && before >= 2 && now.Sub(p.upAt) < relapseWithin {
		p.rate.OnThrottled(s.dialled, now, words(told.attempt))
	}
	switch {
	case s.host.failures > 0:
	case told.attempt.Code == 0:
		d.outage(now, s, told)
	case first && !s.outlet.cautious: // it has turned to nobody, just when it put somebody off
		d.turnedAway(now, s, told)
	}
	d.avoid(now, s.host, told, d.downFor(s.host.failures))
	return true
}

// comeLater reports whether a session could not be opened for now and for no reason that has rules of its
// own: its host was not reached, or answered 4xx in the greeting and named no time.
func comeLater(told *verdictOf) bool {
	a, v := &told.attempt, &told.verdict
	if v.Wait > 0 || a.Stage > smtp.StageGreeting || a.Code != 0 && a.Code/100 != 4 {
		return false
	}
	switch v.Action {
	case verdict.ActNextMX, verdict.ActRetry:
		return true
	case verdict.ActSlow, verdict.ActPause:
		return a.Code != 0
	}
	return false
}

// openAt counts the sessions that are open with a host.
func (d *desk) openAt(host string) (n int) {
	for _, s := range d.sessions {
		if s.ready && !s.closing && s.host.host == host {
			n++
		}
	}
	return n
}

// crowded follows a session that could not be opened while others are served: there are too many,
// or they were opened too fast. As many at once as there were before are not too many. When it isn't
// known, one more is tried alone.
func (d *desk) crowded(now time.Time, s *session, told verdictOf, n int) {
	p := &d.opening
	lately := p.lately(s.dialled)
	s.host.last = told
	if n < p.borne && lately > 0 && !p.doubt {
		p.rate.OnThrottled(s.dialled, now, words(told.attempt))
		return
	}
	p.before, p.taught = d.learned.connections, now
	p.borne = min(p.borne, n)
	d.learned.connections.tighten(d.whole(n), now)
	if lately == 0 {
		p.doubt = false
		return
	}
	if !p.doubt || n < p.doubtN {
		p.doubtN = n
	}
	p.doubt, p.doubtAt = true, s.dialled
	d.learned.connections.soon(now.Add(alone))
}

// outage tells an outage from a pace that was too fast: connections that broke when a host went
// down are no word about pace, unless that happens again and again, or just when a higher one is tried.
func (d *desk) outage(now time.Time, s *session, told verdictOf) {
	p, o := &d.opening, s.outlet
	if p.relapses++; now.Sub(p.upAt) > relapseWithin {
		p.relapses = 0
	}
	if p.relapses > 0 || o.experiment.Unproven() || !o.experiment.Open() && o.tempo.Unproven() {
		d.turnedAway(now, s, told)
		return
	}
	if !p.failedAt.IsZero() && !p.taught.Before(p.failedAt) { // a session failed beside others that were dead already
		d.learned.connections, p.doubt = p.before, false
	}
	if !o.experiment.Open() {
		return
	}
	o.experiment.End(throttle.NotOurPace, o.tempo, now)
	o.causes.Clear()
	o.cautious = true
}

// turnedAway slows down where a receiver takes no more sessions at the moment when it put somebody off:
// that is a penalty, and the pace before it was too high.
func (d *desk) turnedAway(now time.Time, s *session, told verdictOf) {
	o := s.outlet
	if sent, bad := o.causes.LastBad(); bad && now.Sub(sent) < penaltyWithin {
		d.believe(now, s, told, throttle.Belief{Scope: throttle.ScopeReceiver, First: sent,
			Why: "an address was put off, and then no session could be opened"})
	}
}

// penaltyWithin is how soon after an address was put off a session that can't be opened belongs to
// the same penalty. Guess.
const penaltyWithin = 5 * time.Second

// downFor is how long a host is left alone after so many tries that failed.
func (d *desk) downFor(failures int) time.Duration {
	wait := min(downMost, time.Second<<min(failures, 10))
	return d.options.waits(wait + time.Duration(d.rand.Int64N(int64(wait)/10)))
}

// backSoon is when a lane of which no host can be asked now can be asked again, if that is soon
// enough for those who wait to stay; zero: they are told, also when no source of ours can ever ask.
func (d *desk) backSoon(now time.Time, l *lane) (soonest time.Time) {
	for _, c := range l.candidates {
		if c.failures >= downTells && now.Before(c.until) {
			return time.Time{}
		}
		_, until, rests := d.shutBy(now, l, c)
		if !now.Before(c.until) && until.Sub(now) > restTold { // the host is well: it is our sources that rest
			return time.Time{}
		}
		if !rests {
			continue
		}
		if soonest.IsZero() || until.Before(soonest) {
			soonest = until
		}
	}
	if soonest.Sub(now) > d.options.waits(downMost*11/10) {
		return time.Time{}
	}
	return soonest
}

// asking reports whether a session of a source is asking something.
func (d *desk) asking(o *outlet) bool {
	for _, s := range d.sessions {
		if s.outlet == o && len(s.given) > 0 {
			return true
		}
	}
	return false
}
