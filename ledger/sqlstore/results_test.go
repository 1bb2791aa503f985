package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestResultsHoldNoSession: however many readers have stopped half-way, others
// are served, and what is erased meanwhile still comes.
func TestResultsHoldNoSession(t *testing.T) {
	const readers, rows = 100, 50 // more readers than a ledger has sessions
	d := ledgertest.NewFixture(t, openStore(t), rows)
	v, l := d.Prepares(rows)
	d.Settles(l, 1, rows/2, rows-1, smtp.Valid)
	d.Settles(l, 2, 0, rows/2-1, smtp.Invalid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var read func(deep int) error
	read = func(deep int) error {
		next := int64(0)
		return d.Results(ctx, d.Workspace, v.ID, func(r ledger.Result) error {
			effort.Is(t, r.Ordinal, next, fmt.Sprintf("reader %d: ordinal", deep))
			next++
			switch {
			case r.Ordinal != 2:
				return nil
			case deep < readers:
				return read(deep + 1)
			}
			_, err := d.Sweep(ctx, ledger.Retention{Results: 1})
			return err
		})
	}
	effort.OK(t, read(1))
	err := d.Results(ctx, d.Workspace, v.ID, func(ledger.Result) error { return nil })
	effort.ErrIs(t, err, ledger.ErrResultsExpired, "after the sweep")
}

// TestAPageOfResultsThatIsCutGoesOn cuts the connection five times, each time within the tenth row of a page. A cut
// page continues behind its last row: all results arrive, once each and in order. CockroachDB may also cut a page by
// itself, with 40001, if it is larger than sql.defaults.results_buffer.size.
func TestAPageOfResultsThatIsCutGoesOn(t *testing.T) {
	t.Parallel()
	const settlements, each = 70, 100
	url := sqlstore.NewLedger(t)
	proxy, through := throughProxy(t, url)
	d := ledgertest.NewFixture(t, openAt(t, url), settlements*each)
	v, l := d.Prepares(settlements * each)
	for n := range int64(settlements) {
		d.Settles(l, n+1, n*each, (n+1)*each-1, smtp.Valid)
	}
	var cuts atomic.Int64
	proxy.SetPlan(func(s postgres.Statement) postgres.Act {
		if strings.Contains(s.Text, "SELECT payload FROM settlements") && cuts.Add(1) <= 5 {
			return postgres.Act{Kind: postgres.CutAnswer, Rows: 9}
		}
		return postgres.Act{}
	})
	want := int64(0)
	err := through.Results(t.Context(), d.Workspace, v.ID, func(r ledger.Result) error {
		effort.Is(t, r.Ordinal, want, "ordinal")
		want++
		return nil
	})
	effort.ErrorIf(t, err != nil || want != settlements*each, "%d of %d results, %v", want, settlements*each, err)
	effort.ErrorIf(t, cuts.Load() < 5, "%d pages were asked for: nothing was cut", cuts.Load())
}

// TestWhatAnotherProcessSettledIsKnown: two processes use one lease, as one that lost its
// connection and one that took its place would, and neither charges what the other has.
func TestWhatAnotherProcessSettledIsKnown(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	other := openAt(t, url)
	v, l := d.Prepares(9)
	books := []ledger.Book{d, other}
	for number := range int64(4) {
		with := books[number%2]
		for before := range number {
			_, err := with.Settle(t.Context(), ledgertest.Batch(l, number+1, before, number, smtp.Valid))
			effort.ErrIs(t, err, ledger.ErrIllegal, fmt.Sprintf("settlement %d with ordinal %d of before", number+1, before))
		}
		effort.Must(with.Settle(t.Context(), ledgertest.Batch(l, number+1, number, number, smtp.Valid)))(t)
	}
	if v = d.Sees(v.ID); v.Counts.Valid != 4 || v.Held != 5 || d.Account().Spent != 4 {
		t.Errorf("at the end %+v, %+v", v, d.Account())
	}
	d.Audits()
}

// TestWhatCrashesTwiceIsSetAside lets the program fail twice over one verification, with the rest
// between both ended by hand: it fails with its code, its credits are back, and no lease takes it again.
func TestWhatCrashesTwiceIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	defer func() { _ = s.Close() }()
	d := ledgertest.NewFixture(t, s, 100)
	_, l := d.Prepares(3)
	first := effort.Must(s.Crashed(t.Context(), l))(t)
	effort.MustBe(t, first.Status, ledger.Verifying, "after the first")
	change(t, path, `UPDATE verifications SET wake_at = wake_at - 60000`)
	failed, err := s.Crashed(t.Context(), d.Takes(l.Verification))
	if err != nil || failed.Status != ledger.Failed || failed.Issue == nil || failed.Issue.Code != ledger.InternalError {
		t.Fatalf("after the second: %s with %+v, %v", failed.Status, failed.Issue, err)
	}
	effort.Is(t, d.Account(), (ledger.Balance{Granted: 100, Available: 100}), "the account is")
	effort.Is(t, len(effort.Must(s.Lease(t.Context(), d.Node, 1000, ledgertest.Hour))(t)), 0, "are leased")
}

