package domain

import (
	"context"
	crypto "crypto/rand"
	"math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/wire"
	"rollcall/smtp/mx"
)

// resolveJitter lengthens the pause before a receiver is looked up, by up to 1/resolveJitter, so that the domains of a
// lost node don't all ask at once.
const resolveJitter = 4

// routeTimeout bounds one lookup of a route, with its time in the queue. The resolver takes at most 20 s for the
// lookup.
const routeTimeout = 10 * time.Minute

// Actor is the shell around a planner.
type Actor struct {
	options    Options
	planner    *planner
	receiver   *actor.PID // nil: no receiver found yet
	timer      process.Timer
	quiet      time.Time // end of the quiet time, as last sent to the parent
	reported   Waits     // Waits last sent to the parent
	reportedAt time.Time
	woken      time.Time // when the last message came
	ctx        context.Context
	cancel     context.CancelFunc
}

type (
	done     func(c actor.Context, now time.Time) // what to do after background work
	panicked struct{}                             // background work panicked
)

// New makes the actor of one domain. The actor sends Finals, Quiet and Waits to its parent.
func New(o Options, w Work) actor.Actor {
	ctx, cancel := context.WithCancel(context.Background())
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // never fails: crypto/rand ends the process if reading fails
	now := time.Now()
	return &Actor{options: o, planner: newPlanner(now, o, w, seed), reportedAt: now, ctx: ctx, cancel: cancel}
}

// Receive implements actor.Actor. Nothing here blocks.
func (a *Actor) Receive(c actor.Context) {
	now := time.Now()
	if before := a.woken; !before.IsZero() && now.Sub(before) > silenceMax/2 {
		a.planner.backlog.receiver.heard = now // our process stood still, and the mail of that time is still to come
	}
	a.woken = now
	switch m := c.Message().(type) {
	case *actor.Started:
	case *actor.Stopping:
		a.stopWork(c)
		return
	case *actor.Stopped: // from now on whoever keeps the PID keeps only the actor in memory
		a.planner, a.receiver, a.reported = nil, nil, Waits{}
		return
	case *wire.OfferAck:
		a.planner.backlog.takeAck(now, m)
	case *wire.Results:
		a.planner.takeResults(now, m)
	case *wire.Pulse:
		a.takePulse(c, now, m)
	case *wire.Moved:
		if a.isCurrent(c.Sender(), m.GetTask()) {
			a.planner.backlog.takeMoved(now)
		}
	case *actor.Terminated:
		a.takeTermination(now, m)
	case Hold:
		a.planner.holdWork(now, m.On)
	case Park:
		if left, ok := a.planner.park(now); ok {
			c.Send(c.Parent(), left)
		} else {
			c.Send(c.Parent(), NotParked{})
		}
	case Resume:
		a.planner.held = false
	case Leave:
		a.planner.leaveWork(now)
	case CaughtUp:
	case done:
		m(c, now)
	case panicked:
		panic("a task of this domain panicked") // the parent restarts the actor
	case process.WakeUp:
		if _, ok := a.timer.Rang(m, now); !ok {
			return
		}
	default:
		return
	}
	a.plan(c, now)
}

// tellWaits tells the parent what the addresses wait for, if this has changed. tellWaits returns when to wake next.
func (a *Actor) tellWaits(c actor.Context, now, wake time.Time) time.Time {
	next := a.reportedAt.Add(tellEvery)
	if now.Before(next) && !a.hasConcluded() {
		return earliest(wake, next)
	}
	a.reportedAt = now
	if w := a.planner.waits(now); !w.equal(a.reported) {
		a.reported = w
		c.Send(c.Parent(), w)
		return earliest(wake, now.Add(tellEvery))
	}
	return wake
}

// hasConcluded reports whether addresses that waited for control probes have become final since the last report to the
// parent, which would still count them as waiting for the receiver.
func (a *Actor) hasConcluded() bool {
	before := 0
	for _, w := range a.reported.Waits {
		if w.For == inspect.ForControl {
			before += w.Addresses
		}
	}
	return a.planner.controls.countWeighed() < before && !a.planner.draining
}

