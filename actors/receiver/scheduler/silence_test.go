package scheduler

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// slowWide is wide but for a rate that makes a chunk last a while.
func slowWide(perSecond int) throttle.Limits {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: perSecond, Per: time.Second}
	return a
}

// TestSilentClient: what it has waiting is not asked, its results wait for it, and
// heartbeats do not name its chunk any more.
func TestSilentClient(t *testing.T) {
	w := newWorld(t, slowWide(10), 1)
	named := 0
	w.hear = func(_ Client, msg proto.Message) {
		if m, ok := msg.(*wire.Pulse); ok && w.now.After(begin.Add(6*time.Second)) {
			named += len(m.GetChunks())
		}
	}
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(20 * time.Second))
	if n := len(w.rcpts); n < 20 || n > 50 {
		t.Errorf("%d RCPTs for a client that never answered, at 10 a second", n)
	}
	if named > 0 || w.scheduler.fair.Queued() > 0 {
		t.Errorf("%d chunks named by pulses, %d probes queued", named, w.scheduler.fair.Queued())
	}
	w.checkEmpty()
}

// TestSilentClientIsHeardAgain: what it offers anew is asked, once.
func TestSilentClientIsHeardAgain(t *testing.T) {
	w := newWorld(t, slowWide(10), 1)
	deaf, answers := true, map[uint32]int{}
	w.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(*wire.Results); ok && !deaf {
			for _, a := range m.GetAnswers() {
				answers[a.GetOrdinal()]++
			}
			w.acknowledge(to, msg)
		}
	}
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(10 * time.Second))
	deaf = false
	w.run(begin.Add(15 * time.Second))
	had := len(answers)
	again := offerOf(1, "d.example", 2, 100, hosts("mx1"))
	again.Probes = again.Probes[had:]
	w.offer(again)
	w.run(begin.Add(time.Minute))
	if had < 20 || len(answers) != 100 || len(w.rcpts) != 100 {
		t.Errorf("%d answers at first, %d in the end, %d RCPTs", had, len(answers), len(w.rcpts))
	}
}

// TestClientsOutOfReach: only those at that address are left alone, and at once.
func TestClientsOutOfReach(t *testing.T) {
	w := newWorld(t, slowWide(10), 1)
	asked := map[string]int{}
	w.asked = func(p *Probe) { asked[p.Address.Domain]++ }
	w.scheduler.Offer(w.now, Client{Name: "a", Address: "node1:1"}, offerOf(1, "one.example", 1, 400, hosts("mx1")))
	w.scheduler.Offer(w.now, Client{Name: "b", Address: "node2:1"}, offerOf(2, "two.example", 1, 400, hosts("mx1")))
	w.run(begin.Add(5 * time.Second))
	before := asked["one.example"]
	w.scheduler.queues.shedLost("node1:1")
	w.run(begin.Add(20 * time.Second))
	if n := asked["one.example"] - before; n > 8 {
		t.Errorf("%d more RCPTs for a client out of reach", n)
	}
	if asked["two.example"] < 80 {
		t.Errorf("%d RCPTs for the other client", asked["two.example"])
	}
}

// TestNextOwnerGetsWhatIsKnown: answers that a dead owner has not taken are not
// asked for again, final ones about addresses at least.
func TestNextOwnerGetsWhatIsKnown(t *testing.T) {
	w := newWorld(t, slowWide(10), 1)
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if p.ordinal == 1001 {
			return smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"greylisted"}}
		}
		return smtp.Reply{Code: 250}
	}
	w.hear = func(Client, proto.Message) {}
	first := offerOf(1, "d.example", 1, 100, hosts("mx1"))
	first.Probes[2].Ordinal = math.MaxUint32
	w.offer(first)
	w.run(begin.Add(10 * time.Second))
	asked := len(w.rcpts)
	all := w.heard()
	next := offerOf(1, "d.example", 1, 100, hosts("mx1"))
	next.Task.Epoch, next.Probes[2].Ordinal = 2, math.MaxUint32
	w.scheduler.Offer(w.now, Client{Name: "next"}, next)
	w.plan()
	w.run(begin.Add(time.Minute))
	seen := map[uint32]bool{}
	for _, a := range all["d.example"] {
		if seen[a.GetOrdinal()] {
			t.Errorf("two answers about %d", a.GetOrdinal())
		}
		seen[a.GetOrdinal()] = true
	}
	// the control probe is asked again, and so is the greylisted one, which was looked at twice
	if len(seen) != 100 || len(w.rcpts) != 104 || asked < 20 {
		t.Errorf("%d of 100 answers, %d RCPTs, %d of them for the first owner", len(seen), len(w.rcpts), asked)
	}
}