// TestRetentionLeavesNoByteOfAnAddress puts canaries into uploads and results of every size, erases them by retention
// while the ledger is open and others stay in use, and searches all files of the ledger for them. The entries stay.
func TestRetentionLeavesNoByteOfAnAddress(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	defer func() { _ = s.Close() }()
	d := ledgertest.NewFixture(t, s, 100_000)
	var canaries [][]byte
	for i, size := range []int{1, 40, 300, 3000, 5000, 100_000} {
		canary := fmt.Appendf(nil, "canary%d@erased.example\n", i)
		canaries = append(canaries, canary, fmt.Appendf(nil, "evidence of canary%d@erased.example", i))
		v := d.Creates(int64(size * len(canary)))
		d.FillsWith(v, bytes.Repeat(canary, size))
		settles(d, d.Takes(v.ID), int64(min(size, ledger.SettlementMax)), string(canary[:len(canary)-1]))
		d.Prepares(3) // stays, between the others
	}
	refused := "canary of a refused row@erased.example"
	canaries = append(canaries, []byte(refused))
	effort.Must(d.Refuse(t.Context(), d.Takes(d.Uploads().ID), ledger.Issue{Code: "csv_malformed", Row: 1,
		Text: refused}))(t)
	// Results are compressed: their canaries are what the ledger stores of them.
	for _, payload := range payloads(t, path) {
		canaries = append(canaries, payload[8:min(len(payload), 40)], payload[len(payload)-32:])
	}
	effort.MustBe(t, found(t, dir, canaries), len(canaries), "of canaries are in the files before: the search is blind")
	before := d.Account()
	reading, stop := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- readUntil(path, reading, stop) }()
	<-reading
	waitPast(t) // retention is counted from the end, in milliseconds
	sweep := func() {
		t.Helper()
		effort.Must(s.Sweep(t.Context(), ledger.Retention{Uploads: time.Millisecond, Results: time.Millisecond}))(t)
	}
	sweep()
	effort.Not(t, found(t, dir, canaries), 0,
		"nothing is left though an older moment is being read: does the log matter at all?")
	close(stop)
	effort.OK(t, <-ended)
	sweep()
	effort.Is(t, found(t, dir, canaries), 0, "of", len(canaries), "canaries are left in the files")
	effort.Is(t, d.Account(), before, fmt.Sprintf("the account was %+v, is", before))
	if report := d.Audits(); report.Entries != 1+6+6+6 { // grant, holds of all, charges
		t.Errorf("%d entries are left", report.Entries)
	}
	d.Grants(1)
}

// settles prepares and settles a file of n times one address.
func settles(d *ledgertest.Fixture, l ledger.Lease, n int64, email string) {
	d.T.Helper()
	effort.Must(d.Prepare(d.T.Context(), l, n, 0, n))(d.T)
	batch := ledgertest.Batch(l, 1, 0, n-1, smtp.Valid)
	for i := range batch.Results {
		batch.Results[i].Email = fmt.Sprintf("%d.%s", i*i, email)
	}
	batch.Evidence = bytes.Repeat([]byte("evidence of "+email+" "), int(n))
	effort.Must(d.Settle(d.T.Context(), batch))(d.T)
}

// payloads reads what is stored of all results.
func payloads(t *testing.T, path string) (list [][]byte) {
	t.Helper()
	db := effort.Must(sql.Open("sqlite", "file:"+path+"?mode=ro"))(t)
	defer db.Close()
	rows := effort.Must(db.Query(`SELECT payload FROM settlements`))(t)
	defer rows.Close()
	for rows.Next() {
		var payload []byte
		effort.OK(t, rows.Scan(&payload))
		list = append(list, payload)
	}
	effort.FatalIf(t, rows.Err() != nil || len(list) != 6, "%d payloads, %v", len(list), rows.Err())
	return list
}

// readUntil keeps one moment of the ledger open for reading, from when reading is closed until stop is.
func readUntil(path string, reading chan<- struct{}, stop <-chan struct{}) error {
	defer close(reading)
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return errors.Join(err, db.Close())
	}
	var n int
	err = tx.QueryRow(`SELECT count(*) FROM entries`).Scan(&n)
	reading <- struct{}{}
	<-stop
	return errors.Join(err, tx.Rollback(), db.Close())
}

// found counts the canaries that are in any file of a folder.
func found(t *testing.T, dir string, canaries [][]byte) (n int) {
	t.Helper()
	files := effort.Must(filepath.Glob(filepath.Join(dir, "*")))(t)
	var all []byte
	for _, name := range files {
		text := effort.Must(os.ReadFile(name))(t)
		all = append(all, text...)
	}
	for _, canary := range canaries {
		if bytes.Contains(all, canary) {
			n++
		}
	}
	return n
}

