package throttle

import (
	"math"
	"strings"
	"time"
)

// Result is the result of asking about one address.
type Result uint8

// The results. Every result but Answered is bad.
const (
	Answered  Result = iota // 2xx, or 5xx about the mailbox
	Deferred                // 4xx
	RefusedUs               // 5xx about us
	Cut                     // 421, or a connection lost with the RCPT on its way
)

// Try is one first RCPT for an address at a receiver, from one of our sources.
type Try struct {
	Sent           time.Time
	Result         Result
	Kind           string // code or trouble, KindText and more: asking again shows what a kind means
	Domain, Tenant string
	Greylisted     bool // its words say so
	Unsure         bool // an earlier owner of its file may have asked it, so passing shows nothing
}

// Waiting reports which other domains and tenants wait at the receiver.
type Waiting struct{ OtherDomain, OtherTenant bool }

const (
	// firstsKept is how many first tries are kept.
	firstsKept = 64

	// kindsMax bounds the kinds of replies that are distinguished; after textsMax only their codes are.
	kindsMax, textsMax = 256, 64

	// KindText separates the code of a Try's kind from what stands for its words, if anything does.
	KindText = " #"

	// The first worthFirst addresses with a kind of reply are asked again soon; later one in worthSample, if nearly
	// all were about their address.
	worthFirst, worthSample = 6, 8

	// refusedUsual is the usual share of refusals with words about us, and blockedOdds the logarithm of the odds
	// against chance at which a row of them is a block: 1 in 10,000.
	refusedUsual, blockedOdds = 0.03, 9.2

	// failingOthers is how many addresses of other domains must pass before one domain counts as failing.
	failingOthers = 3

	// settledIn is the time before a bad answer over which good ones are counted. If fewer than fewPass pass, then or
	// later, it may be a penalty, in which a second failure shows nothing.
	settledIn = 5 * time.Second
	fewPass   = 0.1

	// unsure is how many standard deviations the true share of failures may be above the counted one.
	unsure = 1.5

	// If the chance that a reply is transient is below likelyOwn, it is most likely about its address; from
	// surelyOurs on it counts as our doing.
	likelyOwn, surelyOurs = 0.2, 0.5
)

// became is the result of asking again.
type became uint8

const (
	notKnown became = iota
	transient
	ofAddress
)

// entry is the record of a first try.
type entry struct {
	result Result
	kind   *replyKind // nil: it was answered
	became became
}

// storedTry is a first try in memory.
type storedTry struct {
	sent           time.Time
	domain, tenant string
	grey           bool
	entry
}

// firsts are the newest first tries of a receiver and a source.
type firsts struct {
	list    []storedTry // firstsKept, made with the first bad one: most receivers never send one
	next    int         // of list
	n       int
	plainAt [2]time.Time        // the first and the newest good try before list was made
	plain   int                 // good tries before list was made
	row     int                 // bad tries in a row
	clear   int                 // how many of row may not be about their address
	failing map[string]struct{} // mail domains whose addresses get only bad answers while others pass
	kinds   replyKinds
}

// replyKind is what asking again showed about one kind of reply. A failure shows little while few pass: its weight is
// the share of first tries that passed then.
type replyKind struct {
	name           string
	passed, failed float64
	skipped        int
}

// replyKinds is what asking again showed, by kind of reply.
type replyKinds map[string]*replyKind

// of returns a kind, a new one if there is none.
func (all replyKinds) of(kind string) *replyKind {
	k := all[kind]
	if k == nil && len(all) >= textsMax {
		kind, _, _ = strings.Cut(kind, KindText)
		k = all[kind]
	}
	if k == nil {
		if len(all) >= kindsMax {
			clear(all)
		}
		k = &replyKind{name: kind}
		all[kind] = k
	}
	return k
}

// forgetAll drops what asking again showed, because it was wrong.
func (all replyKinds) forgetAll() {
	for _, k := range all {
		*k = replyKind{name: k.name}
	}
}

