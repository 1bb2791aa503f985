package throttle

import (
	"fmt"
	"time"
)

// "Nothing passes" is the state in which no first try at a receiver gets a good answer. The cause may be an outage, a
// penalty for a rate that was too high, greylisting, or one mail domain or list whose addresses all fail. We then ask
// one address at a time (failedAlone, againAlone). When a new address passes, resume decides by the cause which rate
// follows (otherCause, goLower). Greylisting that is found (greylist.go), and an outage (Outage), end the state too.
const (
	// Nothing passes if the newest rowNothing first tries got no good answer. If addresses passed before, a row of
	// rowShort may be enough (rowFails). If the last good answer is quietNothing ago, an even shorter row is enough.
	rowNothing   = 20
	rowShort     = 7
	rowOfOne     = 10 // addresses that are enough to blame one mail domain or customer
	quietNothing = 10 * time.Second

	// While nothing passes, we ask one address at a time. The waits between them are 1, 2, 4 … seconds up to aloneMost.
	// Later each wait is 1/aloneShare of the time so far, up to aloneLate.
	aloneMost  = 5 * time.Second
	aloneShare = 20
	aloneLate  = time.Minute

	// passesAlone repeated addresses must pass, with no new one in between, before we try a rate again.
	passesAlone = 4

	// limitLeast good answers in the last second are enough to take their number for the limit, if it is clearlyLess than
	// the number asked. A cycle in which fewer than limitFew addresses passed shows nothing.
	limitLeast  = 2
	limitFew    = 4
	clearlyLess = 0.85

	// longLeast distinguishes limits. At half the rate a limit over a long time lets everything pass for longer than
	// longLeast; a limit by the second doesn't let everything pass.
	longLeast = 3 * time.Second

	// A penalty lasts for at least penaltyLeast. If nothing passes for penaltySure, two addresses asked alone have failed.
	// Two such failures show a penalty, because deferred mailboxes seldom come one after the other. For penaltyRecent
	// after a penalty, another penalty is likely.
	penaltyLeast, penaltySure, penaltyRecent = 3 * time.Second, 7 * time.Second, time.Minute

	// cycleMost bounds how long we watch a raise at a limit over a long time.
	cycleMost = time.Minute

	// PenaltyWithin is how soon a penalty follows its cause.
	PenaltyWithin = 5 * time.Second

	// provenFor: if a rate has gone well for this time, new trouble counts as an outage. If addresses failed in a row less
	// than relapseIn ago, new trouble counts against the rate.
	provenFor = 12 * time.Second
	relapseIn = 10 * time.Minute
)

// Nothing describes the state in which no first try gets a good answer.
type Nothing struct {
	on    bool
	since time.Time
	asked int  // addresses asked alone since the state began
	again bool // the next address to ask is one that failed before, not a new one

	domain, tenant string // shared by all addresses that failed; "": there are several
	few            bool   // too few addresses failed to show the cause

	passedAgain int   // repeated addresses that passed since a new address last passed
	votes       votes // new addresses that failed right after a repeated one passed
	said        votes // new addresses in a row whose replies say "greylisted"
	before      int   // value of passedAgain when a new address last failed
	proven      bool  // the earlier rate had gone well for long
	stepped     bool  // a raise was taken back just before
	raised      bool  // a raise failed at once just before, and no address has passed since
	neverPassed bool  // no address had ever passed
	excused     bool  // a limit on sessions or openings was found just before
	limit       float64
	pace        float64 // the most addresses that we lately asked in a second, perhaps below the rate; 0: not known

	good time.Time // the newest good answer
	cycle
}

// cycle is a time in which addresses pass, together with the next time in which none passes.
type cycle struct {
	ended  time.Time     // when addresses last began to pass again
	cycled int           // good answers since ended
	was    int           // good answers in the cycle before
	from   time.Time     // when this cycle began
	failed time.Time     // when the first address of the first row that ended a raise was sent
	went   time.Duration // how long all addresses passed in this cycle
	steady bool          // see wasSteady
	closed time.Duration // how long nothing passed before this cycle, if our rate was the cause
}

// nothingPasses begins the state, unless the replies say "greylisted".
func (p *Pace) nothingPasses(now time.Time) Effect {
	domain, tenant, refused, grey, n := p.firsts.rowOf()
	if p.grey.foundInWords(p, grey, n, now) {
		return Unchanged
	}
	p.stopAsking(now, domain, tenant)
	p.nothing.few = n < rowOfOne && refused < n // the failed addresses may be of one domain by chance
	p.enter(PhaseNothing, now, fmt.Sprintf("none of the newest %d addresses got a good answer at %s: "+
		"we ask one at a time", n, perSecond(p.rate)))
	if 2*refused > n {
		return Refused
	}
	return NothingPasses
}

// OnSessionsRefused begins the state when a receiver has deferred an address and then refuses sessions.
func (p *Pace) OnSessionsRefused(now time.Time) {
	if !p.nothing.on {
		p.stopAsking(now, "", "")
		p.enter(PhaseNothing, now, fmt.Sprintf("an address was deferred at %s, and then no session could be opened: "+
			"we ask one address at a time", perSecond(p.rate)))
	}
}

