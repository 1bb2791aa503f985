package scheduler

import (
	"log/slog"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/facts"
	"rollcall/actors/process"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Options are shared by all schedulers of a node. Fields are required unless they say what nil means.
type Options struct {
	// Fenced reports whether this process may not speak to receivers now, because other nodes may no longer count on
	// it. It is called before every RCPT, by many goroutines at once, and must be quick.
	Fenced func() bool
	// Late reports whether a RCPT sent now might still be inside this machine when Fenced becomes true; it isn't sent
	// while so. Called as Fenced is; nil: never.
	Late func() bool
	// Facts stores what was learned of receivers beyond a move; nil: nothing is stored.
	Facts facts.Store
	// Clock is the ledger's time, for Facts; nil: this host's.
	Clock   func() time.Time
	Sources *egress.Pool                     // our source addresses
	Allow   func(key string) throttle.Limits // the present limits of a receiver
	// Stated reports whether an operator has set the RCPT rate of a receiver, so that it needn't start slowly; nil:
	// always.
	Stated func(key string) bool
	// SourceOf returns an operator's settings for one of our sources, by its address: whether it is paused, and its
	// daily cap; nil: there are none.
	SourceOf func(name string) throttle.Limits
	// Said returns who set which value of a field of a receiver, or of "source:" and a source's address, in the
	// ledger's time, with the value in force last; nil: unknown.
	Said func(name string, f throttle.Field) []throttle.Said
	// Weight returns how many addresses of a workspace are asked for each one of a workspace of weight 1; nil: all
	// weigh the same.
	Weight func(workspace uuid.UUID) int
	Waits  []time.Duration // of a penalty without a named time: first, second, … in a row
	Slots  *registry.Slots
	Rules  func() *verdict.Rules // the rules in force, which may change
	// Busy reports whether the run queue of this node is long; nil: it never is. While it is, no host gets a second
	// session.
	Busy    func() bool
	Log     *slog.Logger
	Guard   *process.PanicGuard // of goroutines; nil: none
	Metrics *Metrics

	// Stretch is for tests on real sockets. It multiplies the waits between actors, clients and connections, and those for
	// a host that is down and for a refused source; 0: 1.
	Stretch float64
}

// Stretched returns a wait times Stretch.
func (o *Options) Stretched(d time.Duration) time.Duration {
	if o.Stretch == 0 {
		return d
	}
	return time.Duration(float64(d) * o.Stretch)
}

// suspensionHour returns the length of an hour in the suspensions of a refused source.
func (o *Options) suspensionHour() throttle.Hour {
	return throttle.Hour(o.Stretched(o.scaleHour(time.Hour)))
}

// Bind gives the pool of sources the node's settings.
func (o *Options) Bind() {
	o.Sources.Bind(egress.Settings{Limits: o.SourceOf, Facts: o.Facts, Clock: o.Clock, Log: o.Log, Guard: o.Guard})
}

// scaleHour scales d by the length of an hour for the sources.
func (o *Options) scaleHour(d time.Duration) time.Duration { return o.Sources.Hour.Of(d) }

// ledgerTime returns the time of the ledger.
func (o Options) ledgerTime(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}
