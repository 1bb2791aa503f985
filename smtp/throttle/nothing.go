package throttle

import (
	"fmt"
	"time"
)

// What happens while nothing passes.
const (
	// Nothing passes if rowNothing first tries in a row got no good answer, or at least rowShort if others passed
	// before. quietNothing after the last good answer, fewer are enough.
	rowNothing   = 20
	rowShort     = 7
	rowOfOne     = 10 // are enough to be about one mail domain or customer
	quietNothing = 10 * time.Second

	// While nothing passes, one address at a time is asked, after 1, 2, 4 … aloneMost; later each wait is
	// 1/aloneShare of the time so far, up to aloneLate.
	aloneMost  = 5 * time.Second
	aloneShare = 20
	aloneLate  = time.Minute

	// After passesAlone addresses asked again have passed, with no fresh one in between, a pace is tried.
	passesAlone = 4

	// limitLeast is how many good answers of the last second are enough to be taken for the limit, if they are
	// clearlyLess than were asked. Fewer than limitFew of all say nothing.
	limitLeast  = 2
	limitFew    = 4
	clearlyLess = 0.85

	// longLeast: at half the pace, a limit that counts over a long time lets everything through for longer than this;
	// a limit by the second doesn't.
	longLeast = 3 * time.Second

	// A penalty lasts for penaltyLeast or longer. After penaltySure two addresses asked alone have failed in it,
	// which deferred mailboxes seldom do one after the other. For penaltyRecent after a penalty we expect another.
	penaltyLeast, penaltySure, penaltyRecent = 3 * time.Second, 7 * time.Second, time.Minute

	// cycleMost bounds how long a raise is watched if a limit counts over a long time.
	cycleMost = time.Minute

	// PenaltyWithin is how soon a penalty follows its cause.
	PenaltyWithin = 5 * time.Second

	// provenFor: when a pace has gone well for this time, trouble counts as an outage, unless it happens again within
	// relapseIn.
	provenFor = 12 * time.Second
	relapseIn = 10 * time.Minute
)

// Nothing is the state in which no first try gets a good answer.
type Nothing struct {
	on    bool
	since time.Time
	asked int  // addresses asked alone since then
	again bool // the next is an address asked before, not a fresh one

	domain, tenant string // of all that failed; "": there were several
	few            bool   // too few failed to show the cause

	passedAgain int   // addresses asked again that passed since a fresh one did
	votes       votes // fresh addresses that failed right after one of these
	said        votes // fresh addresses in a row whose replies say "greylisted"
	before      int   // passedAgain when a fresh one last failed
	proven      bool  // the earlier pace had gone well for long
	stepped     bool  // a raise was taken back just before
	raised      bool  // a raise failed at once just before, and nothing has passed since
	neverPassed bool  // no address had ever got a good answer
	excused     bool  // a limit on sessions or openings was found just before
	limit       float64
	pace        float64 // the most that was asked in a second lately, which may be less than the rate; 0: unknown

	good time.Time // the newest good answer of all
	cycle
}

// cycle is a time in which addresses pass, and the one after it in which nothing does.
type cycle struct {
	ended  time.Time     // when nothing passing last ended
	cycled int           // good answers since ended
	was    int           // good answers in the cycle before
	from   time.Time     // when the present cycle began
	failed time.Time     // when the first of the first row that ended a raise was sent
	went   time.Duration // how long everything passed in this cycle
	steady bool          // see wasSteady
	closed time.Duration // how long nothing passed before this cycle, if we had been too fast
}

// nothingPasses begins to ask one address at a time.
func (p *Pace) nothingPasses(now time.Time) Effect {
	domain, tenant, refused, grey, n := p.firsts.rowOf()
	if p.grey.foundInWords(p, grey, n, now) {
		return Unchanged
	}
	p.stopAsking(now, domain, tenant)
	p.nothing.few = n < rowOfOne && refused < n // they may be of one domain by chance
	p.enter(PhaseNothing, now, fmt.Sprintf("none of the newest %d addresses got a good answer at %s: one is asked at a time", n,
		perSecond(p.rate)))
	if 2*refused > n {
		return Refused
	}
	return NothingPasses
}

