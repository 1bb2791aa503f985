package cluster

import (
	"context"
	"errors"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
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
