package scheduler

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// outcomes follow what came of sessions and of what they asked.
type outcomes struct {
	*env
	allowance *allowance
	recorder  *recorder
	sessions  *sessions
	paths     *paths
	queues    *queues
	opening   *openings
}

const (
	// harvestFor is how long a receiver is left alone whose guard against address
	// harvesting has spoken, when it names no time: Cisco's counts by the hour.
	harvestFor = time.Hour

	// guardLeast is how many refusals of an hour may wake a guard. Guess: none is known that counts
	// to fewer than five.
	guardLeast = 3

	// slowBy is how much longer a refusal takes that is held back as a warning. The
	// first slowRefusals of a session warn of nothing. Postfix waits for a second from
	// the tenth error on. Guess.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2
)

const (
	// triesMax is how many sessions may end under one probe before it is told
	// to come back later: it may be the one that ends them.
	triesMax = 3

	// brokenFor is the same for a host that has served us, when one connection to it
	// breaks: if only some of them do, all addresses would wait for minutes each time.
	// Guess.
	brokenFor = 2 * time.Second
)

// Judgement is an attempt and what the rules make of it.
type Judgement struct {
	Verdict verdict.Verdict
	Attempt evidence.Attempt // its zero value: nothing was asked
	NoHELO  bool             // EHLO was refused, and what HELO gets is not known: see smtp.Failure
}

// wasAsked says whether there was an attempt.
func (v *Judgement) wasAsked() bool { return v.Attempt != (evidence.Attempt{}) }

// isPermanent says whether the receiver answered with a 5xx.
func (v *Judgement) isPermanent() bool { return v.Attempt.Code/100 == 5 }

// isAccepted says whether the receiver answered with a 2xx.
func (v *Judgement) isAccepted() bool { return v.Attempt.Code/100 == 2 }

// Judge makes an attempt of a raw answer and judges it.
func (o *Options) Judge(r evidence.Raw) Judgement { return o.judgeBy(o.Rules(), r) }

// judgeBy is Judge by certain rules.
func (o *Options) judgeBy(rules *verdict.Rules, r evidence.Raw) Judgement {
	told := Judgement{Attempt: evidence.Note(r)}
	told.Verdict = rules.Decide(&told.Attempt)
	if !told.Verdict.Named {
		told.Verdict.Wait = o.scaleHour(told.Verdict.Wait)
	}
	return told
}

// Answered is one probe that a session has dealt with, and what came of it.
type Answered struct {
	Probe *Probe
	Told  Judgement // with code 0 when it could not be asked
	Sent  time.Time
	At    time.Time
	Nth   int // RCPT of its transaction, from 1

	told   int           // answers of its session before it
	waited time.Duration // for it alone: since its group was sent, or the answer before it was there
}

// Report is what comes back from a session that was given probes.
type Report struct {
	ID       int
	Answered []Answered
	Rest     []*Probe   // not asked, or asked without a usable answer
	OnWire   int        // of rest, how many were on the wire when the session stopped
	Refused  int        // 5xx replies, those to rest among them
	Failure  *Judgement // why the session ended; nil while it goes on
	Cut      bool       // the receiver ended it: 421 or a lost connection
	Stale    bool       // it was found closed when it should have been used again
	Poisoned bool       // answers from here on would be void
}

// EndsBatch reports whether an answer ends what its session was given.
// One that may be about more than its address does: what comes next is to be chosen anew.
func EndsBatch(told *Judgement) bool {
	v := &told.Verdict
	return stopsSession(v.Action) || v.Outcome == smtp.Undecided && told.Attempt.Code != 0
}

// guardAt reports whether a guard against harvesting can be at work, as its words say: it counts what
// it refused. Where it has refused next to nothing, the words are those of one odd mailbox.
func (oc *outcomes) guardAt(now time.Time, s *session) bool {
	return s.refused >= guardLeast || s.path.refusals.RefusedAt(now) >= guardLeast
}

// poisonOthers notes that a guard has spoken in a session: what the others of the same
// source were told since then is worth nothing. Since then means since the RCPT
// was sent, because somewhere between that and its answer the guard woke up.
func (oc *outcomes) poisonOthers(now time.Time, s *session, r Report) {
	if !oc.guardAt(now, s) || !r.Poisoned && (r.Failure == nil || r.Failure.Verdict.Action != verdict.ActVoid) {
		return
	}
	since := s.at
	if n := len(r.Answered); n > 0 && r.Answered[n-1].Told.Verdict.Action == verdict.ActVoid {
		since = r.Answered[n-1].Sent
	}
	beside := func(o *session) bool { return o != s && o.path == s.path }
	for _, other := range oc.sessions.all {
		if beside(other) && (other.void.IsZero() || since.Before(other.void)) {
			other.void = since
		}
	}
	oc.sessions.haltSessions(beside)
}

