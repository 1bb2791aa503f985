// Package facts is what actors learned, beyond their life and that of a node: of receivers, of our sources, and of how
// hosts answer for domains. It is a memory, not work: a fact that is lost is learned again.
//
// A Writer writes facts to the ledger, and reads them again, for a whole node and in batches.
//
// A Snapshot is what one actor learned of its receiver, in its stored form; the next actor of that receiver, on any
// node, begins with it. The package knows the form, its bounds and its life; the receiver decides what to store and
// what to believe. All that is read is bounded, because the bytes may come from another release, or from a node with a
// wrong clock.
package facts
