// Package state keeps what receivers taught us beyond the life of an actor and of a node.
//
// A Snapshot is what one actor learned of its receiver, in the form in which it is kept: the
// next actor of that receiver, on whatever node, begins with it. The package knows the form,
// its bounds and for how long it is of use; what to put into it and what to believe of it, the
// receiver decides. All that is read is bounded, because the bytes may be of another release,
// or of a node whose clock was wrong.
//
// Facts is where it is kept, and a Writer writes and reads it for all receivers of a node
// together. Nothing here may not be lost: it can be learned again.
package state
