package scheduler

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// An address with a bad answer is asked again here, in the same place, after seconds, while others get good answers
// (mayAskAgain): that shows whether the answer was about the address. If it fails again, it goes back to its domain,
// which asks it again after minutes or hours: actors/domain/retry_waits.go. It goes there at once if the answer names
// a wait over shortPause or is greylisting, if its kind was tried often enough (Pace.Worth), or if rechecksMost wait.

const (
	// recheckAfter is how long an address waits until it is asked again: longer than the second that many receivers
	// count over. Up to half of it is added at random, so that an even pace doesn't hit the same point of a later
	// second.
	recheckAfter = 2 * time.Second

	// recheckWithin is the longest such wait; then the address is deferred.
	recheckWithin = time.Minute

	// rechecksMost bounds the waiting addresses.
	rechecksMost = 256

	// asideWhile is how long a domain lets others go first. After hostFails more bad first tries than good answers at a
	// host, other hosts go first.
	asideWhile = 2 * time.Second
	hostFails  = 8

	// badInRow: after this many bad answers in a row, if the newest names a wait above shortPause, the receiver pauses
	// for that wait.
	badInRow = 3

	// theDeferred stands, instead of a domain, for addresses that were deferred before and let new ones go first.
	theDeferred = ""
)

// recheck is an address that got a bad answer and waits to be asked again here.
type recheck struct {
	probe     *Probe
	first     throttle.Try
	judgement Judgement
	due       time.Time
	drawn     bool      // due was drawn after others were answered
	until     time.Time // then it is deferred, whatever others get
}

// heldDomain is a domain whose addresses let others go first.
type heldDomain struct {
	until  time.Time
	probes []*Probe
}

// tryOf converts an answer for the law of pace.
func tryOf(a *Answered, r throttle.Result) throttle.Try {
	p := a.Probe
	t := throttle.Try{Sent: a.Sent, Result: r, Domain: p.Address.Domain, Tenant: p.chunk.task.tenant,
		Unsure: p.chunk.named.GetEpoch() > 1}
	if r != throttle.Answered {
		t.Kind, t.Greylisted = kindOf(&a.Judgement.Attempt), saysGreylisted(&a.Judgement)
	}
	return t
}

// saysGreylisted reports whether a reply says in words that it is greylisting. Many greylist without saying so, but
// others use the same codes.
func saysGreylisted(judged *Judgement) bool {
	return judged.Verdict.Reason == smtp.Greylisted && greyWords.MatchString(judged.Attempt.Text)
}

var greyWords = regexp.MustCompile(`(?i)gr[ae]y.?list`)

// resultOf returns the result of a RCPT without a final answer.
func resultOf(judged *Judgement) throttle.Result {
	switch {
	case judged.Attempt.Code == 0 || judged.Attempt.Code == 421:
		return throttle.Cut
	case judged.Verdict.Action == verdict.ActOtherSource, judged.isPermanent():
		return throttle.RefusedUs
	}
	return throttle.Deferred
}

// takeFact acts on a fact about an address.
func (qs *queues) takeFact(now time.Time, l *hostQueue, at place, f Fact) {
	a, p := f.about, f.probe
	switch f.what {
	case untouched:
		qs.pushProbe(l, p)
		return
	case worthless:
		a.Judgement.Attempt.Void = true
	case goneWith:
		qs.retryProbe(l, *a)
		return
	case guardWoke, guardCounts, overRefused, wasCut, troubled:
		return
	case suspicious, suspected:
		if law := at.path.pace; law.Greylisting() && !throttle.IsGreylisted(law, kindOf(&a.Judgement.Attempt)) {
			a.Judgement.Attempt.Void = true // a limit refused it before greylisting could, so its wait hasn't begun
		}
	}
	p.note(a.Judgement)
	switch f.what {
	case answered:
		if !a.Judgement.Verdict.Bare { // which may be about us as well as the mailbox
			qs.answeredWell(now, at, a)
			qs.dirty = qs.dirty || throttle.HasChanged(at.path.pace, now)
		}
		qs.answerProbe(p, a.Judgement, a.At)
	case worthless, tooMany, underTLS: // a paused receiver defers it until the pause ends
		qs.pushProbe(l, p)
	case notHere:
		qs.nextHosts(now, at, *a)
	case suspicious, suspected:
		qs.answeredBadly(now, at, *a)
	case unaskable:
		qs.answerProbe(p, a.Judgement, a.At)
	}
}

