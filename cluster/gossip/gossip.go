package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// protocol is the version of the gossip protocol that all members speak: the library's default.
const protocol = memberlist.ProtocolVersion2Compatible

// leaveMax bounds how long Leave and Drain wait until one member has received the message. Guess: ten times what
// gossip takes on a good network.
const leaveMax = 2 * time.Second

// Gossip is this process's membership. Safe for concurrent use.
type Gossip struct {
	self     NodeMeta // as given to Start
	delegate *delegate
	timing   Timing
	seeds    []string
	log      *slog.Logger
	limiter  *logLimiter
	meters   *meters
	filter   *packetFilter
	table    *table
	list     *memberlist.Memberlist
	address  string // of gossip, as others reach it

	signal    chan struct{} // something may have changed
	changed   chan struct{}
	displaced chan Member

	stopJoins context.CancelFunc
	stop      context.CancelFunc // ends all loops
	loops     sync.WaitGroup

	mu      sync.Mutex // serializes Leave and Stop
	left    bool       // guarded by mu
	stopped bool       // guarded by mu
}

// Start begins to listen and joins. It returns ErrRefused if it reached members and all of them refused this node. If
// it reached none, it goes on alone and tries again every Timing.RejoinEvery. It takes up to 5 s to resolve names,
// and then up to Timing.StreamTimeout for addresses that don't answer.
func Start(o Options) (*Gossip, error) {
	if err := o.Self.Validate(); err != nil {
		return nil, fmt.Errorf("gossip: this node: %w", err)
	}
	g := &Gossip{self: o.Self, delegate: &delegate{meta: o.Self}, timing: o.Timing, seeds: o.Join, log: o.Log,
		limiter: newLogLimiter(o.Log), signal: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		displaced: make(chan Member, 1)}
	g.table = newTable(g.kick)
	g.meters = newMeters(o.Registerer, g.table)
	if err := g.listen(o); err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	joins, stopJoins := context.WithCancel(ctx)
	g.stop, g.stopJoins = stop, stopJoins
	if err := g.join(joins); errors.Is(err, ErrRefused) {
		return nil, errors.Join(fmt.Errorf("gossip: join: %w", err), g.Stop())
	} else if err != nil {
		g.sayAlone(err)
	}
	g.loops.Go(func() { g.announce(ctx) })
	g.loops.Go(func() { g.rejoin(joins) })
	return g, nil
}

// listen opens the transport and starts the library on it.
func (g *Gossip) listen(o Options) error {
	c := g.configure(o)
	transport := o.Transport
	if transport == nil {
		sockets, err := openSockets(o, c)
		if err != nil {
			return err
		}
		transport = sockets
	}
	g.filter = &packetFilter{NodeAwareTransport: transport, networks: o.Networks, meters: g.meters, limiter: g.limiter,
		inspect: inspector{label: o.Cluster, keys: o.Keys}}
	ip, port, err := transport.FinalAdvertiseAddr(c.AdvertiseAddr, c.AdvertisePort)
	if err == nil && !g.filter.allowed(netAddress(ip, port)) { // all members would refuse it; our library would crash
		err = fmt.Errorf("this node's own address %s is in no network of cluster.allow_networks: add one", ip)
	}
	if err != nil {
		return errors.Join(err, transport.Shutdown())
	}
	g.address = netAddress(ip, port).String()
	g.filter.start()
	c.Transport = g.filter
	if g.list, err = memberlist.Create(c); err != nil {
		return errors.Join(err, g.filter.Shutdown())
	}
	return nil
}

func netAddress(ip net.IP, port int) net.Addr { return &net.TCPAddr{IP: ip, Port: port} }

