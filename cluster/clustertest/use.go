package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"

	"rollcall/cluster"
	"rollcall/cluster/wire"
)

// keysCounted is how many keys a Use watches. With so many keys each of a handful of nodes owns several.
const keysCounted = 100

// slack is the tolerance for rounding when a sum of fractions is compared with one.
const slack = 1e-9

// Use adds up what all nodes of a world use of some keys. A node uses the shares of its last ApplyShares until the
// next one or until it dies. Safe for concurrent use.
type Use struct {
	keys []string

	mu       sync.Mutex
	parts    map[int][]float64 // guarded by mu; by node, one for each key
	ended    map[int]bool      // guarded by mu
	most     float64           // guarded by mu; largest sum so far
	steps    int               // guarded by mu
	exceeded []string          // guarded by mu
}

func newUse() *Use {
	u := &Use{parts: map[int][]float64{}, ended: map[int]bool{}}
	for i := range keysCounted {
		u.keys = append(u.keys, fmt.Sprintf("receiver-%d.example", i))
	}
	return u
}

// Keys returns the keys that Use watches.
func (u *Use) Keys() []string { return u.keys }

// applyShares returns a node's Options.ApplyShares. The node keeps to new shares at once.
func (u *Use) applyShares(node int) func(ctx context.Context, of func(key string) (k, n int)) error {
	return func(_ context.Context, of func(key string) (k, n int)) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.ended[node] {
			return nil
		}
		parts := make([]float64, len(u.keys))
		for i, key := range u.keys {
			if k, n := of(key); n > 0 {
				parts[i] = float64(k) / float64(n)
			}
		}
		u.parts[node] = parts
		u.check()
		return nil
	}
}

// check adds up the use of each key; mu is held.
func (u *Use) check() {
	u.steps++
	for i, key := range u.keys {
		sum := 0.0
		for _, parts := range u.parts {
			sum += parts[i]
		}
		u.most = max(u.most, sum)
		if sum > 1+slack && len(u.exceeded) < 10 {
			text := fmt.Sprintf("step %d: %s is used %.3f times:", u.steps, key, sum)
			for node, parts := range u.parts {
				text += fmt.Sprintf(" node-%d %.3f", node, parts[i])
			}
			u.exceeded = append(u.exceeded, text)
		}
	}
}

// dead notes that a node no longer uses anything.
func (u *Use) dead(node int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended[node] = true
	delete(u.parts, node)
}

// Of returns how much of a key each of some nodes uses now, and the sum over all nodes.
func (u *Use) Of(key int) (parts map[int]float64, sum float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	parts = map[int]float64{}
	for node, all := range u.parts {
		parts[node] = all[key]
		sum += all[key]
	}
	return parts, sum
}

// Total returns the sum of a node's shares over all keys.
func (u *Use) Total(node int) (sum float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, part := range u.parts[node] {
		sum += part
	}
	return sum
}

// Steps returns how often nodes got new shares, and the largest part of a key that nodes ever used together.
func (u *Use) Steps() (steps int, most float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.steps, u.most
}

// broken describes where more than the whole was used.
func (u *Use) broken() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.exceeded
}

// EchoKind is the kind of virtual actor that every node of a world has.
const EchoKind = "echo"

// Echo knows on which nodes virtual actors live. Each answers a wire.Ask. Safe for concurrent use.
type Echo struct {
	mu     sync.Mutex
	living map[string][]int // guarded by mu; nodes by identity
}

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