// TestLeavingScheduler: what is on the wire is answered before the client is told, who
// has nothing there is told at once, and nothing is taken any more.
func TestLeavingScheduler(t *testing.T) {
	a := slowWide(10)
	a.Connections = 1
	w := newWorld(t, a, 1)
	answers, moved, refused := 0, map[string]time.Time{}, wire.Refusal_NONE
	w.hear = func(to Client, msg proto.Message) {
		switch m := msg.(type) {
		case *wire.Results:
			answers += len(m.GetAnswers())
			if _, told := moved[m.GetTask().GetDomain()]; told {
				t.Error("results behind the notice")
			}
		case *wire.Moved:
			moved[m.GetTask().GetDomain()] = w.now
		case *wire.OfferAck:
			refused = m.GetRefusal()
		}
		w.acknowledge(to, msg)
	}
	w.offer(offerOf(1, "wire.example", 1, 50, hosts("mx1")))
	for len(w.rcpts) == 0 {
		w.run(w.now.Add(time.Millisecond))
	}
	w.offer(offerOf(2, "waits.example", 1, 50, hosts("mx2")))
	left := w.now
	w.scheduler.HandOff(w.now)
	w.offer(offerOf(3, "late.example", 1, 50, hosts("mx2")))
	w.run(w.now.Add(2 * leaveWithin))
	effort.Is(t, refused, wire.Refusal_DRAINING, "an offer on the way out is answered with")
	if at := moved["waits.example"]; !at.Equal(left) {
		t.Errorf("who waits is told %s later", at.Sub(left))
	}
	if at := moved["wire.example"]; !at.After(left) || answers != len(w.rcpts) || answers == 0 {
		t.Errorf("told %s later, %d answers to %d RCPTs", at.Sub(left), answers, len(w.rcpts))
	}
	if len(w.open) > 0 || !w.scheduler.gone {
		t.Errorf("%d sessions left, gone: %v", len(w.open), w.scheduler.gone)
	}
}

// TestShedOnTheWire: a probe that was on the wire when its client was given up, and comes
// back unanswered long after, leaves nothing behind, so that the actor can come to rest.
func TestShedOnTheWire(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.turn = 5 * time.Second
	w.reply = func(*Probe, *simSession) smtp.Reply { // ten seconds later the connection is lost
		w.after(time.Second, func() { w.scheduler.queues.shedLost("") })
		return smtp.Reply{}
	}
	w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1")))
	w.checkEmpty()
	effort.Is(t, len(w.rcpts), 1, "RCPTs")
}

// TestOneConnectionBreaks: an address under which a connection breaks is looked at again, and its host is dialled on
// for the others. Where each one breaks all are deferred within a minute, and sessions are tried ever more rarely.
func TestOneConnectionBreaks(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(rcpt int) bool
		valid  int // of three; the others are deferred
		rcpts  int // at most
	}{
		"once":            {func(n int) bool { return n == 2 }, 3, 4},
		"the first":       {func(n int) bool { return n == 1 }, 3, 4},
		"all":             {func(int) bool { return true }, 0, 3 * 2},
		"all but the one": {func(n int) bool { return n != 1 }, 1, 1 + 2*2},
	} {
		t.Run(name, func(t *testing.T) {
			a := openedWide()
			a.Connections, a.RcptsPerConnection = 1, 1
			w := newWorld(t, a, 1)
			w.reply = func(*Probe, *simSession) smtp.Reply {
				if tc.breaks(len(w.rcpts)) {
					return smtp.Reply{}
				}
				return smtp.Reply{Code: 250}
			}
			outcomes := map[smtp.Outcome]int{}
			w.collect(1, func(_ string, a heard) {
				a.agrees(t)
				outcomes[a.outcome]++
				if a.outcome != smtp.Valid && (a.reason != smtp.ConnectionFailed || len(a.attempts) == 0) {
					t.Errorf("put off because of %s, after %d attempts", a.reason, len(a.attempts))
				}
			})
			w.offer(offerOf(1, "d.example", 1, 3, hosts("mx1")))
			w.run(begin.Add(10 * time.Second))
			soon := outcomes[smtp.Valid]
			w.run(begin.Add(recheckWithin + 10*time.Second))
			if soon != tc.valid || outcomes[smtp.Valid] != tc.valid || outcomes[smtp.Undecided] != 3-tc.valid ||
				len(w.rcpts) > tc.rcpts || len(w.dials) > tc.rcpts+1 {
				t.Errorf("%d valid after ten seconds, then %v; %d RCPTs in %d sessions", soon, outcomes, len(w.rcpts),
					len(w.dials))
			}
		})
	}
}
