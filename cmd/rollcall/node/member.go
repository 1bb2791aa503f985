package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/dispatcher"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver"
	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// workload is what this node has in work: what it tells the cluster and operators.
type workload struct {
	receivers  *receiver.Registry
	dispatcher atomic.Pointer[dispatcher.Dispatcher] // nil until it runs: it is the last to start
	left       atomic.Int64                          // addresses in work that are not settled
}

// load is what this node has in work.
func (w *workload) load() cluster.Load {
	l := cluster.Load{Addresses: w.left.Load(), Receivers: w.receivers.Count()}
	if d := w.dispatcher.Load(); d != nil {
		l.Leases = d.Leases()
	}
	return l
}

// lookup says what the open addresses of a verification wait for that this node works on.
func (w *workload) lookup(id uuid.UUID) (inspect.Verification, bool) {
	if d := w.dispatcher.Load(); d != nil {
		return d.Lookup(id)
	}
	return inspect.Verification{}, false
}

// newMember makes the node of the cluster that this process will be: of a cluster of one when the ledger is embedded.
func (n *Node) newMember(c config.Config, id uuid.UUID, o engineOptions) error {
	host, err := nodeName(c)
	if err != nil {
		return err
	}
	n.work = &workload{receivers: receiver.NewRegistry()}
	options := cluster.Options{Name: c.Cluster.Name, Node: id, Host: host, Wire: wire.Version,
		Version: VersionOf(debug.ReadBuildInfo()).Version, Log: o.log, Registerer: o.registry,
		Comply: n.work.receivers.ApplyShares, Silent: n.work.receivers.Silent, Load: n.work.load, Prepare: o.guard.Install}
	if n.Book.Embedded() {
		n.work.receivers.Alone()
	} else {
		if options.Peers, err = peersOf(c, n.Book, o.log); err != nil {
			return err
		}
		if options.Peers.Identity != nil {
			options.Peers.Identity.Register(o.registry)
		}
	}
	n.Cluster, err = cluster.New(options)
	return err
}

// clock is the time of the ledger, as far as heartbeats tell.
func (n *Node) clock() time.Time { return time.Now().Add(n.Cluster.ClockOffset()) }

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
