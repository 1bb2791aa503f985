package verification

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/domain"
	"rollcall/actors/process"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	tickEvery = 250 * time.Millisecond // how often pending outcomes and waiting are looked at

	// holdAfter: if the oldest outcome has waited longer for its settlement, asking stops. A healthy ledger settles in
	// settleEvery and some milliseconds.
	holdAfter = settleEvery + 2*time.Second

	// waitingDwell is the least time between a change of the status and the next change to waiting, so that it doesn't
	// flap.
	waitingDwell = 15 * time.Second

	// waitingMin is how far off the next try must be for the status to become waiting.
	waitingMin = 2 * time.Second

	// callWithin bounds one call of the ledger. A call cut short is made again.
	callWithin = 15 * time.Second

	// patience is how long a verification may be at work before its open addresses become unknown, which is free: at a
	// receiver that allows little, a long list of bad addresses would otherwise never end. It starts again with a new
	// owner. Guess.
	patience = 72 * time.Hour

	// crashPause is the pause before a crashed domain actor is restarted, doubled each time. Guess: the cause may pass.
	crashPause = time.Second

	// retryMax bounds the pause before a failed call is repeated.
	retryMax = 5 * time.Second
)

// mode is what the actor is doing.
type mode int

const (
	loading mode = iota
	working
	cancelling // cancel: nothing new; settle what is known, release the other credits
	draining   // drain: nothing new; settle what is known, store the state, return the lease
	closing    // the last call is under way
	ended
)

// Actor is the shell around a plan.
type Actor struct {
	options Options
	state   ledger.Verification // as the ledger last answered
	lease   ledger.Lease
	begun   time.Time // when the file was read
	// deadline is when open addresses become unknown. It goes on from the run that parked.
	deadline time.Time
	mode     mode
	plan     *plan
	domains  domainActors

	nearly     bool  // Nearly was sent to the dispatcher
	left       int64 // this actor's part of options.Left
	settlement settlement
	marks      marks
	looking    looking
	seen       status
	parking    *parking  // nil: it isn't being parked
	parkAt     time.Time // not before
	quietAt    time.Time // since when nothing can be done for long

	ctx    context.Context
	cancel context.CancelFunc
	ticker *time.Timer
}

type domainActors struct {
	pids    map[string]*actor.PID
	counted int  // domains that options.Domain.Load counts
	held    bool // they offer nothing
}

type settlement struct {
	underWay bool
	number   int64 // the same when it is repeated
	failures int   // in a row
	retryAt  time.Time
}

// marks tell the ledger whether this verification waits, and until when.
type marks struct {
	waiting  bool // the ledger says so
	changed  time.Time
	estimate published // last written to the ledger
	underWay bool
	next     time.Time // none before, since the last one failed
}

// looking is the question whether the customer cancelled.
type looking struct {
	underWay bool
	again    bool // asked for while under way
}

type (
	tick     struct{}
	panicked struct{} // background work

	// done is the result of background work, and the step that follows.
	done struct {
		err  error
		then then
	}
	then func(c actor.Context, now time.Time, err error)
)

// New makes the actor of a leased verification.
func New(o Options, v ledger.Verification, l ledger.Lease) actor.Actor {
	ctx, cancel := context.WithCancel(ledger.WithTenant(context.Background(), v.Workspace))
	return &Actor{options: o, state: v, lease: l, ctx: ctx, cancel: cancel,
		domains: domainActors{pids: map[string]*actor.PID{}}}
}

