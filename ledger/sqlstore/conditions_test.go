package sqlstore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
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

// TestTheSchemaRefusesWhatMustNeverBe: the tables keep the promises by themselves, whatever the code above them does.
func TestTheSchemaRefusesWhatMustNeverBe(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		refusesWhatMustNeverBe(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgresql", func(t *testing.T) {
		refusesWhatMustNeverBe(t, NewLedger(t))
	})
}

func refusesWhatMustNeverBe(t *testing.T, url string) {
	s := effort.Must(Open(t.Context(), url, Options{RetryWait: soon}))(t)
	t.Cleanup(func() { _ = s.Close() })
	w, file := uuid.New(), ledger.NewVerification{ID: uuid.New(), Identity: uuid.New(), Bytes: 10}
	file.Workspace = w
	effort.Must(s.CreateWorkspace(t.Context(), w, "schema"))(t)
	entry := transitions.Entry{Subject: file.ID, Number: 1, Kind: ledger.EntryCharge, Workspace: w, Amount: 1}
	settlement := ledger.Settlement{Lease: ledger.Lease{Verification: file.ID, Epoch: 1}, Number: 1,
		Results:  []ledger.Result{{Email: "a@b.test", Outcome: smtp.Valid, Reason: smtp.Internal}},
		Evidence: []byte("x")}
	payload := effort.Must(ledger.EncodeResults(settlement.Results))(t)
	sound := func(t *tx) error {
		for _, do := range []func() error{
			func() error { return t.Insert(file, "") },
			func() error { return t.Enter(entry) },
			func() error { return t.Settle(settlement, payload) },
			func() error { return t.KeepEvidence(settlement) },
			func() error { return t.Append(file.ID, 0, []byte("x")) },
			func() error { _, err := t.Enrol(beatOf(uuid.UUID{1}), 7); return err },
			func() error { return t.InsertOverride(ledger.ThrottleOverride{ID: w}, time.Second) },
			func() error { return t.weigh(w, 1) },
			func() error { return t.Correct(ledger.Correction{ID: w, Subject: "workspace", Number: 1}) },
			func() error { return t.limit(w, ledger.Limits{}) },
			func() error { return t.limit(w, ledger.Limits{Open: 1, Stored: 1, Unpaid: 1}) },
			func() error { return t.weigh(w, ledger.WeightMax) },
			func() error { return addUser(w, "anna@a.test", "https://a.test 1")(t) },
			func() error { return addMember(w, w, "owner")(t) },
			func() error { return addSession(1, w)(t) },
			func() error { return addLink(1)(t) },
		} {
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	}
	effort.OK(t, s.update(t.Context(), sound))
	for _, c := range whatMustNeverBe(file, entry, settlement, payload) {
		effort.Not(t, s.update(t.Context(), c.do), nil, c.name, "accepted")
	}
}

// refused is a change that the tables must not take.
type refused struct {
	name string
	do   func(t *tx) error
}

// whatMustNeverBe are such changes beside rows that are there.
func whatMustNeverBe(file ledger.NewVerification, entry transitions.Entry, settlement ledger.Settlement,
	payload ledger.Payload) []refused {
	w := file.Workspace
	credit := func(b ledger.Balance) func(t *tx) error {
		return func(t *tx) error { _, err := t.Credit(w, b, 0); return err }
	}
	set := func(column string, value int64) func(t *tx) error {
		return runs(`UPDATE verifications SET `+column+` = ? WHERE id = ?`, value, file.ID[:])
	}
	other, unknown := file, uuid.New()
	other.ID = uuid.New()
	nowhere := file
	nowhere.ID, nowhere.Workspace = uuid.New(), unknown
	stray := settlement
	stray.Lease.Verification = unknown
	later := settlement
	later.Number++
	cases := []refused{
		{"one idempotency key, two verifications", func(t *tx) error { return t.Insert(other, "") }},
		{"a verification of no workspace", func(t *tx) error { return t.Insert(nowhere, "") }},
		{"an entry twice", func(t *tx) error { return t.Enter(entry) }},
		{"an entry of nothing", func(t *tx) error {
			return t.Enter(transitions.Entry{Subject: unknown, Kind: ledger.EntryGrant, Workspace: w})
		}},
		{"less than nothing on a day", func(t *tx) error {
			return t.countOn(0, []transitions.Entry{{Kind: ledger.EntryGrant, Workspace: w, Amount: -1}})
		}},
		{"a day that begins at noon", func(t *tx) error {
			return t.countOn(ledger.Day.Milliseconds()/2, []transitions.Entry{{Kind: ledger.EntryGrant, Workspace: w, Amount: 1}})
		}},
		{"a settlement twice", func(t *tx) error { return t.Settle(settlement, payload) }},
		{"evidence twice", func(t *tx) error { return t.KeepEvidence(settlement) }},
		{"evidence of no verification", func(t *tx) error { return t.KeepEvidence(stray) }},
		{"evidence of no settlement", func(t *tx) error { return t.KeepEvidence(later) }},
		{"a chunk twice", func(t *tx) error { return t.Append(file.ID, 0, []byte("y")) }},
		{"credits from nowhere", credit(ledger.Balance{Available: 1})},
		{"a key of no workspace", runs(
			`INSERT INTO api_keys (id, workspace, label, secret, created) VALUES ('k', ?, '', ?, 1)`, unknown[:], unknown[:])},
		{"an entry of no workspace", func(t *tx) error {
			return t.Enter(transitions.Entry{Subject: unknown, Kind: ledger.EntryGrant, Workspace: unknown, Amount: 1})
		}},
		{"a settlement of no verification", func(t *tx) error { return t.Settle(stray, payload) }},
		{"a chunk of no verification", func(t *tx) error { return t.Append(unknown, 0, []byte("x")) }},
		{"a negative balance", credit(ledger.Balance{Available: -1, Held: 1})},
		{"negative credits in hold", credit(ledger.Balance{Available: 1, Held: -1})},
		{"negative spending", credit(ledger.Balance{Available: 1, Spent: -1})},
		{"more bytes than were declared", set("durable", 11)},
		{"less than no bytes", set("durable", -1)},
		{"a verification that holds less than nothing", set("held", -1)},
		{"a turn of two processes", func(t *tx) error { _, err := t.Enrol(beatOf(uuid.UUID{2}), 7); return err }},
		{"a process of no standing", runs(`UPDATE nodes SET standing = 3 WHERE turn = 7`)},
		{"a correction twice", func(t *tx) error {
			return t.Correct(ledger.Correction{ID: w, Subject: "workspace", Number: 2})
		}},
		{"two corrections at once", func(t *tx) error {
			return t.Correct(ledger.Correction{ID: other.ID, Subject: "workspace", Number: 1})
		}},
		{"an override twice", func(t *tx) error { return t.InsertOverride(ledger.ThrottleOverride{ID: w}, time.Hour) }},
		{"an override that ends when it begins", func(t *tx) error {
			return t.InsertOverride(ledger.ThrottleOverride{ID: unknown}, 0)
		}},
		{"an override that ends after its time", runs(`UPDATE throttle_overrides SET ends = expires + 1`)},
		{"a weight of nothing", func(t *tx) error { return t.weigh(w, 0) }},
		{"a weight of too much", func(t *tx) error { return t.weigh(w, ledger.WeightMax+1) }},
		{"a limit of less than nothing", func(t *tx) error { return t.limit(w, ledger.Limits{Open: -1}) }},
		{"less than no bytes stored", func(t *tx) error { return t.limit(w, ledger.Limits{Stored: -1}) }},
		{"less than none unpaid", func(t *tx) error { return t.limit(w, ledger.Limits{Unpaid: -1}) }},
		{"limits of no workspace", func(t *tx) error { return t.limit(unknown, ledger.Limits{Open: 1}) }},
		{"a verification gone from its settlements", runs(`DELETE FROM verifications WHERE id = ?`, file.ID[:])},
		{"a weight of no workspace", func(t *tx) error { return t.weigh(unknown, 2) }},
		{"one email, two users", addUser(unknown, "anna@a.test", "")},
		{"one identity, two users", addUser(unknown, "ben@a.test", "https://a.test 1")},
		{"a user twice", addUser(w, "ben@a.test", "")},
		{"a member of no workspace", addMember(unknown, w, "owner")},
		{"a member who is nobody", addMember(w, unknown, "owner")},
		{"a member of no role", addMember(w, w, "king")},
		{"a session of nobody", addSession(2, unknown)},
		{"a session twice", addSession(1, w)},
		{"a link twice", addLink(1)},
		{"a link that ends after its time", runs(`UPDATE links SET ends = expires + 1`)},
		{"a user gone from the workspace", runs(`DELETE FROM users`)},
		{"another counter of turns", runs(`INSERT INTO cluster_turn (one, turn) VALUES (2, 0)`)},
	}
	for _, column := range []string{"count_valid", "count_invalid", "count_catch_all", "count_unknown",
		"count_error", "count_cancelled"} {
		cases = append(cases, refused{"more outcomes than addresses: " + column, func(t *tx) error {
			if err := set("total", 1)(t); err != nil {
				return err
			}
			return set(column, 2)(t)
		}})
	}
	return cases
}

// runs is a change by one statement.
func runs(statement string, args ...any) func(t *tx) error {
	return func(t *tx) error {
		_, err := t.Exec(statement, args...)
		return err
	}
}

func addUser(id uuid.UUID, email, oidc string) func(t *tx) error {
	return runs(`INSERT INTO users (id, email, folded, name, password, oidc, created) VALUES (?, ?, ?, '', '', ?, 1)`,
		id[:], email, []byte(email), oidc)
}

func addMember(workspace, user uuid.UUID, role string) func(t *tx) error {
	return runs(`INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, ?, 1)`, workspace[:], user[:], role)
}

func addSession(id byte, user uuid.UUID) func(t *tx) error {
	return runs(`INSERT INTO user_sessions (id, user_id, created, seen, ends, agent, network) VALUES (?, ?, 1, 1, 9, '', '')`,
		[]byte{id}, user[:])
}

func addLink(id byte) func(t *tx) error { return runs(insertLink, linkRow([]byte{id}, 9)...) }
