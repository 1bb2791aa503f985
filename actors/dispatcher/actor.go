package dispatcher

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/actors/verification"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

type leased struct {
	workspace uuid.UUID
	epoch     int64
	bytes     int64
	asked     time.Time  // when it was taken or renewed: it lasts leaseTTL from then
	came      time.Time  // when we knew of it
	pid       *actor.PID // of its verification's actor; nil: it waits for memory
	nearly    bool       // nearly all of it is answered
}

// shell is the dispatcher's actor. Mailbox only.
type shell struct {
	options   Options
	held      *atomic.Int64 // number of leases, read by other goroutines
	admission admissionQueue
	rounds    workspaceRounds
	leased    map[uuid.UUID]*leased
	noting    map[uuid.UUID]bool // crashed, not yet told to the ledger
	ready     bool               // the leases of an earlier process are returned
	calls     int                // calls of the ledger without an answer
	search    searching
	renewal   renewing
	drained   []chan<- struct{} // waiting for the end of a drain
	draining  bool              // no work is taken: a drain was asked for, or the dispatcher stops
	stopping  bool
	ctx       context.Context
	cancel    context.CancelFunc
	stopSweep context.CancelFunc // nil: none is under way
}

type searching struct {
	underWay bool
	failed   int  // in a row
	skipped  int  // in a row, to leave work to other nodes
	again    bool // asked for while under way
}

func newShell(o Options, held *atomic.Int64) *shell {
	ctx, cancel := context.WithCancel(context.Background())
	return &shell{options: o, held: held, admission: newAdmissionQueue(o.BytesMax, o.Weight),
		rounds: newWorkspaceRounds(o.LeasesMax, o.Weight), leased: map[uuid.UUID]*leased{}, noting: map[uuid.UUID]bool{},
		ctx: ctx, cancel: cancel}
}

// eachRunning returns the leases whose verifications have an actor here.
func (s *shell) eachRunning() iter.Seq2[uuid.UUID, *leased] {
	return func(yield func(uuid.UUID, *leased) bool) {
		for id, l := range s.leased {
			if l.pid != nil && !yield(id, l) {
				return
			}
		}
	}
}

type (
	wake   struct{}
	search struct{}
	renew  struct{}
	sweep  struct{}
	drain  struct{ draining bool }
	stop   struct{ done chan<- struct{} }
	ask    struct{ id uuid.UUID } // what a verification waits for

	// answer is the result of a call of the ledger, and the step that follows.
	answer struct {
		err  error
		then func(c actor.Context, now time.Time, err error)
	}
)

// Receive implements actor.Actor. Nothing here blocks.
func (s *shell) Receive(c actor.Context) {
	now := time.Now()
	switch m := c.Message().(type) {
	case *actor.Started:
		s.releaseOldLeases(c)
	case *actor.Stopping, *actor.Restarting:
		s.cancel()
	case wake:
		s.searchWork(c, now)
		s.checkCancelled(c)
	case search:
		s.expire(c, now)
		s.search.skipped++
		s.searchWork(c, now)
		s.after(c, searchEvery, search{})
	case renew:
		s.renew(c, now)
		s.after(c, renewEvery, renew{})
	case sweep:
		s.sweep(c)
		s.after(c, sweepEvery, sweep{})
	case answer:
		s.calls--
		m.then(c, now, m.err)
	case verification.Ended:
		s.ended(c, now, m.Verification)
	case verification.Nearly:
		s.nearly(c, now, m.Verification)
	case *actor.Terminated:
		for id, l := range s.eachRunning() {
			if l.pid.Equal(m.Who) {
				s.crashed(c, now, id)
				break
			}
		}
	case ask:
		s.forwardLookup(c, m.id)
		return
	case drain:
		if m.draining {
			s.drain(c)
		} else {
			s.undrain(c, now)
		}
	case stop:
		s.stopping, s.drained = true, append(s.drained, m.done)
		s.drain(c)
	}
	s.held.Store(int64(len(s.leased)))
	s.setMetrics()
	s.announceDrained()
}

func (s *shell) after(c actor.Context, wait time.Duration, message any) {
	root, self := c.ActorSystem().Root, c.Self()
	time.AfterFunc(wait, func() {
		if s.ctx.Err() == nil {
			root.Send(self, message)
		}
	})
}

