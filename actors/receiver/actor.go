package receiver

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"rollcall/actors/alarm"
	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
)

const (
	// idleLife is how long an actor without work lives on: it remembers what the
	// receiver taught us. A guess between memory (some KB) and that.
	idleLife = 10 * time.Minute

	// livingMax is how many actors may live on a node before those without work go
	// after crowdedLife: a file of 300,000 domains would fill the memory with them.
	// Measured: some 20 KB each.
	livingMax   = 1_000
	crowdedLife = 5 * time.Second

	// lateMax is how late a wake-up may be before we believe that the process was
	// paused, and drop what has not begun: others may have taken it over.
	lateMax = 3 * time.Second
)

// Actor is the shell around a scheduler: messages and sessions in, steps out.
type Actor struct {
	options  Options
	writer   *state.Writer // nil: nothing is kept
	idle     time.Duration // life without work
	desk     *Scheduler
	barred   bool // as the metric has it
	sessions map[int]*actor.PID
	ids      map[string]int // of sessions, by the id of their actor
	alarm    alarm.Alarm
}

// Kinds gives the kind of virtual actor that a node has to host. A session actor
// that panics is stopped, not begun anew: its SMTP session is gone.
func Kinds(o Options) (map[string]*actor.Props, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.bindSources()
	k := o.Living.stateWriter(o)
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	return map[string]*actor.Props{kind: actor.PropsFromProducer(func() actor.Actor {
		return newActor(o, k, idleLife)
	}, actor.WithSupervisor(stop), actor.WithReceiverMiddleware(politely))}, nil
}

// politely turns the request to stop after what is in the mailbox, which is how a
// cluster moves an actor, into a message: ending well takes a while.
func politely(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, envelope *actor.MessageEnvelope) {
		if _, ok := envelope.Message.(*actor.PoisonPill); ok {
			envelope = &actor.MessageEnvelope{Message: giveWay{}}
		}
		next(c, envelope)
	}
}

// giveWay asks an actor to end, because its place has moved.
type giveWay struct{}

// factKnown is what was found for a knowFact.
type factKnown struct{ data []byte }

// departed says that the last fact of an actor was written, or could not be.
type departed struct{}

// newActor makes an actor that stops when it had no work for idle.
func newActor(o Options, w *state.Writer, idle time.Duration) *Actor {
	return &Actor{options: o, writer: w, idle: idle, sessions: map[int]*actor.PID{}, ids: map[string]int{}}
}

// Resolver finds receiver actors by their key with a cluster's Resolve.
func Resolver(resolve func(kind, identity string) *actor.PID) func(key string) *actor.PID {
	return func(key string) *actor.PID { return resolve(kind, key) }
}

// Receive implements actor.Actor. Nothing here blocks.
func (a *Actor) Receive(c actor.Context) {
	now := time.Now()
	switch m := c.Message().(type) {
	case *cluster.ClusterInit:
		a.desk = New(m.Identity.Identity, a.options, now)
		root, self := c.ActorSystem().Root, c.Self()
		a.desk.allowance.handle.listen(func(msg any) { root.Send(self, msg) })
		a.options.Living.subscribe(c.ActorSystem())
		a.options.Metrics.living.Inc()
		a.alarm.Set(c, now, now.Add(min(a.idle, crowdedLife)))
		return
	case *actor.Stopping:
		a.stop(c)
		return
	case *actor.Started, *actor.Stopped, *actor.Restarting:
		return
	}
	if a.desk != nil && a.work(c, now) {
		a.plan(c, now)
	}
}

// work hands one message to the scheduler and says whether there may be something to do.
func (a *Actor) work(c actor.Context, now time.Time) bool {
	switch m := c.Message().(type) {
	case *wire.Offer:
		a.desk.Offer(now, clientOf(c.Sender()), m)
	case *wire.ResultsAck:
		a.desk.inbox.takeAck(now, m)
	case *wire.Cancel:
		a.desk.inbox.cancelTask(now, m)
	case sessionOpened:
		a.desk.allowance.learnSoftware(m.greeting)
		a.desk.outcomes.sessionOpened(now, m.id, m.failed)
	case Report:
		a.desk.outcomes.sessionWorked(now, m)
	case sessionClosed:
		a.desk.outcomes.sessionClosed(now, m.id)
	case sessionCrashed:
		a.desk.outcomes.sessionCrashed(now, m.id)
	case look:
		m.at(a.desk, now)
	case shareChanged, allowanceChanged:
	case clientsLost:
		a.desk.inbox.shedLost(m.address)
	case factKnown:
		a.desk.memory.recallSnapshot(now, m.data)
	case giveWay:
		a.desk.HandOff(now)
	case departed:
		c.Stop(c.Self())
		return false
	case *actor.Terminated: // of a session's actor that we did not stop
		id, ours := a.ids[m.Who.Id]
		if !ours {
			return false
		}
		a.desk.outcomes.sessionCrashed(now, id)
	case alarm.WakeUp:
		late, ok := a.alarm.Rings(m, now)
		if !ok {
			return false
		}
		if late > lateMax {
			a.options.Log.Warn("process was paused", "receiver", a.desk.key, "took", late)
			c.Stop(c.Self())
			return false
		}
	default:
		return false
	}
	return true
}

