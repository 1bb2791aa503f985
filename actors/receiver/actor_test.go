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
	"github.com/asynkron/protoactor-go/remote"
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

// TestMovedActorEndsWell: what is on the wire is answered, nothing is lost or asked in vain, sessions say QUIT, and
// what was learned is written before the actor is gone.
func TestMovedActorEndsWell(t *testing.T) {
	effort.NotShort(t, "sockets that are waited for")
	t.Parallel()
	b := newBench(t, 10*time.Millisecond, "clean", openedWide())
	s := &receivertest.Shelf{}
	b.options.Facts, b.options.Stretch = s, neverOut
	b.options.Registry = NewRegistry()
	b.options.Registry.Alone()
	a := openedWide()
	a.RefusedPerHour = 200
	b.options.Allow = func(string) throttle.Limits { return a }
	b.pid = b.spawn()
	c, pid := b.customer(1, 1000, func(int) string { return "ghost" })
	c.until("answers", func() bool { return len(c.answers) > 60 })
	b.system.Root.Poison(b.pid)
	b.system.Root.Send(pid, offerOf(7, b.domain, 9, 3, []*wire.Host{b.host}))
	c.until("moved and ended", func() bool { return c.moved > 0 && c.ended > 0 })
	effort.Is(t, b.options.Registry.Count(), 0, "actors live")
	tally := b.lab.Manners().Receivers[b.domain]
	effort.ErrorIf(t, tally.Rcpts != len(c.answers) || tally.SessionsOpen > 0 || tally.HungUp > 0 ||
		tally.Quits != tally.Sessions, "%d RCPTs, %d answers, %d sessions open, %d of %d said QUIT", tally.Rcpts,
		len(c.answers), tally.SessionsOpen, tally.Quits, tally.Sessions)
	effort.Not(t, len(s.Fact("x").Data), 0, "what was learned is not written")
	effort.Is(t, b.options.Slots.Free(), slotsOfWorld, "slots")
}

// TestSessionsSayQuitUnderLoad: whatever a session was given, it ends after the answer that is on the wire,
// and with QUIT, when its receiver moves and when the node may use nothing any more.
func TestSessionsSayQuitUnderLoad(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "sockets that are waited for")
	for name, end := range map[string]func(b *bench){
		"moved": func(b *bench) { b.system.Root.Poison(b.pid) },
		"stopped": func(b *bench) {
			effort.ErrIs(b.t, b.options.Registry.ApplyShares(b.t.Context(), of(0, 1)), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := openedWide()
			a.RcptsPerTransaction = 100 // what a session is given takes longer than it has to end
			b := newBench(t, 100*time.Millisecond, "clean", a)
			b.pid = b.spawn()
			c, _ := b.customer(1, 2000, known)
			c.until("long transactions", func() bool { return b.lab.Manners().Receivers[b.domain].RcptsPerTx >= 16 })
			end(b)
			eventually(t, "no session left", func() bool { return b.lab.Manners().Receivers[b.domain].SessionsOpen == 0 })
			if n := b.lab.Manners().Receivers[b.domain]; n.HungUp > 0 || n.Quits != n.Sessions || n.Sessions == 0 {
				t.Errorf("%d of %d sessions said QUIT, %d hung up", n.Quits, n.Sessions, n.HungUp)
			}
		})
	}
}

// TestMovedActorIsNotHeldUp: an actor moves without waiting for a silent receiver or ledger.
func TestMovedActorIsNotHeldUp(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	b := newBench(t, 0, "silent", openedWide())
	s := &receivertest.Shelf{}
	b.options.Facts, b.options.Registry, b.options.Stretch = s, NewRegistry(), soonOver
	b.options.Registry.Alone()
	b.pid = b.spawn()
	c, _ := b.customer(1, 10, known)
	eventually(t, "a session", func() bool { return b.lab.Manners().Receivers[b.domain].SessionsOpen == 1 })
	s.Take(time.Hour)
	b.system.Root.Poison(b.pid)
	c.until("moved and ended", func() bool { return c.moved > 0 && c.ended > 0 })
	eventually(t, "no socket", func() bool { return b.options.Slots.Free() == slotsOfWorld })
	eventually(t, "no goroutine left", func() bool { return sessionGoroutines() == 0 })
}

// TestNextActorKnows: it knows what the last actor learned. It does not ask a receiver that refuses us before the last
// actor's pause ends.
func TestNextActorKnows(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	b := newBench(t, 0, "policy", openedWide())
	b.options.Facts = &receivertest.Shelf{}
	b.options.Stretch, b.options.Waits = 2, []time.Duration{time.Minute} // a first rest of which all are told
	b.pid = b.spawn()
	c, _ := b.customer(1, 100, known)
	c.until("answers", func() bool { return len(c.answers) == 100 })
	var last time.Duration
	for _, a := range c.told {
		last = max(last, a.Wait)
	}
	asked := b.lab.Manners().Receivers[b.domain].Rcpts
	effort.OK(t, b.system.Root.PoisonFuture(b.pid).Wait())
	b.pid = b.spawn()
	next, _ := b.customer(2, 100, known)
	next.until("answers", func() bool { return len(next.answers) == 100 })
	n := b.lab.Manners().Receivers[b.domain].Rcpts
	effort.ErrorIf(t, n != asked || asked == 0, "%d RCPTs by the first actor, %d by the next", asked, n-asked)
	for _, a := range next.told {
		effort.FatalIf(t, a.Outcome.Final() || a.Reason != smtp.SourceBlocked || a.Wait <= 0 || a.Wait > last,
			"%s %s, wait %s, and the last one was told %s", a.Outcome, a.Reason, a.Wait, last)
	}
}

