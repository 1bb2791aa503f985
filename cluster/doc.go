// Package cluster is where actors live: the actor system of this node, who the
// members are, and on which member a virtual actor has its place.
//
// Gossip says who is probably here (package gossip), actor traffic goes by mutual
// TLS (package secure), and the ledger's table of nodes says how much of what the
// cluster shares each node may use (package share): every few seconds a node writes
// there that it lives and which members it sees, and reads what the others wrote.
//
//	gossip, links, rows of the ledger -> view -> owner of a key -> placement
//	rows of the ledger -> votes -> share of a key -> Options.Comply
//
// Every member computes the same owner for a key from the same view, and activates
// only what it owns itself. There is no directory: an identity may for seconds be
// active twice, so nothing about money or outcomes rests on there being only one.
//
// A node whose ledger is embedded is a cluster of one member: no gossip, a remote
// port on loopback that refuses every stream, and the whole of every share.
//
// Start with Node. The package knows nothing about mail.
package cluster
