package receiver

import (
	"time"

	"rollcall/smtp/throttle"
)

// learnedFor is how long a limit that a receiver taught us holds before the
// allowance is believed again. Guess: long enough for a run, short enough to
// notice that a receiver changed its mind.
const learnedFor = time.Hour

// limit is a number that was learned, for a while. The zero limit knows nothing.
type limit struct {
	most  int
	until time.Time
}

// tighten lowers the limit to n, at least 1; it never raises one that holds.
func (l *limit) tighten(n int, now time.Time) {
	n = max(1, n)
	if now.Before(l.until) {
		n = min(n, l.most)
	}
	l.most, l.until = n, now.Add(learnedFor)
}

// apply gives n, or the limit if it is lower.
func (l *limit) apply(n int, now time.Time) int {
	if now.Before(l.until) {
		return min(n, l.most)
	}
	return n
}

// learned is what a receiver taught us about its own limits.
type learned struct {
	connections    capacity // sessions at once
	perSession     limit    // RCPTs
	refused        limit    // refusals in a session
	perTransaction limit    // RCPTs

	cut    sessionEnd
	hasty  sessionEnd // the same, of ends by a word about haste
	agreed int        // how many of those in a row came after as many answers

	longest   int       // answers of any session
	longestAt time.Time // when there was one
}

// sessionEnd is how far a session came before the receiver ended it.
type sessionEnd struct{ told, refused int }

// apply lowers an allowance to what was learned; it never raises it.
func (l *learned) apply(a throttle.Limits, now time.Time) throttle.Limits {
	a.Connections = l.connections.apply(a.Connections, now)
	a.RcptsPerConnection = l.perSession.apply(a.RcptsPerConnection, now)
	a.RefusedPerSession = l.refused.apply(a.RefusedPerSession, now)
	a.RcptsPerTransaction = l.perTransaction.apply(a.RcptsPerTransaction, now)
	return a
}

const (
	// capacityHold is how long it takes at first until one more session is tried than a
	// receiver took; capacityHoldMost bounds it, when that was too many again and again.
	capacityHold     = time.Minute
	capacityHoldMost = time.Hour
)

// capacity is how many sessions at once a receiver takes that does not say so. The zero
// capacity knows nothing.
type capacity struct {
	most  int           // 0: not known
	hold  time.Duration // until one more is tried, each time twice as long
	until time.Time     // most holds
}

// tighten learns that a receiver takes n sessions, at least 1, and no more.
func (c *capacity) tighten(n int, now time.Time) {
	n = max(1, n)
	switch {
	case c.most == 0:
		c.hold = capacityHold
	case n >= c.most: // said by several at once
		return
	case n == c.most-1: // one more than it took was tried
		c.hold = min(2*c.hold, capacityHoldMost)
	}
	c.most, c.until = n, now.Add(c.hold)
}

// apply gives n, or what the receiver takes if that is less. One more is tried each time
// that nothing was said for long enough.
func (c *capacity) apply(n int, now time.Time) int {
	if c.most > 0 && c.most < n && !now.Before(c.until) {
		c.most, c.until = c.most+1, now.Add(c.hold)
	}
	if c.most == 0 || c.most >= n {
		return n
	}
	return c.most
}

// went notes how many answers a session has had.
func (l *learned) went(told int, now time.Time) {
	if told >= l.longest || now.Sub(l.longestAt) > learnedFor {
		l.longest, l.longestAt = told, now
	}
}

// sessionEnded learns from a session that the receiver ended by 421 or by
// closing it after told answers, refused of them refusals. One such end may be
// chance, or the network; the second of two that agree in the number of answers
// teaches the length of a session, of two that agree in the refusals their number.
func (l *learned) sessionEnded(told, refused int, now time.Time) {
	end := sessionEnd{told: told, refused: refused}
	switch {
	case end.told == l.cut.told && told >= l.longest: // else others went further
		l.perSession.tighten(told, now)
	case refused > 0 && end.refused == l.cut.refused:
		l.refused.tighten(refused, now)
	}
	l.cut = end
}