func (a *Actor) plan(c actor.Context, now time.Time) {
	steps, finals, wake := a.planner.plan(now)
	for _, s := range steps {
		a.doStep(c, s)
	}
	if len(finals) > 0 {
		c.Send(c.Parent(), Finals{Domain: a.planner.work.Domain, Finals: finals, Done: a.planner.left == 0})
	}
	if a.planner.left == 0 {
		return
	}
	if left, ok := a.planner.exportLeft(now); ok {
		c.Send(c.Parent(), left)
		return
	}
	if until := a.planner.quietUntil(now); !until.Equal(a.quiet) {
		if a.quiet.IsZero() {
			a.reportedAt = time.Time{}
			wake = a.tellWaits(c, now, wake) // the customer sees the reason together with the state
		}
		a.quiet = until
		c.Send(c.Parent(), Quiet{Domain: a.planner.work.Domain, Until: until})
	}
	a.timer.Set(c, now, a.tellWaits(c, now, wake))
}

// doStep carries out one step. Work that may block runs in a goroutine.
func (a *Actor) doStep(c actor.Context, s step) {
	root, self, ctx := c.ActorSystem().Root, c.Self(), a.ctx
	beside, failed := process.GuardOf(c.ActorSystem()), func() { root.Send(self, panicked{}) }
	switch s := s.(type) {
	case findRoute:
		domain, tenant := a.planner.work.Domain, a.planner.work.Workspace.String()
		beside.Go("route", func() {
			within, cancel := context.WithTimeout(mx.For(ctx, tenant), routeTimeout)
			defer cancel()
			route, err := a.options.Route(within, domain)
			if err != nil {
				a.options.Log.Debug("route not found out", "domain", domain, "err", err)
			}
			root.Send(self, done(func(_ actor.Context, now time.Time) { a.planner.takeRoute(now, route, err) }))
		}, failed)
	case findReceiver:
		key := a.planner.route.key
		resolve := func() {
			if ctx.Err() != nil {
				return
			}
			pid := a.options.Resolve(key)
			root.Send(self, done(func(c actor.Context, now time.Time) {
				if a.planner.foundReceiver(key, pid != nil) && pid != nil {
					a.receiver = pid
					c.Watch(pid)
				}
			}))
		}
		if s.after > 0 {
			beside.After(s.after+rand.N(s.after/resolveJitter), "resolve", resolve, failed)
		} else {
			beside.Go("resolve", resolve, failed)
		}
	case recall:
		beside.Go("recall", func() {
			within, cancel := context.WithTimeout(ctx, recallWithin)
			defer cancel()
			a.options.Facts.Recall(within, s.keys...)
			root.Send(self, done(func(_ actor.Context, now time.Time) { a.planner.controls.recallOver(now) }))
		}, failed)
	case tell:
		if a.receiver != nil {
			c.Request(a.receiver, s.msg)
		}
	case reply:
		if c.Sender() != nil {
			c.Send(c.Sender(), s.msg)
		}
	case leave:
		if a.receiver != nil {
			c.Unwatch(a.receiver)
			a.receiver = nil
		}
	}
}

// isCurrent reports whether a message about a task comes from the present receiver.
func (a *Actor) isCurrent(sender *actor.PID, t *wire.Task) bool {
	return a.planner.backlog.isMine(t) && a.receiver != nil && a.receiver.Equal(sender)
}

// takePulse hands a pulse to the planner. If an earlier receiver still has our work, it gets a Cancel.
func (a *Actor) takePulse(c actor.Context, now time.Time, m *wire.Pulse) {
	if a.isCurrent(c.Sender(), m.GetTask()) {
		a.planner.backlog.takePulse(now, m)
	} else if c.Sender() != nil && a.planner.backlog.isMine(m.GetTask()) {
		c.Send(c.Sender(), &wire.Cancel{Task: m.GetTask()})
	}
}

// takeTermination tells the planner that a receiver actor ended. If the receiver actor stopped, our addresses may be
// the cause. If it can't be reached, our addresses aren't.
func (a *Actor) takeTermination(now time.Time, m *actor.Terminated) {
	if a.receiver == nil || !m.Who.Equal(a.receiver) {
		return
	}
	suspicion := 0
	if m.Why == actor.TerminatedReason_Stopped {
		suspicion = lostSure
	}
	a.planner.backlog.loseReceiver(now, suspicion)
}

// stopWork takes back what the receiver still has.
func (a *Actor) stopWork(c actor.Context) {
	a.cancel()
	a.timer.Stop()
	if a.receiver != nil {
		c.Unwatch(a.receiver) // a receiver keeps a list of its watchers
		if b := &a.planner.backlog; len(b.chunks) > 0 || b.receiver.behind > 0 {
			c.Send(a.receiver, &wire.Cancel{Task: b.task})
		}
	}
	a.planner.endWork()
}
