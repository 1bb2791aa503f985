package sqlstore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// TestWhatTheTablesKeep looks into the tables of each database for what no method of the book tells.
func TestWhatTheTablesKeep(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	t.Parallel()
	tests := func(t *testing.T, url string) {
		t.Parallel()
		s := effort.Must(Open(t.Context(), url, Options{}))(t)
		t.Cleanup(func() { _ = s.Close() })
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
	t.Run("sqlite", func(t *testing.T) { tests(t, NewFile(t)) })
	t.Run("postgresql", func(t *testing.T) {
		tests(t, NewLedger(t))
	})
}

// run changes a ledger behind its back.
func run(t testing.TB, s *Store, statement string, args ...any) {
	t.Helper()
	err := s.update(t.Context(), runs(statement, args...))
	effort.OK(t, err, statement)
}

// number asks a ledger for one.
func number(t *testing.T, s *Store, question string, args ...any) (n int64) {
	t.Helper()
	effort.OK(t, s.view(t.Context(), func(t *tx) error { return t.Row(question, args...).Scan(&n) }), question)
	return n
}

// erasesRows: bytes and addresses of a verification whose time is over are gone
// from every row of it, and those of another stay.
func erasesRows(t *testing.T, s *Store) {
	const chunks, settlements = 2*chunksErased + 1, 2 * payloadsErased
	d := ledgertest.NewFixture(t, s, 9)
	young, l := d.Prepares(2)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	v := d.Creates(chunks)
	u, err := d.OpenUpload(t.Context(), v.ID)
	for at := int64(0); at < chunks && err == nil; at++ {
		_, err = d.AppendChunk(t.Context(), v.ID, u.Writer, at, []byte("x"))
	}
	effort.OK(t, err)
	l = d.Takes(v.ID)
	effort.Must(d.Prepare(t.Context(), l, 1, 0, 1))(t)
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
		effort.Is(t, effort.Must(s.Sweep(t.Context(), half))(t), want, "sweep: changed")
	}
	for _, c := range []struct {
		name, question string
		id             uuid.UUID
		want           int64
	}{
		{"chunks", `SELECT count(*) FROM upload_chunks WHERE verification = ?`, v.ID, 0},
		{"settlements", `SELECT count(*) FROM settlements WHERE verification = ?`, v.ID, settlements},
		{"their payloads", `SELECT count(*) FROM settlements WHERE verification = ? AND length(payload) > 0`, v.ID, 0},
		{"their evidence", `SELECT count(*) FROM evidence WHERE verification = ?`, v.ID, 0},
		{"evidence of another", `SELECT count(*) FROM evidence WHERE verification = ?`, young.ID, 1},
		{"its address", `SELECT count(*) FROM verifications WHERE id = ? AND single_email <> ''`, v.ID, 0},
		{"times of erasing", `SELECT count(*) FROM verifications
			WHERE id = ? AND upload_deleted > created AND results_deleted > created`, v.ID, 1},
		{"chunks of another", `SELECT count(*) FROM upload_chunks WHERE verification = ?`, young.ID, 1},
		{"payloads of another", `SELECT count(*) FROM settlements WHERE verification = ? AND length(payload) > 0`,
			young.ID, 1},
	} {
		effort.Is(t, number(t, s, c.question, c.id[:]), c.want, c.name)
	}
}