// life is how long an actor may be without work.
func (a *Actor) life() time.Duration {
	if a.options.Living.Count() > livingMax {
		return min(a.idle, crowdedLife)
	}
	return a.idle
}

// plan asks the scheduler what to do, does it, and sets the timer for the next time.
func (a *Actor) plan(c actor.Context, now time.Time) {
	steps, wake := a.desk.Plan(now)
	for _, s := range steps {
		a.do(c, s)
	}
	a.count(nothingAllowed(a.desk.allowance.limits))
	if a.desk.handingOff {
		a.alarm.Set(c, now, wake)
		return
	}
	if since, idle := a.desk.IdleSince(); idle {
		life := a.life()
		if now.Sub(since) >= life {
			c.Stop(c.Self())
			return
		}
		if soon := since.Add(crowdedLife); now.Before(soon) { // look then whether it is crowded
			life = min(life, crowdedLife)
		}
		if wake.IsZero() {
			wake = since.Add(life)
		}
	}
	a.alarm.Set(c, now, wake)
}

// do carries out one step.
func (a *Actor) do(c actor.Context, s Step) {
	switch s := s.(type) {
	case Send:
		if pid, _ := s.To.PID.(*actor.PID); pid != nil {
			c.Request(pid, s.Msg)
		}
	case OpenSession:
		pid := c.Spawn(actor.PropsFromProducer(func() actor.Actor { return newSessionActor(a.options, s.Slot) }))
		a.sessions[s.ID], a.ids[pid.Id] = pid, s.ID
		a.options.Metrics.sessions.Inc()
		a.options.Metrics.opened.Inc()
		c.Send(pid, s)
	case AskProbes:
		c.Send(a.sessions[s.ID], s)
	case QuitSession:
		c.Send(a.sessions[s.ID], s)
	case DropSession:
		a.dismiss(c, s.ID)
	case KnowFact:
		root, self := c.ActorSystem().Root, c.Self()
		a.writer.Know(s.Key, func(data []byte) { root.Send(self, factKnown{data}) })
	case KeepFact:
		a.writer.Keep(s.Fact, nil)
	case Depart:
		a.depart(c, s)
	}
}

// depart ends the actor as soon as what it learned is written.
func (a *Actor) depart(c actor.Context, s Depart) {
	for _, one := range a.desk.pool.sessions { // not in time
		one.socket.abandon()
	}
	if s.Fact == nil {
		c.Stop(c.Self())
		return
	}
	root, self := c.ActorSystem().Root, c.Self()
	a.writer.Keep(*s.Fact, func() { root.Send(self, departed{}) })
}

// count keeps the number of receivers without a share.
func (a *Actor) count(barred bool) {
	if barred == a.barred {
		return
	}
	if a.barred = barred; barred {
		a.options.Metrics.barred.Inc()
	} else {
		a.options.Metrics.barred.Dec()
	}
}

// dismiss stops the actor of a session that is over.
func (a *Actor) dismiss(c actor.Context, id int) {
	if pid := a.sessions[id]; pid != nil {
		c.Stop(pid)
		delete(a.sessions, id)
		delete(a.ids, pid.Id)
		a.options.Metrics.sessions.Dec()
	}
}

// stop tells everybody that this place is no more. Sessions end with their actors.
func (a *Actor) stop(c actor.Context) {
	a.alarm.Stop()
	if a.desk == nil {
		return
	}
	a.options.Metrics.living.Dec()
	a.options.Metrics.sessions.Sub(float64(len(a.sessions)))
	for id, s := range a.desk.pool.sessions {
		if a.sessions[id] == nil { // never begun: we crashed
			s.socket.close()
		}
	}
	for _, s := range a.desk.ReleaseClients(time.Now()) {
		a.do(c, s)
	}
	if a.writer != nil && !a.desk.gone && a.desk.dirty {
		if fact, worth := a.desk.memory.snapshot(time.Now()); worth {
			a.writer.Keep(fact, nil)
		}
	}
	a.count(false)
	a.desk.recorder.closeRecord(time.Now())
	a.desk.allowance.handle.leave()
	a.desk = nil // the sessions' actors are still heard when they end
}

// clientOf makes a sender known to the scheduler.
func clientOf(sender *actor.PID) Client {
	if sender == nil {
		return Client{}
	}
	return Client{Name: sender.Address + "/" + sender.Id, Address: sender.Address, PID: sender}
}
