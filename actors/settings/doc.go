// Package settings follows what operators change while a node runs: overrides of throttles and the weights of
// workspaces. The ledger keeps them for all nodes, and each node reads them every second.
//
// What was read last holds while the ledger does not answer; an override never holds beyond its own end.
package settings
