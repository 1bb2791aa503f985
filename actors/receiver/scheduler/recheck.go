package scheduler

import (
	"fmt"
	"hash/maphash"
	"math"
	"regexp"
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// rechecks ask addresses again that got a bad answer, a moment later and in the same place, to learn whether it was about
// the address or about us. No wording is exempt.
type rechecks struct {
	*env
	inbox     *inbox
	pool      *pool
	paths     *paths
	queues    *queues
	penalties *penalties

	waiting  []*recheck             // that are asked again here
	parked   map[string]*heldDomain // domains that let others go first
	deferred deferredBefore
	notes    []note // what was found out of late, for people
}

const (
	// recheckAfter is how long an address waits until it is asked again: longer than the second that many receivers count
	// over. Up to half of it is added at random: at an even pace the same place in the next second would be one too many again.
	recheckAfter = 2 * time.Second

	// recheckWithin is how long it waits for that at most; then it is deferred.
	recheckWithin = time.Minute

	// rechecksMost bounds those that wait.
	rechecksMost = 256

	// asideWhile is how long a domain lets the others go first, and hostFails how many more bad first tries than good answers a host
	// gives until the others go first, where there are some.
	asideWhile = 2 * time.Second
	hostFails  = 8

	// toldInRow bad answers in a row, the newest of which names a wait above shortRest, and the receiver is left alone for it.
	toldInRow = 3

	// theDeferred is the name of no domain, for those that were deferred before and let new ones go first.
	theDeferred = ""

	// notesMax bounds the sentences about what was found out.
	notesMax = 8
)

// recheck is an address that got a bad answer and waits to be asked again here.
type recheck struct {
	probe *Probe
	first throttle.Try
	told  Judgement
	due   time.Time
	until time.Time // then it is deferred, whatever the others do
}

// heldDomain is a domain whose addresses let others go first.
type heldDomain struct {
	until  time.Time
	probes []*Probe
}

// note is what was found out about a receiver, and when.
type note struct {
	at  time.Time
	why string
}

// sentence says it for people.
func (n *note) sentence() string { return n.at.UTC().Format(time.TimeOnly) + ": " + n.why }

// tryOf is an answer as the law of pace takes it.
func tryOf(a *Answered, r throttle.Result) throttle.Try {
	p := a.Probe
	t := throttle.Try{Sent: a.Sent, Result: r, Domain: p.Address.Domain, Tenant: p.chunk.task.tenant}
	if r != throttle.Answered {
		t.Kind, t.Greylisted = words(a.Told.Attempt), saysGreylisted(&a.Told)
	}
	return t
}

// saysGreylisted reports whether a reply says in words that it is greylisting. Many greylist without a word, but many others give
// the same codes.
func saysGreylisted(told *Judgement) bool {
	return told.Verdict.Reason == smtp.Greylisted && greyWords.MatchString(told.Attempt.Text)
}

var greyWords = regexp.MustCompile(`(?i)gr[ae]y.?list`)

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

// answeredWell takes an answer that says something about its address.
func (re *rechecks) answeredWell(now time.Time, s *session, a *Answered) {
	o, p := s.path, a.Probe
	s.host.fails = max(0, s.host.fails-1)
	if s.host.fails == 0 {
		s.host.doubts = 0
	}
	if one := p.recheck; one != nil {
		p.recheck = nil
		if o.pace.Alone() || o.pace.Greylisting() {
			o.grey.Passed(a.Sent.Sub(one.first.Sent))
		}
		re.follow(now, s, o.pace.Again(one.first, a.Sent, true, now), a)
		return
	}
	if waited, again := re.waited(p, a, o); again {
		re.follow(now, s, o.pace.Retried(a.Sent, true, true, now), a)
		if waited > 0 && (o.pace.Greylisting() || p.greyAgo > 0) {
			o.grey.Passed(waited)
			re.dirty = true
		}
		return
	}
	o.pace.Good(tryOf(a, throttle.Answered), now)
}

// answeredBadly takes an answer that may be about more than its address. Whoever got it waits to be asked again, or is
// deferred.
func (re *rechecks) answeredBadly(now time.Time, s *session, a Answered) {
	o, p := s.path, a.Probe
	re.dirty = true
	if p.recheck != nil {
		re.failedAgain(now, s, a)
		return
	}
	if waited, again := re.waited(p, &a, o); again {
		due := o.grey.Enough > 0 && waited >= o.grey.Enough
		re.follow(now, s, o.pace.Retried(a.Sent, false, due, now), &a)
		if p.greyAgo > 0 || o.pace.Greylisting() {
			o.grey.Again(waited)
		}
		re.putOff(now, s, a)
		return
	}
	first := tryOf(&a, resultOf(&a.Told))
	re.doubtHost(now, s, first.Result)
	re.follow(now, s, o.pace.Bad(first, now), &a)
	if rateLimited(a.Told.Verdict) && a.Told.Verdict.Wait > shortRest && o.pace.InRow() >= toldInRow {
		re.penalties.pauseReceiver(now, a.Told)
	}
	long := a.Told.Verdict.Wait > shortRest || o.pace.Greylisting()
	if long || len(re.waiting) >= rechecksMost || !o.pace.Worth(first.Kind) {
		re.putOff(now, s, a)
		return
	}
	one := &recheck{probe: p, first: first, told: a.Told, until: now.Add(recheckWithin),
		due: now.Add(max(recheckAfter, a.Told.Verdict.Wait) + re.jitter(recheckAfter/2))}
	p.recheck = one
	re.waiting = append(re.waiting, one)
}

// failedAgain takes a bad answer to an address that got one a moment before: while others pass it is about the address.
func (re *rechecks) failedAgain(now time.Time, s *session, a Answered) {
	o, p := s.path, a.Probe
	one := p.recheck
	p.recheck = nil
	if o.pace.InRow() == 0 && !o.pace.Alone() {
		p.setCause(evidence.NewCause(evidence.ScopeAddress, fmt.Sprintf(
			"asked again %s later it got %s again, while others were answered",
			max(time.Second, a.Sent.Sub(one.first.Sent).Round(time.Second)), words(a.Told.Attempt))))
	}
	re.follow(now, s, o.pace.Again(one.first, a.Sent, false, now), &a)
	re.deferred.note(p, one.first.Sent)
	re.putOff(now, s, a)
}

// putOff gives an address back that is asked again later: where every address is greylisted, when that is over.
func (re *rechecks) putOff(now time.Time, s *session, a Answered) {
	re.deferred.note(a.Probe, a.Sent)
	v := &a.Told.Verdict
	if v.Reason == smtp.Greylisted || s.path.pace.Greylisting() {
		v.Reason, v.Wait = smtp.Greylisted, max(v.Wait, re.greyWait(s.path, a.Probe, a.Sent))
	}
	if s.path.pace.Alone() && v.Wait == 0 { // those who wait for different lengths show how long is enough
		first, _ := re.deferred.first(a.Probe)
		v.Wait = max(2*recheckAfter, a.Sent.Sub(first))
		v.Wait = v.Wait/2 + re.jitter(v.Wait)
	}
	re.inbox.putOff(a.Probe, a.Told, a.At)
}

// greyWait is how long an address that was just deferred has to wait where one source is greylisted; 0: that is not known.
func (re *rechecks) greyWait(o *egressPath, p *Probe, sent time.Time) time.Duration {
	wait := o.grey.Wait()
	if first, known := re.deferred.first(p); known && wait > 0 {
		return max(time.Second, wait-sent.Sub(first))
	}
	return wait
}

// waited is for how long an address has waited since it was first deferred here; false: it is new.
func (re *rechecks) waited(p *Probe, a *Answered, o *egressPath) (time.Duration, bool) {
	if p.greyAgo > 0 && (p.greyFrom == o.name || o.name == "" || p.greyFrom == "") {
		return p.greyAgo + a.Sent.Sub(p.offered), true
	}
	first, known := re.deferred.first(p)
	if !known { // it was deferred at another node, or long ago
		first = a.Sent
	}
	return a.Sent.Sub(first), known || p.asked
}

// isDeferred reports whether an address was deferred before.
func (re *rechecks) isDeferred(p *Probe) bool {
	_, known := re.deferred.first(p)
	return known || p.asked
}

// follow does what the law of pace says.
func (re *rechecks) follow(now time.Time, s *session, e throttle.Effect, a *Answered) {
	if e == throttle.Unchanged {
		return
	}
	o := s.path
	re.dirty = true
	x := o.pace.Explain(now)
	re.pool.haltSessions(func(other *session) bool { return other.path == o })
	if x.Since.Equal(now) {
		re.record(now, x.Why)
		re.options.Log.Info("pace changed", "receiver", re.key, "source", o.name, "rate", x.Rate, "why", x.Why)
	}
	if e != throttle.Slower && re.letOthersGo(now, o, a.Probe) {
		e = throttle.NothingPasses
	}
	if e != throttle.Refused {
		o.cause = evidence.NewCause(evidence.ScopeReceiver, x.Why)
		re.setCauses(a, o.cause)
		return
	}
	o.cause = evidence.NewCause(evidence.ScopeSource, x.Why)
	re.setCauses(a, o.cause)
	told := a.Told
	told.Attempt.Cause = o.cause
	re.penalties.suspendSource(now, s.queue, o, told)
}

// setCauses notes a cause for an answer and for those that wait to be asked again at the same source.
func (re *rechecks) setCauses(a *Answered, c evidence.Cause) {
	a.Probe.setCause(c)
	for _, one := range re.waiting {
		if one.told.Attempt.Source == a.Told.Attempt.Source {
			one.probe.setCause(c)
		}
	}
}

// record keeps what was found out, for people.
func (re *rechecks) record(now time.Time, why string) {
	re.notes = append(re.notes, note{now, why})
	if len(re.notes) > notesMax {
		re.notes = re.notes[1:]
	}
}

// doubtHost lets the other hosts of a queue go first where one gives nothing but bad answers: for 2, 4, 8 … 60 s.
func (re *rechecks) doubtHost(now time.Time, s *session, r throttle.Result) {
	if s.host.fails++; r == throttle.RefusedUs { // a block is soon known
		s.host.fails += 2
	}
	if s.host.fails < hostFails || now.Before(s.host.aside) {
		return
	}
	if other := re.paths.otherHost(now, s.queue, s.path, s.host.host); other == nil || 4*other.fails > hostFails {
		return // they are no better
	}
	host := s.host.host
	s.host.doubts++
	until := now.Add(re.penalties.downFor(s.host.doubts))
	for _, c := range s.queue.candidates {
		if c.host == host {
			c.aside, c.doubts, c.fails = until, s.host.doubts, hostFails/2
		}
	}
	re.pool.haltSessions(func(o *session) bool { return o.queue == s.queue && o.host.host == host })
	s.path.pace.Ignore(now)
	re.record(now, fmt.Sprintf("the host %s gives mostly bad answers: others are asked first", host))
}

// letOthersGo lets the domain, or the customer's addresses, that got all bad answers wait a moment, and reports whether others
// wait beside it.
func (re *rechecks) letOthersGo(now time.Time, o *egressPath, p *Probe) bool {
	domain, tenant := o.pace.Nothing().Failing()
	w := re.inbox.waitingBeside(p, func(domain string) bool { return re.parked[domain] == nil })
	if !(domain != "" && w.OtherDomain || tenant != "" && w.OtherTenant) {
		return false
	}
	if re.parked[p.Address.Domain] == nil {
		re.parked[p.Address.Domain] = &heldDomain{until: now.Add(asideWhile)}
	}
	return true
}

// parkProbe keeps a probe whose domain lets others go first, and while nothing passes one that was deferred before, until it is its turn.
func (re *rechecks) parkProbe(now time.Time, o *egressPath, p *Probe) bool {
	h := re.parked[p.Address.Domain]
	if o.pace.Alone() && !p.turn && p.recheck == nil && re.isDeferred(p) {
		if h = re.parked[theDeferred]; h == nil {
			h = &heldDomain{until: now.Add(asideWhile)}
			re.parked[theDeferred] = h
		}
	}
	if p.turn = false; h == nil || p.recheck != nil || !now.Before(h.until) {
		return false
	}
	h.probes = append(h.probes, p)
	re.wakeAt(h.until)
	return true
}

// readmit brings back what waits: domains whose moment is over, and addresses that are asked again, as soon as others are
// answered, or nobody else waits.
func (re *rechecks) readmit(now time.Time) {
	re.readmitLongest(now)
	for domain, h := range re.parked {
		if now.Before(h.until) {
			re.wakeAt(h.until)
			continue
		}
		for _, p := range h.probes {
			re.comeBack(now, p)
		}
		delete(re.parked, domain)
	}
	kept := re.waiting[:0]
	for _, one := range re.waiting {
		may, alone := false, false
		if !now.Before(one.due) {
			may, alone = re.mayAskAgain(now, one.probe)
		}
		switch {
		case one.probe.chunk.gone():
			one.probe.recheck = nil
			re.comeBack(now, one.probe) // which drops it
		case !now.Before(one.until) && (!alone || now.Sub(one.until) >= recheckWithin):
			one.probe.recheck = nil
			re.deferred.note(one.probe, one.first.Sent)
			re.inbox.putOff(one.probe, one.told, now)
		case may && !alone:
			re.comeBack(now, one.probe)
		default:
			re.wakeAt(later(one.due, now.Add(recheckAfter/4)))
			kept = append(kept, one)
		}
	}
	clear(re.waiting[len(kept):])
	re.waiting = kept
}

// readmitLongest keeps those that were deferred before for as long as nothing passes. When it is the turn of one of them, that is who
// has waited longest: greylisting is found by it.
func (re *rechecks) readmitLongest(now time.Time) {
	h := re.parked[theDeferred]
	var longest *Probe
	var since time.Time
	look := func(p *Probe, first time.Time) {
		if longest == nil || first.Before(since) {
			if may, alone := re.mayAskAgain(now, p); may && alone {
				longest, since = p, first
			}
		}
	}
	for _, one := range re.waiting {
		if !now.Before(one.due) && !one.probe.chunk.gone() {
			look(one.probe, one.first.Sent)
		}
	}
	if h != nil && len(h.probes) > 0 {
		for _, p := range h.probes {
			first, _ := re.deferred.first(p)
			look(p, first)
		}
		if _, o := re.paths.nextCandidate(now, re.queues.hostQueue(now, h.probes[0].hosts)); o != nil && o.pace.Alone() {
			h.until = now.Add(asideWhile)
		}
	}
	if longest == nil {
		return
	}
	_, o := re.paths.nextCandidate(now, re.queues.hostQueue(now, longest.hosts))
	o.pace.Nothing().TakeTurn()
	if longest.turn = true; longest.recheck != nil {
		re.waiting = slices.DeleteFunc(re.waiting, func(one *recheck) bool { return one.probe == longest })
	} else {
		h.probes = slices.DeleteFunc(h.probes, func(p *Probe) bool { return p == longest })
	}
	re.comeBack(now, longest)
}

// mayAskAgain reports whether an address may be asked again: others are answered, nobody else is
// there to be asked, or nothing passes, one is asked alone, and it is the turn of one of these.
func (re *rechecks) mayAskAgain(now time.Time, p *Probe) (may, alone bool) {
	_, o := re.paths.nextCandidate(now, re.queues.hostQueue(now, p.hosts))
	switch {
	case o == nil:
		return re.inbox.tasks.queue.Queued() == 0, false
	case o.pace.Alone():
		return (o.pace.Nothing().AsksAgain() || re.inbox.tasks.queue.Queued() == 0) && !re.pool.asksFrom(o), true
	}
	return o.pace.Calm(now) || o.pace.Greylisting() || re.inbox.tasks.queue.Queued() == 0, false
}

// comeBack queues a probe that was let aside.
func (re *rechecks) comeBack(now time.Time, p *Probe) {
	re.queues.pushProbe(re.queues.hostQueue(now, p.hosts), p)
}

// letGo gives back everything that was let aside.
func (re *rechecks) letGo(now time.Time) {
	for _, one := range re.waiting {
		re.comeBack(now, one.probe)
	}
	for _, h := range re.parked {
		for _, p := range h.probes {
			re.comeBack(now, p)
		}
	}
	re.waiting, re.parked = nil, map[string]*heldDomain{}
}

// setCause notes what the newest attempt at an address is believed to be about.
func (p *Probe) setCause(c evidence.Cause) {
	if n := len(p.attempts); n > 0 && c != (evidence.Cause{}) {
		p.attempts[n-1].Cause = c
	}
}

// sameAs reports whether an attempt is one that was noted before, but for its cause, and takes over
// a cause that is newer.
func sameAs(noted *evidence.Attempt, a evidence.Attempt) bool {
	c := a.Cause
	a.Cause = noted.Cause
	if a != *noted {
		return false
	}
	if c != (evidence.Cause{}) {
		noted.Cause = c
	}
	return true
}

// withCause adds to what keeps us away that it is about no address: it was said before one was asked, or by
// a guard. What the law of pace found says so already.
func withCause(told Judgement) Judgement {
	a := &told.Attempt
	switch {
	case a.Cause != (evidence.Cause{}) || a.Code == 0:
	case told.Verdict.Action == verdict.ActVoid:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver, "a guard against harvesting had refused several addresses")
	case a.Stage < smtp.StageRcpt && told.Verdict.Action == verdict.ActOtherSource:
		a.Cause = evidence.NewCause(evidence.ScopeSource,
			"refused at stage "+a.Stage.String()+", before any address was asked")
	case a.Stage < smtp.StageRcpt:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver,
			"said at stage "+a.Stage.String()+", before any address was asked")
	}
	return told
}

