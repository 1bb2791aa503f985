package throttle

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// A receiver that greylists defers every new address and accepts it after a wait. Below, a repeated address is an
// address that is asked again, and a due address has waited long enough. Greylisting is found in three ways:
//   - by words: no address is accepted, and nearly all deferrals say "greylisted" (foundInWords);
//   - while nothing passes: repeated addresses pass, but new ones asked right after them fail (foundAlone);
//   - during a test of a lower rate: repeated addresses pass and new ones fail (compared).
//
// Greylist learns how long an address has to wait at one source. greyWait in actors/receiver/scheduler/ask_again.go
// uses it, together with what actors/domain/retry_waits.go learned.

// greyLonger is added to a wait that sufficed, because receivers count whole seconds.
const greyLonger = time.Second

// Greylist is what we know of how long a receiver makes an address wait at one of our sources. Receivers count from the
// moment when they first saw the address (RFC 6647 §5.1). Waits in Greylist count from that moment too.
type Greylist struct {
	Enough time.Duration // the shortest wait that sufficed; 0: not known
	Short  time.Duration // the longest wait that didn't suffice

	deferred int
	sufficed time.Duration // like Enough, but kept when addresses with that wait fail again
	perhaps  time.Duration // like Enough, but the address may have waited longer
	inVain   int           // addresses asked again since one passed
}

// Passed notes that an address was answered after a wait. unsure: an earlier owner of its file may have asked the
// address, so it may have waited longer. Such an address doesn't show when others are due.
func (g *Greylist) Passed(waited time.Duration, unsure bool) {
	if waited > g.Short { // otherwise the wait isn't what decides
		g.inVain = 0
	}
	switch {
	case unsure && waited > g.Short && (g.perhaps == 0 || waited < g.perhaps):
		g.perhaps = waited
	case !unsure && (g.Enough == 0 || waited < g.Enough):
		g.Enough, g.sufficed = waited, waited
	}
}

// IsDue reports whether an address has waited long enough. If no wait is known to suffice any more, the last known one
// decides.
func (g *Greylist) IsDue(waited time.Duration) bool {
	if g.Enough == 0 && g.inVain >= dueTries {
		return g.sufficed > 0 && waited >= g.sufficed
	}
	return g.Enough > 0 && waited >= g.Enough
}

// Again notes that an address was deferred again after a wait. If a shorter wait sufficed before, the receiver has
// changed.
func (g *Greylist) Again(waited time.Duration) {
	g.inVain++
	g.Short = max(g.Short, waited)
	if g.Enough <= g.Short {
		g.Enough = 0
	}
	if g.perhaps <= g.Short {
		g.perhaps = 0
	}
}

// Wait returns the wait for an address that was just deferred; 0: unknown.
func (g *Greylist) Wait() time.Duration {
	if wait := cmp.Or(g.Enough, g.perhaps); wait > 0 {
		return wait + greyLonger
	}
	return 0
}

// greySample: one deferred address in this many is asked again sooner, to find out whether a shorter wait suffices.
const greySample = 16

// Sooner returns a shorter wait for one in greySample addresses. The wait lies between the longest that was too short
// and the shortest that sufficed. 0: the address isn't in the sample, or the two are nearly the same.
func (g *Greylist) Sooner() time.Duration {
	g.deferred++
	if wait := (g.Short + g.Enough) / 2; g.Short > 0 && g.deferred%greySample == 0 && wait > g.Short+g.Short/8 {
		return wait
	}
	return 0
}

