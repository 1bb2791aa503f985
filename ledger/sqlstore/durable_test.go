package sqlstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// TestAServerThatForgetsIsMended: a role, a database and a server with
// synchronous_commit = off answer grants, crash, and have every grant that was answered.
// fsync and full_page_writes cannot be mended from here: the server is refused, and what
// the error says to run is enough.
func TestAServerThatForgetsIsMended(t *testing.T) {
	t.Parallel()
	server := postgres.New(t, postgres.Options{})
	url := server.NewDatabase(t, "book", "")
	if err := sqlstore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	run(t, url, `CREATE ROLE forgetful LOGIN SUPERUSER; ALTER ROLE forgetful SET synchronous_commit = off`)
	for _, turnOff := range []string{`SELECT 1`, `ALTER DATABASE book SET synchronous_commit = off`,
		`ALTER SYSTEM SET synchronous_commit = off`} {
		run(t, url, turnOff)
		run(t, url, `SELECT pg_reload_conf()`)
		answeredIsKept(t, server, as(t, url, "forgetful"))
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		before := openAt(t, url)
		changeAndReload(t, url, `ALTER SYSTEM SET `+name+` = off`)
		_, opened := sqlstore.Open(t.Context(), url, sqlstore.Options{})
		for _, err := range []error{opened, sqlstore.Migrate(t.Context(), url)} {
			if !errors.Is(err, sqlstore.ErrDurability) {
				t.Fatalf("%s is off: got %v, want ErrDurability", name, err)
			}
		}
		run(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rollcall'`)
		if _, err := before.Grant(t.Context(), uuid.New(), uuid.New(), 1, ""); !errors.Is(err, sqlstore.ErrDurability) {
			t.Errorf("%s is off: a ledger that was open connects anew, and writes: got %v, want ErrDurability", name, err)
		}
		reader, err := sqlstore.OpenReadOnly(t.Context(), url, sqlstore.Options{})
		if err != nil {
			t.Fatalf("%s is off: an audit writes nothing: %v", name, err)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
		parts := strings.Split(opened.Error(), "`")
		if len(parts) != 5 {
			t.Fatalf("the error does not say what to run: %v", opened)
		}
		changeAndReload(t, url, parts[1])
		if err := openAt(t, url).Ping(t.Context()); err != nil {
			t.Errorf("after %s: %v", parts[1], err)
		}
	}
}

// changeAndReload changes a setting of the server, and waits until new connections have it.
func changeAndReload(t *testing.T, url, statement string) {
	t.Helper()
	words := strings.Fields(strings.TrimSuffix(statement, ";")) // ALTER SYSTEM SET name = value
	run(t, url, statement)
	run(t, url, `SELECT pg_reload_conf()`)
	for query(t, url, `SELECT current_setting('`+words[3]+`')`) != words[5] {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// query asks as the owner of a database for one value.
func query(t *testing.T, address, question string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err == nil {
		err = conn.QueryRow(t.Context(), question).Scan(&value)
		err = errors.Join(err, conn.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// answeredIsKept grants through the ledger at url until the server crashes in the middle.
func answeredIsKept(t *testing.T, server *postgres.Server, url string) {
	t.Helper()
	store := openWith(t, url, sqlstore.Options{RetryWait: time.Millisecond})
	d := ledgertest.NewDesk(t, store, 0)
	ctx, crash := context.WithCancel(t.Context())
	defer crash()
	var answered, asked atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				if _, err := store.Grant(ctx, uuid.New(), d.Workspace, 1, ""); err == nil && answered.Add(1) == 100 {
					if err := server.Crash(); err != nil {
						t.Error(err)
					}
					crash()
				}
			}
		})
	}
	clients.Wait()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := store.Balance(t.Context(), d.Workspace)
	if err != nil || b.Granted < ledger.Credits(answered.Load()) || b.Granted > ledger.Credits(asked.Load()) {
		t.Errorf("%d grants were answered of %d, %d are there: %v", answered.Load(), asked.Load(), b.Granted, err)
	}
}

// TestTheOtherLevelsOfSynchronousCommitAreKept: who waits for a second server, or does
// not, goes on to do so.
func TestTheOtherLevelsOfSynchronousCommitAreKept(t *testing.T) {
	t.Parallel()
	url := sqlstore.NewLedger(t)
	for role, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_write": "remote_write",
		"remote_apply": "remote_apply"} {
		s := openAt(t, url+"&synchronous_commit="+role)
		if got, err := s.SynchronousCommit(t.Context()); err != nil || got != want {
			t.Errorf("%s: it became %q, %v, want %q", role, got, err, want)
		}
	}
}

// TestPragmasThatForgetAreRefused when an embedded ledger is opened whose file does not follow them.
func TestPragmasThatForgetAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pragmas string
		sound   bool
	}{
		{"journal_mode(WAL) synchronous(FULL) foreign_keys(1)", true},
		{"journal_mode(WAL) synchronous(EXTRA) foreign_keys(1)", true},
		{"journal_mode(WAL) synchronous(NORMAL) foreign_keys(1)", false},
		{"journal_mode(WAL) synchronous(OFF) foreign_keys(1)", false},
		{"journal_mode(MEMORY) synchronous(FULL) foreign_keys(1)", false},
		{"journal_mode(WAL) synchronous(FULL) foreign_keys(0)", false},
	} {
		s, err := sqlstore.Open(t.Context(), sqlstore.NewFile(t),
			sqlstore.WithPragmas(strings.Fields(c.pragmas)...))
		if err == nil {
			err = s.Close()
		}
		if errors.Is(err, sqlstore.ErrDurability) == c.sound || c.sound && err != nil {
			t.Errorf("%s: got %v", c.pragmas, err)
		}
	}
}
