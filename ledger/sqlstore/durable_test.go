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
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// TestAServerThatForgetsIsMended: a role, a database and a server with synchronous_commit = off answer grants, crash,
// and have every grant that was answered. fsync and full_page_writes cannot be mended from here: the server is refused,
// and what the error says to run is enough.
func TestAServerThatForgetsIsMended(t *testing.T) {
	t.Parallel()
	server := postgres.New(t, postgres.Options{})
	url := server.NewDatabase(t, "book", "")
	effort.OK(t, sqlstore.Migrate(t.Context(), url))
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
			effort.FatalIf(t, !errors.Is(err, engine.ErrDurability), "%s is off: got %v, want ErrDurability", name, err)
		}
		run(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rollcall'`)
		effort.Denied(before.Grant(t.Context(), uuid.New(), uuid.New(), 1, ""))(t, engine.ErrDurability, name,
			"is off: a ledger that was open connects anew, and writes")
		reader, err := sqlstore.OpenReadOnly(t.Context(), url, sqlstore.Options{})
		effort.OK(t, err, name, "an audit writes nothing")
		effort.OK(t, reader.Close())
		parts := strings.Split(opened.Error(), "`")
		effort.MustBe(t, len(parts), 5, "the error does not say what to run", opened)
		changeAndReload(t, url, parts[1])
		effort.OK(t, openAt(t, url).Ping(t.Context()), "after", parts[1])
	}
}

// changeAndReload changes a setting of the server, and waits until new connections have it.
func changeAndReload(t *testing.T, url, statement string) {
	t.Helper()
	words := strings.Fields(strings.TrimSuffix(statement, ";")) // ALTER SYSTEM SET name = value
	run(t, url, statement)
	run(t, url, `SELECT pg_reload_conf()`)
	for query(t, url, `SELECT current_setting('`+words[3]+`')`) != words[5] {
		effort.OK(t, t.Context().Err())
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
	effort.OK(t, err)
	return value
}

// answeredIsKept grants through the ledger at url until the server crashes in the middle.
func answeredIsKept(t *testing.T, server *postgres.Server, url string) {
	t.Helper()
	store := openWith(t, url, sqlstore.Options{RetryWait: time.Millisecond})
	d := ledgertest.NewFixture(t, store, 0)
	ctx, crash := context.WithCancel(t.Context())
	defer crash()
	var answered, asked atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				if _, err := store.Grant(ctx, uuid.New(), d.Workspace, 1, ""); err == nil && answered.Add(1) == 100 {
					effort.ErrIs(t, server.Crash(), nil)
					crash()
				}
			}
		})
	}
	clients.Wait()
	effort.OK(t, server.Restart(t.Context()))
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
		effort.Is(t, effort.Must(s.SynchronousCommit(t.Context()))(t), want, role, "it became")
	}
}

// TestPragmasThatForgetAreRefused: an embedded ledger is not opened with pragmas by which a commit could be lost.
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
		s, err := sqlstore.Open(t.Context(), sqlstore.NewFile(t), sqlstore.WithPragmas(strings.Fields(c.pragmas)...))
		if err == nil {
			err = s.Close()
		}
		effort.ErrorIf(t, errors.Is(err, engine.ErrDurability) == c.sound || c.sound && err != nil,
			"%s: got %v", c.pragmas, err)
	}
}

// onDisk is a ledger that believes what it is told about its disk, and forgets at once
// what it was told.
func onDisk(t *testing.T, free func(string) (int64, error)) (*ledgertest.Fixture, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	s := effort.Must(sqlstore.Open(t.Context(), sqlstore.NewFile(t),
		sqlstore.AskDiskEachTime(sqlstore.Options{DiskReserve: 1 << 20, FreeBytes: free, Registerer: registry})))(t)
	t.Cleanup(func() { _ = s.Close() })
	return ledgertest.NewFixture(t, s, 9), registry
}

