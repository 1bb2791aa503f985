package throttle

import "time"

// agreeing is how many sessions in a row have to end after as many answers, or refusals, for that to be what they bear: of the few
// refusals of a session two agree by chance where single mailboxes end sessions.
const agreeing = 3

// LearnedFor is how long a limit that a receiver taught us holds before the
// allowance is believed again.
const LearnedFor = time.Hour

// LearnedLimit is a number that was learned, for a while. The zero limit knows nothing.
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

// Holds reports whether something was learned that still holds.
func (l *LearnedLimit) Holds(now time.Time) bool { return now.Before(l.Until) }

// Apply gives n, or the limit if it is lower.
func (l *LearnedLimit) Apply(n int, now time.Time) int {
	if now.Before(l.Until) {
		return min(n, l.Most)
	}
	return n
}

// Learned is what a receiver taught us about its own limits.
type Learned struct {
	Connections    Capacity     // sessions at once
	PerSession     LearnedLimit // RCPTs
	Refused        LearnedLimit // refusals in a session
	PerTransaction LearnedLimit // RCPTs

	Transaction Together // RCPTs that go together in one, and in a group of commands
	Group       Together

	answers, refusals ends
}

// ends is after how many of something a receiver ends sessions.
type ends struct {
	newest int       // that one was ended after
	agreed int       // how many in a row
	most   int       // that any session went to
	mostAt time.Time // when one did
	taught bool      // a limit stands by these alone
}

// went notes how many a session has had.
func (e *ends) went(n int, now time.Time) {
	if n >= e.most || now.Sub(e.mostAt) > LearnedFor {
		e.most, e.mostAt = n, now
	}
}

// agrees reports whether a session that is ended after n is so like the one before.
func (e *ends) agrees(n int) bool { return n > 0 && n == e.newest && n >= e.most }

// ended learns from a session that was ended after n: of several in a row where none went further the limit, and of one that
// came less far that there is none.
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

// Apply lowers an allowance to what was learned; it never raises it.
// Well says that sessions can be opened, so that more may be tried.
func (l *Learned) Apply(a Limits, well bool, now time.Time) Limits {
	a.Connections = l.Connections.Apply(a.Connections, well, now)
	a.RcptsPerConnection = l.PerSession.Apply(a.RcptsPerConnection, now)
	a.RefusedPerSession = l.Refused.Apply(a.RefusedPerSession, now)
	a.RcptsPerTransaction = l.Transaction.Now(l.PerTransaction.Apply(a.RcptsPerTransaction, now))
	a.PipeliningDepth = l.Group.Now(a.PipeliningDepth)
	return a
}

const (
	// CapacityHold is how long it takes at first until one more session is tried than a
	// receiver took.
	CapacityHold = time.Minute

	// CapacityHoldMost bounds that, when one more was too many again and again.
	CapacityHoldMost = time.Hour

	// capacitySoon is how long a try that goes well is followed by the next, and capacityDear
	// from how long on what it brought is a penalty. Guesses.
	capacitySoon = 10 * time.Second
	capacityDear = 3 * time.Second
)

// Capacity is how many sessions at once a receiver takes that does not say so. The zero
// capacity knows nothing.
type Capacity struct {
	Most  int           // 0: not known
	Hold  time.Duration // until one more is tried, each time twice as long
	Step  int           // by how many more are tried
	Until time.Time     // most holds
}

// Tighten learns that a receiver takes n sessions, at least 1, and no more.
func (c *Capacity) Tighten(n int, now time.Time) {
	n = max(1, n)
	switch {
	case c.Most == 0:
		c.Hold = CapacityHold
	case n >= c.Most: // said by several at once
		return
	case n >= c.Most-max(1, c.Step): // more than it took was tried
		c.Hold = min(2*c.Hold, CapacityHoldMost)
	}
	c.Most, c.Step, c.Until = n, 0, now.Add(c.Hold)
}

// Cost makes the next try as rare as what it brought was long: a penalty is worth trying once
// in twenty times its length.
func (c *Capacity) Cost(lasted time.Duration, now time.Time) {
	if c.Most == 0 || lasted < capacityDear {
		return
	}
	c.Hold = min(max(c.Hold, 20*lasted), CapacityHoldMost)
	if until := now.Add(c.Hold); until.After(c.Until) {
		c.Until = until
	}
}

// Apply gives n, or what the receiver takes if that is less. One more is tried each time
// that nothing was said for long enough.
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
func (l *Learned) Went(told, refused int, now time.Time) {
	l.answers.went(told, now)
	l.refusals.went(refused, now)
}

// Agrees reports whether a session that the receiver ends after told answers is as long as the one before.
func (l *Learned) Agrees(told int) bool { return l.answers.agrees(told) }

// SessionEnded learns from a session that the receiver ended by 421 or by closing it after told answers, refused of them refusals.
// One such end may be chance, or the network.
func (l *Learned) SessionEnded(told, refused int, now time.Time) {
	if told == 0 { // it isn't their length, if one ends at once
		l.answers.newest, l.answers.agreed = 0, 0
		return
	}
	l.answers.ended(told, &l.PerSession, now)
	if l.answers.agreed < agreeing {
		l.refusals.ended(refused, &l.Refused, now)
	}
}

// SessionFull learns from a session whose receiver said after told answers that they are enough, and reports whether that may be: not
// if others went further. One such word may be about something else; the second after as many answers is about the length.
func (l *Learned) SessionFull(told int, now time.Time) bool {
	may := told > 0 && told+1 >= l.answers.most // that word is counted as well
	if may && told == l.answers.newest {
		l.PerSession.Tighten(told, now)
	}
	l.answers.newest, l.answers.agreed = told, 0
	return may
}

// Raise drops a limit that was learned below what was allowed before, when more is allowed.
func (l *LearnedLimit) Raise(old, allowed int) {
	if l.Most < old && allowed > old {
		*l = LearnedLimit{}
	}
}
