package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/ledger"
)

// Member is one process as gossip, actor traffic and ledger see it.
type Member struct {
	Meta       gossip.NodeMeta
	Row        *ledger.NodeRow // nil: the ledger has no row of it
	Seen       bool            // by gossip
	Suspect    bool            // gossip gets no answer from it
	Linked     bool            // it answers over actor traffic
	This       bool
	Since      time.Time // by gossip or by its row
	Gossip     string    // host:port of its gossip; "": not seen by it
	Agreed     bool      // it sees the same members as this node
	Ineligible bool      // it does not probe, see Node.SetIneligible
}

// Superseded reports whether a process has ended, uses nothing, and its node runs as a later process.
func (m Member) Superseded(all []Member) bool {
	if m.Row == nil || m.Row.Status == ledger.NodeIn || m.Row.Status == ledger.NodeLost && !m.Row.Dead {
		return false
	}
	return slices.ContainsFunc(all, func(o Member) bool {
		return o.Meta.Node == m.Meta.Node && o.Meta.Started > m.Meta.Started
	})
}

// Members returns the processes that gossip sees and those that the ledger knows.
func (n *Node) Members() []Member {
	if n.peers == nil {
		card := n.meta
		card.Draining = n.Draining()
		return []Member{{Meta: card, Seen: true, Linked: true, This: true, Agreed: true, Ineligible: n.ineligible.why() != "",
			Since: time.UnixMilli(n.meta.Started)}}
	}
	var out []Member
	index := map[uuid.UUID]int{}
	for _, m := range n.gossip.Members() {
		index[m.Session] = len(out)
		this := m.Session == n.meta.Session
		out = append(out, Member{Meta: m.NodeMeta, Seen: true, Suspect: m.Suspect, This: this,
			Linked: this || n.links.linked(m.Session), Since: m.Since, Gossip: m.Address})
	}
	rows := n.Snapshot().Nodes
	for i, row := range rows {
		at, known := index[row.Session]
		if !known {
			at = len(out)
			out = append(out, Member{Since: row.Since, Meta: gossip.NodeMeta{Session: row.Session, Node: row.Node,
				Name: row.Name, Actors: row.Actors, Version: row.Version, Draining: row.Draining,
				Started: row.Started.UnixMilli()}})
		}
		out[at].Row = &rows[i]
		out[at].Ineligible = row.Status == ledger.NodeIn && !row.Draining && !countsOnItself(row)
		out[at].Agreed = row.Status == ledger.NodeIn && slices.Equal(row.View, n.lookup.view.Load().members)
	}
	return out
}

// Snapshot is the newest snapshot of the nodes from the ledger; nil in a cluster of one.
func (n *Node) Snapshot() *ledger.NodeSnapshot { return n.heartbeats.snapshot.Load() }

// Load returns this node's present work.
func (n *Node) Load() Load { return n.options.Load() }

// Meta describes this process.
func (n *Node) Meta() gossip.NodeMeta { return n.meta }

// ClockOffset is the ledger's clock minus this node's, as measured by the last heartbeat.
func (n *Node) ClockOffset() time.Duration { return time.Duration(n.heartbeats.offset.Load()) }

// Forget records an operator's statement that a lost node is dead. Errors: ledger.ErrNoSuchNode, ledger.ErrNodeAlive.
func (n *Node) Forget(ctx context.Context, node uuid.UUID) error {
	if n.peers == nil {
		return fmt.Errorf("forget node: %w", ledger.ErrNoSuchNode)
	}
	return n.loops.wakeAfter("forget node", n.peers.Book.Forget(ctx, node, n.times.Lost))
}

// Ready returns why this node should get no requests now; nil if it should.
func (n *Node) Ready(context.Context) error {
	if n.Fenced() {
		return fmt.Errorf("cluster: the ledger took no heartbeat of this node for %s", n.times.Fence)
	}
	return nil
}

// A node is ahead if its work exceeds another node's by aheadBy. Work is the number of addresses, plus leaseWeight
// for each verification. Guesses: four small files are done in seconds, and a large one alone is enough.
const (
	leaseWeight = 500
	aheadBy     = 4 * leaseWeight
)

// Ahead reports whether this node, with this many leases and addresses, has clearly more work than some other node
// that takes work.
func (n *Node) Ahead(leases int, addresses int64) bool {
	roll := n.Snapshot()
	if roll == nil {
		return false
	}
	weight := addresses + int64(leases)*leaseWeight
	for _, row := range roll.Nodes {
		takes := row.Status == ledger.NodeIn && roll.Now.Sub(row.Seen) < n.times.Lost && !row.Draining
		if takes && row.Session != n.meta.Session && weight >= row.Addresses+int64(row.Leases)*leaseWeight+aheadBy {
			return true
		}
	}
	return false
}

// topology is the library's ClusterProvider. It only announces members that are gone, so that the library ends their
// connections. It never passes a list of members, because the library accesses its list of former members without a
// lock. Placement does not use topology.
type topology struct {
	ready     chan struct{} // closed when the library has started
	cluster   *pcluster.Cluster
	addresses map[uuid.UUID]string // of the members at the last call, by session
}

