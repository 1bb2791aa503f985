package throttle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// That a receiver greylists every new address is found here, in three ways: by the words of a row in which nothing
// passes (foundInWords), by addresses that pass when asked again while new ones behind them don't (foundAlone), and
// by the same comparison during a test (compared). How long it makes an address wait is learned here for a source
// (Greylist), and beside other sources in actors/domain/retry_waits.go; greyWait in
// actors/receiver/scheduler/ask_again.go uses both.

// greyLonger is how much longer a wait is than one that sufficed: receivers count whole seconds.
const greyLonger = time.Second

// Greylist is how long a greylisting receiver makes one of our sources wait, as far as is known. Receivers count from
// the first time they saw an address (RFC 6647 §5.1), so waits count from there.
type Greylist struct {
	Enough time.Duration // the shortest wait that sufficed; 0: not known
	Short  time.Duration // the longest wait that didn't

	deferred int
	sufficed time.Duration // as Enough, but also when addresses that waited that long no longer passed
	inVain   int           // asked again since one passed
}

// Passed learns that an address was answered after a wait.
func (g *Greylist) Passed(waited time.Duration) {
	if waited > g.Short { // else it isn't the time that matters
		g.inVain = 0
	}
	if g.Enough == 0 || waited < g.Enough {
		g.Enough, g.sufficed = waited, waited
	}
}

// IsDue reports whether an address has waited as long as suffices, or as sufficed before addresses stopped passing.
func (g *Greylist) IsDue(waited time.Duration) bool {
	if g.Enough == 0 && g.inVain >= dueTries {
		return g.sufficed > 0 && waited >= g.sufficed
	}
	return g.Enough > 0 && waited >= g.Enough
}

// Again learns that an address was deferred again after a wait. If a shorter one sufficed before, the receiver has
// changed.
func (g *Greylist) Again(waited time.Duration) {
	g.inVain++
	g.Short = max(g.Short, waited)
	if g.Enough <= g.Short {
		g.Enough = 0
	}
}

// Wait returns the wait for an address that was just deferred; 0: unknown.
func (g *Greylist) Wait() time.Duration {
	if g.Enough == 0 {
		return 0
	}
	return g.Enough + greyLonger
}

// greySample: one in this many deferred addresses is asked again before the wait that is known to suffice.
const greySample = 16

// Sooner returns a wait for one in greySample addresses, between the longest that didn't suffice and the shortest that
// did, unless these are nearly the same; 0: none.
func (g *Greylist) Sooner() time.Duration {
	g.deferred++
	if wait := (g.Short + g.Enough) / 2; g.Short > 0 && g.deferred%greySample == 0 && wait > g.Short+g.Short/8 {
		return wait
	}
	return 0
}

// How greylisting of every address is found, and distinguished from a limit.
const (
	// raiseAgain is the factor by which the pace of a test rises if no new address is left to ask.
	raiseAgain = 1.5

	// greyVotes is how often a fresh address must fail right behind an address that passed when asked again.
	greyVotes = 3

	// greyOdds: at these odds (a logarithm) addresses asked again in a test are judged to pass more often than new ones.
	greyOdds = 4.6

	// greyMargin is how much more often addresses that have waited pass than fresh ones if a receiver greylists; a limit
	// doesn't distinguish them. At least freshPass fresh ones and dueLeast of the others are needed to tell.
	greyMargin = 0.25
	freshPass  = 3
	dueLeast   = 6

	// If fewer than greyMargin of the due addresses pass, we ask slower in proportion, down to greySlow times the
	// lowest pace.
	greySlow = 5

	// greyPatience is how long replies that name greylisting are believed while no address passes: most receivers make
	// an address wait five minutes.
	greyPatience = 12 * time.Minute

	// wrongFor is how long replies that name greylisting are ignored after such replies were wrong.
	wrongFor = 10 * time.Minute

	// greyHelps is how much more of the due ones pass when we ask slower, if our pace was the cause.
	greyHelps = 0.1

	// unsureMost is how many addresses an earlier owner may have asked without settling them.
	unsureMost = 64

	// dueTries is how many due addresses show whether they pass.
	dueTries = 20
)

