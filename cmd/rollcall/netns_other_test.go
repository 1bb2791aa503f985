//go:build !linux

package main

import "testing"

// TestClusterOnSeparateNetworks needs network namespaces.
func TestClusterOnSeparateNetworks(t *testing.T) {
	t.Skip("skipped: no networks of their own for the nodes: only Linux has namespaces")
}

// memoryFolder returns "": the folder for files in memory is not known here.
func memoryFolder() string { return "" }