func (g *Gossip) configure(o Options) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = g.self.Session.String()
	c.Label = o.Cluster
	c.ProtocolVersion = protocol
	c.Logger = log.New(library{o.Log, g.limiter, func(session string) { g.table.mark(session, true) }}, "", 0)
	c.ProbeInterval, c.ProbeTimeout = o.Timing.ProbeInterval, o.Timing.ProbeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = o.Timing.SuspicionMult, o.Timing.SuspicionMaxTimeoutMult
	c.GossipInterval, c.GossipNodes = o.Timing.GossipInterval, o.Timing.GossipNodes
	c.PushPullInterval, c.GossipToTheDeadTime = o.Timing.PushPullInterval, o.Timing.DeadTime
	c.TCPTimeout = o.Timing.StreamTimeout
	c.EnableCompression = false // see kindPing
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	if o.Keys != nil {
		c.Keyring = o.Keys.library
	}
	// This checks the addresses that members claim; the guard checks where messages come from.
	for _, n := range o.Networks {
		n = n.Masked()
		c.CIDRsAllowed = append(c.CIDRsAllowed, net.IPNet{IP: n.Addr().AsSlice(),
			Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())})
	}
	c.AdvertiseAddr, c.AdvertisePort = "", 0
	c.Delegate, c.Events, c.Alive, c.Merge, c.Ping = g.delegate, events{g}, events{g}, events{g}, pings{g}
	return c
}

// openSockets opens the sockets that o describes and completes c.
func openSockets(o Options, c *memberlist.Config) (*memberlist.NetTransport, error) {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, err
	}
	bind := "" // all interfaces
	if host != "" {
		ip, err := resolveOne(host)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", host, err)
		}
		bind = ip.String()
	}
	if c.BindPort, err = net.LookupPort("udp", port); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	t, err := listenOn(bind, c)
	if err != nil {
		return nil, err
	}
	c.BindPort = t.GetAutoBindPort()
	c.BindAddr = bind
	advertise := host
	if o.Advertise != "" {
		advertise = o.Advertise
	}
	ip, err := resolveOne(advertise)
	if err == nil && ip.IsUnspecified() {
		err = errors.New("it is not the address of one host")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("advertise %s: %w", advertise, err), t.Shutdown())
	}
	c.AdvertiseAddr, c.AdvertisePort = ip.String(), c.BindPort
	return t, nil
}

// listenTries bounds how often Start looks for a port that is free for both packets and streams. The library's
// number.
const listenTries = 10

func listenOn(bind string, c *memberlist.Config) (t *memberlist.NetTransport, err error) {
	tries := 1
	if c.BindPort == 0 {
		tries = listenTries
	}
	for range tries {
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{bind},
			BindPort: c.BindPort, Logger: c.Logger})
		if err == nil {
			return t, nil
		}
	}
	return nil, err
}

// resolveOne returns one address of a host, IPv4 if it has one.
func resolveOne(host string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, ip := range all {
		if ip.Unmap().Is4() {
			return ip.Unmap(), nil
		}
	}
	return all[0], nil
}

// Members returns the sessions that are alive or suspect, sorted, with self until Leave. Of several sessions of one
// node or actor address it returns only the youngest. So self is missing when a younger process has taken its place
// (see Displaced).
func (g *Gossip) Members() []Member {
	members, _ := g.table.view(g.self.Session)
	return members
}

// Changed delivers a value a moment after Members or their metadata changed. The channel holds one value.
func (g *Gossip) Changed() <-chan struct{} { return g.changed }

// Displaced delivers, at most once, the younger process that has taken the place of this one. That process has the
// same node identity or actor address, and has been seen for longer than a dead process would be. The cause is a
// copied data folder, node identity or advertised address; this process should stop.
func (g *Gossip) Displaced() <-chan Member { return g.displaced }

// Address returns the host:port at which others reach this node's gossip.
func (g *Gossip) Address() string { return g.address }

// Drain tells all members whether this process is draining. It waits, at most leaveMax, until one member has received
// the message. After an error perhaps no member has it yet; gossip goes on to spread it. Errors: ErrStopped.
func (g *Gossip) Drain(draining bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left || g.stopped {
		return ErrStopped
	}
	if !g.delegate.setDraining(draining) {
		return nil
	}
	if err := g.list.UpdateNode(leaveMax); err != nil {
		return fmt.Errorf("gossip: announce whether this node drains: %w", err)
	}
	return nil
}