// sessionOpened notes that a session is ready, or why it is not.
func (oc *outcomes) sessionOpened(now time.Time, id int, failed *Judgement) {
	s := oc.sessions.all[id]
	if s == nil {
		return
	}
	if failed != nil {
		oc.allowance.dials.Done(now, 1)
		oc.opening.window.Done(now, 1)
		oc.sessions.loseSession(s)
		oc.recorder.recordFailure(now, s, failed)
		if failed.Attempt.Code != 0 {
			oc.options.Sources.NoteReached(s.path.index, oc.key, now)
		}
		oc.followTrouble(now, s, *failed)
		return
	}
	oc.options.Sources.NoteReached(s.path.index, oc.key, now)
	seen := oc.allowance.openings.Seen(s.opened, now)
	oc.allowance.dials.Done(seen, 1)
	oc.opening.window.Done(seen, 1)
	ready, opening := oc.sessions.countSessions()
	oc.opening.wasOpened(now, s, ready, opening)
	s.ready, s.opened, s.idle = true, now, now
	oc.sessions.free = append(oc.sessions.free, s)
}

// sessionWorked takes the answers of a session.
func (oc *outcomes) sessionWorked(now time.Time, r Report) {
	s := oc.sessions.all[r.ID]
	if s == nil {
		return
	}
	s.takeBack()
	oc.poisonOthers(now, s, r)
	oc.recorder.recordReport(now, s, &r)
	oc.learnTogether(now, s, &r)
	oc.settleReport(now, s, r)
	oc.requeueRest(now, s, r)
	if r.Failure == nil && !r.Stale {
		s.idle = now
		oc.sessions.free = append(oc.sessions.free, s)
		return
	}
	oc.sessions.loseSession(s)
	oc.learnFromEnd(now, s, r)
}

// sessionClosed frees the place of a session that has ended, or was given up before it began.
func (oc *outcomes) sessionClosed(now time.Time, id int) {
	s := oc.sessions.all[id]
	if s == nil {
		return
	}
	if !s.ready {
		oc.allowance.dials.Done(now, 1)
		oc.opening.window.Done(now, 1)
	}
	oc.sessions.loseSession(s)
}

// sessionCrashed takes back what a session was doing that ended by a fault of ours.
func (oc *outcomes) sessionCrashed(now time.Time, id int) {
	s := oc.sessions.all[id]
	if s == nil {
		return
	}
	told := oc.options.Judge(evidence.Raw{At: now, Stage: s.stage(), Host: s.host.host, Err: smtp.ErrClosed})
	switch {
	case s.closing:
		oc.sessions.loseSession(s)
	case !s.ready:
		oc.sessionOpened(now, id, &told)
	default:
		if len(s.given) == 0 {
			oc.sessions.free = slices.DeleteFunc(oc.sessions.free, func(f *session) bool { return f == s })
		}
		oc.sessionWorked(now, Report{ID: id, Rest: s.given, OnWire: len(s.given), Failure: &told})
	}
}

// learnFromEnd learns from the way in which a session ended.
func (oc *outcomes) learnFromEnd(now time.Time, s *session, r Report) {
	oc.dirty = true
	switch {
	case r.Stale: // closed for lack of use: nothing learned
	case r.Poisoned && !oc.guardAt(now, s): // one mailbox has said so
	case r.Poisoned:
		oc.allowance.learned.Refused.Tighten(s.refused-1, now)
		oc.paths.pauseReceiver(now, *r.Failure)
	case r.Cut && s.told > 0 && r.Failure.Verdict.Action == verdict.ActVoid: // 421, too many errors
		oc.allowance.learned.Refused.Tighten(s.refused, now)
	case r.Cut && r.Failure.Attempt.Stage >= smtp.StageRcpt: // whoever was asked is suspected
		oc.allowance.learned.SessionEnded(s.told, s.refused, now)
	default:
		oc.followTrouble(now, s, *r.Failure)
	}
}

