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

// An address with a bad answer is first asked again here, at the same receiver, after seconds. While other addresses
// get good answers (mayAskAgain), a second answer shows whether the first was about the address. If the address fails
// again, it goes back to its domain, which asks it again after minutes or hours (actors/domain/retry_waits.go). The
// address goes back at once if
//   - its reply names a wait above shortPause, or says "greylisted";
//   - addresses with this kind of reply were asked again often enough (Pace.Worth);
//   - rechecksMost addresses wait here already.

const (
	// recheckAfter is how long an address waits before it is asked again. recheckAfter is longer than the second over
	// which many receivers count. Up to half of it is added at random, so that a steady rate doesn't hit the same moment
	// of a later second.
	recheckAfter = 2 * time.Second

	// recheckWithin is the longest wait to be asked again. After it the address is deferred.
	recheckWithin = time.Minute

	// rechecksMost bounds the addresses that wait here.
	rechecksMost = 256

	// asideWhile is how long a domain lets other domains go first. If a host has hostFails more bad first tries than good
	// answers, other hosts go first.
	asideWhile = 2 * time.Second
	hostFails  = 8

	// badInRow: after this many bad answers in a row, the receiver pauses if the newest reply names a wait above
	// shortPause. The pause is as long as that wait.
	badInRow = 3

	// theDeferred is the key, instead of a domain, for deferred addresses that let new addresses go first.
	theDeferred = ""
)

// recheck is an address that got a bad answer and waits here to be asked again.
type recheck struct {
	probe     *Probe
	first     throttle.Try
	judgement Judgement
	due       time.Time
	drawn     bool      // due was chosen at random after other addresses got good answers
	until     time.Time // then the address is deferred, whatever answers others get
}

type heldDomain struct {
	until  time.Time
	probes []*Probe
}

// tryOf converts an answer to the form that Pace takes.
func tryOf(a *Answered, r throttle.Result) throttle.Try {
	p := a.Probe
	t := throttle.Try{Sent: a.Sent, Result: r, Domain: p.Address.Domain, Tenant: p.chunk.task.tenant,
		Unsure: p.isUnsure(), Unaccepted: a.Judgement.Attempt.Code/100 != 2}
	if r != throttle.Answered {
		t.Kind, t.Greylisted = kindOf(&a.Judgement.Attempt), saysGreylisted(&a.Judgement)
	}
	return t
}

// saysGreylisted reports whether the words of a reply say "greylisted". Many receivers greylist without saying so.
// Other receivers use the same codes for something else.
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
			a.Judgement.Attempt.Void = true // a limit refused the address before greylisting could, so its wait hasn't begun
		}
	}
	p.note(a.Judgement)
	switch f.what {
	case answered:
		if !a.Judgement.Verdict.Bare { // a bare refusal may be about us or about the mailbox
			qs.answeredWell(now, at, a)
			qs.dirty = qs.dirty || throttle.HasChanged(at.path.pace, now)
		}
		qs.answerProbe(p, a.Judgement, a.At)
	case worthless, tooMany, underTLS: // a paused receiver defers these to the end of its pause
		qs.pushProbe(l, p)
	case notHere:
		qs.nextHosts(now, at, *a)
	case suspicious, suspected:
		qs.answeredBadly(now, at, *a)
	case unaskable:
		qs.answerProbe(p, a.Judgement, a.At)
	}
}

// answeredWell handles an answer that is about its address.
func (qs *queues) answeredWell(now time.Time, at place, a *Answered) {
	o, p := at.path, a.Probe
	at.host.fails = max(0, at.host.fails-1)
	if at.host.fails == 0 {
		at.host.doubts = 0
	}
	if one := p.recheck; one != nil {
		p.recheck = nil
		if o.pace.Alone() || o.pace.Greylisting() {
			o.grey.Passed(a.Sent.Sub(one.first.Sent), p.isUnsure())
		}
		qs.followLaw(now, at, o.pace.Again(one.first, a.Sent, true, "", now), a)
		return
	}
	if waited, again := p.waited(a.Sent, o); again {
		qs.followLaw(now, at, o.pace.Retried(a.Sent, true, true, "", now), a)
		if waited > 0 {
			o.grey.Passed(waited, p.isUnsure())
			qs.dirty = true
		}
		return
	}
	o.pace.Good(tryOf(a, throttle.Answered), now)
}

