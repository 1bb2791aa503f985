package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/cluster/wire"
)

// ErrNoKeyring: the gossip of this node is not encrypted.
var ErrNoKeyring = errors.New("cluster: gossip has no keys: set cluster.gossip_key_file")

// Keyring is the gossip keys of one member after a command.
type Keyring struct {
	Node         uuid.UUID
	Name         string
	Fingerprints []string // the primary key's first
	Refused      string   // why nothing was changed; "" after success
}

// Keys does a command about gossip keys on every member that gossip sees, this one included. Error: ErrNoKeyring.
func (n *Node) Keys(ctx context.Context, ask *wire.KeysAsk) ([]Keyring, error) {
	if n.peers == nil || n.peers.Gossip.Keys == nil {
		return nil, ErrNoKeyring
	}
	members := n.gossip.Members()
	out := make([]Keyring, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { out[i] = n.keysOf(m, ask) })
	}
	all.Wait()
	slices.SortFunc(out, func(a, b Keyring) int { return cmp.Compare(a.Name, b.Name) })
	return out, ctx.Err()
}

// keysOf asks one member.
func (n *Node) keysOf(m gossip.Member, ask *wire.KeysAsk) Keyring {
	k := Keyring{Node: m.Node, Name: m.Name}
	answer, err := n.system.Root.RequestFuture(actor.NewPID(m.Actors, answerName), ask, n.times.Ask).Result()
	keys, ok := answer.(*wire.Keys)
	if err != nil || !ok {
		k.Refused = "it did not answer and may or may not have done it: send the same command again"
		return k
	}
	k.Fingerprints, k.Refused = keys.GetFingerprints(), keys.GetRefused()
	return k
}

// changeKeys does a command about gossip keys here. Its refusals never contain a key.
func (n *Node) changeKeys(ask *wire.KeysAsk) *wire.Keys {
	ring := n.peers.Gossip.Keys
	if ring == nil {
		return &wire.Keys{Refused: ErrNoKeyring.Error()}
	}
	var err error
	switch ask.GetOperation() {
	case wire.KeysAsk_ADD:
		err = ring.Add(base64.StdEncoding.EncodeToString(ask.GetKey()))
	case wire.KeysAsk_USE:
		err = ring.Use(ask.GetFingerprint())
	case wire.KeysAsk_REMOVE:
		err = ring.Remove(ask.GetFingerprint())
	}
	answer := &wire.Keys{}
	for _, k := range ring.List() { // the primary first
		answer.Fingerprints = append(answer.Fingerprints, k.Fingerprint)
	}
	if err != nil {
		answer.Refused = err.Error()
	}
	n.log.Info("gossip keys", "operation", ask.GetOperation().String(), "keys", answer.Fingerprints,
		"refused", answer.Refused)
	return answer
}
