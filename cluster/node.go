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
	"rollcall/cluster/share"
	"rollcall/ledger"
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

	answers Answer
	queries queries // those that are being answered for others

	peers      *Peers // nil: a cluster of one; then nothing below is used
	meta       gossip.NodeMeta
	gossip     *gossip.Gossip
	links      *links
	heartbeats *heartbeats

	seen       atomic.Pointer[seen]
	shares     atomic.Pointer[share.Table]
	rested     atomic.Bool                         // nothing is used, or will be before the next good heartbeat
	snapshot   atomic.Pointer[ledger.NodeSnapshot] // the newest
	offset     atomic.Int64                        // of the ledger's clock from ours, in nanoseconds
	wished     atomic.Bool                         // an operator wants this node to drain
	stopping   atomic.Bool                         // it gives everything away and ends
	ineligible ineligible
	searching  atomic.Bool         // those that are lost are being looked after
	telling    sync.Mutex          // orders what is told of wished
	onDrain    func(draining bool) // guarded by telling; tells the rest of the process
	again      chan struct{}
	failures   chan error
	cancel     context.CancelFunc
	running    sync.WaitGroup
	stop       sync.Once
}

const (
	// startTimeout bounds how long the library may take to start, and then the ledger
	// for the first heartbeat. Guess.
	startTimeout = 10 * time.Second

	// giveWayWithin bounds how long a node that stops waits for its receivers to end
	// their SMTP sessions, and leaveWithin each of its last words.
	giveWayWithin = 6 * time.Second
	leaveWithin   = 3 * time.Second

	// silenceWithin bounds how long a node that stops waits for receivers to hear that its
	// sessions have ended: those that have not are left alone by all for minutes.
	silenceWithin = time.Second
)

// New makes a node that is no member yet: nothing listens, and what is asked of it is
// answered as for a node that knows nothing. Parts of the process that need it can be made
// before Serve.
func New(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := &Node{options: o, log: o.Log, peers: o.Peers, times: o.times(),
		lookup: &lookup{view: newCurrent()}, topology: newTopology(), queries: make(queries, queriesMax),
		again: make(chan struct{}, 1), failures: make(chan error, 1)}
	n.heartbeats = newHeartbeats(n)
	n.metrics = newMetrics(o.Registerer, n)
	n.lookup.metrics = n.metrics
	n.system = newSystem(o.Log)
	if o.Prepare != nil {
		o.Prepare(n.system)
	}
	return n, nil
}

// Serve makes this process a member that hosts these kinds and answers queries (nil: none),
// and returns when it knows who the members are. ErrRefused when the members that it should
// join do not take it. It is called once.
func (n *Node) Serve(ctx context.Context, kinds Kinds, answer Answer) error {
	if len(kinds) == 0 {
		return errors.New("cluster: no kinds")
	}
	n.answers = answer
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

// remote says how actor traffic goes. A cluster of one hears nobody.
func (n *Node) remote() (*remote.Config, error) {
	guard := &secure.Guard{Admit: n.admit, NameOf: n.nameOf, Metrics: n.metrics.secure, Log: n.log,
		Local: func() string { return n.system.Address() }}
	if n.peers == nil {
		guard.Times = secure.DefaultTimes()
		guard.Times.Admit = time.Millisecond // nobody is to come
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
	return secure.Remote(host, port, secure.RemoteOptions{Identity: n.peers.Identity,
		Advertise: advertised, Guard: guard})
}

// admit reports whether a member has this name, as its certificate says it. Without
// TLS, which is on loopback only, nobody has.
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

// nameOf says which member has an address of actor traffic.
func (n *Node) nameOf(address string) (name string, ok bool) {
	if seen := n.seen.Load(); seen != nil {
		name, ok = seen.at[address]
	}
	return name, ok
}

// seen is whom gossip sees.
type seen struct {
	names map[string]bool
	at    map[string]string // name by actor address
}

// see notes whom gossip sees.
func (n *Node) see(members []gossip.Member) {
	s := &seen{names: map[string]bool{n.meta.Name: true}, at: map[string]string{n.meta.Actors: n.meta.Name}}
	for _, m := range members {
		s.names[m.Name] = true
		s.at[m.Actors] = m.Name
	}
	n.seen.Store(s)
}

// startLibrary starts the library's member in a goroutine of its own: it reports
// errors by panicking and sleeps for a second when all is done.
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
	system := actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet(log) }),
		actor.WithDeadLetterRequestLogging(false))
	// Actor and future ids count up from here, so that replies meant for an
	// earlier process on the same address do not fit.
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