// How we find that every address is greylisted, and not limited by rate.
const (
	// raiseAgain is the factor by which a test's rate rises if no new address is left to ask.
	raiseAgain = 1.5

	// greyVotes is how many new addresses must fail, each right after a repeated address passed, to show greylisting.
	greyVotes = 3

	// greyOdds are the odds, as a logarithm, that a test needs to conclude that repeated addresses pass more often than
	// new ones.
	greyOdds = 4.6

	// At a greylisting receiver the share of due addresses that passes exceeds the share of new ones by greyMargin or
	// more. At a rate limit the two shares are equal. The comparison needs dueLeast due addresses, and freshPass new
	// addresses that passed.
	greyMargin = 0.25
	freshPass  = 3
	dueLeast   = 6

	// If fewer than greyMargin of the due addresses pass, we slow down to greyMargin of the rate. A rate below greySlow
	// times the lowest one isn't lowered further.
	greySlow = 5

	// greyPatience is how long we believe replies that say "greylisted" while no address passes. Most receivers make an
	// address wait for five minutes.
	greyPatience = 12 * time.Minute

	// wrongFor is how long we ignore replies that say "greylisted" after they proved wrong.
	wrongFor = 10 * time.Minute

	// greyHelps: if our rate is the cause, at least this much more of the due addresses pass at a lower rate.
	greyHelps = 0.1

	// unsureMost is how many addresses an earlier owner of their file may have asked without storing their outcomes.
	unsureMost = 64

	// dueTries is how many due addresses must be answered to show whether due addresses pass.
	dueTries = 20
)

// greylisting tracks a receiver that defers every new address, whatever our rate, and accepts it later. A reply of one
// of the known kinds shows that the receiver had time for the address. If no kind is known, only due addresses show
// whether our rate is too high.
type greylisting struct {
	on    bool
	since time.Time
	wrong time.Time
	found bool   // shown by addresses that passed, not by words alone
	kinds string // the kinds of replies that mean "greylisted", with commas; "": not known

	passed   time.Time     // when the newest address passed
	patience time.Duration // how long we wait for an address to pass
	unsure   int           // addresses that passed, though an earlier owner may have asked them
	fresh    int           // new addresses since greylisting was found
	share    float64       // share of the newest new addresses that passed
	due, ok  float64       // the newest due addresses, and how many of them passed

	lowered, shareThen float64 // rate and share that passed before we slowed down; 0: we didn't slow down
	usual              float64 // share of due addresses that fails at any rate
}

// Greylisting reports whether we assume that the receiver defers every new address and accepts it later.
func (p *Pace) Greylisting() bool { return p.grey.on }

// IsGreylisted reports whether we assume that replies of a kind mean "greylisted".
func IsGreylisted(p *Pace, kind string) bool { return p.grey.on && !p.grey.isOther(kind) }

// isItsKind reports whether replies of a kind are known to mean "greylisted". Such replies show that the receiver had
// time for the address.
func (g *greylisting) isItsKind(kind string) bool {
	code, _, _ := strings.Cut(kind, KindText)
	kinds := strings.Split(g.kinds, kindsApart)
	return kind != "" && (slices.Contains(kinds, kind) || slices.Contains(kinds, code))
}

// isOther reports whether replies of a kind have nothing to do with greylisting. A 5xx never counts as such: it may be
// about the length of a transaction, and only clients that have passed the greylist get that far.
func (g *greylisting) isOther(kind string) bool {
	return g.kinds != "" && !g.isItsKind(kind) && !strings.HasPrefix(kind, "5")
}

// isCredible reports whether we believe replies that say "greylisted". We don't after one proved wrong, or after a new
// address was accepted. A missing one may be refused before it is greylisted.
func (g *greylisting) isCredible(p *Pace, now time.Time) bool {
	return !p.firsts.someAccepted() && (g.wrong.IsZero() || now.Sub(g.wrong) >= wrongFor)
}

// foundInWords finds greylisting if at least nine of ten bad replies say "greylisted".
func (g *greylisting) foundInWords(p *Pace, said votes, bad int, now time.Time) bool {
	if g.on || said.n == 0 || 10*said.n < 9*bad || !g.isCredible(p, now) {
		return false
	}
	g.begin(p, agreed(said), now)
	return true
}

