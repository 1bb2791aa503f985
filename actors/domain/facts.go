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
	// factsMax bounds the domains that are remembered: 100,000 take about 30 MB. Beyond it those that were not asked
	// for longest are forgotten.
	factsMax = 100_000

	// factLife is how long the result of control probes is believed. A guess between asking for each file and missing a
	// change; Exim's callout cache keeps a positive for 7 days and a negative for 3 hours.
	factLife = 6 * time.Hour

	// partLife is the same for accepted control probes that are too few to show a catch-all. It must outlast the pauses
	// between control probes, so it doesn't scale with Facts.Hour.
	partLife = time.Hour
)

// Facts remembers for a while how hosts answer for domains, by behaviourKey. The domain actors of a node share it
// and, with a Writer, the nodes of a cluster. Safe for concurrent use.
type Facts struct {
	// Hour is how long an hour lasts in the rules that count by the hour. It is set first.
	Hour throttle.Hour

	writer *facts.Writer // nil: nothing is shared

	guarded atomic.Bool // a guard was seen at a domain; while there is none, nobody asks Pause

	mu       sync.Mutex
	domains  *simplelru.LRU[string, fact]      // guarded by mu
	refusals *simplelru.LRU[string, *refusals] // guarded by mu
}

// behaviourKey names in Facts how a host (lower case) answers for a domain. A key is never longer than the store
// takes: a long host is named by a hash.
func behaviourKey(domain, host string) string {
	if len(factPrefix)+len(domain)+1+len(host) > ledger.FactKeyBytesMax {
		h := fnv.New64a()
		h.Write([]byte(host))
		host = strconv.FormatUint(h.Sum64(), 16)
	}
	return domain + "/" + host
}

// fact is what the control probes of a domain showed.
type fact struct {
	accepted, refused int
	first, last       time.Time // of their answers
	until             time.Time
}

func (k fact) behaviour() evidence.AcceptBehaviour {
	return evidence.AcceptBehaviour{Accepted: k.accepted, Refused: k.refused, First: k.first, Last: k.last}
}

// isDecided reports whether a fact is enough to know whether the domain accepts everything.
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

// ShareFacts makes empty Facts that share what they learn with all whose writers have the same ledger.
func ShareFacts(w *facts.Writer) *Facts {
	f := NewFacts()
	f.writer = w
	return f
}

// Shared reports whether others may know more: see Recall.
func (f *Facts) Shared() bool { return f.writer != nil }

// Behaviour returns the known accept behaviour of a domain.
func (f *Facts) Behaviour(domain string, now time.Time) evidence.AcceptBehaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.knownOf(domain, now).behaviour()
}

// knownOf returns the fact about a domain if it hasn't expired. The caller has the lock.
func (f *Facts) knownOf(domain string, now time.Time) fact {
	k, ok := f.domains.Get(domain)
	if !ok || now.After(k.until) {
		return fact{}
	}
	return k
}

// Learn adds the answer to one control probe to the facts about a domain.
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
		r.guard = time.Time{} // it was honest
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
	// recallWithin is how long an acceptance waits for the cluster's answer; after that a control probe costs less than
	// waiting.
	recallWithin = 2 * time.Second

	// flushWithin bounds the last write of a process.
	flushWithin = 2 * time.Second

	// factPrefix tells the keys of domains from those of receivers.
	factPrefix = "domain/"
)

// Recall asks the cluster about keys (behaviourKey) that Behaviour doesn't know. It returns when Behaviour has the
// answer, or when ctx ends.
func (f *Facts) Recall(ctx context.Context, keys ...string) {
	if f.writer == nil {
		return
	}
	answered := make(chan struct{}, len(keys)) // no sender blocks
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

// takeRecalled takes over a stored fact, unless a newer one is known here.
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

// Flush writes what was learned and is not written yet. Call it at the end of the process.
func (f *Facts) Flush(ctx context.Context) error {
	if f.writer == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	return f.writer.Flush(within)
}

// factLine is a fact as it is stored; times are Unix milliseconds. A line of a newer program is ignored.
const factLine = "behaviour1 accepted=%d refused=%d first=%d last=%d"

// countMax bounds a count that is read: a larger one isn't ours.
const countMax = 1_000_000

func (k fact) stored(key string) facts.Fact {
	line := fmt.Sprintf(factLine, k.accepted, k.refused, k.first.UnixMilli(), k.last.UnixMilli())
	return facts.Fact{Key: key, Data: []byte(line), Expires: k.until}
}

// readFact reads a stored fact. Its end was set by another node's clock, so it is capped at the lifetime of a fact
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
