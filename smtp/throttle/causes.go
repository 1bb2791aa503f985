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
	Again    bool   // it was put off here before
	Result   Result
	Said     string // code or trouble, for people; and by which replies are told apart
	OfUs     bool   // its words speak of our pace: two such suffice for a belief
	OfItself bool   // its words speak of the mailbox: it takes many such for a belief
}

// Bad reports whether a trial may say something about more than its address.
func (t *Trial) Bad() bool { return t.Result != Answered }

// Waiting says who waits at the receiver beside the one who was asked.
type Waiting struct{ OtherDomain, OtherTenant bool }

// Scope is how far a cause reaches.
type Scope uint8

// The scopes, from narrow to wide.
const (
	ScopeAddress Scope = iota
	ScopeDomain
	ScopeTenant
	ScopeReceiver
)

// String names a scope.
func (s Scope) String() string {
	return [...]string{"address", "mail domain", "one customer's list", "receiver"}[s]
}

// Belief is what a trial led to.
type Belief struct {
	Scope   Scope
	Refused bool      // mostly refusals of us, else put off
	First   time.Time // when the first of the trials was sent
	Why     string    // the trials that showed it, in a sentence
}

const (
	// scopesMax bounds the domains, tenants and replies that are told apart. Guess: 10 KB.
	scopesMax = 256

	// othersSoon is how long nobody of another domain was asked before others are let go first.
	othersSoon = time.Second

	// runMax bounds the trials of a run that are looked at.
	runMax = 64
)

// Causes tells from the trials of one receiver and one source what a bad answer is about:
// its address, its mail domain, one customer's list, or the receiver. Words decide nothing;
// docs/causes.md has the reasons. Not safe for concurrent use.
type Causes struct {
	receiver suspicion
	domains  map[string]*suspicion
	tenants  map[string]*suspicion
	replies  map[string]*replyKind

	run   []Trial // bad first tries since the receiver was last above suspicion
	tries int     // first tries in that time
	holds bool    // the receiver was believed to be the cause, and nothing was answered since
	last  Trial   // the newest first try

	asked, good struct{ domain, tenant newest } // who was asked, and answered

	row    int    // bad ones in a row
	recent uint64 // the newest first tries, a bit each: 1 is bad
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
	return &Causes{domains: map[string]*suspicion{}, tenants: map[string]*suspicion{}, replies: map[string]*replyKind{}}
}

// scopeOf finds or makes one of the narrow scopes.
func scopeOf(all map[string]*suspicion, key string) *suspicion {
	s := all[key]
	if s == nil {
		if len(all) >= scopesMax {
			shrink(all)
		}
		s = &suspicion{}
		all[key] = s
	}
	return s
}

// shrink drops the scopes that nothing is suspected of, and, where all are, the least suspected one.
func shrink(all map[string]*suspicion) {
	least := ""
	for k, o := range all {
		if o.sum == 0 {
			delete(all, k)
		} else if l := all[least]; l == nil || o.sum < l.sum || o.sum == l.sum && o.since.Before(l.since) {
			least = k
		}
	}
	if len(all) >= 2*scopesMax {
		delete(all, least)
	}
}

// replyOf finds or makes what is known of a kind of reply.
func (c *Causes) replyOf(said string) *replyKind {
	r := c.replies[said]
	if r == nil {
		if len(c.replies) >= scopesMax {
			clear(c.replies)
		}
		r = &replyKind{}
		c.replies[said] = r
	}
	return r
}