// Receive implements actor.Actor. Nothing here blocks.
func (a *Actor) Receive(c actor.Context) {
	now := time.Now()
	switch m := c.Message().(type) {
	case *actor.Started:
		a.marks.waiting = a.state.Status == ledger.Waiting
		var l loaded
		a.runBeside(c, func() (err error) {
			l, err = load(a.ctx, a.options, a.state, a.lease)
			return err
		}, func(c actor.Context, now time.Time, err error) { a.loaded(c, now, l, err) })
		return
	case *actor.Stopping:
		a.stop()
		return
	case *actor.Stopped: // a kept PID then keeps only the actor in memory
		a.plan, a.domains, a.parking, a.seen = nil, domainActors{}, nil, status{}
		return
	case done:
		m.then(c, now, m.err)
	case domain.Finals:
		a.takeFinals(c, now, m)
	case domain.Waits:
		if w := a.open(m.Domain); w != nil {
			w.waits = m
		}
		return
	case Ask:
		c.Respond(a.answerStatus(now))
		return
	case domain.Quiet:
		if w := a.open(m.Domain); w != nil {
			a.plan.noteWait(w, m.Until)
		}
	case *actor.Terminated:
		a.restartDomain(c, now, m.Who)
	case domain.Parked:
		a.parked(c, m.Domain, m)
	case domain.NotParked:
		a.unpark(c, now, unparkedFor)
	case panicked:
		panic("a task of this verification panicked") // so that the dispatcher returns it
	case Look:
		a.checkCancelled(c)
	case Drain:
		a.drain(c)
	case Lost:
		a.end(c)
	case tick:
		a.schedule(c)
	default:
		return
	}
	a.advance(c, now)
}

// runBeside runs blocking work in a goroutine, then the next step in the mailbox.
func (a *Actor) runBeside(c actor.Context, work func() error, then then) {
	root, self := c.ActorSystem().Root, c.Self()
	process.GuardOf(c.ActorSystem()).Go("verification", func() { root.Send(self, done{work(), then}) },
		func() { root.Send(self, panicked{}) })
}

// callLedger is runBeside with a time limit.
func (a *Actor) callLedger(c actor.Context, work func(ctx context.Context) error, then then) {
	ctx := a.ctx
	a.runBeside(c, func() error {
		within, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		return work(within)
	}, then)
}

// stop ends the goroutines beside the actor; its domain actors end with it.
func (a *Actor) stop() {
	a.cancel()
	if a.ticker != nil {
		a.ticker.Stop()
	}
	a.options.Metrics.domains.Sub(float64(len(a.domains.pids)))
	a.options.Domain.Load.End(a.state.Workspace, a.domains.counted)
	a.addLeft(-a.left)
}

func (a *Actor) addLeft(n int64) {
	a.left += n
	a.options.Left.Add(n)
}

func (a *Actor) schedule(c actor.Context) {
	root, self := c.ActorSystem().Root, c.Self()
	a.ticker = time.AfterFunc(tickEvery, func() { root.Send(self, tick{}) })
}

func (a *Actor) loaded(c actor.Context, now time.Time, m loaded, err error) {
	if a.mode != loading {
		return // drained in the meantime
	}
	if errors.Is(err, errChanged) {
		a.options.Log.Error("file reads differently than when it was accepted", "verification", a.state.ID, "err", err)
		panic(err) // the dispatcher returns it, or the second time sets it aside
	}
	if err != nil {
		a.options.Log.Warn("verification left", "verification", a.state.ID, "err", err)
		a.end(c)
		return
	}
	a.state = m.state
	switch {
	case m.state.Status == ledger.Cancelling:
		a.mode = cancelling
	case m.plan == nil:
		a.end(c)
		return
	default:
		a.mode, a.plan, a.begun, a.deadline = working, m.plan, now, now.Add(patience)
		if m.left != nil {
			a.deadline = earliest(a.deadline, time.UnixMilli(m.left.Begun).Add(patience))
			a.plan.takeUp(m.left.Domains)
			a.marks.changed = now
		}
		a.marks.estimate = publishedOf(m.state, now)
		a.addLeft(int64(len(m.plan.order)))
		a.checkCancelled(c) // it may have been cancelled while the file was read
	}
	a.schedule(c)
}

// advance does everything that can be done now.
func (a *Actor) advance(c actor.Context, now time.Time) {
	switch a.mode {
	case working:
		a.pauseAsking(c, now)
		a.beginDomains(c, now)
		a.plan.throughput.note(now, a.plan.final, a.plan.next-len(a.plan.open))
		a.settlePending(c, now, false)
		if a.parking == nil {
			a.publishStatus(c, now)
		}
		a.park(c, now)
		if !a.nearly && a.plan.remaining() <= a.plan.file.Len()/nearlyShare {
			a.nearly = true
			c.Send(c.Parent(), Nearly{a.state.ID})
		}
	case cancelling, draining:
		if a.plan != nil {
			if a.mode == cancelling {
				a.stopDomains(c)
			}
			a.settlePending(c, now, true)
		}
		if busy := a.settlement.underWay || a.marks.underWay || a.isLeaving(); !busy && (a.plan == nil || len(a.plan.pending) == 0) {
			a.closeWork(c)
		}
	}
}

