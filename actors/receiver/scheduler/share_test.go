package scheduler

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// of gives every key the same share.
func of(k, n int) func(string) (int, int) { return func(string) (int, int) { return k, n } }

// TestNoShareAsksNothing: what is offered stays where it is, clients are told that
// it waits, and all of it is asked when there is a share.
func TestNoShareAsksNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		k, n int
		a    func(*throttle.Limits)
	}{
		{"none", 0, 3, func(*throttle.Limits) {}},
		{"none of none", 0, 0, func(*throttle.Limits) {}},
		{"no connection left", 1, 3, func(a *throttle.Limits) { a.Connections = 2 }},
		{"no RCPT left", 1, 3, func(a *throttle.Limits) { a.RcptRate.Events = 2 }},
		{"no refusal left", 1, 3, func(a *throttle.Limits) { a.RefusedPerHour = 2 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.a(&a)
			w := newWorld(t, a, 1)
			living := w.living
			inForce(living, of(tc.k, tc.n))
			answers, pulses, waiting := 0, 0, 0
			w.hear = func(to Client, msg proto.Message) {
				switch m := msg.(type) {
				case *wire.Results:
					answers += len(m.GetAnswers())
				case *wire.Pulse:
					pulses++
					if m.GetWaitingMs() > 0 {
						waiting++
					}
				}
				w.acknowledge(to, msg)
			}
			w.offer(offerOf(1, "d.example", 1, 20, hosts("mx1")))
			w.run(begin.Add(30 * time.Second))
			if len(w.dials) > 0 || len(w.rcpts) > 0 || answers > 0 {
				t.Fatalf("%d dials, %d RCPTs, %d answers without a share", len(w.dials), len(w.rcpts), answers)
			}
			if pulses < 20 || waiting < pulses && tc.name != "no refusal left" {
				t.Errorf("%d of %d pulses say that it waits", waiting, pulses)
			}
			living.Alone()
			w.run(w.now.Add(30 * time.Second))
			effort.Is(t, answers, 20, "20 answers with a share")
		})
	}
}

// TestShareShrinks: excess sessions end, and other sessions ask the addresses that these had not asked yet.
func TestShareShrinks(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	all := w.heard()
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(3 * time.Second))
	effort.MustBe(t, len(w.open), 4, "sessions")
	living := w.living
	if inForce(living, of(1, 4)) {
		t.Fatal("four sessions are within a share of one")
	}
	w.run(w.now.Add(registry.HardAfter))
	if len(w.open) != 1 || !inForce(living, of(1, 4)) {
		t.Errorf("%d sessions two seconds later", len(w.open))
	}
	inForce(living, of(0, 4))
	w.run(w.now.Add(registry.HardAfter))
	asked := len(w.rcpts)
	w.run(w.now.Add(10 * time.Second))
	if len(w.open) != 0 || len(w.rcpts) != asked {
		t.Errorf("%d sessions and %d more RCPTs without a share", len(w.open), len(w.rcpts)-asked)
	}
	living.Alone()
	w.run(w.now.Add(time.Minute))
	effort.Is(t, len(all["d.example"]), wire.AddressesMax, "answers")
	w.checkEmpty()
}

// TestFencedSchedulerSaysGoodbye: behind the fence its sessions end. When the fence is down, it goes on.
func TestFencedSchedulerSaysGoodbye(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	fenced := false
	w.scheduler.options.Fenced = func() bool { return fenced }
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(2 * time.Second))
	fenced = true
	w.run(w.now.Add(3 * time.Second))
	asked := len(w.rcpts)
	w.run(w.now.Add(10 * time.Second))
	if len(w.open) > 0 || len(w.rcpts) > asked {
		t.Errorf("%d sessions, %d more RCPTs behind the fence", len(w.open), len(w.rcpts)-asked)
	}
	fenced = false
	w.run(w.now.Add(3 * time.Second))
	effort.Not(t, len(w.rcpts), asked, "nothing is asked after the fence")
}

// side is one node of TestSharesNeverAddUpToMore.
type side struct {
	*world
	k int // share
}

