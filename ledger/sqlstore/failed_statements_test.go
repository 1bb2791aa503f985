package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// openNoted opens an embedded ledger all of whose statements run by way of two
// notebooks: that of the writer, and that of the readers.
func openNoted(t *testing.T, o Options) (*Store, [2]*notebook) {
	t.Helper()
	var notes [2]*notebook
	o.Seams = engine.Seams{Wrap: func(d driver.Driver, name string) driver.Connector {
		n := &notebook{driver: d, dsn: name}
		if notes[0] == nil { // the writer comes first
			notes[0] = n
		} else {
			notes[1] = n
		}
		return n
	}}
	s := effort.Must(Open(t.Context(), NewFile(t), o))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s, notes
}

// Losses are the statements of writing transactions that have failed so far, each after those before it in its
// transaction. The database says that it is busy, so that the transaction is run again.
type Losses struct {
	busy error
	met  map[string]bool // the texts of transactions up to a statement that has failed
	all  map[string]bool // of the statements; false: has not failed
}

// NewLosses makes a database say that it is busy.
func NewLosses(t *testing.T) *Losses {
	t.Helper()
	l := &Losses{met: map[string]bool{}, all: map[string]bool{}}
	url := "file:" + t.TempDir() + "/busy.db?_pragma=busy_timeout(0)"
	for range 2 {
		db := effort.Must(sql.Open("sqlite", url))(t)
		defer func() { _ = db.Close() }()
		_, l.busy = db.Exec(`BEGIN IMMEDIATE`)
	}
	effort.Not(t, l.busy, nil, "the database is not busy")
	return l
}

// Overlooked tells the statements that never failed. A part of the suite may leave out some.
func (l *Losses) Overlooked() (texts []string) {
	const whole = 100 // statements are in the whole suite
	for text, failed := range l.all {
		if !failed && len(l.all) > whole {
			texts = append(texts, text)
		}
	}
	return texts
}

// Open opens a ledger whose transactions meet losses. One that is committed although a statement of it failed fails
// the test.
func (l *Losses) Open(t *testing.T) *Store {
	t.Helper()
	s, notes := openNoted(t, Options{RetryWait: time.Microsecond})
	notes[0].instead = (&losing{Losses: l, t: t, runs: map[string]int{}}).instead
	return s
}

// losing is the writer of one ledger.
type losing struct {
	*Losses
	t      *testing.T
	within bool           // a transaction
	before []string       // its texts so far
	failed string         // the one of them that failed; "": none has
	runs   map[string]int // that failed, by the first text
}

// The ledger gives up after eight runs of a transaction, which all begin with the same text. So many may fail, the last
// of them only by a statement that has not failed anywhere.
const (
	lossesMax  = 7
	lossesMany = 6
)

func (l *losing) instead(text string) error {
	switch text {
	case "BEGIN IMMEDIATE":
		l.within, l.before, l.failed = true, nil, ""
		return nil
	case "COMMIT", "ROLLBACK":
		effort.ErrorIf(l.t, text == "COMMIT" && l.failed != "", "committed, and this had failed: %s", l.failed)
		l.within = false
		return nil
	}
	if !l.within {
		return nil
	}
	l.before = append(l.before, text)
	place, first := strings.Join(l.before, "\n"), l.before[0]
	failed := l.all[text]
	l.all[text] = failed
	if failed && (l.met[place] || l.runs[first] >= lossesMany) || l.runs[first] == lossesMax {
		return nil
	}
	l.met[place], l.all[text], l.failed = true, true, text
	l.runs[first]++
	return l.busy
}

// errFailed is no error that the ledger knows.
var errFailed = errors.New("this statement fails")

// eachFails has each statement of a call fail in turn, and gives the answers; the last is that without a failure.
func eachFails(t *testing.T, notes [2]*notebook, call func() error) (answers []error) {
	t.Helper()
	for after, failed := 0, true; failed; after++ {
		left := after
		failed = false
		for _, n := range notes {
			n.instead = func(text string) error {
				if failed || text == "ROLLBACK" {
					return nil
				}
				if left--; left >= 0 {
					return nil
				}
				failed = true
				return errFailed
			}
		}
		answers = append(answers, call())
	}
	notes[0].instead, notes[1].instead = nil, nil
	return answers
}

// TestAFailedReadingIsTold makes each statement of each read fail in turn, and wants the error from the call.
func TestAFailedReadingIsTold(t *testing.T) {
	s, notes := openNoted(t, Options{})
	d := ledgertest.NewFixture(t, s, 5)
	v, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
	effort.Must(d.CreateKey(t.Context(), k))(t)
	d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
	answers := eachFails(t, notes, func() error { return readings(d, v.ID, k.ID) })
	last := len(answers) - 1
	for i, err := range answers[:last] {
		effort.ErrIs(t, err, errFailed, "statement", i+1)
	}
	effort.ErrorIf(t, answers[last] != nil || last < 30, "after %d statements that failed: %v", last, answers[last])
}

