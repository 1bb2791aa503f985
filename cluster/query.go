package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/cluster/wire"
	"rollcall/ledger"
)

const (
	// QuestionMax bounds the question of a query: it is sent in one message, and messages between members are at most
	// 64 KiB.
	QuestionMax = 64 << 10

	// AnswerMax bounds the answer of a member. queriesMax answers and a batch of other messages together stay below
	// the bound of one read (package secure).
	AnswerMax = 3 << 20

	// queriesMax bounds the queries that a node answers at once; it refuses further ones.
	queriesMax = 4

	// queryWithin bounds one query, including the time that messages travel.
	queryWithin = 1500 * time.Millisecond

	// answerWithin is the time that a node has for its answer.
	answerWithin = queryWithin - 200*time.Millisecond
)

// The errors of queries.
var (
	// ErrQuestion: the question is longer than QuestionMax.
	ErrQuestion = fmt.Errorf("cluster: the question is longer than %d bytes", QuestionMax)

	// ErrNoAnswer: the member did not answer in time.
	ErrNoAnswer = fmt.Errorf("cluster: the member did not answer within %s", queryWithin)

	// ErrLost: gossip does not see the member, but it may be alive.
	ErrLost = errors.New("lost: it does not answer")

	// ErrNoMember: no member has that name.
	ErrNoMember = errors.New("cluster: no member has that name")
)

// Reply is what one member answered to a query.
type Reply struct {
	Name string    // name of the member, if known
	Node uuid.UUID // of the member
	Body []byte    // nil with an error
	Err  error     // ErrNoAnswer, ErrLost, or why there is no answer
}

// QueryAll asks every member that gossip sees, this one included, all at once, and returns their replies by name. It
// is for an operator's question to every node; the Answer given to Serve answers it. It takes a second and a half at
// most. It lists members that gossip lost but that may be alive with ErrLost, and does not wait for them.
func (n *Node) QueryAll(ctx context.Context, question []byte) []Reply {
	members := n.queriedMembers()
	out := make([]Reply, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { out[i] = n.askMember(ctx, m, question) })
	}
	all.Wait()
	out = append(out, lostOf(n.Snapshot(), members)...)
	slices.SortFunc(out, func(a, b Reply) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.Node[:], b.Node[:]))
	})
	return out
}

// QueryMember is QueryAll for one member, by its name. Error: ErrNoMember.
func (n *Node) QueryMember(ctx context.Context, name string, question []byte) Reply {
	members := n.queriedMembers()
	for _, m := range members {
		if m.Name == name {
			return n.askMember(ctx, m, question)
		}
	}
	for _, r := range lostOf(n.Snapshot(), members) {
		if r.Name == name {
			return r
		}
	}
	return Reply{Name: name, Err: ErrNoMember}
}

func (n *Node) queriedMembers() []gossip.NodeMeta {
	if n.peers == nil {
		return []gossip.NodeMeta{n.meta}
	}
	var out []gossip.NodeMeta
	for _, m := range n.gossip.Members() {
		out = append(out, m.NodeMeta)
	}
	return out
}

// lostOf returns the nodes that gossip does not see although, by the ledger, they are members, or lost but not known
// to be dead. A restarted node counts as seen if its later process is.
func lostOf(roll *ledger.NodeSnapshot, seen []gossip.NodeMeta) (out []Reply) {
	if roll == nil {
		return nil
	}
	named := map[uuid.UUID]bool{}
	for _, card := range seen {
		named[card.Node] = true
	}
	for _, row := range roll.Nodes {
		gone := row.Status == ledger.NodeLeft || row.Status == ledger.NodeLost && row.Dead
		if gone || named[row.Node] {
			continue
		}
		named[row.Node] = true
		out = append(out, Reply{Name: row.Name, Node: row.Node, Err: ErrLost})
	}
	return out
}

// askMember asks one member. It asks this process without the network.
func (n *Node) askMember(ctx context.Context, m gossip.NodeMeta, question []byte) Reply {
	r := Reply{Name: m.Name, Node: m.Node}
	if len(question) > QuestionMax {
		r.Err = ErrQuestion
		return r
	}
	if m.Session == n.meta.Session {
		within, cancel := context.WithTimeout(ctx, queryWithin)
		defer cancel()
		r.Body, r.Err = n.answering.within(within, question)
		return r
	}
	within := queryWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	if within <= 0 || ctx.Err() != nil {
		r.Err = ErrNoAnswer
		return r
	}
	answer, err := n.system.Root.RequestFuture(actor.NewPID(m.Actors, answerName),
		&wire.Query{Body: question}, within).Result()
	done, ok := answer.(*wire.Result)
	switch {
	case err != nil || !ok:
		r.Err = ErrNoAnswer
	case done.GetRefused() != "":
		r.Err = errors.New(done.GetRefused())
	default:
		r.Body = done.GetBody()
	}
	return r
}

// answering answers the queries of members.
type answering struct {
	log    *slog.Logger
	answer Answer        // nil: it answers none
	places chan struct{} // bounds the queries answered at once
}

