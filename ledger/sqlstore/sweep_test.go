package sqlstore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestASweepGoesOnAfterAFailure: of three verifications whose results are due, one cannot
// be erased. The others are, and what comes after; the error and the log name it. When the
// database answers nothing at all, the sweep gives up soon.
func TestASweepGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		goesOn(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), func(id uuid.UUID) string {
			return fmt.Sprintf(`CREATE TRIGGER stuck BEFORE UPDATE OF results_deleted ON verifications
				WHEN OLD.id = x'%x' BEGIN SELECT RAISE(ABORT, 'stuck'); END`, id[:])
		})
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		url := NewLedger(t)
		stuck := func(id uuid.UUID) string { return refusesErasing(fmt.Sprintf(`OLD.id = '\x%x'`, id[:]), "23514") }
		goesOn(t, url, stuck)
	})
	t.Run("a row that somebody has", func(t *testing.T) {
		t.Parallel()
		url := NewLedger(t)
		busy := func(id uuid.UUID) string { return refusesErasing(fmt.Sprintf(`OLD.id = '\x%x'`, id[:]), "55P03") }
		goesOn(t, url, busy)
	})
	t.Run("a database that is away", func(t *testing.T) {
		t.Parallel()
		s, log := openLogged(t, NewLedger(t))
		settlesEach(t, s, 2*silentMax)
		migratorAt(t, s.url, postgresDialect()).does(t, refusesErasing("true", "55P03"))
		n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		if tried := strings.Count(log.String(), "a part of a sweep failed"); n != 0 || err == nil || tried != silentMax {
			t.Errorf("changed %d after %d failures, %v", n, tried, err)
		}
	})
}

// TestASweepReachesWhatIsBehindBrokenOnes: more verifications fail than one question of a sweep
// lists, and one that is sound is due behind them. Each is tried again later.
func TestASweepReachesWhatIsBehindBrokenOnes(t *testing.T) {
	t.Parallel()
	broken := sweepMax + 30
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, _ := openLogged(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
		ids := settlesEach(t, s, broken+1)
		reachesBehind(t, s, migratorAt(t, s.url, sqliteDialect()), ids, fmt.Sprintf(`CREATE TRIGGER stuck
			BEFORE UPDATE OF results_deleted ON verifications WHEN OLD.id <> x'%x'
			BEGIN SELECT RAISE(ABORT, 'stuck'); END`, ids[broken][:]), `DROP TRIGGER stuck`)
	})
	t.Run("rows that somebody has for long", func(t *testing.T) {
		t.Parallel()
		s, _ := openLogged(t, NewLedger(t))
		ids := settlesEach(t, s, silentMax+2)
		good := ids[silentMax+1]
		migratorAt(t, s.url, postgresDialect()).does(t, refusesErasing(fmt.Sprintf(`OLD.id <> '\x%x'`, good[:]), "55P03"))
		for range 2 { // the first gives up after silentMax of them, and the second begins behind those
			if _, err := s.Sweep(t.Context(), ledger.Retention{Results: 1}); err == nil {
				t.Error("none failed")
			}
		}
		if !s.erasedResults(t, good) {
			t.Error("what is behind them is not swept")
		}
	})
	t.Run("rows that stay due", func(t *testing.T) {
		t.Parallel()
		s, log := openLogged(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
		settlesEach(t, s, broken)
		migratorAt(t, s.url, sqliteDialect()).does(t, `UPDATE verifications SET paid = 0`)
		d := ledgertest.NewDesk(t, s, 0)
		unpaid := d.Creates(1)
		if _, err := s.Cancel(t.Context(), d.Workspace, unpaid.ID); err != nil {
			t.Fatal(err)
		}
		_, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		if !errors.Is(err, errStillDue) || !strings.Contains(log.String(), errStillDue.Error()) {
			t.Errorf("rows that stay due are not told: %v", err)
		}
		if _, err := s.verification(t.Context(), unpaid.ID); !errors.Is(err, ledger.ErrNoSuchVerification) {
			t.Errorf("what is behind them is there: %v", err)
		}
	})
}

// reachesBehind breaks all of ids but the last, sweeps, mends them and sweeps on.
func reachesBehind(t *testing.T, s logged, aside *Store, ids []uuid.UUID, breaks, mends string) {
	aside.does(t, breaks)
	broken := len(ids) - 1
	for range 2 {
		n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		if err == nil || !s.erasedResults(t, ids[broken]) {
			t.Fatalf("changed %d: what is behind them is not swept: %v", n, err)
		}
		if left := gaugeOf(t, s.metrics, "rollcall_ledger_unswept"); left != float64(broken) {
			t.Errorf("%v are said to be left, of %d", left, broken)
		}
	}
	aside.does(t, mends)
	for left := broken; left > 0; left -= lateTried {
		n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		if want := min(left, lateTried); n != want || err != nil {
			t.Fatalf("%d are left and mended, %d are swept, want %d: %v", left, n, want, err)
		}
	}
	for _, id := range ids {
		if !s.erasedResults(t, id) {
			t.Errorf("%s has its results still", id)
		}
	}
}

// erasedResults says whether a verification's results are erased.
func (l logged) erasedResults(t *testing.T, id uuid.UUID) bool {
	t.Helper()
	v, err := l.verification(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v.ResultsDeleted
}

// refusesErasing makes a trigger that answers a code instead of erasing results.
func refusesErasing(which, code string) string {
	return fmt.Sprintf(`CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'stuck' USING ERRCODE = '%s'; END $$;
		CREATE TRIGGER stuck BEFORE UPDATE OF results_deleted ON verifications
			FOR EACH ROW WHEN (%s) EXECUTE FUNCTION stuck()`, code, which)
}

// logged is a ledger that logs into memory.
type logged struct {
	*Store
	url     string
	metrics *prometheus.Registry
}

func openLogged(t *testing.T, url string) (logged, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	s, err := Open(t.Context(), url, Options{RetryWait: soon, Log: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return logged{s, url, metrics}, &log
}

// settlesEach makes verifications that are final.
func settlesEach(t *testing.T, s ledger.Book, n int) (ids []uuid.UUID) {
	t.Helper()
	d := ledgertest.NewDesk(t, s, ledger.Credits(n))
	for range n {
		v, l := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		ids = append(ids, v.ID)
	}
	return ids
}

func goesOn(t *testing.T, url string, stuck func(id uuid.UUID) string) {
	s, log := openLogged(t, url)
	ids := settlesEach(t, s, 3)
	fact := ledger.Fact{Key: "old.test", Expires: time.UnixMilli(1)}
	if err := s.Learn(t.Context(), []ledger.Fact{fact}); err != nil {
		t.Fatal(err)
	}
	d := sqliteDialect()
	if isServer(url) {
		d = postgresDialect()
	}
	aside := migratorAt(t, url, d)
	aside.does(t, stuck(ids[0]))
	n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
	if n != 2 || err == nil || !strings.Contains(err.Error(), ids[0].String()) || !strings.Contains(log.String(), ids[0].String()) {
		t.Errorf("changed %d, %v; the log:\n%s", n, err, log)
	}
	for i, id := range ids {
		v, err := s.verification(t.Context(), id)
		if err != nil || v.ResultsDeleted == (i == 0) {
			t.Errorf("verification %d: %+v, %v", i, v, err)
		}
	}
	var facts int
	if err := aside.writer.db.QueryRow(`SELECT count(*) FROM receiver_facts`).Scan(&facts); err != nil || facts != 0 {
		t.Errorf("%d facts that expired are left: %v", facts, err)
	}
}
