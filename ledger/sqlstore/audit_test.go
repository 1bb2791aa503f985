package sqlstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestAuditFindsWhatWasChangedBehindItsBack changes one thing of a sound ledger in its file and asks which invariant is
// named. Which numbers break which invariant is held by the tests of package ledger; here it is that each table is
// read.
func TestAuditFindsWhatWasChangedBehindItsBack(t *testing.T) {
	for _, c := range effort.Some([]struct{ name, statement, want string }{
		{"nothing", `SELECT 1`, ""},
		{"account", `UPDATE workspaces SET granted = granted + 1, available = available + 1`, "I3"},
		{"account of held", `UPDATE workspaces SET held = held + 1, available = available - 1`, "I4"},
		{"entry gone", `DELETE FROM entries WHERE kind = 'charge'`, "I6"},
		{"release gone", `DELETE FROM entries WHERE kind = 'release'`, "I7"},
		{"grant gone", `DELETE FROM entries WHERE kind = 'grant'`, "I3"},
		{"entry of nobody", `INSERT INTO entries
			SELECT zeroblob(16), 0, 'hold', workspace, 1, 0, '', '' FROM entries LIMIT 1`, "I3"},
		{"counter", `UPDATE verifications SET count_valid = count_valid - 1`, "I8"},
		{"held by the file", `UPDATE verifications SET held = held + 1`, "I4"},
		{"completed too soon", `UPDATE verifications SET completed = 5`, "I10"},
		{"final too soon", `UPDATE verifications SET status = 'completed', completed = 5`, "I5"},
		{"settlement gone", `DELETE FROM settlements WHERE number = 1`, "settlements"},
		{"payload of another", `UPDATE settlements
			SET payload = (SELECT payload FROM settlements WHERE number = 2)`, "I9"},
		{"payload cut", `UPDATE settlements SET payload = substr(payload, 1, 20)`, "I12"},
		{"payload erased too soon", `UPDATE settlements SET payload = x''`, "I12"},
		{"outcomes of a settlement", `UPDATE settlements SET digest = zeroblob(32) WHERE number = 2`, "I9"},
		{"place of a settlement", `UPDATE settlements SET last_ordinal = last_ordinal - 1`, "I12"},
		{"chunk gone", `DELETE FROM upload_chunks`, "I13"},
		{"idempotency key twice", `PRAGMA foreign_keys = OFF;
			CREATE TABLE twice AS SELECT * FROM verifications UNION ALL SELECT * FROM verifications;
			UPDATE twice SET id = randomblob(16) WHERE rowid = 2;
			DROP TABLE verifications;
			ALTER TABLE twice RENAME TO verifications`, "I11"},
		{"status of another program", `UPDATE verifications SET status = 'waiting_credits'`, "I10"},
		{"evidence that outlived its results", `UPDATE verifications SET results_deleted = 5;
			UPDATE settlements SET payload = x'' WHERE number = 2`, ledger.Erased},
		{"weight of nothing", `PRAGMA ignore_check_constraints = ON;
			INSERT INTO workspace_weights SELECT id, 0 FROM workspaces`, ledger.Bounds},
		{"weight of too much", `PRAGMA ignore_check_constraints = ON;
			INSERT INTO workspace_weights SELECT id, 101 FROM workspaces`, ledger.Bounds},
		{"limit of nothing", `PRAGMA ignore_check_constraints = ON;
			INSERT INTO workspace_limits (workspace, stored) SELECT id, 0 FROM workspaces`, ledger.Bounds},
		{"limits of nobody", `INSERT INTO workspace_limits (workspace, open) VALUES (zeroblob(16), 2)`, ledger.Owned},
		{"not said to be paid", `UPDATE verifications SET paid = 1 - paid`, ledger.Paid},
		{"upload said to be erased", `UPDATE verifications SET upload_deleted = 1`, ledger.Erased},
		{"weight of nobody", `INSERT INTO workspace_weights VALUES (zeroblob(16), 2)`, ledger.Owned},
		{"override that ended before it began", `PRAGMA ignore_check_constraints = ON;
			UPDATE throttle_overrides SET ends = expires + 1`, ledger.Bounds},
		{"member of nothing", `DELETE FROM memberships; INSERT INTO memberships VALUES (zeroblob(16), (SELECT id FROM users), 'owner', 1)`,
			ledger.Owned},
		{"member who is nobody", `INSERT INTO memberships SELECT id, zeroblob(16), 'owner', 1 FROM workspaces`, ledger.Owned},
		{"session of nobody", `UPDATE user_sessions SET user_id = zeroblob(16)`, ledger.Owned},
		{"user gone", `DELETE FROM users`, ledger.Owned},
		{"invitation to nothing", `UPDATE links SET workspace = zeroblob(16)`, ledger.Owned},
		{"days of nothing", `UPDATE credit_days SET workspace = zeroblob(16) WHERE kind = 'charge'`, ledger.Owned},
		{"day with more", `UPDATE credit_days SET credits = credits + 1 WHERE kind = 'release'`, ledger.Days},
		{"day gone", `DELETE FROM credit_days WHERE kind = 'charge'`, ledger.Days},
		{"another day", `UPDATE credit_days SET day = day - 86400000 WHERE kind = 'hold'`, ledger.Days},
		{"entry on no day", `UPDATE entries SET amount = amount + 1 WHERE kind = 'hold'`, ledger.Days},
		{"log of nothing", `UPDATE workspace_log SET workspace = zeroblob(16)`, ledger.Owned},
		{"evidence of nothing", `UPDATE evidence SET number = 3`, ledger.Owned},
		{"verification gone", `DELETE FROM verifications`, ledger.Owned},
		{"workspace gone", `DELETE FROM workspaces`, ledger.Owned},
		{"account past its check", `PRAGMA ignore_check_constraints = ON;
			UPDATE workspaces SET granted = granted + 1`, "I1"},
		{"negative amount", `PRAGMA ignore_check_constraints = ON;
			UPDATE workspaces SET spent = -1, held = held + 3`, "I2"},
		{"a check of the database", `PRAGMA ignore_check_constraints = ON;
			UPDATE verifications SET durable = bytes + 1`, ledger.Storage},
		{"id cut", `UPDATE entries SET workspace = x'0102' WHERE kind = 'charge'`, ledger.Storage},
		{"id of a verification cut", `UPDATE verifications SET id = x'0102'`, ledger.Storage},
	}) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
		d := ledgertest.NewFixture(t, s, 9)
		d.Overrides(ledgertest.Halves("example.net"), time.Hour)
		d.Joins("anna@acme.test", ledger.Owner)
		_, l := d.Prepares(6)
		d.Settles(l, 1, 0, 1, smtp.Valid)
		witnessed := ledgertest.Batch(l, 2, 2, 3, smtp.Unknown)
		witnessed.Evidence = []byte("seen")
		effort.Must(s.Settle(t.Context(), witnessed))(t)
		change(t, path, c.statement)
		report, err := s.Audit(t.Context())
		effort.ErrIs(t, err, nil, c.name)
		named := slices.ContainsFunc(report.Violations, func(v ledger.Violation) bool { return v.Invariant == c.want })
		effort.ErrorIf(t, named != (c.want != "") || c.want == "" && len(report.Violations) > 0,
			"%s: %q is not what was named in %+v", c.name, c.want, report.Violations)
		effort.Is(t, report.Found, int64(len(report.Violations)), c.name, "found")
		for _, v := range report.Violations {
			if !slices.ContainsFunc(ledger.Invariants(), func(i ledger.Invariant) bool { return i.ID == v.Invariant }) {
				t.Errorf("%s: no words for %+v", c.name, v)
			}
		}
		effort.OK(t, s.Close())
	}
}

