//go:build race

package clustertest

// slower is by how much nodes are slower than they may be without the race detector,
// which makes what a heartbeat costs ten times as much.
const slower = 2
