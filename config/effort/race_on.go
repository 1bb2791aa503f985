//go:build race

package effort

import (
	"sync"
	"testing"
)

// Raced reports whether this run has the race detector.
const Raced = true

var nodeHere sync.Mutex

// OnlyNode makes the test wait until no other test of this process has a node, and keeps others waiting until it
// ends. Whenever the actor library opens a port, it sets the logger of its transport without a lock, while others use
// it.
func OnlyNode(t testing.TB) {
	nodeHere.Lock()
	t.Cleanup(nodeHere.Unlock)
}
