// Package state is what was learned of receivers, beyond the life of an actor and of a node.
//
// A Snapshot is what one actor learned of its receiver, in its stored form; the next actor of that receiver, on any
// node, begins with it. The package knows the form, its bounds and its life; the receiver decides what to store and
// what to believe. All that is read is bounded, because the bytes may come from another release, or from a node with a
// wrong clock.
package state
