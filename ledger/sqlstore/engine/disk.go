package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
)

// diskEvery is the shortest interval between two looks at the disk.
const diskEvery = time.Second

// disk is the state of an embedded ledger's disk. The zero value, for a ledger on a server, always has room.
type disk struct {
	folder  string
	reserve int64
	ask     func(folder string) (int64, error)
	every   time.Duration

	mu     sync.Mutex
	asked  time.Time
	free   int64 // on the disk
	inside int64 // in the ledger's file, from erased data
	known  bool  // the disk has answered; unknown space refuses nothing
}

// freeBytes returns the free bytes on the disk of a folder, for any user.
func freeBytes(folder string) (int64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(folder, &disk); err != nil {
		return 0, fmt.Errorf("read the free space of %s: %w", folder, err)
	}
	return int64(disk.Bavail) * int64(disk.Bsize), nil
}

func (s *DB) watchDisk(folder string, o Options) {
	s.disk.folder, s.disk.reserve, s.disk.ask, s.disk.every = folder, o.DiskReserve, o.FreeBytes, diskEvery
	if o.Seams.DiskAlways {
		s.disk.every = 0
	}
	if s.disk.ask == nil {
		s.disk.ask = freeBytes
	}
}

// readDisk reads the disk's state, at most once a second.
func (s *DB) readDisk(ctx context.Context) {
	d := &s.disk
	if d.ask == nil || !d.due(time.Now()) {
		return
	}
	free, failed := d.ask(d.folder)
	var inside int64
	err := s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&inside)
	})
	if failed != nil || err != nil {
		s.Log.Warn("free space of the ledger's disk not known", "err", errors.Join(failed, err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known = failed == nil; d.known {
		d.free = free
	}
	if err == nil {
		d.inside = inside
	}
}

// LookForRoom reads the disk's state if there is a reserve.
func (s *DB) LookForRoom(ctx context.Context) {
	if s.disk.reserve > 0 {
		s.readDisk(ctx)
	}
}

// due reports whether to read the disk's state: true for one caller a second.
func (d *disk) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.asked) < d.every {
		return false
	}
	d.asked = now
	return true
}

// room returns ledger.ErrNoRoom when less than the reserve is free. Erased data leaves room inside the file, which
// never shrinks. But the write-ahead log grows outside, so a quarter of the reserve must be free on the disk itself.
func (d *disk) room() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || d.free+d.inside >= d.reserve && d.free >= d.reserve/4 {
		return nil
	}
	return ledger.ErrNoRoom
}

// Room returns ledger.ErrNoRoom while the disk of an embedded ledger is nearly full.
func (s *DB) Room() error { return s.disk.room() }

// registerDisk registers the metrics of an embedded ledger's disk.
func (s *DB) registerDisk(to prometheus.Registerer) error {
	for _, g := range []struct {
		name, help string
		value      func(d *disk) int64
	}{
		{"rollcall_ledger_disk_free_bytes", "Free bytes on the disk of the embedded ledger.",
			func(d *disk) int64 { return d.free }},
		{"rollcall_ledger_file_free_bytes", "Free bytes inside the embedded ledger's file. They are used before the file " +
			"grows.", func(d *disk) int64 { return d.inside }},
		{"rollcall_ledger_disk_reserve_bytes", "ledger.disk_reserve: with less free, on the disk and in the file together, " +
			"creates and uploads are refused; settlements go on.", func(d *disk) int64 { return d.reserve }},
	} {
		err := to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 {
			s.readDisk(context.Background())
			s.disk.mu.Lock()
			defer s.disk.mu.Unlock()
			return float64(g.value(&s.disk))
		}))
		if err != nil {
			return fmt.Errorf("register the metrics of the ledger's disk: %w", err)
		}
	}
	return nil
}

// Checkpoint writes the write-ahead log of an embedded ledger back into its file and empties it, so that neither has
// erased data. It does not wait: while somebody reads an older snapshot, such as an audit, the log stays and it
// returns false. It does nothing on a server, which manages its own log.
func (s *DB) Checkpoint(ctx context.Context) (bool, error) {
	if !s.Embedded() || s.writer == nil {
		return true, nil
	}
	session, err := s.writer.take(ctx, false, 0)
	if err != nil {
		return false, noSession(err).callerError(err, false)
	}
	defer s.writer.put(session)
	if err := session.connect(ctx); err != nil {
		return false, err
	}
	var busy, pages, folded int64
	// Do not wait for readers: writers queue behind this session.
	_, err = session.conn.ExecContext(ctx, "PRAGMA busy_timeout(0)")
	if err == nil {
		err = session.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &folded)
	}
	_, failed := session.conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout(5000)")
	if failed != nil {
		session.broken = true
	}
	if err = errors.Join(err, failed); err != nil {
		return false, fmt.Errorf("fold the write-ahead log: %w", err)
	}
	return busy == 0, nil
}

// askDurable turns synchronous_commit on for this connection if a role, a database or the server turned it off, and
// keeps local, remote_write and remote_apply: with each of these the commit is on the server's disk before the answer
// (PostgreSQL 15 manual, 20.5.1). Set here, it stays even if somebody changes the default later.
const askDurable = `SELECT current_setting('fsync'), current_setting('full_page_writes'),
	set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
		ELSE current_setting('synchronous_commit') END, false)`

// checkDurable refuses a connection to PostgreSQL that could lose commits when the server or its machine crashes.
// CockroachDB has no such settings: it syncs each commit on most replicas. ErrDurability.
func checkDurable(ctx context.Context, c *pgx.Conn) error {
	version, err := c.PgConn().Exec(ctx, `SELECT version()`).ReadAll()
	if err != nil {
		return fmt.Errorf("ask for the database's version: %w", err)
	}
	if dialectOf(string(version[0].Rows[0][0])).restarts {
		return nil
	}
	answers, err := c.PgConn().Exec(ctx, askDurable).ReadAll()
	if err != nil {
		return fmt.Errorf("ask whether commits are durable: %w", err)
	}
	for i, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if value := string(answers[0].Rows[0][i]); value == "off" {
			return fmt.Errorf("%w: its %s is off: run `ALTER SYSTEM SET %s = on;` and `SELECT pg_reload_conf();` there",
				ErrDurability, name, name)
		}
	}
	return nil
}

// checkPragmas refuses an embedded database that does not sync each commit, or does not enforce its tables'
// constraints: SQLite silently ignores a pragma that it cannot follow. ErrDurability.
func checkPragmas(ctx context.Context, db *sql.DB) error {
	for _, p := range []struct {
		name   string
		values string // the right values, each between two spaces
	}{
		{"journal_mode", " wal "},
		{"synchronous", " 2 3 "}, // FULL, EXTRA
		{"foreign_keys", " 1 "},
	} {
		var value string
		if err := db.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(&value); err != nil {
			return fmt.Errorf("ask for pragma %s: %w", p.name, err)
		}
		if !strings.Contains(p.values, " "+value+" ") {
			return fmt.Errorf("%w: SQLite says that pragma %s is %s: put the ledger on a local disk, not on a network disk",
				ErrDurability, p.name, value)
		}
	}
	return nil
}