// rememberedMost bounds the addresses that are remembered as deferred, in each of two halves:
// 2 MB at a busy receiver; who is forgotten counts as new once more.
const rememberedMost = 16_384

// deferredBefore remembers which addresses of which verifications were deferred here, and when first: asked again they are
// no first tries. It keeps hashes. The zero value is ready.
type deferredBefore struct {
	seed       maphash.Seed
	newer, old map[uint64]time.Time
}

// deferredKey is what a hash is made of.
type deferredKey struct {
	task    wire.TaskKey
	ordinal uint32
}

func (d *deferredBefore) hash(p *Probe) uint64 {
	return maphash.Comparable(d.seed, deferredKey{p.chunk.task.key, p.ordinal})
}

// note remembers an address that was deferred at a time, unless it is known.
func (d *deferredBefore) note(p *Probe, at time.Time) {
	if p.ordinal == math.MaxUint32 { // a control probe, for another address each time
		return
	}
	if d.newer == nil {
		d.seed, d.newer = maphash.MakeSeed(), map[uint64]time.Time{}
	}
	h := d.hash(p)
	if first, known := d.of(h); known {
		at = first
	}
	d.newer[h] = at
	if len(d.newer) >= rememberedMost {
		d.old, d.newer = d.newer, map[uint64]time.Time{}
	}
}

