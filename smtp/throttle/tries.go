package throttle

import (
	"math"
	"time"
)

// Result is what came of asking about one address.
type Result uint8

// The results. Everything but an answer is bad.
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
	Kind           string // code or trouble: replies of one kind are told apart by asking again
	Domain, Tenant string
	Greylisted     bool // its words say so
}

// Waiting says who waits at the receiver beside the one who was asked.
type Waiting struct{ OtherDomain, OtherTenant bool }

const (
	// firstsKept is how many first tries are looked at.
	firstsKept = 64

	// kindsMax bounds the kinds of replies that are told apart.
	kindsMax = 256

	// worthFirst of a kind are asked again soon, then one in worthSample where nearly all were about their address.
	worthFirst, worthSample = 6, 8

	// refusedUsual is the share of addresses that are refused with words about us at most receivers, and blockedOdds the logarithm of
	// the odds against a row by chance: 1 in 10,000.
	refusedUsual, blockedOdds = 0.03, 9.2

	// settledIn is over how long before a bad answer it is looked at how many passed.
	settledIn = 5 * time.Second

	// likelyOwn is below which chance of being transient a reply is most likely about its address.
	// From surelyOurs on it is taken for our doing.
	likelyOwn, surelyOurs = 0.2, 0.5
)

// became is what asking again showed.
type became uint8

const (
	notKnown became = iota
	transient
	ofAddress
)

// entry is what is known of a first try.
type entry struct {
	result Result
	kind   *replyKind // nil: it was answered
	became became
}

// kept is a first try as it is remembered.
type kept struct {
	sent           time.Time
	domain, tenant string
	grey           bool
	entry
}

// firsts are the newest first tries of a receiver and a source.
type firsts struct {
	list    []kept // firstsKept, made with the first bad one: most receivers never give one
	next    int    // of list
	n       int
	plainAt [2]time.Time // the first and the newest good one before that
	plain   int          // good ones before that
	row     int          // bad ones in a row
	clear   int          // of these, how many are not known to be about their address most likely
	kinds   replyKinds
}

// replyKind is what asking again showed about one kind of reply. One that failed where few pass shows little: it counts
// as much as the part of first tries that passed then.
type replyKind struct {
	passed, failed float64
	skipped        int
}

// replyKinds is what is known of each kind of reply.
type replyKinds map[string]*replyKind