// isLeaving reports whether domains have to send their state, or it is being packed or stored.
func (a *Actor) isLeaving() bool {
	p := a.parking
	return p != nil && (p.writing || a.mode == draining && len(p.missing) > 0)
}

// pauseAsking stops asking while outcomes can't be settled, and resumes when they can: whatever isn't settled when the
// lease ends is asked again by the next owner.
func (a *Actor) pauseAsking(c actor.Context, now time.Time) {
	held := len(a.plan.pending) > 0 && now.Sub(a.plan.since) >= holdAfter
	if held == a.domains.held {
		return
	}
	a.domains.held = held
	for _, pid := range a.domains.pids {
		c.Send(pid, domain.Hold{On: held})
	}
}

func (a *Actor) beginDomains(c actor.Context, now time.Time) {
	load := a.options.Domain.Load
	load.End(a.state.Workspace, a.domains.counted-len(a.plan.open)) // what is over
	a.domains.counted = len(a.plan.open)
	a.plan.crowded = false
	most := min(a.options.DomainsMax, a.options.Window.Size())
	for !a.domains.held && a.parking == nil && a.plan.mayBegin(most) {
		if !load.Begin(a.state.Workspace) {
			a.plan.crowded = true
			return
		}
		a.domains.counted++
		if name, ok := a.plan.begin(most); ok {
			a.spawnDomain(c, now, name)
		}
	}
	if most < a.options.DomainsMax && a.plan.mayBegin(a.options.DomainsMax) {
		a.options.Window.Want()
	}
}

func (a *Actor) spawnDomain(c actor.Context, now time.Time, name string) {
	file, open := a.plan.file, a.plan.open[name]
	a.plan.noteWait(open, time.Time{})
	open.begun, open.waits = now, domain.Waits{}
	w := domain.Work{Verification: a.state.ID, Workspace: a.state.Workspace, Epoch: a.lease.Epoch,
		Domain: name, Tries: open.crashes, Ordinals: a.plan.ordinals(open), Deadline: a.deadline, Left: a.plan.left[name],
		Local: func(ordinal uint32) string { return file.Address(int(ordinal)).Local }, LedgerBehind: &a.plan.behind}
	delete(a.plan.left, name) // a domain that crashed on it restarts
	pid := c.Spawn(actor.PropsFromProducer(func() actor.Actor { return domain.New(a.options.Domain, w) },
		process.GuardOf(c.ActorSystem()).Dispatch()))
	c.Watch(pid)
	a.domains.pids[name] = pid
	if a.domains.held {
		c.Send(pid, domain.Hold{On: true})
	}
	a.options.Metrics.domains.Inc()
}

func (a *Actor) open(name string) *work {
	if a.plan == nil {
		return nil
	}
	return a.plan.open[name]
}

// takeFinals takes outcomes; those that come after a cancel began aren't counted.
func (a *Actor) takeFinals(c actor.Context, now time.Time, m domain.Finals) {
	w := a.open(m.Domain)
	if a.mode != working && a.mode != draining || w == nil {
		return
	}
	a.unpark(c, now, unparkedFor)
	before := a.plan.final
	a.plan.take(now, m.Finals)
	w.left -= a.plan.final - before
	if m.Done {
		if w.size <= smallMax {
			a.plan.durations.add(now.Sub(w.begun))
		}
		a.finishDomain(c, m.Domain)
		a.parked(c, m.Domain)
	}
}

func (a *Actor) finishDomain(c actor.Context, name string) {
	a.plan.end(name)
	if pid := a.domains.pids[name]; pid != nil {
		delete(a.domains.pids, name)
		c.Unwatch(pid)
		c.Stop(pid)
		a.options.Metrics.domains.Dec()
	}
}

func (a *Actor) stopDomains(c actor.Context) {
	for name := range a.domains.pids {
		a.finishDomain(c, name)
	}
}

