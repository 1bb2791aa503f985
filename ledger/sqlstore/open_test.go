package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

func TestOpenRefusesWhatItCannotOwn(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer.db")
	makeLedger(t, newer)
	change(t, newer, `INSERT INTO schema_versions (version, applied) VALUES (1000, 0)`)
	owned := filepath.Join(dir, "owned.db")
	owner := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+owned, sqlstore.Options{}))(t)
	for _, c := range []struct {
		name, url string
		want      error
	}{
		{"another scheme", "mysql://root:secret@host/db", engine.ErrURL},
		{"no scheme", "ledger.db", engine.ErrURL},
		{"no path", "sqlite:", engine.ErrURL},
		{"memory", "sqlite::memory:", engine.ErrURL},
		{"a ledger in use", "sqlite:" + owned, engine.ErrInUse},
		{"a ledger of the future", "sqlite:" + newer, engine.ErrSchemaNew},
	} {
		s, err := sqlstore.Open(t.Context(), c.url, sqlstore.Options{})
		effort.ErrIs(t, err, c.want, c.name)
		effort.ErrorIf(t, s != nil || err != nil && strings.Contains(err.Error(), "secret"),
			"%s: a store beside the error, or a password in it: %v", c.name, err)
	}
	effort.ErrIs(t, errors.Join(owner.Close(), owner.Close()), nil, "close twice")
	again := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+owned, sqlstore.Options{}))(t)
	effort.OK(t, again.Close())
	effort.ErrIs(t, again.Ping(t.Context()), engine.ErrClosed, "ping after close")
}

// makeLedger makes an empty ledger at a path with characters that a URL would change.
func makeLedger(t *testing.T, path string) {
	t.Helper()
	effort.OK(t, sqlstore.Migrate(t.Context(), "sqlite:"+path))
}

// change runs a statement behind the ledger's back.
func change(t *testing.T, path, statement string) {
	t.Helper()
	db := effort.Must(sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)"))(t)
	_, err := db.Exec(statement)
	effort.OK(t, errors.Join(err, db.Close()))
}

func TestMigrateMakesTheLedgerWhereTheURLSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not yet there", "100% #1?.db")
	makeLedger(t, path)
	makeLedger(t, path)
	info, err := os.Stat(path)
	effort.FatalIf(t, err != nil || info.Size() == 0 || info.Mode().Perm() != 0o600, "the file: %v, %v", info, err)
}

func TestReadersBesideTheOwnerSeeWhatIsCommittedAndWriteNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	effort.Denied(sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t, engine.ErrNoLedger,
		"before there is one")
	owner := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	d := ledgertest.NewFixture(t, owner, 9)
	_, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	for _, when := range []string{"beside the owner", "after the owner"} {
		reader, err := sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{})
		effort.OK(t, err, when)
		report, err := reader.Audit(t.Context())
		effort.ErrorIf(t, err != nil || len(report.Violations) != 0 || report.Outcomes != 1 || report.Entries != 3,
			"%s: audit %+v, %v", when, report, err)
		_, err = reader.Grant(t.Context(), uuid.New(), d.Workspace, 1, "")
		effort.ErrIs(t, err, engine.ErrReadOnly, fmt.Sprintf("%s: grant", when))
		effort.OK(t, errors.Join(reader.Close(), owner.Close()))
	}
}

func TestAnOldSchemaIsReadByNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	makeLedger(t, path)
	change(t, path, `DELETE FROM schema_versions`)
	effort.Denied(sqlstore.OpenReadOnly(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t, engine.ErrSchemaOld)
}

// TestAReopenedLedgerGivesBackTheLeases: the process that had them is dead, since the lock file was free.
func TestAReopenedLedgerGivesBackTheLeases(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	owner := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	d := ledgertest.NewFixture(t, owner, 9)
	v, l := d.Prepares(2)
	effort.OK(t, owner.Close())
	d.Book = effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	defer func() { _ = d.Close() }()
	effort.Denied(d.Settle(t.Context(), ledgertest.Batch(l, 1, 0, 0, smtp.Valid)))(t, ledger.ErrStaleEpoch,
		"the dead owner's settlement")
	effort.Is(t, d.Takes(v.ID).Epoch, l.Epoch+1, "epoch after", l.Epoch)
}