// weight is how much a bad trial counts: words of our pace count double, until addresses
// that got them have turned out to be odd.
func (c *Causes) weight(t *Trial) float64 {
	if t.OfItself {
		return 0.25
	}
	if r := c.replyOf(t.Said); t.OfUs && r.failed < 2+2*r.passed {
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
	flags := uint8(0)
	if w.OtherDomain {
		flags |= trialOtherDomain
	}
	if w.OtherTenant {
		flags |= trialOtherTenant
	}
	c.logTrial(kindNote, &t, flags)
	b := c.take(t, w)
	c.logBelief(b)
	return b
}

// take is Note without the log.
func (c *Causes) take(t Trial, w Waiting) Belief {
	domain, tenant := scopeOf(c.domains, t.Domain), scopeOf(c.tenants, t.Tenant)
	floor, bad, weight := c.receiver.usual(0), t.Bad(), 1.0
	if bad {
		weight = c.weight(&t)
	}
	discounted := bad && !c.holds && c.explained(&t, domain, tenant)
	same := bad && !c.holds && t.Result != Cut && c.last.Bad() &&
		(w.OtherDomain && t.Domain == c.last.Domain && !nobody(&c.asked.domain, &c.good.domain, t.Domain, domain.since) ||
			w.OtherTenant && t.Tenant == c.last.Tenant && !nobody(&c.asked.tenant, &c.good.tenant, t.Tenant, tenant.since))
	c.last = t
	c.asked.domain.note(t.Domain, t.Sent)
	c.asked.tenant.note(t.Tenant, t.Sent)
	c.recent, c.tried = c.recent<<1, min(c.tried+1, 64)
	if bad {
		c.recent |= 1
		c.row++
	}
	domain.add(bad, weight, floor, t.Sent)
	tenant.add(bad, weight, floor, t.Sent)
	if !bad {
		c.Good, c.holds, c.row = t.At, false, 0
		c.good.domain.note(t.Domain, t.Sent)
		c.good.tenant.note(t.Tenant, t.Sent)
	}
	if !discounted && !same {
		c.receiver.add(bad, weight, 0, t.Sent)
		c.note(t)
	}
	switch {
	case bad && !discounted && c.receiver.believed() && c.witnessed(&t, w) && c.blocked():
		return c.believe(ScopeReceiver, t)
	case bad && domain.believed() && w.OtherDomain && c.asked.domain.other(t.Domain).Before(t.Sent.Add(-othersSoon)):
		return c.believe(ScopeDomain, t)
	case discounted && tenant.believed() && !tenant.said &&
		fine(&c.asked.tenant, &c.good.tenant, t.Tenant, tenant.since):
		tenant.said = true
		return c.believe(ScopeTenant, t)
	}
	return Belief{}
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

// explained reports whether a narrower scope than the receiver is believed to be the cause of a bad
// trial: its domain or its customer's list, while others were answered since.
func (c *Causes) explained(t *Trial, domain, tenant *suspicion) bool {
	return domain.believed() && fine(&c.asked.domain, &c.good.domain, t.Domain, domain.since) ||
		tenant.believed() && fine(&c.asked.tenant, &c.good.tenant, t.Tenant, tenant.since)
}

// Narrow returns the belief that explains a bad trial by less than the receiver: its domain, or its customer's
// list, while others were answered since.
func (c *Causes) Narrow(t Trial) (Belief, bool) {
	b := Belief{First: t.Sent, Why: narrowWhy(t.Said)}
	if s := c.domains[t.Domain]; s != nil && s.believed() && fine(&c.asked.domain, &c.good.domain, t.Domain, s.since) {
		b.Scope = ScopeDomain
		return b, true
	}
	if s := c.tenants[t.Tenant]; s != nil && s.believed() && fine(&c.asked.tenant, &c.good.tenant, t.Tenant, s.since) {
		b.Scope = ScopeTenant
		return b, true
	}
	return Belief{}, false
}

// narrowWhy is the sentence of a belief about a domain or a list.
func narrowWhy(said string) string {
	return fmt.Sprintf("its new addresses got %s, those of others are answered", said)
}

// fine reports whether another one was answered since a time, and nothing bad came of others after it.
func fine(asked, good *newest, key string, since time.Time) bool {
	at := good.other(key)
	return at.After(since) && !asked.other(key).After(at)
}

// witnessed reports whether the run has the witnesses that there can be: where others wait, two
// domains and two tenants, or others were asked since and none was answered.
func (c *Causes) witnessed(t *Trial, w Waiting) bool {
	if c.holds {
		return true
	}
	domains, tenants := !w.OtherDomain, !w.OtherTenant
	for _, o := range c.run {
		domains = domains || o.Domain != c.run[0].Domain
		tenants = tenants || o.Tenant != c.run[0].Tenant
	}
	since := c.receiver.since
	return (domains || nobody(&c.asked.domain, &c.good.domain, t.Domain, since)) &&
		(tenants || nobody(&c.asked.tenant, &c.good.tenant, t.Tenant, since))
}

// nobody reports whether others were asked since a time and none was answered.
func nobody(asked, good *newest, key string, since time.Time) bool {
	return asked.other(key).After(since) && !good.other(key).After(since)
}

// newest remembers when one was noted last, and when another one.
type newest struct {
	key         string
	at, otherAt time.Time
}

func (n *newest) note(key string, at time.Time) {
	if key != n.key {
		n.otherAt, n.key = n.at, key
	}
	n.at = at
}

// other is when another one than key was noted last.
func (n *newest) other(key string) time.Time {
	if key == n.key {
		return n.otherAt
	}
	return n.at
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
	b := Belief{Scope: s, First: last.Sent}
	if s != ScopeReceiver {
		b.Why = narrowWhy(last.Said)
		return b
	}
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
	for _, t := range c.run {
		scopeOf(c.domains, t.Domain).sum = 0
		scopeOf(c.tenants, t.Tenant).sum = 0
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

// LookAgain reports whether an address that got a reply is worth asking again soon: the first
// few of each kind, and then the fewer the more of them turned out to be odd.
func (c *Causes) LookAgain(said string) bool {
	if c.log != nil {
		c.logTrial(kindLook, &Trial{Said: said}, 0)
	}
	r := c.replyOf(said)
	if r.failed < 3+3*r.passed {
		return true
	}
	r.skipped++
	return r.skipped%min(16, r.failed) == 0
}

// Settle learns what asking an address again showed: that it is odd itself, or that what it
// got was about something else.
func (c *Causes) Settle(t Trial, odd bool) {
	yes := uint8(0)
	if odd {
		yes = trialYes
	}
	c.logTrial(kindSettle, &t, yes)
	r := c.replyOf(t.Said)
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
	if tenant := scopeOf(c.tenants, t.Tenant); !odd { // it isn't the list, if its addresses pass a moment later
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
	c.receiver.settle(odd)
	scopeOf(c.domains, t.Domain).settle(odd)
	scopeOf(c.tenants, t.Tenant).settle(odd)
}

// Odd is the share of first tries that are put off whatever we do, as far as it is known.
func (c *Causes) Odd() float64 { return c.receiver.odd }

// Usual takes a share for usual: lowering the pace did not change it.
func (c *Causes) Usual(share float64) {
	c.logSmall(kindUsual, false, share)
	c.receiver.odd = max(c.receiver.odd, share)
	c.clear()
}
