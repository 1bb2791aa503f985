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
	Kind           string // the reply code or trouble, and more after KindText; asking again shows what a kind means
	Domain, Tenant string
	Greylisted     bool // the words of the reply say "greylisted"
	Unsure         bool // an earlier owner of the file may have asked the address, so passing proves nothing
	Unaccepted     bool // not answered with 2xx, so perhaps before the receiver looked at its greylist
}

// Waiting reports which other domains and tenants wait at the receiver.
type Waiting struct{ OtherDomain, OtherTenant bool }

const (
	// firstsKept is how many first tries are kept.
	firstsKept = 64

	// kindsMax bounds the kinds of replies that are told apart. From textsMax on, only their codes are.
	kindsMax, textsMax = 256, 64

	// KindText separates, in a Try's kind, the reply code from a hash of the words.
	KindText = " #"

	// The first worthFirst addresses with a kind of reply are asked again soon. If nearly all these replies were about
	// their address, only one in worthSample is asked again.
	worthFirst, worthSample = 6, 8

	// refusedUsual is the usual share of refusals with words about us. A row of such refusals counts as a block if chance
	// causes such a row in 1 of 10,000 cases; blockedOdds is the logarithm.
	refusedUsual, blockedOdds = 0.03, 9.2

	// failingOthers is how many addresses of other domains must pass before one domain can count as failing.
	failingOthers = 3

	// A failure proves little if few addresses pass. The share that passes is counted from settledIn before the failure,
	// and from the failure on. If either share is below fewPass, there may be a penalty. In a penalty a second failure
	// proves nothing.
	settledIn = 5 * time.Second
	fewPass   = 0.1

	// unsure is how many standard deviations are added to the counted share of failures.
	unsure = 1.5

	// A reply is most likely about its address if the chance that it is transient is below likelyOwn. From surelyOurs on
	// we count as the cause.
	likelyOwn, surelyOurs = 0.2, 0.5
)

// became is what asking the address again showed.
type became uint8

const (
	notKnown became = iota
	transient
	ofAddress
)

// entry is the record of a first try.
type entry struct {
	result Result
	kind   *replyKind // nil: a good answer
	became became
}

// storedTry is a first try in memory.
type storedTry struct {
	sent           time.Time
	domain, tenant string
	grey           bool
	accepted       bool
	entry
}

// firsts are the newest first tries at a receiver from one source.
type firsts struct {
	list    []storedTry // firstsKept tries; made with the first bad one, which most receivers never send
	next    int         // index in list
	n       int
	plainAt [2]time.Time        // times of the first and the newest good try before list existed
	plain   int                 // good tries before list existed
	some    bool                // some of these were accepted
	row     int                 // bad tries in a row
	clear   int                 // how many of row may not be about their address
	failing map[string]struct{} // mail domains in which all addresses fail while others pass
	kinds   replyKinds
}

// replyKind is what asking again showed about one kind of reply. While few addresses pass, a failure proves little, so
// it is weighted with the share of first tries that passed.
type replyKind struct {
	name           string
	passed, failed float64
	skipped        int
}

// replyKinds is what asking again showed, by kind of reply.
type replyKinds map[string]*replyKind

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

// forgetAll drops what asking again showed, because it proved wrong.
func (all replyKinds) forgetAll() {
	for _, k := range all {
		*k = replyKind{name: k.name}
	}
}

// worth reports whether an address with such a reply should be asked again soon.
func (all replyKinds) worth(kind string) bool {
	k := all.of(kind)
	if k.passed+k.failed < worthFirst || 2*k.passed >= k.failed {
		return true
	}
	k.skipped++
	return k.skipped%worthSample == 0
}

// stands returns how many tries with this kind of reply a repeated address stands for.
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

// isTransient reports whether such replies are known not to be about their address.
func (k *replyKind) isTransient() bool { return k.passed >= 2 && k.transientChance() >= surelyOurs }

