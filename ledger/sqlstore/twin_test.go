package sqlstore

import (
	"errors"
	"flag"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/simulation"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

var twins = flag.Uint64("twins", 2, "how many simulated lives run beside SQLite, and a third of them beside PostgreSQL")

// beside is a database whose clock is that of a simulation.
type beside struct {
	t     *testing.T
	store *Store
	ran   int64 // milliseconds, by the clock of the simulation
	looks int   // from the beginning, for a lease
}

// errUndo rolls back what a simulation does not commit.
var errUndo = errors.New("not committed")

// newBeside gives a ledger the clock of a simulation: a row of a table.
func newBeside(t *testing.T, url string) *beside {
	t.Helper()
	s := effort.Must(Open(t.Context(), url, Options{}))(t)
	effort.OK(t, s.update(t.Context(), func(t *tx) error {
		if _, err := t.Exec(`CREATE TABLE clock (one BIGINT NOT NULL PRIMARY KEY, now BIGINT NOT NULL)`); err != nil {
			return err
		}
		_, err := t.Exec(`INSERT INTO clock (one, now) VALUES (1, 0)`)
		return err
	}))
	effort.OK(t, s.Close())
	o := Options{Seams: engine.Seams{Clock: `(SELECT now FROM clock WHERE one = 1)`}}
	s = effort.Must(Open(t.Context(), url, o))(t)
	t.Cleanup(func() { _ = s.Close() })
	b := &beside{t: t, store: s}
	s.bounds.ran = func() time.Duration { return time.Duration(b.ran) * time.Millisecond }
	return b
}

// Workspace makes a workspace without credits.
func (b *beside) Workspace(id uuid.UUID) error {
	_, err := b.store.CreateWorkspace(b.t.Context(), id, "simulated")
	return err
}

// Transaction runs do at a time and commits when it says so. In between the store looks over what can be worked on, so
// that it is asked for from the bounds that a node has.
func (b *beside) Transaction(now int64, do func(t transitions.Tables) (commit bool)) error {
	b.ran = max(b.ran, 5*now) // so that it looks over often
	if _, whole := b.store.bounds.get(leasing); whole {
		b.looks++
		if err := b.store.boundLeases(b.t.Context()); err != nil {
			return err
		}
	}
	runs := 0
	err := b.store.update(b.t.Context(), func(t *tx) error {
		if runs++; runs > 1 {
			return errors.New("the database wants to run a transaction again, with nobody beside it")
		}
		if _, err := t.Exec(`UPDATE clock SET now = ? WHERE one = 1`, now); err != nil {
			return err
		}
		if !do(t) {
			return errUndo
		}
		return nil
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// TestEachTransactionEndsAsOnTheTablesInMemory: what the simulation proves about the transitions holds on a real
// database too, because each transaction is refused there as it is in memory, or leaves the same rows.
func TestEachTransactionEndsAsOnTheTablesInMemory(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	lives := func(t *testing.T, twins uint64, operations int, url func(seed uint64) string) {
		if testing.Short() {
			twins = 1
		}
		verifications, faults := 0, int64(0)
		for seed := range twins {
			b := newBeside(t, url(seed))
			life := simulation.RunBeside(b, seed, operations)
			effort.MustBe(t, life.Violation, "", "seed", seed)
			verifications, faults = verifications+life.Verifications, faults+life.Faults
			if from, _ := b.store.bounds.get(leasing); b.looks < 3 || from.from == 0 {
				t.Errorf("seed %d: looked over what can be worked on %d times, and then from %d on", seed, b.looks, from.from)
			}
			report, err := b.store.Audit(t.Context())
			effort.ErrorIf(t, err != nil || len(report.Violations) != 0 ||
				report.Verifications != int64(life.Verifications), "seed %d: audit: %+v, %v", seed, report, err)
			life = simulation.RunClusterBeside(b, seed, operations/2)
			effort.MustBe(t, life.Violation, "", "seed", seed, "of a cluster")
			if err := b.store.Close(); err != nil { // a server has not connections for all of them
				t.Error(err)
			}
		}
		effort.ErrorIf(t, verifications == 0 || faults == 0,
			"%d verifications and %d faults: nothing happened", verifications, faults)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		lives(t, *twins, 800, func(seed uint64) string {
			return "sqlite:" + filepath.Join(t.TempDir(), strconv.FormatUint(seed, 10)+".db")
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		lives(t, (*twins+2)/3, 500, func(uint64) string { return NewLedger(t) })
	})
}
