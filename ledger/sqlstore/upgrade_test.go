package sqlstore_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// These make a ledger of today one of before, whose tables are the same without
// those that the later migrations add.
const (
	withoutDays = `DROP TABLE credit_days; DROP INDEX entries_grants; DROP INDEX corrections_workspace;
	ALTER TABLE entries DROP COLUMN author; DELETE FROM schema_versions WHERE version >= 13`
	withoutPeople = withoutDays + `; DROP TABLE workspace_log; DROP TABLE sign_in_attempts; DROP TABLE links; DROP TABLE user_sessions;
	DROP TABLE memberships; DROP TABLE users; ALTER TABLE verifications DROP COLUMN made_by;
	ALTER TABLE api_keys DROP COLUMN made_by; ALTER TABLE api_keys DROP COLUMN revoked_by;
	ALTER TABLE api_keys DROP COLUMN last_used; DELETE FROM schema_versions WHERE version >= 12`
	withoutWaiting     = withoutPeople + `; DROP INDEX verifications_waiting; DELETE FROM schema_versions WHERE version >= 11`
	withoutCorrections = withoutWaiting + `; DROP TABLE corrections; DELETE FROM schema_versions WHERE version >= 10`
	withoutClock       = withoutCorrections + `; DROP TABLE ledger_clock; DROP TABLE schema_steps; DROP INDEX verifications_due;
	CREATE INDEX verifications_runnable ON verifications (wake_at, id, workspace)
		WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
	DELETE FROM schema_versions WHERE version >= 9`
	withoutLimits = withoutClock + `; DROP TABLE workspace_limits; DROP INDEX verifications_stored; DROP INDEX verifications_unpaid;
	DROP INDEX verifications_unpaid_kept; DROP INDEX verifications_unread; ALTER TABLE verifications DROP COLUMN paid;
	DELETE FROM schema_versions WHERE version >= 7`
	withoutParked = withoutLimits + `; DROP TABLE parked_work; DROP INDEX verifications_runnable;
	ALTER TABLE verifications DROP COLUMN wake_at; ALTER TABLE verifications DROP COLUMN crashes;
	CREATE INDEX verifications_runnable ON verifications (created, id)
		WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
	DELETE FROM schema_versions WHERE version >= 6`
	withoutSilent = withoutParked + `; ALTER TABLE nodes DROP COLUMN silent;
	DELETE FROM schema_versions WHERE version >= 5`
	withoutOperators = withoutSilent + `; DROP TABLE throttle_overrides; DROP TABLE workspace_weights; DROP INDEX operator_log_newest;
	ALTER TABLE operator_log DROP COLUMN author; ALTER TABLE operator_log DROP COLUMN old;
	ALTER TABLE operator_log DROP COLUMN reason; ALTER TABLE verifications DROP COLUMN expected;
	DELETE FROM schema_versions WHERE version >= 4`
	withoutEvidence = withoutOperators + `; DROP TABLE evidence; DELETE FROM schema_versions WHERE version >= 3`
	withoutNodes    = withoutEvidence + `;
	DROP TABLE nodes; DROP TABLE cluster_turn; DROP TABLE receiver_facts;
	DELETE FROM schema_versions WHERE version >= 2`
)

// TestALedgerOfBeforeIsBroughtUpToDate: an embedded one by the process that owns
// it, one on a server by Migrate; what is in it stays.
func TestALedgerOfBeforeIsBroughtUpToDate(t *testing.T) {
	for version, statements := range map[string]string{"1": withoutNodes, "2": withoutEvidence, "3": withoutOperators, "4": withoutSilent,
		"5": withoutParked, "6": withoutLimits, "8": withoutClock, "9": withoutCorrections,
		"10": withoutWaiting, "11": withoutPeople, "12": withoutDays} {
		kept := "goes with its table"
		if len(version) == 1 && version < "3" {
			kept = ""
		}
		t.Run("from "+version, func(t *testing.T) { upgradesEach(t, statements, kept) })
	}
}