// OnSessionsRefused begins the same for a receiver that refuses sessions just after it deferred an address.
func (p *Pace) OnSessionsRefused(now time.Time) {
	if !p.nothing.on {
		p.stopAsking(now, "", "")
		p.enter(PhaseNothing, now, fmt.Sprintf("an address was deferred at %s, and then no session could be opened: one is asked at a time",
			perSecond(p.rate)))
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
	if x.limit = p.edge; !p.test.open { // which a test keeps below
		x.limit = 0
		if p.flow.over(at) >= limitLeast {
			x.limit = measured(p, at)
		}
		if x.limit > 0 && at.Sub(p.until) < time.Second { // a pause left little of that second
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

// AsksAgain reports whether the next address asked alone is one that got a bad answer before.
func (x *Nothing) AsksAgain() bool { return x.again }

// NoteAskedAgain notes that such an address was chosen.
func (x *Nothing) NoteAskedAgain() { x.again = false }

// Failing returns the only mail domain and the only tenant among the failures; "": there were several.
func (x *Nothing) Failing() (domain, tenant string) { return x.domain, x.tenant }

// nextAlone returns when the next address is asked alone, and counts it.
func (x *Nothing) nextAlone(now time.Time) time.Time {
	if x.passedAgain > 0 { // the receiver answers, so its meaning is soon known
		return now.Add(settles)
	}
	wait := min(time.Second<<min(x.asked, 10), aloneMost)
	x.asked++
	return now.Add(max(wait, min(now.Sub(x.since)/aloneShare, aloneLate)))
}

// failedAlone handles a bad answer to a fresh address asked alone.
func (p *Pace) failedAlone(t *Try, now time.Time) Effect {
	x := &p.nothing
	if p.firsts.row == 1 { // the first that failed here, as after a takeover
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

// againAlone handles the answer to an address that was asked again, alone, while nothing passes.
func (p *Pace) againAlone(passed bool, now time.Time) Effect {
	if !p.nothing.on {
		return Unchanged
	}
	p.nothing.again = false
	if passed {
		p.until = now.Add(settles) // to see whether a fresh one passes too
		if p.nothing.passedAgain++; p.nothing.passedAgain-p.nothing.before >= passesAlone {
			p.resume(&Try{}, now)
		}
		return Unchanged
	}
	p.until = p.nothing.nextAlone(now)
	return NothingPasses
}

// resume ends the state when a fresh address passes: at the earlier pace after an outage, or if one domain or one
// customer's list was the cause; at a lower one if we were too fast.
func (p *Pace) resume(t *Try, now time.Time) {
	x := &p.nothing
	took := now.Sub(x.since)
	why := x.otherCause(t, now)
	closed := time.Duration(0)
	switch {
	case why == "":
		closed = took
		why = "it was too fast"
		goLower(p, took, now)
		p.firsts.dropRow()
	case p.test.open:
		p.search = p.test.saved
	}
	before := x.votes
	if t.Domain != "" { // a fresh one passed
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

// otherCause returns the cause if it wasn't our pace; "": nothing shows that.
func (x *Nothing) otherCause(t *Try, now time.Time) string {
	switch {
	case !x.few && (x.domain != "" && t.Domain != "" && t.Domain != x.domain ||
		x.tenant != "" && t.Tenant != "" && t.Tenant != x.tenant):
		return "others are answered: it was about one mail domain or one customer's list"
	case x.excused:
		return "too many sessions were open, or they were opened too fast"
	case x.neverPassed:
		return "no address had been answered before, so nothing shows that it was our pace"
	case x.proven && (x.ended.IsZero() || now.Sub(x.ended) > relapseIn):
		return "the receiver answers again"
	}
	return ""
}

// settle learns what asking an address again showed. Soon after a penalty, a second failure shows nothing: it may be
// another penalty.
func settle(p *Pace, first *Try, passed bool) {
	if x := &p.nothing; passed || x.closed < penaltySure || x.cycled >= rowShort {
		p.firsts.settle(first, passed)
	}
}

// goLower lowers the pace after nothing has passed for a while: to that before a raise, or to what passes at a limit.
func goLower(p *Pace, lasted time.Duration, now time.Time) {
	x := &p.nothing
	from, price := p.rate, lasted
	if x.pace > 0 {
		from = min(from, x.pace)
	}
	if p.edge == 0 || p.long {
		price = 0 // nothing else shows yet that it's a limit, so a raise is tried soon; or it is no penalty
	}
	if x.raised && !p.long && p.proved > from { // what was lowered since met only the penalty of that raise
		from = p.proved / nearEdge
	}
	if p.proved > 0 && p.proved < from && 2*p.proved >= from { // a raise was too much
		p.failedTrial(now, price, nearEdge*p.proved)
		p.lower(nearEdge*p.proved, p.proved, now)
		return
	}
	to, through := below*x.limit, x.through(now, lasted)/p.share
	measured := to > 0 && (to < clearlyLess*from || p.test.open)
	supposed := through > 0 && !measured && !p.long
	if supposed {
		p.long, p.gap = true, now // it wasn't a penalty
	}
	if p.long {
		p.fell = fall{} // it passed then because the time had just begun
		lasted, price = 0, 0
	}
	lower, edge := from, 0.0
	switch {
	case min(x.closed, lasted) >= penaltyLeast && x.went < longLeast && !p.long: // a penalty again: more passed than may
		lower, edge = from/2, from
	case measured:
		lower, edge = min(to, from), x.limit
	case through > 0:
		p.cycle = min(now.Sub(x.from), cycleMost)
		lower, edge = nearEdge*through, through
	case !x.stepped || 2*x.limit < from: // else that raise was already undone
		lower, edge = from/2, from
	}
	if 2*lower < from {
		p.gap = now // the cost of earlier raises no longer counts: there is much to gain
	}
	p.failedTrial(now, price, lower)
	if edge > 0 {
		p.lower(lower, edge, now)
	}
	if supposed { // a penalty would let that many more through for longer
		p.step, p.credit = stepLong, creditTrial
	}
	p.hold = now.Add(min(lasted, aloneLate))
}

// wasSteady reports whether, of the two seconds before a limit was met, the first let as many pass as the second: a
// limit by the second would have shown in the first.
func wasSteady(p *Pace, at time.Time) bool {
	if x := &p.nothing; x.failed.After(x.from) {
		at = x.failed
	}
	last := p.flow.over(at)
	return last > 0 && p.flow.over(at.Add(-time.Second-flowStep)) >= last
}

// through returns how many good answers a second pass at a limit that counts over a long time, by the good answers of a
// cycle; 0: it isn't such a limit.
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

// Outage drops what was learned from connections that broke when the receiver went down: down isn't slow.
func (p *Pace) Outage(now time.Time) {
	p.Ignore(now)
	p.nothing.on = false
	p.until = now
	p.stretch(now)
	p.enter(phaseOf(p), now, "the receiver was down, which says nothing about our pace")
}

// Proven reports whether the pace has gone well for so long that new trouble isn't our doing.
func (p *Pace) Proven(now time.Time) bool {
	return !p.trying && !p.test.open && p.phase != PhaseStarting && now.Sub(p.began) >= quietNothing && p.edge == 0
}
