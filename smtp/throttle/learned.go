package throttle

import "time"

// agreeing is how many sessions in a row must end after the same number of answers, or of refusals, to show a limit.
// Two sessions may agree by chance: a session has few refusals, and single mailboxes may end it.
const agreeing = 3

// LearnedFor is how long a learned limit is kept. After LearnedFor the configured limit is tried again.
const LearnedFor = time.Hour

// LearnedLimit is a limit that was learned and ends after some time. The zero value is no limit.
type LearnedLimit struct {
	Most  int
	Until time.Time
}

// Tighten lowers the limit to n, at least 1. Tighten never raises a limit in force.
func (l *LearnedLimit) Tighten(n int, now time.Time) {
	n = max(1, n)
	if now.Before(l.Until) {
		n = min(n, l.Most)
	}
	l.Most, l.Until = n, now.Add(LearnedFor)
}

// Holds reports whether there is a limit that hasn't expired.
func (l *LearnedLimit) Holds(now time.Time) bool { return now.Before(l.Until) }

// Apply returns n, or the limit if it is lower.
func (l *LearnedLimit) Apply(n int, now time.Time) int {
	if now.Before(l.Until) {
		return min(n, l.Most)
	}
	return n
}

// Learned holds the learned limits of a receiver.
type Learned struct {
	Connections    Capacity     // open sessions
	PerSession     LearnedLimit // RCPTs in a session
	Refused        LearnedLimit // refusals in a session
	PerTransaction LearnedLimit // RCPTs in a transaction

	Transaction Together // RCPTs that may go together in a transaction, and in a group of commands
	Group       Together

	answers, refusals, slow ends
	notSlow                 time.Time // when a fast answer last followed a slow one
}

// ends learns after how many answers, or refusals, the receiver ends sessions.
type ends struct {
	newest int       // the count at which the last session was ended
	agreed int       // sessions in a row ended at that count
	most   int       // the highest count that a session reached
	mostAt time.Time // when a session reached most
	taught bool      // session ends of this kind alone have shown the limit
}

// went notes how far a session came.
func (e *ends) went(n int, now time.Time) {
	if n >= e.most || now.Sub(e.mostAt) > LearnedFor {
		e.most, e.mostAt = n, now
	}
}

// agrees reports whether the session before was ended at the same count.
func (e *ends) agrees(n int) bool { return n > 0 && n == e.newest && n >= e.most }

// ended learns from a session that the receiver ended at count n. Several sessions in a row that end at n show a limit,
// if no session went further. A session that ends earlier shows that n is no limit.
func (e *ends) ended(n int, l *LearnedLimit, now time.Time) {
	if !e.agrees(n) {
		e.agreed = 0
	}
	e.agreed++
	switch e.newest = n; {
	case e.agreed >= agreeing && n > 0:
		l.Tighten(n, now)
		e.taught = true
	case e.taught && n < l.Most:
		*l, e.taught = LearnedLimit{}, false
	}
}

// Apply lowers limits to the learned ones. Apply never raises a limit. well: sessions can be opened, so one more may be
// tried.
func (l *Learned) Apply(a Limits, well bool, now time.Time) Limits {
	a.Connections = l.Connections.Apply(a.Connections, well, now)
	a.RcptsPerConnection = l.PerSession.Apply(a.RcptsPerConnection, now)
	a.RefusedPerSession = l.Refused.Apply(a.RefusedPerSession, now)
	a.RcptsPerTransaction = l.Transaction.Now(l.PerTransaction.Apply(a.RcptsPerTransaction, now))
	a.PipeliningDepth = l.Group.Now(a.PipeliningDepth)
	return a
}

const (
	// CapacityHold is the first wait before we try more sessions than the receiver allowed.
	CapacityHold = time.Minute

	// CapacityHoldMost bounds the wait before we try more sessions; the wait grows after failures.
	CapacityHoldMost = time.Hour

	// capacitySoon is the wait after a try that went well. A failed try that keeps us out for capacityDear or longer
	// counts as a penalty. Guesses.
	capacitySoon = 10 * time.Second
	capacityDear = 3 * time.Second
)

// Capacity learns how many open sessions a receiver allows. The zero value has learned nothing.
type Capacity struct {
	Most  int           // 0: not known
	Hold  time.Duration // wait until one more is tried; doubles after each failure
	Step  int           // how many more than Most are tried
	Until time.Time     // Most is in force until then
}

