package receiver

import (
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/smtp/throttle"
)

// agreeing is how many sessions in a row have to end after as many answers for that to be their
// length. Guess: two may be chance.
const agreeing = 3

// learnedFor is how long a limit that a receiver taught us holds before the
// allowance is believed again.
const learnedFor = state.LearnedFor

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
	agreed int // how many ends in a row came after as many answers

	longest   int       // answers of any session
	longestAt time.Time // when there was one
}

// sessionEnd is how far a session came before the receiver ended it.
type sessionEnd struct{ told, refused int }

// apply lowers an allowance to what was learned; it never raises it.
// Well says that sessions can be opened, so that more may be tried.
func (l *learned) apply(a throttle.Limits, well bool, now time.Time) throttle.Limits {
	a.Connections = l.connections.apply(a.Connections, well, now)
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

	// capacitySoon is how long a try that goes well is followed by the next, and capacityDear
	// from how long on what it brought is a penalty. Guesses.
	capacitySoon = 10 * time.Second
	capacityDear = 3 * time.Second
)

// capacity is how many sessions at once a receiver takes that does not say so. The zero
// capacity knows nothing.
type capacity struct {
	most  int           // 0: not known
	hold  time.Duration // until one more is tried, each time twice as long
	step  int           // by how many more are tried
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
	case n >= c.most-max(1, c.step): // more than it took was tried
		c.hold = min(2*c.hold, capacityHoldMost)
	}
	c.most, c.step, c.until = n, 0, now.Add(c.hold)
}

// cost makes the next try as rare as what it brought was long: a penalty is worth trying once
// in twenty times its length. It reports whether it was one.
func (c *capacity) cost(lasted time.Duration, now time.Time) bool {
	if c.most == 0 || lasted < capacityDear {
		return false
	}
	c.hold = min(max(c.hold, 20*lasted), capacityHoldMost)
	c.until = later(c.until, now.Add(c.hold))
	return true
}

// soon tries one more at a time, however long it was to wait.
func (c *capacity) soon(at time.Time) { c.until = at }

// forget knows nothing any more.
func (c *capacity) forget() { *c = capacity{} }

// apply gives n, or what the receiver takes if that is less. One more is tried each time
// that nothing was said for long enough.
func (c *capacity) apply(n int, well bool, now time.Time) int {
	if well && c.most > 0 && c.most < n && !now.Before(c.until) {
		c.step = max(1, 2*c.step)
		c.most, c.until = c.most+c.step, now.Add(min(c.hold, capacitySoon))
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
// chance, or the network; the third of three that agree in the number of answers
// teaches the length of a session, the second of two that agree in the refusals their number.
func (l *learned) sessionEnded(told, refused int, now time.Time) {
	end := sessionEnd{told: told, refused: refused}
	if end.told != l.cut.told || told < l.longest { // else others went further
		l.agreed = 0
	}
	l.agreed++
	switch {
	case l.agreed >= agreeing:
		l.perSession.tighten(told, now)
	case refused > 0 && end.refused == l.cut.refused:
		l.refused.tighten(refused, now)
	}
	l.cut = end
}
