package http

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"rollcall/ledger"
)

// The longest Retry-After in seconds: while a file arrives, is read or is being cancelled; while addresses are asked;
// and while all remaining addresses wait for receivers or for credits.
const (
	againShort  = 2
	againAsking = 30
	againMost   = 60
)

// RetryAfter returns how many seconds a client should wait before its next poll, or 0 for a final file. It is at most
// a tenth of the file's age, or a second, so that the client sees the end at most a tenth late. It is less if the end
// is expected sooner. The longer an end is overdue, the longer the wait. For a waiting file it is the time until a
// receiver is asked again, because nothing changes before.
func RetryAfter(v ledger.Verification, now time.Time) int {
	wait := (now.Sub(v.Created) / 10).Truncate(time.Second)
	switch v.Status {
	case ledger.Uploading, ledger.Preparing, ledger.Cancelling:
		return seconds(wait, againShort)
	case ledger.Verifying:
		if !v.Expected.IsZero() {
			wait = min(wait, v.Expected.Sub(now).Abs())
		}
		return seconds(wait, againAsking)
	case ledger.Waiting:
		wait = max(wait, v.NextTry.Sub(now))
		if v.Expected.After(now) {
			wait = min(wait, v.Expected.Sub(now))
		}
		return seconds(wait, againMost)
	}
	return 0
}

// pollKeysMax bounds the keys with a plan. A plan takes some 400 bytes, and 60 for each file. At the bound, the plan
// of the key with the oldest poll is dropped.
const pollKeysMax = 16384

// polls plans when the clients of a key poll its files again, so that clients that obey Retry-After don't exceed the
// key's read limit, if its burst is at least 2. Each second gets at most half of the key's rate. As the polls of two
// seconds may come together, it also gets at most half of the burst. Safe for concurrent use.
type polls struct {
	most  int        // bound of a key's polls in one second, on all nodes together
	nodes func() int // see Options.Nodes

	mu   sync.Mutex
	keys *lru.Cache[string, *pollPlan] // plans guarded by mu; by key id
}

type poll struct {
	key          string
	verification uuid.UUID
}

type pollPlan struct {
	until  int64               // the second up to which polls were dropped
	counts [againMost + 1]int  // planned polls, by second
	at     map[uuid.UUID]int64 // second of the next poll of each verification
}

func newPolls(reads Rate, nodes func() int) *polls {
	most := int(min(reads.PerSecond, float64(reads.Burst))) / 2
	return &polls{most: most, nodes: nodes, keys: newLRU[*pollPlan](pollKeysMax)}
}

// plan returns the seconds until the next poll: wanted, or more if the key's polls fill that second. A client that
// polls early still has only one planned poll.
func (l *polls) plan(of poll, now time.Time, wanted int) int {
	most := max(l.most/max(l.nodes(), 1), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.keys.Get(of.key)
	if !known {
		p = &pollPlan{at: make(map[uuid.UUID]int64)}
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

// pass drops the polls of past seconds, or all polls if the clock was set back.
func (p *pollPlan) pass(second int64) {
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
