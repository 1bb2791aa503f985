package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// downMost is the longest wait between two tries at a host that can't be reached.
	downMost = time.Minute

	// downTells: after so many failed tries in a row, two minutes, the addresses that wait for a host are given back.
	downTells = 7

	// lately: sessions opened within this time count as opened together: the second that receivers count over.
	lately = time.Second

	// relapseWithin: an outage so soon after another one counts as caused by our pace. Guess.
	relapseWithin = 30 * time.Second
)

// openings learns how many sessions may be opened in a second, apart from how many may be open at once. Mailbox only.
type openings struct {
	*env
	allowance *allowance

	rate   *throttle.OpeningRate
	window *throttle.Window // that keeps to the rate
	recent []time.Time      // when the newest were dialled
	borne  int              // most sessions open at once so far
	room   int              // sessions that may be dialled at once, as none of so many failed

	holdUntil time.Time // no more are opened before, after one was turned away beside served sessions
	heldAt    time.Time
	held      int // times in a row

	failedAt time.Time // since when none could be opened
	judged   bool      // what that was about
	upAt     time.Time // when one could be opened again after that
	relapses int
}

func (op *openings) beginSearch(now time.Time) {
	a := op.allowance
	b := a.rateBounds(op.options.Allow(op.key))
	b.Ceiling = a.limits.ConnectionRate
	op.rate = throttle.NewOpeningRate(b, now)
	op.window = throttle.NewWindow(a.limits.ConnectionRate, now)
}

// forgetSearch drops what was learned.
func (op *openings) forgetSearch(now time.Time) {
	*op = openings{env: op.env, allowance: op.allowance}
	op.beginSearch(now)
}

// keepRate keeps to what is allowed now.
func (op *openings) keepRate(b throttle.RateBounds, whole, ours throttle.Rate, now time.Time) {
	b.Ceiling = whole
	op.rate.Set(b, now)
	if op.rate.Limits(now) {
		ours, _ = op.rate.Permits(now)
	}
	op.window.Set(ours)
}

// mayOpen reports whether one more session may be opened, and if not, when.
func (op *openings) mayOpen(now time.Time) (bool, time.Time) {
	if now.Before(op.holdUntil) {
		return false, op.holdUntil
	}
	if !op.rate.Limits(now) {
		return true, time.Time{}
	}
	if _, until := op.rate.Permits(now); now.Before(until) {
		return false, until
	}
	n, next := op.window.Ready(now)
	return n > 0, next
}

// isWell reports whether more sessions may be tried than were taken: no opening has failed since the last one that
// went well. A failure is forgotten after a minute in which others are served.
func (op *openings) isWell(now time.Time, count func(time.Time) (ready, opening int)) bool {
	if !op.failedAt.IsZero() && now.Sub(op.failedAt) >= throttle.CapacityHold {
		if ready, _ := count(now); ready > 0 {
			op.failedAt = time.Time{}
		}
	}
	return op.failedAt.IsZero()
}

// noteDialled notes a session that is being opened.
func (op *openings) noteDialled(now time.Time) {
	kept := op.recent[:0]
	for _, t := range op.recent {
		if now.Sub(t) < 2*lately {
			kept = append(kept, t)
		}
	}
	op.recent = append(kept, now)
}

// dialledLately is how many others were dialled within a second before one.
func (op *openings) dialledLately(dialled time.Time) int {
	n := 0
	for _, t := range op.recent {
		if t.Before(dialled) && dialled.Sub(t) <= lately {
			n++
		}
	}
	return n
}

// comeLater reports whether a session temporarily couldn't be opened, for no reason with a rule of its own: its host
// wasn't reached, greeted with 4xx and named no time, or said 5xx about our rate though it has served us, or whatever
// the words beside sessions that it serves.
func comeLater(told *Judgement, served bool, open int) bool {
	a, v := &told.Attempt, &told.Verdict
	switch {
	case a.Stage > smtp.StageGreeting, v.Named:
		return false
	case a.Code/100 == 5:
		return open > 0 || served && rateLimited(*v)
	case v.Wait > 0:
		return false
	}
	switch v.Action {
	case verdict.ActNextMX, verdict.ActRetry, verdict.ActGreylist:
		return true
	case verdict.ActSlow, verdict.ActPause:
		return a.Code != 0
	}
	return false
}

// roomToOpen reports whether one more may be dialled: at most as many at once as are or were open, or were dialled at
// once without a failure, so that few of them meet a limit.
func (op *openings) roomToOpen(ready, opening int) bool {
	return opening < max(1, ready, op.borne-ready, op.room)
}

