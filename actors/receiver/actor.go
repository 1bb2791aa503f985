package receiver

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"rollcall/actors/facts"
	"rollcall/actors/process"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/wire"
)

// idleLife is how long an actor without work lives on, because it remembers what it learned. idleLife ends sooner if
// other receivers wait for its slot.
const idleLife = 10 * time.Minute

// Actor is the shell around a scheduler. Messages and session results go in; steps come out and are carried out.
type Actor struct {
	options    Options
	writer     *facts.Writer // nil: nothing is kept
	idle       time.Duration // how long the actor lives without work
	key        string
	waiting    *waiting               // holds offers until there is a slot; nil: there is one
	slot       *registry.ReceiverSlot // nil: no slot, and the actor doesn't wait for one
	released   bool                   // the slot has noted that another receiver may have it
	scheduler  *scheduler.Scheduler   // nil: the scheduler is not begun, or has ended
	scheduling scheduler.Options
	handle     *registry.Handle
	shareless  bool // counted as a receiver without a share
	sessions   map[int]*actor.PID
	timer      process.Timer
	paused     uint64 // long pauses of the process so far
}

// Kinds returns the kind of virtual actor that a node hosts. If a session actor panics, it is stopped and not
// restarted, because its SMTP session is gone.
func Kinds(o Options) map[string]*actor.Props {
	o.Registry.Guard, o.Registry.slots = o.Guard, registry.NewReceiverSlots(o.Most, o.Weight)
	w, scheduling := o.Registry.stateWriter(o), o.forScheduler()
	scheduling.Bind()
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	return map[string]*actor.Props{kind: actor.PropsFromProducer(func() actor.Actor {
		return newActor(o, scheduling, w, idleLife)
	}, actor.WithSupervisor(stop), actor.WithReceiverMiddleware(politely), o.Guard.Dispatch())}
}

// politely turns the poison pill, by which a cluster moves an actor, into a message. The actor needs time to end its
// sessions well.
func politely(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, envelope *actor.MessageEnvelope) {
		if _, ok := envelope.Message.(*actor.PoisonPill); ok {
			envelope = &actor.MessageEnvelope{Message: stopForMove{}}
		}
		next(c, envelope)
	}
}

// stopForMove asks an actor to end, because another node runs the receiver now.
type stopForMove struct{}

// departed tells an actor that its last fact is written, or couldn't be written.
type departed struct{}

// newActor makes an actor that ends after it had no work for idle.
func newActor(o Options, s scheduler.Options, w *facts.Writer, idle time.Duration) *Actor {
	return &Actor{options: o, scheduling: s, writer: w, idle: idle, sessions: map[int]*actor.PID{}}
}

// Resolver finds receiver actors by their key, with a cluster's Resolve.
func Resolver(resolve func(kind, identity string) *actor.PID) func(key string) *actor.PID {
	return func(key string) *actor.PID { return resolve(kind, key) }
}

// Receive implements actor.Actor. Nothing here blocks.
func (a *Actor) Receive(c actor.Context) {
	now := time.Now()
	switch m := c.Message().(type) {
	case *cluster.ClusterInit:
		a.key, a.waiting = m.Identity.Identity, &waiting{since: now, offers: map[wire.TaskKey]*heldOffer{}}
		a.options.Registry.subscribe(c.ActorSystem())
		a.timer.Set(c, now, now.Add(min(a.idle, heartbeatEvery)))
		return
	case *actor.Stopping:
		a.stop(c)
		return
	case *actor.Started, *actor.Stopped, *actor.Restarting:
		return
	}
	if a.waiting != nil {
		a.awaitSlot(c, now)
		return
	}
	if a.scheduler == nil {
		return
	}
	if n := a.options.pauses(); n != a.paused {
		a.paused = n
		a.scheduler.NotePause()
	}
	if a.work(c, now) {
		a.plan(c, now)
	}
}

// begin makes the scheduler of an actor that got its slot, and hands it the offers that came before.
func (a *Actor) begin(c actor.Context, now time.Time) {
	a.handle = a.options.Registry.Enter(a.key, a.options.Allow)
	a.scheduler = scheduler.New(a.handle, a.scheduling, now)
	root, self := c.ActorSystem().Root, c.Self()
	a.handle.Listen(func(msg any) { root.Send(self, msg) })
	a.paused = a.options.pauses()
	offers := a.waiting.offers
	a.waiting = nil
	for _, h := range offers {
		a.scheduler.Offer(now, h.client, h.offer)
	}
	a.plan(c, now)
}

