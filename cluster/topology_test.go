package cluster

import (
	"slices"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/remote"

	"rollcall/cluster/gossip"
)

// TestConnectionsToMembersThatLeftEnd: once for each time that a member left, also when
// another one has come in its place, and never to this node.
func TestConnectionsToMembersThatLeftEnd(t *testing.T) {
	n, _ := startEcho(t)
	var mu sync.Mutex
	var ended []string // guarded by mu
	n.system.EventStream.Subscribe(func(event any) {
		if e, ok := event.(*remote.EndpointTerminatedEvent); ok {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, e.Address)
		}
	})
	self := gossip.Member{NodeMeta: n.meta}
	first, second, third := gossip.Member{NodeMeta: card(7)}, gossip.Member{NodeMeta: card(8)},
		gossip.Member{NodeMeta: card(9)}
	first.Actors, second.Actors, third.Actors = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1" // nobody listens there
	for _, members := range [][]gossip.Member{
		{self}, {self, first}, {self, first}, {self, first, second}, {self, second, third}, {self, third}, {},
	} {
		n.topology.tell(members, n.meta.Session)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"}; !slices.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
}