// foundAlone finds greylisting while nothing passes. Either greyVotes new addresses failed, each right after a repeated
// one passed, or the replies to greyVotes new addresses in a row say "greylisted".
func (g *greylisting) foundAlone(p *Pace, t *Try, now time.Time) bool {
	x := &p.nothing
	if x.passedAgain > x.before {
		x.before = x.passedAgain
		x.votes.addKind(t.Kind)
	}
	if x.said.addKind(t.Kind); !t.Greylisted || !g.isCredible(p, now) {
		x.said = votes{}
	}
	for _, v := range []*votes{&x.votes, &x.said} {
		if v.n >= greyVotes && !g.on {
			g.begin(p, agreed(*v), now)
			return true
		}
	}
	return false
}

// begin starts to treat the receiver as greylisting. kinds are the kinds of replies that mean "greylisted".
func (g *greylisting) begin(p *Pace, kinds string, now time.Time) {
	if g.on {
		return
	}
	*g = greylisting{on: true, since: now, wrong: g.wrong, found: p.nothing.on, kinds: kinds, passed: now,
		patience: greyPatience}
	if g.found {
		g.patience = 2*now.Sub(p.nothing.since) + time.Minute
	}
	p.test.open = false
	p.search.begin(now) // the old rate came from greylisting, not from a limit
	p.rate, p.edge, p.trying, p.steps = p.ceiling, 0, false, steps{}
	p.firsts.forgetRow()
	p.nothing.on = false
	p.counted, p.until = now, now
	p.stretch(now)
	p.enter(phaseOf(p), now, fmt.Sprintf(
		"new addresses are greylisted: all are asked at %s, and again when they are due", perSecond(p.rate)))
}

// end stops treating the receiver as greylisting.
func (g *greylisting) end(p *Pace, now time.Time, why string) {
	g.on, g.kinds = false, ""
	p.firsts.forgetRow()
	p.counted = now
	p.stretch(now)
	p.enter(phaseOf(p), now, why)
}

// takeFresh handles a first try while the receiver counts as greylisting.
func (g *greylisting) takeFresh(p *Pace, passed bool, now time.Time) {
	g.fresh++
	g.share -= g.share / float64(min(g.fresh, firstsKept))
	if !passed {
		return
	}
	g.passed = later(g.passed, now)
	g.share += 1 / float64(min(g.fresh, firstsKept))
	switch n := float64(min(g.fresh, firstsKept)); {
	case n >= dueTries && g.share >= 0.5:
		p.usual, p.usualAt = max(usualNow(p, now), 1-g.share), now
		g.end(p, now, "new addresses pass at once now: it greylists no longer")
	case g.share*n >= freshPass-0.01 && g.isWrong(g.share):
		g.end(p, now, "new addresses pass as often as those that have waited: it isn't greylisting, whatever its replies say")
		g.wrong = now
	}
}

// takeBad handles a bad answer to a first try while the receiver counts as greylisting. done: nothing else is to be
// learned from the answer.
func (g *greylisting) takeBad(p *Pace, t *Try, now time.Time) (e Effect, done bool) {
	switch {
	case now.Sub(g.passed) > g.patience:
		g.end(p, now, "no address passes, however long it has waited: it isn't greylisting, whatever its replies say")
		g.wrong = now
		return p.nothingPasses(now), true
	case g.isOther(t.Kind):
		return Unchanged, false
	case !g.isItsKind(t.Kind):
		add(p, t)
		p.search.useRate(t.Sent)
		g.takeFresh(p, false, now)
		return Unchanged, true
	}
	g.takeFresh(p, false, now)
	take(p, *t, now)
	return Unchanged, true
}

// isWrong reports whether due addresses don't pass clearly more often than new ones: then it isn't greylisting.
func (g *greylisting) isWrong(fresh float64) bool {
	if g.due < dueLeast {
		return !g.found
	}
	return g.ok < (fresh+greyMargin)*g.due
}

