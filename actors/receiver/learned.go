package receiver

import (
	"time"

	"rollcall/smtp/shaping"
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
	connections    limit // sessions at once
	perSession     limit // RCPTs
	refused        limit // refusals in a session
	perTransaction limit // RCPTs
	perSecond      limit // RCPTs

	slowed time.Time // when perSecond was learned
	cut    sessionEnd
}

// sessionEnd is how far a session came before the receiver ended it.
type sessionEnd struct{ told, refused int }

// apply lowers an allowance to what was learned; it never raises it.
func (l *learned) apply(a shaping.Allowance, now time.Time) shaping.Allowance {
	a.Connections = l.connections.apply(a.Connections, now)
	a.RcptsPerConnection = l.perSession.apply(a.RcptsPerConnection, now)
	a.RefusedPerSession = l.refused.apply(a.RefusedPerSession, now)
	a.RcptsPerTransaction = l.perTransaction.apply(a.RcptsPerTransaction, now)
	if now.Before(l.perSecond.until) {
		if r := (shaping.Rate{Events: l.perSecond.most, Per: time.Second}); slower(r, a.RcptRate) {
			a.RcptRate = r
		}
	}
	return a
}

func slower(a, b shaping.Rate) bool {
	return float64(a.Events)*b.Per.Seconds() < float64(b.Events)*a.Per.Seconds()
}

// tooFast learns that n RCPTs in a second were too many: half of them from now
// on. A complaint about a RCPT that was sent before the last lesson is about the
// same haste and teaches nothing.
func (l *learned) tooFast(n int, sent, now time.Time) {
	if sent.Before(l.slowed) {
		return
	}
	l.slowed = now
	l.perSecond.tighten(l.perSecond.apply(n, now)/2, now)
}

// sessionEnded learns from a session that the receiver ended by 421 or by
// closing it after told answers, refused of them refusals. One such end may be
// chance, or the network; the second of two that agree in the number of answers
// teaches the length of a session, of two that agree in the refusals their number.
func (l *learned) sessionEnded(told, refused int, now time.Time) {
	end := sessionEnd{told: told, refused: refused}
	switch {
	case end.told == l.cut.told:
		l.perSession.tighten(told, now)
	case refused > 0 && end.refused == l.cut.refused:
		l.refused.tighten(refused, now)
	}
	l.cut = end
}
