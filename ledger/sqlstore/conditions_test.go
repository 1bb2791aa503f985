package sqlstore

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// changesOnConditions: a statement changes its row only while that is as the transition read it. No serialisable
// transaction needs that; it is the net under one that is not.
func changesOnConditions(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 9)
	v, l := d.Prepares(4)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	up := d.Creates(7)
	u := effort.Must(d.OpenUpload(t.Context(), up.ID))(t)
	none := uuid.New()
	begun(d, uuid.UUID{1})
	begun(d, uuid.UUID{2})
	effort.OK(t, d.Leave(t.Context(), uuid.UUID{2}))
	ended := d.Overrides(ledgertest.Halves("example.net"), time.Hour).ID
	effort.Must(d.ClearOverrides(t.Context(), ledger.Clearing{ID: ended}))(t)
	over := d.Overrides(ledgertest.Halves("example.net"), time.Hour).ID
	run(t, s, `UPDATE throttle_overrides SET created = {now} - 20, expires = {now} - 10, ends = {now} - 10
		WHERE id = ?`, over[:])
	before := tables(t, s)
	effort.OK(t, s.update(t.Context(), func(tx *tx) error {
		r, err := tx.Read(v.ID)
		if err != nil {
			return err
		}
		for name, spoil := range map[string]func(r *transitions.Row){
			"of another status":                 func(r *transitions.Row) { r.Status = ledger.Waiting },
			"of an older epoch":                 func(r *transitions.Row) { r.Epoch-- },
			"of a later epoch":                  func(r *transitions.Row) { r.Epoch++ },
			"of fewer settlements":              func(r *transitions.Row) { r.Settlements-- },
			"of more settlements":               func(r *transitions.Row) { r.Settlements++ },
			"of a verification that is not any": nil,
		} {
			read, after := *r, *r
			if after.Held--; spoil == nil {
				after.ID = none
			} else {
				spoil(&read)
			}
			step := transitions.Step{Before: &read, After: &after}
			for what, do := range map[string]func(transitions.Step) (int64, error){
				"move": tx.Move, "measure": tx.Measure, "count": tx.Count} {
				nothing(t, what+" "+name)(do(step))
			}
		}
		nothing(t, "fence of another writer")(tx.Fence(up.ID, u.Writer-1, u.Writer+1))
		nothing(t, "fence of no upload")(tx.Fence(none, u.Writer, u.Writer+1))
		nothing(t, "bytes of another writer")(tx.Lengthen(up.ID, u.Writer-1, 0, 1))
		nothing(t, "bytes after others")(tx.Lengthen(up.ID, u.Writer, 1, 2))
		nothing(t, "bytes of no upload")(tx.Lengthen(none, u.Writer, 0, 1))
		nothing(t, "take at an older epoch")(tx.Take(v.ID, none, v.Epoch-1, time.Hour))
		nothing(t, "take of nothing")(tx.Take(none, none, v.Epoch, time.Hour))
		nothing(t, "drop at a later epoch")(tx.Drop(v.ID, v.Epoch+1))
		nothing(t, "drop of nothing")(tx.Drop(none, v.Epoch))
		nothing(t, "credit of too little")(tx.Credit(d.Workspace, ledger.Balance{Granted: 1, Available: 1}, 6))
		for what, do := range ofProcesses(tx, none) {
			nothing(t, what)(do())
		}
		nothing(t, "end of no override")(tx.EndOverride(none))
		nothing(t, "end of an override that was ended")(tx.EndOverride(ended))
		nothing(t, "end of an override that was over")(tx.EndOverride(over))
		nothing(t, "credit of nobody")(tx.Credit(none, ledger.Balance{Granted: 1, Available: 1}, 0))
		return nil
	}))
	effort.Is(t, tables(t, s), before)
}

// ofProcesses are changes of processes' rows that are not as they are said to be:
// that of session 1 is in since turn 1, and that of session 2 has left.
func ofProcesses(t *tx, none uuid.UUID) map[string]func() (int64, error) {
	in, left := beatOf(uuid.UUID{1}), beatOf(uuid.UUID{2})
	view, cluster := in, in
	view.View, cluster.Cluster = []ledger.Incarnation{in.Incarnation}, "there"
	row := func(session uuid.UUID, standing ledger.NodeStatus, turn int64) *ledger.NodeRow {
		return &ledger.NodeRow{Heartbeat: beatOf(session), Status: standing, Generation: turn}
	}
	ending := func(of *ledger.NodeRow) func() (int64, error) {
		return func() (int64, error) { return t.End(of, transitions.Ending{Status: ledger.NodeLost, Generation: 99}) }
	}
	return map[string]func() (int64, error){
		"a beat with another view":     func() (int64, error) { return t.Refresh(view) },
		"a beat of another cluster":    func() (int64, error) { return t.Refresh(cluster) },
		"a beat of one that left":      func() (int64, error) { return t.Refresh(left) },
		"a beat of nobody":             func() (int64, error) { return t.Refresh(beatOf(none)) },
		"a view of one that left":      func() (int64, error) { return t.Publish(left, 99) },
		"a view of nobody":             func() (int64, error) { return t.Publish(beatOf(none), 99) },
		"the end of one that was out":  ending(row(uuid.UUID{1}, ledger.NodeLost, 1)),
		"the end after another turn":   ending(row(uuid.UUID{1}, ledger.NodeIn, 2)),
		"the end of one that was in":   ending(row(uuid.UUID{2}, ledger.NodeIn, 3)),
		"the end of nobody":            ending(row(none, ledger.NodeIn, 1)),
		"an operator's wish of nobody": func() (int64, error) { return t.AskDrain(none, true) },
		"the removal of nobody":        func() (int64, error) { return t.Remove(none) },
	}
}

