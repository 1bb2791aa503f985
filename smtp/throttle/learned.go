package throttle

import "time"

// agreeing is how many sessions in a row must end after the same number of answers, or of refusals, to teach a limit: a
// session has few refusals, and two may agree by chance where single mailboxes end sessions.
const agreeing = 3

// LearnedFor is how long a learned limit holds before the configured one is tried again.
const LearnedFor = time.Hour

// LearnedLimit is a number that was learned and holds for a while. The zero value has none.
type LearnedLimit struct {
	Most  int
	Until time.Time
}

// Tighten lowers the limit to n, at least 1; it never raises one that holds.
func (l *LearnedLimit) Tighten(n int, now time.Time) {
	n = max(1, n)
	if now.Before(l.Until) {
		n = min(n, l.Most)
	}
	l.Most, l.Until = n, now.Add(LearnedFor)
}

// Holds reports whether there is a limit that still holds.
func (l *LearnedLimit) Holds(now time.Time) bool { return now.Before(l.Until) }

// Apply returns n, or the limit if that is lower.
func (l *LearnedLimit) Apply(n int, now time.Time) int {
	if now.Before(l.Until) {
		return min(n, l.Most)
	}
	return n
}

// Learned are the learned limits of a receiver.
type Learned struct {
	Connections    Capacity     // sessions at once
	PerSession     LearnedLimit // RCPTs
	Refused        LearnedLimit // refusals in a session
	PerTransaction LearnedLimit // RCPTs

	Transaction Together // RCPTs of one transaction, and of a group of commands
	Group       Together

	answers, refusals, slow ends
	notSlow                 time.Time // when an answer behind a slow one was fast
}

// ends tracks after how many of something a receiver ends sessions.
type ends struct {
	newest int       // count at which the last one was ended
	agreed int       // how many ended so in a row
	most   int       // the most that any session reached
	mostAt time.Time // when one did
	taught bool      // the limit is known from these alone
}

// went notes the count of a session.
func (e *ends) went(n int, now time.Time) {
	if n >= e.most || now.Sub(e.mostAt) > LearnedFor {
		e.most, e.mostAt = n, now
	}
}

// agrees reports whether the session before was ended after n too.
func (e *ends) agrees(n int) bool { return n > 0 && n == e.newest && n >= e.most }

// ended learns from a session that was ended after n. If several in a row end there and none went further, there is a
// limit. One that ends earlier shows that there is none.
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

// Apply lowers limits to the learned ones, and never raises any. well says that sessions can be opened, so that one
// more may be tried.
func (l *Learned) Apply(a Limits, well bool, now time.Time) Limits {
	a.Connections = l.Connections.Apply(a.Connections, well, now)
	a.RcptsPerConnection = l.PerSession.Apply(a.RcptsPerConnection, now)
	a.RefusedPerSession = l.Refused.Apply(a.RefusedPerSession, now)
	a.RcptsPerTransaction = l.Transaction.Now(l.PerTransaction.Apply(a.RcptsPerTransaction, now))
	a.PipeliningDepth = l.Group.Now(a.PipeliningDepth)
	return a
}

const (
	// CapacityHold is the first wait before we try more sessions than a receiver allowed.
	CapacityHold = time.Minute

	// CapacityHoldMost bounds that wait after repeated failures.
	CapacityHoldMost = time.Hour

	// capacitySoon is the wait after a try that went well, and capacityDear is how long a failed try must keep us out
	// to count as a penalty. Guesses.
	capacitySoon = 10 * time.Second
	capacityDear = 3 * time.Second
)

// Capacity learns how many sessions at once a receiver allows. The zero value has learned nothing.
type Capacity struct {
	Most  int           // 0: not known
	Hold  time.Duration // wait until one more is tried, doubled each time
	Step  int           // how many more are tried
	Until time.Time     // Most holds until then
}

