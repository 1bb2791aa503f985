//go:build !race

package clustertest

// slower is by how much nodes are slower than they may be.
const slower = 1
