// Package state keeps what receivers taught us beyond the life of an actor and of a node.
package state
