package throttle

import (
	"fmt"
	"math"
	"time"
)

// Pace lowers the rate when too many answers are bad:
//   - a large share of the newest first tries is bad (suspect);
//   - near a known limit, a row of first tries is bad (stepBack), or a raised rate meets its first deferral (endTrial);
//   - more addresses were deferred than good answers pay for (overspent);
//   - nothing passed for a while (goLower in nothing.go), or no address passes when asked again (retries_only.go);
//   - greylisted addresses that have waited long enough fail (Retried in greylist.go).
//
// search.go says how the rate rises. A share below is a share of first tries.
const (
	// A rate is too high if the share of transient answers is above shareFound, or above shareSet for a configured rate.
	// Some mailboxes always defer, so a share up to shareSure is first tested at a lower rate.
	shareFound = 0.02
	shareSet   = 0.10
	shareSure  = 0.3

	// The rate is also too high if shareNow of the newest sureTries are transient, or shareMany of the newest shareTries.
	// Near a known limit, shareNow of the newest nearTries are enough. So a limit is found with fewer deferrals.
	shareNow, shareMany = 0.4, 0.22

	// The rate is surely too high if deferrals exceed their usual share by shareMore.
	shareMore = 0.15

	// The number of first tries depends on the share to be measured: sureTries for more than shareSure, shareTries for
	// more than shareMany, laterTries for less. With shareTries and laterTries, shareLeast addresses must have passed when
	// asked again.
	nearTries, sureTries, shareTries, laterTries = 8, 20, 50, 100
	shareLeast                                   = 3

	// If more than shareBad get a bad answer, we test a lower rate. The rate isn't tested if it is ownTimes as likely that
	// the addresses are the cause. If the share is above shareMost, fewer tries are enough.
	shareBad, shareMost, ownTimes = 0.25, 0.65, 10

	// If nearlyAll get a bad answer, it is a penalty or an outage.
	nearlyAll = 0.95

	// quietAgain: if no good answer came for this long, the answer to a repeated address proves something.
	quietAgain = 2 * time.Second

	// Near a known limit a row of bad answers is enough if chance causes such a row in 1 of 1,000 cases; rowNearOdds is
	// the logarithm. Away from a limit, this holds if the last good answer is quietNothing ago. If few addresses fail,
	// three are enough.
	rowNearOdds = 6.9

	// below is the part of a measured limit that we use. slower is the part of the rate at which a small share is tested.
	below, slower = 0.9, 2.0 / 3

	// settles is how long the receiver still counts earlier RCPTs. Most receivers count over a second.
	settles = 1200 * time.Millisecond

	// enoughLess: if a limit is the cause, deferrals end at this part of the rate.
	enoughLess = 0.8

	// A test ends at clear odds, given as logarithms: 20 to 1 that our rate isn't the cause, or 400 to 1 for a limit,
	// because a limit holds us back for long. If our rate is the cause, fallsTo of the deferred share remains.
	decided, decidedLimit, fallsTo = 3.0, 6.0, 0.1

	// helped: a lower rate has helped if the deferred share falls below this part of the earlier share.
	helped = 0.85

	// usualFor: if a share stayed at a lower rate, it isn't tested again for this long.
	usualFor = 15 * time.Minute

	// A share above the usual share is tested again if it is usualMore times as large, testGap after the last test.
	usualMore = 2
	testGap   = time.Minute
)

// Phase says what a Pace is doing.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting"       // an unknown receiver, begun at a low rate
	PhaseFull     Phase = "full"           // only the ceiling limits the rate
	PhaseHolding  Phase = "holding"        // just below a rate that was too high
	PhaseRising   Phase = "rising"         // a higher rate is tried
	PhaseTesting  Phase = "testing"        // a lower rate is tried, to see whether fewer addresses are deferred
	PhaseNothing  Phase = "nothing passes" // one address at a time is asked
)