func (f *firsts) add(t *Try) {
	if f.list == nil {
		if t.Result == Answered {
			if f.plain++; f.plain == 1 {
				f.plainAt[0] = t.Sent
			}
			f.plainAt[1], f.some = t.Sent, f.some || !t.Unaccepted
			return
		}
		f.list = make([]storedTry, firstsKept)
		for i := range min(f.plain, firstsKept-1) { // times are taken as evenly spaced, which is exact enough
			f.list[i].accepted = f.some
			f.list[i].sent = f.plainAt[1].Add(-f.plainAt[1].Sub(f.plainAt[0]) * time.Duration(min(f.plain, firstsKept-1)-1-i) / time.Duration(f.plain))
		}
		f.n = min(f.plain, firstsKept-1)
		f.next = f.n
	}
	one := storedTry{sent: t.Sent, domain: t.Domain, tenant: t.Tenant, grey: t.Greylisted, entry: entry{result: t.Result},
		accepted: t.Result == Answered && !t.Unaccepted}
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

// findFailing finds out whether a mail domain is failing. None of its addresses gets a good answer, while so many
// addresses of other domains do that it can't be chance.
func (f *firsts) findFailing(domain string) {
	var bad, good, others, passed, failed float64
	for i := range f.n {
		switch one := f.nth(i); {
		case one.domain == "": // no domain is known
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

func (f *firsts) forgetRow() { f.row, f.clear = 0, 0 }

// dropRow ends the row of bad tries and forgets them, because their cause is known.
func (f *firsts) dropRow() {
	n := min(f.row, f.n)
	f.next, f.n = (f.next-n+firstsKept)%firstsKept, f.n-n
	f.forgetRow()
}

// rowFails reports whether a row of bad tries shows that nothing passes. If no address has passed, rowNothing are
// enough. If some addresses have passed, the row must be longer than chance allows at the earlier or usual share of
// failures. Replies that have always been about their address count less.
func (f *firsts) rowFails(usual float64) bool {
	if f.row >= 2*rowNothing {
		return oddsOf(f.row, usual) >= blockedOdds
	}
	if good, _ := f.goodSince(time.Time{}); good == 0 {
		return f.clear >= rowNothing
	}
	return f.clear >= rowShort && oddsOf(f.clear, max(usual, f.failedBefore())) >= blockedOdds
}

// failedBefore returns the share of first tries that failed before the present row, with a margin for chance.
func (f *firsts) failedBefore() float64 {
	good, n := f.goodSince(time.Time{})
	before := float64(max(0, n-f.row))
	share := max(0, before-float64(good)) / (before + 1)
	return share + unsure*math.Sqrt(share*(1-share)/(before+1))
}

// countOwn looks at the first tries without the newest skip. countOwn returns how many got a bad answer (bad), and an
// estimate of how many of these were about their address (own).
func (f *firsts) countOwn(skip int) (own, bad float64) {
	for i := skip; i < f.n; i++ {
		if e := f.nth(i); e.kind != nil {
			own, bad = own+1-f.chance(e), bad+1
		}
	}
	return own, bad
}

// isAllOwn reports whether nearly all bad answers are about their addresses.
func (f *firsts) isAllOwn() bool {
	own, bad := f.countOwn(0)
	return bad-own < likelyOwn*bad
}

// ownBefore estimates the share of first tries that were deferred because of their address, before the present row.
func (f *firsts) ownBefore() float64 {
	own, _ := f.countOwn(f.row)
	return own / float64(max(sureTries, f.n-f.row))
}

// MayBeOurs reports whether our rate may have caused bad answers of a kind. Our rate didn't cause answers that are most
// likely about their addresses, or about greylisting.
func MayBeOurs(p *Pace, kind string) bool {
	return !IsGreylisted(p, kind) && p.firsts.kinds.of(kind).transientChance() >= likelyOwn
}

// oddsOf returns the logarithm of the odds that a row of bad answers isn't chance.
func oddsOf(row int, share float64) float64 { return float64(row) * -math.Log(max(shareSet, share)) }

// isBlocked reports whether the receiver blocks us for every address. A row of refusals because of us must be longer
// than chance allows, given how often such refusals come at other times.
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

// badSince returns when the present row of bad tries began, as far back as tries are kept.
func (f *firsts) badSince(now time.Time) time.Time {
	for i := 0; i < f.n && f.nth(i).kind != nil; i++ {
		now = f.nth(i).sent
	}
	return now
}

func (f *firsts) nth(i int) *storedTry { return &f.list[(f.next-1-i+2*firstsKept)%firstsKept] }

func (f *firsts) newest() *storedTry { return f.nth(0) }

// newestKind returns the kind of the newest reply; "": a good answer.
func (f *firsts) newestKind() string {
	if f.list == nil || f.newest().kind == nil {
		return ""
	}
	return f.newest().kind.name
}

// chance returns how likely it is that a bad answer to a first try isn't about its address.
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

// settle notes the answer to an address that was asked again.
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

// blameAddresses notes that the bad answers since a time were about their addresses.
func (f *firsts) blameAddresses(since time.Time) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if k := f.nth(i).kind; k != nil {
			k.failed++
		}
	}
}

type sample struct {
	n      int
	span   time.Duration // between the first and the last sending time
	likely float64       // estimated share with a bad answer that isn't about its address
}

// since summarizes the newest first tries since a time: at most this many.
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

// transients measures the share of first tries that got a bad answer and then passed when asked again.
type transients struct {
	share float64
	tries int
	seen  int
}

// transientTries is the number of first tries over which that share is taken.
const transientTries = 300

func (t *transients) tried() {
	t.tries++
	t.share -= t.share / float64(min(t.tries, transientTries))
}

// passed counts a repeated address that passed. stands is its weight.
func (t *transients) passed(stands float64) {
	t.seen++
	t.share += (1 - t.share) * min(1, stands/float64(min(max(t.tries, 1), transientTries)))
}

// rowOf describes the present row of bad tries: its domain and its tenant ("" if it has several), how many tries
// refused us, which said "greylisted", and their number.
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

// saidGreylisted counts the bad ones of the newest first tries since a time, and how many of these say "greylisted".
func (f *firsts) saidGreylisted(since time.Time) (grey votes, bad int) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		one := f.nth(i)
		if one.kind == nil {
			continue
		}
		if bad++; one.grey {
			grey.addKind(one.kind.name)
		}
	}
	return grey, bad
}

