//go:build !race

package effort

import "testing"

// OnlyNode matters under the race detector alone.
func OnlyNode(testing.TB) {}
