package sqlstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// TestBackupIsOneMomentOfALedgerAtWork copies while grants go on, and opens the
// copy: it is sound, has no other name, and holds what was committed before.
func TestBackupIsOneMomentOfALedgerAtWork(t *testing.T) {
	s := openStore(t)
	d := ledgertest.NewFixture(t, s, 900)
	v, l := d.Prepares(600)
	for number := int64(1); number <= 6; number++ {
		s := ledgertest.Batch(l, number, 100*(number-1), 100*number-1, smtp.Valid)
		s.Evidence = []byte("seen")
		effort.Must(d.Settle(t.Context(), s))(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			d.Grants(1)
		}
	}()
	in := d.Joins("anna@acme.test", ledger.Owner)
	effort.Must(s.FailedSignIn(t.Context(), []ledger.Hash{{1}},
		ledger.AttemptRule{Free: 1, Window: time.Hour, First: time.Hour, Most: time.Hour}))(t)
	before := d.Account().Granted
	path := filepath.Join(t.TempDir(), "odd ?#% name.db")
	err := s.Backup(t.Context(), path)
	after := d.Account().Granted
	stop()
	<-ended
	effort.OK(t, err)
	info := effort.Must(os.Stat(path))(t)
	effort.Is(t, info.Mode().Perm(), 0o600, "mode")
	effort.Is(t, len(effort.Must(os.ReadDir(filepath.Dir(path)))(t)), 1, "files beside the copy")
	copied := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	defer func() { _ = copied.Close() }()
	c := &ledgertest.Fixture{Book: copied, T: t, Workspace: d.Workspace, Node: d.Node}
	c.Audits()
	b := c.Account()
	effort.ErrorIf(t, b.Spent != 600 || b.Granted < before || b.Granted > after,
		"the copy has %+v, want 600 spent and from %d to %d granted", b, before, after)
	kept := c.Witnesses(v.ID, 5)
	effort.ErrorIf(t, len(kept) != 1 || kept[0].Evidence != "seen", "the copy has the evidence %+v", kept)
	effort.Same(t, effort.Must(copied.SessionByID(t.Context(), in.Session.ID, time.Hour))(t), in,
		"the copy has the session")
	if waits, err := copied.SignInWaits(t.Context(), []ledger.Hash{{1}}); err != nil || waits[0].IsZero() {
		t.Errorf("the copy has the failed sign-ins %v, %v", waits, err)
	}
	if lines, err := copied.WorkspaceLog(t.Context(), ledger.WorkspaceLogQuery{Workspace: d.Workspace, Limit: 9}); err != nil || len(lines) != 3 {
		t.Errorf("the copy has the log %+v, %v", lines, err)
	}
	effort.ErrIs(t, s.Backup(t.Context(), path), sqlstore.ErrBackupExists, "over a file that is there")
}

// TestACutOffBackupLeavesNothing, neither in the folder nor in the ledger.
func TestACutOffBackupLeavesNothing(t *testing.T) {
	s := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "copy.db")
	effort.ErrIs(t, s.Backup(ctx, path), context.Canceled)
	effort.Denied(os.Stat(path))(t, os.ErrNotExist, "the file")
	effort.ErrIs(t, s.Backup(t.Context(), filepath.Join(path, "no-folder")), os.ErrNotExist, "into no folder")
	ledgertest.NewFixture(t, s, 1).Audits()
}

// TestCheckBackupSeesDamage in a file that is cut, overwritten, or no ledger.
func TestCheckBackupSeesDamage(t *testing.T) {
	s := openStore(t)
	d := ledgertest.NewFixture(t, s, 900)
	for range 40 {
		d.Creates(7)
	}
	for _, c := range []struct {
		name   string
		damage func(text []byte) []byte
		want   error
	}{
		{"nothing", func(b []byte) []byte { return b }, nil},
		{"empty", func([]byte) []byte { return nil }, engine.ErrBackupDamaged},
		{"cut", func(b []byte) []byte { return b[:len(b)-5000] }, engine.ErrBackupDamaged},
		{"a page of zeros", func(b []byte) []byte { clear(b[len(b)-4096:]); return b }, engine.ErrBackupDamaged},
		{"another kind of file", func(b []byte) []byte { return []byte(strings.Repeat("email\n", 2000)) },
			engine.ErrBackupDamaged},
	} {
		path := filepath.Join(t.TempDir(), "copy.db")
		effort.OK(t, s.Backup(t.Context(), path))
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, c.damage(text), 0o600)
		}
		effort.OK(t, err)
		effort.ErrIs(t, sqlstore.CheckBackup(t.Context(), path), c.want, c.name)
	}
	path := filepath.Join(t.TempDir(), "newer.db")
	effort.OK(t, s.Backup(t.Context(), path))
	change(t, path, `INSERT INTO schema_versions VALUES (999, 1)`)
	effort.ErrIs(t, sqlstore.CheckBackup(t.Context(), path), engine.ErrSchemaNew, "of a newer program")
}

// TestALedgerOnAServerIsNotCopied: its own tools do that.
func TestALedgerOnAServerIsNotCopied(t *testing.T) {
	url := postgres.Empty(t)
	effort.OK(t, sqlstore.Migrate(t.Context(), url))
	s := openAt(t, url)
	path := filepath.Join(t.TempDir(), "copy.db")
	err := s.Backup(t.Context(), path)
	effort.ErrorIf(t, s.Embedded() || !errors.Is(err, engine.ErrNotEmbedded), "got %v", err)
	effort.Denied(os.Stat(path))(t, os.ErrNotExist, "the file")
}
