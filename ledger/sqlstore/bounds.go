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

// A deleted index entry still costs reading time: on PostgreSQL until a vacuum, on CockroachDB for gc.ttlseconds. So
// a query for due rows begins at a bound. At the last full query no due rows were below it.

const (
	// wholeEvery is the interval of queries from the beginning, and so the longest time that a row below a bound is
	// missed. With a file a second, a query reads past at most 300 deleted entries. Guess.
	wholeEvery = 5 * time.Minute
	// lateMax is how far before its own time a full query sets the bound. A row can become due with a time up to
	// transitions.WakeBack before the ledger's at one of its transaction's statements. The transaction commits
	// within attemptTime and endingTime, and the clocks of two CockroachDB nodes differ by 0.5 s at most.
	lateMax = transitions.WakeBack + 30*time.Second
	// belowMax bounds the verifications below a bound that are kept by id: those that nodes have worked on for long.
	// If there are more, the bound is set at the next one. Not measured.
	belowMax = 64
)

// bound is the start of a query.
type bound struct {
	from  int64         // no due row has a smaller key, except those in below; 0: the beginning
	below []uuid.UUID   // due rows below from
	whole time.Duration // time of the last query from the beginning
}

// bounds are the bounds of a store. Safe for concurrent use.
type bounds struct {
	ran func() time.Duration // age of this process, by a monotonic clock

	mu sync.Mutex
	of map[string]bound
}

func newBounds() *bounds {
	began := time.Now()
	return &bounds{ran: func() time.Duration { return time.Since(began) }, of: map[string]bound{}}
}

// get returns the bound of a question, and whether a query from the beginning is due.
func (b *bounds) get(question string) (bound, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.of[question]
	if !known || b.ran()-last.whole >= wholeEvery {
		return bound{}, true
	}
	return last, false
}

// set stores the bound that a query from the beginning found.
func (b *bounds) set(question string, found bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found.whole = b.ran()
	b.of[question] = found
}

// Lease leases verifications that nobody has. At times it first renews the bound of its query.
func (s *Store) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	if err := s.boundLeases(ctx); err != nil {
		return nil, fmt.Errorf("lease to node %s: look for work: %w", node, err)
	}
	return s.Engine.Lease(ctx, node, limit, ttl, except...)
}

// leasing is the name of the query for leases.
const leasing = "lease"

// oldestDue finds the verifications with work, including those that nodes have.
const oldestDue = `SELECT id, wake_at FROM verifications WHERE ` + runnable + ` AND wake_at <= {now}
	ORDER BY wake_at, id LIMIT ?`

// boundLeases sets the bound for leases. It keeps leased verifications by id: each keeps its place in the index while a
// node works on it, and can become free at any time.
func (s *Store) boundLeases(ctx context.Context) error {
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

// sinceBound is the SQL for the bound of a lease, with two placeholders. If the ledger's clock was set back, the
// time comes before the bound.
var sinceBound = func() string {
	late := `{now} - ` + strconv.FormatInt(lateMax.Milliseconds(), 10)
	return `(CASE WHEN ? < ` + late + ` THEN ? ELSE ` + late + ` END)`
}()

// freeBelow finds those of some verifications that nobody has and that lie below the bound.
var freeBelow = `SELECT ` + verificationColumns + ` FROM verifications WHERE id IN (?` + strings.Repeat(", ?", belowMax-1) + `)
	AND wake_at <= {now} AND wake_at < ` + sinceBound + ` AND (lease_node IS NULL OR lease_expires <= {now})`

// below lists the free verifications with work that were below the bound at the last query from the beginning.
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
