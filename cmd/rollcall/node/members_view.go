package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster"
	"rollcall/cluster/wire"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
)

// membersView shows operators the cluster of a node.
type membersView struct {
	cluster string
	node    *cluster.Node
}

// Members implements admin.Cluster.
func (v membersView) Members(context.Context) (admin.Membership, error) {
	out := admin.Membership{Cluster: v.cluster}
	roll := v.node.Roll()
	if roll != nil {
		out.LedgerAge = max(0, time.Now().Add(v.node.ClockOffset()).Sub(roll.Now).Seconds())
	}
	all := v.node.Members()
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

func (v membersView) member(m cluster.Member, roll *ledger.Roll) admin.Member {
	out := admin.Member{Node: m.Card.Node, Session: m.Card.Session, Name: m.Card.Name, This: m.This,
		Version: m.Card.Version, Actors: m.Card.Actors, Gossip: m.Gossip, Since: api.Time(m.Since),
		Agreed: m.Agreed, State: stateOf(m)}
	if m.This {
		offset := -v.node.ClockOffset().Milliseconds()
		out.ClockOffset = &offset
	}
	if m.Row != nil {
		age := roll.Now.Sub(m.Row.Seen).Seconds()
		out.BeatAge = &age
		out.Leases, out.Addresses, out.Receivers = m.Row.Leases, m.Row.Addresses, m.Row.Receivers
	}
	if m.Row == nil && m.This { // a node alone has no row
		load := v.node.Load()
		out.Leases, out.Addresses, out.Receivers = load.Leases, load.Addresses, load.Receivers
	}
	return out
}

// stateOf is the first state of a member that fits.
func stateOf(m cluster.Member) admin.State {
	switch {
	case m.Row != nil && m.Row.Standing == ledger.NodeLeft:
		return admin.StateLeft
	case m.Row != nil && m.Row.Standing == ledger.NodeLost:
		return admin.StateLost
	case !m.Seen:
		return admin.StateUnseen
	case m.Suspect:
		return admin.StateSuspect
	case !m.Linked:
		return admin.StateUnlinked
	case m.Card.Draining:
		return admin.StateDraining
	case m.Unfit:
		return admin.StateUnfit
	}
	return admin.StateServing
}

// Drain implements admin.Cluster.
func (v membersView) Drain(ctx context.Context, node uuid.UUID) error { return v.node.Drain(ctx, node) }

// Undrain implements admin.Cluster.
func (v membersView) Undrain(ctx context.Context, node uuid.UUID) error {
	return v.node.Undrain(ctx, node)
}

// Forget implements admin.Cluster.
func (v membersView) Forget(ctx context.Context, node uuid.UUID) error {
	return v.node.Forget(ctx, node)
}

// Keys implements admin.Cluster.
func (v membersView) Keys(ctx context.Context, c admin.KeyCommand) ([]admin.KeyResult, error) {
	operations := map[admin.KeyOp]wire.KeysAsk_Operation{admin.KeyAdd: wire.KeysAsk_ADD,
		admin.KeyUse: wire.KeysAsk_USE, admin.KeyRemove: wire.KeysAsk_REMOVE, admin.KeyList: wire.KeysAsk_LIST}
	rings, err := v.node.Keys(ctx, &wire.KeysAsk{Operation: operations[c.Op], Key: c.Key, Fingerprint: c.Fingerprint})
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
