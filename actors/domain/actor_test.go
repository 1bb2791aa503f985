package domain

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp/mx"
)

// stage is one domain actor with a parent and receivers that a test plays, in a bubble.
type stage struct {
	t        *testing.T
	system   *actor.ActorSystem
	parent   *actor.PID
	told     chan any      // by the actor to its parent
	waits    chan Waits    // the same
	offers   chan received // at any receiver
	resolved chan *actor.PID
}

// received is a message at a receiver.
type received struct {
	at, from *actor.PID
	msg      any
}

// withActor runs a test with a domain actor for two addresses.
func withActor(t *testing.T, test func(s *stage)) {
	t.Helper()
	withActorOf(t, func(*stage, *Options) {}, test)
}

// withActorOf does it with options that are changed.
func withActorOf(t *testing.T, change func(s *stage, o *Options), test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, told: make(chan any, 100), waits: make(chan Waits, 100), offers: make(chan received, 100),
			resolved: make(chan *actor.PID, 100)}
		s.system = actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Millisecond),
			actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
		o := testOptions()
		o.Route = func(context.Context, string) (mx.Route, error) {
			r := testRoute
			r.Expires = time.Now().Add(24 * time.Hour)
			return r, nil
		}
		o.Resolve = func(identity string) *actor.PID {
			effort.Is(t, identity, "receiver.test", "resolved")
			return <-s.resolved
		}
		change(s, &o)
		w := Work{Verification: uuid.UUID{7}, Epoch: 1, Domain: "example.test", Ordinals: []uint32{0, 1},
			Local: func(ordinal uint32) string { return []string{"anna", "bert"}[ordinal] }}
		s.parent = s.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
			switch m := c.Message().(type) {
			case *actor.Started:
				c.Spawn(actor.PropsFromProducer(func() actor.Actor { return New(o, w) }))
			case Finals, Quiet:
				s.told <- m
			case Waits:
				s.waits <- m
			}
		}))
		test(s)
		close(s.resolved)
		_ = s.system.Root.StopFuture(s.parent).Wait()
		s.system.Shutdown()
		<-time.After(time.Minute)
	})
}

// plays hands what a receiver gets to the test.
func (s *stage) plays(c actor.Context) {
	switch c.Message().(type) {
	case *wire.Offer, *wire.ResultsAck, *wire.Cancel:
		s.offers <- received{c.Self(), c.Sender(), c.Message()}
	}
}

// receiver spawns a receiver and makes it the one that is resolved next.
func (s *stage) receiver() *actor.PID {
	pid := s.system.Root.Spawn(actor.PropsFromFunc(s.plays))
	s.resolved <- pid
	return pid
}

// gets takes the next message that a receiver got.
func gets[M any](s *stage, at *actor.PID) (M, *actor.PID) {
	s.t.Helper()
	select {
	case r := <-s.offers:
		m, ok := r.msg.(M)
		effort.FatalIf(s.t, !ok || !r.at.Equal(at), "%v got %T %v", r.at, r.msg, r.msg)
		return m, r.from
	case <-time.After(time.Hour):
		s.t.Fatalf("%v got nothing", at)
	}
	panic("not reached")
}

// answers sends results for the first probes of an offer from a receiver.
func (s *stage) answers(from, to *actor.PID, o *wire.Offer, say judgement, n int) {
	m := results(o, 1, time.Now(), o.GetProbes()[:n], say.toAll)
	s.system.Root.RequestWithCustomSender(to, m, from)
}

func (s *stage) finals(want int, done bool) {
	s.t.Helper()
	for {
		select {
		case m := <-s.told:
			if f, ok := m.(Finals); ok {
				effort.FatalIf(s.t, len(f.Finals) != want || f.Done != done || f.Domain != "example.test",
					"told %+v, want %d finals, done: %v", f, want, done)
				return
			}
		case <-time.After(time.Hour):
			s.t.Fatal("the parent is told nothing")
		}
	}
}