// call asks the ledger in a goroutine, and handles the answer in the mailbox.
func (s *shell) call(
	c actor.Context, ctx context.Context, ask func(ctx context.Context) error,
	then func(c actor.Context, now time.Time, err error),
) {
	s.calls++
	root, self := c.ActorSystem().Root, c.Self()
	process.GuardOf(c.ActorSystem()).Go("dispatcher", func() {
		within, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		root.Send(self, answer{ask(within), then})
	}, func() { root.Send(self, answer{process.ErrPanicked, then}) })
}

// checkCancelled makes the verifications see whether they were cancelled.
func (s *shell) checkCancelled(c actor.Context) {
	for _, l := range s.eachRunning() {
		c.Send(l.pid, verification.Look{})
	}
}

func (s *shell) searchWork(c actor.Context, now time.Time) {
	if s.search.underWay {
		s.search.again = true
		return
	}
	room := min(s.options.LeasesMax-len(s.leased), leaseAtOnce)
	if !s.ready || s.draining || room <= 0 {
		return
	}
	if s.search.skipped < leaveLooks && s.options.Ahead(s.weight()) {
		s.search.again = false
		return // the next round counts it
	}
	s.search.skipped = 0
	s.search.underWay, s.search.again = true, false
	except, asked := s.rounds.except(), now
	var found []ledger.Verification
	s.call(c, s.ctx, func(ctx context.Context) (err error) {
		found, err = s.options.Book.Lease(ctx, s.options.Node, room, leaseTTL, except...)
		s.trace(asked, found, err)
		return err
	}, func(c actor.Context, now time.Time, err error) {
		s.search.underWay = false
		if err != nil {
			if s.search.failed++; s.search.failed&(s.search.failed-1) == 0 { // fewer lines the longer it lasts
				s.options.Log.Warn("verifications not leased", "attempt", s.search.failed, "err", err)
			}
			return
		}
		s.search.failed = 0
		s.beginLeased(c, now, asked, found)
		if s.draining {
			s.releaseWaiting(c)
			return
		}
		s.begin(c, now)
		if s.search.again || len(found) == room || s.rounds.round() { // there may be more
			s.searchWork(c, now)
		}
	})
}

// trace records a look that found work or failed; most find none.
func (s *shell) trace(began time.Time, states []ledger.Verification, err error) {
	if len(states) == 0 && err == nil {
		return
	}
	told := s.options.Work.Tracer.Past(tracing.Lease, began)
	told.Count(tracing.Leases, int64(len(states)))
	if len(states) == 1 {
		told.ID(tracing.Verification, states[0].ID)
	}
	told.End(err != nil)
}

// weight returns how many leases this node has, and about how many addresses.
func (s *shell) weight() (leases int, addresses int64) {
	for _, l := range s.leased {
		addresses += l.bytes / addressBytes
	}
	return len(s.leased), addresses
}

// beginLeased notes verifications that were leased, and gives back those that can't be begun.
func (s *shell) beginLeased(c actor.Context, now, asked time.Time, found []ledger.Verification) {
	for _, v := range found {
		switch old := s.leased[v.ID]; {
		case old == nil:
		case old.pid != nil: // ours ran out: its actor must end before the next begins
			c.Send(old.pid, verification.Lost{})
			s.release(c, v.ID, v.Epoch)
			continue
		default: // still queued under an earlier epoch
			s.rounds.ended(old.workspace)
			s.admission.leave(v.ID)
		}
		if !s.rounds.noteLease(v.Workspace) {
			s.release(c, v.ID, v.Epoch)
			continue
		}
		s.leased[v.ID] = &leased{workspace: v.Workspace, epoch: v.Epoch, bytes: v.Bytes, asked: asked, came: now}
		if v.Epoch > 1 {
			s.options.Metrics.takenOver.Inc()
		}
		s.admission.join(now, v)
	}
}

// begin starts an actor for each verification that there is memory for.
func (s *shell) begin(c actor.Context, now time.Time) {
	for {
		v, ok := s.admission.next(now)
		if !ok {
			return
		}
		l := ledger.Lease{Verification: v.ID, Node: s.options.Node, Epoch: v.Epoch}
		props := actor.PropsFromProducer(func() actor.Actor { return verification.New(s.options.Work, v, l) },
			actor.WithSupervisor(actor.NewOneForOneStrategy(0, 0, stopFailing)))
		pid := c.Spawn(props)
		c.Watch(pid)
		s.leased[v.ID].pid = pid
	}
}

