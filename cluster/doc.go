// Package cluster runs the actor system of this node, and knows who the members are and on which of them a virtual
// actor lives.
//
// Gossip says who is probably alive (package gossip), actor traffic uses mutual TLS (package secure), and the ledger's
// table of nodes says how much of the cluster's limits each node may use (package share): every few seconds a node
// writes there that it is alive and which members it sees, and reads what the others wrote.
//
//	gossip, links, rows of the ledger -> view -> owner of a key -> placement
//	rows of the ledger -> votes -> share of a key -> Options.Comply
//
// Every member computes the same owner for a key from the same view, and activates only what it owns itself. There is
// no directory: an identity may be active twice for seconds, so nothing about money or outcomes relies on there being
// only one.
//
// A node whose ledger is embedded is a cluster of one member: no gossip, a remote
// port on loopback that refuses every stream, and the whole of every share.
//
// Start with Node. The package knows nothing about mail.
package cluster
