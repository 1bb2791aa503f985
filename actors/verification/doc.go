// Package verification works on one leased verification from its bytes to its last settlement.
//
// A verification actor reads the file (actors/intake), holds the credits, groups the distinct addresses by mail domain,
// keeps a bounded number of domain actors at work, and settles their outcomes in batches under its lease's epoch. On
// another node, or after a restart, it reads the same file and the settlements that stand, and continues.
//
// plan, which is plain Go, knows which addresses are open and which are settled. Actor is its shell: whatever may
// wait, it does in goroutines.
package verification