// TestCloseFoldsTheLog: after a clean end the ledger is one file, with nothing beside it that holds what was erased.
func TestCloseFoldsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := effort.Must(sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{}))(t)
	ledgertest.NewFixture(t, s, 9).Prepares(6)
	effort.Must(os.Stat(path + "-wal"))(t)
	effort.OK(t, s.Close())
	effort.Is(t, len(effort.Must(filepath.Glob(path+"-*"))(t)), 0, "left beside the ledger")
}

// TestAReopenedLedgerForgetsTheProcessOfBefore: it is dead, since the lock was free.
func TestAReopenedLedgerForgetsTheProcessOfBefore(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	identity := uuid.Nil
	for range 2 {
		s := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
		node := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
		snapshot, err := s.WriteHeartbeat(t.Context(), ledger.Heartbeat{Incarnation: node})
		effort.ErrorIf(t, err != nil || len(snapshot.Nodes) != 1 || snapshot.Nodes[0].Incarnation != node,
			"got %+v, %v", snapshot, err)
		id, err := s.Identity(t.Context())
		effort.ErrorIf(t, err != nil || identity != uuid.Nil && id != identity,
			"identity %s, then %s, %v", identity, id, err)
		identity = id
		effort.OK(t, s.Close())
	}
	other, err := openStore(t).Identity(t.Context())
	effort.ErrorIf(t, err != nil || other == identity, "another ledger: %s, %v", other, err)
}

// TestALedgerIsRenewedOnlyWhenNoNodeWorksOnIt: besides, only the owner of the tables can renew it.
func TestALedgerIsRenewedOnlyWhenNoNodeWorksOnIt(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { renews(t, openStore(t)) })
	t.Run("postgresql", func(t *testing.T) {
		owner := rightful(t)
		book := openAt(t, as(t, owner, nodeUser))
		_, _, err := book.RenewIdentity(t.Context(), 0, "a node")
		effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "42501"), "as a node: %v", err)
		renews(t, openAt(t, owner))
	})
}

func renews(t *testing.T, book *sqlstore.Store) {
	ctx := t.Context()
	beat := func() ledger.Incarnation {
		p := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
		effort.Must(book.WriteHeartbeat(ctx, ledger.Heartbeat{Incarnation: p, Cluster: "here", Name: "node-1",
			Actors: "h:1", Started: time.Unix(1, 0),
			View: []ledger.Incarnation{p}, Silent: []uint64{7}}))(t)
		return p
	}
	before := effort.Must(book.Identity(ctx))(t)
	lost, left := beat(), beat()
	beat() // it is in
	effort.OK(t, errors.Join(book.Retire(ctx, lost.Session, 0, false), book.Leave(ctx, left.Session)))
	turn := rowsOf(t, book, 3)
	if _, _, err := book.RenewIdentity(ctx, ledgertest.Hour, "too early"); !errors.Is(err, ledger.ErrNodeAlive) ||
		!strings.Contains(err.Error(), `"node-1" at h:1`) {
		t.Errorf("while a node works: %v", err)
	}
	if _, _, err := book.RenewIdentity(ctx, 0, "\x00"); !errors.Is(err, ledger.ErrIllegal) {
		t.Errorf("a reason that is no text: %v", err)
	}
	rowsOf(t, book, 3)
	effort.Is(t, effort.Must(book.Identity(ctx))(t), before, "the identity after a refusal")
	was, is, err := book.RenewIdentity(ledger.WithAuthor(ctx, "ada"), 0, "a copy")
	effort.FatalIf(t, err != nil || was != before || is == before || is.Version() != 4,
		"renewed from %s to %s, %v", was, is, err)
	effort.Is(t, effort.Must(book.Identity(ctx))(t), is, "the identity is")
	rowsOf(t, book, 0)
	lines, err := book.OperatorLog(ctx, ledger.LogQuery{Limit: 1})
	effort.ErrorIf(t, err != nil || len(lines) != 1 || lines[0].Action != "ledger renew" || lines[0].Author != "ada" ||
		lines[0].Reason != "a copy" || lines[0].Old != was.String() || lines[0].New != is.String(),
		"the operator log has %+v, %v", lines, err)
	beat()
	effort.Is(t, rowsOf(t, book, 1), turn+1, "the first row after it is of turn: turns go on")
}

