package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// An entry that left an index is still there to be read past, on PostgreSQL until a vacuum and on CockroachDB
// for gc.ttlseconds. So a question for what is due begins at a bound below which nothing was left at the last
// look from the beginning.

const (
	// wholeEvery is how often a look begins at the beginning, and so the longest that anything below a bound is
	// overlooked. With a file a second, the last look before that reads past 300 entries. Guess.
	wholeEvery = 5 * time.Minute
	// lateMax is how far before its time a look puts the bound. What becomes due is written with a time that is
	// transitions.WakeBack at most before the ledger's at one of the statements of its transaction, which is committed within
	// attemptTime and endingTime, and two nodes of CockroachDB are told times that are 0.5 s apart at most.
	lateMax = transitions.WakeBack + 30*time.Second
	// belowMax bounds the verifications below a bound that are known by id: those that nodes have had for long.
	// Not measured; where more are at work at once, the bound is that of the next one.
	belowMax = 64
)

// bound is where a look begins.
type bound struct {
	from  int64         // nothing that is due has a lesser key, but for those below; 0: the beginning
	below []uuid.UUID   // what was there all the same
	whole time.Duration // when the beginning was looked at
}

// bounds are those of a store. Safe for concurrent use.
type bounds struct {
	ran func() time.Duration // of this process, by a clock that nobody sets

	mu sync.Mutex
	of map[string]bound
}

func newBounds() *bounds {
	began := time.Now()
	return &bounds{ran: func() time.Duration { return time.Since(began) }, of: map[string]bound{}}
}

// get returns the bound of a question, and whether it is time to ask from the beginning.
func (b *bounds) get(question string) (bound, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.of[question]
	if !known || b.ran()-last.whole >= wholeEvery {
		return bound{}, true
	}
	return last, false
}

// set notes what a look from the beginning found.
func (b *bounds) set(question string, found bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found.whole = b.ran()
	b.of[question] = found
}

// Lease hands out verifications that nobody has. Now and then it first notes where to look for them.
func (s *Store) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	if err := s.lookOver(ctx); err != nil {
		return nil, fmt.Errorf("lease to node %s: look over what can be worked on: %w", node, err)
	}
	return s.Engine.Lease(ctx, node, limit, ttl, except...)
}

// leasing is the question of a lease.
const leasing = "lease"

// oldestDue asks for what can be worked on, also of what nodes have.
const oldestDue = `SELECT id, wake_at FROM verifications WHERE ` + runnable + ` AND wake_at <= {now}
	ORDER BY wake_at, id LIMIT ?`

// lookOver notes from where on a lease asks. What nodes have is known by id: it keeps its place in the index for as
// long as they work on it, and is free again at any time.
func (s *Store) lookOver(ctx context.Context) error {
	if _, whole := s.bounds.get(leasing); !whole {
		return nil
	}
	var found bound
	err := s.view(ctx, func(t *tx) error {
		if err := t.Row(`SELECT {now}`).Scan(&found.from); err != nil {
			return err
		}
		found.from -= lateMax.Milliseconds()
		return t.Each(func(rows *sql.Rows) error {
			var id uuid.UUID
			var wakes int64
			err := rows.Scan(&id, &wakes)
			switch {
			case err != nil || wakes >= found.from:
			case len(found.below) < belowMax:
				found.below = append(found.below, id)
			default:
				found.from = wakes
			}
			return err
		}, oldestDue, belowMax+1)
	})
	if err == nil {
		s.bounds.set(leasing, found)
	}
	return err
}

// sinceBound is the bound of a lease; it has two places for it. After the ledger's clock was set back it is before that.
var sinceBound = func() string {
	late := `{now} - ` + strconv.FormatInt(lateMax.Milliseconds(), 10)
	return `(CASE WHEN ? < ` + late + ` THEN ? ELSE ` + late + ` END)`
}()

// freeBelow asks for those of some verifications that nobody has, and that a look from the bound does not see.
var freeBelow = `SELECT ` + verificationColumns + ` FROM verifications WHERE id IN (?` + strings.Repeat(", ?", belowMax-1) + `)
	AND wake_at <= {now} AND wake_at < ` + sinceBound + ` AND (lease_node IS NULL OR lease_expires <= {now})`

// below lists what can be worked on now and that nobody has, of what was below the bound at the last look from the
// beginning.
func (t verificationRows) below(at bound, limit int, except []uuid.UUID) (list []*transitions.Row, err error) {
	if len(at.below) == 0 {
		return nil, nil
	}
	args := make([]any, 0, belowMax+2)
	for i := range belowMax {
		args = append(args, at.below[min(i, len(at.below)-1)][:])
	}
	err = t.Each(func(rows *sql.Rows) error {
		v, err := scanVerification(rows.Scan)
		if err == nil && v.State().Runnable() && !slices.Contains(except, v.Workspace) {
			list = append(list, v)
		}
		return err
	}, t.passing(freeBelow), append(args, at.from, at.from)...)
	slices.SortFunc(list, func(a, b *transitions.Row) int {
		return cmp.Or(cmp.Compare(a.WakeAt, b.WakeAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return list[:min(limit, len(list))], err
}