// answeredWell handles an answer about its address.
func (qs *queues) answeredWell(now time.Time, at place, a *Answered) {
	o, p := at.path, a.Probe
	at.host.fails = max(0, at.host.fails-1)
	if at.host.fails == 0 {
		at.host.doubts = 0
	}
	if one := p.recheck; one != nil {
		p.recheck = nil
		if o.pace.Alone() || o.pace.Greylisting() {
			o.grey.Passed(a.Sent.Sub(one.first.Sent))
		}
		qs.followLaw(now, at, o.pace.Again(one.first, a.Sent, true, "", now), a)
		return
	}
	if waited, again := p.waited(a.Sent, o); again {
		qs.followLaw(now, at, o.pace.Retried(a.Sent, true, true, "", now), a)
		if waited > 0 {
			o.grey.Passed(waited)
			qs.dirty = true
		}
		return
	}
	o.pace.Good(tryOf(a, throttle.Answered), now)
}

// answeredBadly handles an answer that may be about more than its address. The address waits to be asked again, or is
// deferred.
func (qs *queues) answeredBadly(now time.Time, at place, a Answered) {
	o, p := at.path, a.Probe
	qs.dirty = true
	qs.paths.doubtHost(now, at, resultOf(&a.Judgement))
	if p.recheck != nil {
		qs.failedAgain(now, at, a)
		return
	}
	if waited, again := p.waited(a.Sent, o); again {
		due := o.grey.IsDue(waited)
		kind := kindOf(&a.Judgement.Attempt)
		qs.followLaw(now, at, o.pace.Retried(a.Sent, false, due, kind, now), &a)
		if a.Judgement.Verdict.Reason == smtp.Greylisted || throttle.IsGreylisted(o.pace, kind) {
			o.grey.Again(waited)
		}
		qs.deferAddress(at, a)
		return
	}
	first := tryOf(&a, resultOf(&a.Judgement))
	qs.followLaw(now, at, o.pace.Bad(first, now), &a)
	if rateLimited(a.Judgement.Verdict) && a.Judgement.Verdict.Wait > shortPause && o.pace.InRow() >= badInRow {
		qs.paths.pauseReceiver(now, a.Judgement)
	}
	long := a.Judgement.Verdict.Wait > shortPause || throttle.IsGreylisted(o.pace, first.Kind)
	if long || len(qs.waiting) >= rechecksMost || !o.pace.Worth(first.Kind) {
		qs.deferAddress(at, a)
		return
	}
	one := &recheck{probe: p, first: first, judgement: a.Judgement, until: now.Add(recheckWithin),
		due: now.Add(max(recheckAfter, a.Judgement.Verdict.Wait) + qs.jitter(recheckAfter/2))}
	p.recheck = one
	qs.waiting = append(qs.waiting, one)
}

// failedAgain handles a second bad answer in a row to an address: while others pass, it is about the address.
func (qs *queues) failedAgain(now time.Time, at place, a Answered) {
	o, p := at.path, a.Probe
	one := p.recheck
	p.recheck = nil
	if o.pace.InRow() == 0 && !o.pace.Alone() {
		p.setCause(evidence.NewCause(evidence.ScopeAddress, fmt.Sprintf(
			"asked again %s later it got %s again, while others were answered",
			max(time.Second, a.Sent.Sub(one.first.Sent).Round(time.Second)), words(a.Judgement.Attempt))))
	}
	qs.followLaw(now, at, o.pace.Again(one.first, a.Sent, false, kindOf(&a.Judgement.Attempt), now), &a)
	p.deferred, p.deferredBy = one.first.Sent, o.name
	if o.pace.Greylisting() && !throttle.IsGreylisted(o.pace, one.first.Kind) {
		p.deferred = a.Sent // a limit kept it from being greylisted before
	}
	qs.deferAddress(at, a)
}