func TestActorFollowsItsReceiver(t *testing.T) {
	for name, leave := range map[string]func(s *stage, r, self *actor.PID, task *wire.Task){
		"moved": func(s *stage, r, self *actor.PID, task *wire.Task) {
			s.system.Root.RequestWithCustomSender(self, &wire.Moved{Task: task}, r)
		},
		"stopped": func(s *stage, r, _ *actor.PID, _ *wire.Task) { _ = s.system.Root.StopFuture(r).Wait() },
		"silent":  func(*stage, *actor.PID, *actor.PID, *wire.Task) {},
	} {
		t.Run(name, func(t *testing.T) {
			withActor(t, func(s *stage) {
				old := s.receiver()
				first, self := gets[*wire.Offer](s, old)
				s.answers(old, self, first, refused, 1)
				gets[*wire.ResultsAck](s, old)
				s.finals(1, false)
				leave(s, old, self, first.GetTask())
				next := s.receiver()
				gets[*wire.Cancel](s, next) // it may be the same one, with what was offered to it
				second, _ := gets[*wire.Offer](s, next)
				p := second.GetProbes()
				effort.FatalIf(t, len(p) != 1 || p[0].GetLocal() != "bert" || second.GetChunk() == first.GetChunk(),
					"offered to the next: %v", second)
				s.answers(next, self, second, refused, 1)
				gets[*wire.ResultsAck](s, next)
				s.finals(1, true)
			})
		})
	}
}

// What an old receiver sends is acknowledged to it and not to the new one, which
// would leave it sending for ever; and its notice of moving is not the new one's.
func TestActorAnswersOldReceivers(t *testing.T) {
	withActor(t, func(s *stage) {
		old := s.receiver()
		first, self := gets[*wire.Offer](s, old)
		s.system.Root.RequestWithCustomSender(self, &wire.Moved{Task: first.GetTask()}, old)
		next := s.receiver()
		gets[*wire.Cancel](s, next)
		second, _ := gets[*wire.Offer](s, next)
		s.answers(old, self, first, refused, 2)
		ack, _ := gets[*wire.ResultsAck](s, old)
		effort.ErrorIf(t, ack.GetChunk() != first.GetChunk(), "acknowledged %v", ack)
		s.system.Root.RequestWithCustomSender(self, &wire.Moved{Task: first.GetTask()}, old)
		s.answers(next, self, second, refused, 2)
		gets[*wire.ResultsAck](s, next)
		s.finals(2, true)
	})
}

func TestActorTakesBackWhatIsOutWhenItIsStopped(t *testing.T) {
	withActor(t, func(s *stage) {
		r := s.receiver()
		offer, _ := gets[*wire.Offer](s, r)
		_ = s.system.Root.StopFuture(s.parent).Wait()
		m, _ := gets[*wire.Cancel](s, r)
		effort.ErrorIf(t, m.GetTask().Key() != offer.GetTask().Key(), "cancelled %v", m)
	})
}

func TestActorAsksControlProbesApart(t *testing.T) {
	withActor(t, func(s *stage) {
		r := s.receiver()
		offer, self := gets[*wire.Offer](s, r)
		s.answers(r, self, offer, accepted, 2)
		gets[*wire.ResultsAck](s, r)
		last := time.Now()
		for i, want := range []time.Duration{0, testPauses[0], testPauses[1]} {
			control, _ := gets[*wire.Offer](s, r)
			if took := time.Since(last); took != want || !isControl(control) {
				t.Errorf("%v is offered after %v, want control probe %d after %v", locals(control), took, i, want)
			}
			last = time.Now()
			s.answers(r, self, control, accepted, 1)
			gets[*wire.ResultsAck](s, r)
		}
		s.finals(2, true)
	})
}