// TestFenceStopsTheNextRcpt: from the moment on which a process may not speak, no
// session sends a RCPT but those that are on the wire, not even after a MAIL.
func TestFenceStopsTheNextRcpt(t *testing.T) {
	effort.NotShort(t, "sockets that are waited for")
	t.Parallel()
	for _, inTransaction := range []int{1, 50} {
		a := openedWide()
		a.RcptsPerTransaction = inTransaction
		b := newBench(t, 5*time.Millisecond, "clean", a)
		var fenced atomic.Bool
		b.options.Fenced, b.options.Stretch = fenced.Load, soonOver
		b.pid = b.spawn()
		c, _ := b.customer(1, 100, known)
		eventually(t, "some RCPTs", func() bool { return b.lab.Manners().Receivers[b.domain].Rcpts > 9 })
		fenced.Store(true)
		before := b.lab.Manners().Receivers[b.domain].Rcpts
		eventually(t, "no session left", func() bool {
			return b.lab.Manners().Receivers[b.domain].SessionsOpen == 0
		})
		// Some may be on the way to the lab: one of each session.
		if n := b.lab.Manners().Receivers[b.domain].Rcpts; n-before > a.Connections {
			t.Errorf("%d RCPTs behind the fence, in transactions of %d", n-before, inTransaction)
		}
		fenced.Store(false)
		c.until("all answers", func() bool { return len(c.answers) == 100 })
		b.checkManners(b.lab.Manners().Receivers[b.domain], a)
	}
}

// TestCompliesOnTheWire: shares of a receiver that two nodes have, changed while
// both ask: the lab never counts more than the allowance.
func TestCompliesOnTheWire(t *testing.T) {
	effort.NotShort(t, "sockets that are waited for")
	t.Parallel()
	a := openedWide()
	a.Connections = 8
	a.RcptRate.Events, a.ConnectionRate.Events = 400, 80
	b := newBench(t, 10*time.Millisecond, "clean", a)
	living := []*Registry{NewRegistry(), NewRegistry()}
	var customers []*customer
	for n, l := range living {
		l.Grace = neverOut * registry.HardAfter
		node := *b
		node.options.Registry, node.options.Slots = l, registry.NewSlots(slotsOfWorld)
		node.pid = node.spawn()
		c, _ := node.customer(byte(n+1), 10_000, known)
		customers = append(customers, c)
		defer func() { _ = b.system.Root.StopFuture(node.pid).Wait() }()
	}
	applyShares := func(node, k int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		effort.OK(t, living[node].ApplyShares(ctx, of(k, 4)))
	}
	var has [2]int
	for turn, shares := range [][2]int{{4, 0}, {1, 0}, {1, 3}, {0, 4}, {2, 2}, {3, 1}, {0, 0}, {0, 4}} {
		for node, k := range shares { // who gives up goes first
			if k < has[node] {
				applyShares(node, k)
			}
		}
		for node, k := range shares {
			applyShares(node, k)
			has[node] = k
		}
		for node, k := range shares {
			c := customers[node]
			if k > 0 && turn > 0 {
				c.mu.Lock()
				had := len(c.answers)
				c.mu.Unlock()
				c.until("work goes on", func() bool { return len(c.answers) > had+20 })
			}
		}
	}
	b.checkManners(b.lab.Manners().Receivers[b.domain], a)
}

// TestLostNodeIsHeard: what the transport says of other nodes reaches the schedulers.
func TestLostNodeIsHeard(t *testing.T) {
	t.Parallel()
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 100, Per: time.Second}
	b := newBench(t, 0, "clean", a)
	c, _ := b.customer(1, 10_000, known)
	c.until("answers, and nothing more to offer", func() bool {
		if len(c.answers) > 2 {
			c.more = 0 // an offer after the loss would begin the work again
		}
		return c.more == 0
	})
	b.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: "nobody:1"})
	b.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: b.system.Address()})
	eventually(t, "no RCPT any more", func() bool {
		before := b.lab.Manners().Receivers[b.domain].Rcpts
		<-time.After(100 * time.Millisecond) // ten RCPTs would have been sent
		return b.lab.Manners().Receivers[b.domain].Rcpts == before
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	n := b.lab.Manners().Receivers[b.domain].Rcpts
	effort.ErrorIf(t, n >= c.asked, "%d addresses of a lost node were asked, all of them", n)
}

// TestCutSessionTeachesNothing: a session that ApplyShares ended says nothing about the receiver.
func TestCutSessionTeachesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "silent", openedWide())
	b.options.Registry.Grace = registry.HardAfter / 10
	b.pid = b.spawn()
	c, _ := b.customer(1, 10, known)
	eventually(t, "a session", func() bool { return b.lab.Manners().Receivers[b.domain].SessionsOpen == 1 })
	effort.OK(t, b.options.Registry.ApplyShares(t.Context(), of(0, 1)))
	effort.Is(t, b.options.Slots.Free(), slotsOfWorld, "slots after Comply")
	c.mu.Lock()
	defer c.mu.Unlock()
	effort.Is(t, len(c.answers), 0, "answers because of our own doing")
}
