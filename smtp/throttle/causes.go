package throttle

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Result is what came of asking about one address.
type Result uint8

// The results. Everything but an answer is bad.
const (
	Answered  Result = iota // 2xx, or 5xx about the mailbox
	PutOff                  // 4xx
	RefusedUs               // 5xx about us
	Cut                     // 421, or a connection lost with the RCPT on its way
)

// Trial is one RCPT of a receiver from one of our sources.
type Trial struct {
	Sent, At time.Time
	Domain   string
	Tenant   string // whose address it is
	Host     string // that was asked
	Again    bool   // it was put off here before
	Result   Result
	Said     string // code or trouble, for people; and by which replies are told apart
	OfUs     bool   // its words speak of our pace: two such suffice for a belief
	OfItself bool   // its words speak of the mailbox: it takes many such for a belief
}

// Bad reports whether a trial may say something about more than its address.
func (t *Trial) Bad() bool { return t.Result != Answered }

// Waiting says who waits at the receiver beside the one who was asked, and whether another host can be
// asked about them.
type Waiting struct{ OtherDomain, OtherTenant, OtherHost bool }

// Belief is what a trial led to.
type Belief struct {
	Scope   Scope
	Host    string    // with ScopeHost
	Refused bool      // mostly refusals of us, else put off
	Penalty bool      // and then no session could be opened
	First   time.Time // when the first of the trials was sent
	Why     string    // the trials that showed it, in a sentence
}

const (
	// scopesMax bounds the domains, tenants, hosts and replies that are told apart. Guess: 15 KB.
	scopesMax = 256

	// othersSoon is how long nobody of another domain was answered before others are let go first.
	othersSoon = time.Second

	// runMax bounds the trials of a run that are looked at.
	runMax = 64
)

// Causes tells from the trials of one receiver and one source what a bad answer is about:
// its address, its mail domain, one customer's list, one host, or the receiver. Words decide nothing;
// docs/causes.md has the reasons. Not safe for concurrent use.
type Causes struct {
	receiver suspicion
	domains  narrowScope
	tenants  narrowScope
	hosts    narrowScope
	replies  replyKinds

	run   []Trial // bad first tries since the receiver was last above suspicion
	tries int     // first tries in that time
	holds bool    // the receiver was believed to be the cause, and nothing was answered since
	last  Trial   // the newest first try that tells something

	row    int    // bad ones in a row
	recent uint64 // the newest first tries that tell something, a bit each: 1 is bad
	tried  int    // of them, at most 64

	Good time.Time // when a first try was answered last; zero: never

	room       *TrialRoom                 // nil: no log is kept
	pace       func(at time.Time) float64 // for the log
	log        *trialLog                  // nil: not begun
	experiment *Experiment                // the newest one, for the log
}

// replyKind is what looking at addresses again showed about one kind of reply.
type replyKind struct {
	passed, failed int
	skipped        int
}

// NewCauses suspects nothing.
func NewCauses() *Causes {
	return &Causes{domains: newNarrowScope(), tenants: newNarrowScope(), hosts: newNarrowScope(),
		replies: replyKinds{}}
}

// replyKinds is what is known of each kind of reply.
type replyKinds map[string]*replyKind

// of finds or makes one.
func (all replyKinds) of(said string) *replyKind {
	r := all[said]
	if r == nil {
		if len(all) >= scopesMax {
			clear(all)
		}
		r = &replyKind{}
		all[said] = r
	}
	return r
}

// weight is how much a bad trial counts: words of our pace count double, until addresses
// that got them have turned out to be odd.
func (c *Causes) weight(t *Trial) float64 {
	if t.OfItself {
		return 0.25
	}
	if r := c.replies.of(t.Said); t.OfUs && r.failed < 2+2*r.passed {
		return believedAt / 2 / oneTrial
	}
	return 1
}

// oneTrial is what one trial adds where nothing is known: the logarithm of 0.5 / 0.03.
const oneTrial = 2.813

