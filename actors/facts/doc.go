// Package facts writes what actors learned to the ledger, and reads it again, for a whole node and in batches.
//
// What is learned of receivers, of our own sources and of how hosts answer for domains outlives actors and processes in
// this way. It is a memory, not work: a fact that is lost is learned again.
package facts