func upgradesEach(t *testing.T, statements, evidence string) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		upgrades(t, "sqlite:"+path, evidence, func() { change(t, path, statements) })
	})
	t.Run("postgresql", func(t *testing.T) {
		url := sqlstore.NewLedger(t)
		upgrades(t, url, evidence, func() {
			changeAt(t, url, statements)
			if s, err := sqlstore.Open(t.Context(), url, sqlstore.Options{}); !errors.Is(err, sqlstore.ErrSchemaOld) {
				t.Fatalf("opened a server's old schema: %v, %v", s, err)
			}
			if err := sqlstore.Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// upgrades fills a ledger, lets it become old, and opens it: then it has this evidence.
func upgrades(t *testing.T, url, evidence string, old func()) {
	s, err := sqlstore.Open(t.Context(), url, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := ledgertest.NewDesk(t, s, 9)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	lost := ledgertest.Batch(l, 2, 2, 2, smtp.Valid)
	lost.Evidence = []byte("goes with its table")
	if _, err := s.Settle(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	d.Creates(7)
	before, money, results := d.Audits(), d.Account(), d.Reads(v.ID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old()
	if s, err = sqlstore.Open(t.Context(), url, sqlstore.Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d.Book = s
	if after := d.Audits(); after.Entries != before.Entries || after.Outcomes != before.Outcomes ||
		d.Account() != money || len(d.Reads(v.ID)) != len(results) {
		t.Errorf("got %+v, %+v, want %+v, %+v", after, d.Account(), before, money)
	}
	if u, err := s.Usage(t.Context(), d.Workspace); err != nil || u.Used != (ledger.Limits{Open: 1, Stored: 14, Unpaid: 1}) {
		t.Errorf("one that was paid and one that was not: %+v, %v", u, err)
	}
	if kept := d.Witnesses(v.ID, 0); len(kept) != 2 || kept[0].Evidence+kept[1].Evidence != evidence {
		t.Errorf("evidence of what was settled before: %+v", kept)
	}
	v, l = d.Prepares(1)
	operates(t, d, l)
	witnessed := ledgertest.Batch(l, 1, 0, 0, smtp.Valid)
	witnessed.Evidence = []byte("seen")
	if _, err := s.Settle(t.Context(), witnessed); err != nil {
		t.Fatal(err)
	}
	if kept := d.Witnesses(v.ID, 0); len(kept) != 1 || kept[0].Evidence != "seen" {
		t.Errorf("evidence of what is settled now: %+v", kept)
	}
	node := ledger.Process{Session: uuid.New(), Node: uuid.New()}
	roll, err := s.Beat(t.Context(), ledger.Beat{Process: node})
	if err != nil || roll.Turn != 1 || len(roll.Nodes) != 1 {
		t.Errorf("the first beat: %+v, %v", roll, err)
	}
}

// operates: operators can do all that this program knows, what they did before is in
// the log, and what is expected is kept.
func operates(t *testing.T, d *ledgertest.Desk, l ledger.Lease) {
	t.Helper()
	o := d.Overrides(ledgertest.Halves("example.net"), time.Hour)
	if w, err := d.SetWeight(t.Context(), d.Workspace, 3); err != nil || w.Weight != 3 {
		t.Errorf("weight: %+v, %v", w, err)
	}
	tuning, err := d.Tuning(t.Context())
	if err != nil || len(tuning.Overrides) != 1 || tuning.Overrides[0].ID != o.ID || tuning.Weights[d.Workspace] != 3 {
		t.Errorf("tuning: %+v, %v", tuning, err)
	}
	log, err := d.OperatorLog(t.Context(), ledger.LogQuery{Limit: 9})
	if err != nil || len(log) != 4 || log[3].Action != "workspace create" || log[3].New != "desk" || log[3].Author != "" {
		t.Errorf("log: %+v, %v", log, err)
	}
	v, err := d.Wait(t.Context(), l, ledger.Outlook{Expected: time.UnixMilli(7)})
	if err != nil || !v.Expected.Equal(time.UnixMilli(7)) {
		t.Errorf("expected %v, %v", v.Expected, err)
	}
}

// TestAReopenedLedgerForgetsTheProcessOfBefore: it is dead, since the lock was free.
func TestAReopenedLedgerForgetsTheProcessOfBefore(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	identity := uuid.Nil
	for range 2 {
		s, err := sqlstore.Open(t.Context(), url, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		node := ledger.Process{Session: uuid.New(), Node: uuid.New()}
		roll, err := s.Beat(t.Context(), ledger.Beat{Process: node})
		if err != nil || len(roll.Nodes) != 1 || roll.Nodes[0].Process != node {
			t.Errorf("got %+v, %v", roll, err)
		}
		id, err := s.Identity(t.Context())
		if err != nil || identity != uuid.Nil && id != identity {
			t.Errorf("identity %s, then %s, %v", identity, id, err)
		}
		identity = id
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := openStore(t).Identity(t.Context())
	if err != nil || other == identity {
		t.Errorf("another ledger: %s, %v", other, err)
	}
}
