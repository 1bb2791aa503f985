// Package ledger has the types, rules, states and invariants of work and money.
//
// It contains no SQL and no actors. Book is the interface of every database; ledger/sqlstore implements it,
// ledger/ledgertest tests it. The first invariant is granted = available + held + spent, always and for each workspace.
//
// Read Verification, Settlement, Balance and Book first.
package ledger
