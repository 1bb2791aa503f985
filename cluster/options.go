package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/cluster/share"
	"rollcall/ledger"
)

// Kinds are the virtual actors that a node can host, by kind.
type Kinds = map[string]*actor.Props

// Answer answers queries (Node.QueryAll), of this node and of others, until ctx is done; it
// is called from many goroutines.
type Answer = func(ctx context.Context, question []byte) ([]byte, error)

// Options is what a node needs to know.
type Options struct {
	Name    string                   // of the cluster; nodes of other clusters are strangers
	Node    uuid.UUID                // of this node, the same after a restart
	Prepare func(*actor.ActorSystem) // is called before the first actor is made; nil: there is nothing to prepare
	Host    string                   // name of this node, if there is no certificate to name it
	Version string                   // of the program, for people
	Wire    int                      // of the messages between nodes: members have the same
	Log     *slog.Logger
	// Comply takes a new table of shares and returns when this node keeps to it.
	// It is called by one goroutine.
	Comply func(ctx context.Context, of func(key string) (k, n int)) error
	// Silent gives the keys of which others may still believe that this node uses them,
	// though it has ended that, and cannot end it better: receivers with silent sessions.
	// Comply does not wait for these. Nil: there is no such thing.
	Silent func() []string
	// Load says what this node has in work, for the others and for people.
	Load func() Load
	// Peers is how this node finds others; nil: it is a cluster of one.
	Peers      *Peers
	Times      Times // of a node with peers; the zero Times: DefaultTimes
	Registerer prometheus.Registerer
}

// Load is what a node has in work.
type Load struct {
	Leases    int   // verifications
	Addresses int64 // in these
	Receivers int   // that live here
}

// Peers is what a node needs to be one of several. Identity may be nil on
// loopback; all other fields are required.
type Peers struct {
	Book      ledger.Nodes
	Gossip    gossip.Options   // Self and Registerer are filled in by Serve
	Actors    string           // host:port of actor traffic, to listen on
	Advertise string           // host of actor traffic as others reach it; "": that of Actors
	Identity  *secure.Identity // nil: no TLS
	Traffic   secure.Times     // of actor traffic; the zero Times: secure.DefaultTimes
}

// Validate says which option is missing.
func (o Options) Validate() error {
	switch {
	case o.Name == "" || o.Host == "":
		return errors.New("cluster options: name or host is empty")
	case o.Log == nil || o.Comply == nil || o.Load == nil || o.Registerer == nil:
		return errors.New("cluster options: no logger, comply, load or registerer")
	case o.Peers == nil:
		return nil
	case o.Node == uuid.Nil || o.Wire < 1:
		return errors.New("cluster options: no node or wire version")
	case o.Peers.Book == nil || o.Peers.Actors == "":
		return errors.New("cluster options: no book or actor address")
	}
	return o.times().Validate()
}

// times returns Times, or those that stand for none.
func (o Options) times() Times {
	if o.Times == (Times{}) {
		return DefaultTimes()
	}
	return o.Times
}

// Times are how long a node of several waits. All nodes of a cluster must have the
// same: one counts another out by its own Lost, and that one trusts its own Fence.
// DefaultTimes is what docs/operators/cluster.md tells; tests take it Scaled.
type Times struct {
	// Heartbeat is the time between heartbeats when nothing is new: three fit before
	// others may count this process out. Lower finds a lost process no sooner and
	// writes more; higher lets one lost heartbeat put the fence up.
	Heartbeat time.Duration

	// Soon is the time between heartbeats while somebody has not read what happened,
	// which is what a change of members waits for. At most Heartbeat.
	Soon time.Duration

	// HeartbeatWithin bounds one heartbeat, and ComplyWithin the time that this node has to
	// keep to new shares before it tries again. Both leave room before the fence.
	HeartbeatWithin, ComplyWithin time.Duration

	// Fence is how long after its last good heartbeat was sent a process uses nothing
	// any more, and Lost how long the ledger hears nothing of a process until the
	// others may count it out. What lies between is for clocks that run differently:
	// the first is our own, the second the ledger's. At least a sixth of Lost.
	Fence, Lost time.Duration

	// Unacknowledged is how long the system of this machine goes on sending what the
	// receiver's system has not acknowledged (TCP_USER_TIMEOUT). From so long before the
	// fence on no RCPT is sent, so that none is on its way when the fence goes up. At
	// least a heartbeat fits before that.
	Unacknowledged time.Duration

	// Rest is how long after it was last seen a lost process may still have SMTP
	// sessions, if nobody knows that it is dead (share.RestFor).
	Rest time.Duration

	// LinkEvery is how often a member is asked whether it answers over actor traffic,
	// and LinkLife how long an answer counts: four may be lost. The second is a guess,
	// in the range of what gossip takes to see a member dead.
	LinkEvery, LinkLife time.Duration

	// Ask bounds one question to a member. Guess: a living one answers in milliseconds.
	Ask time.Duration

	// Meet is how long a node that starts waits until the members that gossip sees
	// answer it, so that its first vote is no other than the second. Guess.
	Meet time.Duration
}