// forgetsEnded: a sweep forgets processes that ended long ago and facts that expired, however many, and no others.
func forgetsEnded(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	run(t, s, `DELETE FROM nodes`)
	for i := range byte(4) {
		begun(d, uuid.UUID{i + 1})
	}
	left := d.Leave(t.Context(), uuid.UUID{1})
	lost := d.Retire(t.Context(), uuid.UUID{2}, 0, true)
	lately := d.Retire(t.Context(), uuid.UUID{3}, 0, true)
	effort.OK(t, errors.Join(left, lost, lately))
	long := (endedKept + time.Minute).Milliseconds()
	run(t, s, `UPDATE nodes SET since = since - ?`, long)
	short := uuid.UUID{3}
	run(t, s, `UPDATE nodes SET since = since + ? WHERE session = ?`, 2*time.Minute.Milliseconds(), short[:])
	for part, size := range []int{ledger.FactsMax, ledger.FactsMax, 1} { // for three transactions
		var old []ledger.Fact
		for i := range size {
			old = append(old, ledger.Fact{Key: fmt.Sprint(part, i), Expires: time.Now().Add(-time.Second)})
		}
		effort.OK(t, s.Learn(t.Context(), old))
	}
	young := ledger.Fact{Key: "young", Expires: time.Now().Add(time.Hour)}
	effort.OK(t, s.Learn(t.Context(), []ledger.Fact{young}))
	effort.Is(t, effort.Must(s.Sweep(t.Context(), ledger.Retention{}))(t), 0, "sweep: verifications")
	snapshot, err := s.ReadNodes(t.Context())
	effort.ErrorIf(t, err != nil || len(snapshot.Nodes) != 2 || snapshot.Nodes[0].Session != short ||
		snapshot.Nodes[1].Session != (uuid.UUID{4}), "left: %+v, %v, want one that ended lately and one that is in",
		snapshot, err)
	effort.Is(t, number(t, s, `SELECT count(*) FROM receiver_facts`), 1)
}

// boundsSweep: what one sweep leaves is for the next.
func boundsSweep(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	for range sweepMax + 1 {
		n := d.Asks(7)
		n.UploadExpiry = 0
		_, _, err := d.Create(t.Context(), n)
		effort.FatalIf(t, err != nil, "%v", err)
	}
	for _, want := range []int{sweepMax, 1, 0} {
		effort.Is(t, effort.Must(s.Sweep(t.Context(), ledger.Retention{}))(t), want, "changed")
	}
}

// auditsPages: an audit counts what it does not list, and reads the last page.
func auditsPages(t *testing.T, s *Store) {
	const files = auditPage + 1 // two wrong things in each: more than are listed
	d := ledgertest.NewFixture(t, s, 0)
	before := d.Audits().Verifications
	effort.OK(t, s.update(t.Context(), func(t *tx) error {
		for range files {
			if err := t.Insert(d.Asks(7), ""); err != nil {
				return err
			}
		}
		return nil
	}))
	effort.Is(t, d.Audits().Verifications, before+files, "verifications")
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
		effort.ErrorIf(t, err != nil || len(report.Violations) != c.listed || report.Found < c.found,
			"%s: found %d, lists %d, %v", c.statement, report.Found, len(report.Violations), err)
	}
}

// overruled writes n overrides past the ledger's checks.
func overruled(t *testing.T, s *Store, n int) {
	t.Helper()
	effort.OK(t, s.update(t.Context(), func(t *tx) error {
		for range n {
			if err := t.InsertOverride(ledgertest.Halves("example.net"), time.Hour); err != nil {
				return err
			}
		}
		return nil
	}))
}

// lifted fails the test unless an override was cleared, or not.
func lifted(t *testing.T, s *Store, id uuid.UUID, want bool) {
	t.Helper()
	got := !want
	err := s.update(t.Context(), func(t *tx) (err error) {
		got, err = t.Lifted(id)
		return err
	})
	effort.ErrorIf(t, err != nil || got != want, "cleared: got %v, %v, want %v", got, err, want)
}

