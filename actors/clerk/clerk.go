package clerk

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/guard"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver"
	"rollcall/actors/receiver/egress"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// Node is what the clerk needs of a cluster.Node.
type Node interface {
	// Errand asks every member.
	Errand(ctx context.Context, question []byte) []cluster.Reply
	// ErrandTo asks one member, by its name.
	ErrandTo(ctx context.Context, name string, question []byte) cluster.Reply
	// Card is what this node says of itself; its name is that of its replies.
	Card() gossip.Card
}

// Options is what a clerk needs to know. All fields are required but Lookup, Fault, Health,
// Clock and Guard.
type Options struct {
	Living  *receiver.Registry // the receivers of this node
	Sources *egress.Pool       // of this node
	Table   *throttle.Table    // the rules of this node
	// Route finds where mail for a domain goes.
	Route func(ctx context.Context, domain string) (mx.Route, error)
	// Lookup says what the open addresses of a verification wait for that this node has in
	// work; nil: this node works on none.
	Lookup func(id uuid.UUID) (inspect.Verification, bool)
	// Fault says why the throttle file of this node, as it is now, is not used; "": it is. May
	// be nil.
	Fault func() string
	// Health says what this node found of its identity; its Node and This are not read. nil: it checks none.
	Health func() inspect.Health
	// Clock is the time that is told to people; nil: time.Now.
	Clock func() time.Time
	Guard *guard.Guard // of what it does beside; nil: none
}

// Validate says which option is missing.
func (o Options) Validate() error {
	switch {
	case o.Living == nil || o.Sources == nil:
		return errors.New("clerk options: no living receivers or sources")
	case o.Table == nil || o.Route == nil:
		return errors.New("clerk options: no table or route")
	}
	return nil
}

// Clerk answers questions about the cluster. Safe for concurrent use. It is the Survey of
// the admin API.
type Clerk struct {
	options Options
	node    nodeOf
}

// New makes a clerk that knows this node only; Join lets it ask the others.
func New(o Options) (*Clerk, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Clerk{options: o}, nil
}

// Join says whom to ask: a node whose Options.Answer is this clerk's Answer, which is why it
// comes later than New.
func (c *Clerk) Join(node Node) { c.node.p.Store(&node) }
