//go:build !race

package effort

import "testing"

// Raced says whether this run has the race detector.
const Raced = false

// OnlyNode does nothing without the race detector.
func OnlyNode(testing.TB) {}
