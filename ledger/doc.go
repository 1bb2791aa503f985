// Package ledger has the types, rules, states and invariants of work and money.
//
// It holds no SQL and no actors. Book is what every database must be able to
// do; ledger/sqlstore does it, ledger/ledgertest checks it. The first invariant
// is granted = available + held + spent, per workspace, always.
//
// Read Verification, Settlement, Balance and Book first.
package ledger