// restartDomain restarts a crashed domain actor after a pause, or gives its addresses up.
func (a *Actor) restartDomain(c actor.Context, now time.Time, who *actor.PID) {
	var name string
	for of, pid := range a.domains.pids {
		if pid.Equal(who) {
			name = of
		}
	}
	if name == "" {
		return
	}
	delete(a.domains.pids, name)
	a.options.Metrics.domains.Dec()
	a.options.Metrics.crashes.Inc()
	a.parked(c, name)
	w := a.open(name)
	if a.mode != working || w == nil {
		return
	}
	w.crashes++
	a.unpark(c, now, unparkedFor)
	a.options.Log.Error("domain actor crashed", "verification", a.state.ID, "domain", name, "attempt", w.crashes)
	if w.crashes < crashesMax {
		root, self := c.ActorSystem().Root, c.Self()
		time.AfterFunc(crashPause<<(w.crashes-1), func() {
			if a.ctx.Err() == nil {
				root.Send(self, done{nil, func(c actor.Context, now time.Time, _ error) {
					if a.mode == working && a.open(name) != nil {
						a.spawnDomain(c, now, name)
					}
				}})
			}
		})
		return
	}
	a.plan.giveUp(now, w)
	a.plan.end(name)
}

// settlePending commits what is pending, one settlement at a time.
func (a *Actor) settlePending(c actor.Context, now time.Time, atOnce bool) {
	if a.settlement.underWay || now.Before(a.settlement.retryAt) {
		return
	}
	last := len(a.plan.open) == 0 && a.plan.next == len(a.plan.ids)
	first := len(a.plan.batched) == 0
	results := a.plan.batch(now, atOnce || last)
	if results == nil {
		return
	}
	if first {
		// The ledger may have committed a settlement whose answer was lost, so a repeat must keep its number, or it
		// would be a second settlement.
		a.settlement.number = a.state.Settlements + 1
	}
	a.settlement.underWay = true
	s := ledger.Settlement{Lease: a.lease, Number: a.settlement.number, Results: results,
		Expected: whole(a.recentStatus(now).finish)}
	if a.marks.waiting {
		s.Why = a.recentStatus(now).sentence()
	}
	entries := a.plan.entries
	var state ledger.Verification
	var took time.Duration
	a.callLedger(c, func(ctx context.Context) (err error) {
		began := time.Now()
		ctx, span := a.options.Tracer.Begin(ctx, tracing.Settle)
		span.ID(tracing.Verification, s.Lease.Verification)
		span.Count(tracing.Settlement, s.Number)
		span.Count(tracing.Addresses, int64(len(results)))
		s.Evidence = a.packEvidence(entries)
		state, err = a.options.Book.Settle(ctx, s)
		span.End(err != nil)
		took = time.Since(began)
		return err
	}, func(c actor.Context, now time.Time, err error) {
		a.settlement.underWay = false
		if err != nil {
			a.retrySettlement(c, now, err)
			return
		}
		a.count(took)
		a.noteSettled(c, now, state)
	})
}

// packEvidence returns the evidence of outcomes as it is stored. Evidence that can't be packed, a fault of ours, is
// left out: the outcome matters more.
func (a *Actor) packEvidence(entries []evidence.Entry) []byte {
	packed, err := evidence.Pack(entries)
	if err != nil {
		a.options.Metrics.unkept.Inc()
		a.options.Log.Error("evidence of a settlement not stored", "verification", a.state.ID, "err", err)
		return nil
	}
	return packed
}

func (a *Actor) noteSettled(c actor.Context, now time.Time, state ledger.Verification) {
	a.settlement.failures = 0
	if a.plan.settled(now) {
		for name, w := range a.plan.open {
			if pid := a.domains.pids[name]; pid != nil && w.quiet.IsZero() {
				c.Send(pid, domain.CaughtUp{})
			}
		}
	}
	a.state = state
	a.marks.estimate = publishedOf(state, now)
	if state.Status.Final() {
		a.options.Log.Info("verification finished", "verification", state.ID, "status", state.Status,
			"settlement", state.Settlements)
		a.end(c)
		return
	}
	a.beginCancel(state)
}

