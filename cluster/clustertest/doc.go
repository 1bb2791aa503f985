// Package clustertest runs the nodes of a cluster in one process: gossip on a network in memory, actor traffic over
// loopback with mutual TLS, and one ledger for all (an embedded one, which outside of tests serves one node only). Each
// of the three can be cut for a node, and a node can die with its process or with its machine.
//
// A World adds up what all nodes use of some keys, at every step of every node, and fails the test when the sum is more
// than the whole.
//
// It is for tests only. Start with New.
package clustertest
