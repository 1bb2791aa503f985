package cluster

import (
	"sync/atomic"
	"time"

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

// activate returns the actor of an identity, or nil when another node owns it or it is just ending: the requester asks
// again after a pause.
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

// handOver stops the actors that belong to other nodes by the new view.
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

// placementName is the name of the actor that hosts a node's virtual actors.
const placementName = "placement"

// resolveAttempt bounds one question to the owner. A local owner answers within microseconds; a dead one costs the
// requester a second.
const resolveAttempt = time.Second

// lookup finds and hosts virtual actors. Unlike with the library's own lookup, a node activates only what it owns by
// its present view, so that no second activation lives on after a member joins.
type lookup struct {
	cluster   *pcluster.Cluster
	view      *current
	metrics   *metrics
	placement *actor.PID
	down      atomic.Bool
}

// viewChanged tells the placement about a new view.
type viewChanged struct{}

// Setup implements the library's IdentityLookup.
func (l *lookup) Setup(c *pcluster.Cluster, _ []string, _ bool) {
	l.cluster = c
	props := actor.PropsFromProducer(func() actor.Actor { return newPlacement(l) },
		actor.WithSupervisor(actor.NewOneForOneStrategy(10, 10*time.Second, stopFailing)))
	pid, err := c.ActorSystem.Root.SpawnNamed(props, placementName)
	if err != nil {
		panic(err) // a bug: Setup ran twice
	}
	l.placement = pid
}

// see switches to a new view.
func (l *lookup) see(v *view) {
	l.view.Store(v)
	if l.placement != nil {
		l.cluster.ActorSystem.Root.Send(l.placement, viewChanged{})
	}
}

// stopFailing stops a virtual actor that panicked, so that its watchers resolve it anew; a restart under the same name
// would go unnoticed.
func stopFailing(any) actor.Directive { return actor.StopDirective }

// Shutdown implements the library's IdentityLookup; the library calls it twice.
func (l *lookup) Shutdown() {
	if l.down.Swap(true) || l.placement == nil {
		return
	}
	_ = l.cluster.ActorSystem.Root.StopFuture(l.placement).Wait()
}

// Get implements the library's IdentityLookup.
func (l *lookup) Get(ci *pcluster.ClusterIdentity) *actor.PID {
	owner := l.view.Load().owner(ci.Identity)
	if owner == "" || l.down.Load() {
		return nil
	}
	answer, err := l.cluster.ActorSystem.Root.RequestFuture(actor.NewPID(owner, placementName),
		&pcluster.ActivationRequest{ClusterIdentity: ci}, resolveAttempt).Result()
	if err != nil {
		return nil
	}
	r, ok := answer.(*pcluster.ActivationResponse)
	if !ok || r.Failed {
		return nil
	}
	return r.Pid
}

// RemovePid implements the library's IdentityLookup.
func (l *lookup) RemovePid(ci *pcluster.ClusterIdentity, pid *actor.PID) {
	l.cluster.PidCache.RemoveByValue(ci.Identity, ci.Kind, pid)
}