// of finds or makes one.
func (all replyKinds) of(kind string) *replyKind {
	k := all[kind]
	if k == nil {
		if len(all) >= kindsMax {
			clear(all)
		}
		k = &replyKind{}
		all[kind] = k
	}
	return k
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

// stands is for how many of its kind one counts that was asked again.
func (k *replyKind) stands() float64 {
	if k.passed+k.failed < worthFirst || 2*k.passed >= k.failed {
		return 1
	}
	return worthSample
}

// transientChance is how likely it is that such a reply is not about its address.
func (k *replyKind) transientChance() float64 {
	return (k.passed + 0.5) / (k.passed + k.failed + 0.5)
}

// isTransient reports whether such replies were seen not to be about their address.
func (k *replyKind) isTransient() bool { return k.passed >= 2 && k.transientChance() >= surelyOurs }

// add notes a first try.
func (f *firsts) add(t *Try) {
	if f.list == nil {
		if t.Result == Answered {
			if f.plain++; f.plain == 1 {
				f.plainAt[0] = t.Sent
			}
			f.plainAt[1] = t.Sent
			return
		}
		f.list = make([]kept, firstsKept)
		for i := range min(f.plain, firstsKept-1) { // at an even pace, which is near enough
			f.list[i].sent = f.plainAt[1].Add(-f.plainAt[1].Sub(f.plainAt[0]) * time.Duration(min(f.plain, firstsKept-1)-1-i) / time.Duration(f.plain))
		}
		f.n = min(f.plain, firstsKept-1)
		f.next = f.n
	}
	one := kept{sent: t.Sent, domain: t.Domain, tenant: t.Tenant, grey: t.Greylisted, entry: entry{result: t.Result}}
	if t.Result == Answered {
		f.forgetRow()
	} else {
		one.kind = f.kinds.of(t.Kind)
		if f.row++; one.kind.transientChance() >= likelyOwn {
			f.clear++
		}
	}
	f.list[f.next] = one
	f.next, f.n = (f.next+1)%firstsKept, min(f.n+1, firstsKept)
}

// forgetRow ends the row of bad ones.
func (f *firsts) forgetRow() { f.row, f.clear = 0, 0 }

// rowFails reports whether so many in a row are bad that nothing passes: rowNothing, or rowShort where that is no
// chance, because most passed before. Those that got a reply which has always been about its address so far count less.
func (f *firsts) rowFails() bool {
	if f.clear >= rowNothing || f.row >= 3*rowNothing {
		return true
	}
	good, n := f.goodSince(time.Time{})
	return good > 0 && f.clear >= rowShort && f.isRow(min(0.5, float64(n-good-f.row+1)/float64(n-f.row+1)), blockedOdds)
}

// isRow reports whether more are bad in a row that may not be about their addresses than by chance where a share is.
func (f *firsts) isRow(share, odds float64) bool {
	return float64(f.clear)*-math.Log(max(shareTold, share)) >= odds
}

// isBlocked reports whether so many refusals of us in a row are no chance where others of the newest were refused now
// and then: we are blocked, which is for everybody.
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

// badSince is when the first of the newest bad ones was sent that have no good one between them, as far back as is remembered.
func (f *firsts) badSince(now time.Time) time.Time {
	for i := 0; i < f.n && f.nth(i).kind != nil; i++ {
		now = f.nth(i).sent
	}
	return now
}

// nth returns the nth newest, from 0.
func (f *firsts) nth(i int) *kept { return &f.list[(f.next-1-i+2*firstsKept)%firstsKept] }

// newest returns the newest.
func (f *firsts) newest() *kept { return f.nth(0) }

// newestKind is the kind of the newest bad one; nil: there is none.
func (f *firsts) newestKind() *replyKind {
	for i := range f.n {
		if k := f.nth(i).kind; k != nil {
			return k
		}
	}
	return nil
}

// chance is how likely it is that a first try got a bad answer that isn't about its address.
func (f *firsts) chance(e *entry) float64 {
	switch {
	case e.kind == nil || e.became == ofAddress:
		return 0
	case e.became == transient:
		return 1
	}
	return e.kind.transientChance()
}

// settle learns what asking an address again showed.
func (f *firsts) settle(first *Try, passed bool) {
	k := f.kinds.of(first.Kind)
	if good, n := f.goodSince(first.Sent.Add(-settledIn)); passed {
		k.passed++
	} else {
		k.failed += float64(good+1) / float64(n+1)
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

// sample is what the first tries since a time show.
type sample struct {
	n      int
	span   time.Duration // over which they were sent
	likely float64       // part of them that got a bad answer for a reason that isn't their own, as far as that can be guessed
}

// since looks at the first tries since a time, at most so many.
func (f *firsts) since(from time.Time, most int) (s sample) {
	for ; s.n < min(f.n, most) && !f.nth(s.n).sent.Before(from); s.n++ {
		s.likely += f.chance(&f.nth(s.n).entry)
	}
	if s.n > 0 {
		s.likely /= float64(s.n)
		s.span = f.newest().sent.Sub(f.nth(s.n - 1).sent)
	}
	return s
}

// transients is the share of first tries that got a bad answer and passed when they were asked again a moment later.
type transients struct {
	share float64
	tries int
	seen  int
}

// transientTries is over how many first tries the share is counted.
const transientTries = 300

// tried takes a first try.
func (t *transients) tried() {
	t.tries++
	t.share -= t.share / float64(min(t.tries, transientTries))
}

// passed takes one that passed when it was asked again, and stands for some.
func (t *transients) passed(stands float64) {
	t.seen++
	t.share += (1 - t.share) * min(1, stands/float64(min(max(t.tries, 1), transientTries)))
}

// rowOf says of whom the newest bad ones in a row are: of one domain, of one tenant; and how many are refusals of us
// and say "greylisted".
func (f *firsts) rowOf() (domain, tenant string, refused, grey, n int) {
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
			grey++
		}
	}
	return domain, tenant, refused, grey, n
}

// rowStarts is when those were sent since a time that got a bad answer which may be our doing, right behind one that
// didn't.
func (f *firsts) rowStarts(since time.Time) (starts []time.Time) {
	var at time.Time
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if one := f.nth(i); one.kind != nil && one.kind.transientChance() >= likelyOwn {
			at = one.sent
			continue
		}
		if !at.IsZero() {
			starts = append(starts, at)
		}
		at = time.Time{}
	}
	return starts
}

// firstBad is when the first was sent since a time that got a bad answer; now: none did.
func (f *firsts) firstBad(since time.Time) (at time.Time) {
	for i := 0; i < f.n && !f.nth(i).sent.Before(since); i++ {
		if one := f.nth(i); one.kind != nil {
			at = one.sent
		}
	}
	return at
}

// goodSince is how many of the first tries since a time were answered, and of how many.
func (f *firsts) goodSince(since time.Time) (good, n int) {
	for ; n < f.n && !f.nth(n).sent.Before(since); n++ {
		if f.nth(n).kind == nil {
			good++
		}
	}
	return good, n
}
