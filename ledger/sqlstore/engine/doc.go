// Package engine runs transactions on the database of a ledger.
//
// The database is CockroachDB, PostgreSQL 15, or SQLite, as the URL says. What differs is a dialect: sqlite.go and
// postgres.go. Times are whole milliseconds by the database's clock. An embedded database is a SQLite file that one
// process owns (a lock file beside it says so). Those of the servers are shared by
// nodes, and migrated by Migrate alone.
//
// A commit is on the disk before Update returns. A failed attempt is run
// again, a few times, when that may help: after a conflict, after a lost
// connection on a new one, and after a commit whose answer was lost, to find
// out. What still fails is ErrUnavailable (nothing was changed) or ErrUnknown
// (call again to find out); other errors are the caller's. fault.go has the words,
// judgePostgres the table.
//
// The package knows no table but its own of migrations and the ledger's clock. Start with Open, DB and Tx.
package engine