// stopFailing stops an actor that panicked: its parent watches it and knows what to do.
func stopFailing(any) actor.Directive { return actor.StopDirective }

// ended forgets a verification whose actor has ended.
func (s *shell) ended(c actor.Context, now time.Time, id uuid.UUID) {
	l := s.leased[id]
	if l == nil || l.pid == nil {
		return
	}
	c.Unwatch(l.pid)
	c.Stop(l.pid)
	s.forget(id)
	s.admission.ended(l.workspace, l.bytes, l.nearly)
	if !s.draining {
		s.begin(c, now)
		s.searchWork(c, now)
	}
}

// forget gives up what we knew of a lease.
func (s *shell) forget(id uuid.UUID) {
	if l, ok := s.leased[id]; ok {
		s.rounds.ended(l.workspace)
		delete(s.leased, id)
	}
}

// nearly lets another large file of the workspace begin when one is nearly done.
func (s *shell) nearly(c actor.Context, now time.Time, id uuid.UUID) {
	l := s.leased[id]
	if l == nil || l.pid == nil || l.nearly {
		return
	}
	l.nearly = true
	s.admission.nearly(l.workspace, l.bytes)
	if !s.draining {
		s.begin(c, now)
	}
}

// crashed returns a verification whose actor, or a goroutine of it, panicked.
func (s *shell) crashed(c actor.Context, now time.Time, id uuid.UUID) {
	l := ledger.Lease{Verification: id, Node: s.options.Node, Epoch: s.leased[id].epoch}
	s.options.Metrics.crashed.Inc()
	s.options.Log.Error("verification actor crashed", "verification", id, "epoch", l.Epoch)
	s.noting[id] = true
	var state ledger.Verification
	s.call(c, s.ctx, func(ctx context.Context) (err error) {
		state, err = s.options.Book.Crashed(ctx, l)
		return err
	}, func(_ actor.Context, _ time.Time, err error) {
		delete(s.noting, id)
		switch {
		case err != nil && !errors.Is(err, ledger.ErrStaleEpoch): // its lease runs out
			s.options.Log.Warn("crash of a verification not recorded", "verification", id, "err", err)
		case err == nil && state.Status == ledger.Failed:
			s.options.Log.Error("verification set aside: its work crashed again and again", "verification", id,
				"workspace", state.Workspace)
		}
	})
	s.ended(c, now, id)
}

func (s *shell) setMetrics() {
	m := s.options.Metrics
	m.leases.Set(float64(len(s.leased)))
	m.bytes.Set(float64(s.admission.bytes()))
	m.waiting.Set(float64(len(s.admission.waiters)))
	m.full.Set(float64(len(s.rounds.leases.Full(s.options.Weight))))
}

func (s *shell) sweep(c actor.Context) {
	if s.stopSweep != nil || s.draining {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.stopSweep = cancel
	s.call(c, ctx, func(ctx context.Context) error {
		defer cancel()
		_, err := s.options.Book.Sweep(ctx, s.options.Retention)
		return err
	}, func(_ actor.Context, _ time.Time, err error) {
		s.stopSweep = nil
		if err != nil && !s.draining && !errors.Is(err, ledger.ErrClock) { // the ledger reports this once
			s.options.Log.Warn("sweep failed", "err", err)
		}
	})
}

// drain stops taking work and returns all leases.
func (s *shell) drain(c actor.Context) {
	s.draining = true
	for _, l := range s.eachRunning() {
		c.Send(l.pid, verification.Drain{})
	}
	s.releaseWaiting(c)
	if s.stopSweep != nil {
		s.stopSweep() // a sweep cut short has simply done less
	}
}

// undrain takes work again. Verifications that are still giving their leases back end; one that is leased again
// meanwhile begins when its old actor has ended.
func (s *shell) undrain(c actor.Context, now time.Time) {
	if s.stopping || !s.draining {
		return
	}
	s.draining = false
	s.searchWork(c, now)
}

func (s *shell) releaseWaiting(c actor.Context) {
	for _, w := range s.admission.waiters {
		s.forget(w.state.ID)
		s.release(c, w.state.ID, w.state.Epoch)
	}
	s.admission.waiters = nil
}

// announceDrained answers a drain once nothing runs and the ledger has answered every call, so that no lease can still
// arrive.
func (s *shell) announceDrained() {
	for range s.eachRunning() {
		return
	}
	if s.calls > 0 {
		return
	}
	for _, done := range s.drained {
		close(done)
	}
	s.drained = nil
}