func (p *Pace) stopAsking(now time.Time, domain, tenant string) {
	x := &p.nothing
	well := &p.search
	if p.test.open {
		well = &p.test.saved
	}
	*x = Nothing{on: true, since: now, domain: domain, tenant: tenant, good: x.good, cycle: x.cycle, votes: x.votes,
		neverPassed: x.ended.IsZero() && x.cycled == 0,
		proven:      now.Sub(well.began) >= provenFor && well.answered >= shareTries && well.edge == 0}
	if most, all := p.asks.mostInSecond(); all >= nearTries {
		x.pace = max(p.floor(), float64(most)/p.share)
	}
	at := p.firsts.badSince(now)
	if p.dry.n > 0 && p.dry.from.Before(at) {
		at = p.dry.from
	}
	x.went, x.steady = at.Sub(x.from), wasSteady(p, at)
	x.stepped = at.Sub(p.stepped) < quietNothing
	x.raised = at.Sub(p.failedAt) < quietNothing && !x.good.After(p.failedAt)
	x.excused = !p.excused.IsZero() && at.Sub(p.excused) < PenaltyWithin
	if x.limit = p.edge; !p.test.open { // a test keeps edge below the limit
		x.limit = 0
		if p.flow.over(at) >= limitLeast {
			x.limit = measured(p, at)
		}
		if x.limit > 0 && at.Sub(p.until) < time.Second { // a pause used up most of that second
			x.limit = max(x.limit, p.rate/2)
		}
	}
	p.counted = now
	p.until = p.nothing.nextAlone(now)
}

// Alone reports whether one address at a time is asked.
func (p *Pace) Alone() bool { return p.nothing.on }

// Nothing returns the state while nothing passes.
func (p *Pace) Nothing() *Nothing { return &p.nothing }

// Asked returns how many addresses were asked alone.
func (x *Nothing) Asked() int { return x.asked }

// AsksAgain reports whether the next address to ask alone is one that failed before.
func (x *Nothing) AsksAgain() bool { return x.again }

// NoteAskedAgain notes that the caller has chosen an address that failed before.
func (x *Nothing) NoteAskedAgain() { x.again = false }

// Failing returns the mail domain and the tenant that all failed addresses share; "": they have several.
func (x *Nothing) Failing() (domain, tenant string) { return x.domain, x.tenant }

// nextAlone returns when to ask the next address alone, and counts that address.
func (x *Nothing) nextAlone(now time.Time) time.Time {
	if x.passedAgain > 0 { // the receiver answers, so we soon know what its answers mean
		return now.Add(settles)
	}
	wait := min(time.Second<<min(x.asked, 10), aloneMost)
	x.asked++
	return now.Add(max(wait, min(now.Sub(x.since)/aloneShare, aloneLate)))
}

// failedAlone handles a bad answer to a new address that was asked alone.
func (p *Pace) failedAlone(t *Try, now time.Time) Effect {
	x := &p.nothing
	if p.firsts.row == 1 { // the first failure at this node, as after a takeover
		x.domain, x.tenant, x.few = t.Domain, t.Tenant, true
	}
	if t.Domain != x.domain {
		x.domain = ""
	}
	if t.Tenant != x.tenant {
		x.tenant = ""
	}
	x.few = x.few && p.firsts.row < rowOfOne
	x.again = true
	if p.grey.foundAlone(p, t, now) {
		return Unchanged
	}
	p.until = p.nothing.nextAlone(now)
	if t.Result == RefusedUs && p.firsts.isBlocked() {
		return Refused
	}
	return NothingPasses
}

// againAlone handles the answer to a repeated address that was asked alone.
func (p *Pace) againAlone(passed bool, now time.Time) Effect {
	if !p.nothing.on {
		return Unchanged
	}
	p.nothing.again = false
	if passed {
		p.until = now.Add(settles) // ask a new address after this
		if p.nothing.passedAgain++; p.nothing.passedAgain-p.nothing.before >= passesAlone {
			p.resume(&Try{}, now)
		}
		return Unchanged
	}
	p.until = p.nothing.nextAlone(now)
	return NothingPasses
}

// resume ends the state when an address passes. If we were too fast, the rate is lower than before. After an outage, or
// if one domain or one customer's list was the cause, the earlier rate comes back.
func (p *Pace) resume(t *Try, now time.Time) {
	x := &p.nothing
	took := now.Sub(x.since)
	why := x.otherCause(t, now)
	closed := time.Duration(0)
	switch {
	case why == "":
		closed = took
		why = "our rate was too high"
		goLower(p, took, now)
		p.firsts.dropRow()
	case p.test.open:
		p.search = p.test.saved
	}
	before := x.votes
	if t.Domain != "" { // a new address passed
		before = votes{}
	}
	*x = Nothing{good: x.good, cycle: cycle{ended: now, from: now, was: x.cycled, closed: closed}, votes: before}
	p.test.open = false
	p.later = transients{}
	p.firsts.forgetRow()
	p.counted, p.until = now, now
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("%s, after %s without a good answer: now %s", why, took.Round(time.Second), perSecond(p.rate)))
}

