package receiver

import (
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
	"slices"
	"time"
)

// outcomes follow what came of sessions and of what they asked.
type outcomes struct {
	*env
	allowance  *allowance
	recorder   *recorder
	inbox      *inbox
	pool       *pool
	paths      *paths
	queues     *queues
	penalties  *penalties
	suspicions *suspicions
	opening    *openings
}

const (
	// triesMax is how many sessions may end under one probe before it is told
	// to come back later: it may be the one that ends them.
	triesMax = 3

	// brokenFor is the same for a host that has served us, when one connection to it
	// breaks: if only some of them do, all addresses would wait for minutes each time.
	// Guess.
	brokenFor = 2 * time.Second
)

// verdictOf is an attempt and what the rules make of it.
type verdictOf struct {
	verdict verdict.Verdict
	attempt evidence.Attempt // its zero value: nothing was asked
}

// asked says whether there was an attempt.
func (v *verdictOf) asked() bool { return v.attempt != (evidence.Attempt{}) }

// permanent says whether the receiver answered with a 5xx.
func (v *verdictOf) permanent() bool { return v.attempt.Code/100 == 5 }

// accepted says whether the receiver answered with a 2xx.
func (v *verdictOf) accepted() bool { return v.attempt.Code/100 == 2 }

// judge makes an attempt of a raw answer and judges it.
func (o *Options) judge(r evidence.Raw) verdictOf {
	told := verdictOf{attempt: evidence.Note(r)}
	told.verdict = o.Rules.Decide(&told.attempt)
	if !told.verdict.Named {
		told.verdict.Wait = o.lasts(told.verdict.Wait)
	}
	return told
}

// answered is one probe that a session has dealt with, and what came of it.
type answered struct {
	probe *probe
	told  verdictOf // with code 0 when it could not be asked
	sent  time.Time
	at    time.Time
	nth   int // RCPT of its transaction, from 1
}

// report is what comes back from a session that was given probes.
type report struct {
	id       int
	answered []answered
	rest     []*probe   // not asked, or asked without a usable answer
	onWire   int        // of rest, how many were on the wire when the session stopped
	refused  int        // 5xx replies, those to rest among them
	failure  *verdictOf // why the session ended; nil while it goes on
	cut      bool       // the receiver ended it: 421 or a lost connection
	stale    bool       // it was found closed when it should have been used again
	poisoned bool       // answers from here on would be void
}

// endsBatch reports whether an answer ends what its session was given.
// One that may be about more than its address does: what comes next is to be chosen anew.
func endsBatch(told *verdictOf) bool {
	v := &told.verdict
	return stops(v.Action) || v.Outcome == smtp.Undecided && told.attempt.Code != 0
}

// greylisted learns from the answer to a probe that was put off before from the
// same source, and makes the wait of one that is put off now as long as it has to be.
// A wait that the receiver names counts when it is longer.
func (oc *outcomes) greylisted(s *session, a *answered) {
	p, v := a.probe, &a.told.verdict
	put := v.Outcome == smtp.Undecided && v.Reason == smtp.Greylisted
	if p.greyAgo > 0 && (p.greyFrom == s.outlet.name || s.outlet.name == "") {
		waited := p.greyAgo + a.sent.Sub(p.offered)
		switch {
		case put:
			s.outlet.grey.again(waited)
			oc.dirty = true
		case v.Outcome != smtp.Undecided:
			s.outlet.grey.passed(waited)
			oc.dirty = true
		}
	}
	if put && v.Action == verdict.ActGreylist {
		v.Wait = max(v.Wait, s.outlet.grey.wait())
	}
}

// guardAt reports whether a guard against harvesting can be at work, as its words say: it counts what
// it refused. Where it has refused next to nothing, the words are those of one odd mailbox.
func (oc *outcomes) guardAt(now time.Time, s *session) bool {
	return s.refused >= guardLeast || s.outlet.budget.refused(now) >= guardLeast
}