// meet finds the others, says to the ledger that we live, and begins to beat.
func (n *Node) meet(ctx context.Context) error {
	o, name := n.options, n.options.Host
	if n.peers.Identity != nil { // the others know it by its certificate
		name = n.peers.Identity.Name()
	}
	id, err := n.peers.Book.Identity(ctx)
	if err != nil {
		return fmt.Errorf("cluster: read the ledger's identity: %w", err)
	}
	n.meta = gossip.NodeMeta{Session: uuid.New(), Node: o.Node, Ledger: id, Name: name,
		Actors: n.system.Address(), Version: o.Version, Wire: o.Wire, Started: time.Now().UnixMilli()}
	n.links = newLinks(n.system, n.times, n.turn, n.wake)
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
	n.cancel = cancel
	n.running.Go(func() { n.heartbeats.run(running, n.again) })
	n.running.Go(func() { n.watch(running) })
	return nil
}

// greet makes the first heartbeat, when those that gossip sees have answered.
func (n *Node) greet(ctx context.Context) error {
	roll, err := n.peers.Book.ReadNodes(ctx)
	if err != nil {
		return fmt.Errorf("cluster: read who is here: %w", err)
	}
	n.snapshot.Store(&roll)
	n.heartbeats.complied = roll.Generation // it uses nothing yet
	deadline := time.Now().Add(n.times.Meet)
	for n.refreshView(); !n.met() && time.Now().Before(deadline); n.refreshView() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.again:
		case <-time.After(n.times.Soon):
		}
	}
	if err := n.heartbeats.writeHeartbeat(ctx); err != nil {
		return fmt.Errorf("cluster: tell the ledger that this node is here: %w", err)
	}
	return nil
}

// met reports whether every member that gossip and ledger know has answered.
func (n *Node) met() bool {
	for _, m := range n.gossip.Members() {
		if m.Session != n.meta.Session && !n.links.linked(m.Session) && sessionIn(n.snapshot.Load(), m.Session) != nil {
			return false
		}
	}
	return true
}

// watch asks the members whether they answer, and looks whenever gossip changes.
func (n *Node) watch(ctx context.Context) {
	ticker := time.NewTicker(n.times.LinkEvery)
	defer ticker.Stop()
	for {
		members := n.gossip.Members()
		n.see(members)
		n.links.ask(members, n.meta.Session)
		if n.peers.Identity != nil {
			n.peers.Identity.Expires() // looks whether there is a new certificate, and warns in time
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-n.gossip.Displaced():
			n.fail(ErrDisplaced)
			return
		case <-n.gossip.Changed():
			n.topology.tell(n.gossip.Members(), n.meta.Session)
			n.wake()
		}
	}
}

// refreshView makes the view of now the current one.
func (n *Node) refreshView() {
	members := n.gossip.Members()
	n.see(members)
	n.links.ask(members, n.meta.Session)
	next := viewInputs{self: n.meta, members: members, linked: n.links.linked, snapshot: *n.snapshot.Load(),
		away: n.Draining() || n.ineligible.why() != ""}.computeView()
	if !slices.Equal(next.members, n.lookup.view.Load().members) {
		n.metrics.views.Inc()
		n.lookup.see(next)
	}
}

// wake makes the next heartbeat come at once.
func (n *Node) wake() {
	select {
	case n.again <- struct{}{}:
	default:
	}
}

// fail ends the process's membership with an error that Failed gives.
func (n *Node) fail(err error) {
	select {
	case n.failures <- err:
	default:
	}
}

// Failed returns the error for which this process must stop, if there is one ever:
// ErrDisplaced, or the ledger's ErrOtherCluster.
func (n *Node) Failed() <-chan error { return n.failures }

// System is the actor system to spawn in.
func (n *Node) System() *actor.ActorSystem { return n.system }

