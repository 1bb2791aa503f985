package cluster

import (
	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
)

// activation is one living virtual actor on this node.
type activation struct {
	identity *pcluster.ClusterIdentity
	pid      *actor.PID
	stopping bool
}

// placement hosts the virtual actors of this node as its children. Mailbox only.
type placement struct {
	lookup *lookup
	byKey  map[string]*activation
	byPID  map[string]*activation
}

func newPlacement(l *lookup) *placement {
	return &placement{lookup: l, byKey: map[string]*activation{}, byPID: map[string]*activation{}}
}

// Receive implements actor.Actor.
func (p *placement) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *pcluster.ActivationRequest:
		var pid *actor.PID
		if m.GetClusterIdentity() != nil { // anything may come from another node
			pid = p.activate(c, m.ClusterIdentity)
		}
		c.Respond(&pcluster.ActivationResponse{Pid: pid, Failed: pid == nil})
	case *actor.Terminated:
		if m.GetWho().GetAddress() == c.ActorSystem().Address() {
			p.ended(m.Who.Id)
		}
	case viewChanged:
		p.handOver(c)
	}
}

// activate returns the living actor of an identity, or nil when it has no place
// here or is just going away: the requester asks again after a pause.
func (p *placement) activate(c actor.Context, identity *pcluster.ClusterIdentity) *actor.PID {
	if p.lookup.view.Load().owner(identity.Identity) != c.ActorSystem().Address() {
		p.lookup.metrics.notOurs.Inc()
		return nil
	}
	if a := p.byKey[identity.AsKey()]; a != nil {
		if a.stopping {
			return nil
		}
		return a.pid
	}
	kind, ok := p.lookup.cluster.TryGetClusterKind(identity.Kind)
	if !ok {
		return nil
	}
	a := &activation{identity: identity}
	a.pid = c.SpawnPrefix(pcluster.WithClusterIdentity(kind.Props, identity), identity.Identity)
	p.byKey[identity.AsKey()], p.byPID[a.pid.Id] = a, a
	kind.Inc()
	p.lookup.metrics.activations.Inc()
	return a.pid
}

// ended forgets an actor that stopped.
func (p *placement) ended(id string) {
	a := p.byPID[id]
	if a == nil {
		return
	}
	delete(p.byPID, id)
	delete(p.byKey, a.identity.AsKey())
	if kind, ok := p.lookup.cluster.TryGetClusterKind(a.identity.Kind); ok {
		kind.Dec()
	}
}

// handOver stops the actors that by the new view belong elsewhere.
func (p *placement) handOver(c actor.Context) {
	v := p.lookup.view.Load()
	for _, a := range p.byKey {
		if !a.stopping && v.owner(a.identity.Identity) != c.ActorSystem().Address() {
			a.stopping = true
			p.lookup.metrics.handedOver.Inc()
			c.Poison(a.pid)
		}
	}
}
