package receiver

import (
	"rollcall/actors/receiver/scheduler"
	"rollcall/ledger/tracing"
)

// kind is the name of this kind of virtual actor in the cluster.
const kind = "receiver"

// Options are shared by the receiver actors of a node: the options of their schedulers, except Metrics, and the options
// of the actors. A field is required unless its comment says what nil means.
type Options struct {
	scheduler.Options
	Registry *Registry // the receivers of this node
	// Pauses counts the long pauses of this process (process.Watchdog). During a pause other nodes may have taken over
	// probes that weren't begun. So the actor drops these, and their client offers them again. Called as Fenced is; may be
	// nil.
	Pauses  func() uint64
	Most    int // receivers in work on this node at a time (NewReceiverSlots); 0: any number
	Metrics *Metrics
	Tracer  *tracing.Tracer // nil: nothing is traced
}

func (o *Options) forScheduler() scheduler.Options {
	out := o.Options
	out.Metrics = o.Metrics.Metrics
	return out
}

func (o *Options) pauses() uint64 {
	if o.Pauses == nil {
		return 0
	}
	return o.Pauses()
}