// Retried handles the answer to a deferred address that was asked again. due: the address has waited as long as other
// addresses had to. While every new address is greylisted, due addresses show whether we are too fast.
func (p *Pace) Retried(sent time.Time, passed, due bool, kind string, now time.Time) Effect {
	p.asks.add(sent)
	g := &p.grey
	switch took := passed || !due && g.isItsKind(kind); {
	case g.kinds != "" && took:
		take(p, Try{Sent: sent}, now)
	case g.isOther(kind) && due:
		return p.Bad(Try{Sent: sent, Result: Deferred, Kind: kind}, now) // a new address would have got the same reply
	case passed:
		p.passed(sent, now)
	case g.on && due:
		p.search.bad(sent, 1)
	default:
		p.search.useRate(sent)
	}
	if g.kinds == "" {
		testAgain(p, sent, passed, kind, now)
		if p.nothing.on {
			return p.againAlone(passed, now)
		}
	}
	if !g.on && !passed {
		return runDry(p, sent, kind, now)
	}
	if !g.on || !due && !passed {
		return Unchanged
	}
	keep := 1 - 1.0/dueTries
	g.due, g.ok = g.due*keep+1, g.ok*keep
	if passed {
		g.ok, g.found, g.passed = g.ok+1, true, later(g.passed, now)
		return Unchanged
	}
	share := g.ok / g.due
	if g.due < dueTries/2 || 1-share < max(shareSure, g.usual+shareMore) {
		return Unchanged
	}
	if g.ok < greyMargin*g.due && g.found && p.rate > greySlow*p.floor() { // we are much too fast
		g.due, g.ok, g.lowered = 0, 0, 0
		p.lower(greyMargin*p.rate, p.rate, now)
		p.enter(PhaseHolding, now, "hardly any greylisted address passed after its wait; now "+perSecond(p.rate))
		return Slower
	}
	if g.ok < greyMargin*g.due {
		g.end(p, now, "addresses that have waited don't pass either: it isn't greylisting, whatever its replies say")
		g.wrong = now
		return Slower
	}
	g.due, g.ok = 0, 0
	if g.lowered > 0 && share < g.shareThen+greyHelps {
		p.rate, p.edge = g.lowered, 0
		g.lowered, g.usual = 0, 1-share
		p.stretch(now)
		p.enter(phaseOf(p), now, fmt.Sprintf("as many greylisted addresses fail after their wait when we ask slower, "+
			"so the addresses are the cause; %s again", perSecond(p.rate)))
		return Unchanged
	}
	g.lowered, g.shareThen = p.rate, share
	p.lower(max(below*share*p.rate, p.rate/2), p.rate, now)
	p.enter(PhaseHolding, now, "greylisted addresses were deferred again after their wait; now "+perSecond(p.rate))
	return Slower
}

// votes are the new addresses that failed right after a repeated address passed, counted by the kind of reply.
type votes struct {
	n     int
	kinds map[string]int
}

const kindsApart = ","

func (v *votes) addKind(kind string) {
	if v.kinds == nil {
		v.kinds = map[string]int{}
	}
	v.n++
	v.kinds[kind]++
}

// agreed returns the kinds of reply that have two votes or more, with commas between them. If no kind has two, it
// counts by reply code instead.
func agreed(v votes) string {
	codes := map[string]int{}
	for kind, n := range v.kinds {
		code, _, _ := strings.Cut(kind, KindText)
		codes[code] += n
	}
	for _, kinds := range []map[string]int{v.kinds, codes} {
		maps.DeleteFunc(kinds, func(_ string, n int) bool { return n < 2 })
		if len(kinds) > 0 {
			return strings.Join(slices.Sorted(maps.Keys(kinds)), kindsApart)
		}
	}
	return ""
}

// compared counts the repeated and the new addresses of a test. If repeated addresses pass and new ones fail, the
// receiver greylists: our rate isn't the cause.
type compared struct {
	next     time.Time // when the next address may be asked again
	followed bool      // the newest repeated address passed, and no new one was answered since
	alone    int       // repeated addresses that passed in a row, without a new one in between
	raised   bool      // the rate was raised because repeated addresses passed
	ended    bool      // a repeated address failed after that raise
	votes    votes     // new addresses that failed right after a repeated one passed
	passed   float64   // repeated addresses that passed
	again    float64
	failed   float64 // new addresses that failed
	fresh    float64
}

