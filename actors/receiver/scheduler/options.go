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

// Options is what every scheduler of a node shares. Fields are required unless they say what
// nil means.
type Options struct {
	// Fenced reports whether this process may not speak to receivers now, because other nodes may have counted it out.
	// It is called before every RCPT, by many goroutines at once, and must be quick.
	Fenced func() bool
	// Late reports whether a RCPT sent now might still be on its way in this machine when Fenced becomes true; it isn't
	// sent until that is clear. Called as Fenced is; nil: never.
	Late func() bool
	// Facts stores what was learned of receivers beyond a move; nil: nothing is stored.
	Facts facts.Store
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
	Weight func(workspace uuid.UUID) int
	Waits  []time.Duration // of a penalty that names no time: first, second, … in a row
	Slots  *registry.Slots
	Rules  func() *verdict.Rules // those in force, which may change
	// Busy reports whether the run queue of this node is long; nil: it never is. While it is, no host gets a second
	// session.
	Busy    func() bool
	Log     *slog.Logger
	Guard   *process.PanicGuard // of goroutines; nil: none
	Metrics *Metrics

	// Stretch multiplies the waits between actors, clients and connections, for hosts that are down and for a refused
	// source, for tests on real sockets; 0: they are as their constants say.
	Stretch float64
}

// Stretched gives how long a wait is that tests stretch.
func (o *Options) Stretched(d time.Duration) time.Duration {
	if o.Stretch == 0 {
		return d
	}
	return time.Duration(float64(d) * o.Stretch)
}

// restHour is the length of an hour in the suspensions of a refused source.
func (o *Options) restHour() throttle.Hour { return throttle.Hour(o.Stretched(o.scaleHour(time.Hour))) }

// Bind gives the pool of sources the node's settings.
func (o *Options) Bind() {
	o.Sources.Bind(egress.Settings{Limits: o.SourceOf, Facts: o.Facts, Clock: o.Clock, Log: o.Log, Guard: o.Guard})
}

// scaleHour scales d by the length of an hour for the sources.
func (o *Options) scaleHour(d time.Duration) time.Duration { return o.Sources.Hour.Of(d) }

// ledgerTime gives the time of the ledger.
func (o Options) ledgerTime(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}
