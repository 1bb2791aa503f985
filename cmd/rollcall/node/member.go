package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/dispatcher"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver"
	"rollcall/actors/wire"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	clusterwire "rollcall/cluster/wire"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// workload is this node's present work, for the cluster and operators.
type workload struct {
	receivers  *receiver.Registry
	dispatcher atomic.Pointer[dispatcher.Dispatcher] // nil until the dispatcher runs, which starts last
	left       atomic.Int64                          // addresses in work that are not settled yet
}

func (w *workload) load() cluster.Load {
	l := cluster.Load{Addresses: w.left.Load(), Receivers: w.receivers.Count()}
	if d := w.dispatcher.Load(); d != nil {
		l.Leases = d.Leases()
	}
	return l
}

func (w *workload) lookup(id uuid.UUID) (inspect.Verification, bool) {
	if d := w.dispatcher.Load(); d != nil {
		return d.Lookup(id)
	}
	return inspect.Verification{}, false
}

// newMember makes this process's cluster.Node; with an embedded ledger it is a cluster of one.
func (n *Node) newMember(c config.Config, id uuid.UUID, o engineOptions) error {
	host, err := nodeName(c)
	if err != nil {
		return err
	}
	n.work = &workload{receivers: receiver.NewRegistry()}
	options := cluster.Options{Name: c.Cluster.Name, Node: id, Host: host, Wire: wire.Version,
		Version: ThisVersion().Version, Log: o.log, Registerer: o.registry,
		ApplyShares: n.work.receivers.ApplyShares, Silent: n.work.receivers.Silent, Load: n.work.load,
		Prepare: o.guard.Install}
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
	n.Cluster = cluster.New(options)
	return nil
}

// clock returns the ledger's time, as measured by heartbeats.
func (n *Node) clock() time.Time { return time.Now().Add(n.Cluster.ClockOffset()) }

// nodeName returns this node's name for people: the configured name, or its host's name.
func nodeName(c config.Config) (string, error) {
	if c.Cluster.Node != "" {
		return c.Cluster.Node, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("cluster.node is not set and this host has no name: %w", err)
	}
	return name, nil
}

func peersOf(c config.Config, book *sqlstore.Store, log *slog.Logger) (*cluster.Peers, error) {
	p := &cluster.Peers{Book: book, Actors: c.Cluster.ActorListen, Advertise: c.Cluster.Advertise,
		Gossip: gossip.Options{Cluster: c.Cluster.Name, Listen: c.Cluster.GossipListen,
			Advertise: c.Cluster.Advertise, Join: c.Cluster.Join, Timing: gossip.DefaultTiming(), Log: log,
			Networks: parsed(c.Cluster.AllowNetworks, netip.MustParsePrefix)}}
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

type membersView struct {
	cluster string
	*cluster.Node
}

func (v membersView) Members(context.Context) (admin.Membership, error) {
	out := admin.Membership{Cluster: v.cluster}
	roll := v.Node.Snapshot()
	if roll != nil {
		out.LedgerAge = max(0, time.Now().Add(v.Node.ClockOffset()).Sub(roll.Now).Seconds())
	}
	all := v.Node.Members()
	for _, m := range all {
		if !m.Superseded(all) {
			out.Members = append(out.Members, v.member(m, roll))
		}
	}
	slices.SortFunc(out.Members, func(a, b admin.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Session[:], b.Session[:]))
	})
	return out, nil
}

func (v membersView) member(m cluster.Member, roll *ledger.NodeSnapshot) admin.Member {
	out := admin.Member{Node: m.Meta.Node, Session: m.Meta.Session, Name: m.Meta.Name, This: m.This,
		Version: m.Meta.Version, Actors: m.Meta.Actors, Gossip: m.Gossip, Since: api.Time(m.Since),
		Agreed: m.Agreed, State: stateOf(m)}
	if m.This {
		out.ClockOffset = new(-v.Node.ClockOffset().Milliseconds())
	}
	if m.Row != nil {
		out.HeartbeatAge = new(roll.Now.Sub(m.Row.Seen).Seconds())
		out.Leases, out.Addresses, out.Receivers = m.Row.Leases, m.Row.Addresses, m.Row.Receivers
	}
	if m.Row == nil && m.This { // a single node has no row
		load := v.Node.Load()
		out.Leases, out.Addresses, out.Receivers = load.Leases, load.Addresses, load.Receivers
	}
	return out
}

// stateOf returns the first state that applies to a member.
func stateOf(m cluster.Member) admin.State {
	switch {
	case m.Row != nil && m.Row.Status == ledger.NodeLeft:
		return admin.StateLeft
	case m.Row != nil && m.Row.Status == ledger.NodeLost:
		return admin.StateLost
	case !m.Seen:
		return admin.StateUnseen
	case m.Suspect:
		return admin.StateSuspect
	case !m.Linked:
		return admin.StateUnlinked
	case m.Meta.Draining:
		return admin.StateDraining
	case m.Ineligible:
		return admin.StateIneligible
	}
	return admin.StateServing
}

func (v membersView) Keys(ctx context.Context, c admin.KeyCommand) ([]admin.KeyResult, error) {
	operations := map[admin.KeyOp]clusterwire.KeysAsk_Operation{admin.KeyAdd: clusterwire.KeysAsk_ADD,
		admin.KeyUse: clusterwire.KeysAsk_USE, admin.KeyRemove: clusterwire.KeysAsk_REMOVE,
		admin.KeyList: clusterwire.KeysAsk_LIST}
	rings, err := v.Node.Keys(ctx, &clusterwire.KeysAsk{Operation: operations[c.Op], Key: c.Key,
		Fingerprint: c.Fingerprint})
	if errors.Is(err, cluster.ErrNoKeyring) {
		return nil, admin.ErrNoKeyring
	}
	out := make([]admin.KeyResult, len(rings))
	for i, r := range rings {
		out[i] = admin.KeyResult{Node: r.Node, Name: r.Name, Keys: r.Fingerprints, Error: r.Refused}
		if len(r.Fingerprints) > 0 {
			out[i].Primary = r.Fingerprints[0]
		}
	}
	return out, err
}
