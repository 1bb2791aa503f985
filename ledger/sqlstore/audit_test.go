package sqlstore_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// TestAuditCountsWhatItReads in a sound ledger.
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
