package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"rollcall/ledger"
	"rollcall/ledger/people"
	"rollcall/ledger/transitions"
)

// readersMax bounds the connections that read at once. A read takes tens of
// microseconds, a page of settlements some ten milliseconds; more readers than
// this only wait for the same processors. Guess.
const readersMax = 8

// Options say how a ledger is opened. The zero value is complete.
type Options struct {
	// Folder is where files go that end with what they are for, such as those that
	// put results in order, for a ledger on a server; "": the system's. The
	// embedded ledger has them beside it.
	Folder string
	// RetryWait is the first wait before an attempt is made again; it doubles up to
	// a hundred times as much. 0: 10 ms. When it is shorter, writers that meet at one row meet
	// again; when it is longer, callers wait. Tests whose subject is not the wait shorten it.
	RetryWait time.Duration
	// DiskReserve is how many bytes of its disk an embedded ledger leaves for settlements and
	// money: with less, it takes no new verification and no chunk. 0: nothing is looked at.
	DiskReserve int64
	// FreeBytes asks how much is free on the disk of a folder; nil: the system is asked.
	FreeBytes func(folder string) (int64, error)
	// Log gets what an operator may care about; nil: nothing is logged.
	Log *slog.Logger
	// Registerer gets rollcall_ledger_*; nil: it is counted for nobody.
	Registerer prometheus.Registerer

	pragmas []string // of the writer; nil: writerPragmas, and others in tests
}

// Store is a ledger.Book in SQL. Safe for concurrent use.
type Store struct {
	transitions.Engine // the transitions
	*people.Book       // those who sign in
	dialect            dialect
	writer             *pool    // embedded: one session, so that writers queue here; nil: read only
	gate               *gate    // before the writers
	readers            *pool    // nil until the schema is right
	lock               *os.File // what makes this process the owner; nil: read only, or a server
	folder             string   // Options.Folder
	retryWait          time.Duration
	log                *slog.Logger
	meters             meters
	once               sync.Once
	writes             atomic.Uint64 // see Writes

	// erased counts what was erased, and folded is that number when nothing of it was left in
	// the write-ahead log. They differ at first, since the process before may have been killed.
	erased, folded atomic.Int64

	late       lateChores    // of sweeps
	tableLocks time.Duration // how long a migration tries to get a table: tableLockMax, and less in tests

	disk  disk // of an embedded ledger
	clock *clockWatch
	// bounds are where looks for what is due begin.
	bounds *bounds
}

var _ ledger.Book = (*Store)(nil)

// newStore makes a Store that is not connected.
func newStore(d dialect, o Options) (*Store, error) {
	s := &Store{dialect: d, folder: o.Folder, retryWait: o.RetryWait, log: o.Log, meters: newMeters(),
		clock: newClockWatch(), bounds: newBounds()}
	if s.retryWait == 0 {
		s.retryWait = waitMin
	}
	s.Engine, s.Book = transitions.New(database{s}), people.New(database{s})
	s.erased.Store(1)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer != nil {
		if err := s.meters.register(o.Registerer); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Open opens the ledger at url: "sqlite:path/to/ledger.db", relative to the
// working directory, or "postgresql://user@host:port/database" of a PostgreSQL or
// CockroachDB server, with the parameters of libpq such as sslmode. ErrURL,
// ErrInUse, ErrNoLedger, ErrSchemaOld, ErrSchemaNew, ErrIsolation, ErrDurability.
//
// The embedded ledger is made when it is not there, with its folder, and its
// schema brought up to date; the leases of the process that had it before are
// given back and its row is removed, since that is surely dead. On a server only Migrate does the
// former, and time alone the latter.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	if isServer(url) {
		return openServer(ctx, url, o, access{})
	}
	path, err := pathOf(url)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	held, err := lock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	s, err := newStore(sqliteDialect(), o)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	s.lock = held
	s.watchDisk(filepath.Dir(path), o)
	err = s.open(ctx, path, o.pragmas)
	if err == nil && o.Registerer != nil {
		err = s.registerDisk(o.Registerer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), s.Close())
	}
	return s, nil
}

// open connects, migrates, and forgets the leases and processes of before.
func (s *Store) open(ctx context.Context, path string, pragmas []string) error {
	if pragmas == nil {
		pragmas = writerPragmas
	}
	// The file holds addresses and secrets; its log takes over its rights.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, pragmas, "rwc"))
	if err != nil {
		return err
	}
	s.writeBy(db, 1)
	if err := checkPragmas(ctx, db); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if db, err = sql.Open("sqlite", dsn(path, readerPragmas, "rw")); err != nil {
		return err
	}
	s.readers = newPool(db, s.dialect, readersMax, s.meters.waits(kindRead))
	const forget = `UPDATE verifications SET lease_node = NULL, lease_expires = 0
		WHERE lease_node IS NOT NULL`
	return s.update(ctx, func(t *tx) error {
		if _, err := t.Exec(forget); err != nil {
			return fmt.Errorf("forget old leases: %w", err)
		}
		if _, err := t.Exec(`DELETE FROM nodes`); err != nil {
			return fmt.Errorf("forget the processes of before: %w", err)
		}
		return nil
	})
}

