// Package cluster runs the actor system of this node. It knows the members, and which member has a virtual actor.
//
// Gossip says who is probably alive (package gossip), actor traffic uses mutual TLS (package secure), and the
// ledger's table of nodes says how much of the cluster's limits each node may use (ShareTable): every few seconds a
// node writes there that it is alive and which members it sees, and reads what the others wrote.
//
// Each process votes for the owner of every key with the view of the members that it published in the ledger. A
// process may use k/n of the limits of a key: n is the number of processes, k how many of them vote for it. A changed
// vote counts for nobody while some process may still count it in its old form. So all processes together, on all
// sides of any partition, never use more than the whole of a key; cluster/README.md says why.
//
//	gossip, links, rows of the ledger -> view -> owner of a key -> placement
//	rows of the ledger -> votes -> share of a key -> Options.ApplyShares
//
// Every member computes the same owner for a key from the same view, and activates only what it owns itself. There is
// no directory: an actor may be active twice for seconds, so nothing about money or outcomes relies on its being only
// once.
//
// A node whose ledger is embedded is a cluster of one member: no gossip, a remote port on loopback that refuses every
// stream, and the whole of every share.
//
// Start with Node. The package knows nothing about mail.
package cluster
