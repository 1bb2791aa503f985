// Package node starts and stops everything that runs in one process: the lab, the ledger, the cluster, the actors and
// the listeners.
//
// Start, in node.go, follows the order of the start. Stop goes the other way: no new requests, no new work, leases
// given back, sessions ended, the ledger closed.
package node