// Resolve finds the living virtual actor of an identity, activating it where it
// belongs. It waits up to a second, so it must not be called from a mailbox. Nil
// means "not now": ask again after a pause.
func (n *Node) Resolve(kind, identity string) *actor.PID {
	return n.cluster.Get(identity, kind)
}

// Share says that this process may use so many parts of what belongs to a key, of so many.
func (n *Node) Share(key string) (part, of int) {
	switch {
	case n.peers == nil:
		return 1, 1
	case n.heartbeats.fence.up():
		return 0, 1
	}
	return n.shares.Load().Of(key)
}

// Fenced says that this process may use nothing that is shared: it has not reached
// the ledger for too long.
func (n *Node) Fenced() bool { return n.peers != nil && n.heartbeats.fence.up() }

// Late says that no RCPT may be sent now, because it might still be on its way in this machine
// when the fence goes up: the next heartbeat decides. See Times.Unacknowledged.
func (n *Node) Late() bool { return n.peers != nil && n.heartbeats.fence.near() }

// OnDrain sets what to do when an operator wants this node to drain, and when the wish is taken back. A wish from
// before the call counts too. The function may be called twice with the same value.
func (n *Node) OnDrain(do func(draining bool)) {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.onDrain = do
	if n.wished.Load() {
		do(true)
	}
}

// wish moves what lives here to the other members, or has this node take work again.
// Twice is fine. A node that stops is not called back by it.
func (n *Node) wish(drain bool) {
	n.telling.Lock()
	defer n.telling.Unlock()
	if n.wished.Swap(drain) == drain {
		return
	}
	if n.onDrain != nil {
		n.onDrain(drain)
	}
	if n.peers == nil {
		return
	}
	if err := n.gossip.Drain(n.Draining()); err != nil {
		n.log.Warn("could not gossip drain state", "err", err)
	}
	n.wake()
}

// Stop gives way to the others: its virtual actors end, the ledger and the members
// learn that it leaves, and its ports close. Twice is fine.
func (n *Node) Stop(ctx context.Context) error {
	var err error
	n.stop.Do(func() {
		if n.peers != nil {
			n.stopping.Store(true)
			err = n.leave(ctx)
		} else {
			err = n.endSessions(ctx)
		}
		n.lookup.Shutdown()
		n.cluster.Shutdown(false) // "graceful" would sleep for two seconds
	})
	return err
}

// leave makes this process use nothing and then says so.
func (n *Node) leave(ctx context.Context) error {
	n.cancel()
	n.running.Wait()
	var errs []error
	if err := n.gossip.Drain(true); err != nil {
		errs = append(errs, err)
	}
	n.refreshView() // an empty view: the placement ends what lives here
	if err := n.endSessions(ctx); err != nil {
		errs = append(errs, err)
	} else if err := n.writeLeave(ctx); err != nil {
		errs = append(errs, err)
	}
	within, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	errs = append(errs, n.gossip.Leave(within), n.gossip.Stop())
	return errors.Join(errs...)
}

// endSessions returns when the receivers here have ended their SMTP sessions.
func (n *Node) endSessions(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, giveWayWithin)
	defer cancel()
	if err := n.options.Comply(within, func(string) (k, n int) { return 0, 1 }); err != nil {
		return fmt.Errorf("cluster: receivers did not end in time: %w", err)
	}
	return nil
}

// writeLeave tells the ledger that this process uses nothing any more, and which receivers may
// not know it.
func (n *Node) writeLeave(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, silenceWithin)
	defer cancel()
	silent, _ := n.silence()
	for ; len(silent) > 0 && within.Err() == nil; silent, _ = n.silence() {
		select {
		case <-within.Done():
		case <-time.After(silenceWithin / 20):
		}
	}
	within, cancel = context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	if len(silent) > 0 && !n.heartbeats.fence.up() {
		if _, err := n.peers.Book.WriteHeartbeat(within, n.heartbeatOf(n.heartbeats.voted, n.heartbeats.told,
			silent)); err != nil {
			return fmt.Errorf("cluster: the ledger did not hear which receivers are silent: %w", err)
		}
	}
	if err := n.peers.Book.Leave(within, n.meta.Session); err != nil {
		return fmt.Errorf("cluster: the ledger did not hear that this node leaves: %w", err)
	}
	return nil
}