// greylisting tracks whether every fresh address is deferred whatever we do, and passes later. A reply of its kinds
// then says that the receiver had time for an address; if no kind is known, first tries say nothing about our pace. Due
// retries do.
type greylisting struct {
	on    bool
	since time.Time
	wrong time.Time
	found bool   // shown by addresses that pass, not by words alone
	kinds string // of replies to fresh addresses by which it was found, with commas; "": not known

	passed   time.Time     // when the newest address passed
	patience time.Duration // during which no address may pass at all
	unsure   int           // addresses that passed, but an earlier owner may have asked them
	fresh    int           // new addresses since it began
	share    float64       // of these, by the newest: how many passed
	due, ok  float64       // of the newest due ones: how many, and how many passed

	lowered, shareThen float64 // the pace before due ones failed, and the share that passed; 0: none did
	usual              float64 // share of due ones that doesn't pass at any pace
}

// Greylisting reports whether we assume that every fresh address is deferred and passes later.
func (p *Pace) Greylisting() bool { return p.grey.on }

// IsGreylisted reports whether we assume that addresses with a kind of reply are greylisted.
func IsGreylisted(p *Pace, kind string) bool { return p.grey.on && !p.grey.isOther(kind) }

// isItsKind reports whether the receiver greylists with a kind of reply: then it had time for the address.
func (g *greylisting) isItsKind(kind string) bool {
	code, _, _ := strings.Cut(kind, KindText)
	kinds := strings.Split(g.kinds, kindsApart)
	return kind != "" && (slices.Contains(kinds, kind) || slices.Contains(kinds, code))
}

// isOther reports whether a kind of reply is not about greylisting. Refusals don't show that: they may be about the
// length of a transaction, which only clients past greylisting reach.
func (g *greylisting) isOther(kind string) bool {
	return g.kinds != "" && !g.isItsKind(kind) && !strings.HasPrefix(kind, "5")
}

// isCredible reports whether we believe replies that say "greylisted": none was found wrong, and no new address passed.
func (g *greylisting) isCredible(p *Pace, now time.Time) bool {
	good, _ := p.firsts.goodSince(time.Time{})
	return good == 0 && (g.wrong.IsZero() || now.Sub(g.wrong) >= wrongFor)
}

// foundInWords begins when nine of ten in a row, of which none passed, were said to be greylisted.
func (g *greylisting) foundInWords(p *Pace, said votes, row int, now time.Time) bool {
	if g.on || 10*said.n < 9*row || !g.isCredible(p, now) {
		return false
	}
	g.begin(p, agreed(said), now)
	return true
}

// foundAlone begins, while nothing passes, when greyVotes new addresses failed, each right after one asked again had
// passed, or when so many in a row are said to be greylisted.
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

// begin starts to treat the receiver as greylisting, by kinds of replies.
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
	p.search.begin(now) // what was learned before was about the greylisting
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

// takeBad handles a bad answer to a first try while the receiver counts as greylisting. It reports whether that says
// nothing else.
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

// isWrong reports whether due addresses don't pass clearly more often than fresh ones.
func (g *greylisting) isWrong(fresh float64) bool {
	if g.due < dueLeast {
		return !g.found
	}
	return g.ok < (fresh+greyMargin)*g.due
}

