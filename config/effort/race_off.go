//go:build !race

package effort

import "testing"

// Raced says whether this run has the race detector.
const Raced = false

// OnlyNode matters under the race detector alone.
func OnlyNode(testing.TB) {}
