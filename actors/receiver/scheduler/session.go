package scheduler

import (
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// session is what the scheduler knows of one SMTP session.
type session struct {
	id      int
	queue   *hostQueue
	name    *flow // in whose name it was opened
	dialled time.Time
	beside  int // sessions that were open with its host when it was dialled
	host    *candidate
	path    *egressPath
	tls     smtp.TLSMode // as it was opened
	slot    *registry.ConnSlot
	ready   bool // open, as far as we know
	closing bool
	doomed  bool      // it ends when it has nothing to do, whatever waits
	halted  bool      // it was told to give back what it has not asked
	given   []*Probe  // that it is asking
	at      time.Time // when they were given
	day     int64     // of their source, which counts them
	rcpts   int       // sent
	told    int       // answered with anything but 421
	greyed  int       // of these, put off as by greylisting
	refused int
	errors  int       // answers that were no acceptance, but for greylisting
	slow    bool      // a refusal took far longer than the others
	agreed  bool      // the receiver ended it after as many answers as the one before
	void    time.Time // what was answered later counts for nothing; zero: all counts
	opened  time.Time // when it was dialled, then when it was ready
	idle    time.Time // since when it has nothing to do

	encrypted bool // as far as its answers tell

	groups       bool // its host takes commands in groups
	grouped      bool // it was given something in groups
	transactions int  // begun
	perMail      int  // transactions that its host bears; 0: any number
	taken        int  // RCPTs of one of its transactions that were answered, the most
}

// place is where it asks.
func (s *session) place() place { return place{s.queue.route, s.host, s.path} }

// give notes what a session is asking from now on.
func (s *session) give(probes []*Probe, now time.Time) {
	s.given, s.at = probes, now
	s.path.asking++
}

// takeBack notes that it asks nothing any more.
func (s *session) takeBack() {
	if len(s.given) > 0 {
		s.given = nil
		s.path.asking--
	}
}

// transactionsLeft is how many more transactions a session may begin.
func (s *session) transactionsLeft() int {
	if s.perMail == 0 {
		return throttle.CountMax
	}
	return s.perMail - s.transactions
}

// sent is since when it may have sent what it is blamed for: when it was given something,
// or, when it never was, since it was opened.
func (s *session) sent() time.Time {
	if s.at.IsZero() {
		return s.opened
	}
	return s.at
}

// stage is how far the session has come.
func (s *session) stage() smtp.Stage {
	if s.ready {
		return smtp.StageRcpt
	}
	return smtp.StageConnect
}

// situation is what the facts of its report depend on.
func (s *session) situation(now time.Time, a throttle.Limits) situation {
	return situation{void: s.void, agreed: s.agreed, sent: s.sent(), guard: s.mayWakeGuard(now),
		mayTLS: s.tls != smtp.TLSRequired && a.TLS != throttle.TLSOff, taken: s.taken, told: s.told}
}