// Note takes a trial and says at which scope it makes a cause believed; ScopeAddress: at
// none beyond the address.
func (c *Causes) Note(t Trial, w Waiting) Belief {
	if t.Again {
		return Belief{}
	}
	if !c.logs(t.Bad()) {
		return c.take(t, w)
	}
	c.logTrial(kindNote, &t, flagIf(w.OtherDomain, trialOtherDomain)|flagIf(w.OtherTenant, trialOtherTenant)|
		flagIf(w.OtherHost, trialOtherHost))
	b := c.take(t, w)
	c.logBelief(b)
	return b
}

// take is Note without the log.
func (c *Causes) take(t Trial, w Waiting) Belief {
	domain, tenant, host := c.domains.of(t.Domain), c.tenants.of(t.Tenant), c.hosts.of(t.Host)
	floor, bad, weight := c.receiver.usual(0), t.Bad(), 1.0
	if bad {
		weight = c.weight(&t)
	}
	telling := c.Telling(t)
	smaller := !telling || bad && !c.holds && (c.domains.explains(t.Domain) || c.tenants.explains(t.Tenant))
	same := bad && !c.holds && t.Result != Cut && c.last.Bad() &&
		(w.OtherDomain && t.Domain == c.last.Domain && !c.domains.nobodyElse(t.Domain, domain.since) ||
			w.OtherTenant && t.Tenant == c.last.Tenant && !c.tenants.nobodyElse(t.Tenant, tenant.since))
	c.noteAsked(&t, telling)
	domain.add(bad, weight, floor, t.Sent)
	tenant.add(bad, weight, floor, t.Sent)
	if !smaller && !same {
		host.add(bad, weight, floor, t.Sent)
	}
	discounted := smaller || bad && !c.holds && c.hosts.explains(t.Host)
	if !discounted && !same {
		c.receiver.add(bad, weight, 0, t.Sent)
		c.note(t)
	}
	switch {
	case bad && !discounted && c.receiver.believed() && c.witnessed(&t, w) && c.blocked():
		return c.believe(ScopeReceiver, t)
	case bad && !smaller && host.believed() && w.OtherHost && !t.OfUs:
		return c.believe(ScopeHost, t)
	case bad && domain.believed() && w.OtherDomain && c.domains.good.other(t.Domain).Before(t.Sent.Add(-othersSoon)):
		return c.believe(ScopeDomain, t)
	case bad && smaller && tenant.believed() && !tenant.said && c.tenants.explains(t.Tenant):
		tenant.said = true
		return c.believe(ScopeTenant, t)
	}
	return Belief{}
}

// noteAsked notes who was asked, and what came of it.
func (c *Causes) noteAsked(t *Trial, telling bool) {
	good := !t.Bad()
	if telling {
		c.last, c.recent, c.tried = *t, c.recent<<1, min(c.tried+1, 64)
		c.row++
	}
	switch {
	case good:
		c.Good, c.holds, c.row = t.At, false, 0
	case telling:
		c.recent |= 1
	}
	c.domains.note(t.Domain, t.Sent, good)
	c.tenants.note(t.Tenant, t.Sent, good)
	c.hosts.note(t.Host, t.Sent, good)
}

// note keeps a trial that counted.
func (c *Causes) note(t Trial) {
	if c.receiver.sum == 0 {
		c.run, c.tries = c.run[:0], 0
		return
	}
	c.tries++
	if t.Bad() && len(c.run) < runMax {
		c.run = append(c.run, t)
	}
}

// Narrow returns the belief that explains a bad trial by less than the receiver: its domain, its customer's
// list, or its host, while others were answered since.
func (c *Causes) Narrow(t Trial) (Belief, bool) {
	for _, n := range c.narrow(&t) {
		if n.all.explains(n.key) {
			return narrowBelief(n, &t), true
		}
	}
	return Belief{}, false
}

// Telling reports whether a trial can say something about the receiver: not one of a domain or a list of which
// so much is odd, while others are asked.
func (c *Causes) Telling(t Trial) bool {
	return !c.domains.isTooOdd(t.Domain, t.Sent) && !c.tenants.isTooOdd(t.Tenant, t.Sent)
}

// AtHost reports whether a trial is explained by its host: other hosts answer.
func (c *Causes) AtHost(t Trial) bool { return c.hosts.explains(t.Host) }

// narrowKey is one scope of a trial that is narrower than the receiver.
type narrowKey struct {
	scope Scope
	all   *narrowScope
	key   string
}

