package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
)

// Node is this process as a member. Safe for concurrent use.
type Node struct {
	options  Options
	log      *slog.Logger
	system   *actor.ActorSystem
	cluster  *pcluster.Cluster
	lookup   *lookup
	topology *topology
	metrics  *metrics
	times    Times
	serving  atomic.Bool // the library runs

	answering answering

	peers      *Peers // nil: a cluster of one, which uses no field below
	meta       gossip.NodeMeta
	gossip     *gossip.Gossip
	links      *links
	heartbeats *heartbeats
	seen       seenMembers
	drains     drains
	ineligible ineligible
	loops      loops
	stop       sync.Once
}

// loops are the goroutines of a member and their channels.
type loops struct {
	again    chan struct{} // the next heartbeat is due at once
	failures chan error
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// wake triggers the next heartbeat at once.
func (l *loops) wake() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// wakeAfter triggers the next heartbeat once a change is in the ledger.
func (l *loops) wakeAfter(step string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	l.wake()
	return nil
}

// fail makes Node.Failed deliver an error, after which the process must stop.
func (l *loops) fail(err error) {
	select {
	case l.failures <- err:
	default:
	}
}

const (
	// startTimeout bounds the start of the library, and then the first heartbeat. Guess.
	startTimeout = 10 * time.Second

	// handOverWithin bounds how long a stopping node waits for its receivers to end their SMTP sessions. leaveWithin
	// bounds each message by which it leaves.
	handOverWithin = 6 * time.Second
	leaveWithin    = 3 * time.Second

	// silenceWithin bounds how long a stopping node waits for receivers to confirm the end of its sessions. Receivers
	// that did not confirm stay unused by all nodes for some minutes.
	silenceWithin = time.Second
)

// New makes a node that is no member yet. It listens nowhere, and its methods answer as if there were no other nodes.
// So parts of the process that need the node can be made before Serve.
func New(o Options) *Node {
	n := &Node{options: o, log: o.Log, peers: o.Peers, times: o.times(),
		lookup:    &lookup{},
		topology:  &topology{ready: make(chan struct{}), addresses: map[uuid.UUID]string{}},
		answering: answering{log: o.Log, places: make(chan struct{}, queriesMax)},
		loops:     loops{again: make(chan struct{}, 1), failures: make(chan error, 1)}}
	n.lookup.view.Store(&view{})
	n.heartbeats = newHeartbeats(n)
	n.metrics = newMetrics(o.Registerer, n)
	n.system = newSystem(o.Log)
	if o.Prepare != nil {
		o.Prepare(n.system)
	}
	return n
}

// Serve makes this process a member that hosts these kinds and answers queries (nil: none), and returns when it knows
// the members. Error: ErrRefused, if the members that it should join refuse it. Call it once.
func (n *Node) Serve(ctx context.Context, kinds Kinds, answer Answer) error {
	if len(kinds) == 0 {
		return errors.New("cluster: no kinds")
	}
	n.answering.answer = answer
	config, err := n.remote()
	if err != nil {
		return err
	}
	if err := n.startLibrary(config, kinds); err != nil {
		return err
	}
	if n.peers == nil {
		n.alone()
		return nil
	}
	if err := n.meet(ctx); err != nil {
		n.system.Root.Stop(n.lookup.placement)
		n.cluster.Shutdown(false)
		return err
	}
	return nil
}

// remote returns the configuration of actor traffic. A cluster of one accepts nobody.
func (n *Node) remote() (*remote.Config, error) {
	guard := &secure.Guard{Admit: n.admit, NameOf: n.seen.nameOf, Metrics: n.metrics.secure, Log: n.log,
		Local: func() string { return n.system.Address() }}
	if n.peers == nil {
		guard.Times = secure.DefaultTimes()
		guard.Times.Admit = time.Millisecond // nobody is expected
		return secure.Remote("127.0.0.1", 0, secure.RemoteOptions{Guard: guard})
	}
	guard.Times = n.peers.Traffic
	host, port, err := splitAddress(n.peers.Actors)
	if err != nil {
		return nil, fmt.Errorf("cluster.actor_listen: %w", err)
	}
	advertised := ""
	if n.peers.Advertise != "" {
		advertised = net.JoinHostPort(n.peers.Advertise, strconv.Itoa(port))
	}
	return secure.Remote(host, port, secure.RemoteOptions{Identity: n.peers.Identity, Advertise: advertised, Guard: guard})
}

// admit reports whether a member has this name, which a certificate states. Without TLS, which is allowed on loopback
// only, everybody is admitted.
func (n *Node) admit(name string) bool {
	if n.peers == nil {
		return false
	}
	if n.peers.Identity == nil {
		return true
	}
	seen := n.seen.Load()
	return seen != nil && seen.names[name]
}

// seen describes the members that gossip sees.
type seen struct {
	names map[string]bool
	at    map[string]string // name by actor address
}

// seenMembers holds the members at the last look; nil before the first look.
type seenMembers struct{ atomic.Pointer[seen] }

// nameOf returns the member with an address of actor traffic.
func (s *seenMembers) nameOf(address string) (name string, ok bool) {
	if seen := s.Load(); seen != nil {
		name, ok = seen.at[address]
	}
	return name, ok
}

func (s *seenMembers) note(members []gossip.Member, self gossip.NodeMeta) {
	next := &seen{names: map[string]bool{self.Name: true}, at: map[string]string{self.Actors: self.Name}}
	for _, m := range members {
		next.names[m.Name] = true
		next.at[m.Actors] = m.Name
	}
	s.Store(next)
}

// startLibrary starts the library's member in its own goroutine, because the library panics on errors and sleeps for a
// second at the end.
func (n *Node) startLibrary(config *remote.Config, kinds Kinds) error {
	var list []*pcluster.Kind
	for name, props := range kinds {
		list = append(list, pcluster.NewKind(name, props))
	}
	c := pcluster.Configure(n.options.Name, n.topology, n.lookup, config, pcluster.WithKinds(list...))
	c.GossipInterval = 24 * time.Hour // the library's own gossip stays off
	n.cluster = pcluster.New(n.system, c)
	failed := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				failed <- fmt.Errorf("cluster.actor_listen: %v", r)
			}
		}()
		n.cluster.StartMember()
	}()
	select {
	case <-n.topology.ready:
		return nil
	case err := <-failed:
		return err
	case <-time.After(startTimeout):
		return errors.New("cluster: the actor library did not start in time")
	}
}

