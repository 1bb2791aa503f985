package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/ledger"
)

// A receiver runs on the member of the view that owns its name (owner.go). computeView says who is in the view. When
// the view changes, actors that belong to other nodes move (handOver).

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

func (p *placement) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *pcluster.ActivationRequest:
		var pid *actor.PID
		if m.GetClusterIdentity() != nil { // another node may send anything
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

// activate returns the actor of an identity. It returns nil if another node owns the identity or the actor is just
// ending; the requester asks again after a pause.
func (p *placement) activate(c actor.Context, identity *pcluster.ClusterIdentity) *actor.PID {
	if p.lookup.view.Load().owner(identity.Identity) != c.ActorSystem().Address() {
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
	return a.pid
}

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
			c.Poison(a.pid)
		}
	}
}

// placementName is the name of the actor that hosts a node's virtual actors.
const placementName = "placement"

// resolveAttempt bounds one question to the owner. A local owner answers within microseconds; a dead one costs the
// requester a second.
const resolveAttempt = time.Second

// lookup finds and hosts virtual actors. With the library's own lookup, a second activation could live on after a
// member joins; here a node activates only what it owns by its present view.
type lookup struct {
	cluster   *pcluster.Cluster
	view      atomic.Pointer[view]
	placement *actor.PID
	down      atomic.Bool
}

// viewChanged tells the placement about a new view.
type viewChanged struct{}

// Setup implements the library's IdentityLookup.
func (l *lookup) Setup(c *pcluster.Cluster, _ []string, _ bool) {
	l.cluster = c
	props := actor.PropsFromProducer(func() actor.Actor {
		return &placement{lookup: l, byKey: map[string]*activation{}, byPID: map[string]*activation{}}
	}, actor.WithSupervisor(actor.NewOneForOneStrategy(10, 10*time.Second, stopFailing)))
	pid, err := c.ActorSystem.Root.SpawnNamed(props, placementName)
	if err != nil {
		panic(err) // a bug: Setup ran twice
	}
	l.placement = pid
}

func (l *lookup) see(v *view) {
	l.view.Store(v)
	if l.placement != nil {
		l.cluster.ActorSystem.Root.Send(l.placement, viewChanged{})
	}
}

// stopFailing stops a virtual actor that panicked, so that its watchers look for it again. They would not notice a
// restart under the same name.
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

// view is the members that a process counts on, and their addresses.
type view struct {
	members   []ledger.Incarnation // by session
	addresses map[uuid.UUID]string // of their actors, by session
}

// owner returns the actor address of the member that owns an identity; "" when there is no member.
func (v *view) owner(identity string) string {
	return v.addresses[Owner(v.members, identity)]
}

// viewInputs is everything that decides the view.
type viewInputs struct {
	self     gossip.NodeMeta
	members  []gossip.Member
	linked   func(session uuid.UUID) bool
	snapshot ledger.NodeSnapshot
	away     bool // this process drains or is ineligible
}

// computeView returns the view. It has the members that gossip sees, that answer over actor traffic, that are members
// by the ledger, that count on themselves and that don't drain. This process counts on itself unless it drains or is
// ineligible.
func (s viewInputs) computeView() *view {
	v := &view{addresses: map[uuid.UUID]string{}}
	add := func(c gossip.NodeMeta) {
		v.members = append(v.members, ledger.Incarnation{Session: c.Session, Node: c.Node})
		v.addresses[c.Session] = c.Actors
	}
	if !s.away {
		add(s.self)
	}
	in := make(map[uuid.UUID]bool, len(s.snapshot.Nodes))
	for _, row := range s.snapshot.Nodes {
		in[row.Session] = row.Status == ledger.NodeIn && countsOnItself(row)
	}
	for _, m := range s.members {
		if m.Session != s.self.Session && !m.Draining && in[m.Session] && s.linked(m.Session) {
			add(m.NodeMeta)
		}
	}
	slices.SortFunc(v.members, func(a, b ledger.Incarnation) int { return slices.Compare(a.Session[:], b.Session[:]) })
	return v
}

// fence knows when the others may count this process out. Safe for concurrent use.
type fence struct {
	after time.Duration // Times.Fence
	ahead time.Duration // Times.Unacknowledged
	sent  atomic.Pointer[time.Time]
}

// beaten notes the time at which a heartbeat was sent that the ledger took.
func (f *fence) beaten(sent time.Time) { f.sent.Store(&sent) }

// up reports whether this process may use nothing, because it has not reached the ledger for too long. The monotonic
// clock stops while a machine sleeps, and the wall clock may be set, so the longer of the two times counts.
func (f *fence) up() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after
}

// near reports whether bytes sent now may still be on their way when the fence goes up.
func (f *fence) near() bool {
	sent := f.sent.Load()
	return sent == nil || since(*sent, time.Now()) >= f.after-f.ahead
}

// until returns when the fence goes up, or the zero time if it is up.
func (f *fence) until() time.Time {
	if sent := f.sent.Load(); sent != nil && !f.up() {
		return sent.Add(f.after)
	}
	return time.Time{}
}

// since returns the time that passed by the monotonic or the wall clock, whichever is longer.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// apartSlack is how much older a member's row may be than the heartbeat that the member reports: the clocks of a
// database's servers differ by half a second at most.
const apartSlack = time.Second

// apart finds members that write their heartbeats to another ledger than the one that this node reads. Gossip accepts
// only members whose ledger has the same identity, so one of the two ledgers is a copy. A member reports when its
// ledger took its last heartbeat. In a snapshot that this node reads later, the member's row must be as new. No
// ledger counts out, forgets or sweeps such a new row, so a ledger without it never had it. After a failover a
// database may lack the row too, but only until the next heartbeat. So a member is apart only if its row stays too
// old for the time Times.Lost. Only the goroutine of heartbeats uses apart.
type apart struct {
	lost  time.Duration           // Times.Lost
	since map[uuid.UUID]time.Time // by the ledger's clock
}

// compareViews returns the members that are apart. said is what the members reported before the snapshot was read.
func (a *apart) compareViews(roll ledger.NodeSnapshot, said map[uuid.UUID]int64) (found []uuid.UUID) {
	rows := make(map[uuid.UUID]time.Time, len(roll.Nodes))
	for _, row := range roll.Nodes {
		rows[row.Session] = row.Seen
	}
	before := a.since
	a.since = map[uuid.UUID]time.Time{}
	for session, beat := range said {
		at := time.UnixMilli(beat)
		age := roll.Now.Sub(at)
		if beat == 0 || age < 0 || age >= a.lost || !rows[session].Before(at.Add(-apartSlack)) {
			continue
		}
		first, known := before[session]
		if !known {
			first = roll.Now
		}
		a.since[session] = first
		if roll.Now.Sub(first) >= a.lost {
			found = append(found, session)
		}
	}
	return found
}