// Pace decides how many RCPT commands a second we send to one receiver from one of our sources. Pace stays below the
// configured rate and finds an unknown limit from the answers. A limit, mailboxes that always defer, and greylisting
// look alike: Pace tells them apart by asking addresses again and by asking at a lower rate. Pace reads words for one
// thing only: if most replies of a row say "greylisted", it assumes greylisting until addresses that have waited show
// otherwise.
//
// Rates are for the whole receiver; share is our part of them. Not safe for concurrent use.
type Pace struct {
	search
	share float64 // our part of the rate, above 0

	phase Phase
	since time.Time
	why   string
	until time.Time // nothing is sent before this time

	firsts  firsts    // the newest first tries
	counted time.Time // tries before this say nothing about the present rate
	stepped time.Time // when a raise near the limit last failed
	excused time.Time
	later   transients // deferred first tries that passed when asked again
	flows

	test    test
	usual   float64 // share of first tries that is deferred at any rate
	usualAt time.Time
	manyAt  time.Time // when the last test because of many bad answers began
	nothing Nothing
	dry     dry
	grey    greylisting
}

type flows struct {
	flow   flow // good answers
	asks   flow // all answers
	answer time.Duration
}

// test is a time at a lower rate, to see whether fewer addresses are deferred.
type test struct {
	open   bool
	many   bool       // the test began because many answers were bad; each bad answer counts, whatever its kind
	saved  search     // the search before the test
	share  float64    // share that was deferred before the test
	later  transients // the same, counted during the test
	odds   float64    // logarithm; above 0: our rate isn't the cause
	tries  float64    // tries since the test began
	passed int        // how many of tries got a good answer
	bad    float64    // estimated number of tries that were deferred for another reason than their address
	again  compared
}

// Effect is what the caller must do after a try.
type Effect uint8

// The effects.
const (
	Unchanged     Effect = iota
	Slower               // take back the addresses that are given and not yet sent
	NothingPasses        // ask one address at a time from now on
	Refused              // like NothingPasses, and most answers refuse us
)

// NewPace begins at the ceiling if an operator stated the ceiling for this receiver, otherwise at a part of it.
func NewPace(b RateBounds, now time.Time) *Pace {
	p := &Pace{share: 1, firsts: firsts{kinds: replyKinds{}}}
	p.search.bound(b)
	if b.Share > 0 {
		p.share = b.Share
	}
	p.begin(now)
	return p
}

// RateBounds are the bounds of a Pace.
type RateBounds struct {
	Ceiling Rate    // never exceeded; for the whole receiver
	Stated  bool    // an operator set the ceiling for this receiver: begin there
	Share   float64 // our part; 0 or less changes nothing
}

const fullWhy = "this limit is set for the receiver, and nothing speaks against it"

func (p *Pace) begin(now time.Time) {
	p.counted, p.nothing.good = now, now
	p.search.begin(now)
	if p.rate >= p.ceiling {
		p.enter(PhaseFull, now, fullWhy)
		return
	}
	p.enter(PhaseStarting, now, fmt.Sprintf("unknown receiver: begun at %s", perSecond(p.rate)))
}

func (p *Pace) enter(f Phase, now time.Time, why string) { p.phase, p.since, p.why = f, now, why }

// Set changes the bounds. A ceiling of 0 is temporary: it changes nothing, so the learned rate stays.
func (p *Pace) Set(b RateBounds, now time.Time) {
	if b.Ceiling.PerSecond() <= 0 {
		return
	}
	if b.Share > 0 && b.Share != p.share {
		p.share = b.Share
		p.stretch(now)
	}
	old, stated := p.ceiling, p.stated
	if b.Ceiling.PerSecond() == old && b.Stated == stated {
		return
	}
	p.bound(b)
	switch {
	case old <= 0:
		p.begin(now)
	case p.phase == PhaseFull && (p.stated || p.ceiling <= old), p.phase == PhaseStarting && p.stated:
		p.rate = p.ceiling
		p.enter(PhaseFull, now, fullWhy)
	case p.ceiling > old:
		p.edge, p.step, p.gap = 0, stepLeast, now
		if p.phase == PhaseFull {
			p.rate = old
		}
		p.stretch(now)
		if !p.nothing.on {
			p.enter(PhaseRising, now, fmt.Sprintf("the limit was raised from %s to %s: a new search begins at %s",
				perSecond(old), perSecond(p.ceiling), perSecond(p.rate)))
		}
	}
	p.rate = min(p.rate, p.ceiling)
}

