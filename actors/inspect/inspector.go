package inspect

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// Node is what an inspector needs of a cluster.Node.
type Node interface {
	// QueryAll asks every member.
	QueryAll(ctx context.Context, question []byte) []cluster.Reply
	// QueryMember asks one member, by its name.
	QueryMember(ctx context.Context, name string, question []byte) cluster.Reply
	// Meta is what this node says of itself; its name is that of its replies.
	Meta() gossip.NodeMeta
}

// LocalReceivers are the receivers of this node; receiver.Registry is one.
type LocalReceivers interface {
	Survey(ctx context.Context) []Receiver
	Detail(ctx context.Context, key string) []ReceiverDetail
	Close(ctx context.Context, key string, session int) bool
	Forget(ctx context.Context, key, what string) []Forgotten
	// ForgetKept drops what is kept of a receiver that lives nowhere.
	ForgetKept(ctx context.Context, key, what string) ([]Forgotten, error)
	Trace(now time.Time, key, source string, after uint64) ([]TraceLine, error)
	Record(now time.Time, after string, most int) (out Record, whole bool)
}

// Options is what an inspector needs to know. All fields are required but Lookup, Fault, Health,
// Clock and Guard.
type Options struct {
	Receivers LocalReceivers
	Sources   func(ctx context.Context) []Source // of this node
	Table     *throttle.Table                    // the rules of this node
	// Route finds where mail for a domain goes.
	Route func(ctx context.Context, domain string) (mx.Route, error)
	// Lookup says what the open addresses of a verification wait for that this node has in
	// work; nil: this node works on none.
	Lookup func(id uuid.UUID) (Verification, bool)
	// Fault says why the throttle file of this node, as it is now, is not used; "": it is. May
	// be nil.
	Fault func() string
	// Health says what this node found of its identity; its Node and This are not read. nil: it checks none.
	Health func() Health
	// Clock is the time that is told to people; nil: time.Now.
	Clock func() time.Time
	Guard *process.PanicGuard // of what it does beside; nil: none
}

// Validate says which option is missing.
func (o Options) Validate() error {
	switch {
	case o.Receivers == nil || o.Sources == nil:
		return errors.New("inspect options: no receivers or sources")
	case o.Table == nil || o.Route == nil:
		return errors.New("inspect options: no table or route")
	}
	return nil
}

// Inspector asks all nodes, and answers for this one. Safe for concurrent use. It is the Survey of
// the admin API.
type Inspector struct {
	options Options
	node    atomic.Pointer[Node] // nil until Join
}

// New makes an inspector that knows this node only; Join lets it ask the others.
func New(o Options) (*Inspector, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Inspector{options: o}, nil
}

// Join says whom to ask: a node whose Options.Answer is this inspector's Answer, which is why it
// comes later than New.
func (i *Inspector) Join(node Node) { i.node.Store(&node) }

// name is this node's, as the others know it.
func (i *Inspector) name() string {
	if node := i.node.Load(); node != nil {
		return (*node).Meta().Name
	}
	return ""
}
