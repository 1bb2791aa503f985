package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// guardLeast is the fewest refusals in an hour that may wake a harvest guard. Known guards wake at five or more; two
	// refusals may be the control probes of two domains.
	guardLeast = 3

	// slowBy is the extra time of a refusal that the receiver delays as a warning. The first slowRefusals of a session
	// don't count. Postfix waits a second from the tenth error on, and its timer may be early by a tick.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2

	// tarpitsAgree sessions, in which the fastest refusal took a second and a later one a second longer, show that the
	// receiver delays every refusal, each for longer (Courier). A single session like this may be chance.
	tarpitsAgree = 2

	// greyedFew: after this many answers in the first session, all deferrals, we try another session. Some receivers let
	// us pass in a new session, and log a session that continues (postscreen(8)).
	greyedFew = 2

	// The average time of an answer rises over waitsUp answers and falls over waitsDown. If one answer in eight takes
	// three seconds, addresses are asked one at a time.
	waitsUp, waitsDown = 4, 32
)

// mayWakeGuard reports whether we believe a harvest guard's reply. A guard counts refusals. After hardly any refusals,
// the reply comes from a single odd mailbox.
func (s *session) mayWakeGuard(now time.Time) bool {
	return s.refused >= guardLeast || s.path.refusals.RefusedAt(now) >= guardLeast
}

// poisonOthers notes that a guard has spoken in a session. The guard woke up between a RCPT and its answer. From the
// time of that RCPT on, answers to other sessions of the same source don't count.
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

func (ss *sessions) bookReport(now time.Time, s *session, r *Report) {
	fresh, asked, refused, faults, last := s.rcpts == 0, 0, 0, 0, time.Time{}
	s.agreed = s.agreesOnLength(r, &ss.allowance.learned)
	for _, a := range r.Answered {
		a.waited, last = a.At.Sub(later(a.Sent, last)), a.At
		if a.Judgement.Attempt.Code == 0 { // the host wasn't asked: nothing was sent
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
		ss.allowance.noteSlowAnswer(now, s, a)
		if !a.Judgement.isAccepted() && a.Judgement.Verdict.Reason != smtp.Greylisted {
			faults++
		}
		ss.allowance.finishRcpts(s, ss.allowance.replies.Seen(a.Sent, a.At), 1)
		if a.Judgement.isAccepted() {
			s.path.pace.OnLatency(a.waited)
		}
		switch {
		case a.Judgement.isPermanent():
			if refused++; a.Judgement.Verdict.Action != verdict.ActVoid {
				s.meant++
			}
			s.path.refusals.Refused(a.At)
			ss.queues.chargeRefusal(now, s.queue, s.path, a.Probe)
		case a.Judgement.isAccepted():
			s.path.refusals.Accepted(a.At)
		default:
			s.path.refusals.Undo(1)
		}
		if a.Judgement.Attempt.Code != 421 {
			s.noteAnswer(&a.Judgement)
			ss.doubtLength(now, s)
			ss.allowance.learned.Went(s.well, s.refused+refused, now)
			s.host.failures, s.host.served = 0, true
		}
	}
	unheard := min(max(0, r.Refused-refused), len(r.Unanswered)) // refusals that aren't among the answers
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
	s.transactions += r.Transactions
	if s.answers >= greyedFew && s.well == 0 && !s.queue.cameBack {
		s.doomed, s.queue.cameBack = true, true
	}
	room := make([]evidence.Attempt, len(r.Answered))
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.Probe.attempts == nil && a.Judgement.Verdict.Outcome != smtp.Undecided { // open probes would keep room in memory
			a.Probe.attempts = room[i : i : i+1] // room for note
		}
	}
}

func (s *session) noteAnswer(judged *Judgement) {
	s.answers++
	if judged.Verdict.Reason == smtp.Greylisted {
		s.greyed++
	}
	if judged.Verdict.Outcome != smtp.Undecided {
		s.mixed += s.worn
		s.well, s.worn = s.answers, 0
	} else if throttle.MayBeOurs(s.path.pace, kindOf(&judged.Attempt)) {
		s.worn++
	}
}

// badSequence is the reply to a command out of order (RFC 5321 §4.2.2).
const badSequence = 503

// learnTogether learns from a report how many RCPTs may go together in a transaction and in a group of commands, and
// whether the hosts accept groups.
func (ss *sessions) learnTogether(now time.Time, s *session, r *Report) {
	allowed, learned := &ss.allowance.before, &ss.allowance.learned
	outOfStep, before := false, s.answers
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.answers = before; a.Judgement.Attempt.Code == 0 {
			continue // nothing was sent
		}
		before++
		outOfStep = outOfStep || a.Judgement.Attempt.Code == badSequence
		if a.Judgement.Verdict.Outcome == smtp.Undecided {
			learned.Group.OnOther()
			continue
		}
		if s.taken = max(s.taken, a.Nth); a.Nth > 1 {
			ss.worn.alone = 0
		}
		learned.Group.OnPlain(allowed.PipeliningDepth)
		learned.Transaction.OnPlain(allowed.RcptsPerTransaction)
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
	if outOfStep && s.grouped && !r.Failure.Lost {
		s.queue.alone = now.Add(throttle.LearnedFor)
	}
}

// agreesOnLength reports whether this session and the one before ended after the same number of answers. If so, the
// length of sessions is limited, and the last address isn't to blame.
func (s *session) agreesOnLength(r *Report, learned *throttle.Learned) bool {
	answers := s.answers
	for i := range r.Answered {
		if code := r.Answered[i].Judgement.Attempt.Code; code != 0 && code != 421 {
			answers++
		}
	}
	return r.Failure != nil && r.Cut && !r.Failure.isUnanswered() && learned.Agrees(answers)
}

func (ss *sessions) takeFact(now time.Time, s *session, f Fact) {
	learned, a := &ss.allowance.learned, f.about
	ss.dirty = ss.dirty || f.what != answered && f.what != worthless && f.what != untouched
	switch {
	case f.what == tooMany:
		learned.PerTransaction.Tighten(a.Nth-1, now)
		learned.Transaction.OnSplit(a.Nth - 1)
	case f.what == suspicious && a.Judgement.Verdict.Action == verdict.ActSplit:
		// As many passed in a transaction before, so the session may be limited. Two sessions that agree show the limit. Our
		// rate may be the cause too, so it also counts as a bad answer.
		s.doomed = s.doomed || learned.SessionFull(a.answers, now)
	case f.what == guardCounts, f.what == guardWoke && s.refused > 0:
		learned.Refused.Tighten(s.meant, now)
	case f.what == overRefused:
		learned.Refused.Tighten(s.refused-1, now) // the last refusal may have ended the session
	case f.what == wasCut && !a.Judgement.isUnanswered():
		learned.SessionEnded(s.answers, s.refused, now)
	}
}
