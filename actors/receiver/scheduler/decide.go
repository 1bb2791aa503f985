package scheduler

import (
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// What to ask and open is decided here, from values alone: View describes the whole receiver, supply and room one
// session. ask.go and open_session.go carry the decisions out.

const (
	// workMax and workFor bound the probes given to a session at a time, so that
	// answers come back steadily and the last ones are shared out.
	workMax = 64
	workFor = 250 * time.Millisecond

	// heldShare: the unasked addresses of all sessions are at most 1/heldShare of the RCPT rate. They count as asked,
	// so they cost at most a tenth of the rate.
	heldShare = 10

	// probesPerSession is how many queued probes justify one more session: opening costs about as many round trips as
	// four probes, a fifth of that session's work.
	probesPerSession = 16

	// worthOpening is how much work for one session justifies another, at a round trip of turnShort; slower round trips
	// need proportionally less: 100 ms at 20 ms. With faster ones the processor is the limit, and each session costs
	// some of it, so worthShort applies: with more sessions than it could serve, a node used twice the memory for a
	// million addresses.
	worthOpening = time.Second
	worthShort   = 10 * time.Second
	turnShort    = 2 * time.Millisecond

	// turnsPerProbe is how many round trips a probe needs at most: RSET, MAIL, RCPT.
	turnsPerProbe = 3
)

// View holds the values that one plan decides from.
type View struct {
	now     time.Time
	limits  throttle.Limits // what may be asked here now
	lead    time.Duration   // from giving addresses to sending them
	turn    time.Duration   // the fastest reply; 0: none was timed
	expect  time.Duration   // the next reply; before the first, a third of opening a session
	opening time.Duration   // the fastest opening of a session
	turns   float64         // round trips of an address
	busy    bool            // this node is overloaded

	held time.Duration // average time of an answer where that is longer than workFor; else 0
}

// supply holds the limits of what a free session is given.
type supply struct {
	budget  int          // addresses that may be refused
	rate    int          // that the receiver's rate allows
	pace    int          // that the source's rate allows
	next    [3]time.Time // when there are more, if none; zero: once a probe is answered
	alone   bool         // its source asks one address at a time
	asking  bool         // and is asking one
	session int          // addresses that the session may still ask
	queued  int          // waiting addresses
	left    int          // the same, with those at their clients
}

// Ask is how many addresses a session is given; if none, why and until when.
type Ask struct {
	n     int
	cause wire.Cause
	until time.Time // zero: until one is answered
}

// decideAsk decides how many addresses a session is given now.
func decideAsk(v *View, c *supply) Ask {
	switch {
	case c.budget <= 0:
		return Ask{cause: wire.Cause_BUDGET, until: c.next[0]}
	case c.rate == 0:
		return Ask{cause: wire.Cause_ALLOWANCE, until: v.givenBefore(c.next[1])}
	case c.alone && c.asking:
		return Ask{}
	case c.pace == 0:
		return Ask{cause: wire.Cause_ALLOWANCE, until: v.givenBefore(c.next[2])}
	}
	held := max(1, v.limits.RcptRate.Events/(heldShare*max(1, v.limits.Connections)))
	n := v.portionOf(min(c.rate, c.pace, c.budget, held, c.session, workMax), c)
	if c.alone {
		n = min(n, 1)
	}
	return Ask{n: n}
}

// givenBefore returns when probes must be given to be sent at a time; zero stays zero.
func (v *View) givenBefore(sent time.Time) time.Time {
	if sent.IsZero() {
		return sent
	}
	return sent.Add(-v.lead)
}

// portionOf returns how many of n probes a session gets: at most what it asks in a short while and an equal share with
// the other sessions of its queue, in whole transactions if more than one.
func (v *View) portionOf(n int, c *supply) int {
	if v.held > 0 {
		return min(n, 1)
	}
	soon := max(1, int(float64(workFor)/(v.turns*float64(max(1, v.expect)))))
	n = min(n, soon, 1+c.queued/min(v.sessionsWorth(c.left), max(1, v.limits.Connections)))
	if whole := v.limits.RcptsPerTransaction; n > whole {
		n -= n % whole
	}
	return n
}

// sessionsWorth returns how many sessions a number of addresses justifies: one, and more only if answers show that one
// alone would take long and the RCPT rate can feed more.
func (v *View) sessionsWorth(left int) int {
	if v.busy {
		return 1
	}
	most := left / min(probesPerSession, v.limits.RcptsPerConnection)
	if v.held > 0 {
		fed := v.limits.RcptRate.PerSecond() * v.held.Seconds()
		return 1 + min(most, int(time.Duration(left)*v.held/worthShort), int(2*fed))
	}
	alone := time.Duration(float64(left) * v.turns * float64(v.turn))
	alone += time.Duration(left/v.limits.RcptsPerConnection) * 2 * v.opening // and a round trip for QUIT
	fed := v.limits.RcptRate.PerSecond() * turnsPerProbe * v.turn.Seconds()
	worth := worthShort
	if v.turn >= turnShort {
		worth = time.Duration(float64(worthOpening) * float64(turnShort) / float64(v.turn))
	}
	return 1 + min(most, int(alone/worth), 1+int(2*fed))
}

// room holds the limits of one more session for a queue.
type room struct {
	dials    int       // that the connection rate allows
	dialsAt  time.Time // when there are more, if none
	opens    bool      // the learned opening rate allows it
	opensAt  time.Time
	wayward  bool // as many are being opened as ever succeeded at once
	alone    bool // its source asks one address at a time, and has a session
	open     int
	unserved bool // the queue has no session
}

// Open is whether one more session is opened for a queue; if not, until when.
type Open struct {
	may     bool
	until   time.Time // zero: until one has ended
	pressed bool      // an open session has to make room
}

// decideOpen decides whether one more session is opened for a queue now.
func decideOpen(v *View, r *room) Open {
	switch {
	case r.dials == 0:
		return Open{until: r.dialsAt}
	case !r.opens, r.wayward, r.alone:
		return Open{until: r.opensAt}
	case r.open >= v.limits.Connections:
		return Open{pressed: r.unserved}
	}
	return Open{may: true}
}