// Retried handles the result of asking a deferred address again; due: it has waited as long as others had to. While
// every address is greylisted, due ones show whether we are too fast.
func (p *Pace) Retried(sent time.Time, passed, due bool, kind string, now time.Time) Effect {
	p.asks.add(sent)
	g := &p.grey
	switch took := passed || !due && g.isItsKind(kind); {
	case g.kinds != "" && took:
		take(p, Try{Sent: sent}, now)
	case g.isOther(kind) && due:
		return p.Bad(Try{Sent: sent, Result: Deferred, Kind: kind}, now) // a new address would have got it too
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
	if g.ok < greyMargin*g.due && g.found && p.rate > greySlow*p.floor() { // much too fast
		g.due, g.ok, g.lowered = 0, 0, 0
		p.lower(greyMargin*p.rate, p.rate, now)
		p.enter(PhaseHolding, now, "hardly an address that had waited long enough passed; now "+perSecond(p.rate))
		return Slower
	}
	if g.ok < greyMargin*g.due {
		g.end(p, now, "those that have waited don't pass either: it isn't greylisting, whatever its replies say")
		g.wrong = now
		return Slower
	}
	g.due, g.ok = 0, 0
	if g.lowered > 0 && share < g.shareThen+greyHelps {
		p.rate, p.edge = g.lowered, 0
		g.lowered, g.usual = 0, 1-share
		p.stretch(now)
		p.enter(phaseOf(p), now, fmt.Sprintf("as many addresses that had waited long enough are deferred when we ask slower: "+
			"it is about these addresses; %s again, the pace of before", perSecond(p.rate)))
		return Unchanged
	}
	g.lowered, g.shareThen = p.rate, share
	p.lower(max(below*share*p.rate, p.rate/2), p.rate, now)
	p.enter(PhaseHolding, now, fmt.Sprintf("addresses that had waited long enough were deferred again; now %s", perSecond(p.rate)))
	return Slower
}

// votes are the fresh addresses that failed right behind one that passed when asked again, by the kind of reply.
type votes struct {
	n     int
	kinds map[string]int
}

// kindsApart separates kinds of replies.
const kindsApart = ","

func (v *votes) addKind(kind string) {
	if v.kinds == nil {
		v.kinds = map[string]int{}
	}
	v.n++
	v.kinds[kind]++
}

// agreed returns the kinds that two or more votes share, with commas. If there are none, it does so with the codes.
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

// compared counts, during a test, addresses asked again and new ones. If the former pass and the latter don't, time
// is the reason and not our pace.
type compared struct {
	next     time.Time // when one more may be asked again
	followed bool      // the newest of them passed, and no new one was answered since
	alone    int       // how many of them passed in a row, with no new one in between
	raised   bool      // the pace was raised because these passed
	ended    bool      // one failed after the raise
	votes    votes     // new ones that failed right behind such
	passed   float64   // addresses asked again that passed
	again    float64
	failed   float64 // new addresses that failed
	fresh    float64
}

// takeAgain handles an address asked again.
func (c *compared) takeAgain(passed bool) {
	c.again++
	c.alone++
	if c.followed = passed; passed {
		c.passed++
	} else {
		c.alone = 0
	}
}

// takeFresh handles a new address, with the chance that it failed for another reason than its address, and the kind of
// its reply. It reports whether those asked again pass more often than by chance.
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

// testAgain handles an address that was asked again during a test. If most addresses are deferred, it proves as much as
// a new one, since it was sent at the lower pace too. If few are, most addresses asked again are deferred at any pace.
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

// noneFresh raises the pace of a test by half if only addresses asked again are left, and they pass: new addresses
// would decide the test, and at a low pace the rest would take long. The first failure after a raise ends this.
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
	p.enter(PhaseTesting, now, "no new address waits, only those asked again show the limit; now "+perSecond(p.rate))
}

// freshPass reports whether at least a few new addresses were asked and most of them passed.
func (c *compared) freshPass() bool { return c.fresh >= freshPass && 2*c.failed < c.fresh }

// likelihood is the logarithm of the chance that passed of n pass if each passes with the probability share.
func likelihood(passed, n, share float64) (sum float64) {
	if passed > 0 {
		sum += passed * math.Log(share)
	}
	if n > passed {
		sum += (n - passed) * math.Log(1-share)
	}
	return sum
}

// AskAgainAt returns when an address may be asked again: usually now. During a test only every second address is,
// since new ones decide it. If it returns now, the turn is used.
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