// Limits reports whether the learned rate holds us back more than the ceiling.
func (p *Pace) Limits(now time.Time) bool {
	return now.Before(p.until) || p.nothing.on || p.rate < p.ceiling
}

// Permits returns our share of the present rate, for a Window, and until when nothing may be asked. A past time means
// now.
func (p *Pace) Permits() (Rate, time.Time) {
	return windowed(p.rate*p.share, p.answer), p.until
}

// windowed turns a rate into a count in a time window. A window of about a second keeps a limit by the second exactly.
// If answers take long, the window is longer, because a Window also counts unanswered probes.
func windowed(perSecond float64, answer time.Duration) Rate {
	span := max(time.Second, 4*answer)
	n := math.Max(1, math.Round(perSecond*span.Seconds()))
	n = min(n, RateEventsMax)
	per := time.Duration(n / max(perSecond, 1e-6) * float64(time.Second))
	return Rate{Events: int(n), Per: min(max(per, RatePerMin), RatePerMax)}
}

// OnLatency notes how long an answer took.
func (p *Pace) OnLatency(d time.Duration) { p.answer += (d - p.answer) / 16 }

// Good handles a good answer to a first try: 2xx, or 5xx about the mailbox.
func (p *Pace) Good(t Try, now time.Time) {
	p.asks.add(t.Sent)
	switch x := &p.nothing; {
	case t.Sent.Before(p.counted):
	case t.Unsure && x.on && (x.few || x.domain == "" && x.tenant == ""):
		p.passed(t.Sent, now)
		p.againAlone(true, now)
		return
	case t.Unsure && p.test.open && p.test.share > shareSure:
		p.passed(t.Sent, now)
		testAgain(p, t.Sent, true, "", now)
		return
	case t.Unsure && p.grey.on && p.grey.unsure < unsureMost:
		p.grey.unsure++
		p.grey.passed = later(p.grey.passed, now)
	case !x.on:
		x.votes = votes{}
		if p.grey.on && !t.Unaccepted {
			p.grey.takeFresh(p, true, now)
		}
	}
	take(p, t, now)
}

// take handles an answer that shows that the receiver had time for the address.
func take(p *Pace, t Try, now time.Time) {
	p.passed(t.Sent, now)
	if t.Sent.Before(p.counted) {
		return
	}
	t.Unaccepted, t.Result = t.Unaccepted || t.Result != Answered, Answered
	if p.nothing.on {
		p.resume(&t, now)
		add(p, &t)
		return
	}
	add(p, &t)
	p.judge(0, now)
}

func (p *Pace) passed(sent, now time.Time) {
	p.dry = dry{}
	p.flow.add(sent)
	p.nothing.good = later(p.nothing.good, sent)
	if p.nothing.from.IsZero() {
		p.nothing.from = now
	}
	p.nothing.cycled++
	if p.nothing.on || p.test.open {
		return
	}
	if p.search.good(sent, now, p.share, usualNow(p, now)) {
		rose(p, now)
	}
}

func rose(p *Pace, now time.Time) {
	if p.rate >= p.ceiling {
		p.enter(PhaseFull, now, fmt.Sprintf("no sign of a limit below the allowed %s", perSecond(p.ceiling)))
		return
	}
	f := PhaseRising
	switch {
	case p.phase == PhaseStarting && p.edge == 0:
		f = PhaseStarting
	case p.edge > 0 && p.rate >= nearEdge*p.edge && !p.trying:
		f = PhaseHolding
	}
	p.enter(f, now, perSecond(p.proved)+" went well")
}

