package receiver

import (
	"rollcall/actors/receiver/scheduler"
	"rollcall/ledger/tracing"
)

// kind is the name of this virtual actor's kind in the cluster.
const kind = "receiver"

// Options are shared by the receiver actors of a node: the options of their schedulers, except Metrics, and those of
// the actors. Fields are required unless they say what nil means.
type Options struct {
	scheduler.Options
	Registry *Registry // the receivers of this node
	// Pauses counts the long pauses of this process (process.Watchdog). In a pause others may have taken over the
	// probes that weren't begun: the actor drops these, and its client offers them again. Called as Fenced; may be nil.
	Pauses  func() uint64
	Most    int // receivers in work on this node at a time (NewReceiverSlots); 0: not bounded
	Metrics *Metrics
	Tracer  *tracing.Tracer // nil: nothing is traced
}

func (o *Options) forScheduler() scheduler.Options {
	out := o.Options
	out.Metrics = o.Metrics.Metrics
	return out
}

// pauses returns the number of long pauses until now.
func (o *Options) pauses() uint64 {
	if o.Pauses == nil {
		return 0
	}
	return o.Pauses()
}
