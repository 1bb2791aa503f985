package smtplab

import (
	"strconv"
	"strings"
	"time"
)

// Durations of the guards in hours of Options.HourLasts. Sources: the code of chasquid, Postfix, Exim and mox; the
// manuals of Cisco AsyncOS, Forcepoint 8.5, Symantec Messaging Gateway, NoSpamToday and IONOS.
const (
	shareBlockHours = 3 // Forcepoint's default
	blockHours      = 1 // Symantec's penalty box, IONOS, Yahoo: none is published; guess
)

// guardPause is the delay of GuardSlow, Postfix's default.
const guardPause = time.Second

var guardNames = [...]string{
	"none", "errors", "slow", "half", "harvest", "silent", "share", "policy", "window", "row", "transactions",
	"excess",
}

// String returns the name of a guard, as in Sheet.Tripped.
func (g Guard) String() string {
	if int(g) < len(guardNames) {
		return guardNames[g]
	}
	return "guard " + strconv.Itoa(int(g))
}

// trip records that the guard acted.
func (s *session) trip() {
	s.host.tallies.count(func(t *Tally) {
		t.LimitsHit++
		t.Tripped++
	})
	s.lab.manners.trip(s.p.Guard)
}

// guardGreeting reports whether the guard blocks a client from the start and drops its connection silently.
func (s *session) guardGreeting(now time.Time) bool {
	if s.p.Guard != GuardShare || !s.host.receiver.memory.blocked(s.client, now) {
		return false
	}
	s.trip()
	return true
}

// guardHello records the hello name: under GuardPolicy a client must keep one name.
func (s *session) guardHello(name string, now time.Time) {
	if s.p.Guard == GuardPolicy && s.host.receiver.memory.otherHello(s.client, strings.ToLower(name), now) {
		s.trip()
	}
}

// guardMail reports whether the guard refuses a transaction.
func (s *session) guardMail() bool {
	if s.p.Guard != GuardTx || s.tx.goodOnes > 0 || s.tx.badOnes <= s.p.GuardAt {
		return false
	}
	s.trip()
	return true
}

// guardBefore reports whether the guard answers a RCPT in place of the mailbox.
func (s *session) guardBefore(now time.Time) (reply *phrase, end bool) {
	memory := &s.host.receiver.memory
	words := s.p.words
	switch s.p.Guard {
	case GuardHalf:
		if s.tx.rcpts > s.p.GuardAt && 2*s.tx.good < s.tx.rcpts-1 {
			reply = &words.guard
		}
	case GuardHarvest:
		if refused, _ := memory.share(s.client, now); refused >= s.p.GuardAt {
			reply, end = &words.guard, true
		}
	case GuardSilent:
		if refused, _ := memory.share(s.client, now); refused >= s.p.GuardAt {
			reply = &words.mailboxes[Exists]
		}
	case GuardPolicy, GuardWindow:
		if memory.blocked(s.client, now) {
			reply = &words.guard
		}
	case GuardExcess:
		if memory.blocked(s.client, now) {
			reply, end = &words.guard, words.guard.code == 421
			if s.number != s.host.receiver.memory.trippedIn(s.client) {
				reply, end = &words.excess, false
			}
		}
	}
	if reply != nil {
		s.guarded = true
		s.trip()
	}
	return reply, end
}

// guardAfter counts a refusal and may replace it.
func (s *session) guardAfter(reply *phrase, now time.Time) (instead *phrase, end bool) {
	memory := &s.host.receiver.memory
	words := s.p.words
	switch s.p.Guard {
	case GuardErrors:
		if s.errors >= s.p.GuardAt {
			reply, end = &words.guard, true
		}
	case GuardSlow:
		if s.errors >= 2*s.p.GuardAt {
			reply, end = &words.guard, true
		} else if s.errors > s.p.GuardAt {
			s.trip()
			s.lab.wait(guardPause)
			return reply, false
		}
	case GuardRow:
		if s.row >= s.p.GuardAt {
			reply, end = &words.guard, true
		}
	case GuardShare:
		if s.rcpts > s.p.GuardAt && 100*s.refused >= s.p.GuardPercent*s.rcpts {
			memory.block(s.client, now.Add(shareBlockHours*memory.hour), s.number)
			reply, end = &phrase{}, true
		}
	case GuardPolicy, GuardExcess:
		if refused, _ := memory.share(s.client, now); refused > s.p.GuardAt {
			memory.block(s.client, now.Add(blockHours*memory.hour), s.number)
			reply, end = &words.guard, words.guard.code == 421
		}
	case GuardWindow:
		refused, asked := memory.share(s.client, now)
		if refused > s.p.GuardAt && 100*refused > s.p.GuardPercent*asked {
			memory.block(s.client, now.Add(blockHours*memory.hour), s.number)
			reply, end = &words.guard, false
		}
	default:
		return reply, false
	}
	if end || reply == &words.guard {
		s.trip()
	}
	return reply, end
}

// noteAnswer counts a reply for the guards that look beyond one session.
func (m *memory) noteAnswer(client string, refused bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clientOf(client)
	c.asked.add(now)
	if refused {
		c.refused.add(now)
	}
}

// share returns a client's refused RCPTs and all its RCPTs within the hour.
func (m *memory) share(client string, now time.Time) (refused, asked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clientOf(client)
	return c.refused.count(now), c.asked.count(now)
}

// block blocks a client until a time; session is the one that tripped the guard.
func (m *memory) block(client string, until time.Time, session int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clientOf(client)
	c.blocked, c.tripped = until, session
}

func (m *memory) blocked(client string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.clientOf(client).blocked)
}

// trippedIn returns the session in which a client was last blocked.
func (m *memory) trippedIn(client string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clientOf(client).tripped
}

// otherHello records a hello name. It blocks the client and returns true when the client used another name within
// the hour.
func (m *memory) otherHello(client, name string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clientOf(client)
	if c.hello == "" || now.Sub(c.helloAt) > m.hour {
		c.hello = name
	}
	c.helloAt = now
	if c.hello == name {
		return false
	}
	c.blocked = now.Add(blockHours * m.hour)
	return true
}

// isFirst reports whether a client was the first to connect.
func (m *memory) isFirst(client string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstOne == client
}

// blocksUs reports whether the receiver refuses this client by its address.
func (s *session) blocksUs() bool {
	switch s.p.Blocks {
	case BlockFirst:
		return s.host.receiver.memory.isFirst(s.client)
	case BlockEven:
		return s.client != "" && strings.IndexByte("02468", s.client[len(s.client)-1]) >= 0
	}
	return false
}