// wasOpened learns from a session that could be opened.
func (op *openings) wasOpened(now time.Time, s *session, n, opening int) {
	op.rate.Opened(s.dialled, now)
	op.held, op.holdUntil = 0, time.Time{}
	if opening >= op.room { // a rate that isn't used isn't proven
		op.room = opening + 1
	}
	op.borne = max(op.borne, n+1)
	if !op.failedAt.IsZero() && s.dialled.After(op.failedAt) {
		op.rate.Cost(now.Sub(op.failedAt), now)
		s.path.pace.Cost(op.failedAt, now)
		op.allowance.learned.Connections.Cost(now.Sub(op.failedAt), now)
		op.failedAt, op.upAt = time.Time{}, now
	}
	if s.host.last.Attempt.Stage <= smtp.StageTLS { // sessions can be opened: a later failure is something else
		s.host.failures = 0
	}
}

// notOpened follows a session that could not be opened because its host is down, or because we have too many, or open
// them too fast. open are those that the host serves, and all those of the whole receiver. False: it was told something
// else.
func (op *openings) notOpened(now time.Time, s *session, told Judgement, open, all int) bool {
	n := max(s.beside, open)
	op.room = 1
	if !comeLater(&told, n > 0 || s.host.served, open) {
		op.borne = open // the next one is tried alone
		return false
	}
	before := op.dialledLately(s.dialled)
	first := op.failedAt.IsZero() // failures right after it say nothing new
	if first {
		op.failedAt, op.judged = now, false
	}
	if n > 0 && !s.path.pace.Alone() {
		sent, _, since := s.path.pace.LastBad()
		slowed := !since.IsZero() && since.Before(s.dialled) && now.Sub(sent) < throttle.PenaltyWithin
		crowded := first && !slowed // one of the three at a time
		if crowded {
			op.noteCrowded(now, s, told, max(n, all))
		}
		if open > 0 {
			if !crowded {
				op.holdOff(now, s.dialled)
			}
			return true
		}
	}
	if s.host.failures == 0 && s.host.served && !s.path.pace.Alone() && before >= 2 &&
		now.Sub(op.upAt) < relapseWithin {
		op.rate.TooFast(s.dialled, now)
	}
	switch {
	case s.host.failures > 0:
	case op.judged:
	case told.Attempt.Code == 0:
		op.judged = true
		op.noteOutage(now, s, told)
	case !s.path.pace.Alone(): // just when it deferred an address
		op.judged = true
		op.turnedAway(now, s)
	}
	s.host.avoid(now, told, op.downFor(s.host.failures))
	return true
}

// holdOff makes the next opening beside served sessions wait: 1, 2, 4 … 60 s. Other sessions dialled before the refusal
// don't lengthen it.
func (op *openings) holdOff(now, dialled time.Time) {
	if dialled.Before(op.heldAt) {
		return
	}
	op.heldAt, op.holdUntil = now, now.Add(op.downFor(op.held))
	op.held++
}

// noteCrowded takes a session that couldn't be opened while others are served: there are too many, or they were opened
// too fast. If as many were open before, it was the speed.
func (op *openings) noteCrowded(now time.Time, s *session, told Judgement, n int) {
	s.path.pace.OnOtherLimit(now)
	s.host.last = told
	if n < op.borne && op.dialledLately(s.dialled) > 0 {
		op.rate.TooFast(s.dialled, now)
		return
	}
	op.borne = min(op.borne, n)
	op.allowance.learned.Connections.Tighten(op.allowance.ofWhole(n), now)
}

// noteOutage tells an outage from openings that were too fast: connections that fail when a host goes down say nothing
// about pace, unless that happens repeatedly or just as a higher pace is tried.
func (op *openings) noteOutage(now time.Time, s *session, told Judgement) {
	o := s.path
	if op.relapses++; now.Sub(op.upAt) > relapseWithin {
		op.relapses = 0
	}
	if op.relapses > 0 || !o.pace.Proven(now) {
		op.turnedAway(now, s)
		return
	}
	o.pace.Outage(now)
}

// turnedAway slows down where a receiver refuses sessions just after it deferred an address: that is a penalty, and the
// pace was too high or, where few were answered, the openings too fast.
func (op *openings) turnedAway(now time.Time, s *session) {
	sent, through, since := s.path.pace.LastBad()
	switch {
	case since.IsZero() || now.Sub(sent) >= throttle.PenaltyWithin:
	case op.dialledLately(s.dialled) > through:
		op.rate.TooFast(s.dialled, now)
	default:
		s.path.pace.OnSessionsRefused(now)
	}
}

// tellsDown reports whether, after so many tries, the addresses that wait for a host are given back: after downTells
// tries, or sooner where the configured waits are shorter.
func (op *openings) tellsDown(failures int) bool {
	if failures <= 1 || failures >= downTells {
		return failures > 1
	}
	tried := time.Second<<(failures-1) - time.Second // since the first that failed
	return op.options.Stretched(tried) > op.firstWait()
}
