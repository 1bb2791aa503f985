//go:build race

package clustertest

// slower is by what factor the times of nodes are longer under the race detector, which makes a heartbeat ten times as
// expensive.
const slower = 2
