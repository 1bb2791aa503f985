package receiver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/remote"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

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

// TestMovedActorIsNotHeldUp by a receiver that does not answer, nor by a ledger.
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

// TestNextActorKnows what the last one learned: it does not ask a receiver that refuses us for as long
// as the last one was going to rest.
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