// narrow gives those of a trial, from narrow to wide.
func (c *Causes) narrow(t *Trial) [3]narrowKey {
	return [...]narrowKey{{ScopeDomain, &c.domains, t.Domain}, {ScopeTenant, &c.tenants, t.Tenant}, {ScopeHost, &c.hosts, t.Host}}
}

// narrowBelief is a belief about less than the receiver.
func narrowBelief(n narrowKey, t *Trial) Belief {
	b := Belief{Scope: n.scope, First: n.all.of(n.key).since,
		Why: fmt.Sprintf("its new addresses got %s: others are asked first", t.Said)}
	if n.all.explains(n.key) {
		b.Why = fmt.Sprintf("its new addresses got %s, those of others are answered", t.Said)
	}
	if n.scope == ScopeHost {
		b.Host = t.Host
	}
	return b
}

// witnessed reports whether the run has the witnesses that there can be: where others wait, or other hosts can be
// asked, two domains, two tenants and two hosts, or others were asked since and none was answered. Words of our
// pace are for all hosts.
func (c *Causes) witnessed(t *Trial, w Waiting) bool {
	if c.holds {
		return true
	}
	for i, others := range [...]bool{w.OtherDomain, w.OtherTenant, w.OtherHost && !t.OfUs} {
		if n := c.narrow(t)[i]; others && !c.several(i) && !n.all.nobodyElse(n.key, c.receiver.since) {
			return false
		}
	}
	return true
}

// several reports whether the run has two keys of a narrow scope.
func (c *Causes) several(scope int) bool {
	for i := range c.run {
		if c.narrow(&c.run[i])[scope].key != c.narrow(&c.run[0])[scope].key {
			return true
		}
	}
	return false
}

// blocked reports whether a run, if it is one of refusals of us, is one without an answer between:
// a block is for everybody, and a rest is dear. So many odd addresses in a row are one chance in
// ten thousand.
func (c *Causes) blocked() bool {
	refused := 0
	for _, t := range c.run {
		if t.Result == RefusedUs {
			refused++
		}
	}
	if 2*refused <= len(c.run) || c.holds || c.Good.IsZero() {
		return true
	}
	before, share := max(0, c.tried-c.row), oddUsual
	if before > 0 && c.row < 64 {
		share = max(share, oddMargin*float64(bits.OnesCount64(c.recent>>c.row<<(64-before)))/float64(before))
	}
	return float64(c.row)*-math.Log(min(0.5, share)) >= 9.2
}

// believe makes a belief and begins anew, so that the next trial tells whether it holds on.
func (c *Causes) believe(s Scope, last Trial) Belief {
	for _, n := range c.narrow(&last) {
		if n.scope == s {
			return narrowBelief(n, &last)
		}
	}
	b := Belief{Scope: s, First: last.Sent}
	refused, said, domains, n, first := 0, map[string]int{}, map[string]bool{}, 0, last.Said
	for _, t := range c.run {
		n++
		if t.Result == RefusedUs {
			refused++
		}
		if said[t.Said]++; said[t.Said] > said[first] {
			first = t.Said
		}
		domains[t.Domain] = true
	}
	b.Refused = 2*refused > n
	if n > 0 {
		b.First = c.run[0].Sent
	}
	b.Why = fmt.Sprintf("%d of the last %d new addresses, of %d domains, got %s", n, max(n, c.tries), len(domains), first)
	c.Expect()
	return b
}

// Expect begins anew after a belief about the receiver: narrower beliefs of the same run were
// its symptoms, and one more bad trial is enough to believe that it holds on.
func (c *Causes) Expect() {
	for i := range c.run {
		for _, n := range c.narrow(&c.run[i]) {
			n.all.of(n.key).sum = 0
		}
	}
	up, _ := steps(c.receiver.usual(0))
	c.receiver.sum = believedAt - 0.95*up
	c.run, c.tries, c.holds = c.run[:0], 0, true
}

// Clear ends all suspicion of the receiver.
func (c *Causes) Clear() {
	c.logSmall(kindClear, false, 0)
	c.clear()
}

func (c *Causes) clear() { c.receiver.sum, c.run, c.tries, c.holds = 0, c.run[:0], 0, false }

