package receiver

import (
	"fmt"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// lookAfter is how long an address that was put off waits until it is asked again here, to
	// learn whether it is odd itself. Guess: longer than the second that many receivers count
	// over.
	lookAfter = 2 * time.Second

	// lookWithin is how long it waits for that at most; then it is put off.
	lookWithin = time.Minute

	// suspectsMost bounds the addresses that wait to be looked at again.
	suspectsMost = 256

	// asideWhile is how long a domain that is suspected lets the others go first.
	asideWhile = 2 * time.Second
)

// suspect is an address that got a bad answer and waits to be asked again here.
type suspect struct {
	probe *probe
	trial throttle.Trial
	told  verdictOf
	due   time.Time
	until time.Time // then it is put off, whatever the others do
}

// heldDomain is a domain whose addresses let others go first.
type heldDomain struct {
	until  time.Time
	probes []*probe
}

// trialOf is what an answer says to the causes.
func trialOf(p *probe, told *verdictOf, sent, at time.Time, r throttle.Result) throttle.Trial {
	v := &told.verdict
	space := p.chunk.task.space
	return throttle.Trial{Sent: sent, At: at, Domain: p.address.Domain, Tenant: string(space[:]), Result: r,
		Again: p.suspect != nil, Said: words(told.attempt),
		OfItself: v.Blame == smtp.BlameAddress && v.Reason != smtp.Greylisted,
		OfUs:     hasty(*v) || v.Action == verdict.ActPause || v.Reason == smtp.ReceiverRateLimited}
}

// resultOf is what came of a RCPT that has no final answer.
func resultOf(told *verdictOf) throttle.Result {
	switch {
	case told.attempt.Code == 0 || told.attempt.Code == 421:
		return throttle.Cut
	case told.verdict.Action == verdict.ActOtherSource, told.permanent():
		return throttle.RefusedUs
	}
	return throttle.PutOff
}

// beside says who waits beside the task of a probe.
func (d *desk) beside(p *probe) (w throttle.Waiting) {
	own := p.chunk.task
	for t := range d.tasks.busy {
		if t == own || t.open() == 0 {
			continue
		}
		w.OtherDomain = w.OtherDomain || t.key.Domain != own.key.Domain
		w.OtherTenant = w.OtherTenant || t.space != own.space
		if w.OtherDomain && w.OtherTenant {
			break
		}
	}
	return w
}

// answeredWell takes an answer that says something about its address.
func (d *desk) answeredWell(now time.Time, s *session, a *answered) {
	o := s.outlet
	t := trialOf(a.probe, &a.told, a.sent, a.at, throttle.Answered)
	if a.sent.After(o.lesson) {
		o.cautious = false
	}
	if p := a.probe; p.suspect != nil {
		d.passed(now, o, p.suspect)
		p.suspect = nil
		return
	}
	if d.odd.has(a.probe) {
		return
	}
	o.causes.Note(t, throttle.Waiting{})
	o.causes.Fine(t)
	o.transients.Answered()
	if a.sent.After(o.lesson) && o.experiment.Open() {
		o.experiment.Trial(false)
		d.find(now, o)
	}
}

// passed takes a second look that found the address fine: what it got was about something else.
func (d *desk) passed(now time.Time, o *outlet, s *suspect) {
	if o.causes.Odd() <= greyShare {
		o.causes.Settle(s.trial, false)
	}
	switch {
	case o.experiment.Open():
		o.experiment.Looked(true)
		d.find(now, o)
	case s.trial.Result == throttle.RefusedUs || o.causes.Odd() > greyShare || s.trial.Sent.Before(o.lesson):
	default:
		d.dirty = true
		o.transients.Passed(o.tempo, s.trial.Sent, now, s.trial.Said)
	}
}

// greyShare is the share of new addresses that are put off at any pace from which on those that
// pass later show greylisting, and not our pace. Guess.
const greyShare = 0.5

