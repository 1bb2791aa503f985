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

// Options are shared by all schedulers of a node. A field is required unless its comment says what nil means.
type Options struct {
	// Fenced reports whether this process may not speak to receivers now, because other nodes may no longer count on it.
	// Many goroutines call it at once, before every RCPT, so it must be quick.
	Fenced func() bool
	// Late reports whether a RCPT sent now might still be inside this machine when Fenced becomes true. While Late is
	// true, no RCPT is sent. Called as Fenced is; nil: never.
	Late func() bool
	// Facts stores what was learned of receivers, so that it survives a move; nil: nothing is stored.
	Facts facts.Store
	// Clock is the ledger's time, for Facts; nil: this host's.
	Clock   func() time.Time
	Sources *egress.Pool                     // our source addresses
	Allow   func(key string) throttle.Limits // the present limits of a receiver
	// Stated reports whether an operator has set the RCPT rate of a receiver, so that it needn't begin slowly; nil:
	// always.
	Stated func(key string) bool
	// SourceOf returns an operator's settings for one of our sources, by its address: whether it is paused, and its daily
	// cap; nil: there are none.
	SourceOf func(name string) throttle.Limits
	// Said returns who set a field to which value, the value in force last. name is a receiver, or "source:" and a
	// source's address. Times are the ledger's. Nil: not known.
	Said func(name string, f throttle.Field) []throttle.Said
	// Weight returns how many addresses of a workspace are asked while one of a workspace of weight 1 is; nil: all weigh
	// the same.
	Weight func(workspace uuid.UUID) int
	Waits  []time.Duration // waits of penalties that name no time: first, second, … in a row
	Slots  *registry.Slots
	Rules  func() *verdict.Rules // the rules in force, which may change
	// Busy reports whether the run queue of this node is long; nil: never. While it is, no host gets a second session.
	Busy    func() bool
	Log     *slog.Logger
	Guard   *process.PanicGuard // guards goroutines against panics; nil: no guard
	Metrics *Metrics

	// Stretch is for tests on real sockets. Stretch multiplies the waits between actors, clients and connections, for a
	// host that is down, and for a refused source. 0 stands for 1.
	Stretch float64
}

// Stretched returns a wait times Stretch.
func (o *Options) Stretched(d time.Duration) time.Duration {
	if o.Stretch == 0 {
		return d
	}
	return time.Duration(float64(d) * o.Stretch)
}

// suspensionHour returns the length of an hour for the suspensions of a refused source.
func (o *Options) suspensionHour() throttle.Hour {
	return throttle.Hour(o.Stretched(o.scaleHour(time.Hour)))
}

// Bind gives the pool of sources the node's settings.
func (o *Options) Bind() {
	o.Sources.Bind(egress.Settings{Limits: o.SourceOf, Facts: o.Facts, Clock: o.Clock, Log: o.Log, Guard: o.Guard})
}

// scaleHour scales d by the length of an hour at the sources.
func (o *Options) scaleHour(d time.Duration) time.Duration { return o.Sources.Hour.Of(d) }

func (o Options) ledgerTime(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}