// settleReport books what was asked and hands out the verdicts.
func (oc *outcomes) settleReport(now time.Time, s *session, r Report) {
	fresh, asked, refused, faults, last := s.rcpts == 0, 0, 0, 0, time.Time{}
	s.agreed = oc.agreesOnLength(s, &r)
	for _, a := range r.Answered {
		a.waited, last = a.At.Sub(later(a.Sent, last)), a.At
		if a.Told.Attempt.Code == 0 { // cannot be asked at this host: nothing was sent
			oc.allowance.undoRcpts(s, 1)
			s.path.refusals.Undo(1)
			oc.options.Sources.Return(s.path.index, oc.key, s.day, 1)
			continue
		}
		if asked++; asked == 1 && !fresh {
			oc.allowance.lead.Learn(a.Sent.Sub(s.at))
		}
		oc.allowance.noteSlowRefusal(now, s, a, refused)
		if !a.Told.isAccepted() && a.Told.Verdict.Reason != smtp.Greylisted {
			faults++
		}
		oc.allowance.finishRcpts(s, oc.allowance.replies.Seen(a.Sent, a.At), 1)
		if a.Told.isAccepted() {
			s.path.pace.Took(a.waited)
		}
		switch {
		case a.Told.isPermanent():
			refused++
			s.path.refusals.Refused(a.At)
			oc.queues.chargeRefusal(now, s.queue, s.path, a.Probe)
		case a.Told.isAccepted():
			s.path.refusals.Accepted(a.At)
		default:
			s.path.refusals.Undo(1)
		}
		if a.Told.Attempt.Code != 421 {
			s.told++
			if a.Told.Verdict.Reason == smtp.Greylisted {
				s.greyed++
			}
			oc.allowance.learned.Went(s.told, s.refused+refused, now)
			s.host.failures, s.host.served = 0, true
		}
	}
	unheard := min(max(0, r.Refused-refused), len(r.Rest)) // refused, though nobody looked
	for range unheard {
		s.path.refusals.Refused(now)
	}
	s.path.refusals.Undo(len(r.Rest) - unheard)
	oc.dirty = oc.dirty || refused+unheard > 0
	oc.allowance.finishRcpts(s, now, r.OnWire)
	oc.allowance.undoRcpts(s, len(r.Rest)-r.OnWire)
	oc.options.Sources.Return(s.path.index, oc.key, s.day, len(r.Rest)-r.OnWire)
	s.errors += faults
	s.rcpts += asked + r.OnWire
	s.refused += refused + unheard
	room := make([]evidence.Attempt, len(r.Answered))
	for i, a := range r.Answered {
		if a.Probe.attempts == nil && a.Told.Verdict.Outcome != smtp.Undecided { // who waits would keep all of it
			a.Probe.attempts = room[i : i : i+1] // for note
		}
		oc.followVerdict(now, s, a)
	}
}

// followVerdict follows the verdict on one probe.
func (oc *outcomes) followVerdict(now time.Time, s *session, a Answered) {
	if !s.void.IsZero() && a.At.After(s.void) && a.Told.Attempt.Code != 0 {
		a.Told.Attempt.Void = true
		a.Probe.note(a.Told)
		oc.queues.pushProbe(s.queue, a.Probe) // the receiver rests: it is told when to come back
		return
	}
	v := a.Told.Verdict
	a.Probe.note(a.Told)
	if v.Outcome != smtp.Undecided {
		oc.paths.receiver.inRow = 0
		if !v.Bare { // which may mean us as well as the mailbox
			oc.queues.answeredWell(now, s.place(), &a)
		}
		oc.paths.noteTaken(now, s.queue.route, s.path)
		oc.queues.answerProbe(a.Probe, a.Told, a.At)
		return
	}
	oc.dirty = true
	switch v.Action {
	case verdict.ActSplit:
		if oc.split(now, s, &a) {
			oc.queues.pushProbe(s.queue, a.Probe)
		} else {
			oc.queues.answeredBadly(now, s.place(), a)
		}
		return
	case verdict.ActNextMX:
		oc.nextHosts(now, s, a)
		return
	case verdict.ActTLS:
		if s.tls != smtp.TLSRequired && oc.limits.TLS != throttle.TLSOff {
			s.queue.setMode(smtp.TLSRequired, now)
			oc.queues.pushProbe(s.queue, a.Probe)
			return
		}
	case verdict.ActVoid:
		if oc.guardAt(now, s) {
			oc.retryProbe(s.queue, a)
		} else {
			oc.queues.answeredBadly(now, s.place(), a)
		}
		return
	default:
		switch {
		case a.Told.Attempt.Code == 0: // nothing was sent
		case a.Told.Attempt.Code == 421 && s.agreed: // sessions are so long here
			oc.retryProbe(s.queue, a)
			return
		default:
			oc.queues.answeredBadly(now, s.place(), a)
			return
		}
	}
	oc.queues.answerProbe(a.Probe, a.Told, a.At)
}

