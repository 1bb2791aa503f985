// Package sqlstore is the ledger in SQL.
//
// Store does what ledger.Book asks for: each method is one transaction that
// derives its amounts from the rows it changes, and changes them on a
// condition, so that running it again changes nothing more. The transitions
// themselves are those of package transitions, and those about people of package people; here are the tables they
// run over, one file for each noun, and the readings. Package engine has connections, transactions and what
// differs between databases.
//
// The package does not decide when anything happens: leases, sweeps and audits
// are asked for by others. Start with Open, Store and migrations/0001_book.sql.
package sqlstore