// nothing fails the test unless no row was changed.
func nothing(t *testing.T, what string) func(n int64, err error) {
	return func(n int64, err error) {
		t.Helper()
		effort.ErrorIf(t, n != 0 || err != nil, "%s: %d rows changed, %v", what, n, err)
	}
}

// storesTimes: every row says when it was made, by the database's clock.
func storesTimes(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 9)
	_, l := d.Prepares(1)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	d.Overrides(ledgertest.Halves("example.net"), time.Hour)
	effort.Must(d.Secret(t.Context(), "times", 16))(t)
	effort.Must(d.CreateKey(t.Context(), ledger.Key{ID: "timesoftimes", Workspace: d.Workspace}))(t)
	for _, table := range []string{"workspaces", "api_keys", "verifications", "settlements", "entries",
		"secrets", "operator_log", "throttle_overrides"} {
		made := number(t, s, `SELECT count(*) FROM `+table)
		recent := number(t, s, `SELECT count(*) FROM `+table+` WHERE created <= {now} AND {now} - created < ?`,
			time.Hour.Milliseconds())
		effort.ErrorIf(t, made == 0 || recent != made,
			"%s: %d of %d rows were made in the last hour", table, recent, made)
	}
}

// readsWholeFiles: a file that is not whole is not read as if it were.
func readsWholeFiles(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	v := d.Creates(4)
	u, err := d.OpenUpload(t.Context(), v.ID)
	for at, data := range []string{"a", "b", "cd"} {
		if err == nil {
			_, err = d.AppendChunk(t.Context(), v.ID, u.Writer, int64(at), []byte(data))
		}
	}
	effort.OK(t, err)
	read := func() (string, error) {
		f, err := d.OpenFile(t.Context(), v.ID)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(f)
		return string(text), errors.Join(err, f.Close())
	}
	f, err := d.OpenFile(t.Context(), v.ID)
	if err == nil {
		err = f.Close()
	}
	effort.OK(t, err)
	if n, err := f.Read(make([]byte, 9)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("closed: read %d bytes, %v", n, err)
	}
	effort.Is(t, effort.Must(read())(t), "abcd", "whole")
	for _, c := range []struct {
		at   int
		want string
	}{{2, "ab"}, {0, ""}} {
		run(t, s, `DELETE FROM upload_chunks WHERE verification = ? AND at_byte = ?`, v.ID[:], c.at)
		if got, err := read(); got != c.want || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("without the bytes at %d: got %q, %v, want %q and an unexpected end", c.at, got, err, c.want)
		}
	}
	run(t, s, `DELETE FROM upload_chunks WHERE verification = ?`, v.ID[:])
	run(t, s, `UPDATE verifications SET upload_deleted = {now} WHERE id = ?`, v.ID[:])
	effort.Denied(read())(t, ledger.ErrIllegal, "erased")
}

// servesByID: of those that were made in one millisecond the smaller id is first.
func servesByID(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	for range 8 { // whatever the order of random ids is
		a, _ := d.Prepares(3)
		b, _ := d.Prepares(3)
		run(t, s, `UPDATE verifications SET created = 1, wake_at = 1 WHERE id = ? OR id = ?`, a.ID[:], b.ID[:])
		first, second := a.ID, b.ID
		if second.String() < first.String() {
			first, second = second, first
		}
		d.Grants(3)
		effort.Is(t, d.Sees(first).Status, ledger.Verifying, second, "is funded before", first)
		d.Grants(3)
		for _, want := range []uuid.UUID{first, second} {
			list, err := s.Lease(t.Context(), d.Node, 1, time.Hour)
			effort.FatalIf(t, err != nil || len(list) != 1 || list[0].ID != want,
				"leased %+v, %v, want %s", list, err, want)
		}
	}
}

// tellsBrokenResults: results that cannot be read are no results.
func tellsBrokenResults(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 3)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	d.Settles(l, 2, 1, 1, smtp.Valid)
	for _, c := range []struct {
		payload []byte
		want    error
	}{{[]byte{1, 2, 3}, ledger.ErrPayload}, {[]byte{}, ledger.ErrResultsExpired}} {
		run(t, s, `UPDATE settlements SET payload = ? WHERE verification = ? AND number = 2`, c.payload, v.ID[:])
		err := s.Results(t.Context(), d.Workspace, v.ID, func(ledger.Result) error {
			return errors.New("a result of a file that cannot be read")
		})
		effort.ErrIs(t, err, c.want, fmt.Sprintf("results with payload %v", c.payload))
		err = s.Settled(t.Context(), v.ID, func([]int64) error { return nil })
		effort.ErrIs(t, err, ledger.ErrPayload, fmt.Sprintf("ordinals with payload %v", c.payload))
	}
	enough := errors.New("enough")
	effort.ErrIs(t, s.Settled(t.Context(), v.ID, func([]int64) error { return enough }), enough, "a reader that gives up")
}
