package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// guardLeast is how many refusals of an hour may wake a guard: none is known that counts
	// to fewer than five, and two may be the made-up addresses of two domains.
	guardLeast = 3

	// slowBy is how much longer a refusal takes that is held back as a warning. The
	// first slowRefusals of a session warn of nothing. Postfix waits for a second from
	// the tenth error on, and its timer may be early by a tick.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2

	// greyedFew is after how many answers of the first session, all of them to come back later, we come back in
	// another one: some receivers let pass who does, and log a session that goes on (postscreen(8)).
	greyedFew = 2

	// waitsUp and waitsDown are over how many answers the time that they take is an average, as it grows and as it
	// falls: after one in eight that takes three seconds each of the next is asked for by itself.
	waitsUp, waitsDown = 4, 32
)

// mayWakeGuard reports whether a guard against harvesting can be at work, as its words say: it counts what
// it refused. Where it has refused next to nothing, the words are those of one odd mailbox.
func (s *session) mayWakeGuard(now time.Time) bool {
	return s.refused >= guardLeast || s.path.refusals.RefusedAt(now) >= guardLeast
}

// poisonOthers notes that a guard has spoken in a session: what the others of the same
// source were told since then is worth nothing. Since then means since the RCPT
// was sent, because somewhere between that and its answer the guard woke up.
func (ss *sessions) poisonOthers(now time.Time, s *session, r Report) {
	if !s.mayWakeGuard(now) || !r.Poisoned && (r.Failure == nil || r.Failure.Verdict.Action != verdict.ActVoid) {
		return
	}
	since := s.at
	if n := len(r.Answered); n > 0 && r.Answered[n-1].Judgement.Verdict.Action == verdict.ActVoid {
		since = r.Answered[n-1].Sent
	}
	beside := func(o *session) bool { return o != s && o.path == s.path }
	for _, other := range ss.all {
		if beside(other) && (other.void.IsZero() || since.Before(other.void)) {
			other.void = since
		}
	}
	ss.haltSessions(beside)
}

// bookReport counts what was asked, and what came of it.
func (ss *sessions) bookReport(now time.Time, s *session, r *Report) {
	fresh, asked, refused, faults, last := s.rcpts == 0, 0, 0, 0, time.Time{}
	s.agreed = s.agreesOnLength(r, &ss.allowance.learned)
	for _, a := range r.Answered {
		a.waited, last = a.At.Sub(later(a.Sent, last)), a.At
		if a.Judgement.Attempt.Code == 0 { // cannot be asked at this host: nothing was sent
			ss.allowance.undoRcpts(s, 1)
			s.path.refusals.Undo(1)
			ss.options.Sources.Return(s.path.index, ss.key, s.day, 1)
			continue
		}
		if asked++; asked == 1 && !fresh {
			ss.allowance.lead.Learn(a.Sent.Sub(s.at))
		}
		ss.allowance.noteWait(a.Led + a.waited)
		ss.allowance.noteSlowLead(now, s, a.Led, faults)
		ss.allowance.noteSlowRefusal(now, s, a, refused)
		if !a.Judgement.isAccepted() && a.Judgement.Verdict.Reason != smtp.Greylisted {
			faults++
		}
		ss.allowance.finishRcpts(s, ss.allowance.replies.Seen(a.Sent, a.At), 1)
		if a.Judgement.isAccepted() {
			s.path.pace.Took(a.waited)
		}
		switch {
		case a.Judgement.isPermanent():
			refused++
			s.path.refusals.Refused(a.At)
			ss.queues.chargeRefusal(now, s.queue, s.path, a.Probe)
		case a.Judgement.isAccepted():
			s.path.refusals.Accepted(a.At)
		default:
			s.path.refusals.Undo(1)
		}
		if a.Judgement.Attempt.Code != 421 {
			s.told++
			if a.Judgement.Verdict.Reason == smtp.Greylisted {
				s.greyed++
			}
			ss.allowance.learned.Went(s.told, s.refused+refused, now)
			s.host.failures, s.host.served = 0, true
		}
	}
	unheard := min(max(0, r.Refused-refused), len(r.Unanswered)) // refused, though nobody looked
	for range unheard {
		s.path.refusals.Refused(now)
	}
	s.path.refusals.Undo(len(r.Unanswered) - unheard)
	ss.dirty = ss.dirty || refused+unheard > 0
	ss.allowance.finishRcpts(s, now, r.OnWire)
	ss.allowance.undoRcpts(s, len(r.Unanswered)-r.OnWire)
	ss.options.Sources.Return(s.path.index, ss.key, s.day, len(r.Unanswered)-r.OnWire)
	s.errors += faults
	s.rcpts += asked + r.OnWire
	s.refused += refused + unheard
	if s.greyed >= greyedFew && s.greyed == s.told && !s.queue.cameBack {
		s.doomed, s.queue.cameBack = true, true
	}
	room := make([]evidence.Attempt, len(r.Answered))
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.Probe.attempts == nil && a.Judgement.Verdict.Outcome != smtp.Undecided { // who waits would keep all of it
			a.Probe.attempts = room[i : i : i+1] // for note
		}
	}
}

