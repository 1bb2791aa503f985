package engine

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
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

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// readersMax bounds concurrent reading connections. A read takes tens of microseconds, a page of settlements some
// ten milliseconds; more readers would only wait for the same processors. Guess.
const readersMax = 8

// Options configure the opening of a ledger. The zero value is complete.
type Options struct {
	// Folder is for temporary files, such as those that sort results, of a ledger on a server; "": the system's. The
	// embedded ledger has them beside it.
	Folder string
	// RetryWait is the first wait before another attempt; the wait doubles, up to a hundredfold. 0: 10 ms. With a
	// shorter wait conflicting writers meet again; with a longer one callers wait. Tests of other things shorten it.
	RetryWait time.Duration
	// DiskReserve is how many bytes of its disk an embedded ledger reserves for settlements and money: with less
	// free, it accepts no new verification and no chunk. 0: no check.
	DiskReserve int64
	// FreeBytes returns the free bytes on the disk of a folder; nil: the system's answer.
	FreeBytes func(folder string) (int64, error)
	// Log gets messages for operators; nil: none.
	Log *slog.Logger
	// Registerer gets rollcall_ledger_*; nil: none.
	Registerer prometheus.Registerer

	// Seams are for tests.
	Seams Seams
}

// Seams replace parts of the system in tests. The zero value changes nothing.
type Seams struct {
	Pragmas    []string             // of the writer of an embedded ledger
	Clock      string               // of the database, as an expression in milliseconds
	NodeClock  func() time.Time     // of this machine
	Ran        func() time.Duration // of this process
	Cockroach  bool                 // PostgreSQL is used like CockroachDB
	DiskAlways bool                 // the disk's state is read each time, not once a second
	// Wrap returns a connector for the embedded ledger's database of that name, using the driver.
	Wrap func(d driver.Driver, name string) driver.Connector
}

// DB is the database of a ledger: its connections, and transactions on them. Safe for concurrent use.
type DB struct {
	dialect    dialect
	schema     Schema
	writer     *pool      // embedded: one session, so that writers queue here; nil: read only
	gate       *writeGate // before the writers
	readers    *pool      // nil until the schema is checked
	lock       *os.File   // makes this process the owner; nil: read only, or a server
	folder     string     // Options.Folder
	retryWait  time.Duration
	Log        *slog.Logger // Options.Log, or a logger that discards
	meters     meters
	once       sync.Once
	writes     atomic.Uint64 // see Writes
	tableLocks time.Duration // how long a migration tries to get a table: tableLockMax; less in tests
	disk       disk          // of an embedded ledger
	clock      *clockWatch
}