// rowsOf fails the test unless there is a number of rows of processes, and returns the generation.
func rowsOf(t *testing.T, book *sqlstore.Store, want int) int64 {
	t.Helper()
	snapshot := effort.Must(book.ReadNodes(t.Context()))(t)
	effort.Is(t, len(snapshot.Nodes), want, "processes")
	return snapshot.Generation
}

// rightful makes a ledger on PostgreSQL, and its users with the rights that stand
// in docs/start/database.md. It gives the URL of the owner.
func rightful(t *testing.T) (owner string) {
	t.Helper()
	text := effort.Must(os.ReadFile("../../docs/start/database.md"))(t)
	_, rest, _ := strings.Cut(string(text), "<!-- rights")
	_, rest, _ = strings.Cut(rest, "```sql\n")
	rights, _, found := strings.Cut(rest, "```")
	effort.FatalIf(t, !found, "the document has no rights")
	owner = sqlstore.NewLedger(t)
	// Users are of the server, and there may be tests before this one.
	for _, user := range []string{nodeUser, auditUser} {
		run(t, owner, `DO $$ BEGIN CREATE USER `+user+`; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	}
	run(t, owner, rights)
	return owner
}

// The users of the document.
const (
	nodeUser  = "rollcall_node"
	auditUser = "rollcall_audit"
)

// TestTheRightsOfTheDocument: with a node's rights nobody can change entries. TestConformance shows that a node needs
// no more.
func TestTheRightsOfTheDocument(t *testing.T) {
	owner := rightful(t)
	book := openAt(t, as(t, owner, nodeUser))
	_ = ledgertest.NewFixture(t, book, 100)
	for _, c := range []struct{ user, statement string }{
		{nodeUser, `UPDATE entries SET amount = 1`},
		{nodeUser, `DELETE FROM entries`},
		{nodeUser, `UPDATE operator_log SET detail = ''`},
		{nodeUser, `DELETE FROM operator_log`},
		{nodeUser, `UPDATE corrections SET findings = ''`},
		{nodeUser, `DELETE FROM corrections`},
		{auditUser, `INSERT INTO corrections SELECT * FROM corrections`},
		{nodeUser, `DELETE FROM workspace_weights`},
		{nodeUser, `DELETE FROM settlements`},
		{nodeUser, `UPDATE evidence SET data = ''`},
		{nodeUser, `DELETE FROM workspace_limits`},
		{nodeUser, `DELETE FROM workspaces`},
		{nodeUser, `UPDATE secrets SET value = ''`},
		{nodeUser, `ALTER TABLE workspaces DROP CONSTRAINT balance`},
		{nodeUser, `DELETE FROM cluster_turn`},
		{nodeUser, `INSERT INTO cluster_turn VALUES (2, 0)`},
		{nodeUser, `DELETE FROM ledger_clock`},
		{nodeUser, `INSERT INTO schema_steps VALUES (1, 1, 0)`},
		{nodeUser, `DELETE FROM credit_days`},
		{auditUser, `UPDATE credit_days SET credits = 1`},
		{nodeUser, `UPDATE workspace_log SET detail = ''`},
		{nodeUser, `DELETE FROM workspace_log`},
		{nodeUser, `DELETE FROM users`},
		{auditUser, `UPDATE users SET password = ''`},
		{auditUser, `INSERT INTO memberships SELECT * FROM memberships`},
		{auditUser, `DELETE FROM user_sessions`},
		{auditUser, `UPDATE links SET ends = 1`},
		{auditUser, `DELETE FROM sign_in_attempts`},
		{auditUser, `DELETE FROM workspace_log`},
		{auditUser, `UPDATE nodes SET standing = 1`},
		{auditUser, `UPDATE workspaces SET name = ''`},
		{auditUser, `DELETE FROM evidence`},
		{auditUser, `UPDATE throttle_overrides SET ends = 1`},
		{auditUser, `UPDATE workspace_weights SET weight = 1`},
		{auditUser, `UPDATE workspace_limits SET open = 1`},
		{auditUser, `DELETE FROM verifications`},
		{auditUser, `INSERT INTO secrets VALUES ('x', '', 0)`},
	} {
		conn := effort.Must(pgx.Connect(t.Context(), as(t, owner, c.user)))(t)
		if _, err := conn.Exec(t.Context(), c.statement); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s may %s: %v", c.user, c.statement, err)
		}
		effort.OK(t, conn.Close(t.Context()))
	}
	reader := effort.Must(sqlstore.OpenReadOnly(t.Context(), as(t, owner, auditUser), sqlstore.Options{}))(t)
	defer func() { _ = reader.Close() }()
	effort.Is(t, effort.Must(reader.Audit(t.Context()))(t).Entries, 1, "audit as rollcall_audit")
	effort.Denied(reader.ReadNodes(t.Context()))(t, nil, "the roll of nodes as rollcall_audit")
}

// run runs statements as the owner of a database.
func run(t *testing.T, address, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err == nil {
		_, err = conn.Exec(t.Context(), statements)
	}
	if err == nil {
		err = conn.Close(t.Context())
	}
	effort.OK(t, err)
}

// as gives the URL of a database for another user.
func as(t *testing.T, address, user string) string {
	t.Helper()
	u := effort.Must(url.Parse(address))(t)
	q := u.Query()
	q.Set("user", user)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestTheNextHostIsTried: a URL may name several nodes of a database.
func TestTheNextHostIsTried(t *testing.T) {
	address := postgres.Empty(t)
	u := effort.Must(url.Parse(address))(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = nobody.Close()
	}
	effort.OK(t, err)
	several := strings.Replace(address, u.Host, nobody.Addr().String()+","+u.Host, 1)
	effort.OK(t, sqlstore.Migrate(t.Context(), several))
	effort.OK(t, openAt(t, several).Ping(t.Context()))
}

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

// TestACutOffBackupLeavesNothing: neither the folder nor the ledger has a trace of it.
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

// TestCheckBackupSeesDamage damages a backup: the file is cut, overwritten, or no ledger.
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

// TestALedgerOnAServerIsNotCopied: the server's own tools make its backups.
func TestALedgerOnAServerIsNotCopied(t *testing.T) {
	url := postgres.Empty(t)
	effort.OK(t, sqlstore.Migrate(t.Context(), url))
	s := openAt(t, url)
	path := filepath.Join(t.TempDir(), "copy.db")
	err := s.Backup(t.Context(), path)
	effort.ErrorIf(t, s.Embedded() || !errors.Is(err, engine.ErrNotEmbedded), "got %v", err)
	effort.Denied(os.Stat(path))(t, os.ErrNotExist, "the file")
}

// TestAServerIsMigratedByMigrateAlone follows a database from empty to one of a newer program.
func TestAServerIsMigratedByMigrateAlone(t *testing.T) {
	url := postgres.Empty(t)
	opens := map[string]func(context.Context, string, sqlstore.Options) (*sqlstore.Store, error){
		"open": sqlstore.Open, "open for reading": sqlstore.OpenReadOnly}
	for _, c := range []struct {
		name   string
		before func()
		want   error
	}{
		{"empty", func() {}, engine.ErrNoLedger},
		{"migrated, twice", func() {
			for range 2 {
				effort.OK(t, sqlstore.Migrate(t.Context(), url))
			}
		}, nil},
		{"of before", func() { run(t, url, `DELETE FROM schema_versions`) }, engine.ErrSchemaOld},
		{"of the future", func() {
			run(t, url, `INSERT INTO schema_versions (version, applied) VALUES (1000, 0)`)
		}, engine.ErrSchemaNew},
	} {
		c.before()
		for name, open := range opens {
			s, err := open(t.Context(), url, sqlstore.Options{})
			effort.ErrIs(t, err, c.want, fmt.Sprintf("%s, %s", c.name, name))
			if err == nil {
				err = s.Close()
			}
			effort.ErrorIf(t, c.want == nil && err != nil, "%v", err)
		}
	}
	effort.ErrIs(t, sqlstore.Migrate(t.Context(), url), engine.ErrSchemaNew, "migrate what is of the future")
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	for range effort.Cases(1) {
		url := postgres.Empty(t)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				effort.ErrIs(t, sqlstore.Migrate(t.Context(), url), nil)
			})
		}
		all.Wait()
		ledgertest.NewFixture(t, openAt(t, url), 1).Audits()
	}
}

// TestAServersLeasesOutliveAnOpen: other nodes are at work there.
func TestAServersLeasesOutliveAnOpen(t *testing.T) {
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	_, l := d.Prepares(2)
	d.Book = openAt(t, url)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	effort.Is(t, d.Sees(l.Verification).Epoch, l.Epoch, "epoch after")
}

func TestAReaderOfAServerWritesNothing(t *testing.T) {
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	_, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	reader := effort.Must(sqlstore.OpenReadOnly(t.Context(), url, sqlstore.Options{}))(t)
	report, err := reader.Audit(t.Context())
	effort.ErrorIf(t, err != nil || len(report.Violations) != 0 || report.Outcomes != 1 || report.Entries != 3,
		"audit %+v, %v", report, err)
	effort.Denied(reader.Grant(t.Context(), uuid.New(), d.Workspace, 1, ""))(t, engine.ErrReadOnly, "grant")
	effort.OK(t, reader.Close())
}

// TestNothingSecretIsTold: neither errors nor the log hold the password of a URL or what is in a row.
func TestNothingSecretIsTold(t *testing.T) {
	var log bytes.Buffer
	o := sqlstore.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	nobody := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := nobody.Addr().String()
	effort.OK(t, nobody.Close())
	server := postgres.Shared(t)
	for _, c := range []struct {
		name, url string
		want      error // nil: any
	}{
		{"nobody there", "postgresql://rollcall:hunter2@" + address + "/book?sslmode=disable", nil},
		{"no such database", strings.Replace(server.URL("nowhere"), "rollcall@", "rollcall:hunter2@", 1), nil},
		{"no such role", strings.Replace(server.URL("postgres"), "rollcall@", "nobody:hunter2@", 1), nil},
		{"no port", "postgres://rollcall:hunter2@host:port/book", engine.ErrURL},
		{"an at sign too many", "postgres://rollcall:hunter2@3@host:1/book", engine.ErrURL},
		{"a broken escape", "postgres://rollcall:hunter2%zz@host/book", engine.ErrURL},
		{"no certificate", "postgresql://rollcall:hunter2@host/book?sslmode=verify-full&sslrootcert=/nowhere/ca",
			engine.ErrURL},
		{"another database", "mysql://rollcall:hunter2@host/book", engine.ErrURL},
	} {
		_, opened := sqlstore.Open(t.Context(), c.url, o)
		_, read := sqlstore.OpenReadOnly(t.Context(), c.url, o)
		for _, err := range []error{opened, read, sqlstore.Migrate(t.Context(), c.url)} {
			effort.ErrorIf(t, err == nil || c.want != nil && !errors.Is(err, c.want),
				"%s: got %v, want %v", c.name, err, c.want)
			effort.Lacks(t, fmt.Sprintf("%v %+v", err, err), "hunter2", c.name, "the password is told")
		}
	}

	url := sqlstore.NewLedger(t)
	store := effort.Must(sqlstore.Open(t.Context(), url, o))(t)
	defer func() { _ = store.Close() }()
	d := ledgertest.NewFixture(t, store, 0)
	run(t, url, `ALTER TABLE api_keys ADD CONSTRAINT never CHECK (label <> 'hunter2')`)
	_, err := store.CreateKey(t.Context(), ledger.Key{ID: "key", Workspace: d.Workspace, Label: "hunter2"})
	effort.ErrorIf(t, err == nil || strings.Contains(err.Error(), "hunter2") ||
		strings.Contains(log.String(), "hunter2"), "got %v and the log %s", err, log.String())
}

// TestTheURLMayNameAFolderOfASocket: the URL has the form that pgx and libpq read.
func TestTheURLMayNameAFolderOfASocket(t *testing.T) {
	for _, c := range []struct{ name, url string }{
		{"postgresql", "postgresql:///book?host=%2Fnowhere&user=rollcall"},
		{"postgres", "postgres:///book?host=/nowhere&user=rollcall"},
	} {
		_, err := sqlstore.Open(t.Context(), c.url, sqlstore.Options{})
		if err == nil || errors.Is(err, engine.ErrURL) || !strings.Contains(err.Error(), "/nowhere/.s.PGSQL.5432") {
			t.Errorf("%s: got %v, want that nobody listens in the folder", c.name, err)
		}
	}
}