// Bad handles a bad answer to a first try: deferred, refused because of us, or cut off.
func (p *Pace) Bad(t Try, now time.Time) Effect {
	p.asks.add(t.Sent)
	if t.Sent.Before(p.counted) || t.Sent.Before(p.until) {
		return Unchanged // the address was sent before the last change
	}
	if p.grey.on {
		if e, done := p.grey.takeBad(p, &t, now); done {
			return e
		}
	}
	add(p, &t)
	usual := usualNow(p, now)
	switch {
	case p.nothing.on:
		return p.failedAlone(&t, now)
	case p.firsts.rowFails(usual), p.firsts.isBlocked(),
		oddsOf(p.firsts.row, p.firsts.failedBefore()) >= rowNearOdds && now.Sub(p.nothing.good) >= quietNothing:
		return p.nothingPasses(now)
	}
	newest := p.firsts.newest()
	if near := p.edge > 0 && p.rate >= below*p.edge; near && !p.test.open &&
		oddsOf(p.firsts.clear, max(usual, p.firsts.ownBefore())) >= rowNearOdds {
		return p.stepBack(now)
	}
	chance := p.firsts.chance(newest)
	p.search.bad(t.Sent, chance)
	if p.edge > 0 && p.proved > 0 && p.rate > p.proved && usual == 0 && !p.test.open && newest.kind.isTransient() {
		return p.endTrial(now)
	}
	if chance >= likelyOwn {
		p.spend(chance)
	}
	switch {
	case t.Unsure && p.test.open && p.test.share > shareSure:
		testAgain(p, t.Sent, false, t.Kind, now)
		return Unchanged
	case p.test.open:
		p.judge(chance, now)
		return Unchanged
	}
	return p.suspect(now)
}

func add(p *Pace, t *Try) {
	p.firsts.add(t)
	p.later.tried()
	p.test.later.tried()
}

// Again handles the answer to an address whose first try failed a moment ago. kind is the kind of a bad reply.
func (p *Pace) Again(first Try, sent time.Time, passed bool, kind string, now time.Time) Effect {
	p.asks.add(sent)
	if p.grey.isItsKind(kind) && !p.grey.isItsKind(first.Kind) {
		passed = true
	}
	if passed {
		p.passed(sent, now)
	} else {
		p.search.useRate(sent)
	}
	testAgain(p, sent, passed, first.Kind, now)
	if p.nothing.on || IsGreylisted(p, first.Kind) {
		return p.againAlone(passed, now)
	}
	if !passed && (p.firsts.row > 0 || p.test.open) {
		if e := runDry(p, sent, first.Kind, now); e != Unchanged || p.firsts.row > 0 {
			return e // other addresses fail too, so this one isn't the cause
		}
	}
	chance := p.firsts.kinds.of(first.Kind).transientChance()
	if !passed && chance >= likelyOwn && chance < surelyOurs { // credit was taken for this deferral
		p.credit = min(creditMost, p.credit+chance)
	}
	settle(p, &first, passed)
	if !passed || first.Sent.Before(p.counted) {
		return Unchanged
	}
	known := p.firsts.kinds.of(first.Kind)
	stands := known.stands()
	if known.transientChance() < likelyOwn { // no credit was taken for this deferral
		p.spend(stands)
	}
	p.later.passed(stands)
	if p.test.open {
		p.test.later.passed(stands)
		return Unchanged
	}
	return p.suspect(now)
}

// Worth reports whether asking again soon shows something. The first addresses with a kind of answer are worth it,
// later only a sample.
func (p *Pace) Worth(kind string) bool { return p.firsts.kinds.worth(kind) }

// InRow returns how many of the newest first tries in a row got a bad answer.
func (p *Pace) InRow() int { return p.firsts.row }

// Ignore forgets the newest first tries, because their cause is known, and restores the rate from before a test.
func (p *Pace) Ignore(now time.Time) {
	if p.test.open {
		p.test.open = false
		p.search = p.test.saved
		p.enter(phaseOf(p), now, "our rate didn't cause the deferrals")
	}
	p.firsts.forgetRow()
	p.later, p.counted = transients{}, now
}

// OnOtherLimit notes that a limit on sessions or openings was found. Trouble at that time was the penalty for exceeding
// that limit and not about the rate. Earlier trouble may have had the same cause.
func (p *Pace) OnOtherLimit(now time.Time) {
	p.Ignore(now)
	p.excused, p.gap, p.fails, p.credit = now, now, 0, creditMost
}