// newDB makes a DB that is not connected.
func newDB(d dialect, m Schema, o Options) (*DB, error) {
	s := &DB{dialect: d, schema: m, folder: o.Folder, retryWait: o.RetryWait, Log: o.Log, meters: newMeters(),
		clock: newClockWatch()}
	if o.Seams.Clock != "" {
		s.dialect.now = o.Seams.Clock
	}
	if o.Seams.Ran != nil {
		s.clock.ran = o.Seams.Ran
	}
	if o.Seams.NodeClock != nil {
		s.clock.node = o.Seams.NodeClock
	}
	s.retryWait = cmp.Or(s.retryWait, waitMin)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer != nil {
		if err := s.meters.register(o.Registerer); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Open opens the ledger at url: "sqlite:path/to/ledger.db", relative to the working directory, or
// "postgresql://user@host:port/database" of a PostgreSQL or CockroachDB server, with the parameters of libpq such as
// sslmode. ErrURL, ErrInUse, ErrNoLedger, ErrSchemaOld, ErrSchemaNew, ErrIsolation, ErrDurability.
//
// Open creates a missing embedded ledger with its folder and migrates its schema. On a server only Migrate does that.
func Open(ctx context.Context, url string, m Schema, o Options) (*DB, error) {
	if isServer(url) {
		return openServer(ctx, url, m, o, access{})
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
	s, err := newDB(sqliteDialect(), m, o)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	s.lock = held
	s.watchDisk(filepath.Dir(path), o)
	err = s.open(ctx, path, o.Seams)
	if err == nil && o.Registerer != nil {
		err = s.registerDisk(o.Registerer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), s.Close())
	}
	return s, nil
}

// open connects and migrates.
func (s *DB) open(ctx context.Context, path string, seams Seams) error {
	pragmas := writerPragmas
	if seams.Pragmas != nil {
		pragmas = seams.Pragmas
	}
	// The file holds addresses and secrets; the log inherits its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := seams.embedded(dsn(path, pragmas, "rwc"))
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
	if db, err = seams.embedded(dsn(path, readerPragmas, "rw")); err != nil {
		return err
	}
	s.readers = newPool(db, s.dialect, readersMax, s.meters.waits(kindRead))
	return nil
}

// embedded connects to the embedded database with a name.
func (w Seams) embedded(name string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", name)
	if err != nil || w.Wrap == nil {
		return db, err
	}
	return sql.OpenDB(w.Wrap(db.Driver(), name)), db.Close()
}

// writeBy gives the DB connections for writing.
func (s *DB) writeBy(db *sql.DB, size int) {
	s.writer, s.gate = newPool(db, s.dialect, size, s.meters.waits(kindWrite)), newWriteGate()
}

// openServer connects to a server with the right schema.
func openServer(ctx context.Context, url string, m Schema, o Options, a access) (*DB, error) {
	reading := access{readOnly: true}
	db, err := connector(url, reading)
	if err != nil {
		return nil, err
	}
	d, err := serverDialect(ctx, db)
	if o.Seams.Cockroach {
		d = cockroachDialect()
		d.snapshot = postgresDialect().snapshot // PostgreSQL understands this one
	}
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, attemptTime)
		err = m.right(asking, db)
		cancel()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	s, err := newDB(d, m, o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.readers = newPool(db, s.dialect, readersMax, s.meters.waits(kindRead))
	if a.readOnly {
		return s, nil
	}
	if db, err = connector(url, a); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.writeBy(db, writersMax)
	asking, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	// Refuse a connection without write access now, not at the first write.
	if err := db.PingContext(asking); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger: %w", err), s.Close())
	}
	return s, nil
}

// right compares the schema at db with this program's. ErrNoLedger, ErrSchemaOld, ErrSchemaNew.
func (m Schema) right(ctx context.Context, db *sql.DB) error {
	version, err := schemaVersion(ctx, db)
	switch {
	case err != nil:
		return err
	case version < m.Version:
		return ErrSchemaOld
	case version > m.Version:
		return ErrSchemaNew
	}
	return nil
}

// OpenReadOnly opens the ledger at url for reading, such as for an audit beside the process that owns it. Methods
// that write return ErrReadOnly. ErrURL, ErrNoLedger, ErrSchemaOld, ErrSchemaNew.
func OpenReadOnly(ctx context.Context, url string, m Schema, o Options) (*DB, error) {
	if isServer(url) {
		return openServer(ctx, url, m, o, access{readOnly: true})
	}
	path, err := pathOf(url)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open ledger %s: %w", path, ErrNoLedger)
	}
	s, err := newDB(sqliteDialect(), m, o)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, readerPragmas, "ro"))
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	s.readers = newPool(db, s.dialect, readersMax, s.meters.waits(kindRead))
	if err := m.right(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open ledger %s: %w", path, err), s.Close())
	}
	return s, nil
}

// pathOf returns the file that url names. ErrURL.
func pathOf(url string) (string, error) {
	path, ok := strings.CutPrefix(url, "sqlite:")
	if !ok || path == "" || strings.HasPrefix(path, ":") {
		return "", fmt.Errorf("ledger url %q: %w", redacted(url), ErrURL)
	}
	return filepath.Clean(path), nil
}

// redacted returns only the scheme of a url, because the rest may hold a password.
func redacted(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || rest == "" {
		return url
	}
	return scheme + ":…"
}

// writerPragmas make a commit durable before it returns: with a write-ahead log and synchronous=FULL each commit is
// synced. The log is written back every 4,096 pages (16 MiB), so that a page with many writes is written back once.
// secure_delete overwrites erased addresses with zeros.
var writerPragmas = []string{
	"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	"wal_autocheckpoint(4096)", "cache_size(-4096)", "secure_delete(ON)", "mmap_size(0)",
}

// readerPragmas keep a reader from writing.
var readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "cache_size(-1024)", "mmap_size(0)"}

// dsn returns the driver's name for a file.
func dsn(path string, pragmas []string, mode string) string {
	q := url.Values{"mode": {mode}, "_pragma": pragmas}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	return u.String()
}