// firstBad returns when the oldest bad first try since a time was sent; zero: no try was bad.
func (f *firsts) firstBad(since time.Time) (at time.Time) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if one := f.nth(i); one.kind != nil {
			at = one.sent
		}
	}
	return at
}

// badShare returns the share of bad answers among the first tries since a time.
func (f *firsts) badShare(since time.Time) float64 {
	good, n := f.goodSince(since)
	return float64(n-good) / float64(max(1, n))
}

// passedSince estimates from above which share of the first tries since a time passed.
func (f *firsts) passedSince(since time.Time) float64 {
	good, n := f.goodSince(since)
	return float64(good+1) / float64(n+1)
}

// someAccepted reports whether an address was accepted.
func (f *firsts) someAccepted() bool {
	for i := range f.n {
		if f.nth(i).accepted {
			return true
		}
	}
	return f.list == nil && f.some
}

// goodSince returns how many first tries since a time got a good answer, and how many first tries there were.
func (f *firsts) goodSince(since time.Time) (good, n int) {
	for ; n < f.n && !f.nth(n).sent.Before(since); n++ {
		if f.nth(n).kind == nil {
			good++
		}
	}
	return good, n
}

// LastBad returns when the newest first try was sent, and how many addresses passed in the second before. If its answer
// was bad, since is when the first try of that bad row was sent. After a good answer since is zero.
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
