package http

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"rollcall/ledger"
)

// The longest that a client is told to wait before it looks again, in seconds: while a file arrives, is read or is
// being cancelled, while addresses are asked, and while all that is left waits for receivers or for credits.
const (
	againShort  = 2
	againAsking = 30
	againMost   = 60
)

// RetryAfter is how many seconds a client should wait before it looks again; 0 for what will not change any more. It
// is at most a tenth of the file's age, or a second, so that whoever does so sees the end within a tenth of the time
// that the file took, and less when the end is expected sooner. An end that is overdue is looked for less often the
// longer it is. A file that waits is looked at when a receiver is asked again: nothing ends before.
func RetryAfter(v ledger.Verification, now time.Time) int {
	wait := (now.Sub(v.Created) / 10).Truncate(time.Second)
	switch v.Status {
	case ledger.Uploading, ledger.Preparing, ledger.Cancelling:
		return seconds(wait, 1, againShort)
	case ledger.Verifying:
		if !v.Expected.IsZero() {
			wait = min(wait, v.Expected.Sub(now).Abs())
		}
		return seconds(wait, 1, againAsking)
	case ledger.Waiting:
		wait = max(wait, v.NextTry.Sub(now))
		if v.Expected.After(now) {
			wait = min(wait, v.Expected.Sub(now))
		}
		return seconds(wait, 1, againMost)
	}
	return 0
}

// looksKept is how many keys have a plan, of some 400 bytes and 60 for each file. At the bound that of the key is
// forgotten that has looked at nothing for longest.
const looksKept = 16384

// looks plans when the clients of a key look again at its files, so that those who wait as long as they are told don't
// meet the limit of the key's reads, if its burst is 2 at least: a second has half of what a key may read. Looks of
// two seconds may come at once, so no more than half of the burst either. Safe for concurrent use.
type looks struct {
	most  int        // that a key may plan for a second, on all nodes together
	nodes func() int // see Options.Nodes

	mu   sync.Mutex
	keys *lru.Cache[string, *lookPlan] // plans guarded by mu; by key id
}

// look is one of a key at a verification.
type look struct {
	key          string
	verification uuid.UUID
}

// lookPlan is the plan of one key.
type lookPlan struct {
	until  int64               // the second until which it was looked at
	counts [againMost + 1]int  // of looks, by second
	at     map[uuid.UUID]int64 // the second of the next look at each verification
}

func newLooks(reads Rate, nodes func() int) *looks {
	most := int(min(reads.PerSecond, float64(reads.Burst))) / 2
	return &looks{most: most, nodes: nodes, keys: newLRU[*lookPlan](looksKept)}
}

// plan gives the seconds after which to look again: wanted, or more when the key has planned too much by then.
// A client that looks before its time has one look planned all the same.
func (l *looks) plan(of look, now time.Time, wanted int) int {
	most := max(l.most/max(l.nodes(), 1), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.keys.Get(of.key)
	if !known {
		p = &lookPlan{at: make(map[uuid.UUID]int64)}
		l.keys.Add(of.key, p)
	}
	second := now.Unix()
	p.pass(second)
	if before, ok := p.at[of.verification]; ok {
		p.counts[before%int64(len(p.counts))]--
	}
	at := second + int64(wanted)
	for at < second+againMost && p.counts[at%int64(len(p.counts))] >= most {
		at++
	}
	p.counts[at%int64(len(p.counts))]++
	p.at[of.verification] = at
	return int(at - second)
}

// pass forgets the looks of the seconds before this one, and all after the clock was set back.
func (p *lookPlan) pass(second int64) {
	if p.until == second {
		return
	}
	maps.DeleteFunc(p.at, func(_ uuid.UUID, at int64) bool {
		gone := at < second || second < p.until
		if gone {
			p.counts[at%int64(len(p.counts))]--
		}
		return gone
	})
	p.until = second
}