// Close closes the ledger after the running calls. Commits stay; it may be called twice.
func (s *DB) Close() error {
	var errs []error
	s.once.Do(func() {
		if s.readers != nil {
			errs = append(errs, s.readers.close())
		}
		if s.writer != nil {
			errs = append(errs, s.writer.close())
		}
		if s.lock != nil {
			errs = append(errs, s.lock.Close()) // last, because then another process may own the file
		}
	})
	return errors.Join(errs...)
}

// Ping reports whether the database answers.
func (s *DB) Ping(ctx context.Context) error {
	err := s.View(ctx, func(t *Tx) error {
		var one int
		return t.Row(`SELECT 1`).Scan(&one)
	})
	if err != nil {
		return fmt.Errorf("ping ledger: %w", err)
	}
	return nil
}

// Scratch returns the folder for temporary files: beside the embedded ledger, otherwise the system's.
func (s *DB) Scratch() string {
	if s.lock == nil {
		return s.folder
	}
	return filepath.Dir(s.lock.Name())
}

// The values of the label kind.
const (
	kindWrite = "write"
	kindRead  = "read"
)

type meters struct {
	retries *prometheus.CounterVec // by why
	failed  *prometheus.CounterVec // by kind
	took    prometheus.Histogram
	waited  *prometheus.HistogramVec // by kind and who
	doubted prometheus.Gauge
}

// The values of the label who.
const (
	whoNode      = "node"
	whoWorkspace = "workspace"
	whoStranger  = "stranger"
)

func newMeters() meters {
	m := meters{
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_ledger_retries_total",
			Help: "Transactions and reads of the ledger that were run again, by cause."}, []string{"why"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_ledger_failures_total",
			Help: "Transactions and reads of the ledger that were given up because it did not answer, by kind " +
				"(write, read)."}, []string{"kind"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_ledger_transaction_seconds",
			Help:    "How long one transaction of the ledger took, with its waits and further runs.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 11)}),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rollcall_ledger_queue_wait_seconds",
			Help: "How long uses of the ledger waited for their turn, by kind (write, read) and who: node (its own work, " +
				"which goes first), workspace (they take turns), stranger (whose key is not known yet).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 11)}, []string{"kind", "who"}),
		doubted: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_ledger_clock_doubted", Help: "1 while this node " +
			"erases and expires nothing, because the ledger's clock jumped or differs from the node's."}),
	}
	for _, why := range []string{whyConflict, whyDuplicate, whyConnection, whyBusy, whyResources, whyUnknown,
		whyReadOnly, whyAborted} {
		m.retries.WithLabelValues(why)
	}
	for _, kind := range []string{kindWrite, kindRead} {
		m.failed.WithLabelValues(kind)
		for _, who := range []string{whoNode, whoWorkspace, whoStranger} {
			m.waited.WithLabelValues(kind, who)
		}
	}
	return m
}

// waits returns a function that records the waits for uses of a kind.
func (m meters) waits(kind string) func(who uuid.UUID, long time.Duration) {
	node, stranger := m.waited.WithLabelValues(kind, whoNode), m.waited.WithLabelValues(kind, whoStranger)
	workspace := m.waited.WithLabelValues(kind, whoWorkspace)
	return func(who uuid.UUID, long time.Duration) {
		seen := workspace
		switch who {
		case uuid.Nil:
			seen = node
		case ledger.Strangers:
			seen = stranger
		}
		seen.Observe(long.Seconds())
	}
}

func (m meters) register(to prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.retries, m.failed, m.took, m.waited, m.doubted} {
		if err := to.Register(c); err != nil {
			return fmt.Errorf("register the ledger's metrics: %w", err)
		}
	}
	return nil
}

func (m meters) fails(kind string, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
		m.failed.WithLabelValues(kind).Inc()
	}
}

type underWay struct {
	meters
	began time.Time
	span  tracing.Span
	runs  int64
}

func (m meters) write(ctx context.Context) (context.Context, *underWay) {
	w := &underWay{meters: m, began: time.Now()}
	ctx, w.span = tracing.Within(ctx, tracing.LedgerWrite)
	return ctx, w
}

func (w *underWay) end(err error) {
	w.took.Observe(time.Since(w.began).Seconds())
	w.fails(kindWrite, err)
	w.span.Count(tracing.Attempts, w.runs)
	w.span.End(err != nil)
}
