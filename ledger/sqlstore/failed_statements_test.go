package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// failedStatement is a statement that fails in place of a real one: that after so
// many others. What only rolls back does not count.
type failedStatement struct {
	after int
	done  bool
}

// errFailed is no error that the ledger knows.
var errFailed = errors.New("this statement fails")

func (f *failedStatement) instead(text string) error {
	if f == nil || f.done || text == "ROLLBACK" {
		return nil
	}
	if f.after--; f.after >= 0 {
		return nil
	}
	f.done = true
	return errFailed
}

// openNoted opens an embedded ledger all of whose statements run by way of two
// notebooks: that of the writer, and that of the readers.
func openNoted(t *testing.T) (*Store, [2]*notebook) {
	t.Helper()
	var notes [2]*notebook
	s, err := Open(t.Context(), NewFile(t), Options{Seams: engine.Seams{
		Wrap: func(d driver.Driver, name string) driver.Connector {
			n := &notebook{driver: d, dsn: name}
			if notes[0] == nil { // the writer comes first
				notes[0] = n
			} else {
				notes[1] = n
			}
			return n
		}}})
	effort.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, notes
}

// TestNoFailedStatementIsOverlooked makes each statement of each call fail in turn: the caller is told every time, and
// nothing of what the transaction had done is there. Then the same call does its work.
func TestNoFailedStatementIsOverlooked(t *testing.T) {
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			s, notes := openNoted(t)
			call := c.make(ledgertest.NewFixture(t, s, 5))
			for after := 0; ; after++ {
				before := tables(t, s)
				fails := &failedStatement{after: after}
				notes[0].fails, notes[1].fails = fails, fails
				err := call()
				notes[0].fails, notes[1].fails = nil, nil
				if !fails.done {
					effort.FatalIf(t, err != nil || after < 1, "after %d statements that failed: %v", after, err)
					return
				}
				effort.ErrIs(t, err, errFailed, "statement", after+1, "failed, the call answered")
				if now := tables(t, s); now != before && !c.slices {
					t.Fatalf("statement %d failed and left\n%s\nof\n%s", after+1, now, before)
				}
			}
		})
	}
}