func newSystem(log *slog.Logger) *actor.ActorSystem {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet(log) }),
		actor.WithDeadLetterRequestLogging(false))
	// Ids of actors and futures count up from the present time, so that no reply to an earlier process at the same
	// address reaches them.
	system.ProcessRegistry.SequenceID = uint64(time.Now().UnixNano())
	return system
}

// alone makes this process the only member.
func (n *Node) alone() {
	o := n.options
	n.meta = gossip.NodeMeta{Session: uuid.New(), Node: o.Node, Name: o.Host, Actors: n.system.Address(),
		Version: o.Version, Wire: o.Wire, Started: time.Now().UnixMilli()}
	n.serving.Store(true)
	n.lookup.see(viewInputs{self: n.meta, away: n.ineligible.why() != ""}.computeView())
}

// meet finds the others, writes the first heartbeat, and starts the loops.
func (n *Node) meet(ctx context.Context) error {
	o, name := n.options, n.options.Host
	if n.peers.Identity != nil { // the others know this node by its certificate
		name = n.peers.Identity.Name()
	}
	id, err := n.peers.Book.Identity(ctx)
	if err != nil {
		return fmt.Errorf("cluster: read the ledger's identity: %w", err)
	}
	n.meta = gossip.NodeMeta{Session: uuid.New(), Node: o.Node, Ledger: id, Name: name,
		Actors: n.system.Address(), Version: o.Version, Wire: o.Wire, Started: time.Now().UnixMilli()}
	n.links = newLinks(n.system, n.times, n.heartbeats.generation, n.loops.wake)
	n.startAnswering()
	options := n.peers.Gossip
	options.Self, options.Registerer = n.meta, o.Registerer
	if n.gossip, err = gossip.Start(options); err != nil {
		return err
	}
	if err := n.greet(ctx); err != nil {
		return errors.Join(err, n.gossip.Stop())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.loops.cancel = cancel
	n.loops.running.Go(func() { n.heartbeats.run(running, n.loops.again) })
	n.loops.running.Go(func() { n.watch(running) })
	return nil
}

// greet writes the first heartbeat when all members that gossip sees have answered.
func (n *Node) greet(ctx context.Context) error {
	roll, err := n.peers.Book.ReadNodes(ctx)
	if err != nil {
		return fmt.Errorf("cluster: read the members: %w", err)
	}
	n.heartbeats.snapshot.Store(&roll)
	n.heartbeats.applied = roll.Generation // it uses nothing yet
	deadline := time.Now().Add(n.times.Meet)
	for n.refreshView(); !n.met() && time.Now().Before(deadline); n.refreshView() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.loops.again:
		case <-time.After(n.times.Soon):
		}
	}
	if err := n.heartbeats.writeHeartbeat(ctx); err != nil {
		return fmt.Errorf("cluster: write the first heartbeat to the ledger: %w", err)
	}
	return nil
}