func (a *Actor) count(took time.Duration) {
	a.options.Metrics.settlements.Inc()
	a.options.Metrics.settling.Observe(took.Seconds())
	a.addLeft(-int64(len(a.plan.batched)))
	type kind struct {
		outcome smtp.Outcome
		reason  smtp.Reason
	}
	kinds := map[kind]float64{}
	for _, r := range a.plan.batched {
		kinds[kind{r.Outcome, r.Reason}]++
	}
	for k, n := range kinds {
		a.options.Metrics.outcomes.WithLabelValues(k.outcome.String(), k.reason.String()).Add(n)
	}
}

// retrySettlement tries the same settlement again, unless the lease has ended.
func (a *Actor) retrySettlement(c actor.Context, now time.Time, err error) {
	if a.mode == ended {
		return // the lease is gone
	}
	a.options.Metrics.unsettled.Inc()
	if a.endIfRefused(c, err) {
		return
	}
	a.settlement.failures++
	a.settlement.retryAt = now.Add(pauseAfter(a.settlement.failures))
	if a.settlement.failures&(a.settlement.failures-1) == 0 { // fewer lines the longer it lasts
		a.options.Log.Warn("settlement not committed yet", "verification", a.state.ID,
			"settlement", a.settlement.number, "attempt", a.settlement.failures, "err", err)
	}
}

// pauseAfter returns how long to wait after n calls of the ledger failed in a row.
func pauseAfter(failures int) time.Duration {
	return min(200*time.Millisecond<<min(failures, 5), retryMax)
}

// endIfRefused ends the actor when the ledger says that its lease is gone.
func (a *Actor) endIfRefused(c actor.Context, err error) bool {
	if !final(err) {
		return false
	}
	a.options.Log.Warn("lease lost", "verification", a.state.ID, "epoch", a.lease.Epoch, "err", err)
	a.end(c)
	return true
}

// checkCancelled asks the ledger whether the customer cancelled.
func (a *Actor) checkCancelled(c actor.Context) {
	if a.mode != working || a.looking.underWay {
		a.looking.again = a.looking.underWay // the answer under way may be older than the cancel
		return
	}
	a.looking.underWay, a.looking.again = true, false
	state := a.state
	a.callLedger(c, func(ctx context.Context) (err error) {
		state, err = a.options.Book.Verification(ctx, state.Workspace, state.ID)
		return err
	}, func(c actor.Context, _ time.Time, err error) {
		a.looking.underWay = false
		if err == nil {
			a.beginCancel(state)
		}
		if a.looking.again {
			a.checkCancelled(c)
		}
	})
}

func (a *Actor) beginCancel(state ledger.Verification) {
	if state.Status == ledger.Cancelling && a.mode == working {
		a.mode = cancelling
	}
}

func (a *Actor) drain(c actor.Context) {
	switch a.mode {
	case working:
		if a.mode = draining; a.parking == nil || a.parking.state == nil { // otherwise the ledger may have it
			a.askParked(c, time.Time{}, domain.Leave{})
		}
	case loading: // a file being read is read again by the next owner
		a.cancel()
		a.mode = closing
		a.releaseLease(c)
	}
}

// closeWork makes the last call of a cancel or a drain.
func (a *Actor) closeWork(c actor.Context) {
	if p := a.parking; a.mode == draining && p != nil && p.state != nil && p.failures == 0 {
		a.writeParked(c)
		return
	}
	if a.plan != nil {
		a.stopDomains(c)
	}
	drained := a.mode == draining
	if a.mode = closing; drained {
		a.releaseLease(c)
		return
	}
	a.callLedger(c, func(ctx context.Context) error {
		_, err := a.options.Book.FinishCancel(ctx, a.lease)
		return err
	}, a.endClosed)
}

func (a *Actor) releaseLease(c actor.Context) {
	a.runBeside(c, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return a.options.Book.Release(ctx, a.lease)
	}, a.endClosed)
}

// endClosed ends the actor. If its last call failed, the lease runs out and the next owner makes that call.
func (a *Actor) endClosed(c actor.Context, _ time.Time, err error) {
	if err != nil && !final(err) {
		a.options.Log.Warn("last step left to the next owner", "verification", a.state.ID, "err", err)
	}
	a.end(c)
}

func (a *Actor) end(c actor.Context) {
	if a.mode == ended {
		return
	}
	a.mode = ended
	a.cancel()
	if a.plan != nil {
		a.stopDomains(c)
	}
	c.Send(c.Parent(), Ended{Verification: a.state.ID})
}
