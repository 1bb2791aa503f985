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

// kept is a retention as an operator has it.
var kept = ledger.Retention{Uploads: day, Results: 30 * day, Funding: 30 * day}

const day = 24 * time.Hour

// TestWhichClocksAreBelieved takes one process through a row of looks.
func TestWhichClocksAreBelieved(t *testing.T) {
	type step struct {
		ran, ledger, node time.Duration // the latter two beside the true time; node: of a server only
		doubted           bool
	}
	for _, c := range []struct {
		name   string
		idle   time.Duration // since the last sweep, when the process began
		server bool
		steps  []step
	}{
		{"both run", 0, false, []step{{}, {ran: time.Minute}, {ran: 90 * day}}},
		{"a pause of less than an hour", 0, false, []step{{}, {ran: time.Minute, ledger: jumpMax}}},
		{"a jump while a process runs", 0, false, []step{{}, {ran: time.Minute, ledger: jumpMax + time.Second, doubted: true}}},
		{"a jump of many small ones", 0, false, []step{{}, {ledger: 20 * time.Minute}, {ledger: 40 * time.Minute},
			{ledger: 65 * time.Minute}, {ledger: 126 * time.Minute, doubted: true}}},
		{"a jump that is mended", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2}}},
		{"a jump that stands for a day is true", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day}, {ran: day + 2, ledger: 40 * day}}},
		{"a second jump waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day + 1, ledger: 80 * day, doubted: true}, {ran: 2 * day, ledger: 80 * day, doubted: true},
			{ran: 2*day + 1, ledger: 80 * day}}},
		{"a jump that comes and goes waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2},
			{ran: day + 1, ledger: 40 * day, doubted: true}}},
		{"a clock that goes back, and is right again", 0, false, []step{{}, {ran: time.Minute, ledger: -9 * day},
			{ran: 2 * time.Minute}, {ran: 3 * time.Minute, ledger: 2 * jumpMax, doubted: true}}},
		{"a night without nodes", day, false, []step{{}}},
		{"a long standstill", 40 * day, false, []step{{doubted: true}, {ran: day - 1, doubted: true}, {ran: day}, {ran: day + 1}}},
		{"a server whose clock is near", 0, true, []step{{ledger: apartMax}, {ledger: -apartMax}, {node: apartMax}}},
		{"a server ahead of the node", 0, true, []step{{ledger: apartMax + 1, doubted: true}, {}}},
		{"a server behind the node", 0, true, []step{{node: apartMax + 1, doubted: true}, {}}},
		{"a server that stays ahead is never believed", 0, true, []step{{ledger: 40 * day, doubted: true},
			{ran: 3 * day, ledger: 40 * day, doubted: true}}},
		{"both jump", 0, true, []step{{}, {ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day + 1, ledger: 40 * day, node: 40 * day}}},
		{"both jump, and then the server alone", 0, true, []step{{}, {ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day, node: 40 * day, doubted: true}}},
	} {
		began := time.UnixMilli(1_700_000_000_000)
		watch := newClockWatch()
		for i, s := range c.steps {
			l := look{ledger: began.Add(s.ran + s.ledger), swept: began.Add(-c.idle), ran: s.ran}
			if c.server {
				l.node = began.Add(s.ran + s.node)
			}
			if why := watch.doubt(l); (why != "") != s.doubted {
				t.Errorf("%s, step %d: doubted because %q, want %v", c.name, i+1, why, s.doubted)
				break
			}
		}
	}
}

