//go:build race

package main

import (
	"sync"
	"testing"
)

var nodeHere sync.Mutex

// onlyNode makes the test wait until no other one has a node in this process, and
// keeps others waiting until it ends: the actor library sets the logger of its
// transport whenever it opens a port, without a lock, while others use it.
func onlyNode(t testing.TB) {
	nodeHere.Lock()
	t.Cleanup(nodeHere.Unlock)
}