// worth reports whether an address that got such a reply is asked again soon.
func (all replyKinds) worth(kind string) bool {
	k := all.of(kind)
	if k.passed+k.failed < worthFirst || 2*k.passed >= k.failed {
		return true
	}
	k.skipped++
	return k.skipped%worthSample == 0
}

// stands returns how many tries of its kind one address asked again represents.
func (k *replyKind) stands() float64 {
	if k.passed+k.failed < worthFirst || 2*k.passed >= k.failed {
		return 1
	}
	return worthSample
}

// transientChance returns how likely it is that such a reply isn't about its address.
func (k *replyKind) transientChance() float64 {
	return (k.passed + 0.5) / (k.passed + k.failed + 0.5)
}

// isTransient reports whether such replies were shown not to be about their address.
func (k *replyKind) isTransient() bool { return k.passed >= 2 && k.transientChance() >= surelyOurs }

func (f *firsts) add(t *Try) {
	if f.list == nil {
		if t.Result == Answered {
			if f.plain++; f.plain == 1 {
				f.plainAt[0] = t.Sent
			}
			f.plainAt[1] = t.Sent
			return
		}
		f.list = make([]storedTry, firstsKept)
		for i := range min(f.plain, firstsKept-1) { // as if evenly spaced, which is near enough
			f.list[i].sent = f.plainAt[1].Add(-f.plainAt[1].Sub(f.plainAt[0]) * time.Duration(min(f.plain, firstsKept-1)-1-i) / time.Duration(f.plain))
		}
		f.n = min(f.plain, firstsKept-1)
		f.next = f.n
	}
	one := storedTry{sent: t.Sent, domain: t.Domain, tenant: t.Tenant, grey: t.Greylisted, entry: entry{result: t.Result}}
	if t.Result != Answered {
		one.kind = f.kinds.of(t.Kind)
	}
	f.list[f.next] = one
	f.next, f.n = (f.next+1)%firstsKept, min(f.n+1, firstsKept)
	if t.Result == Answered {
		delete(f.failing, t.Domain)
		f.forgetRow()
		return
	}
	f.findFailing(t.Domain)
	if f.row++; f.chance(&one) >= likelyOwn {
		f.clear++
	}
}

// findFailing finds out whether a mail domain is failing: none of its addresses gets a good answer, and that isn't
// chance, given how many of other domains got one since the first of these failed.
func (f *firsts) findFailing(domain string) {
	var bad, good, others, passed, failed float64
	for i := range f.n {
		switch one := f.nth(i); {
		case one.domain == "": // not known
		case one.domain == domain && one.kind == nil:
			return
		case one.domain == domain:
			bad, good, others = bad+1, passed, failed
		case one.kind == nil:
			passed++
		default:
			failed++
		}
	}
	if good >= failingOthers && bad*-math.Log((others+1)/(good+others+1)) >= blockedOdds {
		if f.failing == nil || len(f.failing) >= kindsMax {
			f.failing = map[string]struct{}{}
		}
		f.failing[domain] = struct{}{}
	}
}

// forgetRow ends the row of bad tries.
func (f *firsts) forgetRow() { f.row, f.clear = 0, 0 }

// dropRow ends the row of bad tries and forgets them, since their cause is known.
func (f *firsts) dropRow() {
	n := min(f.row, f.n)
	f.next, f.n = (f.next-n+firstsKept)%firstsKept, f.n-n
	f.forgetRow()
}

// rowFails reports whether enough tries in a row are bad to conclude that nothing passes: rowNothing if none has
// passed, else more than chance allows at the earlier or usual share of failures. Replies that have always been about
// their address count less.
func (f *firsts) rowFails(usual float64) bool {
	if f.row >= 2*rowNothing {
		return oddsOf(f.row, usual) >= blockedOdds
	}
	if good, _ := f.goodSince(time.Time{}); good == 0 {
		return f.clear >= rowNothing
	}
	return f.clear >= rowShort && oddsOf(f.clear, max(usual, f.failedBefore())) >= blockedOdds
}