// done answers a query of another member. It blocks, so it must not run in a mailbox.
func (a *answering) done(question []byte) *wire.Result {
	select {
	case a.places <- struct{}{}:
		defer func() { <-a.places }()
	default:
		return &wire.Result{Refused: "it is busy answering others: ask again"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	body, err := a.within(ctx, question)
	if err != nil {
		return &wire.Result{Refused: err.Error()}
	}
	return &wire.Result{Body: body}
}

// within answers a query within the bounds of time and size. A panic ends only that query.
func (a *answering) within(ctx context.Context, question []byte) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			a.log.Error("answering a query crashed", "err", fmt.Sprint(r))
			body, err = nil, errors.New("answering failed: see the log of this node")
		}
	}()
	if a.answer == nil {
		return nil, errors.New("this node answers no queries")
	}
	if len(question) > QuestionMax {
		return nil, ErrQuestion
	}
	if body, err = a.answer(ctx, question); err == nil && len(body) > AnswerMax {
		return nil, fmt.Errorf("the answer is longer than %d bytes: ask for less", AnswerMax)
	}
	return body, err
}

// answerName is the name of the actor that answers other members about this node.
const answerName = "node"

func (n *Node) startAnswering() {
	props := actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *wire.Ask:
			c.Respond(n.heartbeats.state())
		case *wire.KeysAsk:
			c.Respond(changeKeys(n.peers.Gossip.Keys, n.log, m))
		case *wire.Query: // the answer may take a while, and c is valid only in Receive
			root, sender := c.ActorSystem().Root, c.Sender()
			if sender != nil {
				go func() { root.Send(sender, n.answering.done(m.GetBody())) }()
			}
		}
	})
	if _, err := n.system.Root.SpawnNamed(props, answerName); err != nil {
		panic(err) // a bug: it ran twice
	}
}

// generation returns the newest generation that this node has read, or 0.
func (b *heartbeats) generation() int64 {
	if roll := b.snapshot.Load(); roll != nil {
		return roll.Generation
	}
	return 0
}

// state is this node's answer to the others. Its field Heartbeat is the time of this node's last confirmed heartbeat,
// in milliseconds by the ledger's clock, or 0.
func (b *heartbeats) state() *wire.State {
	s := &wire.State{Session: b.node.meta.Session[:], Suspended: b.suspended.Load(), Generation: b.generation()}
	if row := sessionIn(b.snapshot.Load(), b.node.meta.Session); row != nil {
		s.Heartbeat = row.Seen.UnixMilli()
	}
	return s
}

// errStranger: another process answered than the one asked.
var errStranger = errors.New("cluster: another process answers")

func askState(system *actor.ActorSystem, session uuid.UUID, address string, within time.Duration) (*wire.State, error) {
	answer, err := system.Root.RequestFuture(actor.NewPID(address, answerName), &wire.Ask{}, within).Result()
	if err != nil {
		return nil, err
	}
	state, ok := answer.(*wire.State)
	if !ok || !bytes.Equal(state.GetSession(), session[:]) {
		return nil, errStranger
	}
	return state, nil
}

// dial tries whether an address takes connections.
func dial(ctx context.Context, address string, within time.Duration) error {
	dialer := net.Dialer{Timeout: within}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// ErrNoKeyring: the gossip of this node is not encrypted.
var ErrNoKeyring = errors.New("cluster: gossip has no keys: set cluster.gossip_key_file")

// Keyring is the gossip keys of one member after a command.
type Keyring struct {
	Node         uuid.UUID
	Name         string
	Fingerprints []string // the first is the primary key's
	Refused      string   // why nothing was changed; "" after success
}

// Keys runs a command about gossip keys on every member that gossip sees, this one included. Error: ErrNoKeyring.
func (n *Node) Keys(ctx context.Context, ask *wire.KeysAsk) ([]Keyring, error) {
	if n.peers == nil || n.peers.Gossip.Keys == nil {
		return nil, ErrNoKeyring
	}
	members := n.gossip.Members()
	out := make([]Keyring, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { out[i] = keysOf(n.system, m, ask, n.times.Ask) })
	}
	all.Wait()
	slices.SortFunc(out, func(a, b Keyring) int { return cmp.Compare(a.Name, b.Name) })
	return out, ctx.Err()
}

func keysOf(system *actor.ActorSystem, m gossip.Member, ask *wire.KeysAsk, within time.Duration) Keyring {
	k := Keyring{Node: m.Node, Name: m.Name}
	answer, err := system.Root.RequestFuture(actor.NewPID(m.Actors, answerName), ask, within).Result()
	keys, ok := answer.(*wire.Keys)
	if err != nil || !ok {
		k.Refused = "it did not answer and may or may not have done it: send the same command again"
		return k
	}
	k.Fingerprints, k.Refused = keys.GetFingerprints(), keys.GetRefused()
	return k
}

// changeKeys does a command about gossip keys here. Its refusals never contain a key.
func changeKeys(ring *gossip.Keyring, log *slog.Logger, ask *wire.KeysAsk) *wire.Keys {
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
	answer := &wire.Keys{Fingerprints: ring.Fingerprints()}
	if err != nil {
		answer.Refused = err.Error()
	}
	log.Info("gossip keys", "operation", ask.GetOperation().String(), "keys", answer.Fingerprints,
		"refused", answer.Refused)
	return answer
}
