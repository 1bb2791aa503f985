package domain

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"rollcall/actors/facts"
	"rollcall/ledger"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

const (
	// factsMax bounds the domains that are remembered: 100,000 take about 30 MB. Beyond factsMax we forget the domains
	// that were asked least recently.
	factsMax = 100_000

	// factLife is how long we believe the result of control probes. A guess: with a shorter life we ask again for each
	// file, with a longer one we miss changes. Exim's callout cache keeps a positive result for 7 days and a negative one
	// for 3 hours.
	factLife = 6 * time.Hour

	// partLife is how long we keep accepted control probes that are too few to show a catch-all domain. partLife must be
	// longer than the pauses between control probes, so it doesn't scale with Facts.Hour.
	partLife = time.Hour
)

// Facts remembers for a while how hosts answer for domains, by behaviourKey. The domain actors of a node share Facts;
// with a Writer, all nodes of a cluster share the Facts. Safe for concurrent use.
type Facts struct {
	// Hour is the length of an hour in rules that count by the hour. Hour is set before anything else is done.
	Hour throttle.Hour

	writer *facts.Writer // nil: nothing is shared

	guarded atomic.Bool // a guard was seen; before that nobody calls Pause

	mu       sync.Mutex
	domains  *simplelru.LRU[string, fact]      // guarded by mu
	refusals *simplelru.LRU[string, *refusals] // guarded by mu
}

// behaviourKey is the key in Facts for how a host (in lower case) answers for a domain. The store limits the length of
// keys, so a long host is replaced by a hash.
func behaviourKey(domain, host string) string {
	if len(factPrefix)+len(domain)+1+len(host) > ledger.FactKeyBytesMax {
		h := fnv.New64a()
		h.Write([]byte(host))
		host = strconv.FormatUint(h.Sum64(), 16)
	}
	return domain + "/" + host
}

// fact is what control probes showed about a domain.
type fact struct {
	accepted, refused int
	first, last       time.Time // when the control probes were answered
	until             time.Time
}

func (k fact) behaviour() evidence.AcceptBehaviour {
	return evidence.AcceptBehaviour{Accepted: k.accepted, Refused: k.refused, First: k.first, Last: k.last}
}

// isDecided reports whether a fact shows if the domain accepts everything.
func (k fact) isDecided() bool {
	_, known := k.behaviour().CatchAll()
	return known
}

// NewFacts makes empty Facts that share nothing.
func NewFacts() *Facts {
	domains, err := simplelru.NewLRU[string, fact](factsMax, nil)
	refusals, other := simplelru.NewLRU[string, *refusals](refusalsMax, nil)
	if err != nil || other != nil {
		panic("a bound of facts is not positive")
	}
	return &Facts{domains: domains, refusals: refusals}
}

// ShareFacts makes empty Facts that share with all Facts on the same ledger.
func ShareFacts(w *facts.Writer) *Facts {
	f := NewFacts()
	f.writer = w
	return f
}

// Shared reports whether other nodes may know more: see Recall.
func (f *Facts) Shared() bool { return f.writer != nil }

// Behaviour returns the known accept behaviour of a domain.
func (f *Facts) Behaviour(domain string, now time.Time) evidence.AcceptBehaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.knownOf(domain, now).behaviour()
}

// knownOf returns the fact about a domain, if it hasn't expired. The caller holds the lock.
func (f *Facts) knownOf(domain string, now time.Time) fact {
	k, ok := f.domains.Get(domain)
	if !ok || now.After(k.until) {
		return fact{}
	}
	return k
}

// Learn notes whether a domain accepted one control probe.
func (f *Facts) Learn(domain string, accepted bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.knownOf(domain, now)
	now = now.Truncate(time.Millisecond)
	if k.first.IsZero() {
		k.first = now
	}
	k.last = now
	if accepted {
		k.accepted++
	} else {
		k.refused++
		r := f.refusalsOf(domain)
		r.add(now)
		r.guard = time.Time{} // the control probe was refused: no guard is active
	}
	k.until = now.Add(partLife)
	if k.isDecided() {
		k.until = now.Add(f.Hour.Of(factLife))
	}
	f.domains.Add(domain, k)
	if f.writer != nil {
		f.writer.Keep(k.stored(factPrefix+domain), nil)
	}
}

const (
	// recallWithin is how long an acceptance waits for the cluster's answer. A longer wait costs more than a control
	// probe.
	recallWithin = 2 * time.Second

	// flushWithin bounds the last write of a process.
	flushWithin = 2 * time.Second

	// factPrefix begins the keys of domains, so that they differ from those of receivers.
	factPrefix = "domain/"
)

// Recall asks the cluster about the keys (behaviourKey) that Behaviour doesn't know. When it returns, Behaviour has the
// answer or ctx has ended.
func (f *Facts) Recall(ctx context.Context, keys ...string) {
	if f.writer == nil {
		return
	}
	answered := make(chan struct{}, len(keys)) // has room for all, so no sender blocks
	for _, key := range keys {
		f.writer.Know(factPrefix+key, func(found facts.Fact) {
			f.takeRecalled(key, found, time.Now())
			answered <- struct{}{}
		})
	}
	for range keys {
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
	}
}

// takeRecalled adopts a stored fact, unless a newer one is known here.
func (f *Facts) takeRecalled(key string, found facts.Fact, now time.Time) {
	k, ok := readFact(found, now)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if here := f.knownOf(key, now); here.isDecided() || here.accepted >= k.accepted && !k.isDecided() {
		return // the fact learned here is newer
	}
	f.domains.Add(key, k)
}

// Flush writes what was learned and not yet written. Call it at the end of the process.
func (f *Facts) Flush(ctx context.Context) error {
	if f.writer == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	return f.writer.Flush(within)
}

// factLine is the stored form of a fact. Times are Unix milliseconds. A line that a newer program wrote is ignored.
const factLine = "behaviour1 accepted=%d refused=%d first=%d last=%d"

// countMax bounds a count that is read: we never write a larger count.
const countMax = 1_000_000

func (k fact) stored(key string) facts.Fact {
	line := fmt.Sprintf(factLine, k.accepted, k.refused, k.first.UnixMilli(), k.last.UnixMilli())
	return facts.Fact{Key: key, Data: []byte(line), Expires: k.until}
}

// readFact reads a stored fact. The clock of another node set its end, so readFact caps it at the lifetime of a fact
// learned here.
func readFact(l facts.Fact, now time.Time) (fact, bool) {
	var k fact
	var first, last int64
	line := string(l.Data)
	n, err := fmt.Sscanf(line, factLine, &k.accepted, &k.refused, &first, &last)
	if err != nil || n != 4 || fmt.Sprintf(factLine, k.accepted, k.refused, first, last) != line ||
		min(k.accepted, k.refused) < 0 || k.accepted+k.refused < 1 ||
		max(k.accepted, k.refused) > countMax || last < first {
		return fact{}, false
	}
	k.first, k.last = time.UnixMilli(first), time.UnixMilli(last)
	life := partLife
	if k.isDecided() {
		life = factLife
	}
	k.until = now.Add(life)
	if l.Expires.Before(k.until) {
		k.until = l.Expires
	}
	return k, !now.After(k.until)
}
