//go:build !race

package effort

import "testing"

// Raced reports whether this run has the race detector.
const Raced = false

// OnlyNode does nothing without the race detector.
func OnlyNode(testing.TB) {}
