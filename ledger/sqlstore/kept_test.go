package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestWhatTheTablesKeep looks into the tables of each database for what no method
// of the book tells.
func TestWhatTheTablesKeep(t *testing.T) {
	tests := func(t *testing.T, url string) {
		s, err := Open(t.Context(), url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		t.Run("what operators do, once", func(t *testing.T) { logsOperators(t, s) })
		t.Run("the outcome of a single", func(t *testing.T) { storesSingle(t, s) })
		t.Run("no change without its condition", func(t *testing.T) { changesOnConditions(t, s) })
		t.Run("when each row was made", func(t *testing.T) { storesTimes(t, s) })
		t.Run("whole files", func(t *testing.T) { readsWholeFiles(t, s) })
		t.Run("the order of one millisecond", func(t *testing.T) { servesByID(t, s) })
		t.Run("what one sweep leaves for the next", func(t *testing.T) { boundsSweep(t, s) })
		t.Run("processes and facts until their time", func(t *testing.T) { forgetsEnded(t, s) })
		t.Run("so many overrides and no more", func(t *testing.T) { boundsOverrides(t, s) })
		t.Run("overrides for some days after their time", func(t *testing.T) { forgetsOverrides(t, s) })
		t.Run("so many members and no more", func(t *testing.T) { boundsMembers(t, s) })
		t.Run("links until their time", func(t *testing.T) { endsLinksByTime(t, s) })
		t.Run("failed sign-ins within their time", func(t *testing.T) { countsWithinTheWindow(t, s) })
		t.Run("people's rows until their time", func(t *testing.T) { forgetsPeople(t, s) })
		t.Run("the log of one millisecond", func(t *testing.T) { pagesOneMoment(t, s) })
		t.Run("nothing that an audit does not read", func(t *testing.T) { auditsPages(t, s) })
		t.Run("no broken results", func(t *testing.T) { tellsBrokenResults(t, s) })
		t.Run("nothing of what is erased", func(t *testing.T) { erasesRows(t, s) }) // last: not sound
	}
	t.Run("sqlite", func(t *testing.T) { tests(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")) })
	t.Run("postgresql", func(t *testing.T) {
		tests(t, NewLedger(t))
	})
}

// run changes a ledger behind its back.
func run(t testing.TB, s *Store, statement string, args ...any) {
	t.Helper()
	err := s.update(t.Context(), func(t *tx) error {
		_, err := t.Exec(statement, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// number asks a ledger for one.
func number(t *testing.T, s *Store, question string, args ...any) (n int64) {
	t.Helper()
	err := s.view(t.Context(), func(t *tx) error { return t.row(question, args...).Scan(&n) })
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return n
}

// erasesRows: bytes and addresses of a verification whose time is over are gone
// from every row of it, and those of another stay.
func erasesRows(t *testing.T, s *Store) {
	const chunks, settlements = 2*chunksErased + 1, 2 * payloadsErased
	d := ledgertest.NewDesk(t, s, 9)
	young, l := d.Prepares(2)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	v := d.Creates(chunks)
	u, err := d.OpenUpload(t.Context(), v.ID)
	for at := int64(0); at < chunks && err == nil; at++ {
		_, err = d.AppendChunk(t.Context(), v.ID, u.Writer, at, []byte("x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	l = d.Takes(v.ID)
	if _, err := d.Prepare(t.Context(), l, 1, 0, 1); err != nil {
		t.Fatal(err)
	}
	d.Settles(l, 1, 0, 0, smtp.Valid)
	for n := 1; n < settlements; n *= 2 {
		run(t, s, `INSERT INTO settlements SELECT verification, number + `+fmt.Sprint(n)+`, epoch, created,
			first_ordinal, last_ordinal, count_valid, count_invalid, count_catch_all, count_unknown, count_error,
			digest, payload FROM settlements WHERE verification = ?`, v.ID[:])
	}
	run(t, s, `INSERT INTO evidence SELECT verification, number, digest FROM settlements`)
	run(t, s, `UPDATE verifications SET settlements = ?, single_email = 'a@b.test', completed = completed - ?
		WHERE id = ?`, settlements, time.Hour.Milliseconds(), v.ID[:])

	half := ledger.Retention{Uploads: time.Hour / 2, Results: time.Hour / 2}
	for _, want := range []int{2, 0} {
		if got, err := s.Sweep(t.Context(), half); err != nil || got != want {
			t.Errorf("sweep: changed %d, want %d, %v", got, want, err)
		}
	}
	for _, c := range []struct {
		name, question string
		id             uuid.UUID
		want           int64
	}{
		{"chunks", `SELECT count(*) FROM upload_chunks WHERE verification = ?`, v.ID, 0},
		{"settlements", `SELECT count(*) FROM settlements WHERE verification = ?`, v.ID, settlements},
		{"their payloads", `SELECT count(*) FROM settlements WHERE verification = ? AND length(payload) > 0`,
			v.ID, 0},
		{"their evidence", `SELECT count(*) FROM evidence WHERE verification = ?`, v.ID, 0},
		{"evidence of another", `SELECT count(*) FROM evidence WHERE verification = ?`, young.ID, 1},
		{"its address", `SELECT count(*) FROM verifications WHERE id = ? AND single_email <> ''`, v.ID, 0},
		{"times of erasing", `SELECT count(*) FROM verifications
			WHERE id = ? AND upload_deleted > created AND results_deleted > created`, v.ID, 1},
		{"chunks of another", `SELECT count(*) FROM upload_chunks WHERE verification = ?`, young.ID, 1},
		{"payloads of another", `SELECT count(*) FROM settlements WHERE verification = ? AND length(payload) > 0`,
			young.ID, 1},
	} {
		if got := number(t, s, c.question, c.id[:]); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// forgetsEnded: a sweep forgets processes that ended long ago and facts that
// expired, however many, and no others.
func forgetsEnded(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	run(t, s, `DELETE FROM nodes`)
	for i := range byte(4) {
		begun(d, uuid.UUID{i + 1})
	}
	left := d.Leave(t.Context(), uuid.UUID{1})
	lost := d.Retire(t.Context(), uuid.UUID{2}, 0, true)
	lately := d.Retire(t.Context(), uuid.UUID{3}, 0, true)
	if err := errors.Join(left, lost, lately); err != nil {
		t.Fatal(err)
	}
	long := (endedKept + time.Minute).Milliseconds()
	run(t, s, `UPDATE nodes SET since = since - ?`, long)
	short := uuid.UUID{3}
	run(t, s, `UPDATE nodes SET since = since + ? WHERE session = ?`, 2*time.Minute.Milliseconds(), short[:])
	for part, size := range []int{ledger.FactsMax, ledger.FactsMax, 1} { // for three transactions
		var old []ledger.Fact
		for i := range size {
			old = append(old, ledger.Fact{Key: fmt.Sprint(part, i), Expires: time.Now().Add(-time.Second)})
		}
		if err := s.Learn(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	young := ledger.Fact{Key: "young", Expires: time.Now().Add(time.Hour)}
	if err := s.Learn(t.Context(), []ledger.Fact{young}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context(), ledger.Retention{}); n != 0 || err != nil {
		t.Errorf("sweep: %d verifications, %v", n, err)
	}
	roll, err := s.Roll(t.Context())
	if err != nil || len(roll.Nodes) != 2 || roll.Nodes[0].Session != short ||
		roll.Nodes[1].Session != (uuid.UUID{4}) {
		t.Errorf("left: %+v, %v, want one that ended lately and one that is in", roll, err)
	}
	if n := number(t, s, `SELECT count(*) FROM receiver_facts`); n != 1 {
		t.Errorf("%d facts are left, want 1", n)
	}
}

// boundsSweep: what one sweep leaves is for the next.
func boundsSweep(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	for range sweepMax + 1 {
		n := d.Asks(7)
		n.UploadExpiry = 0
		if _, _, err := d.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{sweepMax, 1, 0} {
		if got, err := s.Sweep(t.Context(), ledger.Retention{}); err != nil || got != want {
			t.Errorf("changed %d, want %d, %v", got, want, err)
		}
	}
}

// logsOperators: each act has one line, with who and what.
func logsOperators(t *testing.T, s *Store) {
	w, g := uuid.New(), uuid.New()
	for range 2 {
		_, create := s.CreateWorkspace(t.Context(), w, "Mine")
		_, key := s.CreateKey(t.Context(), ledger.Key{ID: "abcdefghij12", Workspace: w, Label: "laptop"})
		_, grant := s.Grant(t.Context(), g, w, 7, "paid")
		_, revoke := s.RevokeKey(t.Context(), "abcdefghij12")
		for _, err := range []error{create, key, grant, revoke} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	type line struct{ action, workspace, subject, detail, reason string }
	want := map[line]int{
		{"workspace create", w.String(), w.String(), "Mine", ""}: 1,
		{"key create", w.String(), "abcdefghij12", "laptop", ""}: 1,
		{"grant", w.String(), g.String(), "7 credits", "paid"}:   1,
		{"key revoke", w.String(), "abcdefghij12", "laptop", ""}: 1,
	}
	got := map[line]int{}
	err := s.view(t.Context(), func(t *tx) error {
		return t.Each(func(rows *sql.Rows) error {
			var workspace uuid.UUID
			var l line
			err := rows.Scan(&l.action, &workspace, &l.subject, &l.detail, &l.reason)
			l.workspace = workspace.String()
			got[l]++
			return err
		}, `SELECT action, workspace, subject, detail, reason FROM operator_log WHERE workspace = ? AND created > 0`, w[:])
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v, %v", got, want, err)
	}
	if n := number(t, s, `SELECT count(*) FROM entries WHERE subject = ? AND reason = 'paid'`, g[:]); n != 1 {
		t.Errorf("%d entries with the reason of the grant", n)
	}
}

// storesSingle: the outcome of its only address is in its row too.
func storesSingle(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 2)
	bulk, of := d.Prepares(1)
	single, l := d.Prepares(1)
	run(t, s, `UPDATE verifications SET kind = 'single' WHERE id = ?`, single.ID[:])
	got := d.Settles(of, 1, 0, 0, smtp.CatchAll)
	if got.SingleOutcome != smtp.Undecided || got != d.Sees(bulk.ID) {
		t.Errorf("bulk: %+v, stored %+v", got, d.Sees(bulk.ID))
	}
	got = d.Settles(l, 1, 0, 0, smtp.CatchAll)
	if got.SingleOutcome != smtp.CatchAll || got != d.Sees(single.ID) {
		t.Errorf("single: %+v, stored %+v", got, d.Sees(single.ID))
	}
	d.Audits()
}

// auditsPages: an audit counts what it does not list, and reads the last page.
func auditsPages(t *testing.T, s *Store) {
	const files = auditPage + 1 // two wrong things in each: more than are listed
	d := ledgertest.NewDesk(t, s, 0)
	before := d.Audits().Verifications
	err := s.update(t.Context(), func(t *tx) error {
		for range files {
			if err := t.Insert(d.Asks(7), ""); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if report := d.Audits(); report.Verifications != before+files {
		t.Errorf("looked at %d verifications, want %d", report.Verifications, before+files)
	}
	const last = `(SELECT id FROM verifications ORDER BY id DESC LIMIT 1)`
	for _, c := range []struct {
		statement string
		listed    int
		found     int64 // at least
	}{
		{`UPDATE verifications SET held = held + 1`, ledger.ViolationsMax, files + 1},
		{`UPDATE verifications SET held = held - 1 WHERE id <> ` + last, 3, 3}, // of the last one and its account
	} {
		run(t, s, c.statement)
		report, err := s.Audit(t.Context())
		if err != nil || len(report.Violations) != c.listed || report.Found < c.found {
			t.Errorf("%s: found %d, lists %d, %v", c.statement, report.Found, len(report.Violations), err)
		}
	}
}
