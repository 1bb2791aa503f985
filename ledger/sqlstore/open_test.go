package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

func TestOpenRefusesWhatItCannotOwn(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer.db")
	makeLedger(t, newer)
	change(t, newer, `INSERT INTO schema_versions (version, applied) VALUES (1000, 0)`)
	owned := filepath.Join(dir, "owned.db")
	owner, err := sqlstore.Open(t.Context(), "sqlite:"+owned, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url string
		want      error
	}{
		{"another scheme", "mysql://root:secret@host/db", sqlstore.ErrURL},
		{"no scheme", "ledger.db", sqlstore.ErrURL},
		{"no path", "sqlite:", sqlstore.ErrURL},
		{"memory", "sqlite::memory:", sqlstore.ErrURL},
		{"a ledger in use", "sqlite:" + owned, sqlstore.ErrInUse},
		{"a ledger of the future", "sqlite:" + newer, sqlstore.ErrSchemaNew},
	} {
		s, err := sqlstore.Open(t.Context(), c.url, sqlstore.Options{})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if s != nil || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: a store beside the error, or a password in it: %v", c.name, err)
		}
	}
	if err := errors.Join(owner.Close(), owner.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
	again, err := sqlstore.Open(t.Context(), "sqlite:"+owned, sqlstore.Options{})
	if err != nil {
		t.Fatalf("after the owner closed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := again.Ping(t.Context()); !errors.Is(err, sqlstore.ErrClosed) {
		t.Errorf("ping after close: got %v, want ErrClosed", err)
	}
}

// makeLedger makes an empty ledger at a path with characters that a URL would change.
func makeLedger(t *testing.T, path string) {
	t.Helper()
	if err := sqlstore.Migrate(t.Context(), "sqlite:"+path); err != nil {
		t.Fatal(err)
	}
}

// change runs a statement behind the ledger's back.
func change(t *testing.T, path, statement string) {
	t.Helper()
	if err := tryChange(path, statement); err != nil {
		t.Fatal(err)
	}
}

func tryChange(path, statement string) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	_, err = db.Exec(statement)
	return errors.Join(err, db.Close())
}

func TestMigrateMakesTheLedgerWhereTheURLSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not yet there", "100% #1?.db")
	makeLedger(t, path)
	makeLedger(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info, err)
	}
}

func TestReadersBesideTheOwnerSeeWhatIsCommittedAndWriteNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	_, err := sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{})
	if !errors.Is(err, sqlstore.ErrNoLedger) {
		t.Errorf("before there is one: got %v, want ErrNoLedger", err)
	}
	owner, err := sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := ledgertest.NewDesk(t, owner, 9)
	_, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	for _, when := range []string{"beside the owner", "after the owner"} {
		reader, err := sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		report, err := reader.Audit(t.Context())
		if err != nil || len(report.Violations) != 0 || report.Outcomes != 1 || report.Entries != 3 {
			t.Errorf("%s: audit %+v, %v", when, report, err)
		}
		_, err = reader.Grant(t.Context(), uuid.New(), d.Workspace, 1, "")
		if !errors.Is(err, sqlstore.ErrReadOnly) {
			t.Errorf("%s: grant: got %v, want ErrReadOnly", when, err)
		}
		if err := errors.Join(reader.Close(), owner.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestAnOldSchemaIsReadByNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	makeLedger(t, path)
	change(t, path, `DELETE FROM schema_versions`)
	_, err := sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{})
	if !errors.Is(err, sqlstore.ErrSchemaOld) {
		t.Errorf("got %v, want ErrSchemaOld", err)
	}
}

// TestAReopenedLedgerGivesBackTheLeases: the process that had them is dead, since
// the lock file was free.
func TestAReopenedLedgerGivesBackTheLeases(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	owner, err := sqlstore.Open(t.Context(), url, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := ledgertest.NewDesk(t, owner, 9)
	v, l := d.Prepares(2)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if d.Book, err = sqlstore.Open(t.Context(), url, sqlstore.Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	_, err = d.Settle(t.Context(), ledgertest.Batch(l, 1, 0, 0, smtp.Valid))
	if !errors.Is(err, ledger.ErrStaleEpoch) {
		t.Errorf("the dead owner's settlement: got %v, want ErrStaleEpoch", err)
	}
	if next := d.Takes(v.ID); next.Epoch != l.Epoch+1 {
		t.Errorf("epoch %d after %d", next.Epoch, l.Epoch)
	}
}

// TestACancelledCallLeavesNoTransactionBehind ends many calls in the middle; the
// writer must stay usable and the books sound.
func TestACancelledCallLeavesNoTransactionBehind(t *testing.T) {
	d := ledgertest.NewDesk(t, openStore(t), 0)
	granted := ledger.Credits(0)
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := d.Grant(ctx, uuid.New(), d.Workspace, 1, "raced")
			done <- err
		}()
		if i%2 == 0 {
			cancel()
		}
		if err := <-done; err == nil {
			granted++
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		cancel()
	}
	if b := d.Account(); b.Granted != granted || granted < 30 {
		t.Errorf("granted %d, acknowledged %d", b.Granted, granted)
	}
}

// TestCloseFoldsTheLog: after a clean end the ledger is one file, with nothing
// beside it that holds what was erased.
func TestCloseFoldsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.NewDesk(t, s, 9).Prepares(6)
	if _, err := os.Stat(path + "-wal"); err != nil {
		t.Fatalf("there is no log at work: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(path + "-*"); err != nil || len(left) > 0 {
		t.Errorf("left beside the ledger: %v, %v", left, err)
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
		node := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
		roll, err := s.WriteHeartbeat(t.Context(), ledger.Heartbeat{Incarnation: node})
		if err != nil || len(roll.Nodes) != 1 || roll.Nodes[0].Incarnation != node {
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
