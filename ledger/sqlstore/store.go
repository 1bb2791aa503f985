package sqlstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaVersion is this program's schema: the number of its last migration.
const SchemaVersion = 1

var schema = engine.Schema{Files: migrationFiles, Folder: "migrations", Version: SchemaVersion}

// Options configure the opening of a ledger. The zero value is complete.
type Options = engine.Options

// Store is a ledger.Book in SQL. Safe for concurrent use.
type Store struct {
	*base
	transitions.Engine
	people
	tenants
	secrets
	operators
	files
	statements
	sweeper
	auditor
}

var _ ledger.Book = (*Store)(nil)

// The parts of a store, one for each noun.
type (
	tenants    struct{ *base } // workspaces, keys, limits
	secrets    struct{ *base } // of the ledger itself
	operators  struct{ *base } // what operators set and did
	files      struct{ *base } // verifications, their uploads and results
	statements struct{ *base } // of credits
	auditor    struct{ *base }
)

// base is what the parts of a store share.
type base struct {
	db     *engine.DB
	bounds *bounds // starts of the queries for due rows
	late   failedTasks
	// erased counts erasures; folded is its value when the write-ahead log last held no erased data. They differ at
	// first, because the previous process may have been killed.
	erased, folded atomic.Int64
	unswept        prometheus.Gauge
}

func newStore(db *engine.DB, o Options) (*Store, error) {
	b := &base{db: db, bounds: newBounds(), unswept: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_ledger_unswept",
		Help: "Erasures and expiries of verifications that failed in sweeps of this node and are tried again; 1,000 at most are counted."})}
	b.erased.Store(1)
	if o.Registerer != nil {
		if err := o.Registerer.Register(b.unswept); err != nil {
			return nil, fmt.Errorf("register the ledger's metrics: %w", err)
		}
	}
	moves := transitions.New(database{b})
	return &Store{base: b, Engine: moves, people: people{b}, tenants: tenants{b}, secrets: secrets{b},
		operators: operators{b}, files: files{b}, statements: statements{b}, sweeper: sweeper{b, moves}, auditor: auditor{b}}, nil
}

// Open opens the ledger at url: "sqlite:path/to/ledger.db", relative to the working directory, or
// "postgresql://user@host:port/database" of a PostgreSQL or CockroachDB server, with the parameters of libpq such as
// sslmode. ErrURL, ErrInUse, ErrNoLedger, ErrSchemaOld, ErrSchemaNew, ErrIsolation, ErrDurability.
//
// Open creates a missing embedded ledger with its folder and migrates its schema. It also releases the leases of the
// embedded ledger's previous process, which is certainly dead, and removes its row. On a server only Migrate changes
// the schema, and leases of dead processes expire.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	db, err := engine.Open(ctx, url, schema, o)
	if err != nil {
		return nil, err
	}
	s, err := newStore(db, o)
	if err == nil && db.Embedded() {
		err = s.forgetOwner(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// forgetOwner releases the leases of an embedded ledger's previous process, and removes its row.
func (s *Store) forgetOwner(ctx context.Context) error {
	const forget = `UPDATE verifications SET lease_node = NULL, lease_expires = 0
		WHERE lease_node IS NOT NULL`
	return s.update(ctx, func(t *tx) error {
		if _, err := t.Exec(forget); err != nil {
			return fmt.Errorf("forget old leases: %w", err)
		}
		if _, err := t.Exec(`DELETE FROM nodes`); err != nil {
			return fmt.Errorf("forget earlier processes: %w", err)
		}
		return nil
	})
}

// OpenReadOnly opens the ledger at url for reading, such as for an audit beside the process that owns it. Methods
// that write return ErrReadOnly. ErrURL, ErrNoLedger, ErrSchemaOld, ErrSchemaNew.
func OpenReadOnly(ctx context.Context, url string, o Options) (*Store, error) {
	db, err := engine.OpenReadOnly(ctx, url, schema, o)
	if err != nil {
		return nil, err
	}
	return newStore(db, o)
}

// Migrate brings the schema of the ledger at url to SchemaVersion; see engine.Migrate.
func Migrate(ctx context.Context, url string, tell ...func(line string)) error {
	return engine.Migrate(ctx, url, schema, tell...)
}

// Close closes the ledger after the running calls; it may be called twice.
func (s *Store) Close() error { return s.db.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.db.Ping(ctx) }

// Embedded reports whether the ledger is a file of this process and not on a server.
func (s *Store) Embedded() bool { return s.db.Embedded() }

// Writes counts the beginnings and ends of writing transactions; see engine.DB.
func (s *Store) Writes() (count uint64, still bool) { return s.db.Writes() }

// Backup writes a copy of the embedded ledger to the new file at path; see engine.DB.
func (s *Store) Backup(ctx context.Context, path string) error { return s.db.Backup(ctx, path) }

// Create makes a verification, or returns the one with the same workspace and identity.
func (s *Store) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	s.db.LookForRoom(ctx)
	return s.Engine.Create(ctx, n)
}

// AppendChunk stores data at offset.
func (s *Store) AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (ledger.Upload,
	error) {
	s.db.LookForRoom(ctx)
	return s.Engine.AppendChunk(ctx, id, writer, offset, data)
}

// Refuse ends a verification in Preparing because of a defect in its file.
func (s *Store) Refuse(ctx context.Context, l ledger.Lease, issue ledger.Issue) (ledger.Verification, error) {
	v, err := s.Engine.Refuse(ctx, l, issue)
	return v, s.eraseRest(ctx, v, err)
}

// Cancel cancels a verification.
func (s *Store) Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	v, err := s.Engine.Cancel(ctx, workspace, id)
	return v, s.eraseRest(ctx, v, err)
}

