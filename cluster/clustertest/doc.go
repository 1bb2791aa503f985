// Package clustertest runs the nodes of a cluster in one process: gossip on a network in memory, actor traffic over
// loopback with mutual TLS, and one embedded ledger for all nodes (outside of tests an embedded ledger serves one
// node only). A test can cut a node off from each of the three, kill its process, or lose its machine.
//
// A World adds up what all nodes use of some keys, at every step of every node, and fails the test when the sum is
// more than the whole.
//
// It is for tests only. Start with New.
package clustertest