// boundsOverrides: as many hold as every node can read each second; one that is over,
// or was cleared, makes room for another.
func boundsOverrides(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	run(t, s, `DELETE FROM throttle_overrides`)
	overruled(t, s, ledger.OverridesMax-1)
	last := d.Overrides(ledgertest.Halves("last.test"), time.Hour)
	full := func(what string) {
		t.Helper()
		effort.Denied(d.SetOverride(t.Context(), ledgertest.Halves("one.more.test"), time.Hour))(t,
			ledger.ErrTooManyOverrides, what)
	}
	full("another key")
	effort.Is(t, effort.Must(d.SetOverride(t.Context(), last, time.Hour))(t).Key, "last.test", "the last one again")
	run(t, s, `UPDATE throttle_overrides SET created = 1, expires = {now}, ends = {now} WHERE id = ?`, last.ID[:])
	next := d.Overrides(ledgertest.Halves("in.its.place.test"), time.Hour)
	full("after one that expired")
	lifted(t, s, last.ID, false)
	effort.Is(t, len(effort.Must(d.ClearOverrides(t.Context(), ledger.Clearing{ID: next.ID}))(t)), 1, "cleared")
	lifted(t, s, next.ID, true)
	d.Overrides(ledgertest.Halves("after.it.test"), time.Hour)
	full("after one that was cleared")
	effort.Is(t, len(effort.Must(d.Settings(t.Context()))(t).Overrides), ledger.OverridesMax, "hold")
	run(t, s, `DELETE FROM throttle_overrides`)
}

// forgetsOverrides: a sweep forgets those that were over long ago, however many, and the operator log stays.
func forgetsOverrides(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	run(t, s, `DELETE FROM throttle_overrides`)
	overruled(t, s, 2*dueErased+1) // for three transactions
	run(t, s, `UPDATE throttle_overrides SET created = 1, ends = {now} - ?`, overridesKept.Milliseconds())
	lately := d.Overrides(ledgertest.Halves("lately.test"), time.Hour)
	run(t, s, `UPDATE throttle_overrides SET created = 1, ends = {now} - ? WHERE id = ?`,
		(overridesKept - time.Hour).Milliseconds(), lately.ID[:])
	cleared := d.Overrides(ledgertest.Halves("cleared.test"), time.Hour)
	effort.Must(d.ClearOverrides(t.Context(), ledger.Clearing{ID: cleared.ID}))(t)
	holds := d.Overrides(ledgertest.Halves("holds.test"), time.Hour)
	lines := number(t, s, `SELECT count(*) FROM operator_log`)
	effort.Is(t, effort.Must(s.Sweep(t.Context(), ledger.Retention{}))(t), 0, "sweep: verifications")
	effort.Is(t, number(t, s, `SELECT count(*) FROM throttle_overrides`), 3)
	for what, id := range map[string]uuid.UUID{"lately": lately.ID, "cleared": cleared.ID, "holds": holds.ID} {
		effort.Is(t, number(t, s, `SELECT count(*) FROM throttle_overrides WHERE id = ?`, id[:]), 1, what, "forgotten")
	}
	effort.Is(t, number(t, s, `SELECT count(*) FROM operator_log`), lines, "lines of are left")
	run(t, s, `DELETE FROM throttle_overrides`)
}

// pagesOneMoment: lines of one millisecond have an order, and so each is on one page.
func pagesOneMoment(t *testing.T, s *Store) {
	const lines = 5
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond) // before all that others wrote
	for range lines {
		effort.OK(t, s.Note(t.Context(), ledger.LogLine{Action: "one moment"}))
	}
	run(t, s, `UPDATE operator_log SET created = ? WHERE action = 'one moment'`, at.UnixMilli())
	q, seen := ledger.LogQuery{Limit: 1}, map[uuid.UUID]bool{}
	for range lines {
		page, err := s.OperatorLog(t.Context(), q)
		effort.FatalIf(t, err != nil || len(page) != 1 || page[0].Action != "one moment" || seen[page[0].ID],
			"after %d lines: %+v, %v", len(seen), page, err)
		seen[page[0].ID], q.Before, q.After = true, page[0].At, page[0].ID
	}
	run(t, s, `DELETE FROM operator_log WHERE action = 'one moment'`)
}

// inviting is an invitation to a workspace.
func inviting(d *ledgertest.Fixture, id byte) ledger.Link {
	l := ledger.Link{Purpose: ledger.InviteLink, Workspace: d.Workspace, Role: ledger.Viewer,
		Email: strconv.Itoa(int(id)) + "@acme.test"}
	copy(l.ID[:], d.Workspace[:])
	l.ID[31] = id
	return l
}