// Tighten learns that a receiver allows n open sessions and no more. Tighten takes n below 1 as 1.
func (c *Capacity) Tighten(n int, now time.Time) {
	n = max(1, n)
	if c.Step > 0 { // n sessions went well before, even if few are open now
		n = max(n, c.Most-c.Step)
	}
	switch {
	case c.Most == 0:
		c.Hold = CapacityHold
	case n >= c.Most: // several sessions report the same limit
		return
	case c.Step > 0 && n >= c.Most-c.Step: // a try with more sessions failed
		c.Hold = min(2*c.Hold, CapacityHoldMost)
	}
	c.Most, c.Step, c.Until = n, 0, now.Add(c.Hold)
}

// Cost notes that a failed try led to a penalty. The next try waits for twenty times the length of the penalty.
func (c *Capacity) Cost(lasted time.Duration, now time.Time) {
	if c.Most == 0 || lasted < capacityDear {
		return
	}
	c.Hold = min(max(c.Hold, 20*lasted), CapacityHoldMost)
	if until := now.Add(c.Hold); until.After(c.Until) {
		c.Until = until
	}
}

// Apply returns n, or the learned number if it is lower. After each wait without trouble, Apply raises the learned
// number first: by one, and then by twice as many each time.
func (c *Capacity) Apply(n int, well bool, now time.Time) int {
	if well && c.Most > 0 && c.Most < n && !now.Before(c.Until) {
		c.Step = max(1, 2*c.Step)
		c.Most, c.Until = c.Most+c.Step, now.Add(min(c.Hold, capacitySoon))
	}
	if c.Most == 0 || c.Most >= n {
		return n
	}
	return c.Most
}

// Went notes how many answers a session has had, and how many of these were refusals.
func (l *Learned) Went(answers, refused int, now time.Time) {
	l.answers.went(answers, now)
	l.refusals.went(refused, now)
}

// Agrees reports whether the session before ended after the same number of answers.
func (l *Learned) Agrees(answers int) bool { return l.answers.agrees(answers) }

// SessionEnded learns from a session that the receiver ended, with 421 or by closing the connection. A single session
// proves nothing: it may be chance or a network fault.
func (l *Learned) SessionEnded(answers, refused int, now time.Time) {
	if answers == 0 { // a session that ends at once wasn't too long
		l.answers.newest, l.answers.agreed = 0, 0
		return
	}
	l.answers.ended(answers, &l.PerSession, now)
	if l.answers.agreed < agreeing {
		l.refusals.ended(refused, &l.Refused, now)
	}
}

// SessionFull learns from a reply that says "too many recipients in this session". SessionFull reports whether we
// believe the reply. SessionFull doesn't believe a reply if other sessions had more answers. A single reply may have
// another cause; two replies at the same count show the limit.
func (l *Learned) SessionFull(answers int, now time.Time) bool {
	may := answers > 0 && answers+1 >= l.answers.most // the reply itself counts too
	if may && answers == l.answers.newest && answers >= agreeing {
		l.PerSession.Tighten(answers, now)
	}
	l.answers.newest, l.answers.agreed = answers, 0
	return may
}

// SessionWorn learns from a session that got some good answers and then only bad ones.
func (l *Learned) SessionWorn(n int, now time.Time) { l.answers.ended(n, &l.PerSession, now) }

// notSlowFor: a fast answer after a slow one shows that single answers may be slow. After a fast answer like that, slow
// answers don't end a session for this long.
const notSlowFor = 5 * time.Minute

// IsSlow reports whether a session is too long because its newest answers are slow. row is how many slow answers came
// in a row, the first of them after some other answers.
func (l *Learned) IsSlow(inRow, answers int, now time.Time) bool {
	return now.Sub(l.notSlow) > notSlowFor && (inRow >= 2 || l.slow.agreed+1 >= agreeing && l.slow.agrees(answers))
}

// NotSlow notes that a fast answer followed a slow one: the number of answers isn't the reason.
func (l *Learned) NotSlow(now time.Time) {
	if l.slow.taught {
		l.PerSession = LearnedLimit{}
	}
	l.slow, l.notSlow = ends{}, now
}

// SessionSlow learns from a session whose answers became slow after some others. One or two slow sessions may be
// chance.
func (l *Learned) SessionSlow(answers int, now time.Time) {
	if answers >= agreeing {
		l.slow.ended(answers, &l.PerSession, now)
	}
}

// Raise drops a learned limit if the allowed number has risen above old. A limit that isn't below old stays.
func (l *LearnedLimit) Raise(old, allowed int) {
	if l.Most < old && allowed > old {
		*l = LearnedLimit{}
	}
}
