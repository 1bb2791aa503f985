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
	// Fenced says that this process may not speak to receivers now, because it does
	// not know whether others took it for lost. It is asked before every RCPT, from
	// many goroutines at once, and must be quick.
	Fenced func() bool
	// Late says that a RCPT which is sent now might still be on its way, in this machine, when
	// Fenced becomes true: it is not sent before that is clear. Asked as Fenced; nil: never.
	Late func() bool
	// Pauses counts the pauses of this process that were so long that others may have taken over
	// what it had not begun (process.Watchdog): that is not asked any more, and who waits for it
	// offers it again. Asked as Fenced; nil: there is none.
	Pauses func() uint64
	// Facts is where what was learned of receivers survives a move; nil: nowhere, as
	// for one who asks once and is gone.
	Facts state.Facts
	// Clock is the time of the ledger, for what is kept in Facts; nil: that of this host.
	Clock   func() time.Time
	Sources *egress.Pool                     // from where receivers are spoken to
	Allow   func(key string) throttle.Limits // the present allowance of a receiver
	// Stated reports whether somebody has said what the RCPT rate of a receiver is, so that it
	// is not begun gently; nil: of every one.
	Stated func(key string) bool
	// SourceOf gives what an operator wants of one of our sources now, by its address:
	// whether it rests, and what it may ask in a day; nil: nothing.
	SourceOf func(name string) throttle.Limits
	// Said gives who says what of a field of a receiver, or of "source:" and the address of
	// one of our sources, in the ledger's time, the one that holds last; nil: nobody knows.
	Said func(name string, f throttle.Field) []throttle.Said
	// Weight is how many addresses of a workspace are asked for each one of a workspace
	// of weight 1, at receivers where both wait; nil: all have the same.
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

	// stretch makes the waits between actors, clients and connections, for hosts that are down and
	// for a source that is refused (waits) so many times as long, for tests on real sockets; 0:
	// they are as their constants say.
	stretch float64
}

// forScheduler gives the part that a scheduler needs.
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