// StartMember implements the library's ClusterProvider.
func (t *topology) StartMember(c *pcluster.Cluster) error {
	t.cluster = c
	host, port, err := c.ActorSystem.GetHostPort()
	if err != nil {
		return err
	}
	c.MemberList.UpdateClusterTopology(pcluster.Members{{
		Id: c.ActorSystem.ID, Host: host, Port: int32(port), Kinds: c.GetClusterKinds(),
	}})
	close(t.ready)
	return nil
}

// StartClient implements the library's ClusterProvider; this program has no clients.
func (t *topology) StartClient(c *pcluster.Cluster) error { return t.StartMember(c) }

// Shutdown implements the library's ClusterProvider.
func (t *topology) Shutdown(bool) error { return nil }

// closeGone ends the connections to members that gossip no longer sees. Only one goroutine may call it.
func (t *topology) closeGone(members []gossip.Member, self uuid.UUID) {
	addresses := make(map[uuid.UUID]string, len(members))
	for _, m := range members {
		if m.Session != self {
			addresses[m.Session] = m.Actors
		}
	}
	for session, address := range t.addresses {
		if _, here := addresses[session]; !here {
			t.cluster.ActorSystem.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address})
		}
	}
	t.addresses = addresses
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// ineligible is why this process may not probe; "" while it may. Safe for concurrent use.
type ineligible struct{ text atomic.Pointer[string] }

func (u *ineligible) why() string {
	if p := u.text.Load(); p != nil {
		return *p
	}
	return ""
}

// SetIneligible sets why this node may not probe now; "": it may. An ineligible node keeps its leases, its links and
// its vote, and serves requests; it only leaves itself out of its view. So the other nodes own all receivers, and
// work waits while no node is eligible.
//
// That is safe whatever the others know. A view is a vote (cluster/README.md), and the shares of all votes never add
// up to more than the whole. Until every process has read the change, the vote counts for nobody. The others leave a
// node out of their views when the view in its row lacks the node itself.
func (n *Node) SetIneligible(why string) {
	if was := n.ineligible.text.Swap(&why); (was != nil && *was != "") == (why != "") {
		return
	}
	if n.peers != nil {
		n.loops.wake()
		return
	}
	if n.serving.Load() {
		n.lookup.see(viewInputs{self: n.meta, away: why != ""}.computeView())
	}
}

// countsOnItself reports whether the view that a process published contains the process itself.
func countsOnItself(row ledger.NodeRow) bool {
	return slices.ContainsFunc(row.View, func(p ledger.Incarnation) bool { return p.Session == row.Session })
}

type metrics struct {
	secure           *secure.Metrics
	views            prometheus.Counter
	heartbeatsFailed prometheus.Counter
}

func newMetrics(r prometheus.Registerer, n *Node) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_cluster_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		secure:           secure.NewMetrics(r),
		views:            counter("views_total", "Changes of the members that this node counts on."),
		heartbeatsFailed: counter("heartbeats_failed_total", "Heartbeats that were not written to the ledger."),
	}
	gauge := func(name, help string, value func() float64) {
		o := prometheus.GaugeOpts{Name: "rollcall_cluster_" + name, Help: help}
		r.MustRegister(prometheus.NewGaugeFunc(o, value))
	}
	gauge("view_members", "Members that this node counts on, itself included.", func() float64 {
		return float64(len(n.lookup.view.Load().members))
	})
	gauge("voters", "Processes that share the limits of receivers, by the ledger.", func() float64 {
		return float64(n.heartbeats.shares.Load().Voters())
	})
	gauge("settled", "1 when every process has read the newest change of members.", func() float64 {
		return truth(n.peers == nil || n.heartbeats.shares.Load().Settled())
	})
	gauge("fence_up", "1 while this node uses nothing, because its heartbeats are not written.",
		func() float64 { return truth(n.Fenced()) })
	gauge("clock_offset_seconds", "The ledger's clock minus this node's.", func() float64 {
		return float64(n.heartbeats.offset.Load()) / 1e9
	})
	gauge("nodes_lost", "Lost processes that may still have SMTP sessions.", func() float64 {
		return float64(n.heartbeats.lostCount())
	})
	return m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (b *heartbeats) lostCount() int {
	roll, count := b.snapshot.Load(), 0
	if roll == nil {
		return 0
	}
	for _, row := range roll.Nodes {
		if row.Status == ledger.NodeLost && !row.Dead && roll.Now.Sub(row.Seen) < b.node.times.Linger {
			count++
		}
	}
	return count
}

// quiet is the logger of the actor library. It logs warnings and errors only, and never a message's content, because
// messages hold addresses.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(redacted{log.Handler()})
}

// redacted is a slog.Handler that drops the content of messages from the library's log.
type redacted struct{ slog.Handler }

func (h redacted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler. It drops attributes of the library that may hold a message.
func (h redacted) Handle(ctx context.Context, r slog.Record) error {
	// This package handles what the library calls errors, such as a member that can't be dialled. It logs what
	// operators must know itself.
	out := slog.NewRecord(r.Time, slog.LevelWarn, "actor library", r.PC)
	out.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "address", "err", "error", "kind", "reason":
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler; the library's fixed attributes are not needed.
func (h redacted) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h redacted) WithGroup(string) slog.Handler { return h }
