package clustertest

import (
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"

	"rollcall/cluster"
	"rollcall/cluster/wire"
)

// EchoKind is the kind of virtual actor that every node of a world has.
const EchoKind = "echo"

// Echo knows which virtual actors live where. Each answers a wire.Ask. Safe for
// concurrent use.
type Echo struct {
	mu     sync.Mutex
	living map[string][]int // guarded by mu; nodes by identity
}

func newEcho() *Echo { return &Echo{living: map[string][]int{}} }

// Living returns the nodes on which an identity lives.
func (e *Echo) Living(identity string) []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.living[identity])
}

// kinds returns the kinds of a node.
func (e *Echo) kinds(node int) cluster.Kinds {
	return cluster.Kinds{EchoKind: actor.PropsFromProducer(func() actor.Actor {
		return &echo{all: e, node: node}
	})}
}

// echo is one activation.
type echo struct {
	all      *Echo
	node     int
	identity string
}

// Receive implements actor.Actor.
func (a *echo) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *pcluster.ClusterInit:
		a.identity = c.Message().(*pcluster.ClusterInit).Identity.Identity
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		a.all.living[a.identity] = append(a.all.living[a.identity], a.node)
	case *actor.Stopped:
		a.all.mu.Lock()
		defer a.all.mu.Unlock()
		if i := slices.Index(a.all.living[a.identity], a.node); i >= 0 {
			a.all.living[a.identity] = slices.Delete(a.all.living[a.identity], i, i+1)
		}
	case *wire.Ask:
		c.Respond(&wire.State{})
	}
}