// poison notes that a guard has spoken in a session: what the others of the same
// source were told since then is worth nothing. Since then means since the RCPT
// was sent, because somewhere between that and its answer the guard woke up.
func (oc *outcomes) poison(now time.Time, s *session, r report) {
	if !oc.guardAt(now, s) || !r.poisoned && (r.failure == nil || r.failure.verdict.Action != verdict.ActVoid) {
		return
	}
	since := s.at
	if n := len(r.answered); n > 0 && r.answered[n-1].told.verdict.Action == verdict.ActVoid {
		since = r.answered[n-1].sent
	}
	beside := func(o *session) bool { return o != s && o.outlet == s.outlet }
	for _, other := range oc.pool.sessions {
		if beside(other) && (other.void.IsZero() || since.Before(other.void)) {
			other.void = since
		}
	}
	oc.pool.halt(beside)
}

// heard tells a source's tempo about an answer that says nothing against it.
func (oc *outcomes) heard(now time.Time, s *session, a *answered) {
	if a.told.verdict.Outcome == smtp.Undecided && a.told.verdict.Action != verdict.ActNextMX {
		s.outlet.tempo.OnOther(a.sent)
		return
	}
	s.outlet.tempo.OnSuccess(a.sent, now)
	if a.told.accepted() && !s.slow { // refusals may be held back on purpose
		s.outlet.tempo.OnLatency(a.at.Sub(a.sent), now)
	}
}

// opened notes that a session is ready, or why it is not.
func (oc *outcomes) opened(now time.Time, id int, failed *verdictOf) {
	s := oc.pool.sessions[id]
	if s == nil {
		return
	}
	if failed != nil {
		oc.allowance.dials.Done(now, 1)
		oc.opening.window.Done(now, 1)
		oc.pool.lose(s)
		oc.recorder.unheard(now, s, failed)
		if failed.attempt.Code != 0 {
			oc.options.Sources.NoteReached(s.outlet.index, oc.key, now)
		}
		oc.trouble(now, s, *failed)
		return
	}
	oc.options.Sources.NoteReached(s.outlet.index, oc.key, now)
	seen := oc.allowance.openings.seen(s.opened, now)
	oc.allowance.dials.Done(seen, 1)
	oc.opening.window.Done(seen, 1)
	oc.opening.wasOpened(now, s)
	s.ready, s.opened, s.idle = true, now, now
	oc.pool.free = append(oc.pool.free, s)
}

// worked takes the answers of a session.
func (oc *outcomes) worked(now time.Time, r report) {
	s := oc.pool.sessions[r.id]
	if s == nil {
		return
	}
	s.given = nil
	oc.poison(now, s, r)
	oc.recorder.seen(now, s, &r)
	oc.settle(now, s, r)
	oc.requeue(now, s, r)
	if r.failure == nil && !r.stale {
		s.idle = now
		oc.pool.free = append(oc.pool.free, s)
		return
	}
	oc.pool.lose(s)
	oc.ended(now, s, r)
}

// closed frees the place of a session that has ended, or was given up before it began.
func (oc *outcomes) closed(now time.Time, id int) {
	s := oc.pool.sessions[id]
	if s == nil {
		return
	}
	if !s.ready {
		oc.allowance.dials.Done(now, 1)
		oc.opening.window.Done(now, 1)
	}
	oc.pool.lose(s)
}

// crashed takes back what a session was doing that ended by a fault of ours.
func (oc *outcomes) crashed(now time.Time, id int) {
	s := oc.pool.sessions[id]
	if s == nil {
		return
	}
	told := oc.options.judge(evidence.Raw{At: now, Stage: s.stage(), Host: s.host.host, Err: smtp.ErrClosed})
	switch {
	case s.closing:
		oc.pool.lose(s)
	case !s.ready:
		oc.opened(now, id, &told)
	default:
		if len(s.given) == 0 {
			oc.pool.free = slices.DeleteFunc(oc.pool.free, func(f *session) bool { return f == s })
		}
		oc.worked(now, report{id: id, rest: s.given, onWire: len(s.given), failure: &told})
	}
}

