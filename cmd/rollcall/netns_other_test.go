//go:build !linux

package main

import "testing"

// TestClusterOnSeparateNetworks needs network namespaces.
func TestClusterOnSeparateNetworks(t *testing.T) {
	t.Skip("skipped: no networks of their own for the nodes: only Linux has namespaces")
}

// memoryFolder is where files lie in memory: not known here.
func memoryFolder() string { return "" }
