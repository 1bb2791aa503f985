package sqlstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestAProcessThatCannotBeForgottenStopsNoOther: the others that ended long ago are forgotten, and the sweep fails.
func TestAProcessThatCannotBeForgottenStopsNoOther(t *testing.T) {
	t.Parallel()
	s, _ := openLogged(t, NewFile(t))
	d := ledgertest.NewFixture(t, s, 0)
	sessions := []uuid.UUID{{1}, {2}, {3}}
	for _, session := range sessions {
		begun(d, session)
		effort.OK(t, d.Leave(t.Context(), session))
	}
	run(t, s.Store, `UPDATE nodes SET since = since - ?`, (endedKept + time.Minute).Milliseconds())
	run(t, s.Store, `CREATE TRIGGER stuck BEFORE DELETE ON nodes
		WHEN OLD.session = x'01000000000000000000000000000000' BEGIN SELECT RAISE(ABORT, 'stuck'); END`)
	if _, err := s.Sweep(t.Context(), ledger.Retention{}); err == nil {
		t.Error("the sweep says nothing of a process that cannot be forgotten")
	}
	snapshot, err := s.ReadNodes(t.Context())
	effort.ErrorIf(t, err != nil || len(snapshot.Nodes) != 1 || snapshot.Nodes[0].Session != sessions[0],
		"left: %+v, %v, want the first only", snapshot.Nodes, err)
}

// TestASweepGoesOnAfterFailures: more verifications fail than one question of a sweep lists. One that is sound is
// swept behind them, and what comes after. The log names each that failed, and all are tried again later.
func TestASweepGoesOnAfterFailures(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	const broken = sweepMax + 30
	s, log := openLogged(t, NewFile(t))
	ids := settlesEach(t, s, broken+1)
	effort.OK(t, s.Learn(t.Context(), []ledger.Fact{{Key: "old.test", Expires: time.UnixMilli(1)}}))
	run(t, s.Store, fmt.Sprintf(`CREATE TRIGGER stuck BEFORE UPDATE OF results_deleted ON verifications
		WHEN OLD.id <> x'%x' BEGIN SELECT RAISE(ABORT, 'stuck'); END`, ids[broken][:]))
	for i := range 2 {
		n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		effort.FatalIf(t, n != 1-i || err == nil || !s.erasedResults(t, ids[broken]),
			"changed %d: what is behind them is not swept: %v", n, err)
		effort.Is(t, effort.Metric(t, s.metrics, "rollcall_ledger_unswept"), broken, "said to be left")
	}
	for _, id := range ids[:broken] {
		effort.Has(t, log.String(), id.String(), "the log")
	}
	effort.Is(t, number(t, s.Store, `SELECT count(*) FROM receiver_facts`), 0, "facts that expired are left")
	run(t, s.Store, `DROP TRIGGER stuck`)
	for left := broken; left > 0; left -= lateTried {
		n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
		if want := min(left, lateTried); n != want || err != nil {
			t.Fatalf("%d are left and mended, %d are swept, want %d: %v", left, n, want, err)
		}
	}
	for _, id := range ids {
		effort.ErrorIf(t, !s.erasedResults(t, id), "%s has its results still", id)
	}
}

// TestASweepGivesUpWhenTheDatabaseIsAway, and what made it believe that stops the next one no more: rows that
// somebody has for long.
func TestASweepGivesUpWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s, log := openLogged(t, NewLedger(t))
	ids := settlesEach(t, s, silentMax+2)
	good := ids[silentMax+1]
	aside(t, s.url)(refusesErasing(fmt.Sprintf(`OLD.id <> '\x%x'`, good[:]), "55P03"))
	n, err := s.Sweep(t.Context(), ledger.Retention{Results: 1})
	tried := strings.Count(log.String(), "a part of a sweep failed")
	effort.ErrorIf(t, n != 0 || err == nil || tried != silentMax, "changed %d after %d failures, %v", n, tried, err)
	if n, err = s.Sweep(t.Context(), ledger.Retention{Results: 1}); n != 1 || err == nil || !s.erasedResults(t, good) {
		t.Errorf("changed %d: what is behind them is not swept: %v", n, err)
	}
}

// TestASweepTellsRowsThatStayDue, and reaches what is behind them.
func TestASweepTellsRowsThatStayDue(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	s, log := openLogged(t, NewFile(t))
	settlesEach(t, s, sweepMax+30)
	run(t, s.Store, `UPDATE verifications SET paid = 0`)
	d := ledgertest.NewFixture(t, s, 0)
	unpaid := d.Creates(1)
	effort.Must(s.Cancel(t.Context(), d.Workspace, unpaid.ID))(t)
	effort.Denied(s.Sweep(t.Context(), ledger.Retention{Results: 1}))(t, errStillDue, "rows that stay due are not told")
	effort.Has(t, log.String(), errStillDue.Error(), "rows that stay due are not told")
	effort.Denied(s.verification(t.Context(), unpaid.ID))(t, ledger.ErrNoSuchVerification, "what is behind them is there")
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
	effort.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return logged{s, url, metrics}, &log
}

// settlesEach makes verifications that are final.
func settlesEach(t *testing.T, s ledger.Book, n int) (ids []uuid.UUID) {
	t.Helper()
	d := ledgertest.NewFixture(t, s, ledger.Credits(n))
	for range n {
		v, l := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		ids = append(ids, v.ID)
	}
	return ids
}

// erasedResults reports whether a verification's results are erased.
func (l logged) erasedResults(t *testing.T, id uuid.UUID) bool {
	t.Helper()
	v := effort.Must(l.verification(t.Context(), id))(t)
	return v.ResultsDeleted
}