// deferAddress returns an address to be asked again later; if every address is greylisted, after its wait.
func (qs *queues) deferAddress(at place, a Answered) {
	waited, _ := a.Probe.waited(a.Sent, at.path)
	v := &a.Judgement.Verdict
	if !a.Judgement.Attempt.Void && (v.Reason == smtp.Greylisted || at.path.pace.Greylisting()) {
		v.Reason, v.Wait = smtp.Greylisted, max(v.Wait, greyWait(at.path, waited))
	}
	early := a.Probe.asked && waited > 0 && waited < recheckWithin/2 // it returns from such a wait
	if v.Wait == 0 && (at.path.pace.Alone() || early || a.Judgement.Attempt.Void) {
		if v.Wait = 2 * recheckAfter; !a.Judgement.Attempt.Void {
			v.Wait = max(v.Wait, waited) // different waits show how long is enough
		}
		v.Wait = v.Wait/2 + qs.jitter(v.Wait)
	}
	qs.deferProbe(a.Probe, a.Judgement, a.At)
}

// greyWait returns how long an address that was deferred again after a wait must still wait if every address is
// greylisted; 0: unknown.
func greyWait(o *egressPath, waited time.Duration) time.Duration {
	wait := o.grey.Wait()
	if wait > 0 && waited == 0 && o.pace.Greylisting() {
		wait = cmp.Or(o.grey.Sooner(), wait)
	}
	if wait > 0 {
		return max(time.Second, wait-waited)
	}
	return 0
}

// waited returns how long an address has waited since it was first deferred, 0: unknown; false: it is new. While
// nothing passes, an address that only another source has asked is new too: it can't show greylisting.
func (p *Probe) waited(sent time.Time, o *egressPath) (time.Duration, bool) {
	if !p.deferred.IsZero() && !p.isNewTo(o) {
		return sent.Sub(p.deferred), true
	}
	return 0, p.asked && !(p.isNewTo(o) && o.pace.Alone())
}

// isNewTo reports whether an address was deferred at another source, and not at this one.
func (p *Probe) isNewTo(o *egressPath) bool {
	return !p.deferred.IsZero() && p.deferredBy != o.name && o.name != "" && p.deferredBy != ""
}

// followLaw carries out what the law of pace decided.
func (qs *queues) followLaw(now time.Time, at place, e throttle.Effect, a *Answered) {
	if e == throttle.Unchanged {
		return
	}
	o := at.path
	qs.dirty = true
	x := o.pace.Explain()
	qs.halt(Halt{path: o})
	if x.Since.Equal(now) {
		qs.noteChange(now, x.Why)
		qs.options.Log.Info("pace changed", "receiver", qs.key, "source", o.name, "rate", x.Rate, "why", x.Why)
	}
	if e != throttle.Slower && qs.letOthersGo(now, o, a.Probe) {
		e = throttle.NothingPasses
	}
	if e != throttle.Refused {
		o.cause = evidence.NewCause(evidence.ScopeReceiver, x.Why)
		qs.setCauses(a, o.cause)
		return
	}
	o.cause = evidence.NewCause(evidence.ScopeSource, x.Why)
	qs.setCauses(a, o.cause)
	judged := a.Judgement
	judged.Attempt.Cause = o.cause
	qs.paths.suspendSource(now, at.route, o, judged)
}

// setCauses notes a cause for an answer and for those that wait to be asked again at the same source.
func (qs *queues) setCauses(a *Answered, c evidence.Cause) {
	a.Probe.setCause(c)
	for _, one := range qs.waiting {
		if one.judgement.Attempt.Source == a.Judgement.Attempt.Source {
			one.probe.setCause(c)
		}
	}
}

