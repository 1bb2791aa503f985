package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/dispatcher"
	"rollcall/actors/edge"
	"rollcall/actors/guard"
	"rollcall/actors/receiver"
	"rollcall/actors/receiver/state"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// membership is what the parts of a node ask the cluster; the parts are made
// before it, because it hosts them.
type membership struct {
	node   atomic.Pointer[cluster.Node]
	work   atomic.Pointer[dispatcher.Dispatcher]
	living *receiver.Registry
	left   atomic.Int64 // addresses in work that are not settled
}

// fenced says that this process may not speak to receivers now.
func (m *membership) fenced() bool {
	n := m.node.Load()
	return n == nil || n.Fenced()
}

// late says that what is sent to receivers now might be on its way for too long.
func (m *membership) late() bool {
	n := m.node.Load()
	return n == nil || n.Late()
}

// load is what this node has in work.
func (m *membership) load() cluster.Load {
	l := cluster.Load{Addresses: m.left.Load(), Receivers: m.living.Count()}
	if w := m.work.Load(); w != nil {
		l.Leases = w.Leases()
	}
	return l
}

// lookup says what the open addresses of a verification wait for that this node works on.
func (m *membership) lookup(id uuid.UUID) (view.Verification, bool) {
	if w := m.work.Load(); w != nil {
		return w.Lookup(id)
	}
	return view.Verification{}, false
}

// ahead says whether this node has clearly more in work than another one.
func (m *membership) ahead(leases int, addresses int64) bool {
	n := m.node.Load()
	return n != nil && n.Ahead(leases, addresses)
}

// memberOptions is what the cluster needs to know of this node.
type memberOptions struct {
	id       uuid.UUID
	kinds    cluster.Kinds
	registry *prometheus.Registry
	log      *slog.Logger
	unfit    string // why this node must not probe yet; "": it may
	answer   func(ctx context.Context, question []byte) ([]byte, error)
	guard    *guard.Guard
}

// startMember makes this process a member: of a cluster of one when the ledger is
// embedded.
func (m *membership) start(ctx context.Context, c config.Config, book *sqlstore.Store, o memberOptions) (
	*cluster.Node, error) {
	host, err := nodeName(c)
	if err != nil {
		return nil, err
	}
	options := cluster.Options{Name: c.Cluster.Name, Node: o.id, Host: host, Kinds: o.kinds, Wire: wire.Version,
		Version: VersionOf(debug.ReadBuildInfo()).Version, Log: o.log, Registerer: o.registry,
		Comply: m.living.ApplyShares, Silent: m.living.Silent, Load: m.load, Unfit: o.unfit, Answer: o.answer,
		Prepare: o.guard.Install}
	if book.Embedded() {
		m.living.Alone()
	} else {
		if options.Peers, err = peersOf(c, book, o.log); err != nil {
			return nil, err
		}
		if options.Peers.Identity != nil {
			options.Peers.Identity.Register(o.registry)
		}
	}
	n, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	m.node.Store(n)
	return n, nil
}

// nodeName is what people call this node: configured, or its host's name.
func nodeName(c config.Config) (string, error) {
	if c.Cluster.Node != "" {
		return c.Cluster.Node, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cluster.node is not set and this host does not know its name: %w", err)
	}
	return name, nil
}

