package receiver

import (
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/receiver/state"
	"rollcall/ledger/tracing"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// kind is the name of this virtual actor's kind in the cluster.
const kind = "receiver"

// Options is what every receiver actor of a node shares. Fields are required unless
// they say what nil means.
type Options struct {
	Registry *Registry // the receivers of this node
	// Fenced reports whether this process may not speak to receivers now, because other nodes may have counted it out.
	// It is called before every RCPT, by many goroutines at once, and must be quick.
	Fenced func() bool
	// Late reports whether a RCPT sent now might still be on its way in this machine when Fenced becomes true; it isn't
	// sent until that is clear. Called as Fenced is; nil: never.
	Late func() bool
	// Pauses counts the long pauses of this process (process.Watchdog), in which others may have taken over what it had
	// not begun: that isn't asked, and its client offers it again. Called as Fenced is; nil: there is none.
	Pauses func() uint64
	// Facts stores what was learned of receivers beyond a move; nil: nothing is stored.
	Facts state.Facts
	// Clock is the ledger's time, for Facts; nil: this host's.
	Clock   func() time.Time
	Sources *egress.Pool                     // from where receivers are spoken to
	Allow   func(key string) throttle.Limits // the present allowance of a receiver
	// Stated reports whether an operator has set the RCPT rate of a receiver, so that it isn't begun slowly; nil:
	// always.
	Stated func(key string) bool
	// SourceOf returns an operator's settings for one of our sources, by its address: whether it is paused, and its
	// daily cap; nil: there are none.
	SourceOf func(name string) throttle.Limits
	// Said returns who set which value of a field of a receiver, or of "source:" and a source's address, in the
	// ledger's time, with the value in force last; nil: unknown.
	Said func(name string, f throttle.Field) []throttle.Said
	// Weight is how many addresses of a workspace are asked for each one of a workspace of weight 1 where both wait;
	// nil: all have the same.
	Weight  func(workspace uuid.UUID) int
	Waits   []time.Duration // of a penalty that names no time: first, second, … in a row
	Slots   *registry.Slots
	Most    int                   // receivers in work on this node at a time (NewReceiverSlots); 0: not bounded
	Rules   func() *verdict.Rules // those in force, which may change
	Busy    func() bool           // the run queue of this node is long, so that more sessions would make nothing faster; nil: never
	Log     *slog.Logger
	Metrics *Metrics
	Tracer  *tracing.Tracer     // nil: nothing is traced
	Guard   *process.PanicGuard // of goroutines; nil: none

	slots *registry.ReceiverSlots // made of Most by Kinds

	// stretch multiplies the waits between actors, clients and connections, for hosts that are down and for a refused
	// source, for tests on real sockets; 0: they are as their constants say.
	stretch float64
}

// forScheduler returns the options of a scheduler.
func (o *Options) forScheduler() scheduler.Options {
	return scheduler.Options{Fenced: o.Fenced, Late: o.Late, Facts: o.Facts, Clock: o.Clock, Sources: o.Sources,
		Allow:  o.Allow,
		Stated: o.Stated, SourceOf: o.SourceOf, Said: o.Said, Weight: o.Weight, Waits: o.Waits, Slots: o.Slots,
		Rules: o.Rules, Busy: o.Busy, Log: o.Log, Guard: o.Guard, Metrics: o.Metrics.Metrics, Stretch: o.stretch}
}

// pauses is how many long pauses there were until now.
func (o *Options) pauses() uint64 {
	if o.Pauses == nil {
		return 0
	}
	return o.Pauses()
}

// Validate says which option is missing.
func (o Options) Validate() error {
	switch {
	case o.Registry == nil || o.Fenced == nil:
		return errors.New("receiver options: living or fenced is nil")
	case o.Sources == nil:
		return errors.New("receiver options: sources is nil")
	case o.Allow == nil:
		return errors.New("receiver options: allow is nil")
	case len(o.Waits) == 0:
		return errors.New("receiver options: no waits")
	case o.Slots == nil:
		return errors.New("receiver options: no slots")
	case o.Rules == nil:
		return errors.New("receiver options: rules is nil")
	case o.Log == nil || o.Metrics == nil:
		return errors.New("receiver options: no logger or metrics")
	}
	return nil
}

// NewSlots makes n slots, which bound the sessions that a node has open at once.
func NewSlots(n int) *registry.Slots { return registry.NewSlots(n) }