// letOthersGo holds a domain back for a moment if one domain or customer got all the bad answers and others wait, and
// reports whether it did.
func (qs *queues) letOthersGo(now time.Time, o *egressPath, p *Probe) bool {
	domain, tenant := o.pace.Nothing().Failing()
	w := qs.waitingBeside(p, func(domain string) bool { return qs.parked[domain] == nil })
	if !(domain != "" && w.OtherDomain || tenant != "" && w.OtherTenant) {
		return false
	}
	if qs.parked[p.Address.Domain] == nil { // until another may be asked
		qs.parked[p.Address.Domain] = &heldDomain{until: later(now, o.pace.Explain().Until).Add(asideWhile)}
	}
	return true
}

// parkProbe sets aside a probe whose domain lets others go first, or that was deferred before and may not be asked yet,
// because nothing passes or a pace is tested.
func (qs *queues) parkProbe(now time.Time, o *egressPath, p *Probe) bool {
	if qs.parkDeferred(now, o, p) {
		return true
	}
	h := qs.parked[p.Address.Domain]
	if p.asked && p.recheck == nil && !p.turn && throttle.AskAgainAt(o.pace, now).After(now) {
		h = qs.theDeferred(now)
	}
	if p.turn = false; h == nil || p.recheck != nil || !now.Before(h.until) {
		return false
	}
	h.probes = append(h.probes, p)
	qs.wakeAt(h.until)
	return true
}

// parkDeferred sets aside an address that was deferred before, while nothing passes. Of those set aside, the longest
// waiting is asked first.
func (qs *queues) parkDeferred(now time.Time, o *egressPath, p *Probe) bool {
	if !p.asked || p.turn || p.recheck != nil || !o.pace.Alone() || p.isNewTo(o) {
		return false
	}
	h := qs.theDeferred(now)
	h.probes = append(h.probes, p)
	qs.wakeAt(h.until)
	return true
}

// theDeferred returns the deferred addresses that are set aside.
func (qs *queues) theDeferred(now time.Time) *heldDomain {
	h := qs.parked[theDeferred]
	if h == nil {
		h = &heldDomain{until: now.Add(asideWhile)}
		qs.parked[theDeferred] = h
	}
	return h
}

// readmitWaiting requeues domains whose time aside is over. It requeues addresses to be asked again once others are
// answered or none wait.
func (qs *queues) readmitWaiting(now time.Time) {
	qs.readmitLongest(now)
	for domain, h := range qs.parked {
		switch last := domain == theDeferred && qs.fair.Queued() == 0; {
		case last && qs.readmitNext(now, h):
		case now.Before(h.until):
			qs.wakeAt(h.until)
		default:
			for _, p := range h.probes {
				qs.requeueProbe(now, p)
			}
			delete(qs.parked, domain)
		}
	}
	kept := qs.waiting[:0]
	for _, one := range qs.waiting {
		may, alone := qs.isDue(now, one)
		switch {
		case one.probe.chunk.gone():
			one.probe.recheck = nil
			qs.requeueProbe(now, one.probe) // which drops it
		case !now.Before(one.until) && (!alone || now.Sub(one.until) >= recheckWithin):
			one.probe.recheck = nil
			qs.deferProbe(one.probe, one.judgement, now)
		case may && !alone:
			qs.requeueProbe(now, one.probe)
		default:
			qs.wakeAt(later(one.due, now.Add(recheckAfter/4)))
			kept = append(kept, one)
		}
	}
	clear(qs.waiting[len(kept):])
	qs.waiting = kept
}

// readmitNext requeues the next deferred address, because no other one waits, and reports whether it did.
func (qs *queues) readmitNext(now time.Time, h *heldDomain) bool {
	if len(h.probes) == 0 {
		return false
	}
	p := h.probes[0]
	_, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, p.hosts))
	if o == nil || o.pace.Alone() {
		return false
	}
	if next := throttle.AskAgainAt(o.pace, now); next.After(now) {
		qs.wakeAt(next)
		return false
	}
	p.turn = true
	h.probes[0] = nil
	h.probes = h.probes[1:]
	qs.requeueProbe(now, p)
	return true
}