// ended learns from the way in which a session ended.
func (oc *outcomes) ended(now time.Time, s *session, r report) {
	oc.dirty = true
	switch {
	case r.stale: // closed for lack of use: nothing learned
	case r.poisoned && !oc.guardAt(now, s): // one mailbox has said so
	case r.poisoned:
		oc.allowance.learned.refused.tighten(s.refused-1, now)
		oc.penalties.pause(now, *r.failure)
	case r.cut && s.told > 0 && r.failure.verdict.Action == verdict.ActVoid: // 421, too many errors
		oc.allowance.learned.refused.tighten(s.refused, now)
	case r.cut && r.failure.attempt.Stage >= smtp.StageRcpt: // whoever was asked is suspected
		if s.told > 0 {
			oc.allowance.learned.sessionEnded(s.told, s.refused, now)
		}
	default:
		oc.trouble(now, s, *r.failure)
	}
}

// settle books what was asked and hands out the verdicts.
func (oc *outcomes) settle(now time.Time, s *session, r report) {
	fresh, asked, refused, faults := s.rcpts == 0, 0, 0, 0
	s.agreed = oc.agreesOnLength(s, &r)
	for _, a := range r.answered {
		if a.told.attempt.Code == 0 { // cannot be asked at this host: nothing was sent
			oc.allowance.undone(s, 1)
			s.outlet.budget.Undo(1)
			oc.options.Sources.Return(s.outlet.index, oc.key, s.day, 1)
			continue
		}
		if asked++; asked == 1 && !fresh {
			oc.allowance.lead.learn(a.sent.Sub(s.at))
		}
		oc.allowance.slowed(now, s, a, refused)
		if !a.told.accepted() && a.told.verdict.Reason != smtp.Greylisted {
			faults++
		}
		oc.allowance.done(s, oc.allowance.replies.seen(a.sent, a.at), 1)
		oc.heard(now, s, &a)
		switch {
		case a.told.permanent():
			refused++
			s.outlet.budget.Refused(a.at)
		case a.told.accepted():
			s.outlet.budget.Accepted(a.at)
		default:
			s.outlet.budget.Undo(1)
		}
		if a.told.attempt.Code != 421 {
			s.told++
			if a.told.verdict.Reason == smtp.Greylisted {
				s.greyed++
			}
			oc.allowance.learned.went(s.told, now)
			s.host.failures, s.host.served = 0, true
		}
	}
	unheard := min(max(0, r.refused-refused), len(r.rest)) // refused, though nobody looked
	for range unheard {
		s.outlet.budget.Refused(now)
	}
	s.outlet.budget.Undo(len(r.rest) - unheard)
	oc.dirty = oc.dirty || refused+unheard > 0
	oc.allowance.done(s, now, r.onWire)
	oc.allowance.undone(s, len(r.rest)-r.onWire)
	oc.options.Sources.Return(s.outlet.index, oc.key, s.day, len(r.rest)-r.onWire)
	s.errors += faults
	s.rcpts += asked + r.onWire
	s.refused += refused + unheard
	for _, a := range r.answered {
		oc.judge(now, s, a)
	}
}

// judge follows the verdict on one probe.
func (oc *outcomes) judge(now time.Time, s *session, a answered) {
	if !s.void.IsZero() && a.at.After(s.void) && a.told.attempt.Code != 0 {
		a.told.attempt.Void = true
		a.probe.note(a.told)
		oc.queues.push(s.lane, a.probe) // the receiver rests: it is told when to come back
		return
	}
	oc.greylisted(s, &a)
	v := a.told.verdict
	a.probe.note(a.told)
	if v.Outcome != smtp.Undecided {
		oc.penalties.pauses = 0
		oc.suspicions.answeredWell(now, s, &a)
		oc.paths.took(now, s)
		oc.inbox.answer(a.probe, a.told, a.at)
		return
	}
	oc.dirty = true
	switch v.Action {
	case verdict.ActSplit:
		if a.nth > 1 { // the only one of its transaction cannot be split: again later
			oc.allowance.learned.perTransaction.tighten(a.nth-1, now)
			oc.queues.push(s.lane, a.probe)
			return
		}
	case verdict.ActNextMX:
		oc.nextHosts(now, s, a)
		return
	case verdict.ActTLS:
		if s.tls != smtp.TLSRequired && oc.allowance.limits.TLS != throttle.TLSOff {
			s.lane.setMode(smtp.TLSRequired, now)
			oc.queues.push(s.lane, a.probe)
			return
		}
	case verdict.ActVoid:
		if oc.guardAt(now, s) {
			oc.retry(s.lane, a)
		} else {
			oc.suspicions.suspicious(now, s, a)
		}
		return
	default:
		switch {
		case a.told.attempt.Code == 0: // nothing was sent
		case a.told.attempt.Code == 421 && s.agreed: // sessions are so long here
			oc.retry(s.lane, a)
			return
		default:
			oc.suspicions.suspicious(now, s, a)
			return
		}
	}
	oc.inbox.answer(a.probe, a.told, a.at)
}

