// Package evidence reads how outcomes came about from the ledger, and judges them again by other rules.
//
// Find returns the case of one address; Replay returns which outcomes of a verification would change under other
// rules. Both only read the ledger. Memory holds one settlement at a time.
package evidence
