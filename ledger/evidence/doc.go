// Package evidence finds the evidence that a ledger keeps for an address (Find), and judges that of a verification
// again by other rules (Replay). It only reads.
//
// What evidence is and how it is packed is in smtp/evidence, judging in smtp/verdict.
package evidence
