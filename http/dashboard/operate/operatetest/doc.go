// Package operatetest runs the operator's pages on a real listener, with a real ledger and a fake cluster: one receiver
// of each state, nodes, sources and findings.
package operatetest
