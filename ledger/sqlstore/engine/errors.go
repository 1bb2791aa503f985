package engine

import "errors"

// What keeps a ledger from being opened or written.
var (
	// ErrURL means that the ledger's URL names no database this program knows.
	ErrURL = errors.New("unknown ledger url: write sqlite:path/to/ledger.db " +
		"or postgresql://user@host:26257/rollcall?sslmode=verify-full")
	// ErrInUse means that another process owns this embedded ledger.
	ErrInUse = errors.New("another rollcall process owns this ledger: " +
		"stop it, or give this one another data_dir")
	// ErrNoLedger means that there is no ledger at the given place.
	ErrNoLedger = errors.New("there is no ledger here: check ledger.url, or make one with `rollcall migrate`")
	// ErrSchemaOld means that the schema misses migrations of this program.
	ErrSchemaOld = errors.New("the ledger's schema is too old: run `rollcall migrate`")
	// ErrSchemaNew means that a newer program migrated this ledger.
	ErrSchemaNew = errors.New("the ledger's schema is newer than this program: use the newer rollcall")
	// ErrTableInUse means that somebody read a table for so long that it could not be changed.
	ErrTableInUse = errors.New("a table could not be changed, because somebody reads it: " +
		"end that, such as a dump, and run `rollcall migrate` again")
	// ErrSchemaChange means that CockroachDB accepted a change of the schema and could not make it.
	ErrSchemaChange = errors.New("CockroachDB could not finish a change of the schema: " +
		"see what failed with `SHOW JOBS`, mend it, and run `rollcall migrate` again")
	// ErrIsolation means that the database does not run transactions one as if after
	// the other, although asked to.
	ErrIsolation = errors.New("the database's transactions are not serializable: " +
		"connect to it without a proxy that changes them")
	// ErrDurability means that the database could lose what it said was committed.
	ErrDurability = errors.New("the database can lose what it has committed")
	// ErrReadOnly means that a ledger opened for reading was asked to write.
	ErrReadOnly = errors.New("the ledger is open for reading only")
	// ErrClosed means that the ledger was closed.
	ErrClosed = errors.New("the ledger is closed")
	// ErrNotEmbedded means that the ledger is no file that this program can copy.
	ErrNotEmbedded = errors.New("the ledger is a database server: back it up with its own tools, " +
		"BACKUP INTO of CockroachDB or pg_dump of PostgreSQL; see docs/operators/operations.md")
	// ErrBackupExists means that a backup would overwrite a file.
	ErrBackupExists = errors.New("there is a file of this name already: choose another one")
	// ErrBackupRoom means that a backup would fill the disk.
	ErrBackupRoom = errors.New("too little space for a backup: make room, or back up to another disk")
	// ErrBackupDamaged means that a file is no ledger, or not a whole one.
	ErrBackupDamaged = errors.New("not a sound backup of a ledger: make a new one")
)

// What a method of a Store answers when the database did not let it finish. Both
// are worth calling again, after a while.
var (
	// ErrUnavailable means that the call changed nothing.
	ErrUnavailable = errors.New("the ledger is not available now, nothing was changed")
	// ErrUnknown means that the call may have changed what it says, or nothing. The
	// same call again finds out, and changes it at most once.
	ErrUnknown = errors.New("the ledger did not say whether the change was committed")
)
