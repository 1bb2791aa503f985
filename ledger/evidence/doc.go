// Package evidence finds what the ledger kept of how an outcome came about, and judges it again by other rules.
//
// Find tells how the outcome of one address was concluded; Replay says which outcomes of a verification other rules
// would change. Both read a ledger, ask nobody else and write nothing. Memory holds one settlement at a time.
package evidence