// eraseRest erases the rest of a large upload after its verification ended unread. If this fails, the next sweep
// does it.
func (s *Store) eraseRest(ctx context.Context, v ledger.Verification, err error) error {
	if err != nil || !v.Status.Final() || v.Total >= 0 || v.UploadDeleted {
		return err
	}
	if err := s.eraseUpload(ctx, v.ID); err != nil {
		s.db.Log.Info("bytes of a refused file are left to the next sweep", "verification", v.ID, "err", err)
	}
	return nil
}

// tx is one transaction or reading of a ledger: the statements for each noun.
type tx struct {
	*engine.Tx
	accountRows
	verificationRows
	tenantRows
	processRows
	operatorRows
	peopleRows
	base *base
}

var _ transitions.Tables = (*tx)(nil)

// The statements about accounts and entries; verifications; workspaces and keys; processes and their facts;
// operators and logs; people. transitions.Tables says what most of them do.
type (
	accountRows      struct{ *engine.Tx }
	verificationRows struct{ *engine.Tx }
	tenantRows       struct{ *engine.Tx }
	processRows      struct{ *engine.Tx }
	operatorRows     struct{ *engine.Tx }
	peopleRows       struct{ *engine.Tx }
)

// within adapts do to a transaction of the engine.
func (s *base) within(do func(t *tx) error) func(t *engine.Tx) error {
	return func(t *engine.Tx) error {
		return do(&tx{t, accountRows{t}, verificationRows{t}, tenantRows{t}, processRows{t}, operatorRows{t},
			peopleRows{t}, s})
	}
}

// withActing is within for a change. It first checks that the acting session still may make it.
func (s *base) withActing(do func(t *tx) error) func(t *engine.Tx) error {
	return s.within(func(t *tx) error {
		if err := t.mayAct(); err != nil {
			return err
		}
		return do(t)
	})
}

// update, view and glance run do like the engine's functions of the same name.
func (s *base) update(ctx context.Context, do func(t *tx) error) error {
	return s.db.Update(ctx, s.withActing(do))
}

func (s *base) view(ctx context.Context, do func(t *tx) error) error {
	return s.db.View(ctx, s.within(do))
}

func (s *base) glance(ctx context.Context, do func(t *tx) error) error {
	return s.db.Glance(ctx, s.within(do))
}

// database provides the transactions for package transitions.
type database struct{ *base }

func (d database) Update(ctx context.Context, in transitions.Scope, do func(t transitions.Tables) error) error {
	return d.db.UpdateIn(ctx, engine.Scope(in), d.withActing(func(t *tx) error { return do(t) }))
}

func (d database) View(ctx context.Context, do func(t transitions.Tables) error) error {
	return d.view(ctx, func(t *tx) error { return do(t) })
}

func (t *tx) Doubt() bool { return t.Tx.Doubt }

// Room returns ledger.ErrNoRoom while the disk of an embedded ledger is nearly full.
func (t *tx) Room() error { return t.base.db.Room() }

// EraseUpload deletes chunks of an upload; the next sweep removes them from the write-ahead log.
func (t *tx) EraseUpload(id uuid.UUID, most int64) (left bool, err error) {
	t.base.erased.Add(1)
	n, err := t.Exec(eraseChunks, id[:], id[:], most)
	return n == most, err
}

// ErrBackupExists: a file of a backup is there already.
var ErrBackupExists = engine.ErrBackupExists