// isDue reports whether a waiting address may be asked again, and whether only alone. If few pass in a second, the
// good answer that permits it may have used that second up: then isDue draws a moment of the next second.
func (qs *queues) isDue(now time.Time, one *recheck) (may, alone bool) {
	if now.Before(one.due) {
		return false, false
	}
	may, alone = qs.mayAskAgain(now, one.probe)
	_, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, one.probe.hosts))
	switch {
	case alone || o == nil:
	case one.drawn:
		may = true
	case may && qs.fair.Queued() > 0 && throttle.AskAgainAt(o.pace, now).After(now):
		may = false
	case may && throttle.FewPass(o.pace, now):
		one.due, one.drawn, may = now.Add(qs.jitter(recheckAfter/2)), true, false
	}
	return may, alone
}

// readmitLongest keeps deferred addresses aside while nothing passes. When one may be asked, it requeues the longest
// waiting, which can show greylisting.
func (qs *queues) readmitLongest(now time.Time) {
	h := qs.parked[theDeferred]
	var longest *Probe
	var since time.Time
	look := func(p *Probe, first time.Time) {
		if aside := qs.parked[p.Address.Domain]; aside != nil && now.Before(aside.until) {
			return // others go first
		}
		if longest == nil || first.Before(since) {
			if may, alone := qs.mayAskAgain(now, p); may && alone {
				longest, since = p, first
			}
		}
	}
	for _, one := range qs.waiting {
		if !now.Before(one.due) && !one.probe.chunk.gone() {
			look(one.probe, one.first.Sent)
		}
	}
	if h != nil && len(h.probes) > 0 {
		for _, p := range h.probes {
			since := p.deferred
			if since.IsZero() { // it wasn't deferred, so it shows least
				since = now
			}
			look(p, since)
		}
		if _, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, h.probes[0].hosts)); o != nil && o.pace.Alone() {
			h.until = now.Add(asideWhile)
		}
	}
	if longest == nil {
		return
	}
	_, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, longest.hosts))
	o.pace.Nothing().NoteAskedAgain()
	if longest.turn = true; longest.recheck != nil {
		qs.waiting = slices.DeleteFunc(qs.waiting, func(one *recheck) bool { return one.probe == longest })
	} else {
		h.probes = slices.DeleteFunc(h.probes, func(p *Probe) bool { return p == longest })
	}
	qs.requeueProbe(now, longest)
}

// mayAskAgain reports whether an address may be asked again: others are answered, none wait, or nothing passes and a
// deferred address is next to be asked alone.
func (qs *queues) mayAskAgain(now time.Time, p *Probe) (may, alone bool) {
	_, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, p.hosts))
	switch {
	case o == nil:
		return qs.fair.Queued() == 0, false
	case o.pace.Alone():
		return (o.pace.Nothing().AsksAgain() || qs.fair.Queued() == 0) && o.asking == 0, true
	}
	return o.pace.Calm(now) || o.pace.Greylisting() || qs.fair.Queued() == 0, false
}

// requeueProbe queues a probe that was set aside.
func (qs *queues) requeueProbe(now time.Time, p *Probe) {
	qs.pushProbe(qs.hostQueue(now, p.hosts), p)
}

// requeueAll requeues everything that was set aside.
func (qs *queues) requeueAll(now time.Time) {
	for _, one := range qs.waiting {
		qs.requeueProbe(now, one.probe)
	}
	for _, h := range qs.parked {
		for _, p := range h.probes {
			qs.requeueProbe(now, p)
		}
	}
	qs.waiting, qs.parked = nil, map[string]*heldDomain{}
}

const (
	// triesMax is how many sessions may end while asking one probe before it is deferred: it may be the cause.
	triesMax = 3
)

