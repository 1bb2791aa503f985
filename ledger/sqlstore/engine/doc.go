// Package engine runs transactions on the database of a ledger.
//
// The URL chooses CockroachDB, PostgreSQL 15 or SQLite. A dialect has the differences. Times are whole milliseconds
// by the database's clock. An embedded database is a SQLite file owned by one process, with a lock file beside it.
// Nodes share a server's database, and only Migrate migrates it.
//
// A commit is on the disk before Update returns. A failed attempt is repeated a few times if that may help: after a
// conflict, after a lost connection on a new one, and after a commit without an answer, to find out. If it still
// fails the error is ErrUnavailable (nothing was changed) or ErrUnknown (call again to find out); other errors are
// the caller's. fault.go has the causes, judgePostgres their table.
//
// The package knows no tables except its own for migrations and the ledger's clock. Start with Open, DB and Tx.
package engine
