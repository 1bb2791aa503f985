package scheduler

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// SessionOpened notes that a session is ready, with what its host showed; or why it failed.
func (sc *Scheduler) SessionOpened(now time.Time, id int, shown throttle.Shown, failed *Judgement) {
	s := sc.sessions.all[id]
	if failed == nil {
		sc.allowance.noteShown(s, shown)
	}
	if s == nil {
		return
	}
	if failed == nil {
		sc.sessions.beginSession(now, s)
		return
	}
	if s.slot.From.IsValid() && failed.Attempt.Stage == smtp.StageConnect && sc.sessions.countOpenAt(s.host.host) > 0 {
		sc.sessions.loseSession(now, s) // perhaps a firewall keeps the port of the lost session closed
		return
	}
	s.queue.barren.note(s.dialled, now, failed)
	sc.sessions.loseSession(now, s)
	sc.recorder.recordFailure(now, s, failed)
	sc.takeTrouble(now, s, *failed)
	sc.sessions.carryOutHalts()
}

// SessionWorked handles the report of a session.
func (sc *Scheduler) SessionWorked(now time.Time, r Report) {
	s := sc.sessions.all[r.ID]
	if s == nil {
		return
	}
	s.queue.barren.noteReport(s.sent(), now, &r)
	s.takeBack()
	sc.sessions.poisonOthers(now, s, r)
	sc.recorder.recordReport(now, s, &r)
	sc.takeReport(now, s, &r)
	if r.Failure == nil && !r.Stale {
		sc.sessions.releaseSession(now, s)
	} else {
		sc.sessions.loseSession(now, s)
	}
	sc.sessions.carryOutHalts()
}

// takeReport lets every part learn from a report.
func (sc *Scheduler) takeReport(now time.Time, s *session, r *Report) {
	sc.sessions.learnTogether(now, s, r)
	sc.sessions.bookReport(now, s, r)
	sc.facts = learn(sc.facts[:0], now, r, s.situation(now, sc.limits,
		sc.allowance.software.countsBySession()))
	for _, f := range sc.facts {
		sc.sessions.takeFact(now, s, f)
		sc.queues.takeFact(now, s.queue, s.place(), f)
		sc.paths.takeFact(now, s.place(), f)
		if f.what == troubled {
			sc.takeTrouble(now, s, f.about.Judgement)
		}
	}
	clear(sc.facts)
}

// takeTrouble acts on a reply that is about the host or about us.
func (sc *Scheduler) takeTrouble(now time.Time, s *session, judged Judgement) {
	sc.dirty = true
	open, held := sc.sessions.countOpenAt(s.host.host), sc.sessions.countHeld(now, s)
	if s.ready || !sc.opening.notOpened(now, s, judged, open, held) {
		sc.paths.takeTrouble(now, s.place(), trouble{judged, s.ready, s.answers > 0, s.tls, s.sent()})
	}
}

// SessionClosed frees the slot of a session that ended or never opened.
func (sc *Scheduler) SessionClosed(now time.Time, id int) {
	if s := sc.sessions.all[id]; s != nil {
		sc.sessions.loseSession(now, s)
	}
}

// SessionCrashed recovers the batch of a session that ended because of a fault of ours.
func (sc *Scheduler) SessionCrashed(now time.Time, id int) {
	s := sc.sessions.all[id]
	if s == nil {
		return
	}
	judged := sc.options.Judge(evidence.Raw{At: now, Stage: s.stage(), Host: s.host.host, Err: smtp.ErrClosed})
	switch {
	case s.closing:
		sc.sessions.loseSession(now, s)
	case !s.ready:
		sc.SessionOpened(now, id, throttle.Shown{}, &judged)
	default:
		if len(s.given) == 0 {
			sc.sessions.free = slices.DeleteFunc(sc.sessions.free, func(f *session) bool { return f == s })
		}
		sc.SessionWorked(now, Report{ID: id, Unanswered: s.given, OnWire: len(s.given), Failure: &judged})
	}
}