// met reports whether every member that gossip and ledger know has answered.
func (n *Node) met() bool {
	for _, m := range n.gossip.Members() {
		if m.Session != n.meta.Session && !n.links.linked(m.Session) && sessionIn(n.Snapshot(), m.Session) != nil {
			return false
		}
	}
	return true
}

// watch asks the members regularly whether they answer, and acts when gossip changes.
func (n *Node) watch(ctx context.Context) {
	ticker := time.Tick(n.times.LinkEvery)
	for {
		members := n.gossip.Members()
		n.seen.note(members, n.meta)
		n.links.ask(members, n.meta.Session)
		if n.peers.Identity != nil {
			n.peers.Identity.Expires() // loads a renewed certificate, and warns before the old one ends
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		case <-n.gossip.Displaced():
			n.loops.fail(ErrDisplaced)
			return
		case <-n.gossip.Changed():
			n.topology.closeGone(n.gossip.Members(), n.meta.Session)
			n.loops.wake()
		}
	}
}

func (n *Node) refreshView() {
	members := n.gossip.Members()
	n.seen.note(members, n.meta)
	n.links.ask(members, n.meta.Session)
	next := viewInputs{self: n.meta, members: members, linked: n.links.linked, snapshot: *n.Snapshot(),
		away: n.Draining() || n.ineligible.why() != ""}.computeView()
	if !slices.Equal(next.members, n.lookup.view.Load().members) {
		n.metrics.views.Inc()
		n.lookup.see(next)
	}
}

// Failed delivers an error for which this process must stop: ErrDisplaced, or the ledger's ErrOtherCluster.
func (n *Node) Failed() <-chan error { return n.loops.failures }

// System is the actor system of this node.
func (n *Node) System() *actor.ActorSystem { return n.system }

// Resolve finds the virtual actor of an identity, and activates it on its owner if needed. It waits up to a second,
// so it must not be called from a mailbox. If it returns nil, ask again after a pause.
func (n *Node) Resolve(kind, identity string) *actor.PID {
	return n.cluster.Get(identity, kind)
}

// Share returns the fraction part/of that this process may use of what belongs to a key.
func (n *Node) Share(key string) (part, of int) {
	switch {
	case n.peers == nil:
		return 1, 1
	case n.heartbeats.fence.up():
		return 0, 1
	}
	return n.heartbeats.shares.Load().Of(key)
}

// Fenced reports whether this process may use nothing shared, because it has not reached the ledger for too long.
func (n *Node) Fenced() bool { return n.peers != nil && n.heartbeats.fence.up() }

// Late reports whether no RCPT may be sent now, because it might still be on its way when the fence goes up. The next
// good heartbeat ends this. See Times.Unacknowledged.
func (n *Node) Late() bool { return n.peers != nil && n.heartbeats.fence.near() }

// Stop leaves the cluster. The virtual actors of this node end, the ledger and the members learn that the node
// leaves, and its ports close. It may be called twice.
func (n *Node) Stop(ctx context.Context) error {
	var err error
	n.stop.Do(func() {
		if n.peers != nil {
			n.drains.stopping.Store(true)
			err = n.leave(ctx)
		} else {
			err = n.endSessions(ctx)
		}
		n.lookup.Shutdown()
		n.cluster.Shutdown(false) // "graceful" would sleep for two seconds
	})
	return err
}

// leave stops all use of receivers by this process, and then announces that it leaves.
func (n *Node) leave(ctx context.Context) error {
	n.loops.cancel()
	n.loops.running.Wait()
	if err := n.gossip.Drain(true); err != nil {
		n.log.Warn("could not gossip drain state", "err", err)
	}
	n.refreshView() // an empty view: the placement ends all actors here
	err := n.endSessions(ctx)
	if err == nil {
		err = n.heartbeats.writeLeave(ctx)
	}
	within, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	if err := n.gossip.Leave(within); err != nil {
		n.log.Warn("could not gossip that this node leaves; the others read it in the ledger, or find it lost", "err", err)
	}
	return errors.Join(err, n.gossip.Stop())
}

// endSessions returns when the receivers here have ended their SMTP sessions.
func (n *Node) endSessions(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	if err := n.options.ApplyShares(within, func(string) (k, n int) { return 0, 1 }); err != nil {
		return fmt.Errorf("cluster: receivers did not end in time: %w", err)
	}
	return nil
}