// failedBefore returns the share of first tries that may have failed before the present row, by the newest ones.
func (f *firsts) failedBefore() float64 {
	good, n := f.goodSince(time.Time{})
	before := float64(max(0, n-f.row))
	share := max(0, before-float64(good)) / (before + 1)
	return share + unsure*math.Sqrt(share*(1-share)/(before+1))
}

// countOwn looks at the first tries before the newest skip. It returns how many got a bad answer (bad), and how many
// of these were about their address, by estimate (own).
func (f *firsts) countOwn(skip int) (own, bad float64) {
	for i := skip; i < f.n; i++ {
		if e := f.nth(i); e.kind != nil {
			own, bad = own+1-f.chance(e), bad+1
		}
	}
	return own, bad
}

// isAllOwn reports whether nearly all bad answers to first tries are about their addresses.
func (f *firsts) isAllOwn() bool {
	own, bad := f.countOwn(0)
	return bad-own < likelyOwn*bad
}

// ownBefore returns the estimated share of first tries that were deferred for their address, before the present row.
func (f *firsts) ownBefore() float64 {
	own, _ := f.countOwn(f.row)
	return own / float64(max(sureTries, f.n-f.row))
}

// MayBeOurs reports whether a bad answer of a kind isn't most likely about its address, or greylisting.
func MayBeOurs(p *Pace, kind string) bool {
	return !IsGreylisted(p, kind) && p.firsts.kinds.of(kind).transientChance() >= likelyOwn
}

// oddsOf returns the logarithm of the odds against a row of bad ones by chance.
func oddsOf(row int, share float64) float64 { return float64(row) * -math.Log(max(shareSet, share)) }

// isBlocked reports whether a row of refusals of us is too long for chance, given how often such refusals come
// otherwise. If so, we are blocked for every address.
func (f *firsts) isBlocked() bool {
	n, others := 0, 0
	for n < f.row && n < f.n && f.nth(n).result == RefusedUs {
		n++
	}
	for i := n; i < f.n; i++ {
		if f.nth(i).result == RefusedUs {
			others++
		}
	}
	usual := max(refusedUsual, 1.3*float64(others)/float64(max(1, f.n-n)))
	return n == f.row && float64(n)*-math.Log(min(0.5, usual)) >= blockedOdds
}

// badSince returns when the first of the present row of bad tries was sent, as far back as is kept.
func (f *firsts) badSince(now time.Time) time.Time {
	for i := 0; i < f.n && f.nth(i).kind != nil; i++ {
		now = f.nth(i).sent
	}
	return now
}

// nth returns the nth newest first try, from 0.
func (f *firsts) nth(i int) *storedTry { return &f.list[(f.next-1-i+2*firstsKept)%firstsKept] }

func (f *firsts) newest() *storedTry { return f.nth(0) }

// newestKind returns the kind of the newest reply; "": it was good.
func (f *firsts) newestKind() string {
	if f.list == nil || f.newest().kind == nil {
		return ""
	}
	return f.newest().kind.name
}

// chance returns how likely it is that a first try's bad answer isn't about its address.
func (f *firsts) chance(e *storedTry) float64 {
	_, failing := f.failing[e.domain]
	switch {
	case e.kind == nil || e.became == ofAddress || failing:
		return 0
	case e.became == transient:
		return 1
	}
	return e.kind.transientChance()
}

// settle learns what asking an address again showed.
func (f *firsts) settle(first *Try, passed bool) {
	k := f.kinds.of(first.Kind)
	if passed {
		k.passed++
	} else if share := min(f.passedSince(first.Sent.Add(-settledIn)), f.passedSince(first.Sent)); share >= fewPass {
		k.failed += share
	}
	if k.passed+k.failed > firstsKept {
		k.passed, k.failed = k.passed/2, k.failed/2
	}
	for i := range f.n {
		if one := f.nth(i); one.kind == k && one.sent.Equal(first.Sent) {
			if one.became = ofAddress; passed {
				one.became = transient
			}
			return
		}
	}
}