// Leave tells all members that this process leaves, so that they need not find out. It returns when one member has
// the message, when ctx ends, or after leaveMax. Stop must follow. A second call, or one after Stop, does nothing.
func (g *Gossip) Leave(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left || g.stopped {
		return nil
	}
	g.left = true
	g.stopJoins()
	wait := leaveMax
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	if ctx.Err() != nil {
		wait = 0
	}
	if err := g.list.Leave(max(wait, time.Millisecond)); err != nil {
		return fmt.Errorf("gossip: leave: %w", err)
	}
	return nil
}

// Stop closes all sockets. Without Leave the others find out by themselves. A second call does nothing.
func (g *Gossip) Stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return nil
	}
	g.stopped = true
	g.stop()
	err := g.list.Shutdown()
	g.loops.Wait()
	if err != nil {
		return fmt.Errorf("gossip: stop: %w", err)
	}
	return nil
}

// kick signals that something may have changed; it never blocks.
func (g *Gossip) kick() {
	select {
	case g.signal <- struct{}{}:
	default:
	}
}

// announce signals changes after a quiet moment, and notices when this process has been displaced.
func (g *Gossip) announce(ctx context.Context) {
	known := map[uuid.UUID]Member{}
	check := time.Tick(g.timing.RejoinEvery)
	var hiddenSince time.Time
	told := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.signal:
			if !g.settle(ctx) {
				return
			}
			known = g.logMembers(known)
			select {
			case g.changed <- struct{}{}:
			default:
			}
		case <-check:
		}
		switch _, by := g.table.view(g.self.Session); {
		case by == nil:
			hiddenSince = time.Time{}
		case hiddenSince.IsZero():
			hiddenSince = time.Now()
		case !told && time.Since(hiddenSince) >= g.displacedAfter():
			told = true
			g.displaced <- *by // has room: it is sent once
		}
	}
}

// displacedAfter is how long a younger process must hide this one before this one stops. It is twice as long as a
// dead process stays a member, so neither a wrong clock nor an old message ends this process.
func (g *Gossip) displacedAfter() time.Duration {
	return 2 * time.Duration(g.timing.SuspicionMult*g.timing.SuspicionMaxTimeoutMult) * g.timing.ProbeInterval
}

// settle waits until nothing has changed for Debounce. It waits at most DebounceMax.
func (g *Gossip) settle(ctx context.Context) bool {
	most, quiet := time.NewTimer(g.timing.DebounceMax), time.NewTimer(g.timing.Debounce)
	defer most.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-g.signal:
			quiet.Reset(g.timing.Debounce)
		case <-quiet.C:
			return true
		case <-most.C:
			return true
		}
	}
}

// logMembers logs who joined and left since the last call and returns the present members.
func (g *Gossip) logMembers(known map[uuid.UUID]Member) map[uuid.UUID]Member {
	present := map[uuid.UUID]Member{}
	for _, m := range g.Members() {
		present[m.Session] = m
		if _, ok := known[m.Session]; !ok && m.Session != g.self.Session {
			g.log.Info("member joined", "node", m.Node, "name", m.Name, "session", m.Session, "address", m.Address,
				"version", m.Version)
		}
	}
	for _, m := range known {
		if _, ok := present[m.Session]; !ok {
			g.log.Info("member gone", "node", m.Node, "name", m.Name, "session", m.Session, "address", m.Address)
		}
	}
	return present
}

// delegate gives the library this node's metadata; it has no messages.
type delegate struct {
	mu   sync.Mutex // a lock of its own: the library asks for the metadata while it holds the library's lock
	meta NodeMeta
}

// setDraining reports whether the value changed.
func (d *delegate) setDraining(draining bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.meta.Draining
	d.meta.Draining = draining
	return was != draining
}

func (d *delegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta.encode()
}

func (*delegate) NotifyMsg([]byte) {}

func (*delegate) GetBroadcasts(int, int) [][]byte { return nil }

func (*delegate) LocalState(bool) []byte { return nil }

func (*delegate) MergeRemoteState([]byte, bool) {}

// pings receives the library's calls about answered pings.
type pings struct{ g *Gossip }

func (pings) AckPayload() []byte { return nil }

func (p pings) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	p.g.table.mark(n.Name, false)
}