// TestAClockThatJumpsErasesNothing has the clock of a server jump by 40 days, beside nodes
// that run and for one that has just begun; then the node's clock, and both.
func TestAClockThatJumpsErasesNothing(t *testing.T) {
	t.Parallel()
	url := NewLedger(t)
	shifts := migratorAt(t, url, postgresDialect())
	// The database's own clock is hidden behind one that can be set.
	shifts.does(t, `CREATE TABLE shift (days INT); INSERT INTO shift VALUES (0); CREATE FUNCTION public.statement_timestamp()
		RETURNS timestamptz LANGUAGE sql STABLE AS
		'SELECT pg_catalog.statement_timestamp() + days * interval ''1 day'' FROM public.shift'`)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	shifts.does(t, `ALTER DATABASE `+name+` SET search_path = public, pg_catalog`)
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	node, err := Open(t.Context(), url, Options{Registerer: metrics, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	d := ledgertest.NewDesk(t, node, 9)
	c := fillsForClock(d)
	c.sweeps(t, node, nil)
	shifts.does(t, `UPDATE shift SET days = 40`)
	for range 3 {
		c.sweeps(t, node, ledger.ErrClock)
	}
	if told := strings.Count(log.String(), "level=ERROR"); told != 1 || doubted(t, metrics) != 1 {
		t.Errorf("told %d times, want once; the metric is %v:\n%s", told, doubted(t, metrics), &log)
	}
	begun, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = begun.Close() }()
	c.sweeps(t, begun, ledger.ErrClock)
	jumped := func() time.Time { return time.Now().Add(40 * day) }
	node.clock.node, begun.clock.node = jumped, jumped // neither the machine's clock makes it true
	c.sweeps(t, node, ledger.ErrClock)
	c.sweeps(t, begun, ledger.ErrClock)
	shifts.does(t, `UPDATE shift SET days = 0`)
	c.sweeps(t, node, ledger.ErrClock) // now the machine's is wrong
	node.clock.node = time.Now
	c.sweeps(t, node, nil)
	if !strings.Contains(log.String(), "is believed again") || doubted(t, metrics) != 0 {
		t.Errorf("the end of the doubt is not told: %s", &log)
	}
}

// doubted reads rollcall_ledger_clock_doubted.
func doubted(t *testing.T, metrics *prometheus.Registry) float64 {
	t.Helper()
	return gaugeOf(t, metrics, "rollcall_ledger_clock_doubted")
}

// gaugeOf reads a metric that has no labels.
func gaugeOf(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s: %v", name, err)
	return 0
}

// clocked is what a jump of the clock would end.
type clocked struct {
	d                         *ledgertest.Desk
	done, uploading, unfunded uuid.UUID
}

func fillsForClock(d *ledgertest.Desk) clocked {
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
	if n, err := s.Sweep(t.Context(), kept); n != 0 || !errors.Is(err, want) {
		t.Errorf("sweep: changed %d, %v, want %v", n, err, want)
	}
	if got := len(c.d.Reads(c.done)); got != 2 {
		t.Errorf("%d results are left of 2", got)
	}
	if a, b := c.d.Sees(c.uploading).Status, c.d.Sees(c.unfunded).Status; a != ledger.Uploading || b != ledger.Waiting {
		t.Errorf("the files are %s and %s", a, b)
	}
}

// TestAfterAStandstillSweepsWorkAgain: an embedded ledger that nobody had for 40 days, whose
// clock might as well have jumped, is swept when it has stood for a day.
func TestAfterAStandstillSweepsWorkAgain(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := fillsForClock(ledgertest.NewDesk(t, s, 9))
	c.sweeps(t, s, nil)
	earlier := fmt.Sprint((40 * day).Milliseconds())
	for _, statement := range []string{`UPDATE ledger_clock SET swept = swept - ` + earlier,
		`UPDATE verifications SET completed = completed - ` + earlier + ` WHERE completed > 0`} {
		run(t, s, statement)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), url, Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c.d.Book = s
	c.sweeps(t, s, ledger.ErrClock)
	ran := s.clock.ran
	s.clock.ran = func() time.Duration { return ran() + day }
	shiftClock(t, s, day)
	if n, err := s.Sweep(t.Context(), kept); n != 2+1 || err != nil { // its upload and its results; an upload that expired
		t.Errorf("after a day: changed %d, %v", n, err)
	}
	var swept int64
	err = s.view(t.Context(), func(t *tx) error {
		return t.row(`SELECT unixepoch() * 1000 - swept FROM ledger_clock`).Scan(&swept)
	})
	if err != nil || swept > 0 {
		t.Errorf("the last sweep is noted %d ms ago: %v", swept, err)
	}
}

// shiftClock sets the clock of an embedded ledger ahead, as its statements read it.
func shiftClock(t *testing.T, s *Store, by time.Duration) {
	t.Helper()
	now := fmt.Sprintf("(%s + %d)", s.dialect.now, by.Milliseconds())
	for _, p := range []*pool{s.readers, s.writer} {
		var all []*session
		for range cap(p.free) {
			one, err := p.take(t.Context(), false, 0)
			if err != nil {
				t.Fatal(err)
			}
			_ = one.close() // with what it prepared
			one.dialect.now = now
			all = append(all, one)
		}
		for _, one := range all {
			p.put(one)
		}
	}
}