// insertLink is a row as people.go writes it, but for what does not matter here.
const insertLink = `INSERT INTO links (id, purpose, workspace, email, folded, role, made_by, created, expires, ends, used_by)
	VALUES (?, 'invite', ?, '0@acme.test', ?, 'viewer', '', 1, ?, 1, ?)`

// linkRow are the arguments of insertLink.
func linkRow(id []byte, expires int64) []any { return []any{id, []byte{}, []byte{}, expires, []byte{}} }

// begins signs a user in.
func begins(t testing.TB, s *Store, user uuid.UUID, id ledger.Hash) {
	t.Helper()
	effort.Must(s.BeginSession(t.Context(), ledger.NewSession{ID: id, User: user, Life: time.Hour}))(t)
}

// believesNobodyDisabled: a session that is over is not noted as used, and one that holds is none while its user is disabled.
func believesNobodyDisabled(t *testing.T, s *Store, user uuid.UUID) {
	t.Helper()
	over, holds := ledger.Hash{3}, ledger.Hash{4}
	run(t, s, `UPDATE user_sessions SET seen = 7 WHERE id = ?`, over[:])
	effort.OK(t, s.UseSessions(t.Context(), []ledger.Hash{over, holds}))
	effort.Is(t, number(t, s, `SELECT seen FROM user_sessions WHERE id = ?`, over[:]), 7,
		"a session that is over was seen")
	run(t, s, `UPDATE users SET disabled = 1 WHERE id = ?`, user[:])
	in, err := s.SessionByID(t.Context(), holds, time.Hour)
	effort.ErrorIf(t, !errors.Is(err, ledger.ErrNoSuchSession), "of somebody disabled: %+v, %v", in, err)
	run(t, s, `UPDATE users SET disabled = 0 WHERE id = ?`, user[:])
}

// boundsMembers: members and open invitations together are as many as allowed; one that is over makes room.
func boundsMembers(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	effort.OK(t, s.update(t.Context(), func(t *tx) (err error) {
		for i := 0; i < ledger.MembersMax-2 && err == nil; i++ {
			user := uuid.New()
			if err = addUser(user, fmt.Sprint("member", i, "@bound.test"), "")(t); err == nil {
				err = addMember(d.Workspace, user, "viewer")(t)
			}
		}
		return err
	}))
	for id := range byte(2) {
		effort.Must(s.MakeLink(t.Context(), inviting(d, id)))(t)
	}
	full := func() {
		t.Helper()
		bad := inviting(d, 9)
		bad.Role = "" // the bound is told before that
		for _, l := range []ledger.Link{bad, inviting(d, 2)} {
			effort.Denied(s.MakeLink(t.Context(), l))(t, ledger.ErrTooManyMembers)
		}
	}
	full()
	effort.Denied(s.MakeLink(t.Context(), inviting(d, 1)))(t, nil, "the last one again")
	effort.OK(t, s.EndLink(t.Context(), d.Workspace, inviting(d, 0).ID))
	effort.Denied(s.MakeLink(t.Context(), inviting(d, 3)))(t, nil, "after one was ended")
	full()
	run(t, s, `UPDATE links SET expires = {now}, ends = {now} WHERE email = '1@acme.test'`)
	effort.Denied(s.MakeLink(t.Context(), inviting(d, 4)))(t, nil, "after one that expired")
	full()
	other := ledgertest.NewFixture(t, s, 0)
	effort.Denied(s.MakeLink(t.Context(), inviting(other, 0)))(t, nil, "in another workspace")
}