// TestSharesNeverAddUpToMore: two nodes have the same receiver at once, with shares that change at random as a cluster
// changes them: first one gives up, and when it has complied the other takes. At no moment do both together go beyond
// the allowance.
func TestSharesNeverAddUpToMore(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		const n = 4
		a := throttle.Limits{SessionAge: 5 * time.Minute, IdleTime: 2 * time.Second,
			Connections:        rapid.IntRange(1, 9).Draw(rt, "connections"),
			ConnectionRate:     drawRate(rt, "connection rate", 4, 40),
			RcptRate:           drawRate(rt, "rcpt rate", 4, 200),
			RcptsPerConnection: rapid.SampledFrom([]int{3, 50}).Draw(rt, "per connection"), RcptsPerTransaction: 1,
			RefusedPerSession: 1000, RefusedPerHour: throttle.CountMax,
		}
		var sides []*side
		for range 2 {
			s := &side{world: newWorld(rt, a, rapid.Uint64().Draw(rt, "seed"))}
			s.turn = time.Duration(rapid.SampledFrom([]int{1, 20, 100}).Draw(rt, "turn")) * time.Millisecond
			inForce(s.living, of(0, n))
			s.plan()
			sides = append(sides, s)
			for number := range uint64(2) {
				s.offer(offerOf(1, "d.example", number+1, wire.AddressesMax, hosts("mx1")))
			}
		}
		both := bothSides{t: rt, sides: sides, n: n, most: a.Connections}
		for range rapid.IntRange(1, 12).Draw(rt, "changes") {
			left := rapid.IntRange(0, n).Draw(rt, "left")
			both.change(left, rapid.IntRange(0, n-left).Draw(rt, "right"))
			both.run(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "for")) * time.Millisecond)
		}
		rcpts, dials := slices.Concat(sides[0].rcpts, sides[1].rcpts), slices.Concat(sides[0].dials, sides[1].dials)
		slices.SortFunc(rcpts, time.Time.Compare)
		slices.SortFunc(dials, time.Time.Compare)
		checkRate(rt, "rcpts", rcpts, a.RcptRate)
		checkRate(rt, "dials", dials, a.ConnectionRate)
	})
}

func drawRate(rt *rapid.T, label string, low, high int) throttle.Rate {
	return throttle.Rate{Events: rapid.IntRange(low, high).Draw(rt, label), Per: time.Second}
}

// bothSides is a cluster of two.
type bothSides struct {
	t     tester
	sides []*side
	n     int
	most  int
}

// change gives both sides other shares: smaller ones at once, larger ones when the other side keeps to its smaller one.
func (b *bothSides) change(shares ...int) {
	var complying []*side
	for i, s := range b.sides {
		if shares[i] < s.k {
			s.k = shares[i]
			inForce(s.living, of(s.k, b.n))
			s.plan()
			complying = append(complying, s)
		}
	}
	for len(complying) > 0 {
		b.run(10 * time.Millisecond)
		complying = slices.DeleteFunc(complying, func(s *side) bool { return inForce(s.living, of(s.k, b.n)) })
	}
	b.run(5 * time.Millisecond) // the ledger tells the other side
	for i, s := range b.sides {
		if shares[i] > s.k {
			s.k = shares[i]
			inForce(s.living, of(s.k, b.n))
			s.plan()
		}
	}
}

// run lets both go on, in the order in which things happen.
func (b *bothSides) run(d time.Duration) {
	until := b.sides[0].now.Add(d)
	for {
		next := until
		for _, s := range b.sides {
			if len(s.queue) > 0 && s.queue[0].at.Before(next) {
				next = s.queue[0].at
			}
		}
		open := 0
		for _, s := range b.sides {
			s.run(next)
			open += len(s.open)
		}
		if open > b.most {
			b.t.Errorf("%d sessions at once, %d are allowed", open, b.most)
		}
		if !next.Before(until) {
			return
		}
	}
}

// TestGrowthIsNoBurst: a share that becomes larger begins as if an event had just
// been made, though nothing was asked here for long: others asked until just now.
func TestGrowthIsNoBurst(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 2, Per: time.Second}
	for _, before := range []registry.Fraction{{K: 0, N: 2}, {K: 1, N: 2}} {
		w := newWorld(t, a, 1)
		inForce(w.living, of(before.K, before.N))
		w.run(begin.Add(10 * time.Second))
		w.living.Alone()
		w.plan()
		w.offer(offerOf(1, "d.example", 1, 20, hosts("mx1")))
		w.run(w.now.Add(450 * time.Millisecond))
		if len(w.rcpts) > 0 {
			t.Errorf("from %v: a RCPT within half a second, at two a second", before)
		}
		w.run(w.now.Add(4 * time.Second))
		if len(w.rcpts) < 4 {
			t.Errorf("from %v: %d RCPTs in four seconds", before, len(w.rcpts))
		}
	}
}

// TestLearnedIsOfTheWhole: a lesson under a share is shared out again as it was learned.
func TestLearnedIsOfTheWhole(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	inForce(w.living, of(1, 2))
	w.scheduler.takeAllowance(begin)
	w.scheduler.allowance.learned.Connections.Tighten(w.scheduler.allowance.ofWhole(1), begin)
	effort.Is(t, w.scheduler.takeAllowance(begin).Connections, 1, "sessions under the share that learned 1")
	w.living.Alone()
	effort.Is(t, w.scheduler.takeAllowance(begin).Connections, 2, "sessions under twice that share")
}

// TestRestingWithoutAShare: a receiver that rests for long under no share tells what it always tells.
func TestRestingWithoutAShare(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	all := w.heard()
	inForce(w.living, of(0, 2))
	long := again(smtp.ReceiverRateLimited, "test")
	long.Wait = 2 * shortPause
	w.scheduler.paths.pauseReceiver(begin, Judgement{Verdict: long})
	w.offer(offerOf(1, "d.example", 1, 3, hosts("mx1")))
	w.run(begin.Add(500 * time.Millisecond))
	effort.Is(t, len(all["d.example"]), 3, "3 are told to come back")
}