// blameAddresses learns that the bad answers since a time were about their addresses.
func (f *firsts) blameAddresses(since time.Time) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if k := f.nth(i).kind; k != nil {
			k.failed++
		}
	}
}

// sample is a summary of the first tries since a time.
type sample struct {
	n      int
	span   time.Duration // the time over which they were sent
	likely float64       // estimated share with a bad answer for a reason other than their address
}

// since summarizes the first tries since a time, at most most of them.
func (f *firsts) since(from time.Time, most int) (s sample) {
	for ; s.n < min(f.n, most) && !f.nth(s.n).sent.Before(from); s.n++ {
		s.likely += f.chance(f.nth(s.n))
	}
	if s.n > 0 {
		s.likely /= float64(s.n)
		s.span = f.newest().sent.Sub(f.nth(s.n - 1).sent)
	}
	return s
}

// transients measures the share of first tries that got a bad answer and passed when asked again a moment later.
type transients struct {
	share float64
	tries int
	seen  int
}

// transientTries is the number of first tries that the share is taken over.
const transientTries = 300

func (t *transients) tried() {
	t.tries++
	t.share -= t.share / float64(min(t.tries, transientTries))
}

// passed counts an address that passed when asked again; stands is its weight.
func (t *transients) passed(stands float64) {
	t.seen++
	t.share += (1 - t.share) * min(1, stands/float64(min(max(t.tries, 1), transientTries)))
}

// rowOf describes the present row of bad tries: the one domain and tenant, if there is only one, and how many refuse us
// or say "greylisted".
func (f *firsts) rowOf() (domain, tenant string, refused int, grey votes, n int) {
	n = min(f.row, f.n)
	for i := range n {
		one := f.nth(i)
		if i == 0 {
			domain, tenant = one.domain, one.tenant
		}
		if one.domain != domain {
			domain = ""
		}
		if one.tenant != tenant {
			tenant = ""
		}
		if one.result == RefusedUs {
			refused++
		}
		if one.grey {
			grey.addKind(one.kind.name)
		}
	}
	return domain, tenant, refused, grey, n
}

// firstBad returns when the oldest first try since a time with a bad answer was sent; zero: there was none.
func (f *firsts) firstBad(since time.Time) (at time.Time) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if one := f.nth(i); one.kind != nil {
			at = one.sent
		}
	}
	return at
}

// badShare returns the share of the first tries since a time that got a bad answer.
func (f *firsts) badShare(since time.Time) float64 {
	good, n := f.goodSince(since)
	return float64(n-good) / float64(max(1, n))
}

// passedSince returns the share of the first tries since a time that may have passed.
func (f *firsts) passedSince(since time.Time) float64 {
	good, n := f.goodSince(since)
	return float64(good+1) / float64(n+1)
}

// goodSince returns how many first tries since a time got a good answer, and how many there were.
func (f *firsts) goodSince(since time.Time) (good, n int) {
	for ; n < f.n && !f.nth(n).sent.Before(since); n++ {
		if f.nth(n).kind == nil {
			good++
		}
	}
	return good, n
}

// LastBad returns when the newest first try was sent and how many of the second before it got a good answer. If its
// answer was bad, since is when the first of that bad row was sent, otherwise zero.
func (p *Pace) LastBad() (sent time.Time, through int, since time.Time) {
	if p.firsts.n == 0 {
		return time.Time{}, 0, time.Time{}
	}
	last := p.firsts.newest()
	if last.kind != nil {
		since = p.firsts.badSince(last.sent)
	}
	return last.sent, p.flow.over(last.sent), since
}
