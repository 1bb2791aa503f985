package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// kept is a retention as an operator has it.
var kept = ledger.Retention{Uploads: day, Results: 30 * day, Funding: 30 * day}

const day = 24 * time.Hour

// TestAClockThatJumpsErasesNothing has the clock of a server jump by 40 days, beside nodes
// that run and for one that has just begun; then the node's clock, and both.
func TestAClockThatJumpsErasesNothing(t *testing.T) {
	t.Parallel()
	url := NewLedger(t)
	shifts := aside(t, url)
	// The database's own clock is hidden behind one that can be set.
	shifts(`CREATE TABLE shift (days INT); INSERT INTO shift VALUES (0); CREATE FUNCTION public.statement_timestamp()
		RETURNS timestamptz LANGUAGE sql STABLE AS
		'SELECT pg_catalog.statement_timestamp() + days * interval ''1 day'' FROM public.shift'`)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	shifts(`ALTER DATABASE ` + name + ` SET search_path = public, pg_catalog`)
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	clock := time.Now // of the nodes' machines
	seams := engine.Seams{NodeClock: func() time.Time { return clock() }}
	node, err := Open(t.Context(), url, Options{Registerer: metrics, Log: slog.New(slog.NewTextHandler(&log, nil)), Seams: seams})
	effort.OK(t, err)
	defer func() { _ = node.Close() }()
	d := ledgertest.NewFixture(t, node, 9)
	c := fillsForClock(d)
	c.sweeps(t, node, nil)
	shifts(`UPDATE shift SET days = 40`)
	for range 3 {
		c.sweeps(t, node, ledger.ErrClock)
	}
	if told := strings.Count(log.String(), "level=ERROR"); told != 1 || doubted(t, metrics) != 1 {
		t.Errorf("told %d times, want once; the metric is %v:\n%s", told, doubted(t, metrics), &log)
	}
	begun := effort.Must(Open(t.Context(), url, Options{Seams: seams}))(t)
	defer func() { _ = begun.Close() }()
	c.sweeps(t, begun, ledger.ErrClock)
	clock = func() time.Time { return time.Now().Add(40 * day) } // neither the machine's clock makes it true
	c.sweeps(t, node, ledger.ErrClock)
	c.sweeps(t, begun, ledger.ErrClock)
	shifts(`UPDATE shift SET days = 0`)
	c.sweeps(t, node, ledger.ErrClock) // now the machine's is wrong
	clock = time.Now
	c.sweeps(t, node, nil)
	effort.Has(t, log.String(), "is trusted again", "the end of the doubt is not told", &log)
	effort.Is(t, doubted(t, metrics), 0, "the end of the doubt is not told", &log)
}

// doubted reads rollcall_ledger_clock_doubted.
func doubted(t *testing.T, metrics *prometheus.Registry) float64 {
	t.Helper()
	return nettest.Metric(t, metrics, "rollcall_ledger_clock_doubted")
}

// clocked is what a jump of the clock would end.
type clocked struct {
	d                         *ledgertest.Fixture
	done, uploading, unfunded uuid.UUID
}

func fillsForClock(d *ledgertest.Fixture) clocked {
	c := clocked{d: d}
	v, l := d.Prepares(2)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	c.done, c.uploading = v.ID, d.Creates(9).ID
	w, _ := d.Prepares(90) // more than there are credits
	c.unfunded = w.ID
	return c
}

// sweeps expects what a sweep answers, and that nothing is gone.
func (c clocked) sweeps(t *testing.T, s *Store, want error) {
	t.Helper()
	n, err := s.Sweep(t.Context(), kept)
	effort.ErrorIf(t, n != 0 || !errors.Is(err, want), "sweep: changed %d, %v, want %v", n, err, want)
	effort.Is(t, len(c.d.Reads(c.done)), 2, "results are left of 2")
	a, b := c.d.Sees(c.uploading).Status, c.d.Sees(c.unfunded).Status
	effort.ErrorIf(t, a != ledger.Uploading || b != ledger.Waiting, "the files are %s and %s", a, b)
}

// TestAfterAStandstillSweepsWorkAgain: nobody opened an embedded ledger for 40 days. That looks like a clock that
// jumped, so sweeps begin only after the ledger was open for a day.
func TestAfterAStandstillSweepsWorkAgain(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	s, err := Open(t.Context(), url, Options{})
	effort.OK(t, err)
	c := fillsForClock(ledgertest.NewFixture(t, s, 9))
	c.sweeps(t, s, nil)
	earlier := fmt.Sprint((40 * day).Milliseconds())
	for _, statement := range []string{`UPDATE ledger_clock SET swept = swept - ` + earlier,
		`UPDATE verifications SET completed = completed - ` + earlier + ` WHERE completed > 0`,
		`CREATE TABLE shift (ms INTEGER)`, `INSERT INTO shift VALUES (0)`} {
		run(t, s, statement)
	}
	effort.OK(t, s.Close())
	ran := time.Duration(0)
	o := Options{Seams: engine.Seams{Ran: func() time.Duration { return ran },
		Clock: `(CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + (SELECT ms FROM shift))`}}
	s = effort.Must(Open(t.Context(), url, o))(t)
	defer func() { _ = s.Close() }()
	c.d.Book = s
	c.sweeps(t, s, ledger.ErrClock)
	ran = day
	run(t, s, `UPDATE shift SET ms = ?`, day.Milliseconds())
	if n, err := s.Sweep(t.Context(), kept); n != 2+1 || err != nil { // its upload and its results; an upload that expired
		t.Errorf("after a day: changed %d, %v", n, err)
	}
	var swept int64
	err = s.view(t.Context(), func(t *tx) error {
		return t.Row(`SELECT unixepoch() * 1000 - swept FROM ledger_clock`).Scan(&swept)
	})
	effort.ErrorIf(t, err != nil || swept > 0, "the last sweep is noted %d ms ago: %v", swept, err)
}

// aside returns a function that runs statements on a server in another connection than the ledger's.
func aside(t *testing.T, url string) func(statements string) {
	t.Helper()
	conn := effort.Must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return func(statements string) {
		t.Helper()
		_, err := conn.PgConn().Exec(t.Context(), statements).ReadAll()
		effort.FatalIf(t, err != nil, "%s: %v", statements, err)
	}
}
