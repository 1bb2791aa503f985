//go:build !race

package main

import "testing"

// onlyNode matters to the race detector alone.
func onlyNode(testing.TB) {}
