package sqlstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// inviting is an invitation to a workspace.
func inviting(d *ledgertest.Desk, id byte) ledger.Link {
	l := ledger.Link{Purpose: ledger.InviteLink, Workspace: d.Workspace, Role: ledger.Viewer,
		Email: strconv.Itoa(int(id)) + "@acme.test"}
	copy(l.ID[:], d.Workspace[:])
	l.ID[31] = id
	return l
}

// Rows as package people writes them, but for what does not matter here.
const (
	insertUser = `INSERT INTO users (id, email, folded, name, password, created) VALUES (?, ?, ?, '', '', 1)`
	insertLink = `INSERT INTO links (id, purpose, workspace, email, folded, role, made_by, created, expires, ends, used_by)
		VALUES (?, 'invite', ?, '0@acme.test', ?, 'viewer', '', 1, ?, 1, ?)`
)

// linkRow are the arguments of insertLink.
func linkRow(id []byte, expires int64) []any { return []any{id, []byte{}, []byte{}, expires, []byte{}} }

// begins signs a user in.
func begins(t testing.TB, s *Store, user uuid.UUID, id ledger.Hash) {
	t.Helper()
	if _, err := s.BeginSession(t.Context(), ledger.NewSession{ID: id, User: user, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

// believesNobodyDisabled: a session that is over is not noted as used, and one that holds is none while its user is disabled.
func believesNobodyDisabled(t *testing.T, s *Store, user uuid.UUID) {
	t.Helper()
	over, holds := ledger.Hash{3}, ledger.Hash{4}
	run(t, s, `UPDATE user_sessions SET seen = 7 WHERE id = ?`, over[:])
	if err := s.UseSessions(t.Context(), []ledger.Hash{over, holds}); err != nil {
		t.Fatal(err)
	}
	if seen := number(t, s, `SELECT seen FROM user_sessions WHERE id = ?`, over[:]); seen != 7 {
		t.Errorf("a session that is over was seen at %d", seen)
	}
	run(t, s, `UPDATE users SET disabled = 1 WHERE id = ?`, user[:])
	if in, err := s.SessionByID(t.Context(), holds, time.Hour); !errors.Is(err, ledger.ErrNoSuchSession) {
		t.Errorf("of somebody disabled: %+v, %v", in, err)
	}
	run(t, s, `UPDATE users SET disabled = 0 WHERE id = ?`, user[:])
}

// boundsMembers: members and open invitations together are as many as allowed; one that is over makes room.
func boundsMembers(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	for i := range ledger.MembersMax - 2 {
		user := uuid.New()
		run(t, s, insertUser, user[:], fmt.Sprint("member", i, "@bound.test"), fmt.Append(nil, "member", i, "@bound.test"))
		run(t, s, `INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, 'viewer', 1)`, d.Workspace[:], user[:])
	}
	for id := range byte(2) {
		if _, err := s.MakeLink(t.Context(), inviting(d, id)); err != nil {
			t.Fatal(err)
		}
	}
	full := func() {
		t.Helper()
		bad := inviting(d, 9)
		bad.Role = "" // the bound is told before that
		for _, l := range []ledger.Link{bad, inviting(d, 2)} {
			if _, err := s.MakeLink(t.Context(), l); !errors.Is(err, ledger.ErrTooManyMembers) {
				t.Errorf("got %v, want ErrTooManyMembers", err)
			}
		}
	}
	full()
	if _, err := s.MakeLink(t.Context(), inviting(d, 1)); err != nil {
		t.Errorf("the last one again: %v", err)
	}
	if err := s.EndLink(t.Context(), d.Workspace, inviting(d, 0).ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MakeLink(t.Context(), inviting(d, 3)); err != nil {
		t.Errorf("after one was ended: %v", err)
	}
	full()
	run(t, s, `UPDATE links SET expires = {now}, ends = {now} WHERE email = '1@acme.test'`)
	if _, err := s.MakeLink(t.Context(), inviting(d, 4)); err != nil {
		t.Errorf("after one that expired: %v", err)
	}
	full()
	other := ledgertest.NewDesk(t, s, 0)
	if _, err := s.MakeLink(t.Context(), inviting(other, 0)); err != nil {
		t.Errorf("in another workspace: %v", err)
	}
}

// endsLinksByTime: a link can be used until its time, and not from then on.
func endsLinksByTime(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
	l, a := inviting(d, 0), ledger.Accept{User: uuid.New(), Password: "$argon2id$1"}
	made, err := s.MakeLink(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if left := number(t, s, `SELECT ends - {now} FROM links WHERE id = ?`, l.ID[:]); left <= 0 || left > ledger.LinkLife.Milliseconds() {
		t.Errorf("it holds for %d ms", left)
	}
	a.Link, a.Session = l.ID, ledger.NewSession{ID: l.ID, Life: time.Hour}
	move := func(left int) {
		run(t, s, `UPDATE links SET created = {now} - ?, expires = {now} + ?, ends = {now} + ? WHERE id = ?`,
			ledger.LinkLife.Milliseconds(), left, left, l.ID[:])
	}
	move(0)
	if _, _, err := s.LinkByID(t.Context(), l.ID); !errors.Is(err, ledger.ErrNoSuchLink) {
		t.Errorf("read when it is over: %v", err)
	}
	if _, err := s.AcceptLink(t.Context(), a); !errors.Is(err, ledger.ErrNoSuchLink) {
		t.Errorf("used when it is over: %v", err)
	}
	if open, err := s.OpenLinks(t.Context(), d.Workspace); err != nil || len(open) != 0 {
		t.Errorf("open: %+v, %v", open, err)
	}
	if err := s.EndLink(t.Context(), d.Workspace, l.ID); err != nil {
		t.Errorf("ended when it is over: %v", err)
	}
	if again, err := s.MakeLink(t.Context(), l); err != nil || !again.Used.IsZero() || !again.Expires.Before(made.Expires) {
		t.Errorf("made again when it is over: %+v, %v", again, err)
	}
	move(60_000)
	if open, err := s.OpenLinks(t.Context(), d.Workspace); err != nil || len(open) != 1 {
		t.Errorf("open: %+v, %v", open, err)
	}
	if _, err := s.AcceptLink(t.Context(), a); err != nil {
		t.Error(err)
	}
	lines := number(t, s, `SELECT count(*) FROM workspace_log WHERE workspace = ?`, d.Workspace[:])
	if lines != 2 {
		t.Errorf("%d lines, want one of the invitation and one of the member", lines)
	}
}

// countsWithinTheWindow: failures are forgotten a window after the first of them and after the end of the last wait.
func countsWithinTheWindow(t *testing.T, s *Store) {
	r := ledger.AttemptRule{Free: 2, Window: time.Hour, First: time.Minute, Most: 4 * time.Minute}
	fails := func(subject ledger.Hash) time.Time {
		t.Helper()
		until, err := s.FailedSignIn(t.Context(), []ledger.Hash{subject}, r)
		if err != nil {
			t.Fatal(err)
		}
		return until[0]
	}
	back := func(subject ledger.Hash, by time.Duration) {
		run(t, s, `UPDATE sign_in_attempts SET since = since - ?, refused = CASE WHEN refused > 0 THEN refused - ? ELSE 0 END,
			ends = ends - ? WHERE subject = ?`, by.Milliseconds(), by.Milliseconds(), by.Milliseconds(), subject[:])
	}
	early, late, waited := ledger.Hash{1}, ledger.Hash{2}, ledger.Hash{3}
	for _, subject := range []ledger.Hash{early, late, waited} {
		if !fails(subject).IsZero() {
			t.Error("the first failure waits")
		}
	}
	back(early, time.Hour-time.Minute)
	back(late, time.Hour)
	if fails(early).IsZero() || !fails(late).IsZero() {
		t.Error("the window ends too early or too late")
	}
	// The second one was refused for a minute, and so the failures stay for an hour after that.
	if fails(waited).IsZero() {
		t.Error("the second failure does not wait")
	}
	back(waited, time.Hour+30*time.Second)
	before := time.Now()
	if until := fails(waited); until.Sub(before) < 2*time.Minute-time.Second {
		t.Errorf("the third failure waits until %v", until)
	}
	back(waited, time.Hour+2*time.Minute+time.Second)
	if !fails(waited).IsZero() {
		t.Error("what is over waits")
	}
}

// forgetsPeople: a sweep forgets sessions, links and failed sign-ins that are over, each after its time, however many; the log
// of a workspace and the people stay.
func forgetsPeople(t *testing.T, s *Store) {
	d := ledgertest.NewDesk(t, s, 0)
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
	if err := s.EndSession(t.Context(), user, ledger.Hash{3}); err != nil {
		t.Fatal(err)
	}
	err := s.update(t.Context(), func(t *tx) error {
		for i := range 2*peopleErased + 1 { // for three transactions
			if _, err := t.Exec(insertLink, linkRow([]byte{1, byte(i >> 8), byte(i)}, 1)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range byte(3) {
		if _, err := s.MakeLink(t.Context(), inviting(d, id)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, s, `UPDATE links SET created = 1, expires = {now} - ?, ends = {now} - ? WHERE email = '0@acme.test'`, month, month)
	run(t, s, `UPDATE links SET created = 1, expires = {now} - ?, ends = {now} - ? WHERE email = '1@acme.test'`, month-60_000, month-60_000)
	r := ledger.AttemptRule{Free: 9, Window: time.Hour, First: time.Minute, Most: time.Minute}
	if _, err := s.FailedSignIn(t.Context(), []ledger.Hash{{1}, {2}}, r); err != nil {
		t.Fatal(err)
	}
	run(t, s, `UPDATE sign_in_attempts SET ends = {now} WHERE subject = ?`, forget[:])
	if n, err := s.Sweep(t.Context(), ledger.Retention{}); n != 0 || err != nil {
		t.Errorf("sweep: %d verifications, %v", n, err)
	}
	for table, want := range map[string]int64{"user_sessions": 3, "links": 2, "sign_in_attempts": 1, "workspace_log": lines + 3,
		"users": people} {
		if n := number(t, s, `SELECT count(*) FROM `+table); n != want {
			t.Errorf("%s: %d rows are left, want %d", table, n, want)
		}
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
