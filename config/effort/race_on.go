//go:build race

package effort

import (
	"sync"
	"testing"
)

// Raced reports whether this run has the race detector.
const Raced = true

var nodeHere sync.Mutex

// OnlyNode makes the test wait until no other one has a node in this process, and keeps others waiting until it ends:
// the actor library sets the logger of its transport whenever it opens a port, without a lock, while others use it.
func OnlyNode(t testing.TB) {
	nodeHere.Lock()
	t.Cleanup(nodeHere.Unlock)
}