// Share is the share of the newest first tries that were bad, and of how many.
func (c *Causes) Share() (float64, int) {
	if c.tried == 0 {
		return 0, 0
	}
	return float64(bits.OnesCount64(c.recent<<(64-c.tried))) / float64(c.tried), c.tried
}

// LastBad is when the newest first try was sent, and whether it was bad.
func (c *Causes) LastBad() (time.Time, bool) { return c.last.Sent, c.last.Bad() }

// Calm reports whether the newest first try was answered, and little is suspected.
func (c *Causes) Calm() bool { return !c.last.Bad() && c.receiver.sum < believedAt/2 }

// goodLately is how long ago somebody was answered at most, so that asking an address again shows something. It is
// not enough that the newest answer was good: behind it at an even pace comes the one that is one too many. Guess.
const goodLately = time.Second

// MayLook reports whether asking an address again now shows something.
func (c *Causes) MayLook(now time.Time) bool {
	return c.receiver.sum < believedAt/2 && (!c.last.Bad() || now.Sub(c.Good) < goodLately)
}

// LookAgain reports whether an address that got a reply is worth asking again soon: the first
// few of each kind, and then the fewer the more of them turned out to be odd.
func (c *Causes) LookAgain(said string) bool {
	if c.log != nil {
		c.logTrial(kindLook, &Trial{Said: said}, 0)
	}
	r := c.replies.of(said)
	if r.failed < 3+3*r.passed {
		return true
	}
	r.skipped++
	return r.skipped%min(16, r.failed) == 0
}

// Settle learns what asking an address again showed: that it is odd itself, or that what it
// got was about something else.
func (c *Causes) Settle(t Trial, odd bool) {
	c.logTrial(kindSettle, &t, flagIf(odd, trialYes))
	r := c.replies.of(t.Said)
	if odd {
		r.failed++
	} else {
		r.passed++
	}
	if r.passed+r.failed > 64 {
		r.passed, r.failed = r.passed/2, r.failed/2
	}
	chance := 0.0
	if odd {
		chance = c.OddChance(t.Said)
	}
	c.settle(&t, chance)
	if tenant := c.tenants.of(t.Tenant); !odd { // it isn't the list, if its addresses pass a moment later
		tenant.sum, tenant.said = 0, false
	}
}

// OddChance is how likely it is that an address that got a reply is odd itself: where one in three new
// addresses is put off and one in three that are asked again as well, none is; where all are that are
// asked again, each is.
func (c *Causes) OddChance(said string) float64 {
	r := c.replies[said]
	if r == nil || r.passed+r.failed == 0 {
		return 0
	}
	share, _ := c.Share()
	again := float64(r.failed) / float64(r.passed+r.failed)
	return max(0, (again-share)/max(0.01, 1-share))
}

// Assume is Settle for an address that isn't asked again soon: it is taken for what others
// were that got the same.
func (c *Causes) Assume(t Trial) {
	c.logTrial(kindAssume, &t, 0)
	chance := c.OddChance(t.Said)
	if t.OfItself {
		chance = 1
	}
	c.settle(&t, chance)
}

// Fine learns that a first try was answered.
func (c *Causes) Fine(t Trial) {
	c.logFine(&t)
	c.settle(&t, 0)
}

func (c *Causes) settle(t *Trial, odd float64) {
	if c.Telling(*t) {
		c.receiver.settle(odd)
	}
	for _, n := range c.narrow(t) {
		n.all.of(n.key).settle(odd)
	}
}

// Odd is the share of first tries that are put off whatever we do, as far as it is known.
func (c *Causes) Odd() float64 { return c.receiver.odd }

// Usual takes a share for usual: lowering the pace did not change it.
func (c *Causes) Usual(share float64) {
	c.logSmall(kindUsual, false, share)
	c.receiver.odd = max(c.receiver.odd, share)
	c.clear()
}

// capOdd unlearns what was put off because of our pace and taken for odd: no more than a share is.
func (c *Causes) capOdd(share float64) {
	c.receiver.odd = min(c.receiver.odd, share)
	for _, n := range [...]narrowScope{c.domains, c.tenants, c.hosts} {
		for _, s := range n.sums {
			s.odd = min(s.odd, share)
		}
	}
}