// endsLinksByTime: a link can be used until its time, and not from then on.
func endsLinksByTime(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	l, a := inviting(d, 0), ledger.Accept{User: uuid.New(), Password: "$argon2id$1"}
	made := effort.Must(s.MakeLink(t.Context(), l))(t)
	left := number(t, s, `SELECT ends - {now} FROM links WHERE id = ?`, l.ID[:])
	effort.ErrorIf(t, left <= 0 || left > ledger.LinkLife.Milliseconds(), "it holds for %d ms", left)
	a.Link, a.Session = l.ID, ledger.NewSession{ID: l.ID, Life: time.Hour}
	move := func(left int) {
		run(t, s, `UPDATE links SET created = {now} - ?, expires = {now} + ?, ends = {now} + ? WHERE id = ?`,
			ledger.LinkLife.Milliseconds(), left, left, l.ID[:])
	}
	move(0)
	effort.Denied(effort.First(s.LinkByID(t.Context(), l.ID)))(t, ledger.ErrNoSuchLink, "read when it is over")
	effort.Denied(s.AcceptLink(t.Context(), a))(t, ledger.ErrNoSuchLink, "used when it is over")
	effort.Is(t, len(effort.Must(s.OpenLinks(t.Context(), d.Workspace))(t)), 0, "open")
	effort.ErrIs(t, s.EndLink(t.Context(), d.Workspace, l.ID), nil, "ended when it is over")
	if again, err := s.MakeLink(t.Context(), l); err != nil || !again.Used.IsZero() || !again.Expires.Before(made.Expires) {
		t.Errorf("made again when it is over: %+v, %v", again, err)
	}
	move(60_000)
	effort.Is(t, len(effort.Must(s.OpenLinks(t.Context(), d.Workspace))(t)), 1, "open")
	effort.Denied(s.AcceptLink(t.Context(), a))(t, nil)
	lines := number(t, s, `SELECT count(*) FROM workspace_log WHERE workspace = ?`, d.Workspace[:])
	effort.Is(t, lines, 2, "lines, want one of the invitation and one of the member")
}

// countsWithinTheWindow: failures are forgotten a window after the first of them and after the end of the last wait.
func countsWithinTheWindow(t *testing.T, s *Store) {
	r := ledger.AttemptRule{Free: 2, Window: time.Hour, First: time.Minute, Most: 4 * time.Minute}
	fails := func(subject ledger.Hash) time.Time {
		t.Helper()
		until := effort.Must(s.FailedSignIn(t.Context(), []ledger.Hash{subject}, r))(t)
		return until[0]
	}
	back := func(subject ledger.Hash, by time.Duration) {
		run(t, s, `UPDATE sign_in_attempts SET since = since - ?, refused = CASE WHEN refused > 0 THEN refused - ? ELSE 0 END,
			ends = ends - ? WHERE subject = ?`, by.Milliseconds(), by.Milliseconds(), by.Milliseconds(), subject[:])
	}
	early, late, waited := ledger.Hash{1}, ledger.Hash{2}, ledger.Hash{3}
	for _, subject := range []ledger.Hash{early, late, waited} {
		effort.ErrorIf(t, !fails(subject).IsZero(), "the first failure waits")
	}
	back(early, time.Hour-time.Minute)
	back(late, time.Hour)
	effort.ErrorIf(t, fails(early).IsZero() || !fails(late).IsZero(), "the window ends too early or too late")
	// The second one was refused for a minute, and so the failures stay for an hour after that.
	effort.ErrorIf(t, fails(waited).IsZero(), "the second failure does not wait")
	back(waited, time.Hour+30*time.Second)
	before := time.Now()
	until := fails(waited)
	effort.ErrorIf(t, until.Sub(before) < 2*time.Minute-time.Second, "the third failure waits until %v", until)
	back(waited, time.Hour+2*time.Minute+time.Second)
	effort.ErrorIf(t, !fails(waited).IsZero(), "what is over waits")
}