// nextHosts moves a probe on to the other hosts of its route. It is the domain's
// fault only when every one of them has said that it does not serve it, which
// verdict.Conclude finds.
func (oc *outcomes) nextHosts(now time.Time, s *session, a Answered) {
	p := a.Probe
	p.hosts = slices.DeleteFunc(slices.Clone(p.hosts), func(h *wire.Host) bool {
		return h.GetName() == s.host.host
	})
	if reachable(p.hosts) {
		oc.queues.pushProbe(oc.queues.hostQueue(now, p.hosts), p)
		return
	}
	oc.queues.concludeProbe(p, a.Told, a.At)
}

// requeueRest puts back what was not asked.
func (oc *outcomes) requeueRest(now time.Time, s *session, r Report) {
	for i, p := range r.Rest {
		switch {
		case i > 0 || i >= r.OnWire || r.Failure == nil || r.Stale: // it is not what ended the session
			oc.queues.pushProbe(s.queue, p)
		case s.agreed || !s.void.IsZero() || r.Poisoned && oc.guardAt(now, s) ||
			r.Failure.Attempt.Trouble == evidence.TroubleOurs:
			oc.retryProbe(s.queue, Answered{Probe: p, Told: *r.Failure, At: now})
		default:
			p.note(*r.Failure)
			oc.queues.answeredBadly(now, s.place(), Answered{Probe: p, Told: *r.Failure, Sent: s.sent(), At: now})
		}
	}
}

// agreesOnLength reports whether the receiver ended a session after as many answers as one
// before: it is about the length of sessions, and not about who was asked last.
func (oc *outcomes) agreesOnLength(s *session, r *Report) bool {
	told := s.told
	for i := range r.Answered {
		if code := r.Answered[i].Told.Attempt.Code; code != 0 && code != 421 {
			told++
		}
	}
	return r.Failure != nil && r.Cut && oc.allowance.learned.Agrees(told)
}

// retryProbe puts a probe back that was on the wire when its session ended. When that
// happens again and again it comes back later: it may be what ends them.
func (oc *outcomes) retryProbe(l *hostQueue, a Answered) {
	a.Probe.note(a.Told)
	if a.Probe.tries++; a.Probe.tries < triesMax {
		oc.queues.pushProbe(l, a.Probe)
		return
	}
	a.Told.Verdict.Outcome, a.Told.Verdict.Action = smtp.Undecided, verdict.ActRetry
	oc.queues.answerProbe(a.Probe, a.Told, a.At)
}

// followTrouble follows a verdict that speaks of the host or of us, not of an address.
func (oc *outcomes) followTrouble(now time.Time, s *session, told Judgement) {
	oc.dirty = true
	v := told.Verdict
	switch {
	case !s.ready && oc.opening.notOpened(now, s, told, oc.sessions.countOpenAt(s.host.host)):
	case told.NoHELO && oc.limits.TLS != throttle.TLSRequired:
		s.queue.setMode(smtp.TLSOffHELO, now)
	case v.Action == verdict.ActPause && rateLimited(v):
		oc.paths.throttled(now, s.sent(), s.path, told)
	case v.Action == verdict.ActPause || v.Action == verdict.ActVoid:
		oc.paths.blameSource(now, s.path, told)
		oc.paths.pauseReceiver(now, told)
	case v.Action == verdict.ActOtherSource:
		oc.paths.refuseSource(now, s.queue.route, s.host, s.path, told)
	case v.Action == verdict.ActTLS && s.tls != smtp.TLSRequired && oc.limits.TLS != throttle.TLSOff:
		s.queue.setMode(smtp.TLSRequired, now)
	case told.Attempt.Stage == smtp.StageTLS && s.tls == smtp.TLSOpportunistic:
		s.queue.setMode(smtp.TLSOff, now) // RFC 7435 §3: rather in clear than not at all
	case s.ready && s.told == 0 && told.Attempt.TLS && told.Attempt.Code == 0 && s.tls == smtp.TLSOpportunistic &&
		told.Attempt.Trouble != evidence.TroubleOurs:
		s.queue.setMode(smtp.TLSOff, now) // it breaks as soon as something is said under TLS
	case v.Action == verdict.ActSlow && s.ready && told.Attempt.Stage > smtp.StageHello:
		oc.paths.throttled(now, s.sent(), s.path, told)
	case told.Attempt.Code == 0 && s.host.served && s.host.failures == 0: // once is chance
		s.host.avoid(now, told, brokenFor)
	default:
		s.host.avoid(now, told, oc.penaltyWait(v, s.host.failures))
	}
}

// stopsSession says whether an action makes the next RCPT of this session wrong.
func stopsSession(a verdict.Action) bool {
	switch a {
	case verdict.ActSlow, verdict.ActPause, verdict.ActOtherSource, verdict.ActTLS, verdict.ActSplit,
		verdict.ActVoid:
		return true
	}
	return false
}