// Cost notes how long no session could be opened. If a raise was taken back just before, this time was the penalty for
// the raise.
func (p *Pace) Cost(since time.Time, lasted time.Duration, now time.Time) {
	if p.stepped.After(since.Add(-PenaltyWithin)) {
		p.failedTrial(now, lasted, p.rate)
	}
}

// Calm reports whether an address that is asked again now proves anything. Such an address proves something after a
// good first try, or when nothing has passed for quietAgain.
func (p *Pace) Calm(now time.Time) bool {
	return !p.nothing.on && (p.firsts.row == 0 || now.Sub(p.nothing.good) >= quietAgain)
}

// usualNow returns the share that is known to be deferred at any rate. A large known share is replaced once the present
// share is below a third of it.
func usualNow(p *Pace, now time.Time) float64 {
	if p.usual == 0 {
		return 0
	}
	if x := p.firsts.since(p.counted, firstsKept); p.usual > shareSet && x.n >= shareTries && 3*x.likely < p.usual {
		p.usual = x.likely
	}
	if now.Sub(p.usualAt) > usualFor {
		p.usual = 0
	}
	return p.usual
}

// suspect lowers the rate to test it if too many of the newest first tries are deferred.
func (p *Pace) suspect(now time.Time) Effect {
	x, usual := p.firsts.since(p.counted, firstsKept), usualNow(p, now)
	stated := p.stated && p.rate >= p.ceiling
	bad := p.firsts.badShare(p.counted)
	early := x.n >= sureTries && bad > shareMost && x.likely > bad*likelyOwn
	if bad > shareBad && bad < nearlyAll && x.likely > bad/ownTimes && (early || x.n >= shareTries) &&
		now.Sub(p.manyAt) > usualFor {
		p.manyAt = now
		limit := measured(p, now)
		if float64(p.firsts.row) < bad*float64(x.n)/2 { // a longer row is a penalty
			limit = min(limit, (1-bad)*asked(p, now, x))
		}
		return beginTest(p, test{share: bad, many: true}, limit, true, now)
	}
	switch {
	case x.n >= sureTries && now.Sub(p.firsts.firstBad(p.counted)) < time.Second: // a rate is measured over a second
		return Unchanged
	case tooMany(p, &x, usual):
		if grey, n := p.firsts.saidGreylisted(p.counted); p.grey.foundInWords(p, grey, n, now) {
			return Unchanged
		}
		return p.slow(now, x.likely, measured(p, now), true)
	case p.later.tries < laterTries, p.later.seen < shareLeast, p.later.share <= usualMore*usual+shareFound,
		now.Sub(p.usualAt) < testGap, p.edge > 0 && p.rate >= enoughLess*p.edge && p.later.share <= shareSet:
		return p.overspent(now)
	case stated && p.later.share <= shareSet:
		return p.slow(now, p.later.share, asked(p, now, x)*slower/below, false)
	}
	return p.slow(now, max(p.later.share, x.likely), measured(p, now), false)
}

// tooMany reports whether the rate is surely too high. With fewer tries the deferred share must be larger.
func tooMany(p *Pace, x *sample, usual float64) bool {
	newest := p.firsts.since(p.counted, sureTries)
	switch {
	case newest.n < sureTries:
		return false
	case newest.likely > max(shareNow, usual+shareSure), x.likely > max(shareSure, usual+shareMore):
		return true
	}
	return x.n >= shareTries && x.likely > usual+shareMany && p.later.seen >= shareLeast
}

// measured returns the limit that good answers show: how many addresses passed in the second before the newest row of
// bad answers. The result may be too high if the receiver counts by the seconds of its clock.
func measured(p *Pace, now time.Time) float64 {
	passed := float64(p.flow.over(p.firsts.badSince(now)))
	if passed == 0 {
		return p.rate / 2 / below
	}
	return min(p.rate, max(p.floor(), passed/p.share))
}