// work hands one message to the scheduler and reports whether there may be something to do.
func (a *Actor) work(c actor.Context, now time.Time) bool {
	switch m := c.Message().(type) {
	case *wire.Offer:
		a.scheduler.Offer(now, clientOf(c.Sender()), m)
	case *wire.ResultsAck:
		a.scheduler.Acked(now, m)
	case *wire.Cancel:
		a.scheduler.Cancel(now, m)
	case sessionOpened:
		a.scheduler.SessionOpened(now, m.id, m.shown, m.failed)
	case scheduler.Report:
		a.scheduler.SessionWorked(now, m)
		m.Free()
	case sessionClosed:
		a.scheduler.SessionClosed(now, m.id)
	case sessionCrashed:
		a.scheduler.SessionCrashed(now, m.id)
	case question:
		m.at(a.scheduler, now)
		return m.changes
	case registry.Changed:
	case stopForMove:
		a.scheduler.HandOff(now)
	case registry.Yield:
		if !a.scheduler.HasWork() && !a.scheduler.HandingOff() {
			c.Stop(c.Self())
			return false
		}
		a.released = false
		a.slot.Stay()
	case departed:
		c.Stop(c.Self())
		return false
	case *actor.Terminated: // the actor of a session ended, and we didn't stop it
		for id, pid := range a.sessions {
			if pid.Equal(m.Who) {
				a.scheduler.SessionCrashed(now, id)
				return true
			}
		}
		return false
	case process.WakeUp:
		_, ok := a.timer.Rang(m, now)
		return ok
	default:
		return false
	}
	return true
}

// plan asks the scheduler what to do, carries it out, and sets the timer for the next time.
func (a *Actor) plan(c actor.Context, now time.Time) {
	steps, wake := a.scheduler.Plan(now)
	for _, s := range steps {
		a.doStep(c, s)
	}
	a.count(a.scheduler.HasNoShare())
	if a.scheduler.HandingOff() {
		a.timer.Set(c, now, wake)
		return
	}
	if idle := !a.scheduler.HasWork(); idle != a.released {
		a.released = idle
		a.slot.SetIdle(idle)
	}
	if since, idle := a.scheduler.IdleSince(); idle {
		if now.Sub(since) >= a.idle {
			c.Stop(c.Self())
			return
		}
		if wake.IsZero() {
			wake = since.Add(a.idle)
		}
	}
	a.timer.Set(c, now, wake)
}

func (a *Actor) doStep(c actor.Context, s scheduler.Step) {
	switch s := s.(type) {
	case scheduler.Send:
		if s.To.ID != "" {
			c.Request(pidOf(s.To), s.Msg)
		}
	case scheduler.OpenSession:
		pid := c.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return newSessionActor(a.scheduling, a.options.pauses, a.options.Tracer, s.Slot)
		}, a.options.Guard.Dispatch()))
		a.sessions[s.ID] = pid
		a.options.Metrics.opened.Inc()
		c.Send(pid, s)
	case scheduler.AskProbes:
		s.Pauses = a.paused
		c.Send(a.sessions[s.ID], s)
	case scheduler.QuitSession:
		c.Send(a.sessions[s.ID], s)
	case scheduler.DropSession:
		a.dismissSession(c, s.ID)
	case scheduler.KnowFact:
		root, self := c.ActorSystem().Root, c.Self()
		a.writer.Know(s.Key, func(f facts.Fact) {
			root.Send(self, question{func(s *scheduler.Scheduler, now time.Time) { s.Recall(now, f.Data) }, true})
		})
	case scheduler.KeepFact:
		a.writer.Keep(s.Fact, nil)
	case scheduler.Depart:
		a.depart(c, s)
	}
}

// depart ends the actor when what it learned is written.
func (a *Actor) depart(c actor.Context, s scheduler.Depart) {
	for _, slot := range a.scheduler.Slots() { // these sessions did not end in time
		slot.Abandon()
	}
	if s.Fact == nil {
		c.Stop(c.Self())
		return
	}
	root, self := c.ActorSystem().Root, c.Self()
	a.writer.Keep(*s.Fact, func() { root.Send(self, departed{}) })
}

func (a *Actor) count(barred bool) {
	if barred == a.shareless {
		return
	}
	if a.shareless = barred; barred {
		a.options.Metrics.shareless.Inc()
	} else {
		a.options.Metrics.shareless.Dec()
	}
}

func (a *Actor) dismissSession(c actor.Context, id int) {
	if pid := a.sessions[id]; pid != nil {
		c.Stop(pid)
		delete(a.sessions, id)
	}
}

// stop tells all clients that the actor ends. Sessions end with their actors.
func (a *Actor) stop(c actor.Context) {
	a.timer.Stop()
	if a.waiting != nil {
		a.waiting.release(c)
		a.waiting = nil
	}
	if a.slot != nil {
		defer a.slot.Leave()
	}
	if a.scheduler == nil {
		return
	}
	for id, slot := range a.scheduler.Slots() {
		if a.sessions[id] == nil { // never begun, because we crashed
			slot.Close()
		}
	}
	for _, s := range a.scheduler.ReleaseClients(time.Now()) {
		a.doStep(c, s)
	}
	if a.writer != nil {
		if fact, worth := a.scheduler.Unsaved(time.Now()); worth {
			a.writer.Keep(fact, nil)
		}
	}
	a.count(false)
	a.scheduler.Close(time.Now())
	a.handle.Leave()
	a.scheduler = nil // the session actors' last messages are still to come
}

func clientOf(sender *actor.PID) scheduler.Client {
	if sender == nil {
		return scheduler.Client{}
	}
	return scheduler.Client{Name: sender.Address + "/" + sender.Id, Address: sender.Address, ID: sender.Id}
}

func pidOf(c scheduler.Client) *actor.PID { return actor.NewPID(c.Address, c.ID) }
