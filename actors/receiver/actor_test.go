package receiver

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/facts"
	"rollcall/actors/process"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// eventually waits for something that nobody signals.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(patience)
	for !is() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("in vain: %s", what)
		}
	}
}

// sessionGoroutines counts the goroutines of session actors.
func sessionGoroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("receiver.(*sessionActor)"))
}

// TestStoppedActorLeavesNothing: clients are told, every session says QUIT, even
// in the midst of its work, and slots and goroutines are given back.
func TestStoppedActorLeavesNothing(t *testing.T) {
	b := newBench(t, 20*time.Millisecond, "clean", openedWide())
	b.options.Stretch = neverOut
	b.pid = b.spawn()
	one, _ := b.customer(1, 1000, known)
	two, _ := b.customer(2, 1000, known)
	one.until("answers", func() bool { return len(one.answers) > 10 })
	eventually(t, "all sessions", func() bool { return b.lab.Manners().Receivers[b.domain].SessionsOpen == 4 })
	effort.OK(t, b.system.Root.StopFuture(b.pid).Wait())
	one.until("moved", func() bool { return one.moved > 0 && one.ended > 0 })
	two.until("moved", func() bool { return two.moved > 0 && two.ended > 0 })
	eventually(t, "no session left", func() bool {
		return b.lab.Manners().Receivers[b.domain].SessionsOpen == 0
	})
	eventually(t, "no goroutine left", func() bool { return sessionGoroutines() == 0 })
	if s := b.lab.Manners().Receivers[b.domain]; s.HungUp != 0 || s.Quits != s.Sessions {
		t.Errorf("%d sessions, %d QUIT, %d hung up", s.Sessions, s.Quits, s.HungUp)
	}
	effort.Is(t, b.options.Slots.Free(), slotsOfWorld, "slots")
}

// TestActorStopsWhileOpening: a session that is just being opened is given up.
func TestActorStopsWhileOpening(t *testing.T) {
	b := newBench(t, 0, "silent", openedWide())
	b.options.Stretch = soonOver
	b.pid = b.spawn()
	c, _ := b.customer(1, 10, known)
	eventually(t, "a session", func() bool { return b.lab.Manners().Receivers[b.domain].SessionsOpen == 1 })
	effort.OK(t, b.system.Root.StopFuture(b.pid).Wait())
	c.until("moved", func() bool { return c.moved > 0 })
	eventually(t, "no goroutine left", func() bool { return sessionGoroutines() == 0 })
	effort.Is(t, b.options.Slots.Free(), slotsOfWorld, "slots")
}

// TestCrashInASession: the host is left alone for a moment, and then those who waited for it are
// asked; nobody is told of a fault of ours, nor put off for it.
func TestCrashInASession(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "clean", openedWide())
	var calls atomic.Int64
	open := opener(t, b.lab)
	b.options.Sources = sourcesOf(func(
		ctx context.Context, host string, at netip.Addr, m smtp.TLSMode,
	) (*smtp.Session, error) {
		if calls.Add(1) == 1 {
			panic("a fault of ours")
		}
		return open(ctx, host, at, m)
	})
	metrics := prometheus.NewRegistry()
	b.options.Guard = process.NewPanicGuard(metrics, slog.New(slog.DiscardHandler))
	b.pid = b.spawn()
	c, _ := b.customer(1, 3, known)
	c.until("answers", func() bool { return len(c.answers) == 3 })
	if counted, _ := metrics.Gather(); len(counted) != 1 || counted[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("the panic is not counted: %v", counted)
	}
	for _, a := range c.answers {
		o := smtp.Outcome(a.GetOutcome())
		effort.ErrorIf(t, o != smtp.Valid, "answer after the crash: %s %s", o, smtp.Reason(a.GetReason()))
	}
	n := calls.Load()
	effort.ErrorIf(t, n < 2 || c.ended > 0, "%d sessions, the actor ended %d times", n, c.ended)
	if n := b.options.Slots.Free(); n < slotsOfWorld-int(calls.Load())+1 {
		t.Errorf("%d slots are free of %d, with %d sessions that can be open", n, slotsOfWorld, calls.Load()-1)
	}
}

// TestCrashOfTheActor: whoever watches it learns that, and nothing is kept.
func TestCrashOfTheActor(t *testing.T) {
	b := newBench(t, 10*time.Millisecond, "clean", openedWide())
	b.options.Stretch = soonOver
	var broken atomic.Bool
	b.options.Allow = func(string) throttle.Limits {
		if broken.Load() {
			panic("a fault of ours")
		}
		return openedWide()
	}
	b.pid = b.spawn()
	c, _ := b.customer(1, 5000, known)
	c.until("answers", func() bool { return len(c.answers) > 0 })
	broken.Store(true)
	c.until("told", func() bool { return c.ended > 0 && c.moved > 0 })
	eventually(t, "no goroutine left", func() bool { return sessionGoroutines() == 0 })
	effort.Is(t, b.options.Slots.Free(), slotsOfWorld, "slots")
}

// TestResultsComeAgain: until they are acknowledged, each answer once in each batch.
func TestResultsComeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "clean", openedWide())
	b.options.Stretch = soonOver
	b.pid = b.spawn()
	lost := 0
	c := &customer{b: b, local: known, more: 5, changed: make(chan struct{}, 1), taken: map[[2]int64]bool{},
		task: &wire.Task{Verification: id(1), Epoch: 1, Domain: b.domain}}
	c.deaf = func(*wire.Results) bool { lost++; return lost == 1 }
	b.system.Root.Spawn(actor.PropsFromFunc(c.receive))
	c.until("answers", func() bool { return len(c.answers) == 5 })
	if c.results < 2 { // more on a busy machine: nothing was acknowledged in time
		t.Errorf("%d results, want them again", c.results)
	}
	effort.Is(t, b.lab.Manners().Receivers[b.domain].Rcpts, 5, "RCPTs for 5 addresses")
}