// TestAuditCountsWhatItReads checks the counts of an audit of a sound ledger.
func TestAuditCountsWhatItReads(t *testing.T) {
	s := openStore(t)
	d := ledgertest.NewFixture(t, s, 9)
	v, l := d.Prepares(6)
	d.Settles(l, 1, 0, 3, smtp.Valid)
	d.Settles(l, 2, 4, 5, smtp.Unknown)
	ledgertest.NewFixture(t, s, 0).Creates(7)
	got := effort.Must(s.Audit(t.Context()))(t)
	age := d.Sees(v.ID).Completed.Sub(got.Newest)
	effort.ErrorIf(t, age.Abs() > time.Minute, "newest entry at %v, %v before the end", got.Newest, age)
	want := ledger.AuditReport{Workspaces: 2, Verifications: 2, Chunks: 1, Settlements: 2, Outcomes: 6,
		Entries: 4, Newest: got.Newest, Violations: []ledger.Violation{}, Corrections: []ledger.Correction{}}
	effort.Same(t, got, want)
}

// TestAuditSeesSpoiledPages overwrites each page of a ledger's file in turn. Whatever page it is, the damage is told,
// by a violation or by an error, and what an audit can read is audited.
func TestAuditSeesSpoiledPages(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	d := ledgertest.NewFixture(t, s, 900)
	_, l := d.Prepares(800)
	d.Settles(l, 1, 0, 799, smtp.Valid)
	effort.OK(t, s.Close())
	sound := effort.Must(os.ReadFile(path))(t)
	const page = 4096
	told := 0
	for at := page; at < len(sound); at += page { // without the first, nothing is opened
		spoiled := slices.Clone(sound)
		for i := range spoiled[at : at+page] {
			spoiled[at+i] ^= 0x5a
		}
		effort.OK(t, os.WriteFile(path, spoiled, 0o600))
		s, err := sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{})
		if err != nil {
			continue // the table of the schema's version
		}
		report, err := s.Audit(t.Context())
		if err != nil || !slices.ContainsFunc(report.Violations,
			func(v ledger.Violation) bool { return v.Invariant == ledger.Storage || v.Invariant == "I12" }) {
			t.Errorf("page %d: %+v, %v", at/page, report.Violations, err)
		}
		told++
		effort.OK(t, s.Close())
	}
	if told < 5 {
		t.Errorf("only %d of %d pages were told", told, len(sound)/page)
	}
}