// answeredBadly handles an answer that may be about more than its address. The address waits here to be asked again, or
// is deferred.
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

// failedAgain handles a second bad answer to an address. While others pass, the failure is about the address.
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
		p.deferred = a.Sent // a limit refused the address, so it wasn't greylisted before
	}
	qs.deferAddress(at, a)
}

// deferAddress returns an address to its domain, to be asked again later. If every address is greylisted, it is asked
// after the greylist's wait.
func (qs *queues) deferAddress(at place, a Answered) {
	waited, _ := a.Probe.waited(a.Sent, at.path)
	v := &a.Judgement.Verdict
	if !a.Judgement.Attempt.Void && (v.Reason == smtp.Greylisted || at.path.pace.Greylisting()) {
		v.Reason, v.Wait = smtp.Greylisted, max(v.Wait, greyWait(at.path, waited))
	}
	early := a.Probe.asked && waited > 0 && waited < recheckWithin/2 // the address comes back from such a wait
	if v.Wait == 0 && (at.path.pace.Alone() || early || a.Judgement.Attempt.Void) {
		if v.Wait = 2 * recheckAfter; !a.Judgement.Attempt.Void {
			v.Wait = max(v.Wait, waited) // different waits show which wait is long enough
		}
		v.Wait = v.Wait/2 + qs.jitter(v.Wait)
	}
	qs.deferProbe(a.Probe, a.Judgement, a.At)
}

// greyWait returns how much longer a deferred address must wait if the receiver greylists every address; 0: not known.
// waited is how long the address has waited.
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

// waited returns how long an address has waited since it was first deferred; 0: not known. False: the address is new.
// While nothing passes, an address that only another source has asked counts as new too, because it can't show
// greylisting.
func (p *Probe) waited(sent time.Time, o *egressPath) (time.Duration, bool) {
	if !p.deferred.IsZero() && !p.isNewTo(o) {
		return sent.Sub(p.deferred), true
	}
	return 0, p.asked && !(p.isNewTo(o) && o.pace.Alone())
}

// isUnsure reports whether an earlier owner of the file may have asked the address, which we then don't know.
func (p *Probe) isUnsure() bool { return p.chunk.named.GetEpoch() > 1 }

// isNewTo reports whether an address was deferred at another source only.
func (p *Probe) isNewTo(o *egressPath) bool {
	return !p.deferred.IsZero() && p.deferredBy != o.name && o.name != "" && p.deferredBy != ""
}

// followLaw carries out what the source's Pace decided.
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

// setCauses notes a cause for an answer, and for the addresses that wait to be asked again at the same source.
func (qs *queues) setCauses(a *Answered, c evidence.Cause) {
	a.Probe.setCause(c)
	for _, one := range qs.waiting {
		if one.judgement.Attempt.Source == a.Judgement.Attempt.Source {
			one.probe.setCause(c)
		}
	}
}

// letOthersGo holds a domain back for a moment if all bad answers went to one domain or customer, and other addresses
// wait. The result says whether this was done.
func (qs *queues) letOthersGo(now time.Time, o *egressPath, p *Probe) bool {
	domain, tenant := o.pace.Nothing().Failing()
	w := qs.waitingBeside(p, func(domain string) bool { return qs.parked[domain] == nil })
	if !(domain != "" && w.OtherDomain || tenant != "" && w.OtherTenant) {
		return false
	}
	if qs.parked[p.Address.Domain] == nil { // hold the domain until another address may be asked
		qs.parked[p.Address.Domain] = &heldDomain{until: later(now, o.pace.Explain().Until).Add(asideWhile)}
	}
	return true
}

// parkProbe sets a probe aside if its domain lets other domains go first. parkProbe also sets aside a deferred address
// that may not be asked yet, because nothing passes or a test is under way.
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

// parkDeferred sets aside an address that was deferred before, while nothing passes. The address that has waited
// longest is asked first.
func (qs *queues) parkDeferred(now time.Time, o *egressPath, p *Probe) bool {
	if !p.asked || p.turn || p.recheck != nil || !o.pace.Alone() || p.isNewTo(o) {
		return false
	}
	h := qs.theDeferred(now)
	h.probes = append(h.probes, p)
	qs.wakeAt(h.until)
	return true
}

