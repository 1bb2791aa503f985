// Package sqlstore is the ledger in SQL.
//
// Store does what ledger.Book asks for: each method is one transaction that
// derives its amounts from the rows it changes, and changes them on a
// condition, so that running it again changes nothing more. The transitions
// themselves are those of package transitions; here are the tables they run over.
//
// The database is CockroachDB, PostgreSQL 15, or SQLite, as the URL says. The SQL
// stays inside what all of them do; what differs is a dialect: sqlite.go and
// postgres.go. Times are whole milliseconds by the database's clock. The embedded
// ledger is a SQLite file that one process owns (a lock file beside it says so).
// Those of the servers are shared by nodes, and migrated by Migrate alone.
//
// A commit is on the disk before the method returns. A failed attempt is run
// again, a few times, when that may help: after a conflict, after a lost
// connection on a new one, and after a commit of which nothing is known, to find
// out. What is left is told by ErrUnavailable (nothing was changed) and ErrUnknown
// (call again to find out); other errors are refusals. fault.go has the words,
// judgePostgres the table.
//
// The package does not decide when anything happens: leases, sweeps and audits
// are asked for by others. Start with Open, Store and migrations/0001_book.sql.
package sqlstore
