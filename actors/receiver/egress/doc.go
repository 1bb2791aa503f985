// Package egress is the pool of our source addresses: which of them may speak to which receiver now.
//
// A Pool belongs to a node and knows three things of each Source. Its health: a source that many receivers refuse is
// suspended for all of them, and when that is over one receiver tries it first. Its daily cap: how many RCPTs an
// operator lets it send between two midnights UTC. Receivers claim equal parts of that, and what was used is kept in
// facts.Store, so that a new process doesn't use it twice. And an operator's wishes, such as a pause.
//
// A pool doesn't know which single receivers refuse a source; each receiver does.
package egress