// red is a ledger that somebody has changed past the program.
type red struct {
	*ledgertest.Fixture
	t      *testing.T
	done   uuid.UUID // completed: a valid, an unknown
	doing  ledger.Lease
	change func(statements string)
}

// inRed runs a test on an embedded ledger and on a server.
func inRed(t *testing.T, test func(r *red)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "ledger.db")
		test(newRed(t, "sqlite:"+path, func(s string) { change(t, path, s) }))
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		url := sqlstore.NewLedger(t)
		test(newRed(t, url, func(s string) { run(t, url, s) }))
	})
}

func newRed(t *testing.T, url string, change func(string)) *red {
	t.Helper()
	s := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	t.Cleanup(func() { _ = s.Close() })
	r := &red{Fixture: ledgertest.NewFixture(t, s, 20), t: t, change: change}
	v, l := r.Prepares(2)
	r.Settles(l, 1, 0, 0, smtp.Valid)
	r.Settles(l, 2, 1, 1, smtp.Unknown)
	r.done = v.ID
	_, r.doing = r.Prepares(5)
	r.Settles(r.doing, 1, 0, 1, smtp.Valid) // 20 granted, 14 available, 3 held, 3 spent
	return r
}

// finds fails the test unless an audit finds a number of violations, and returns their subjects.
func (r *red) finds(want int64) map[string]bool {
	r.t.Helper()
	report, err := r.Audit(r.t.Context())
	effort.FatalIf(r.t, err != nil || report.Found != want,
		"found %d, want %d: %+v, %v", report.Found, want, report.Violations, err)
	subjects := map[string]bool{}
	for _, v := range report.Violations {
		subjects[v.Subject] = true
	}
	return subjects
}

func (r *red) corrects(c ledger.CorrectionCall) ledger.Correction {
	r.t.Helper()
	return effort.Must(r.Correct(ledger.WithAuthor(r.t.Context(), "mara"), c))(r.t)
}

// call asks for the correction of a subject.
func call(subject uuid.UUID) ledger.CorrectionCall {
	return ledger.CorrectionCall{ID: uuid.New(), Subject: subject.String(), Reason: "by hand"}
}

