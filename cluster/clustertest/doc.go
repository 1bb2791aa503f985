// Package clustertest runs the nodes of a cluster in one process: gossip on a
// network in memory, actor traffic over loopback with mutual TLS, and one ledger
// that all share, which an embedded one may not do elsewhere. Each of the three can
// be cut for a node, and a node can die with its process or with its machine.
//
// A World keeps the books on what all nodes together use of some keys, at every
// step of every node, and fails the test when that is more than there is.
//
// It is for tests only. Start with New.
package clustertest
