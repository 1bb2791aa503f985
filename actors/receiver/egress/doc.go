// Package egress is the pool of our source addresses: it decides which of them may speak to which receiver now.
//
// A Pool belongs to a node and knows three things about each Source:
//   - Health: if many receivers refuse a source, it is suspended for all of them. When the suspension is over, one
//     receiver tries it first.
//   - Daily cap: an operator limits how many RCPTs the source sends between two midnights UTC. Receivers claim equal
//     parts. What was used is kept in facts.Store, so that a new process doesn't use it twice.
//   - An operator's settings, such as a pause.
//
// A pool doesn't know which single receivers refuse a source. Each receiver knows which sources it refuses.
package egress