// suspicious follows an answer that may be about more than its address. Whoever got it waits for
// a second look, or is put off.
func (d *desk) suspicious(now time.Time, s *session, a answered) {
	o, p := s.outlet, a.probe
	t := trialOf(p, &a.told, a.sent, a.at, resultOf(&a.told))
	if p.suspect != nil {
		d.failed(now, s, a)
		return
	}
	if d.odd.has(p) { // that it is odd, or has to wait, is known
		p.setCause(evidence.NewCause(evidence.ScopeAddress, knownOdd))
		d.putOff(p, a.told, a.at)
		return
	}
	if a.sent.Before(o.lesson) { // it was on its way when we learned
		p.setCause(o.cause)
		d.awaitLook(now, s, a, t, true)
		return
	}
	doubting := o.doubting()
	if o.experiment.Open() {
		o.experiment.Trial(true)
	}
	b := o.causes.Note(t, d.beside(p))
	switch b.Scope {
	case throttle.ScopeReceiver:
		d.believe(now, s, a.told, b)
	case throttle.ScopeDomain:
		d.letOthersGo(now, p.address.Domain)
	case throttle.ScopeTenant:
		d.recordBelief(now, b)
	}
	d.find(now, o)
	d.explainTrial(o, &a, t, b, doubting)
	d.awaitLook(now, s, a, t, o.experiment.Open() && b.Scope == throttle.ScopeReceiver)
}

// failed takes a second look that got a bad answer again: the address is odd itself. While the
// receiver doesn't answer others either, that says nothing.
func (d *desk) failed(now time.Time, s *session, a answered) {
	o, p := s.outlet, a.probe
	one := p.suspect
	p.suspect = nil
	o.explainFailed(&a, one.trial.Sent)
	if o.causes.Calm() {
		o.causes.Settle(one.trial, true)
		d.foundOdd(o, p, one.trial)
		if o.experiment.Open() {
			o.experiment.Looked(false)
			d.find(now, o)
		}
	}
	d.putOff(p, a.told, a.at)
}

// foundOdd remembers an address that is most likely odd itself.
func (d *desk) foundOdd(o *outlet, p *probe, t throttle.Trial) {
	if t.OfItself || o.causes.OddChance(t.Said) > 0.5 {
		d.odd.add(p)
	}
}

// putOff gives a probe back that is to be asked again later.
func (d *desk) putOff(p *probe, told verdictOf, at time.Time) {
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	d.answer(p, told, at)
}

// awaitLook lets an address wait for a second look here, or puts it off.
func (d *desk) awaitLook(now time.Time, s *session, a answered, t throttle.Trial, believed bool) {
	o := s.outlet
	long := a.told.verdict.Wait > shortRest || a.told.verdict.Reason == smtp.Greylisted && o.grey.enough > 0
	if long || t.OfItself || len(d.suspects) >= suspectsMost || !believed && !o.causes.LookAgain(t.Said) {
		if !o.cautious {
			o.causes.Assume(t)
			d.foundOdd(o, a.probe, t)
			o.explainAssumed(a.probe, t)
		}
		d.putOff(a.probe, a.told, a.at)
		return
	}
	one := &suspect{probe: a.probe, trial: t, told: a.told, due: now.Add(max(lookAfter, a.told.verdict.Wait)),
		until: now.Add(lookWithin)}
	a.probe.suspect = one
	d.suspects = append(d.suspects, one)
}

// believe follows a cause that holds for the whole receiver.
func (d *desk) believe(now time.Time, s *session, told verdictOf, b throttle.Belief) {
	o := s.outlet
	d.recordBelief(now, b)
	o.cause = causeOf(b)
	told.attempt.Cause = o.cause
	o.transients.Reset()
	if b.Refused {
		o.lesson, o.cautious = now, true
		d.rest(now, s.lane, o, told)
		return
	}
	o.experiment.Begin(o.tempo, o.causes)
	if o.experiment.Steps() > 1 {
		d.otherHost(now, s, told)
	}
	d.tooFast(now, o, told, b.First)
	o.lesson, o.cautious = later(now, o.tempo.Explain(now).Until), true
}

// otherHost lets a host rest that puts everybody off, when there is another one to ask.
func (d *desk) otherHost(now time.Time, s *session, told verdictOf) {
	for _, c := range s.lane.candidates {
		if c.host != s.host.host && !now.Before(c.until) && s.outlet.Reaches(c.at) {
			d.avoid(now, s.host, told, d.downFor(s.host.failures))
			return
		}
	}
}

