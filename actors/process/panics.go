package process

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrPanicked is the error of work that panicked.
var ErrPanicked = errors.New("it panicked: a fault of this program, whose log has the stack")

// stacksEvery is the least time between two logged stacks of panics in one place: an address that causes a panic may
// come a thousand times a second.
const stacksEvery = 10 * time.Second

// PanicGuard starts work in goroutines and recovers its panics. Nil guards nothing: a panic ends the
// process, as without it. Safe for concurrent use.
type PanicGuard struct {
	log    *slog.Logger
	panics *prometheus.CounterVec
	pool   pool

	mu     sync.Mutex
	logged map[string]*place // by where
}

// place counts the panics recovered at one place.
type place struct {
	at    time.Time // when one was logged
	since int       // panics since then that weren't logged
}

// NewPanicGuard makes a guard and registers its metric.
func NewPanicGuard(r prometheus.Registerer, log *slog.Logger) *PanicGuard {
	g := &PanicGuard{log: log, logged: map[string]*place{}, pool: pool{work: make(chan func())},
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_panics_total",
			Help: "Panics that were recovered, by what panicked; each is a fault of this program."}, []string{"where"})}
	r.MustRegister(g.panics)
	return g
}

// Run does work. It returns ErrPanicked when the work panicked. Where names the work in one word: the label of the
// metric.
func (g *PanicGuard) Run(where string, work func()) (err error) {
	if g != nil {
		defer func() {
			if r := recover(); r != nil {
				err = ErrPanicked
				g.logPanic(where, r, debug.Stack())
			}
		}()
	}
	work()
	return nil
}

// Go runs work in its own goroutine, and failed there if work panicked; failed may be nil. Work must release its locks
// with defer.
func (g *PanicGuard) Go(where string, work, failed func()) {
	if g == nil {
		go g.runGuarded(where, work, failed)
		return
	}
	g.pool.startWork(func() { g.runGuarded(where, work, failed) })
}

// After is Go after a delay, unless the returned timer is stopped before.
func (g *PanicGuard) After(wait time.Duration, where string, work, failed func()) *time.Timer {
	return time.AfterFunc(wait, func() { g.runGuarded(where, work, failed) })
}

func (g *PanicGuard) runGuarded(where string, work, failed func()) {
	if g.Run(where, work) != nil && failed != nil {
		_ = g.Run(where, failed)
	}
}

// logPanic counts a panic, and logs it.
func (g *PanicGuard) logPanic(where string, reason any, stack []byte) {
	g.panics.WithLabelValues(where).Inc()
	if unlogged, due := g.mayLog(where, time.Now()); due {
		g.log.Error("panic", "where", where, "what", kindOf(reason), "unlogged", unlogged, "stack", string(stack))
	}
}

// mayLog reports whether a panic is logged, and how many were left out since the last that was.
func (g *PanicGuard) mayLog(where string, now time.Time) (unlogged int, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.logged[where]
	if p == nil {
		p = &place{at: now.Add(-stacksEvery)}
		g.logged[where] = p
	}
	if now.Sub(p.at) < stacksEvery {
		p.since++
		return 0, false
	}
	unlogged, p.at, p.since = p.since, now, 0
	return unlogged, true
}

// kindOf names the kind of a panic, without its text unless it is a runtime error's.
func kindOf(reason any) string {
	if fault, ok := reason.(runtime.Error); ok {
		return fault.Error()
	}
	return fmt.Sprintf("%T", reason)
}

var extension = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (g *PanicGuard) ExtensionID() extensions.ExtensionID { return extension }

// Install makes this the guard of all actors of a system. It is called before the first of them is made.
func (g *PanicGuard) Install(system *actor.ActorSystem) { system.Extensions.Register(g) }

// GuardOf returns the guard of an actor system; nil: it has none.
func GuardOf(system *actor.ActorSystem) *PanicGuard {
	g, _ := system.Extensions.Get(extension).(*PanicGuard)
	return g
}

// Timer is one actor's next wake-up. The zero Timer is not set. Mailbox only.
type Timer struct {
	set   bool
	timer *time.Timer // of the newest Set; nil: it was due at once
	due   time.Time
	seq   uint64
}

// WakeUp is the message that a timer sends to its actor.
type WakeUp struct{ seq uint64 }

// Set wakes the actor of c at a time, or now if that is past. A timer already set to an earlier time stays; the zero
// time sets nothing.
func (t *Timer) Set(c actor.Context, now, wake time.Time) {
	if wake.IsZero() || t.set && !wake.Before(t.due) {
		return
	}
	t.Stop()
	t.seq++
	root, self, turn := c.ActorSystem().Root, c.Self(), t.seq
	t.set, t.due = true, wake
	if !wake.After(now) {
		// Never a timer of length zero: in a synctest bubble Go 1.26 runs it on the caller's stack, where the race
		// detector crashes.
		root.Send(self, WakeUp{turn})
		return
	}
	t.timer = GuardOf(c.ActorSystem()).After(wake.Sub(now), "timer", func() { root.Send(self, WakeUp{turn}) }, nil)
}

// Rang takes a WakeUp, unsets the timer, and returns how late it is. False: the message is of an older setting.
func (t *Timer) Rang(m WakeUp, now time.Time) (late time.Duration, ok bool) {
	if m.seq != t.seq || !t.set {
		return 0, false
	}
	t.set, t.timer = false, nil
	return now.Sub(t.due), true
}

// Stop unsets the timer.
func (t *Timer) Stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.set, t.timer = false, nil
}
