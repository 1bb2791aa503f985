package cluster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/ledger"
)

// Kinds are the virtual actors that a node can host, by kind.
type Kinds = map[string]*actor.Props

// Answer answers queries (Node.QueryAll) of this node and of others until ctx is done. Many goroutines call it.
type Answer = func(ctx context.Context, question []byte) ([]byte, error)

// Options are the options of a node.
type Options struct {
	Name    string                   // of the cluster; nodes of other clusters are refused
	Node    uuid.UUID                // of this node, the same after a restart
	Prepare func(*actor.ActorSystem) // called before the first actor is made; may be nil
	Host    string                   // name of this node, if no certificate names it
	Version string                   // of the program, for people
	Wire    int                      // of the messages between nodes, the same for all members
	Log     *slog.Logger
	// ApplyShares applies new shares and returns when this node keeps to them. Only one goroutine calls it.
	ApplyShares func(ctx context.Context, of func(key string) (k, n int)) error
	// Silent returns the keys of receivers with silent sessions: this node ended the sessions, but the receivers may
	// still count them. ApplyShares does not wait for these. Nil: there are none.
	Silent func() []string
	// Load returns this node's present work, for the other nodes and for people.
	Load func() Load
	// Peers is how this node finds others; nil for a cluster of one.
	Peers      *Peers
	Times      Times // of a node with peers; zero means DefaultTimes
	Registerer prometheus.Registerer
}

// Load is the work of a node.
type Load struct {
	Leases    int   // verifications
	Addresses int64 // in these
	Receivers int   // that live here
}

// Peers is what a node needs to be one of several. Identity may be nil on loopback; all other fields are required.
type Peers struct {
	Book      ledger.Nodes
	Gossip    gossip.Options   // Self and Registerer are filled in by Serve
	Actors    string           // host:port of actor traffic, to listen on
	Advertise string           // host at which others reach actor traffic; "": that of Actors
	Identity  *secure.Identity // nil: no TLS
	Traffic   secure.Times     // of actor traffic; zero means secure.DefaultTimes
}

// times returns Times, or the defaults.
func (o Options) times() Times {
	if o.Times == (Times{}) {
		return DefaultTimes()
	}
	return o.Times
}

// Times are the times of a clustered node. They must be the same on all nodes of a cluster: one node's Lost decides
// when it counts out another node, which must have stopped by its own Fence. docs/operators/cluster.md describes
// DefaultTimes.
type Times struct {
	// Heartbeat is the time between heartbeats while nothing changes. Three heartbeats fit before others may count
	// this process out. A lower value writes more but finds no loss sooner; with a higher one a single lost heartbeat
	// raises the fence.
	Heartbeat time.Duration

	// Soon is the time between heartbeats until every process has read the last change, because a change of members
	// takes effect only then. At most Heartbeat.
	Soon time.Duration

	// HeartbeatWithin bounds one heartbeat. ApplyWithin bounds one attempt to apply new shares. Both are shorter than
	// Fence.
	HeartbeatWithin, ApplyWithin time.Duration

	// Fence is how long after sending its last good heartbeat a process stops using anything. Lost is how long after
	// the last heartbeat in the ledger the others may count a process out. The difference allows for different speeds
	// of our clock and the ledger's; it is at least a sixth of Lost.
	Fence, Lost time.Duration

	// Unacknowledged is how long this machine keeps sending bytes that the receiver's machine has not acknowledged
	// (TCP_USER_TIMEOUT). For this time before the fence goes up no RCPT is sent, so that none is still on its way
	// then. At least one heartbeat fits before that time begins.
	Unacknowledged time.Duration

	// Linger is how long a lost process may still have SMTP sessions after it was last seen, unless it is known to be dead
	// (LingerMax).
	Linger time.Duration

	// LinkEvery is how often a member is asked whether it answers over actor traffic. LinkLife is how long an answer
	// counts: four may be lost. LinkLife is a guess, about the time in which gossip finds a dead member.
	LinkEvery, LinkLife time.Duration

	// Ask bounds one question to a member. Guess: a living member answers in milliseconds.
	Ask time.Duration

	// Meet is how long a starting node waits for answers of the members that gossip sees. Without the wait, its first
	// vote would leave them out and then change at once. Guess.
	Meet time.Duration
}

// DefaultTimes are the times in production.
func DefaultTimes() Times {
	return Times{
		Heartbeat: 3 * time.Second, Soon: 250 * time.Millisecond,
		HeartbeatWithin: 5 * time.Second, ApplyWithin: 5 * time.Second,
		Fence: 8 * time.Second, Lost: 10 * time.Second, Unacknowledged: 4 * time.Second, Linger: LingerMax,
		LinkEvery: time.Second, LinkLife: 5 * time.Second,
		Ask: time.Second, Meet: 3 * time.Second,
	}
}

// ErrRefused: the members refuse this node; the text says why.
var ErrRefused = gossip.ErrRefused

// ErrDisplaced: a later process runs as the same node, so this one must end.
var ErrDisplaced = errors.New("cluster: another process runs as this node: was its data_dir copied, " +
	"or is cluster.node given twice?")