// find ends an experiment that has shown something.
func (d *desk) find(now time.Time, o *outlet) {
	f, share := o.experiment.Finding()
	if f == throttle.NotKnown {
		return
	}
	o.experiment.End(f, o.tempo, now)
	d.dirty = true
	if f == throttle.NotOurPace {
		o.causes.Usual(share)
		o.cautious = false
		b := throttle.Belief{Scope: throttle.ScopeAddress, Why: o.tempo.Explain(now).Why}
		d.recordBelief(now, b)
		o.cause = causeOf(b)
		for _, one := range d.suspects {
			one.until = now
			one.probe.setCause(o.cause)
			d.odd.add(one.probe)
		}
		d.options.Log.Info("not our pace", "receiver", d.key, "source", o.name, "why", o.tempo.Explain(now).Why)
		return
	}
	b := throttle.Belief{Scope: throttle.ScopeReceiver, Why: throttle.OurPaceWhy}
	d.recordBelief(now, b)
	o.cause = causeOf(b)
	o.causes.Clear()
}

// recordBelief keeps what is believed, for people.
func (d *desk) recordBelief(now time.Time, b throttle.Belief) {
	d.beliefs = append(d.beliefs, belief{now, b})
	if len(d.beliefs) > beliefsMax {
		d.beliefs = d.beliefs[1:]
	}
	d.options.Log.Debug("cause believed", "receiver", d.key, "scope", b.Scope.String(), "why", b.Why)
}

// belief is what was believed, and when.
type belief struct {
	at time.Time
	throttle.Belief
}

// sentence says it for people.
func (b *belief) sentence() string {
	return fmt.Sprintf("%s: %s: %s", b.at.UTC().Format(time.TimeOnly), b.Scope, b.Why)
}

// beliefsMax bounds the beliefs that are shown.
const beliefsMax = 8

// letOthersGo lets the addresses of a domain wait a moment, so that others are asked first.
func (d *desk) letOthersGo(now time.Time, domain string) {
	if d.parkedDomains[domain] == nil {
		d.parkedDomains[domain] = &heldDomain{until: now.Add(asideWhile)}
	}
}

// parks keeps a probe whose domain lets others go first.
func (d *desk) parks(now time.Time, p *probe) bool {
	h := d.parkedDomains[p.address.Domain]
	if h == nil || p.suspect != nil || !now.Before(h.until) {
		return false
	}
	h.probes = append(h.probes, p)
	return true
}

// readmitParked brings back what was let aside: domains whose moment is over, and suspects that
// are looked at again as soon as others are answered, or nobody else waits.
func (d *desk) readmitParked(now time.Time) {
	for domain, h := range d.parkedDomains {
		if now.Before(h.until) {
			d.at(h.until)
			continue
		}
		for _, p := range h.probes {
			d.comeBack(now, p)
		}
		delete(d.parkedDomains, domain)
	}
	kept := d.suspects[:0]
	for _, one := range d.suspects {
		switch {
		case one.probe.chunk.gone():
			one.probe.suspect = nil
			d.comeBack(now, one.probe) // which drops it
		case !now.Before(one.until):
			one.probe.suspect = nil
			d.putOff(one.probe, one.told, now)
		case !now.Before(one.due) && d.mayLook(now, one):
			d.comeBack(now, one.probe)
		default:
			if now.Before(one.due) {
				d.at(one.due)
			} else {
				d.at(now.Add(lookAfter / 4))
			}
			kept = append(kept, one)
		}
	}
	clear(d.suspects[len(kept):])
	d.suspects = kept
}

// comeBack queues a probe that was let aside.
func (d *desk) comeBack(now time.Time, p *probe) { d.push(d.lane(now, p.hosts), p) }

// letGo gives back everything that was let aside.
func (d *desk) letGo(now time.Time) {
	for _, one := range d.suspects {
		d.comeBack(now, one.probe)
	}
	for _, h := range d.parkedDomains {
		for _, p := range h.probes {
			d.comeBack(now, p)
		}
	}
	d.suspects, d.parkedDomains = nil, map[string]*heldDomain{}
}

// mayLook reports whether a suspect may be asked again: others are answered, or nobody else is
// there to be asked.
func (d *desk) mayLook(now time.Time, one *suspect) bool {
	if d.tasks.queue.Queued() == 0 {
		return true
	}
	for _, o := range d.outlets {
		if !now.Before(o.until) {
			return o.causes.Calm() && !o.cautious
		}
	}
	return false
}