// forgetsPeople: a sweep forgets sessions, links and failed sign-ins that are over, each after its time, however many; the log
// of a workspace and the people stay.
func forgetsPeople(t *testing.T, s *Store) {
	d := ledgertest.NewFixture(t, s, 0)
	user := d.Joins("forgets@acme.test", ledger.Owner).User.ID
	lines := number(t, s, `SELECT count(*) FROM workspace_log`)
	people := number(t, s, `SELECT count(*) FROM users`)
	for _, table := range []string{"user_sessions", "links", "sign_in_attempts"} {
		run(t, s, `DELETE FROM `+table)
	}
	long, forget := ledger.Hash{1}, ledger.Hash{2}
	for _, id := range []ledger.Hash{long, forget, {3}, {4}} {
		begins(t, s, user, id)
	}
	day, month := sessionsKept.Milliseconds(), linksKept.Milliseconds()
	run(t, s, `UPDATE user_sessions SET created = 1, ends = {now} - ? WHERE id = ?`, day, forget[:])
	run(t, s, `UPDATE user_sessions SET created = 1, ends = {now} - ? WHERE id = ?`, day-60_000, long[:])
	effort.OK(t, s.EndSession(t.Context(), user, ledger.Hash{3}))
	err := s.update(t.Context(), func(t *tx) error {
		for i := range 2*dueErased + 1 { // for three transactions
			if _, err := t.Exec(insertLink, linkRow([]byte{1, byte(i >> 8), byte(i)}, 1)...); err != nil {
				return err
			}
		}
		return nil
	})
	effort.OK(t, err)
	for id := range byte(3) {
		effort.Must(s.MakeLink(t.Context(), inviting(d, id)))(t)
	}
	run(t, s, `UPDATE links SET created = 1, expires = {now} - ?, ends = {now} - ? WHERE email = '0@acme.test'`, month, month)
	run(t, s, `UPDATE links SET created = 1, expires = {now} - ?, ends = {now} - ? WHERE email = '1@acme.test'`, month-60_000, month-60_000)
	r := ledger.AttemptRule{Free: 9, Window: time.Hour, First: time.Minute, Most: time.Minute}
	effort.Must(s.FailedSignIn(t.Context(), []ledger.Hash{{1}, {2}}, r))(t)
	run(t, s, `UPDATE sign_in_attempts SET ends = {now} WHERE subject = ?`, forget[:])
	effort.Is(t, effort.Must(s.Sweep(t.Context(), ledger.Retention{}))(t), 0, "sweep: verifications")
	for table, want := range map[string]int64{"user_sessions": 3, "links": 2, "sign_in_attempts": 1, "workspace_log": lines + 3,
		"users": people} {
		effort.Is(t, number(t, s, `SELECT count(*) FROM `+table), want, table)
	}
	if list, err := s.Sessions(t.Context(), user, time.Hour); err != nil || len(list) != 1 || list[0].ID != (ledger.Hash{4}) {
		t.Errorf("sessions: %+v, %v", list, err)
	}
	for id, want := range map[ledger.Hash]int64{long: 1, forget: 0, {3}: 1} {
		if n := number(t, s, `SELECT count(*) FROM user_sessions WHERE id = ?`, id[:]); n != want {
			t.Errorf("session %d: %d rows, want %d", id[0], n, want)
		}
	}
	believesNobodyDisabled(t, s, user)
	open, err := s.OpenLinks(t.Context(), d.Workspace)
	if err != nil || !slices.ContainsFunc(open, func(l ledger.Link) bool { return l.Email == "2@acme.test" }) || len(open) != 1 {
		t.Errorf("open: %+v, %v", open, err)
	}
}

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
		effort.Is(t, nettest.Metric(t, s.metrics, "rollcall_ledger_unswept"), broken, "said to be left")
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

// TestASweepGivesUpWhenTheDatabaseIsAway: rows that stay locked look like a database that is away, so the sweep gives
// up. The next sweep skips these rows and continues behind them.
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

// TestASweepTellsRowsThatStayDue: a sweep reports rows that it can't settle, and continues behind them.
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

// refusesErasing makes a trigger that fails with an SQLSTATE instead of erasing results.
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
	s := effort.Must(Open(t.Context(), url, Options{RetryWait: soon, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Registerer: metrics}))(t)
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