// peersOf is how a node of this configuration finds others.
func peersOf(c config.Config, book *sqlstore.Store, log *slog.Logger) (*cluster.Peers, error) {
	p := &cluster.Peers{Book: book, Actors: c.Cluster.ActorListen, Advertise: c.Cluster.Advertise,
		Gossip: gossip.Options{Cluster: c.Cluster.Name, Listen: c.Cluster.GossipListen,
			Advertise: c.Cluster.Advertise, Join: c.Cluster.Join, Timing: timingOf(c.Cluster.Gossip), Log: log}}
	for _, text := range c.Cluster.AllowNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("cluster.allow_networks: %w", err)
		}
		p.Gossip.Networks = append(p.Gossip.Networks, network)
	}
	var err error
	if c.Cluster.GossipKeyFile != "" {
		if p.Gossip.Keys, err = gossip.LoadKeyring(c.Cluster.GossipKeyFile); err != nil {
			return nil, fmt.Errorf("cluster.gossip_key_file: %w", err)
		}
	}
	if c.Cluster.TLSCAFile != "" {
		p.Identity, err = secure.Load(c.Cluster.TLSCAFile, c.Cluster.TLSCertFile, c.Cluster.TLSKeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("cluster.tls_*: %w", err)
		}
		if c.Cluster.Node != "" && c.Cluster.Node != p.Identity.Name() {
			return nil, fmt.Errorf("cluster.node is %q, the certificate in cluster.tls_cert_file is of %q: "+
				"leave cluster.node empty or make a certificate of that name", c.Cluster.Node, p.Identity.Name())
		}
	}
	return p, nil
}

// timingOf is how fast the gossip is.
func timingOf(g config.Gossip) gossip.Timing {
	t := gossip.DefaultTiming()
	t.ProbeInterval, t.ProbeTimeout = g.ProbeInterval.Duration, g.ProbeTimeout.Duration
	t.SuspicionMult, t.SuspicionMaxTimeoutMult = g.SuspicionMult, g.SuspicionMaxTimeoutMult
	t.GossipInterval = g.GossipInterval.Duration
	t.PushPullInterval = g.PushPullInterval.Duration
	return t
}

// edgeLimits are the limits of an API key, for all nodes together.
func edgeLimits(c config.Config) edge.Limits {
	return edge.Limits{
		Reads:     edge.Rate{PerSecond: float64(c.HTTP.ReadsPerSecond), Burst: c.HTTP.Burst},
		Creates:   edge.Rate{PerSecond: float64(c.HTTP.CreatesPerSecond), Burst: c.HTTP.CreatesBurst},
		Downloads: c.HTTP.DownloadsAtOnce,
	}
}

// part is the share of what only protects ourselves, such as the limits of API keys.
func (m *membership) part(key string) (part, of int) {
	if n := m.node.Load(); n != nil {
		return n.Part(key)
	}
	return 0, 1
}

// clock is the time of the ledger, as far as heartbeats tell.
func (m *membership) clock() time.Time {
	if n := m.node.Load(); n != nil {
		return time.Now().Add(n.ClockOffset())
	}
	return time.Now()
}

// clockOffset is the ledger's clock minus ours; false: no heartbeat has told yet.
func (m *membership) clockOffset() (time.Duration, bool) {
	if n := m.node.Load(); n != nil {
		return n.ClockOffset(), n.Roll() != nil
	}
	return 0, false
}

// receiverFacts keeps what receivers taught in the ledger.
type receiverFacts struct{ book ledger.Facts }

// Learn implements state.Facts.
func (f receiverFacts) Learn(ctx context.Context, facts []state.Fact) error {
	out := make([]ledger.Fact, len(facts))
	for i, k := range facts {
		out[i] = ledger.Fact(k)
	}
	return f.book.Learn(ctx, out)
}

// Known implements state.Facts.
func (f receiverFacts) Known(ctx context.Context, keys []string) ([]state.Fact, error) {
	facts, err := f.book.Known(ctx, keys)
	out := make([]state.Fact, len(facts))
	for i, k := range facts {
		out[i] = state.Fact(k)
	}
	return out, err
}

// kindsOf puts the virtual actors of a node together.
func kindsOf(receivers receiver.Options, limits edge.Options) (cluster.Kinds, error) {
	kinds, err := receiver.Kinds(receivers)
	if err != nil {
		return nil, err
	}
	keys, err := edge.Kinds(limits)
	if err != nil {
		return nil, err
	}
	maps.Copy(kinds, keys)
	return kinds, nil
}