// nextHosts moves a probe on to the other hosts of its route. It is the domain's
// fault only when every one of them has said that it does not serve it, which
// verdict.Conclude finds.
func (oc *outcomes) nextHosts(now time.Time, s *session, a answered) {
	p := a.probe
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), func(h *wire.Host) bool {
		return h.GetName() == s.host.host
	})
	if reachable(p.hosts) {
		oc.queues.push(oc.queues.lane(now, p.hosts), p)
		return
	}
	oc.inbox.conclude(p, a.told, a.at)
}

// requeue puts back what was not asked.
func (oc *outcomes) requeue(now time.Time, s *session, r report) {
	for i, p := range r.rest {
		switch {
		case i > 0 || i >= r.onWire || r.failure == nil || r.stale: // it is not what ended the session
			oc.queues.push(s.lane, p)
		case s.agreed || !s.void.IsZero() || r.poisoned && oc.guardAt(now, s) || r.failure.attempt.Trouble == evidence.TroubleOurs:
			oc.retry(s.lane, answered{probe: p, told: *r.failure, at: now})
		default:
			p.note(*r.failure)
			oc.suspicions.suspicious(now, s, answered{probe: p, told: *r.failure, sent: s.sent(), at: now})
		}
	}
}

// agreesOnLength reports whether the receiver ended a session after as many answers as one
// before: it is about the length of sessions, and not about who was asked last.
func (oc *outcomes) agreesOnLength(s *session, r *report) bool {
	told := s.told
	for i := range r.answered {
		if code := r.answered[i].told.attempt.Code; code != 0 && code != 421 {
			told++
		}
	}
	return r.failure != nil && r.cut && told > 0 && told == oc.allowance.learned.cut.told && told >= oc.allowance.learned.longest
}

// retry puts a probe back that was on the wire when its session ended. When that
// happens again and again it comes back later: it may be what ends them.
func (oc *outcomes) retry(l *lane, a answered) {
	a.probe.note(a.told)
	if a.probe.tries++; a.probe.tries < triesMax {
		oc.queues.push(l, a.probe)
		return
	}
	a.told.verdict.Outcome, a.told.verdict.Action = smtp.Undecided, verdict.ActRetry
	oc.inbox.answer(a.probe, a.told, a.at)
}

// trouble follows a verdict that speaks of the host or of us, not of an address.
func (oc *outcomes) trouble(now time.Time, s *session, told verdictOf) {
	oc.dirty = true
	v := told.verdict
	switch {
	case !s.ready && oc.opening.notOpened(now, s, told):
	case v.Action == verdict.ActPause && hasty(v):
		oc.penalties.tooFast(now, s.outlet, told, s.sent())
	case v.Action == verdict.ActPause || v.Action == verdict.ActVoid:
		oc.paths.blame(now, s.outlet, told)
		oc.penalties.pause(now, told)
	case v.Action == verdict.ActOtherSource:
		oc.penalties.refused(now, s, told)
	case v.Action == verdict.ActTLS && s.tls != smtp.TLSRequired && oc.allowance.limits.TLS != throttle.TLSOff:
		s.lane.setMode(smtp.TLSRequired, now)
	case told.attempt.Stage == smtp.StageTLS && s.tls == smtp.TLSOpportunistic:
		s.lane.setMode(smtp.TLSOff, now) // RFC 7435 §3: rather in clear than not at all
	case v.Action == verdict.ActSlow && s.ready && told.attempt.Stage > smtp.StageHello:
		oc.penalties.tooFast(now, s.outlet, told, s.sent())
	case told.attempt.Code == 0 && s.host.served && s.host.failures == 0: // once is chance
		oc.penalties.avoid(now, s.host, told, brokenFor)
	default:
		oc.penalties.avoid(now, s.host, told, oc.allowance.wait(v, s.host.failures))
	}
}