// retryProbe queues a probe again that was on the wire when its session ended, up to triesMax times.
func (qs *queues) retryProbe(l *hostQueue, a Answered) {
	a.Probe.note(a.Judgement)
	if a.Probe.tries++; a.Probe.tries < triesMax {
		qs.pushProbe(l, a.Probe)
		return
	}
	a.Judgement.Verdict.Outcome, a.Judgement.Verdict.Action = smtp.Undecided, verdict.ActRetry
	qs.answerProbe(a.Probe, a.Judgement, a.At)
}

// nextHosts queues a probe for the other hosts of its route. The domain is to blame only if all say that they do not
// serve it; verdict.Conclude decides that.
func (qs *queues) nextHosts(now time.Time, at place, a Answered) {
	p := a.Probe
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), func(h *wire.Host) bool {
		return h.GetName() == at.host.host
	})
	if reachable(p.hosts) {
		qs.pushProbe(qs.hostQueue(now, p.hosts), p)
		return
	}
	qs.concludeProbe(p, a.Judgement, a.At)
}

// setCause notes the presumed cause of the newest attempt at an address.
func (p *Probe) setCause(c evidence.Cause) {
	if n := len(p.attempts); n > 0 && c != (evidence.Cause{}) {
		p.attempts[n-1].Cause = c
	}
}

// sameAs reports whether an attempt equals a noted one except for its cause, and copies a newer cause.
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

// withCause adds a cause to a refusal that came before an address was asked, or from a harvest guard. The law of pace
// has marked its own.
func withCause(judged Judgement) Judgement {
	a := &judged.Attempt
	switch {
	case a.Cause != (evidence.Cause{}) || a.Code == 0:
	case judged.Verdict.Action == verdict.ActVoid:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver, "a guard against harvesting had refused several addresses")
	case a.Stage < smtp.StageRcpt && judged.Verdict.Action == verdict.ActOtherSource:
		a.Cause = evidence.NewCause(evidence.ScopeSource,
			"refused at stage "+a.Stage.String()+", before any address was asked")
	case a.Stage < smtp.StageRcpt:
		a.Cause = evidence.NewCause(evidence.ScopeReceiver,
			"said at stage "+a.Stage.String()+", before any address was asked")
	}
	return judged
}

const (
	// shortPause: clients don't hear of a pause up to this long. A longer one ends sessions, and costs each task a
	// message and a new offer of its addresses.
	shortPause = time.Minute
)

// isStated reports whether an operator has set how fast a receiver may be asked.
func (o *Options) isStated(key string) bool { return o.Stated == nil || o.Stated(key) }

// readyAt returns how many probes the rate of a source allows at a time of sending, and if none, when to ask again;
// zero: when an open probe is answered.
func (o *egressPath) readyAt(at time.Time) (int, time.Time) {
	if !o.pace.Limits(at) {
		return math.MaxInt, time.Time{}
	}
	if _, until := o.pace.Permits(); at.Before(until) {
		return 0, until
	}
	return o.rcpts.Ready(at)
}

// rateLimited reports whether a verdict says that we ask too fast.
func rateLimited(v verdict.Verdict) bool {
	return (v.Action == verdict.ActSlow || v.Action == verdict.ActPause) && v.Reason == smtp.ReceiverRateLimited
}

// kindOf names the kind of a reply by its code and a hash of its words without digits; words with digits may name a
// message or a time.
func kindOf(a *evidence.Attempt) string {
	kind := words(*a)
	if a.Text == "" {
		return kind
	}
	sum := fnv.New32a()
	for word := range strings.FieldsSeq(a.Text) {
		if !strings.ContainsAny(word, "0123456789") {
			_, _ = sum.Write([]byte(word))
		}
	}
	return fmt.Sprintf("%s%s%x", kind, throttle.KindText, sum.Sum32())
}

// words describes an attempt: its code, or why there is none.
func words(a evidence.Attempt) string {
	switch {
	case a.Code == 0:
		return a.Trouble.String()
	case a.Enhanced != (smtp.EnhancedCode{}):
		return fmt.Sprintf("%d %s", a.Code, a.Enhanced)
	}
	return fmt.Sprint(a.Code)
}
