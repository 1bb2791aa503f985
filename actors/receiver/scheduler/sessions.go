package scheduler

import (
	"slices"
	"time"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// sessions are the sessions open or being dialled, with their batches.
type sessions struct {
	*env
	allowance *allowance
	opening   *openings
	paths     *paths
	queues    *queues

	all     map[int]*session
	free    []*session   // free, longest first
	served  []*hostQueue // queues with sessions
	closing int          // sessions that say QUIT
	nextID  int

	pressed  bool         // a queue has no session, and no more may be opened
	small    bool         // that queue's flow has few addresses
	slotless bool         // no waiting workspace may have another session of this node
	hopeful  bool         // probes wait only for the RCPT rate
	blocks   blocksNow    // what limited the last plan
	lately   blocksLately // and recent plans
	worn     wornSessions
}

// occupyQueue counts a queue's new session, opened for a flow.
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

// closeSession lets a session end after the probes on the wire, and reports whether the session exists.
func (ss *sessions) closeSession(id int) bool {
	s := ss.all[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.slot.Halted.Store(true)
	return true
}

// isAsking reports whether any session is asking.
func (ss *sessions) isAsking() bool { return len(ss.all) > len(ss.free)+ss.closing }

// countSessions counts the open sessions, and those being dialled that aren't held up.
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

// loseSession frees the slot of a session that has ended, or didn't open.
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

// carryOutHalts stops the sessions that other parts named.
func (ss *sessions) carryOutHalts() {
	for _, h := range ss.halts {
		ss.haltSessions(h.names)
	}
	ss.halts = ss.halts[:0]
}

// beginSession notes that a session is open.
func (ss *sessions) beginSession(now time.Time, s *session) {
	seen := ss.allowance.openings.Seen(s.opened, now)
	ss.allowance.dials.Done(seen, 1)
	ss.opening.window.Done(seen, 1)
	ready, opening := ss.countSessions(now)
	ss.opening.wasOpened(now, s, ready, opening)
	s.ready, s.opened = true, now
	ss.releaseSession(now, s)
}

// releaseSession notes that a session is free.
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

// sortFree sorts the free sessions: first those whose queue has the least served flow.
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

// countByPath counts the sessions by their sources.
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
	name    *flow // for which it was opened
	dialled time.Time
	beside  int // open sessions with its host when it was dialled
	host    *candidate
	path    *egressPath
	tls     smtp.TLSMode // as it was opened
	slot    *registry.ConnSlot
	ready   bool // open, as far as we know
	closing bool
	doomed  bool      // it ends once free
	void    time.Time // later answers don't count; zero: all count
	opened  time.Time // when it was dialled, then when it was ready
	idle    time.Time // since when it is free

	sessionWork
	sessionRecord
}

// sessionWork is the batch of a session.
type sessionWork struct {
	given   []*Probe  // being asked
	at      time.Time // when they were given
	heldUp  time.Time // when it counts as held up
	day     int64     // the day of the source's cap that counts them
	halted  bool      // it must return unasked probes
	grouped bool      // its commands go in groups
}

// sessionRecord counts a session's answers, and holds what its host showed.
type sessionRecord struct {
	rcpts        int // sent
	transactions int // begun
	answers      int // all but 421
	well         int // of answers, up to the newest good one
	worn         int // bad answers since the newest good one, perhaps not about their addresses
	mixed        int // such bad answers before the newest good one
	greyed       int // of answers, greylisted
	refused      int
	meant        int // of refused, not by a harvest guard
	errors       int // bad answers, greylisting aside
	taken        int // most answered RCPTs of one transaction

	slowRefusals, slowAnswers slowness // of refusals, and of other answers
	slowLeads                 slowness // of RSET and MAIL

	agreed bool // it ended after as many answers as an earlier session

	encrypted bool // as its answers show
	groups    bool // its host takes commands in groups
	perMail   int  // transactions that its host tolerates; 0: any number
}

// place returns the session's host and source.
func (s *session) place() place { return place{s.queue.route, s.host, s.path} }

// noteBatch notes a session's new batch.
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

// sent returns when the presumed cause of the session's fate began: when it got its batch or, without one, when it was
// opened.
func (s *session) sent() time.Time {
	if s.at.IsZero() {
		return s.opened
	}
	return s.at
}

// strangerHeldUp exceeds the greeting delay of most servers. One of several machines may be silent.
const strangerHeldUp = 15 * time.Second

// heldUpAt returns when the session counts as held up: later while it opens, and before the receiver's first answer.
func (s *session) heldUpAt(answered bool) time.Time {
	if s.ready && answered {
		return s.heldUp
	}
	return s.sent().Add(strangerHeldUp)
}

// stage returns the stage that the session has reached.
func (s *session) stage() smtp.Stage {
	if s.ready {
		return smtp.StageRcpt
	}
	return smtp.StageConnect
}

// situation describes the session to learn.
func (s *session) situation(now time.Time, a throttle.Limits, bySession bool) situation {
	return situation{void: s.void, agreed: s.agreed, sent: s.sent(), guard: s.mayWakeGuard(now),
		mayTLS: s.tls != smtp.TLSRequired && a.TLS != throttle.TLSOff, taken: s.taken, answers: s.answers,
		counts: bySession && s.meant > 0}
}
