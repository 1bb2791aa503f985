// Package sqlstore is the ledger in SQL.
//
// Store implements ledger.Book. Each method is one transaction. It derives its amounts from the rows that it
// changes, and changes them conditionally, so that a second run changes nothing more. The transitions are in package
// transitions. This package has their tables, one file for each noun, the queries, and the part about people. Package
// engine has connections, transactions and the differences between databases.
//
// Callers decide when leases, sweeps and audits happen. Start with Open, Store and migrations/0001_book.sql.
package sqlstore
