// Package transitions changes the ledger: each transition of a verification and each
// movement of credits is plain Go over the rows of one serialisable transaction. A database gives the rows (Tables)
// and the transactions (Database); Engine makes of them the writing half of a ledger.Book.
//
// Every transition may be run again: it derives what it moves from the rows that
// it changes in the same transaction, and changes them on conditions, so that a
// second run after an unknown commit finds its work done and moves nothing.
package transitions
