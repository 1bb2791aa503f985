// Package share says how much of what a cluster shares this process may use.
//
// Each process votes, by the view of the members that it published in the ledger,
// for the owner of every key. A process may use k of n parts of what belongs to a
// key: n is how many processes there are, k how many of them vote for it. A vote
// counts for nobody while somebody may still count it elsewhere. So all that use
// the same key at one moment, on all sides of any partition, never use more than
// the whole together; cluster/share/README.md says why.
//
// Everything here is plain Go on one snapshot of the ledger. Read Compute first.
package share
