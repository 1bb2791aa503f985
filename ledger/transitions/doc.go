// Package transitions changes the ledger: each transition of a verification and each movement of credits is plain Go
// over the rows of one serialisable transaction. A database provides the rows (Tables) and the transactions
// (Database); Engine is the writing half of a ledger.Book on top of them.
//
// Every transition may be run again. It derives its amounts from the rows that it changes in the same transaction,
// and changes them conditionally. So a second run after an unknown commit finds the work done and moves nothing.
package transitions