// takeAgain counts the answer to an address that was asked again.
func (c *compared) takeAgain(passed bool) {
	c.again++
	c.alone++
	if c.followed = passed; passed {
		c.passed++
	} else {
		c.alone = 0
	}
}

// takeFresh counts the answer to a new address. bad is the chance that the address isn't the cause, and kind the kind
// of the reply. takeFresh reports whether repeated addresses pass so much more often than new ones that it can't be
// chance.
func (c *compared) takeFresh(bad float64, kind string) bool {
	c.fresh++
	if bad >= likelyOwn {
		if c.failed++; c.followed {
			c.votes.addKind(kind)
		}
	}
	c.followed, c.alone = false, 0
	if c.votes.n < greyVotes {
		return false
	}
	good := c.fresh - c.failed
	all, odds := (c.passed+good)/(c.again+c.fresh), 0.0
	for _, x := range [][2]float64{{c.passed, c.again}, {good, c.fresh}} {
		odds += likelihood(x[0], x[1], x[0]/x[1]) - likelihood(x[0], x[1], all)
	}
	return odds >= greyOdds && c.passed/c.again >= good/c.fresh+greyMargin
}

// testAgain handles the answer to an address that was asked again during a test. If the test began because most
// addresses were deferred, the answer proves as much as that to a new address: both were sent at the lower rate. If few
// were deferred, the answer is ignored, because an address that was deferred mostly fails again at any rate.
func testAgain(p *Pace, sent time.Time, passed bool, kind string, now time.Time) {
	if p.nothing.on || sent.Before(p.counted) || p.test.share <= shareSure {
		return
	}
	p.test.again.takeAgain(passed)
	switch {
	case !p.test.open:
	case passed:
		p.test.tries++
		weighAnswer(p, 0, false, now)
		noneFresh(p, true, now)
	default:
		ours := p.firsts.kinds.of(kind).transientChance()
		p.test.tries += ours
		noneFresh(p, false, now)
		weighAnswer(p, ours, true, now)
	}
}

// noneFresh raises the rate of a test by half if only repeated addresses are left and they pass. New addresses would
// decide the test; without them it would take long at a low rate. The first failure after such a raise takes the raise
// back.
func noneFresh(p *Pace, passed bool, now time.Time) {
	c := &p.test.again
	switch {
	case !passed && c.raised:
		c.raised, c.ended = false, true
		p.rate /= raiseAgain
	case !p.test.open || c.ended || c.fresh > 0 || c.alone < passesAlone || raiseAgain*p.rate > p.test.saved.rate:
		return
	default:
		c.raised, c.alone = true, 0
		p.rate *= raiseAgain
	}
	p.stretch(now)
	p.enter(PhaseTesting, now, "only addresses that were asked before are left to show the limit; now "+perSecond(p.rate))
}

// freshPass reports whether at least a few new addresses were asked and most of them passed.
func (c *compared) freshPass() bool { return c.fresh >= freshPass && 2*c.failed < c.fresh }

// likelihood is the logarithm of the chance that passed of n pass, if each passes with probability share.
func likelihood(passed, n, share float64) (sum float64) {
	if passed > 0 {
		sum += passed * math.Log(share)
	}
	if n > passed {
		sum += (n - passed) * math.Log(1-share)
	}
	return sum
}

// AskAgainAt returns when an address may be asked again, mostly now. During a test new addresses decide, so only every
// second address may be a repeated address. If AskAgainAt returns now, the caller has used this turn.
func AskAgainAt(p *Pace, now time.Time) time.Time {
	c := &p.test.again
	if !p.test.open {
		return now
	}
	if now.Before(c.next) {
		return c.next
	}
	c.next = now.Add(time.Duration(2 / (p.rate * p.share) * float64(time.Second)))
	return now
}
