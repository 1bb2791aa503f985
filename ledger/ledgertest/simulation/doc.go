// Package simulation lives the whole life of many verifications in one thread, from one seed: customers, nodes and
// operators call the real transitions (package transitions) over tables in memory, while commits are lost or repeated
// without being told, messages come late and twice, leases run out, clocks are stepped, and transactions are made to
// run again with others in between.
//
// After each commit everything that it touched must keep the invariants of the book; each answer must be true; and when
// the faults end, everything must come to its end by itself. The same seed gives the same life, operation by operation.
package simulation