// asked returns how many a second we lately asked, perhaps fewer than allowed.
func asked(p *Pace, now time.Time, x sample) float64 {
	n, ran := p.used, now.Sub(p.began)
	if x.span >= time.Second && n < x.n {
		n, ran = x.n, x.span
	}
	if ran < time.Second || n == 0 {
		return p.rate
	}
	most := max(float64(n)/ran.Seconds(), float64(p.flow.over(p.firsts.newest().sent))) // the tries may have a gap
	return min(p.rate, max(p.floor(), most/p.share))
}

// slow lowers the rate below the measured limit, and tests whether that helps.
func (p *Pace) slow(now time.Time, share, limit float64, rests bool) Effect {
	if newest := p.firsts.since(p.counted, sureTries); newest.n >= sureTries { // a single second may show too little
		passes := 1 - newest.likely
		limit = max(limit, passes*passes*asked(p, now, newest)) // squared, to be clearly slower if many are deferred
	}
	return beginTest(p, test{share: share}, limit, rests, now)
}

func beginTest(p *Pace, t test, limit float64, rests bool, now time.Time) Effect {
	t.open, t.saved = true, p.search
	p.test, p.later = t, transients{}
	from := p.rate
	p.lower(below*limit, limit, now)
	p.enter(PhaseTesting, now, fmt.Sprintf("%.0f %% of the newest addresses were deferred at %s; now %s, to see whether fewer are then",
		100*t.share, perSecond(from), perSecond(p.rate)))
	p.counted = now.Add(settles)
	if rests {
		p.until = p.counted
	}
	p.stretch(p.counted)
	return Slower
}

// judge handles a first try during a test. bad is the chance that it was deferred for another reason than its address.
func (p *Pace) judge(bad float64, now time.Time) {
	switch again := &p.test.again; {
	case !p.test.open:
	case again.takeFresh(bad, p.firsts.newestKind()) && !p.grey.on:
		p.grey.begin(p, agreed(again.votes), now)
		p.grey.found = true
	default:
		p.test.tries++
		weighAnswer(p, bad, false, now)
	}
}

// weighAnswer handles an answer during a test, to a first try or to an address asked again. bad is the chance that the
// answer isn't about its address; 0: a good answer. If our rate is the cause, bad answers become fewer. Once the cause
// is clear, the test ends.
func weighAnswer(p *Pace, bad float64, again bool, now time.Time) {
	s := min(p.test.share, 0.95)
	if p.test.many {
		bad = math.Ceil(bad)
	}
	if p.test.bad += bad; bad == 0 {
		p.test.passed++
	}
	if again {
		p.test.odds -= math.Log(1 - (1-fallsTo)*bad)
	} else {
		p.test.odds += bad*math.Log(1/fallsTo) - (1-bad)*math.Log((1-fallsTo*s)/(1-s))
	}
	switch left := p.test.bad / p.test.tries; {
	case p.test.odds >= decided && (p.test.tries < sureTries || p.test.passed == 0): // too few tries, or a penalty
	case p.test.odds >= decided && left < helped*s: // the rate is still too high
		saved, many := p.test.saved, p.test.many
		p.slow(now, left, p.rate*(1-left), false)
		p.test.saved, p.test.many = saved, many
	case p.test.odds >= decided:
		p.test.open = false
		p.search = p.test.saved
		if p.test.many {
			p.firsts.blameAddresses(p.counted)
		} else {
			p.usual, p.usualAt = left, now
		}
		p.stretch(now)
		p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses (%.0f %%) are deferred when we ask slower, "+
			"so the addresses are the cause; %s again", 100*p.test.share, perSecond(p.rate)))
		p.counted = now
	case !p.test.many && p.firsts.isAllOwn():
		p.Ignore(now) // the addresses are the cause: they fail again
	case p.test.odds <= -decidedLimit && p.test.again.freshPass():
		if p.test.open = false; p.test.many {
			p.firsts.kinds.forgetAll()
		}
		p.credit = creditTrial
		p.stretch(now)
		p.enter(PhaseHolding, now, fmt.Sprintf("fewer addresses are deferred at %s than at %s: a limit of about %s", perSecond(p.rate),
			perSecond(p.test.saved.rate), perSecond(p.edge)))
	}
}