// waitPast waits until the clock shows some milliseconds more.
func waitPast(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

const (
	benchRows  = 1_000_000
	benchBatch = 1_000
)

// benched is an empty ledger, as durable as in production, and a bare table t (n, payload) of the same database.
type benched struct {
	*ledgertest.Fixture
	bare *sql.DB
}

// onEngines runs a benchmark on each database.
func onEngines(b *testing.B, bench func(b *testing.B, d benched)) {
	run := func(name, driver string, open func(b *testing.B) (url, bare string)) {
		b.Run(name, func(b *testing.B) {
			url, bare := open(b)
			d := benched{Fixture: ledgertest.NewFixture(b, openAt(b, url), 1<<40)}
			var err error
			if d.bare, err = sql.Open(driver, bare); err == nil {
				d.bare.SetMaxOpenConns(1)
				_, err = d.bare.Exec(`CREATE TABLE t (n BIGINT PRIMARY KEY, payload ` +
					map[string]string{"sqlite": "BLOB", "pgx": "BYTEA"}[driver] + `)`)
			}
			effort.OK(b, err)
			b.Cleanup(func() { _ = d.bare.Close() })
			bench(b, d)
		})
	}
	run("sqlite", "sqlite", func(b *testing.B) (url, bare string) {
		q := neturl.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(4096)"}}
		return "sqlite:" + filepath.Join(b.TempDir(), "ledger.db"),
			"file:" + filepath.Join(b.TempDir(), "bare.db") + "?" + q.Encode()
	})
	run("postgresql", "pgx", func(b *testing.B) (url, bare string) {
		server := postgres.New(b, postgres.Options{Durable: true})
		url = server.NewDatabase(b, "bench", "")
		effort.OK(b, sqlstore.Migrate(b.Context(), url))
		return url, server.NewDatabase(b, "bare", "")
	})
}

// scattered returns settlement number of a file whose outcomes arrive in another
// order than its rows, as they do when domains answer at their own pace.
func scattered(l ledger.Lease, number, of int64) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: number, Results: make([]ledger.Result, 0, benchBatch)}
	outcomes := [...]smtp.Outcome{smtp.Valid, smtp.Valid, smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown}
	for i := range int64(benchBatch) {
		ordinal := i*of + number - 1
		h := uint64(ordinal) * 0x9e3779b97f4a7c15
		s.Results = append(s.Results, ledger.Result{Ordinal: ordinal,
			Email:   fmt.Sprintf("%s.%d@%s.example", strconv.FormatUint(h>>44, 36), ordinal%977, strconv.FormatUint(h>>52, 36)),
			Outcome: outcomes[h>>33%6], Reason: smtp.Reason(1 + h>>30%20),
			At: time.UnixMilli(1_763_000_000_000 + int64(h>>50))})
	}
	return s
}

// settleAll settles a whole file of benchRows, and says how long that took, and how long it took to insert the very
// bytes of its payloads into the bare table. Both take turns with each batch, so that what else the machine does hits
// them alike.
func settleAll(b *testing.B, d benched) (id uuid.UUID, settled, inserted time.Duration) {
	const n = benchRows / benchBatch
	v, l := d.Prepares(benchRows)
	for number := int64(1); number <= n; number++ {
		s := scattered(l, number, n)
		packed, err := ledger.EncodeResults(s.Results)
		began := time.Now()
		if err == nil {
			_, err = d.Settle(b.Context(), s)
		}
		half := time.Now()
		if err == nil {
			_, err = d.bare.ExecContext(b.Context(), `INSERT INTO t (n, payload) VALUES ($1, $2)`, number, packed.Bytes)
		}
		effort.OK(b, err)
		settled, inserted = settled+half.Sub(began), inserted+time.Since(half)
	}
	return v.ID, settled, inserted
}

// BenchmarkSettle settles 1,000,000 outcomes in batches of 1,000. It prints the ledger's speed as a fraction of the
// speed of bare inserts.
func BenchmarkSettle(b *testing.B) {
	onEngines(b, func(b *testing.B, d benched) {
		var settled, inserted time.Duration
		for b.Loop() {
			effort.Must(d.bare.Exec(`DELETE FROM t`))(b)
			_, s, i := settleAll(b, d)
			settled, inserted = settled+s, inserted+i
		}
		b.ReportMetric(float64(settled.Milliseconds())/float64(b.N), "ledger-ms")
		b.ReportMetric(float64(inserted)/float64(settled), "of-same-bytes")
	})
}

// BenchmarkResults reads 1,000,000 settled rows in order; the bytes are those of their addresses.
func BenchmarkResults(b *testing.B) {
	onEngines(b, func(b *testing.B, d benched) {
		id, _, _ := settleAll(b, d)
		b.ReportAllocs()
		for b.Loop() {
			next, bytes := int64(0), 0
			err := d.Results(b.Context(), d.Workspace, id, func(r ledger.Result) error {
				if r.Ordinal != next {
					return fmt.Errorf("ordinal %d, want %d", r.Ordinal, next)
				}
				next, bytes = next+1, bytes+len(r.Email)
				return nil
			})
			effort.FatalIf(b, err != nil || next != benchRows, "%d rows, %v", next, err)
			b.SetBytes(int64(bytes))
		}
	})
}