// TestIdleActorEnds: without work it lives for its time and not longer.
func TestIdleActorEnds(t *testing.T) {
	t.Parallel()
	system := actor.NewActorSystem(actor.WithLoggerFactory(silent))
	defer system.Shutdown()
	ended := make(chan struct{})
	pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		o := testOptions(openedWide())
		o.Registry.slots = registry.NewReceiverSlots(0, nil)
		return newActor(o, o.forScheduler(), nil, 50*time.Millisecond)
	}))
	system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *actor.Started:
			c.Watch(pid)
			c.Send(pid, &cluster.ClusterInit{Identity: &cluster.ClusterIdentity{Identity: "x", Kind: kind}})
		case *actor.Terminated:
			close(ended)
		}
	}))
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it lives on")
	}
}

// TestAskStopsAtRefusalsOfUs: a receiver that refuses us whatever the address is
// not asked for all addresses that a session was given.
func TestAskStopsAtRefusalsOfUs(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	b := newBench(t, 0, "policy", openedWide())
	b.options.Stretch, b.options.Waits = 2, []time.Duration{time.Minute} // a first rest of which all are told
	b.pid = b.spawn()
	c, _ := b.customer(1, 100, known)
	c.until("answers", func() bool { return len(c.answers) == 100 })
	n := b.lab.Manners().Receivers[b.domain].Rcpts
	effort.ErrorIf(t, n > 3+openedWide().Connections, "%d RCPTs to a receiver that refuses us", n)
	if !scheduler.EndsBatch(&scheduler.Judgement{Verdict: verdict.Verdict{Action: verdict.ActOtherSource}}) {
		t.Error("a refusal of us does not stop a session")
	}
}

// TestWhatIsKeptOfASleepingReceiverIsForgotten: it lives nowhere, and would know it all again.
func TestWhatIsKeptOfASleepingReceiverIsForgotten(t *testing.T) {
	t.Parallel()
	m := facts.Snapshot{V: facts.SnapshotVersion, Pauses: 2, Paused: 60_000, Limits: []facts.Limit{{Which: 0, Most: 5, Left: 60_000}}}
	fact := facts.Fact{Key: throttle.SuffixKey("example.net"), Data: m.Encode()}
	kept := receivertest.Holding(fact)
	o := testOptions(openedWide())
	o.Facts = kept
	o.Registry.stateWriter(o)
	got, err := o.Registry.ForgetKept(t.Context(), "example.net", scheduler.ForgetBlock)
	effort.FatalIf(t, err != nil || len(got) != 1 || got[0].Key != fact.Key || len(got[0].Dropped) != 1,
		"%v %+v", err, got)
	effort.Is(t, len(effort.Must(o.Registry.ForgetKept(t.Context(), "another.net", scheduler.ForgetAll))(t)), 0, "another")
	if m, err := facts.Decode(kept.Fact(fact.Key).Data); err != nil || m.Paused != 0 || len(m.Limits) != 1 {
		t.Errorf("%v %+v", err, m)
	}
}

// TestAfterAPauseNothingIsAskedThatHadNotBegun: the actor lives on with its sessions, and asks again
// what it is offered again.
func TestAfterAPauseNothingIsAskedThatHadNotBegun(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 5, Per: time.Second / 10}
	b := newBench(t, 0, "clean", a)
	var pauses atomic.Uint64
	b.options.Pauses = pauses.Load
	b.pid = b.spawn()
	c, client := b.customer(1, 500, known)
	c.until("answers", func() bool { return len(c.answers) >= 10 })
	pauses.Add(1)
	asked := func() int { return b.lab.Manners().Total.Rcpts }
	before := asked()
	<-time.After(2 * time.Second) // a hundred by the rate
	more := asked() - before
	effort.ErrorIf(t, more > 5, "%d were asked after the pause", more)
	c.mu.Lock()
	answered := len(c.answers)
	c.chunk++
	again := &wire.Offer{Task: c.task, Chunk: c.chunk, Hosts: []*wire.Host{b.host},
		Probes: []*wire.Probe{{Ordinal: 499, Local: known(499)}}}
	c.mu.Unlock()
	b.system.Root.Send(client, again)
	c.until("an answer to what was offered again", func() bool { return len(c.answers) > answered })
	effort.ErrorIf(t, c.ended > 0 || c.moved > 0, "the actor ended %d times, and told of %d moves", c.ended, c.moved)
}

// TestHostsThatBearLessThanTheyOffer asks existing and missing mailboxes, on real connections, of hosts that
// refuse EHLO, and of hosts whose sessions break as soon as they are encrypted: each is answered.
func TestHostsThatBearLessThanTheyOffer(t *testing.T) {
	for _, personality := range []string{"heloonly", "heloagain", "tlsdies", "tlsmute"} {
		t.Run(personality, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 0, personality, openedWide())
			c, _ := b.customer(1, 4, func(n int) string { return []string{"anna", "ghosta", "bert", "ghostb"}[n] })
			c.until("all answers", func() bool { return len(c.told) >= 4 })
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, a := range c.told {
				want := smtp.Valid
				if a.Ordinal%2 == 1 {
					want = smtp.Invalid
				}
				effort.Is(t, a.Outcome, want, a.Ordinal, a.Reason)
			}
		})
	}
}
