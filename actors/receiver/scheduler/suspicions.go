package scheduler

import (
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// suspicions find out what bad answers are about.
type suspicions struct {
	*env
	inbox     *inbox
	pool      *pool
	paths     *paths
	queues    *queues
	penalties *penalties

	suspects      []*suspect             // that are looked at again here
	parkedDomains map[string]*heldDomain // that let others go first
	odd           oddOnes
	beliefs       []belief // the newest causes that were believed, oldest first
}

const (
	// lookAfter is how long an address that was put off waits until it is asked again here, to
	// learn whether it is odd itself. Guess: longer than the second that many receivers count
	// over. Up to half of it is added at random: at an even pace the same place in the next second
	// would be one too many again.
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
	probe *Probe
	trial throttle.Trial
	told  Judgement
	due   time.Time
	until time.Time // then it is put off, whatever the others do
}

// heldDomain is a domain whose addresses let others go first.
type heldDomain struct {
	until  time.Time
	probes []*Probe
}

// trialOf is what an answer says to the causes.
func trialOf(s *session, a *Answered, r throttle.Result) throttle.Trial {
	p, told := a.Probe, &a.Told
	v := &told.Verdict
	space := p.chunk.task.space
	return throttle.Trial{Sent: a.Sent, At: a.At, Domain: p.Address.Domain, Tenant: string(space[:]), Host: s.host.host,
		Result: r, Again: p.suspect != nil, Said: words(told.Attempt),
		OfItself: v.Blame == smtp.BlameAddress && v.Reason != smtp.Greylisted,
		OfUs:     rateLimited(*v) || v.Action == verdict.ActPause || v.Reason == smtp.ReceiverRateLimited}
}

// resultOf is what came of a RCPT that has no final answer.
func resultOf(told *Judgement) throttle.Result {
	switch {
	case told.Attempt.Code == 0 || told.Attempt.Code == 421:
		return throttle.Cut
	case told.Verdict.Action == verdict.ActOtherSource, told.isPermanent():
		return throttle.RefusedUs
	}
	return throttle.PutOff
}

// greyShare is the share of new addresses that are put off at any pace from which on those that
// pass later show greylisting, and not our pace. Guess.
const greyShare = 0.5

const (
	// greyMargin is how much more often those pass who are asked again than those who are new, where a receiver
	// greylists: a limit doesn't tell them apart. Guess.
	greyMargin = 0.25

	// looksLeast is how many have to be asked again to tell, and looksSpan over how many that is counted. Guesses.
	looksLeast = 6
	looksSpan  = 20
)

// looks is how many of those who were asked again of late passed.
type looks struct{ passed, all float64 }

func (l *looks) note(passed bool) {
	keep := 1 - 1.0/looksSpan
	l.passed, l.all = l.passed*keep, l.all*keep+1
	if passed {
		l.passed++
	}
}

// greylists reports whether the receiver puts so many off that pass later that it is greylisting, and not our pace.
func (o *egressPath) greylists() bool {
	if o.causes.Odd() <= greyShare {
		return false
	}
	bad, _ := o.causes.Share()
	return o.looks.all < looksLeast || o.looks.passed > (1-bad+greyMargin)*o.looks.all
}

// belief is what was believed, and when.
type belief struct {
	at time.Time
	throttle.Belief
}

// sentence says it for people.
func (b *belief) sentence() string {
	about := b.Scope.String()
	if b.Host != "" {
		about += " " + b.Host
	}
	return fmt.Sprintf("%s: %s: %s", b.at.UTC().Format(time.TimeOnly), about, b.Why)
}

// beliefsMax bounds the beliefs that are shown.
const beliefsMax = 8

// answeredWell takes an answer that says something about its address.
func (su *suspicions) answeredWell(now time.Time, s *session, a *Answered) {
	o := s.path
	t := trialOf(s, a, throttle.Answered)
	if a.Sent.After(o.cutoff) {
		o.cautious = false
	}
	if !o.causes.AtHost(t) {
		s.host.doubts = 0
	}
	if p := a.Probe; p.suspect != nil {
		su.passedLook(now, o, p.suspect)
		p.suspect = nil
		return
	}
	if su.odd.has(a.Probe) {
		return
	}
	o.causes.Note(t, throttle.Waiting{})
	o.causes.Fine(t)
	o.transients.Answered()
	if a.Sent.After(o.cutoff) && o.experiment.Open() && o.causes.Telling(t) {
		o.experiment.Trial(false, o.paceAt(a.Sent))
		su.endExperiment(now, o)
	}
}

// passedLook takes a second look that found the address fine: what it got was about something else.
func (su *suspicions) passedLook(now time.Time, o *egressPath, s *suspect) {
	o.looks.note(true)
	greylists := o.greylists()
	if !greylists {
		o.causes.Settle(s.trial, false)
	}
	switch {
	case o.experiment.Open():
		if o.causes.Telling(s.trial) {
			o.experiment.Looked(true, o.paceAt(now))
			su.endExperiment(now, o)
		}
	case s.trial.Result == throttle.RefusedUs || greylists || s.trial.Sent.Before(o.cutoff) ||
		o.causes.AtHost(s.trial):
	default:
		su.dirty = true
		o.transients.Passed(o.rate, s.trial.Sent, now, s.trial.Said)
	}
}

// suspect follows an answer that may be about more than its address. Whoever got it waits for
// a second look, or is put off.
func (su *suspicions) suspect(now time.Time, s *session, a Answered) {
	o, p := s.path, a.Probe
	t := trialOf(s, &a, resultOf(&a.Told))
	if p.suspect != nil {
		su.failedLook(now, s, a)
		return
	}
	if su.odd.has(p) { // that it is odd, or has to wait, is known
		p.setCause(evidence.NewCause(evidence.ScopeAddress, knownOdd))
		su.inbox.putOff(p, a.Told, a.At)
		return
	}
	if a.Sent.Before(o.cutoff) { // it was on its way when we learned
		p.setCause(o.cause)
		su.awaitLook(now, s, a, t, true)
		return
	}
	doubting := o.isDoubting()
	if o.experiment.Open() && o.causes.Telling(t) {
		o.experiment.Trial(true, o.paceAt(a.Sent))
	}
	waits := su.inbox.waitingBeside(p, func(domain string) bool { return su.parkedDomains[domain] == nil })
	waits.OtherHost = (!o.rate.Limits(now) || o.causes.AtHost(t)) && su.paths.otherHost(now, s.queue, o, s.host.host) != nil
	b := o.causes.Note(t, waits)
	switch b.Scope {
	case throttle.ScopeReceiver:
		su.believeCause(now, s, a.Told, b)
	case throttle.ScopeDomain:
		su.letOthersGo(now, p.Address.Domain)
	case throttle.ScopeTenant:
		su.recordBelief(now, b)
	case throttle.ScopeHost:
		if su.askOtherHosts(now, s) {
			su.recordBelief(now, b)
		}
	}
	su.endExperiment(now, o)
	su.explainTrial(o, &a, t, b, doubting)
	su.awaitLook(now, s, a, t, o.experiment.Open() && b.Scope == throttle.ScopeReceiver || b.Scope == throttle.ScopeHost)
}

// askOtherHosts lets the other hosts of a queue go first, where one gives bad answers: for 2, 4, 8 … 60 s.
// False: they do already.
func (su *suspicions) askOtherHosts(now time.Time, s *session) bool {
	if now.Before(s.host.aside) {
		return false
	}
	host := s.host.host
	s.host.doubts++
	until := now.Add(su.penalties.downFor(s.host.doubts))
	for _, c := range s.queue.candidates {
		if c.host == host {
			c.aside, c.doubts = until, s.host.doubts
		}
	}
	su.pool.haltSessions(func(o *session) bool { return o.queue == s.queue && o.host.host == host })
	return true
}

// failedLook takes a second look that got a bad answer again: the address is odd itself. While the
// receiver doesn't answer others either, that says nothing.
func (su *suspicions) failedLook(now time.Time, s *session, a Answered) {
	o, p := s.path, a.Probe
	one := p.suspect
	p.suspect = nil
	o.looks.note(false)
	o.explainFailed(&a, one.trial.Sent)
	if o.causes.Calm() {
		o.causes.Settle(one.trial, true)
		o.rate.OnOther(one.trial.Sent)
		su.foundOdd(o, p, one.trial)
		if o.experiment.Open() && o.causes.Telling(one.trial) {
			o.experiment.Looked(false, o.paceAt(a.Sent))
			su.endExperiment(now, o)
		}
	}
	su.inbox.putOff(p, a.Told, a.At)
}

// foundOdd remembers an address that is most likely odd itself.
func (su *suspicions) foundOdd(o *egressPath, p *Probe, t throttle.Trial) {
	if t.OfItself || o.causes.OddChance(t.Said) > 0.5 {
		su.odd.add(p, o.experiment.Open())
	}
}

// awaitLook lets an address wait for a second look here, or puts it off.
func (su *suspicions) awaitLook(now time.Time, s *session, a Answered, t throttle.Trial, believed bool) {
	o := s.path
	long := a.Told.Verdict.Wait > shortRest || a.Told.Verdict.Reason == smtp.Greylisted && o.grey.Enough > 0
	if long || t.OfItself || len(su.suspects) >= suspectsMost || !believed && !o.causes.LookAgain(t.Said) {
		if !o.cautious {
			o.causes.Assume(t)
			su.foundOdd(o, a.Probe, t)
			o.explainAssumed(a.Probe, t)
		}
		su.inbox.putOff(a.Probe, a.Told, a.At)
		return
	}
	one := &suspect{probe: a.Probe, trial: t, told: a.Told, due: now.Add(max(lookAfter, a.Told.Verdict.Wait) + su.jitter(lookAfter/2)),
		until: now.Add(lookWithin)}
	a.Probe.suspect = one
	su.suspects = append(su.suspects, one)
	s.path.rate.TakeBack(a.Sent)
}

// believeCause follows a cause that holds for the whole receiver.
func (su *suspicions) believeCause(now time.Time, s *session, told Judgement, b throttle.Belief) {
	o := s.path
	su.recordBelief(now, b)
	o.cause = causeOf(b)
	told.Attempt.Cause = o.cause
	o.transients.Reset()
	if b.Refused {
		o.cutoff, o.cautious = now, true
		su.penalties.suspendSource(now, s.queue, o, told)
		return
	}
	o.experiment.Begin(o.rate, o.causes, b.Penalty, now)
	if o.experiment.Steps() > 1 && su.paths.otherHost(now, s.queue, o, s.host.host) != nil {
		su.askOtherHosts(now, s)
	}
	su.penalties.throttled(now, o, told, b.First)
	o.cutoff, o.cautious = later(now, o.rate.Explain(now).Until), true
}

// endExperiment ends an experiment that has shown something.
func (su *suspicions) endExperiment(now time.Time, o *egressPath) {
	f, share := o.experiment.Finding()
	if f == throttle.NotKnown {
		return
	}
	o.experiment.End(f, o.rate, now)
	su.dirty = true
	if f == throttle.NotOurPace {
		su.odd.judge(true)
		o.causes.Usual(share)
		o.cautious = false
		b := throttle.Belief{Scope: throttle.ScopeAddress, Why: o.rate.Explain(now).Why}
		su.recordBelief(now, b)
		o.cause = causeOf(b)
		for _, one := range su.suspects {
			one.until = now
			one.probe.setCause(o.cause)
			su.odd.add(one.probe, false)
		}
		su.options.Log.Info("not our pace", "receiver", su.key, "source", o.name, "why", o.rate.Explain(now).Why)
		return
	}
	b := throttle.Belief{Scope: throttle.ScopeReceiver, Why: throttle.OurPaceWhy}
	su.recordBelief(now, b)
	o.cause = causeOf(b)
	o.causes.Clear()
	su.odd.judge(false)
}

// recordBelief keeps what is believed, for people.
func (su *suspicions) recordBelief(now time.Time, b throttle.Belief) {
	su.beliefs = append(su.beliefs, belief{now, b})
	if len(su.beliefs) > beliefsMax {
		su.beliefs = su.beliefs[1:]
	}
	su.options.Log.Debug("cause believed", "receiver", su.key, "scope", b.Scope.String(), "why", b.Why)
}

// letOthersGo lets the addresses of a domain wait a moment, so that others are asked first.
func (su *suspicions) letOthersGo(now time.Time, domain string) {
	if su.parkedDomains[domain] == nil {
		su.parkedDomains[domain] = &heldDomain{until: now.Add(asideWhile)}
	}
}

// parkProbe keeps a probe whose domain lets others go first.
func (su *suspicions) parkProbe(now time.Time, p *Probe) bool {
	h := su.parkedDomains[p.Address.Domain]
	if h == nil || p.suspect != nil || !now.Before(h.until) {
		return false
	}
	h.probes = append(h.probes, p)
	return true
}

// readmitParked brings back what was let aside: domains whose moment is over, and suspects that
// are looked at again as soon as others are answered, or nobody else waits.
func (su *suspicions) readmitParked(now time.Time) {
	for domain, h := range su.parkedDomains {
		if now.Before(h.until) {
			su.wakeAt(h.until)
			continue
		}
		for _, p := range h.probes {
			su.comeBack(now, p)
		}
		delete(su.parkedDomains, domain)
	}
	kept := su.suspects[:0]
	for _, one := range su.suspects {
		switch {
		case one.probe.chunk.gone():
			one.probe.suspect = nil
			su.comeBack(now, one.probe) // which drops it
		case !now.Before(one.until):
			one.probe.suspect = nil
			su.inbox.putOff(one.probe, one.told, now)
		case !now.Before(one.due) && su.mayLook(now, one):
			su.comeBack(now, one.probe)
		default:
			if now.Before(one.due) {
				su.wakeAt(one.due)
			} else {
				su.wakeAt(now.Add(lookAfter / 4))
			}
			kept = append(kept, one)
		}
	}
	clear(su.suspects[len(kept):])
	su.suspects = kept
}

// comeBack queues a probe that was let aside.
func (su *suspicions) comeBack(now time.Time, p *Probe) {
	su.queues.pushProbe(su.queues.hostQueue(now, p.hosts), p)
}

// letGo gives back everything that was let aside.
func (su *suspicions) letGo(now time.Time) {
	for _, one := range su.suspects {
		su.comeBack(now, one.probe)
	}
	for _, h := range su.parkedDomains {
		for _, p := range h.probes {
			su.comeBack(now, p)
		}
	}
	su.suspects, su.parkedDomains = nil, map[string]*heldDomain{}
}

// mayLook reports whether a suspect may be asked again: others are answered, or nobody else is
// there to be asked.
func (su *suspicions) mayLook(now time.Time, one *suspect) bool {
	if su.inbox.tasks.queue.Queued() == 0 {
		return true
	}
	for _, o := range su.paths.all {
		if !now.Before(o.until) {
			return o.causes.MayLook(now) && !o.cautious
		}
	}
	return false
}

// oddOne is what a hash is made of.
type oddOne struct {
	task    wire.TaskKey
	ordinal uint32
}

// rememberedMost bounds the addresses that are remembered as odd, in each of two halves.
// Guess: 1 MB at a busy receiver; who is forgotten counts as new once more.
const rememberedMost = 16_384

// oddOnes remembers which addresses of which verifications were found to be odd: when they are asked
// again, that says nothing about anybody else. It keeps hashes. The zero value is ready.
type oddOnes struct {
	seed       maphash.Seed
	seeded     bool
	newer, old map[uint64]struct{}
	unsure     map[uint64]struct{} // found while it wasn't known whether it is our pace
}

func (f *oddOnes) hash(p *Probe) uint64 {
	if !f.seeded {
		f.seed, f.seeded = maphash.MakeSeed(), true
	}
	return maphash.Comparable(f.seed, oddOne{p.chunk.task.key, p.ordinal})
}

// add remembers an address; unsure: it is not known yet whether we were too fast.
func (f *oddOnes) add(p *Probe, unsure bool) {
	if p.ordinal == math.MaxUint32 { // a control probe, for another address each time
		return
	}
	if unsure && len(f.unsure) < rememberedMost {
		if f.unsure == nil {
			f.unsure = map[uint64]struct{}{}
		}
		f.unsure[f.hash(p)] = struct{}{}
		return
	}
	f.keep(f.hash(p))
}

func (f *oddOnes) keep(hash uint64) {
	if f.newer == nil {
		f.newer = map[uint64]struct{}{}
	}
	f.newer[hash] = struct{}{}
	if len(f.newer) >= rememberedMost {
		f.old, f.newer = f.newer, nil
	}
}

// judge keeps those of whom it wasn't known, or forgets them, because they were asked too fast.
func (f *oddOnes) judge(odd bool) {
	if odd {
		for hash := range f.unsure {
			f.keep(hash)
		}
	}
	f.unsure = nil
}

func (f *oddOnes) has(p *Probe) bool {
	h := f.hash(p)
	_, newer := f.newer[h]
	_, old := f.old[h]
	_, unsure := f.unsure[h]
	return newer || old || unsure
}