// TestASecretThatIsNotMadeIsTold: the first reading of it may fail, for what is asked after that answers too.
func TestASecretThatIsNotMadeIsTold(t *testing.T) {
	s, notes := openNoted(t)
	for after, done := 1, true; done; after++ {
		fails := &failedStatement{after: after}
		notes[0].fails, notes[1].fails = fails, fails
		value, err := s.Secret(t.Context(), "urls", 32)
		if done = fails.done; done != errors.Is(err, errFailed) || done == (len(value) == 32) {
			t.Fatalf("statement %d failed, %v: %d bytes, %v", after+1, done, len(value), err)
		}
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

// callOf is one of them.
type callOf struct {
	name   string
	slices bool // it is several transactions
	make   func(d *ledgertest.Fixture) func() error
}

// calls are the methods of the book, each with enough before it that every one of its statements is reached.
var calls = []callOf{
	{"create workspace", false, func(d *ledgertest.Fixture) func() error {
		id := uuid.New()
		return func() error { _, err := d.CreateWorkspace(d.T.Context(), id, "new"); return err }
	}},
	{"workspaces", false, func(d *ledgertest.Fixture) func() error {
		return func() error { _, err := d.Workspaces(d.T.Context()); return err }
	}},
	{"create key", false, func(d *ledgertest.Fixture) func() error {
		k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
		return func() error { _, err := d.CreateKey(d.T.Context(), k); return err }
	}},
	{"revoke key", false, func(d *ledgertest.Fixture) func() error {
		k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
		effort.Must(d.CreateKey(d.T.Context(), k))(d.T)
		return func() error { _, err := d.RevokeKey(d.T.Context(), k.ID); return err }
	}},
	{"grant", false, func(d *ledgertest.Fixture) func() error {
		d.Prepares(7)
		d.Prepares(70)
		id := uuid.New()
		return func() error { _, err := d.Grant(d.T.Context(), id, d.Workspace, 4, "paid"); return err }
	}},
	{"readings", false, func(d *ledgertest.Fixture) func() error {
		v, l := d.Prepares(2)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
		effort.Must(d.CreateKey(d.T.Context(), k))(d.T)
		return func() error { return errors.Join(readings(d, v.ID), readKeys(d, k.ID)) }
	}},
	{"create", false, func(d *ledgertest.Fixture) func() error {
		n := d.Asks(7)
		return func() error { _, _, err := d.Create(d.T.Context(), n); return err }
	}},
	{"upload", false, func(d *ledgertest.Fixture) func() error {
		v := d.Creates(2)
		u := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		return func() error {
			_, err := d.AppendChunk(d.T.Context(), v.ID, u.Writer, 0, []byte("xy"))
			return err
		}
	}},
	{"open upload", false, func(d *ledgertest.Fixture) func() error {
		v := d.Creates(2)
		return func() error { _, err := d.OpenUpload(d.T.Context(), v.ID); return err }
	}},
	{"lease", false, func(d *ledgertest.Fixture) func() error {
		d.Uploads()
		return func() error { _, err := d.Lease(d.T.Context(), d.Node, 9, ledgertest.Hour); return err }
	}},
	{"park", false, func(d *ledgertest.Fixture) func() error {
		v, l := d.Prepares(2)
		return func() error {
			_, err := d.Park(d.T.Context(), l, ledger.Estimate{Next: v.Created.Add(ledgertest.Hour)}, []byte("state"))
			return err
		}
	}},
	{"cancel what is parked", false, func(d *ledgertest.Fixture) func() error {
		v, l := d.Prepares(2)
		effort.Must(d.Park(d.T.Context(), l, ledger.Estimate{Next: v.Created.Add(ledgertest.Hour)}, []byte("state")))(d.T)
		return func() error { _, err := d.Cancel(d.T.Context(), d.Workspace, v.ID); return err }
	}},
	{"crashed", false, func(d *ledgertest.Fixture) func() error {
		l := d.Takes(d.Uploads().ID)
		return func() error { _, err := d.Crashed(d.T.Context(), l); return err }
	}},
	{"renew", false, func(d *ledgertest.Fixture) func() error {
		d.Takes(d.Uploads().ID)
		return func() error { _, err := d.Renew(d.T.Context(), d.Node, ledgertest.Hour); return err }
	}},
	{"release", false, func(d *ledgertest.Fixture) func() error {
		l := d.Takes(d.Uploads().ID)
		return func() error { return d.Release(d.T.Context(), l) }
	}},
	{"refuse", false, func(d *ledgertest.Fixture) func() error {
		l := d.Takes(d.Uploads().ID)
		return func() error { _, err := d.Refuse(d.T.Context(), l, ledger.Issue{Code: "csv_encoding"}); return err }
	}},
	{"prepare", false, func(d *ledgertest.Fixture) func() error {
		l := d.Takes(d.Uploads().ID)
		return func() error { _, err := d.Prepare(d.T.Context(), l, 2, 0, 2); return err }
	}},
	{"prepare without credits", false, func(d *ledgertest.Fixture) func() error {
		l := d.Takes(d.Uploads().ID)
		return func() error { _, err := d.Prepare(d.T.Context(), l, 6, 0, 6); return err }
	}},
	{"settle", false, func(d *ledgertest.Fixture) func() error {
		_, l := d.Prepares(5)
		d.Prepares(1)
		d.Settles(l, 1, 0, 3, smtp.Valid)
		last := ledgertest.Batch(l, 2, 4, 4, smtp.Unknown)
		last.Evidence = []byte("seen")
		return func() error { _, err := d.Settle(d.T.Context(), last); return err }
	}},
	{"settle again", false, func(d *ledgertest.Fixture) func() error {
		_, l := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		last := ledgertest.Batch(l, 1, 0, 0, smtp.Valid)
		return func() error { _, err := d.Settle(d.T.Context(), last); return err }
	}},
	{"wait", false, func(d *ledgertest.Fixture) func() error {
		_, l := d.Prepares(1)
		return func() error { _, err := d.Wait(d.T.Context(), l, ledger.Estimate{Next: time.UnixMilli(1)}); return err }
	}},
	{"cancel", false, func(d *ledgertest.Fixture) func() error {
		v, l := d.Prepares(5)
		d.Prepares(1)
		effort.OK(d.T, d.Release(d.T.Context(), l))
		return func() error { _, err := d.Cancel(d.T.Context(), d.Workspace, v.ID); return err }
	}},
	{"finish cancel", false, func(d *ledgertest.Fixture) func() error {
		v, l := d.Prepares(5)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		return func() error { _, err := d.FinishCancel(d.T.Context(), l); return err }
	}},
	{"sweep", true, func(d *ledgertest.Fixture) func() error {
		_, l := d.Prepares(1)
		witnessed := ledgertest.Batch(l, 1, 0, 0, smtp.Valid)
		witnessed.Evidence = []byte("seen")
		effort.Must(d.Settle(d.T.Context(), witnessed))(d.T)
		d.Prepares(9)
		n := d.Asks(7)
		n.UploadExpiry = 0
		_, _, err := d.Create(d.T.Context(), n)
		effort.FatalIf(d.T, err != nil, "%v", err)
		effort.OK(d.T, d.Learn(d.T.Context(), []ledger.Fact{{Key: "old.test", Expires: time.UnixMilli(1)}}))
		old := d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
		run(d.T, d.Book.(*Store), `UPDATE throttle_overrides SET ends = 2 WHERE id = ?`, old.ID[:])
		for i, due := range []aged{dueSessions, dueLinks, dueAttempts} {
			in := d.Joins(string(rune('a'+i))+"@acme.test", ledger.Owner)
			if _, err := d.FailedSignIn(d.T.Context(), []ledger.Hash{in.Session.ID}, ledger.AttemptRule{Free: 1, Window: 1e9, First: 1e9, Most: 1e9}); err != nil {
				d.T.Fatal(err)
			}
			run(d.T, d.Book.(*Store), `UPDATE `+due.table+` SET ends = 2`)
		}
		return func() error {
			_, err := d.Sweep(d.T.Context(), ledger.Retention{Uploads: 1, Results: 1, Funding: 1})
			return err
		}
	}},
	{"begin a process", true, func(d *ledgertest.Fixture) func() error {
		b := beatOf(uuid.UUID{1})
		return func() error { _, err := d.WriteHeartbeat(d.T.Context(), b); return err }
	}},
	{"publish a view", true, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		b.View = []ledger.Incarnation{b.Incarnation}
		return func() error { _, err := d.WriteHeartbeat(d.T.Context(), b); return err }
	}},
	{"leave", false, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		return func() error { return d.Leave(d.T.Context(), b.Session) }
	}},
	{"leave after a loss", false, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		effort.OK(d.T, d.Retire(d.T.Context(), b.Session, 0, false))
		return func() error { return d.Leave(d.T.Context(), b.Session) }
	}},
	{"retire", false, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		return func() error { return d.Retire(d.T.Context(), b.Session, 0, true) }
	}},
	{"drain", false, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		return func() error { return d.AskDrain(d.T.Context(), b.Node) }
	}},
	{"undrain", false, func(d *ledgertest.Fixture) func() error {
		b := begun(d, uuid.UUID{1})
		effort.OK(d.T, d.AskDrain(d.T.Context(), b.Node))
		return func() error { return d.Undrain(d.T.Context(), b.Node) }
	}},
	{"forget", false, func(d *ledgertest.Fixture) func() error {
		left, lost := begun(d, uuid.UUID{1}), begun(d, uuid.UUID{2})
		effort.OK(d.T, d.Leave(d.T.Context(), left.Session))
		return func() error { return d.Forget(d.T.Context(), lost.Node, 0) }
	}},
	{"learn", false, func(d *ledgertest.Fixture) func() error {
		var facts []ledger.Fact
		for i := range 146 {
			facts = append(facts, ledger.Fact{Key: fmt.Sprint(i), Expires: time.UnixMilli(1)})
		}
		return func() error { return d.Learn(d.T.Context(), facts) }
	}},
	{"set override", false, func(d *ledgertest.Fixture) func() error {
		d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
		o := ledgertest.Halves("example.net")
		return func() error { _, err := d.SetOverride(d.T.Context(), o, ledgertest.Hour); return err }
	}},
	{"set override again", false, func(d *ledgertest.Fixture) func() error {
		o := d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
		return func() error { _, err := d.SetOverride(d.T.Context(), o, ledgertest.Hour); return err }
	}},
	{"clear overrides", false, func(d *ledgertest.Fixture) func() error {
		for range 2 {
			d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
		}
		c := ledger.Clearing{Key: "example.net"}
		return func() error { _, err := d.ClearOverrides(d.T.Context(), c); return err }
	}},
	{"set weight", false, func(d *ledgertest.Fixture) func() error {
		return func() error { _, err := d.SetWeight(d.T.Context(), d.Workspace, 5); return err }
	}},
	{"set limits", false, func(d *ledgertest.Fixture) func() error {
		n := int64(5)
		c := ledger.LimitsChange{Workspace: d.Workspace, Open: &n}
		return func() error { _, err := d.SetLimits(d.T.Context(), c); return err }
	}},
	{"usage", false, func(d *ledgertest.Fixture) func() error {
		return func() error { _, err := d.Usage(d.T.Context(), d.Workspace); return err }
	}},
	{"note", false, func(d *ledgertest.Fixture) func() error {
		return func() error { return d.Note(d.T.Context(), ledger.LogLine{Action: "test"}) }
	}},
	{"tuning and log", false, func(d *ledgertest.Fixture) func() error {
		d.Overrides(ledgertest.Halves("example.net"), ledgertest.Hour)
		effort.Must(d.SetWeight(d.T.Context(), d.Workspace, 5))(d.T)
		return func() error {
			_, settings := d.Settings(d.T.Context())
			_, log := d.OperatorLog(d.T.Context(), ledger.LogQuery{Limit: 1})
			_, older := d.OperatorLog(d.T.Context(), ledger.LogQuery{Limit: 1, Before: time.Now()})
			return errors.Join(settings, log, older)
		}
	}},
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

// readings asks everything that can be asked about a workspace and a verification of it.
func readings(d *ledgertest.Fixture, id uuid.UUID) error {
	ctx := d.T.Context()
	_, balance := d.Balance(ctx, d.Workspace)
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
	return errors.Join(balance, read, history, entries, results, settled, seen, upload, audit, snapshot, known,
		d.Ping(ctx), readFile(ctx, d, id))
}

func readKeys(d *ledgertest.Fixture, id string) error {
	_, keys := d.Keys(d.T.Context(), d.Workspace)
	_, key := d.KeyByID(d.T.Context(), id)
	return errors.Join(keys, key)
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