// Tighten learns that a receiver allows n sessions, at least 1, and no more.
func (c *Capacity) Tighten(n int, now time.Time) {
	n = max(1, n)
	if c.Step > 0 { // this many went well, even if few of them are left
		n = max(n, c.Most-c.Step)
	}
	switch {
	case c.Most == 0:
		c.Hold = CapacityHold
	case n >= c.Most: // several sessions report it at once
		return
	case n >= c.Most-max(1, c.Step): // a try with more failed
		c.Hold = min(2*c.Hold, CapacityHoldMost)
	}
	c.Most, c.Step, c.Until = n, 0, now.Add(c.Hold)
}

// Cost delays the next try after a penalty by twenty times the length of the penalty.
func (c *Capacity) Cost(lasted time.Duration, now time.Time) {
	if c.Most == 0 || lasted < capacityDear {
		return
	}
	c.Hold = min(max(c.Hold, 20*lasted), CapacityHoldMost)
	if until := now.Add(c.Hold); until.After(c.Until) {
		c.Until = until
	}
}

// Apply returns n, or the learned number if that is less, plus one more for each wait without trouble.
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

// Went notes how many answers a session has had, and how many of them were refusals.
func (l *Learned) Went(answers, refused int, now time.Time) {
	l.answers.went(answers, now)
	l.refusals.went(refused, now)
}

// Agrees reports whether the session before ended after the same number of answers.
func (l *Learned) Agrees(answers int) bool { return l.answers.agrees(answers) }

// SessionEnded learns from the answers and refusals of a session that the receiver ended, by 421 or by closing it. A
// single end may be chance or a network fault.
func (l *Learned) SessionEnded(answers, refused int, now time.Time) {
	if answers == 0 { // if one ends at once, length isn't the reason
		l.answers.newest, l.answers.agreed = 0, 0
		return
	}
	l.answers.ended(answers, &l.PerSession, now)
	if l.answers.agreed < agreeing {
		l.refusals.ended(refused, &l.Refused, now)
	}
}

// SessionFull learns from a reply that a session has had too many RCPTs, and reports whether that can be true: not if
// other sessions had more answers. Once, it may have another cause; twice after the same number of answers, it is the
// length.
func (l *Learned) SessionFull(answers int, now time.Time) bool {
	may := answers > 0 && answers+1 >= l.answers.most // this reply counts too
	if may && answers == l.answers.newest && answers >= agreeing {
		l.PerSession.Tighten(answers, now)
	}
	l.answers.newest, l.answers.agreed = answers, 0
	return may
}

// SessionWorn learns from a session whose answers became bad after a number of good ones.
func (l *Learned) SessionWorn(n int, now time.Time) { l.answers.ended(n, &l.PerSession, now) }

// notSlowFor is how long answers that are slow by themselves keep slow ones from ending a session.
const notSlowFor = 5 * time.Minute

// IsSlow reports whether a number of slow answers in a row, the first after some others, shows that a session is too
// long.
func (l *Learned) IsSlow(inRow, answers int, now time.Time) bool {
	return now.Sub(l.notSlow) > notSlowFor && (inRow >= 2 || l.slow.agreed+1 >= agreeing && l.slow.agrees(answers))
}

// NotSlow learns that an answer after a slow one was fast: their number isn't the reason.
func (l *Learned) NotSlow(now time.Time) {
	if l.slow.taught {
		l.PerSession = LearnedLimit{}
	}
	l.slow, l.notSlow = ends{}, now
}

// SessionSlow learns from a session whose answers became slow after some others; one or two may be chance.
func (l *Learned) SessionSlow(answers int, now time.Time) {
	if answers >= agreeing {
		l.slow.ended(answers, &l.PerSession, now)
	}
}

// Raise drops a learned limit that is below the earlier allowed number, if a higher number is allowed now.
func (l *LearnedLimit) Raise(old, allowed int) {
	if l.Most < old && allowed > old {
		*l = LearnedLimit{}
	}
}