func (qs *queues) theDeferred(now time.Time) *heldDomain {
	h := qs.parked[theDeferred]
	if h == nil {
		h = &heldDomain{until: now.Add(asideWhile)}
		qs.parked[theDeferred] = h
	}
	return h
}

// readmitWaiting queues addresses again: the addresses of domains whose time aside is over, and addresses that may be
// asked again now.
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
			qs.requeueProbe(now, one.probe) // so that the probe is dropped
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

// readmitNext queues the next deferred address that is set aside, because no other address waits. The result says
// whether this was done.
func (qs *queues) readmitNext(now time.Time, h *heldDomain) bool {
	if len(h.probes) == 0 {
		return false
	}
	p := h.probes[0]
	_, o := qs.paths.nextCandidate(now, qs.paths.routeTo(now, p.hosts))
	if o == nil || o.pace.Alone() {
		return false
	}
	p.turn = true
	h.probes[0] = nil
	h.probes = h.probes[1:]
	qs.requeueProbe(now, p)
	return true
}

// isDue reports whether a waiting address may be asked again, and whether it must be asked alone. If few addresses pass
// in a second, the good answer that permits asking again may have used up that second. Then isDue draws a random moment
// in the next second.
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

// readmitLongest runs while nothing passes and deferred addresses are set aside. If a deferred address may be asked,
// readmitLongest queues the address that has waited longest, because that can show greylisting.
func (qs *queues) readmitLongest(now time.Time) {
	h := qs.parked[theDeferred]
	var longest *Probe
	var since time.Time
	look := func(p *Probe, first time.Time) {
		if aside := qs.parked[p.Address.Domain]; aside != nil && now.Before(aside.until) {
			return // other addresses go first
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
			if since.IsZero() { // the address wasn't deferred, so it shows least
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

// mayAskAgain reports whether an address may be asked again. An address may be asked again if other addresses are
// answered, or no other addresses wait, or a deferred address is the next to be asked alone.
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

func (qs *queues) requeueProbe(now time.Time, p *Probe) {
	qs.pushProbe(qs.hostQueue(now, p.hosts), p)
}

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
	// triesMax is how many sessions may end while the same probe is asked. After triesMax sessions the probe is deferred,
	// because the address may be the cause.
	triesMax = 3
)

// retryProbe queues a probe again that was on the wire when its session ended, at most triesMax times.
func (qs *queues) retryProbe(l *hostQueue, a Answered) {
	a.Probe.note(a.Judgement)
	if a.Probe.tries++; a.Probe.tries < triesMax {
		qs.pushProbe(l, a.Probe)
		return
	}
	a.Judgement.Verdict.Outcome, a.Judgement.Verdict.Action = smtp.Undecided, verdict.ActRetry
	qs.answerProbe(a.Probe, a.Judgement, a.At)
}

// nextHosts queues a probe for the other hosts of its route. The domain is to blame only if all hosts say that they
// don't serve the domain; verdict.Conclude decides that.
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

// sameAs reports whether an attempt equals a noted one except for its cause. sameAs copies a newer cause.
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

// withCause adds a cause to a refusal by a harvest guard, or from before an address was asked. Pace has set the cause
// of other refusals.
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
	// shortPause is the longest pause that clients don't hear of. A longer one ends sessions, and costs each task a
	// message and a new offer of its addresses.
	shortPause = time.Minute
)

// isStated reports whether an operator has set how fast a receiver may be asked.
func (o *Options) isStated(key string) bool { return o.Stated == nil || o.Stated(key) }

// readyAt returns how many probes the rate of a source allows at a time of sending. If the number is 0, readyAt returns
// when to ask again; zero: when an open probe is answered.
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

// kindOf names the kind of a reply: its code, and a hash of its words. Words with digits are left out, because they may
// name a message or a time.
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

// words describes an attempt by its reply code, or says why there is no code.
func words(a evidence.Attempt) string {
	switch {
	case a.Code == 0:
		return a.Trouble.String()
	case a.Enhanced != (smtp.EnhancedCode{}):
		return fmt.Sprintf("%d %s", a.Code, a.Enhanced)
	}
	return fmt.Sprint(a.Code)
}
