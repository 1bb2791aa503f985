package dashboard

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// steps are the paces of a part that asks again, in seconds. There are few, since another pace is a changed part. What the
// service tells to be new is at most 60 s old; the steps above are for very many open pages.
var steps = []int{1, 2, 5, 10, 20, 30, 60, 120, 300}

const (
	// pollsMost is how often a second the open pages of a node may ask all together. On an idle node, where each question wakes
	// a processor, one costs 0.6 to 0.7 ms: 3.5 % of a core.
	pollsMost = 50

	// pollsCalm is how few pages a faster pace may give before it is taken again, and calmSeconds how long there have to be
	// so few: each change of the pace makes all parts anew.
	pollsCalm   = 40
	calmSeconds = 30

	// clockBack is how many seconds a clock may go back before the count begins anew.
	clockBack = 10

	// pollsRing has a place for each second of the slowest pace.
	pollsRing = 512

	// pollsPages is how many pages can be told apart, some 100 bytes each. More are far beyond the slowest pace.
	pollsPages = 50_000
)

// openPage is a page that asks again: a verification in a session. Tabs of both are one, so that nobody makes others wait by
// asking all the time.
type openPage struct {
	session      ledger.Hash
	verification uuid.UUID
}

// polls says at which pace parts ask again. It counts the pages that are open: one is, from an answer until it is to ask
// again. So the count does not depend on the pace, which follows it. A page that is closed counts until then.
// The zero value is ready. Safe for concurrent use.
type polls struct {
	mu    sync.Mutex
	until map[openPage]int64 // the second in which each asks again, also of some that were closed; guarded by mu
	open  int                // pages; guarded by mu
	at    int64              // the second up to which ends are counted; guarded by mu
	ends  [pollsRing]int     // pages that ask again in a second, by second; guarded by mu
	pace  int                // the fastest that is given now, a step; 0: nobody has asked. Guarded by mu
	calm  int64              // the second since which a faster pace would do; 0: it would not. Guarded by mu
}

// next counts an answer to a page, and gives the seconds after which it asks again. wanted is when something new is told to be
// there: the page asks no sooner, in steps. When many pages are open it asks later, up to the slowest step.
func (p *polls) next(now time.Time, page openPage, wanted int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass(now.Unix())
	until, known := p.until[page]
	if known && until > p.at { // it asks before its time: it was loaded again
		p.ends[until%pollsRing]--
		p.open--
	}
	p.open++
	p.follow()
	pace := max(stepFrom(wanted), p.pace)
	until = p.at + int64(pace)
	p.ends[until%pollsRing]++
	if known || p.hasRoom() {
		p.until[page] = until
	}
	return pace
}

// pass takes away the pages that have asked again or were closed since.
func (p *polls) pass(second int64) {
	if second-p.at >= pollsRing || p.at-second > clockBack {
		p.ends, p.open, p.at, p.calm = [pollsRing]int{}, 0, second, 0
		p.until = map[openPage]int64{}
	}
	for p.at < second {
		p.at++
		p.open -= p.ends[p.at%pollsRing]
		p.ends[p.at%pollsRing] = 0
	}
}

// hasRoom says whether one more page can be told apart. It forgets those that were closed when there are many.
func (p *polls) hasRoom() bool {
	if len(p.until) >= 2*p.open+pollsMost {
		for page, until := range p.until {
			if until <= p.at {
				delete(p.until, page)
			}
		}
	}
	return len(p.until) < pollsPages
}

// follow makes the pace slow enough for the pages that are open, and fast again when they were clearly fewer for a while.
func (p *polls) follow() {
	slow, fast := stepFrom(over(p.open, pollsMost)), stepFrom(over(p.open, pollsCalm))
	switch {
	case slow > p.pace:
		p.pace, p.calm = slow, 0
	case fast >= p.pace:
		p.calm = 0
	case p.calm == 0:
		p.calm = p.at
	case p.at-p.calm >= calmSeconds:
		p.pace, p.calm = fast, 0
	}
}

// over divides and rounds up.
func over(n, by int) int { return (n + by - 1) / by }

// stepFrom is the first step that is no shorter than some seconds; the slowest when none is.
func stepFrom(seconds int) int {
	for _, s := range steps {
		if seconds <= s {
			return s
		}
	}
	return steps[len(steps)-1]
}