// goesOn finishes what is in work and audits: what was set right stays right.
func (r *red) goesOn(want ledger.Balance) {
	r.t.Helper()
	r.finds(0)
	r.Settles(r.doing, 2, 2, 4, smtp.Valid)
	r.Grants(1)
	want.Held, want.Spent = want.Held-3, want.Spent+3
	want.Granted, want.Available = want.Granted+1, want.Available+1
	effort.Is(r.t, r.Account(), want, "at the end the account is")
	r.finds(0)
	st := effort.Must(r.Statement(r.t.Context(), ledger.StatementQuery{Workspace: r.Workspace, Limit: 9}))(r.t)
	for _, m := range st.Moves {
		effort.ErrorIf(r.t, m.Kind == ledger.MoveCorrection &&
			(m.Author != "mara" || m.Reason != "by hand" || m.Verification != nil), "the correction: %+v", m)
	}
}

// TestAnAccountThatWasChangedByHandIsCorrected: the change by hand is kept with an entry, or undone.
func TestAnAccountThatWasChangedByHandIsCorrected(t *testing.T) {
	inRed(t, func(r *red) {
		before := r.Account()
		for _, c := range []struct {
			name, statement string
			keep            bool
			by              ledger.Balance // of keep
			kinds           string
		}{
			{"credits added", `granted = granted + 5, available = available + 5`, false, ledger.Balance{},
				"grant 5, withdrawal 5"},
			{"credits taken", `granted = granted - 4, available = available - 4`, false, ledger.Balance{},
				"withdrawal 4, grant 4"},
			{"credits spent", `spent = spent + 2, available = available - 2`, false, ledger.Balance{},
				"charge 2, hold 2, refund 2"},
			{"credits given back", `spent = spent - 2, available = available + 2`, false, ledger.Balance{},
				"refund 2, charge 2, hold 2"},
			{"credits held", `held = held + 2, available = available - 2`, false, ledger.Balance{}, "hold 2, release 2"},
			{"credits released", `held = held - 2, available = available + 2`, false, ledger.Balance{}, "release 2, hold 2"},
			{"credits added that stay", `granted = granted + 5, available = available + 5`, true,
				ledger.Balance{Granted: 5, Available: 5}, "grant 5"},
			{"credits spent that stay", `spent = spent + 2, available = available - 2`, true,
				ledger.Balance{Spent: 2, Available: -2}, "charge 2, hold 2"},
			{"held by nobody, entered or not", `held = held + 2, available = available - 2`, true, ledger.Balance{},
				"hold 2, release 2"},
		} {
			r.change(`UPDATE workspaces SET ` + c.statement)
			subjects := r.finds(violations(c.statement))
			effort.ErrorIf(r.t, !subjects[r.Workspace.String()], "%s: found about %v", c.name, subjects)
			wanted := call(r.Workspace)
			wanted.Keep = c.keep
			done := r.corrects(wanted)
			var kinds []string
			for _, e := range done.Entries {
				kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.Amount))
			}
			if got := strings.Join(kinds, ", "); got != c.kinds || done.Author != "mara" || done.Workspace != r.Workspace ||
				len(done.Findings) == 0 || time.Since(done.At).Abs() > time.Hour {
				r.t.Errorf("%s: entries %q, want %q; %+v", c.name, got, c.kinds, done)
			}
			before = ledger.Balance{Granted: before.Granted + c.by.Granted, Available: before.Available + c.by.Available,
				Held: before.Held, Spent: before.Spent + c.by.Spent}
			effort.Is(r.t, r.Account(), before, fmt.Sprintf("%s: the account is", c.name))
			again := r.corrects(wanted) // sent again
			effort.ErrorIf(r.t, len(again.Entries) != len(done.Entries) || again.Number != done.Number ||
				!again.At.Equal(done.At), "%s: %+v, and again %+v", c.name, done, again)
			r.finds(0)
		}
		r.goesOn(before)
		effort.Is(r.t, r.AddsUp(2), "", "statement")
	})
}

// violations is how many violations a change of an account is: held credits that no verification holds are one more.
func violations(statement string) int64 {
	if strings.Contains(statement, "held") {
		return 2
	}
	return 1
}