// badSequence is how a server answers a command that came before its time (RFC 5321 §4.2.2).
const badSequence = 503

// learnTogether learns from a report how many RCPTs go together, in a transaction and in a group,
// and whether the hosts take commands in groups at all.
func (ss *sessions) learnTogether(now time.Time, s *session, r *Report) {
	told, learned := &ss.allowance.before, &ss.allowance.learned
	outOfStep, before := false, s.told
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.told = before; a.Judgement.Attempt.Code == 0 {
			continue // nothing was sent
		}
		before++
		outOfStep = outOfStep || a.Judgement.Attempt.Code == badSequence
		if a.Judgement.Verdict.Outcome == smtp.Undecided {
			learned.Group.OnOther()
			continue
		}
		s.taken = max(s.taken, a.Nth)
		learned.Group.OnPlain(told.PipeliningDepth)
		learned.Transaction.OnPlain(told.RcptsPerTransaction)
	}
	if r.Failure == nil || r.Stale {
		return
	}
	if r.Cut {
		learned.Group.OnOther()
		learned.Transaction.OnOther()
	}
	trouble := r.Failure.Attempt.Trouble
	outOfStep = outOfStep || trouble == evidence.TroubleProtocol || trouble == evidence.TroubleTimeout
	if outOfStep && s.grouped {
		s.queue.alone = now.Add(throttle.LearnedFor)
	}
}

// agreesOnLength reports whether the receiver ended a session after as many answers as one
// before: it is about the length of sessions, and not about who was asked last.
func (s *session) agreesOnLength(r *Report, learned *throttle.Learned) bool {
	told := s.told
	for i := range r.Answered {
		if code := r.Answered[i].Judgement.Attempt.Code; code != 0 && code != 421 {
			told++
		}
	}
	return r.Failure != nil && r.Cut && learned.Agrees(told)
}

// takeFact learns what sessions bear here.
func (ss *sessions) takeFact(now time.Time, s *session, f Fact) {
	learned, a := &ss.allowance.learned, f.about
	ss.dirty = ss.dirty || f.what != answered && f.what != worthless && f.what != untouched
	switch {
	case f.what == tooMany:
		learned.PerTransaction.Tighten(a.Nth-1, now)
		learned.Transaction.OnSplit(a.Nth - 1)
	case f.what == suspicious && a.Judgement.Verdict.Action == verdict.ActSplit:
		// As many went before in a transaction: it may be the session that has had enough. Two that agree teach how
		// long sessions are. As it may be our pace as well, it is a bad answer like others.
		s.doomed = s.doomed || learned.SessionFull(a.told, now)
	case f.what == guardWoke:
		learned.Refused.Tighten(s.refused-1, now)
	case f.what == overRefused:
		learned.Refused.Tighten(s.refused, now)
	case f.what == wasCut:
		learned.SessionEnded(s.told, s.refused, now)
	}
}
