package scheduler

import (
	"slices"
	"time"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// sessions are the sessions that are open or being dialled, with their batches.
type sessions struct {
	*env
	allowance *allowance
	opening   *openings
	paths     *paths
	queues    *queues

	all     map[int]*session
	free    []*session   // longest free first
	served  []*hostQueue // queues with sessions
	closing int          // sessions that are saying QUIT
	nextID  int

	pressed  bool         // a queue has no session, and no more may be opened
	small    bool         // the flow that waits in that queue has few addresses
	slotless bool         // no waiting workspace may have another session of this node
	hopeful  bool         // probes wait for the RCPT rate and nothing else
	blocks   blocksNow    // what limited the last plan
	lately   blocksLately // what limited recent plans
	worn     wornSessions
}

// occupyQueue counts a new session of a queue, opened for a flow.
func (ss *sessions) occupyQueue(l *hostQueue, f *flow) {
	if l.Opened(f); l.Sessions() == 1 {
		ss.served = append(ss.served, l)
	}
}

// vacateQueue takes a session from its queue, and charges its flow for the time.
func (ss *sessions) vacateQueue(s *session) {
	s.queue.Closed(s.name, ss.now.Sub(s.dialled).Seconds()/turnFor.Seconds())
	if s.queue.Sessions() == 0 {
		ss.served = slices.DeleteFunc(ss.served, func(o *hostQueue) bool { return o == s.queue })
	}
}

// closeSession ends a session after the probes on the wire. closeSession reports whether the session exists.
func (ss *sessions) closeSession(id int) bool {
	s := ss.all[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.slot.Halted.Store(true)
	return true
}

func (ss *sessions) isAsking() bool { return len(ss.all) > len(ss.free)+ss.closing }

// countSessions counts the open sessions, and the dialled sessions that aren't held up.
func (ss *sessions) countSessions(now time.Time) (ready, opening int) {
	for _, s := range ss.all {
		switch {
		case s.ready && !s.closing:
			ready++
		case !s.ready && s.heldUpAt(false).After(now):
			opening++
		}
	}
	return ready, opening
}

// countOpenAt counts the sessions that are open with a host.
func (ss *sessions) countOpenAt(host string) (n int) {
	for _, s := range ss.all {
		if s.ready && !s.closing && s.host.host == host {
			n++
		}
	}
	return n
}

// countHeld counts the sessions that the receiver presumably held when it refused one: the open ones, and those that
// were dialled before it and haven't failed.
func (ss *sessions) countHeld(now time.Time, refused *session) (n int) {
	for _, s := range ss.all {
		if s.ready || s.dialled.Before(refused.dialled) && s.heldUpAt(false).After(now) {
			n++
		}
	}
	return n
}

// loseSession frees the slot of a session that ended or didn't open.
func (ss *sessions) loseSession(now time.Time, s *session) {
	if !s.ready {
		ss.allowance.dials.Done(now, 1)
		ss.opening.window.Done(now, 1)
	}
	delete(ss.all, s.id)
	s.takeBack()
	if s.closing {
		ss.closing--
	} else {
		ss.vacateQueue(s)
	}
	ss.steps = append(ss.steps, DropSession{ID: s.id})
}

// carryOutHalts stops the sessions that other parts selected.
func (ss *sessions) carryOutHalts() {
	for _, h := range ss.halts {
		ss.haltSessions(h.names)
	}
	ss.halts = ss.halts[:0]
}

func (ss *sessions) beginSession(now time.Time, s *session) {
	seen := ss.allowance.openings.Seen(s.opened, now)
	ss.allowance.dials.Done(seen, 1)
	ss.opening.window.Done(seen, 1)
	ready, opening := ss.countSessions(now)
	ss.opening.wasOpened(now, s, ready, opening)
	s.ready, s.opened = true, now
	ss.releaseSession(now, s)
}

func (ss *sessions) releaseSession(now time.Time, s *session) {
	s.idle = now
	ss.free = append(ss.free, s)
}

// haltSessions stops sessions from beginning more of their batch.
func (ss *sessions) haltSessions(which func(*session) bool) {
	for _, s := range ss.all {
		if which(s) {
			s.slot.Halted.Store(true)
		}
	}
}

// sortFree puts first the free sessions whose queue has the least served flow.
func (ss *sessions) sortFree(free []*session) {
	if len(free) < 2 || len(ss.served) < 2 || !ss.fair.Contended() {
		return
	}
	ranks := make(map[*hostQueue]fairqueue.Rank, len(free))
	for _, s := range free {
		if s.queue.Queued() > 0 {
			ranks[s.queue] = s.queue.Rank()
		}
	}
	slices.SortStableFunc(free, func(a, b *session) int { return ranks[a.queue].Compare(ranks[b.queue]) })
}

func (ss *sessions) quitSession(s *session) {
	s.closing = true
	ss.closing++
	ss.vacateQueue(s)
	ss.steps = append(ss.steps, QuitSession{ID: s.id})
}

func (ss *sessions) countByPath() map[*egressPath]int {
	n := map[*egressPath]int{}
	for _, s := range ss.all {
		n[s.path]++
	}
	return n
}

// session is the scheduler's state of one SMTP session.
type session struct {
	id      int
	queue   *hostQueue
	name    *flow // the flow for which it was opened
	dialled time.Time
	beside  int // sessions open with the host when this one was dialled
	host    *candidate
	path    *egressPath
	tls     smtp.TLSMode // the mode in which the session was opened
	slot    *registry.ConnSlot
	ready   bool // open, as far as we know
	closing bool
	doomed  bool      // the session ends when it is free
	void    time.Time // answers after this time don't count; zero: all count
	opened  time.Time // when it was dialled; once it is ready, when it became ready
	idle    time.Time // since when the session is free

	sessionWork
	sessionRecord
}

type sessionWork struct {
	given   []*Probe  // probes that are being asked
	at      time.Time // when the batch was given
	heldUp  time.Time // when the session counts as held up
	day     int64     // the day whose cap counts this batch
	halted  bool      // the session must return its unasked probes
	grouped bool      // commands go in groups
}

// sessionRecord counts a session's answers, and holds what its host showed.
type sessionRecord struct {
	rcpts        int // sent
	transactions int // begun
	answers      int // all but 421
	well         int // answers up to the newest good one
	worn         int // bad answers since the newest good one, perhaps not about their addresses
	mixed        int // such bad answers before the newest good one
	greyed       int // greylisted answers
	refused      int
	meant        int // refused ones that no harvest guard caused
	errors       int // bad answers without greylisting
	taken        int // the most RCPTs of a transaction that were answered

	slowRefusals, slowAnswers slowness // slowness of refusals, and of other answers
	slowLeads                 slowness // slowness of RSET and MAIL

	agreed bool // the session ended after as many answers as an earlier one

	encrypted bool // the answers show that the session is encrypted
	groups    bool // the host takes commands in groups
	perMail   int  // transactions without a message that the host tolerates; 0: any number
}

func (s *session) place() place { return place{s.queue.route, s.host, s.path} }

func (s *session) noteBatch(probes []*Probe, now time.Time) {
	s.given, s.at = probes, now
	s.path.asking++
}

// takeBack notes that the session's batch is done.
func (s *session) takeBack() {
	if len(s.given) > 0 {
		s.given = nil
		s.path.asking--
	}
}

// transactionsLeft returns how many more transactions a session may begin.
func (s *session) transactionsLeft() int {
	if s.perMail == 0 {
		return throttle.CountMax
	}
	return s.perMail - s.transactions
}

// sent returns the time of what presumably decided the session's fate: when the session got its batch or, without a
// batch, when it was opened.
func (s *session) sent() time.Time {
	if s.at.IsZero() {
		return s.opened
	}
	return s.at
}

// strangerHeldUp is longer than the greeting delay of most servers. If a host has several machines, one of them may be
// silent.
const strangerHeldUp = 15 * time.Second

// heldUpAt returns when the session counts as held up. The time is later while the session opens, and before the
// receiver's first answer.
func (s *session) heldUpAt(answered bool) time.Time {
	if s.ready && answered {
		return s.heldUp
	}
	return s.sent().Add(strangerHeldUp)
}

func (s *session) stage() smtp.Stage {
	if s.ready {
		return smtp.StageRcpt
	}
	return smtp.StageConnect
}

// situation describes the session for learn.
func (s *session) situation(now time.Time, a throttle.Limits, bySession bool) situation {
	return situation{void: s.void, agreed: s.agreed, sent: s.sent(), guard: s.mayWakeGuard(now),
		mayTLS: s.tls != smtp.TLSRequired && a.TLS != throttle.TLSOff, taken: s.taken, answers: s.answers,
		counts: bySession && s.meant > 0}
}