// overspent lowers the rate a little near a known limit if there were more deferrals than good answers pay for. If
// several small steps don't help, there is no limit.
func (p *Pace) overspent(now time.Time) Effect {
	if p.edge == 0 || p.credit > -1 || p.rate < enoughLess*p.edge || p.firsts.row > 1 {
		return Unchanged
	}
	from, first, began := p.rate, p.stepsFrom, p.stepsAt
	if first == 0 {
		first, began = from, p.counted
	}
	x, usual := p.firsts.since(began, firstsKept), usualNow(p, now)
	if p.stepsFrom == 0 {
		began, p.stepsShare = now, x.likely
	}
	few, more := p.firsts.since(began, nearTries), p.firsts.since(began, sureTries)
	if few.n >= nearTries && few.likely > usual+shareNow ||
		more.n >= sureTries && more.likely > usualMore*usual+shareMore {
		return p.slow(now, max(few.likely, more.likely), measured(p, now), false)
	}
	to, share := (1-max(2*stepLeast, min((more.likely-usual)/2, 1-enoughLess)))*from, p.stepsShare
	ours := max(0, 1-(1-share)*first/from) // share that a limit would defer now
	if to >= enoughLess*first || x.n < shareTries || x.likely < (share+ours)/2 {
		p.failedTrial(now, 0, 0)
		p.lower(to, from, now)
		p.stepsFrom, p.stepsAt, p.stepsShare, p.counted = first, began, share, now
		p.enter(PhaseHolding, now, fmt.Sprintf("some addresses were deferred at %s and passed later; now %s", perSecond(from), perSecond(p.rate)))
		return Slower
	}
	p.usual, p.usualAt = max(p.usual, min(p.later.share, shareSet)), now
	p.rate, p.edge, p.steps, p.credit = first, 0, steps{}, 0
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses are deferred at %s as at %s, "+
		"so the addresses are the cause; %s again", perSecond(from), perSecond(p.rate), perSecond(p.rate)))
	return Unchanged
}

// endTrial takes back a raise at the first deferral of a kind that is known to be transient. So a raise costs one
// deferral.
func (p *Pace) endTrial(now time.Time) Effect {
	from := p.rate
	p.spend(1)
	p.failedTrial(now, 0, 0)
	p.until = later(p.until, p.spentUntil())
	p.lower(min(p.proved, nearEdge*from), from, now)
	p.counted = now
	p.enter(PhaseHolding, now, fmt.Sprintf("an address was deferred at %s; now %s", perSecond(from), perSecond(p.rate)))
	return Slower
}

// stepBack takes back a raise near a known limit after a row of deferrals.
func (p *Pace) stepBack(now time.Time) Effect {
	if now.Sub(p.stepped) < quietNothing { // the limit counts over a longer time: waiting ends it
		return p.nothingPasses(now)
	}
	from, to, row := p.rate, below*p.edge, p.firsts.row
	if p.stepped = now; p.nothing.failed.Before(p.nothing.from) {
		p.nothing.failed = p.firsts.badSince(now)
	}
	if p.trying && p.proved > 0 {
		to = p.proved
	}
	p.failedTrial(now, 0, 0)
	p.until = later(now.Add(settles), p.spentUntil())
	p.lower(min(to, nearEdge*from), from, now)
	p.counted = p.until
	p.stretch(p.until)
	p.firsts.forgetRow()
	p.enter(PhaseHolding, now, fmt.Sprintf("%d addresses in a row were deferred at %s; now %s", row, perSecond(from), perSecond(p.rate)))
	return Slower
}

func phaseOf(p *Pace) Phase {
	if p.rate >= p.ceiling {
		return PhaseFull
	}
	return PhaseHolding
}

// RateState is what a Pace does, and why.
type RateState struct {
	Rate    float64 // permitted events a second, all shares together
	Floor   float64
	Ceiling float64
	Edge    float64 // the last rate that was too high; 0: unknown
	Phase   Phase
	Since   time.Time
	Until   time.Time // nothing is sent before this time
	Why     string    // the reason of the last change, as a sentence
}