// TestAReserveOfDiskIsKeptForMoney: without room no file comes in, and what is in is settled.
func TestAReserveOfDiskIsKeptForMoney(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 20)
	d, registry := onDisk(t, func(string) (int64, error) { return free.Load(), nil })
	ctx := t.Context()
	_, working := d.Prepares(2)
	known := d.Asks(7)
	uploading := effort.Must(effort.First(d.Create(ctx, known)))(t)
	u, err := d.OpenUpload(ctx, uploading.ID)
	if err == nil {
		u, err = d.AppendChunk(ctx, uploading.ID, u.Writer, 0, []byte("abc"))
	}
	effort.OK(t, err)

	free.Store(1<<20 - 1)
	if _, _, err := d.Create(ctx, d.Asks(7)); !errors.Is(err, ledger.ErrNoRoom) {
		t.Errorf("create: %v", err)
	}
	after, err := d.AppendChunk(ctx, uploading.ID, u.Writer, 3, []byte("defg"))
	effort.ErrIs(t, err, ledger.ErrNoRoom, "append", after)
	effort.Is(t, after.Durable, 3, "append", after)
	if again, created, err := d.Create(ctx, known); err != nil || created || again.ID != uploading.ID {
		t.Errorf("recovered: %v, %v", created, err)
	}
	effort.Denied(d.AppendChunk(ctx, uploading.ID, u.Writer, 0, []byte("abc")))(t, nil, "a chunk that is there, again")
	d.Settles(working, 1, 0, 1, smtp.Valid)
	d.Grants(1)
	got := d.Account()
	effort.ErrorIf(t, got.Spent != 2 || got.Granted != 10, "account %+v", got)
	effort.Is(t, nettest.Metric(t, registry, "rollcall_ledger_disk_free_bytes"), 1<<20-1, "bytes are told to be free")

	free.Store(1 << 20)
	after, err = d.AppendChunk(ctx, uploading.ID, u.Writer, 3, []byte("defg"))
	effort.ErrorIf(t, err != nil || after.Status != "preparing", "append with room: %+v, %v", after, err)
	d.Creates(7)
}

// TestWhatWasErasedIsRoom: the file of the ledger does not shrink, it is used again. The
// disk itself must have a quarter, for the write-ahead log.
func TestWhatWasErasedIsRoom(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 20)
	d, registry := onDisk(t, func(string) (int64, error) { return free.Load(), nil })
	v := d.Creates(2 << 20)
	d.Fills(v)
	free.Store(1 << 18)
	n := d.Asks(7)
	effort.Denied(effort.First(d.Create(t.Context(), n)))(t, ledger.ErrNoRoom, "nothing is erased")
	effort.Must(d.Cancel(t.Context(), d.Workspace, v.ID))(t)
	inside := nettest.Metric(t, registry, "rollcall_ledger_file_free_bytes")
	effort.ErrorIf(t, inside < 2<<20 || inside > 3<<20, "%.0f bytes are free in the file", inside)
	effort.Denied(effort.First(d.Create(t.Context(), n)))(t, nil, "2 MiB were erased")
	free.Store(1<<18 - 1)
	n.Identity, n.ID = uuid.New(), uuid.New()
	effort.Denied(effort.First(d.Create(t.Context(), n)))(t, ledger.ErrNoRoom, "the log has no room")
}

// TestADiskThatCannotBeAskedIsNotInTheWay: a file system may not tell.
func TestADiskThatCannotBeAskedIsNotInTheWay(t *testing.T) {
	fails := errors.New("no such call")
	d, _ := onDisk(t, func(string) (int64, error) { return 0, fails })
	d.Creates(7)
	fails = nil
	effort.Denied(effort.First(d.Create(t.Context(), d.Asks(7))))(t, ledger.ErrNoRoom, "with nothing free")
}

// TestTheDiskIsAskedOnceASecond: free space is read at most once a second, and never without a reserve.
func TestTheDiskIsAskedOnceASecond(t *testing.T) {
	for reserve, most := range map[int64]int64{0: 0, 1: 2} {
		var asked atomic.Int64
		s := effort.Must(sqlstore.Open(t.Context(), sqlstore.NewFile(t), sqlstore.Options{
			DiskReserve: reserve, FreeBytes: func(string) (int64, error) { asked.Add(1); return 1 << 40, nil }}))(t)
		d := ledgertest.NewFixture(t, s, 0)
		d.Creates(7)
		d.Creates(7)
		n := asked.Load()
		effort.ErrorIf(t, n > most || (n == 0) != (most == 0), "reserve %d: asked %d times", reserve, n)
		effort.OK(t, s.Close())
	}
}

// TestWhatTheDiskHasNotAnsweredIsNotInTheWay: while one create reads the free space, another one does not wait for it.
func TestWhatTheDiskHasNotAnsweredIsNotInTheWay(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	s := effort.Must(sqlstore.Open(t.Context(), sqlstore.NewFile(t), sqlstore.Options{DiskReserve: 1,
		FreeBytes: func(string) (int64, error) {
			close(asked)
			<-answer
			return 1 << 40, nil
		}}))(t)
	defer func() { _ = s.Close() }()
	d := ledgertest.NewFixture(t, s, 0)
	first := make(chan error)
	go func() {
		_, _, err := s.Create(t.Context(), d.Asks(7))
		first <- err
	}()
	<-asked
	effort.Denied(effort.First(s.Create(t.Context(), d.Asks(7))))(t, nil, "beside one that asks the disk")
	close(answer)
	effort.ErrIs(t, <-first, nil)
}