// DefaultTimes are those of a cluster in production.
func DefaultTimes() Times {
	return Times{
		Heartbeat: 3 * time.Second, Soon: 250 * time.Millisecond,
		HeartbeatWithin: 5 * time.Second, ComplyWithin: 5 * time.Second,
		Fence: 8 * time.Second, Lost: 10 * time.Second, Unacknowledged: 4 * time.Second, Rest: share.RestFor,
		LinkEvery: time.Second, LinkLife: 5 * time.Second,
		Ask: time.Second, Meet: 3 * time.Second,
	}
}

// all returns every time by its name, to be read or changed.
func (t *Times) all() []namedTime {
	return []namedTime{{"beat", &t.Heartbeat}, {"soon", &t.Soon}, {"beat within", &t.HeartbeatWithin},
		{"comply within", &t.ComplyWithin}, {"fence", &t.Fence}, {"lost", &t.Lost},
		{"unacknowledged", &t.Unacknowledged}, {"rest", &t.Rest}, {"link every", &t.LinkEvery}, {"link life", &t.LinkLife}, {"ask", &t.Ask}, {"meet", &t.Meet}}
}

type namedTime struct {
	name string
	at   *time.Duration
}

// Scaled returns all times multiplied by a factor: 0.2 makes a cluster five times as fast.
func (t Times) Scaled(factor float64) Times {
	for _, one := range t.all() {
		*one.at = time.Duration(math.Round(float64(*one.at) * factor))
	}
	return t
}

// Validate says which time is missing, or out of the order on which the promises of
// a cluster rest.
func (t Times) Validate() error {
	for _, one := range t.all() {
		if *one.at < time.Millisecond {
			return fmt.Errorf("cluster times: %s is %s: at least 1ms", one.name, *one.at)
		}
	}
	for _, order := range []struct {
		fits bool
		text string
	}{
		{t.Soon <= t.Heartbeat, "soon is longer than beat"},
		{2*t.Heartbeat+t.Soon <= t.Fence, "one heartbeat that fails would put the fence up"},
		{t.Heartbeat+t.Soon <= t.Fence-t.Unacknowledged, "no heartbeat fits before what is sent must be there at the fence"},
		{t.HeartbeatWithin < t.Fence && t.ComplyWithin < t.Fence, "a heartbeat may take as long as the fence"},
		{t.Lost-t.Fence >= t.Lost/6, "between fence and lost there is less than a sixth"},
		{t.Lost <= t.Rest, "rest is shorter than lost"},
		{t.LinkEvery < t.LinkLife, "an answer counts no longer than until the next question"},
	} {
		if !order.fits {
			return fmt.Errorf("cluster times: %s: %+v", order.text, t)
		}
	}
	return nil
}

// ErrRefused: the members do not take this node; the text says why.
var ErrRefused = gossip.ErrRefused

// ErrDisplaced: a later process runs as the same node, so this one must end.
var ErrDisplaced = errors.New("cluster: another process runs as this node: was its data_dir copied, " +
	"or is cluster.node given twice?")

// ErrNoSuchMember: no node has this name, id or beginning of an id.
var ErrNoSuchMember = errors.New("cluster: no such node")
