package scheduler

import (
	"log/slog"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/state"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Options is what every scheduler of a node shares. Fields are required unless they say what
// nil means.
type Options struct {
	// Fenced says that this process may not speak to receivers now, because it does
	// not know whether others took it for lost. It is asked before every RCPT, from
	// many goroutines at once, and must be quick.
	Fenced func() bool
	// Late says that a RCPT which is sent now might still be on its way, in this machine, when
	// Fenced becomes true: it is not sent before that is clear. Asked as Fenced; nil: never.
	Late func() bool
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
	Weight func(workspace uuid.UUID) int
	Waits  []time.Duration // of a penalty that names no time: first, second, … in a row
	Slots  *registry.Slots
	Rules  func() *verdict.Rules // those in force, which may change
	// Busy reports whether the run queue of this node is long; nil: it never is. Then no host is spoken to in
	// more than one session, as far as they aren't open already.
	Busy    func() bool
	Log     *slog.Logger
	Guard   *process.PanicGuard // of goroutines; nil: none
	Metrics *Metrics

	// Stretch makes the waits between actors, clients and connections, for hosts that are down and
	// for a source that is refused (waits) so many times as long, for tests on real sockets; 0:
	// they are as their constants say.
	Stretch float64
}

// Stretched gives how long a wait is that tests stretch.
func (o *Options) Stretched(d time.Duration) time.Duration {
	if o.Stretch == 0 {
		return d
	}
	return time.Duration(float64(d) * o.Stretch)
}

// restHour is the hour by which a source rests that is refused.
func (o *Options) restHour() throttle.Hour { return throttle.Hour(o.Stretched(o.scaleHour(time.Hour))) }

// Bind tells the pool of sources what it has to know of the node.
func (o *Options) Bind() {
	o.Sources.Bind(egress.Settings{Limits: o.SourceOf, Facts: o.Facts, Clock: o.Clock, Log: o.Log, Guard: o.Guard})
}

// scaleHour gives how long d lasts where an hour is that of the sources.
func (o *Options) scaleHour(d time.Duration) time.Duration { return o.Sources.Hour.Of(d) }

// ledgerTime gives the time of the ledger.
func (o Options) ledgerTime(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}