// TestActorTellsDoublesToStop: a receiver that pulses for a task that another one
// has by now is told to drop it, and its pulse is not taken for the other's.
func TestActorTellsDoublesToStop(t *testing.T) {
	withActor(t, func(s *stage) {
		old := s.receiver()
		first, self := gets[*wire.Offer](s, old)
		pulse := &wire.Pulse{Task: first.GetTask(), Chunks: []uint64{first.GetChunk()}, WaitingMs: 3_600_000}
		next := s.receiver() // old is silent
		second, _ := gets[*wire.Offer](s, old)
		effort.MustBe(t, second.GetChunk(), first.GetChunk(), "offered again", second)
		for r := old; r != next; {
			got := <-s.offers
			if offer, ok := got.msg.(*wire.Offer); ok {
				second, r = offer, got.at
			}
		}
		s.system.Root.RequestWithCustomSender(self, pulse, old)
		m, _ := gets[*wire.Cancel](s, old)
		effort.ErrorIf(t, m.GetTask().Key() != first.GetTask().Key(), "cancelled %v", m)
		s.system.Root.RequestWithCustomSender(self, pulse, next) // its own pulse is welcome
		if m := (<-s.told).(Quiet); m.Until.IsZero() {
			t.Errorf("told %v, want quiet", m)
		}
		s.answers(next, self, second, refused, 2)
		gets[*wire.ResultsAck](s, next)
		s.finals(2, true)
	})
}

// TestActorAsksTheCluster: what another node has learned saves the control probe.
func TestActorAsksTheCluster(t *testing.T) {
	const key = "domain/example.test/mx.receiver.test"
	shelf := receivertest.Holding(facts.Fact{Key: key, Data: []byte("behaviour1 accepted=3 refused=0 first=1 last=2"),
		Expires: morning.AddDate(100, 0, 0)})
	withActorOf(t, func(_ *stage, o *Options) { o.Facts = sharing(shelf) }, func(s *stage) {
		r := s.receiver()
		offer, self := gets[*wire.Offer](s, r)
		s.answers(r, self, offer, accepted, 2)
		gets[*wire.ResultsAck](s, r)
		s.finals(2, true)
	})
}

// TestActorKnowsWhyAReceiverEnded: one that is not to be reached is looked for
// again, one that stops under its offers is suspected.
func TestActorKnowsWhyAReceiverEnded(t *testing.T) {
	for why, putOff := range map[actor.TerminatedReason]bool{actor.TerminatedReason_Stopped: true,
		actor.TerminatedReason_AddressTerminated: false, actor.TerminatedReason_NotFound: false} {
		t.Run(why.String(), func(t *testing.T) {
			withActor(t, func(s *stage) {
				began := time.Now()
				r := s.receiver()
				for range lostMax / lostSure {
					_, self := gets[*wire.Offer](s, r)
					s.system.Root.Send(self, &actor.Terminated{Who: r, Why: why})
					s.resolved <- r
					gets[*wire.Cancel](s, r)
				}
				offer, self := gets[*wire.Offer](s, r)
				if waited := time.Since(began) >= ladder[0]; waited != putOff {
					t.Errorf("offered again after %v, put off should be %v", time.Since(began), putOff)
				}
				s.answers(r, self, offer, refused, 2)
				gets[*wire.ResultsAck](s, r)
				s.finals(2, true)
			})
		})
	}
}

// TestOurPauseIsNoSilence: after a pause of our process a receiver has time to be heard.
func TestOurPauseIsNoSilence(t *testing.T) {
	var pause atomic.Bool
	withActorOf(t, func(_ *stage, o *Options) {
		o.Version = func() uint64 {
			if pause.Swap(false) {
				<-time.After(2 * silenceMax)
			}
			return 0
		}
	}, func(s *stage) {
		at := s.receiver()
		offer, from := gets[*wire.Offer](s, at)
		s.system.Root.RequestWithCustomSender(from, &wire.OfferAck{Task: offer.GetTask(), Chunk: offer.GetChunk()}, at)
		pause.Store(true)
		<-time.After(2*silenceMax + silenceMax/2)
		s.answers(at, from, offer, refused, 2)
		gets[*wire.ResultsAck](s, at)
		s.finals(2, true)
	})
}