// otherCause returns the cause of the trouble if it wasn't our rate; "": nothing shows another cause.
func (x *Nothing) otherCause(t *Try, now time.Time) string {
	switch {
	case !x.few && (x.domain != "" && t.Domain != "" && t.Domain != x.domain ||
		x.tenant != "" && t.Tenant != "" && t.Tenant != x.tenant):
		return "others are answered: it was about one mail domain or one customer's list"
	case x.excused:
		return "too many sessions were open, or they were opened too fast"
	case x.neverPassed:
		return "no address had been answered before, so nothing shows that our rate was the cause"
	case x.proven && (x.ended.IsZero() || now.Sub(x.ended) > relapseIn):
		return "the receiver answers again"
	}
	return ""
}

// settle learns from the answer to a repeated address. A second failure soon after a penalty shows nothing, because it
// may belong to another penalty.
func settle(p *Pace, first *Try, passed bool) {
	if x := &p.nothing; passed || x.closed < penaltySure || x.cycled >= rowShort {
		p.firsts.settle(first, passed)
	}
}

// goLower lowers the rate after nothing passed for a while. The new rate is the rate before the raise, or the rate that
// a limit lets through.
func goLower(p *Pace, lasted time.Duration, now time.Time) {
	x := &p.nothing
	from, price := p.rate, lasted
	if x.pace > 0 {
		from = min(from, x.pace)
	}
	if p.edge == 0 || p.long {
		price = 0 // a limit isn't proven yet, so try a raise soon; or it isn't a penalty
	}
	if x.raised && !p.long && p.proved > from { // later reductions were due to the penalty for that raise
		from = p.proved / nearEdge
	}
	if p.proved > 0 && p.proved < from && 2*p.proved >= from { // the raise was too much
		p.failedTrial(now, price, nearEdge*p.proved)
		p.lower(nearEdge*p.proved, p.proved, now)
		return
	}
	to, through := below*x.limit, x.through(now, lasted)/p.share
	measured := to > 0 && (to < clearlyLess*from || p.test.open)
	supposed := through > 0 && !measured && !p.long
	if supposed {
		p.long, p.gap = true, now // a limit over a long time, not a penalty
	}
	if p.long {
		p.fell = fall{} // the old rate passed only because the limit's time had just begun
		lasted, price = 0, 0
	}
	lower, edge := from, 0.0
	switch {
	case min(x.closed, lasted) >= penaltyLeast && x.went < longLeast && !p.long: // another penalty: too much passed
		lower, edge = from/2, from
	case measured:
		lower, edge = min(to, from), x.limit
	case through > 0:
		p.cycle = min(now.Sub(x.from), cycleMost)
		lower, edge = nearEdge*through, through
	case !x.stepped || 2*x.limit < from: // if false, stepBack has undone the raise
		lower, edge = from/2, from
	}
	if 2*lower < from {
		p.gap = now // raise soon: earlier costs no longer count if a raise can win much
	}
	p.failedTrial(now, price, lower)
	if edge > 0 {
		p.lower(lower, edge, now)
	}
	if supposed { // if there is no limit over a long time, this raise shows that
		p.step, p.credit = stepLong, creditTrial
	}
	p.hold = now.Add(min(lasted, aloneLate))
}

// wasSteady compares the two seconds before a limit was met. wasSteady reports whether as many addresses passed in the
// first as in the second. A limit by the second would have stopped them in the first.
func wasSteady(p *Pace, at time.Time) bool {
	if x := &p.nothing; x.failed.After(x.from) {
		at = x.failed
	}
	last := p.flow.over(at)
	return last > 0 && p.flow.over(at.Add(-time.Second-flowStep)) >= last
}

// through returns how many addresses a second pass at a limit that counts over a long time. through takes the average
// of a whole cycle. 0: the limit doesn't count over a long time.
func (x *Nothing) through(now time.Time, lasted time.Duration) float64 {
	took := now.Sub(x.from)
	if few := min(x.cycled, x.was); few < limitFew || 4*few < 3*max(x.cycled, x.was) {
		return 0
	}
	if !x.steady && (x.went < longLeast || 10*lasted > 9*took) {
		return 0
	}
	return float64(x.cycled) / took.Seconds()
}

// Outage ends the state because the receiver was down. What was learned from broken connections is dropped.
func (p *Pace) Outage(now time.Time) {
	p.Ignore(now)
	p.nothing.on = false
	p.until = now
	p.stretch(now)
	p.enter(phaseOf(p), now, "the receiver was down, which says nothing about our rate")
}

// Proven reports whether the rate has gone well for so long that new trouble isn't due to the rate.
func (p *Pace) Proven(now time.Time) bool {
	return !p.trying && !p.test.open && p.phase != PhaseStarting && now.Sub(p.began) >= quietNothing && p.edge == 0
}