// Explain returns the present state.
func (p *Pace) Explain() RateState {
	s := RateState{Rate: p.rate, Floor: p.floor(), Ceiling: p.ceiling, Edge: p.edge, Phase: p.phase, Since: p.since,
		Until: p.until, Why: p.why}
	if p.nothing.on {
		s.Rate = 0
	}
	return s
}

// BeginAgain forgets the learned rate, because something else caused the deferrals.
func BeginAgain(p *Pace, now time.Time, why string) {
	p.Ignore(now)
	p.nothing.on = false
	p.edge, p.trying, p.steps, p.until = 0, false, steps{}, now
	p.search.begin(now)
	p.enter(phaseOf(p), now, why)
}

// HasChanged reports whether the phase or its reason has just changed.
func HasChanged(p *Pace, now time.Time) bool { return p.since.Equal(now) }

// Lasting returns our share of the rate that holds after the present pause. For an unknown receiver it is the ceiling.
func (p *Pace) Lasting() float64 {
	if p.phase == PhaseStarting {
		return p.ceiling * p.share
	}
	return p.rate * p.share
}

// RateMemory is the stored state with which the next Pace begins.
type RateMemory struct {
	Rate        float64       // rate in use, events a second, all shares together
	Edge        float64       // the rate that was too high; 0: unknown
	Usual       float64       // share of addresses that is deferred at any rate
	Grey        bool          // the receiver greylists every address
	Kinds       string        // kinds of replies that mean "greylisted", with commas; "": not known
	Alone       bool          // no address passed
	NeverPassed bool          // no address had ever passed
	Long        time.Duration // about the time over which the limit counts; 0: a second
}

// Remember returns the state to store; false: no rate below the ceiling was learned.
func (p *Pace) Remember() (RateMemory, bool) {
	m := RateMemory{Rate: p.rate, Edge: p.edge, Usual: p.usual, Grey: p.grey.on, Kinds: p.grey.kinds,
		Alone: p.nothing.on, NeverPassed: p.nothing.on && p.nothing.neverPassed}
	if p.long {
		m.Long = max(p.cycle, time.Millisecond)
	}
	if p.test.open {
		m.Rate, m.Edge = p.test.saved.rate, p.test.saved.edge
	} else if x := &p.nothing; x.on && !x.excused && !x.proven && x.limit > 0 && below*x.limit < clearlyLess*p.rate {
		m.Rate, m.Edge = below*x.limit, x.limit // the rate that resume would choose
	}
	return m, m.Grey || m.Alone || m.Usual > 0 || p.phase != PhaseStarting && (m.Edge > 0 || m.Rate < p.ceiling)
}

// Recall takes over the state of an earlier Pace; the stricter of stored and present values counts.
func (p *Pace) Recall(m RateMemory, now time.Time) {
	if m.Grey {
		p.grey.begin(p, m.Kinds, now)
	}
	if m.Alone && !m.Grey {
		p.stopAsking(now, "", "")
		p.nothing.stepped, p.nothing.limit, p.nothing.neverPassed = m.Edge > 0, m.Edge, m.NeverPassed
		p.enter(PhaseNothing, now, "nothing passed before this node took the receiver over: we ask one address at a time")
	}
	if m.Usual > p.usual && m.Usual < 1 {
		p.usual, p.usualAt = m.Usual, now
	}
	if !(m.Rate > 0) || p.edge > 0 && p.rate <= m.Rate {
		return
	}
	p.rate, p.edge = min(p.ceiling, max(m.Rate, p.floor())), m.Edge
	p.long, p.cycle = m.Long > 0, min(m.Long, cycleMost)
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf("%s was the rate before this node took the receiver over", perSecond(m.Rate)))
}

// Wake ends every wait, because an operator asked for it or the cause has ended.
func (p *Pace) Wake(now time.Time) {
	p.until = now
	if p.nothing.on {
		p.nothing = Nothing{good: now}
		p.enter(phaseOf(p), now, "the cause has ended")
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