func (d *deferredBefore) of(hash uint64) (time.Time, bool) {
	if at, known := d.newer[hash]; known {
		return at, true
	}
	at, known := d.old[hash]
	return at, known
}

// first returns when an address was first deferred; false: it is not known to have been.
func (d *deferredBefore) first(p *Probe) (time.Time, bool) {
	if d.newer == nil || p.ordinal == math.MaxUint32 {
		return time.Time{}, false
	}
	return d.of(d.hash(p))
}

const (
	// shortRest is up to how long a source rests without a word to those who wait; what
	// takes longer is told to them, and sessions end. Guess: below it telling them and
	// having their probes again is more work than waiting.
	shortRest = time.Minute
)

// isStated says whether somebody has said how fast a receiver may be asked.
func (o *Options) isStated(key string) bool { return o.Stated == nil || o.Stated(key) }

// readyAt is how many probes the rate of a source lets go at a time of sending, and when it
// lets none go the time to ask again; zero: when an open probe is answered.
func (o *egressPath) readyAt(at time.Time) (int, time.Time) {
	if !o.pace.Limits(at) {
		return math.MaxInt, time.Time{}
	}
	if _, until := o.pace.Permits(at); at.Before(until) {
		return 0, until
	}
	return o.rcpts.Ready(at)
}

// rateLimited says whether a verdict says that we ask too fast.
func rateLimited(v verdict.Verdict) bool {
	return (v.Action == verdict.ActSlow || v.Action == verdict.ActPause) && v.Reason == smtp.ReceiverRateLimited
}

// words are those of an attempt for people: its code, or why there was none.
func words(a evidence.Attempt) string {
	switch {
	case a.Code == 0:
		return a.Trouble.String()
	case a.Enhanced != (smtp.EnhancedCode{}):
		return fmt.Sprintf("%d %s", a.Code, a.Enhanced)
	}
	return fmt.Sprint(a.Code)
}
