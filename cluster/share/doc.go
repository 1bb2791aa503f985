// Package share computes how much of a cluster's limits this process may use.
//
// Each process votes for the owner of every key with the view of the members that it published in the ledger. A process
// may use k/n of the limits of a key: n is the number of processes, k how many of them vote for it. While a changed
// vote may still be counted in its old form, it counts for nobody. So all processes together, on all sides of any
// partition, never use more than the whole of a key; cluster/share/README.md says why.
//
// Everything here is computed from one snapshot of the ledger. Read Compute first.
package share
