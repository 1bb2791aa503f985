//go:build !race

package clustertest

// slower is by what factor the times of nodes are longer.
const slower = 1