// TestASecretThatIsNotMadeIsTold: the first reading of it may fail, for what is asked after that answers too.
func TestASecretThatIsNotMadeIsTold(t *testing.T) {
	s, notes := openNoted(t, Options{})
	var values []int
	answers := eachFails(t, notes, func() error {
		value, err := s.Secret(t.Context(), "urls", 32)
		values = append(values, len(value))
		return err
	})
	for i, err := range answers {
		told := i > 0 && i < len(answers)-1
		effort.ErrorIf(t, errors.Is(err, errFailed) != told || (values[i] == 32) == told,
			"statement %d failed: %d bytes, %v", i+1, values[i], err)
	}
}

// tables is everything that a ledger has, as text.
func tables(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"workspaces", "api_keys", "verifications", "upload_chunks", "settlements", "evidence", "parked_work",
		"entries", "credit_days", "secrets", "operator_log", "nodes", "cluster_turn", "receiver_facts",
		"throttle_overrides", "workspace_weights", "workspace_limits", "users", "memberships", "user_sessions", "links",
		"sign_in_attempts", "workspace_log"} {
		effort.OK(t, s.view(t.Context(), func(t *tx) error {
			return t.Each(func(rows *sql.Rows) error {
				columns, err := rows.Columns()
				if err != nil {
					return err
				}
				values, into := make([]any, len(columns)), make([]any, len(columns))
				for i := range values {
					into[i] = &values[i]
				}
				err = rows.Scan(into...)
				fmt.Fprintln(&b, table, values)
				return err
			}, `SELECT * FROM `+table)
		}))
	}
	return b.String()
}

// beatOf is a process's first heartbeat.
func beatOf(session uuid.UUID) ledger.Heartbeat {
	return ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: session, Node: uuid.UUID{9}}}
}

// begun is a process that is in.
func begun(d *ledgertest.Fixture, session uuid.UUID) ledger.Heartbeat {
	b := beatOf(session)
	effort.Must(d.WriteHeartbeat(d.T.Context(), b))(d.T)
	return b
}

// readings makes every reading call about a workspace, one of its verifications and one of its keys.
func readings(d *ledgertest.Fixture, id uuid.UUID, key string) error {
	ctx := d.T.Context()
	_, spaces := d.Workspaces(ctx)
	_, balance := d.Balance(ctx, d.Workspace)
	_, usage := d.Usage(ctx, d.Workspace)
	_, read := d.Verification(ctx, d.Workspace, id)
	_, history := d.History(ctx, ledger.HistoryQuery{Workspace: d.Workspace, Limit: 9})
	_, entries := d.Entries(ctx, ledger.EntriesQuery{Workspace: d.Workspace, Verification: id, Limit: 9})
	results := d.Results(ctx, d.Workspace, id, func(ledger.Result) error { return nil })
	settled := d.Settled(ctx, id, func([]int64) error { return nil })
	_, seen := d.Evidence(ctx, id, 0, func(ledger.StoredSettlement) error { return nil })
	_, upload := d.UploadState(ctx, id)
	_, audit := d.Audit(ctx)
	_, snapshot := d.ReadNodes(ctx)
	_, known := d.Known(ctx, []string{"a", "b"})
	_, settings := d.Settings(ctx)
	_, log := d.OperatorLog(ctx, ledger.LogQuery{Limit: 1})
	_, older := d.OperatorLog(ctx, ledger.LogQuery{Limit: 1, Before: time.Now()})
	_, keys := d.Keys(ctx, d.Workspace)
	_, one := d.KeyByID(ctx, key)
	return errors.Join(spaces, balance, usage, read, history, entries, results, settled, seen, upload, audit, snapshot, known,
		settings, log, older, keys, one, d.Ping(ctx), readFile(ctx, d, id))
}

// readFile reads an uploaded file from its start to its end.
func readFile(ctx context.Context, d *ledgertest.Fixture, id uuid.UUID) error {
	f, err := d.OpenFile(ctx, id)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(f)
	return errors.Join(err, f.Close())
}