// TestWhatHappenedToAVerificationIsNotedAsKnown: nothing of it changes, and what is found later is another matter.
func TestWhatHappenedToAVerificationIsNotedAsKnown(t *testing.T) {
	inRed(t, func(r *red) {
		before := r.Account()
		// As a grant with the id of the verification once did.
		r.finds(0)
		effort.FatalIf(r.t, r.Sees(r.done).Held != 0, "it holds credits")
		r.change(`INSERT INTO entries (subject, number, kind, workspace, amount, created, reason)
			SELECT id, 0, 'grant', workspace, 7, created, '' FROM verifications WHERE completed > 0`)
		r.change(`UPDATE credit_days SET credits = credits + 7 WHERE kind = 'grant'`)
		r.change(`UPDATE workspaces SET granted = granted + 7, available = available + 7`)
		before.Granted, before.Available = before.Granted+7, before.Available+7
		r.finds(1)
		r.change(`UPDATE verifications SET count_valid = 0, count_error = 1 WHERE completed > 0`)
		subjects := r.finds(4)
		effort.FatalIf(r.t, len(subjects) != 1 || !subjects[r.done.String()], "found about %v", subjects)
		done := r.corrects(call(r.done))
		effort.ErrorIf(r.t, len(done.Findings) != 4 || len(done.Entries) != 0 || done.Workspace != uuid.Nil,
			"corrected %+v", done)
		effort.Is(r.t, r.Account(), before, "account")
		report, err := r.Audit(r.t.Context())
		effort.ErrorIf(r.t, err != nil || report.Found != 0 || len(report.Corrections) != 1 ||
			report.Corrections[0].ID != done.ID, "audit: %+v, %v", report, err)
		lines, err := r.OperatorLog(r.t.Context(), ledger.LogQuery{Limit: 1})
		effort.ErrorIf(r.t, err != nil || len(lines) != 1 || lines[0].Action != "audit correct" ||
			lines[0].Author != "mara" || lines[0].Reason != "by hand" || lines[0].Subject != r.done.String() ||
			!strings.Contains(lines[0].Old, "and 3 more"), "the log says %+v, %v", lines, err)
		effort.Denied(r.Correct(r.t.Context(), call(r.done)))(r.t, ledger.ErrNothingFound, "again")
		r.change(`UPDATE verifications SET count_error = 2, count_unknown = 0 WHERE completed > 0`)
		effort.Not(r.t, effort.Must(r.Audit(r.t.Context()))(r.t).Found, 0, "what came later is not found")
		again := r.corrects(call(r.done))
		effort.ErrorIf(r.t, again.Number != 2, "corrected for the second time: %+v", again)
		r.goesOn(before)
	})
}

// TestWhatNoCorrectionSetsRight is refused, and nothing is written.
func TestWhatNoCorrectionSetsRight(t *testing.T) {
	inRed(t, func(r *red) {
		refuses := func(what string, c ledger.CorrectionCall, want error) {
			r.t.Helper()
			done, err := r.Correct(r.t.Context(), c)
			effort.ErrorIf(r.t, !errors.Is(err, want), "%s: %+v, %v", what, done, err)
		}
		refuses("a sound workspace", call(r.Workspace), ledger.ErrNothingFound)
		refuses("nobody", call(uuid.New()), ledger.ErrNothingFound)
		nameless, idle := call(r.Workspace), call(r.Workspace)
		nameless.ID, idle.Reason = uuid.Nil, ""
		refuses("without an id", nameless, ledger.ErrIllegal)
		refuses("without a reason", idle, ledger.ErrIllegal)
		v := r.Uploads()
		r.change(`UPDATE verifications SET durable = 3 WHERE total < 0`) // bytes can be had again
		refuses("lost bytes", call(v.ID), ledger.ErrUncorrectable)
		r.change(`UPDATE verifications SET durable = bytes WHERE total < 0`)
		// 20 were granted: with 17 of them gone in the entries 3 are left, and 6 are held or spent.
		r.change(`UPDATE entries SET amount = 3 WHERE kind = 'grant'`)
		r.change(`UPDATE credit_days SET credits = 3 WHERE kind = 'grant'`)
		refuses("entries of less than was used", call(r.Workspace), ledger.ErrUncorrectable)
		keep := call(r.Workspace)
		keep.Keep = true
		r.corrects(keep)
		r.finds(0)
		report, err := r.Audit(r.t.Context())
		effort.ErrorIf(r.t, err != nil || len(report.Corrections) != 1, "audit: %+v, %v", report, err)
	})
}
