package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// badSequence is how a server answers a command that came before its time (RFC 5321 §4.2.2).
const badSequence = 503

// learnTogether learns from a report how many RCPTs go together, in a transaction and in a group,
// and whether the hosts take commands in groups at all.
func (oc *outcomes) learnTogether(now time.Time, s *session, r *Report) {
	told, learned := &oc.allowance.before, &oc.allowance.learned
	outOfStep, before := false, s.told
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.told = before; a.Told.Attempt.Code == 0 {
			continue // nothing was sent
		}
		before++
		outOfStep = outOfStep || a.Told.Attempt.Code == badSequence
		if a.Told.Verdict.Outcome == smtp.Undecided {
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

// split follows an answer that wants fewer RCPTs in a transaction, and reports whether its address is to be asked again at once. Where as
// many went before, in a transaction of the same session, it may be the session that has had enough: it ends, and two that agree teach
// the length of sessions. As it may be our pace as well, it is a bad answer like others.
func (oc *outcomes) split(now time.Time, s *session, a *Answered) bool {
	learned := &oc.allowance.learned
	if a.Nth > max(1, s.taken) {
		learned.PerTransaction.Tighten(a.Nth-1, now)
		learned.Transaction.OnSplit(a.Nth - 1)
		return true
	}
	s.doomed = s.doomed || learned.SessionFull(a.told, now)
	return false
}