// TestALockedAccountStopsNobodyElse: a node that was frozen holds the row of one workspace's account. Eight
// writers of that workspace want it, again and again; a write of another workspace, a lease and a
// beat take their own time. What is compared is how often the eight came back from a wait for the row.
func TestALockedAccountStopsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	s.does(t, `BEGIN`)
	effort.Must(s.aside.Exec(t.Context(), `UPDATE workspaces SET name = name WHERE id = $1`, s.a[:]))(t)
	const writers, writes = 8, 20
	ctx, stop := context.WithCancel(ledger.WithTenant(t.Context(), s.a))
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := s.Grant(ctx, uuid.New(), s.a, 1, "")
				effort.ErrorIf(t, err == nil, "the row was not locked")
			}
		})
	}
	defer all.Wait()
	defer stop()
	returned := func() float64 { return s.waited(t) }
	waiting := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	for returned() < 4 { // so that some have waited more than once
		select {
		case <-t.Context().Done():
			t.Fatal("nobody waits for the row")
		case <-time.After(5 * time.Millisecond):
		}
	}
	var sessions int
	if err := s.aside.QueryRow(t.Context(), waiting).Scan(&sessions); err != nil || sessions > 1 {
		t.Errorf("%d sessions wait for one row, %v: want one, the other writers wait in the process", sessions, err)
	}
	node := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
	for name, write := range map[string]func() error{
		"another workspace's grant": func() error {
			_, err := s.Grant(ledger.WithTenant(t.Context(), s.b), uuid.New(), s.b, 1, "")
			return err
		},
		"a lease": func() error {
			_, err := s.Lease(t.Context(), node.Node, 1, time.Hour)
			return err
		},
		"a beat": func() error {
			_, err := s.WriteHeartbeat(t.Context(), ledger.Heartbeat{Incarnation: node, Cluster: "one", Started: time.Unix(1,
				0)})
			return err
		},
	} {
		before, took := returned(), make([]time.Duration, writes)
		for i := range took {
			began := time.Now()
			effort.ErrIs(t, write(), nil, name)
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		came := returned() - before
		t.Logf("%s: %v at the median, %v at most; meanwhile %v waits for the row ended", name, took[writes/2],
			took[writes-1], came)
		effort.ErrorIf(t, came > writes/4, "%d times %s took as long as %v waits for the row", writes, name, came)
	}
}

// uploaded makes a verification that can be leased.
func (s *server) uploaded(t *testing.T, workspace uuid.UUID) uuid.UUID {
	t.Helper()
	return (&ledgertest.Fixture{Book: s.Store, T: t, Workspace: workspace}).Uploads().ID
}

// TestALeasePassesOverWhatASilentTransactionHolds: the file of another workspace is handed out.
func TestALeasePassesOverWhatASilentTransactionHolds(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		first, second := s.uploaded(t, s.a), s.uploaded(t, s.b)
		s.does(t, `BEGIN; UPDATE verifications SET filename = filename WHERE id = '\x`+hex(first)+`'`)
		node := uuid.New()
		for _, want := range [][]uuid.UUID{{second}, nil, {first}} {
			leased, err := s.Lease(t.Context(), node, 2, time.Hour)
			var got []uuid.UUID
			for _, v := range leased {
				got = append(got, v.ID)
			}
			effort.ErrorIf(t, err != nil || !slices.Equal(got, want), "leased %v, %v, want %v", got, err, want)
			if want == nil {
				s.does(t, `ROLLBACK`)
			}
		}
	})
}

// TestWhatARunBeforeDidIsWaitedFor: its commit is decided while the next run looks for what it did.
func TestWhatARunBeforeDidIsWaitedFor(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		id, node := s.uploaded(t, s.a), uuid.New()
		o := effort.Must(s.SetOverride(t.Context(), ledger.ThrottleOverride{ID: uuid.New(), Key: "a.test",
			Fields: map[string]string{"rate": "5"}}, time.Hour))(t)
		for name, c := range map[string]struct {
			before string
			seen   func(t *tx) (bool, error)
		}{
			"lease": {`UPDATE verifications SET lease_node = '\x` + hex(node) + `' WHERE id = '\x` + hex(id) + `'`,
				func(t *tx) (bool, error) {
					v, err := t.Await(id)
					return err == nil && v.Node == node, err
				}},
			"clearing": {`UPDATE throttle_overrides SET ends = ends - 1 WHERE id = '\x` + hex(o.ID) + `'`,
				func(t *tx) (bool, error) { return t.Lifted(o.ID) }},
		} {
			s.does(t, `BEGIN; `+c.before)
			was, seen, done := s.waited(t), false, make(chan error, 1)
			go func() {
				done <- s.update(t.Context(), func(t *tx) (err error) {
					seen, err = c.seen(t)
					return err
				})
			}()
			for s.waited(t) == was && len(done) == 0 { // until it has waited
				<-time.After(5 * time.Millisecond)
			}
			s.does(t, `COMMIT`)
			err := <-done
			effort.ErrorIf(t, err != nil || !seen, "%s: seen %v, %v", name, seen, err)
		}
	})
}