// writeBy gives the store connections to write by.
func (s *Store) writeBy(db *sql.DB, size int) {
	s.writer, s.gate = newPool(db, s.dialect, size, s.meters.waits(kindWrite)), newGate()
}

// openServer connects to a server whose schema is right.
func openServer(ctx context.Context, url string, o Options, a access) (*Store, error) {
	reading := access{readOnly: true}
	db, err := connector(url, reading)
	if err != nil {
		return nil, err
	}
	d, err := serverDialect(ctx, db)
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, attemptTime)
		err = rightSchema(asking, db)
		cancel()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	s, err := newStore(d, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.readers = newPool(db, d, readersMax, s.meters.waits(kindRead))
	if a.readOnly {
		return s, nil
	}
	if db, err = connector(url, a); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.writeBy(db, writersMax)
	asking, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	if err := db.PingContext(asking); err != nil { // a connection that may not write is refused now, not at the first write
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), s.Close())
	}
	return s, nil
}

// rightSchema compares the schema at db with the one of this program.
// ErrNoLedger, ErrSchemaOld, ErrSchemaNew.
func rightSchema(ctx context.Context, db *sql.DB) error {
	version, err := schemaVersion(ctx, db)
	switch {
	case err != nil:
		return err
	case version < SchemaVersion:
		return ErrSchemaOld
	case version > SchemaVersion:
		return ErrSchemaNew
	}
	return nil
}

// OpenReadOnly opens the ledger at url for reading, such as for an audit beside
// the process that owns it. Methods that write answer ErrReadOnly. ErrURL,
// ErrNoLedger, ErrSchemaOld, ErrSchemaNew.
func OpenReadOnly(ctx context.Context, url string, o Options) (*Store, error) {
	if isServer(url) {
		return openServer(ctx, url, o, access{readOnly: true})
	}
	path, err := pathOf(url)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open ledger %s: %w", path, ErrNoLedger)
	}
	s, err := newStore(sqliteDialect(), o)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, readerPragmas, "ro"))
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	s.readers = newPool(db, s.dialect, readersMax, s.meters.waits(kindRead))
	if err := rightSchema(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), s.Close())
	}
	return s, nil
}

// pathOf gives the file that url names. ErrURL.
func pathOf(url string) (string, error) {
	path, ok := strings.CutPrefix(url, "sqlite:")
	if !ok || path == "" || strings.HasPrefix(path, ":") {
		return "", fmt.Errorf("ledger url %q: %w", redacted(url), ErrURL)
	}
	return filepath.Clean(path), nil
}

// redacted cuts a url down to its scheme, since the rest may hold a password.
func redacted(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || rest == "" {
		return url
	}
	return scheme + ":…"
}

// writerPragmas make a commit durable before it returns: with a write-ahead log
// and synchronous=FULL each commit is synced. The log is folded back each 4,096
// pages (16 MiB), so that a page written often is folded once; secure_delete
// overwrites erased addresses with zeros.
var writerPragmas = []string{
	"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	"wal_autocheckpoint(4096)", "cache_size(-16384)", "secure_delete(ON)", "mmap_size(0)",
}

// readerPragmas keep a reader from writing.
var readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "cache_size(-4096)", "mmap_size(0)"}

// dsn is the driver's name for a file.
func dsn(path string, pragmas []string, mode string) string {
	q := url.Values{"mode": {mode}, "_pragma": pragmas}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	return u.String()
}

// Close ends the use of the ledger, after what runs now. What was committed
// stays; it may be called twice.
func (s *Store) Close() error {
	var errs []error
	s.once.Do(func() {
		if s.readers != nil {
			errs = append(errs, s.readers.close())
		}
		if s.writer != nil {
			errs = append(errs, s.writer.close())
		}
		if s.lock != nil {
			errs = append(errs, s.lock.Close()) // last: from here on another process may own the file
		}
	})
	return errors.Join(errs...)
}

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	err := s.view(ctx, func(t *tx) error {
		var one int
		return t.row(`SELECT 1`).Scan(&one)
	})
	if err != nil {
		return fmt.Errorf("ping ledger: %w", err)
	}
	return nil
}
