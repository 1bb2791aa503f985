package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// party is the client of one verification. It keeps a number of addresses waiting at the scheduler.
type party struct {
	w         *world
	space     byte
	file      byte
	left      int // addresses to offer
	route     func(n int) []*wire.Host
	size      int // of a chunk
	offered   int // tasks
	done      int
	last      time.Time // when the newest answer came
	chunkLeft map[string]int
}

// parties lets several parties work at one scheduler.
type parties []*party

// listen lets the parties hear their answers, and offer more for each chunk that is done.
func (ps parties) listen(w *world) {
	w.hear = func(to Client, msg proto.Message) {
		m, ok := msg.(*wire.Results)
		if !ok {
			return
		}
		p := ps[slices.IndexFunc(ps, func(p *party) bool { return to.Name == p.name() })]
		p.done += len(m.GetAnswers())
		p.last = w.now
		domain := m.GetTask().GetDomain()
		p.chunkLeft[domain] -= len(m.GetAnswers())
		w.after(0, func() {
			w.scheduler.queues.takeAck(w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
			if p.chunkLeft[domain] == 0 {
				p.offer()
			}
		})
	}
}

func (p *party) name() string { return fmt.Sprintf("%d-%d", p.space, p.file) }

// offer offers one more domain, as long as there is something left and room for it.
func (p *party) offer() bool {
	n := min(p.size, p.left)
	if n == 0 {
		return false
	}
	domain := fmt.Sprintf("d%d.example", p.offered)
	m := offerOf(p.file, domain, 1, n, p.route(p.offered))
	m.Workspace = id(p.space)
	before := p.w.scheduler.fair.Queued()
	p.w.scheduler.Offer(p.w.now, Client{Name: p.name()}, m)
	if p.w.scheduler.fair.Queued() == before {
		return false // full
	}
	p.offered++
	p.left -= n
	p.chunkLeft[domain] = n
	return true
}

func (p *party) fill() {
	for p.offer() {
		p.w.scheduler.steps = nil // acknowledgements of the offers
	}
}

func newParty(w *world, space, file byte, n, size int, route func(n int) []*wire.Host) *party {
	return &party{w: w, space: space, file: file, left: n, size: size, route: route, chunkLeft: map[string]int{}}
}

// oneHost is the route of everybody who has the same hosts.
func oneHost(int) []*wire.Host { return hosts("mx1") }

// ownHost gives each domain a host of its own, as operators do that name hosts after customers.
func ownHost(prefix string, lanes int) func(n int) []*wire.Host {
	return func(n int) []*wire.Host {
		n %= lanes
		return []*wire.Host{{Name: fmt.Sprintf("%s%d", prefix, n), Addrs: [][]byte{{192, 0, 2, byte(n)}}}}
	}
}

// TestSmallBehindMillion: ten addresses that come to a receiver at which a million of
// somebody else wait are answered within three times what they take alone.
func TestSmallBehindMillion(t *testing.T) {
	const all = 1_000_000
	for i, tc := range []struct {
		name       string
		turn       time.Duration
		allow      func(a *throttle.Limits)
		big, small func(n int) []*wire.Host
		bigSize    int
		smallSize  int
		sameSpace  bool
	}{
		{"at the rate", 20 * time.Millisecond, func(a *throttle.Limits) {
			a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
		}, oneHost, oneHost, 500, 10, false},
		{"of one workspace", 20 * time.Millisecond, func(a *throttle.Limits) {
			a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
		}, oneHost, oneHost, 500, 10, true},
		{"far away", 200 * time.Millisecond, func(*throttle.Limits) {}, oneHost, oneHost, 500, 10, false},
		{"a stranger", 50 * time.Millisecond, func(a *throttle.Limits) {
			*a = throttle.DefaultLimits()
			a.Connections = 2
		}, oneHost, oneHost, 500, 10, false},
		{"behind ten thousand lanes", 20 * time.Millisecond, func(a *throttle.Limits) { a.Connections = 2 },
			ownHost("big", 10_000), oneHost, 20, 10, false},
		{"in lanes of its own", 20 * time.Millisecond, func(a *throttle.Limits) { a.Connections = 2 },
			ownHost("big", 10_000), ownHost("small", 10), 20, 1, false},
		{"in lanes of the other", 20 * time.Millisecond, func(a *throttle.Limits) { a.Connections = 2 },
			ownHost("big", 10_000), ownHost("big", 10), 20, 1, false},
		{"behind ten thousand lanes at the rate", 20 * time.Millisecond, func(a *throttle.Limits) {
			a.Connections, a.RcptRate = 8, throttle.Rate{Events: 10, Per: time.Second}
		}, ownHost("big", 10_000), oneHost, 20, 10, false},
		{"behind ten thousand lanes of a stranger", 20 * time.Millisecond, func(a *throttle.Limits) {
			*a = throttle.DefaultLimits()
		}, ownHost("big", 10_000), oneHost, 20, 10, false},
	} {
		if testing.Short() && i%7 > 0 {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.allow(&a)
			took := func(behind int) time.Duration {
				w := newWorld(t, a, 1)
				w.turn = tc.turn
				space := byte(2)
				if tc.sameSpace {
					space = 1
				}
				big := newParty(w, 1, 1, behind, tc.bigSize, tc.big)
				small := newParty(w, space, 2, 10, tc.smallSize, tc.small)
				parties{big, small}.listen(w)
				big.fill()
				w.plan()
				w.run(begin.Add(time.Minute))
				if behind > 0 && (w.scheduler.fair.Queued() < 40_000 || big.done == 0) {
					t.Fatalf("%d addresses wait, %d were answered", w.scheduler.fair.Queued(), big.done)
				}
				came := w.now
				small.fill()
				w.plan()
				for w.now.Before(came.Add(10*time.Minute)) && small.done < 10 {
					w.run(w.now.Add(10 * time.Millisecond))
				}
				return small.last.Sub(came)
			}
			alone, behind := took(0), took(all)
			t.Logf("alone %s, behind %s: %.2f times", alone, behind, behind.Seconds()/alone.Seconds())
			if behind > 3*alone {
				t.Errorf("ten addresses take %s behind a million, %s alone", behind, alone)
			}
		})
	}
}

// TestWeights: a workspace of weight 3 gets three times what one of weight 1 gets, at one
// queue and over many, whether the rate or the sessions are scarce.
func TestWeights(t *testing.T) {
	const weighed = 10_000 // of each: nobody runs dry
	rate := func(a *throttle.Limits) { a.RcptRate = throttle.Rate{Events: 50, Per: time.Second} }
	for i, tc := range []struct {
		name  string
		allow func(a *throttle.Limits)
		route [2]func(n int) []*wire.Host
	}{
		{"one lane, rate", rate, [2]func(int) []*wire.Host{oneHost, oneHost}},
		{"one lane, latency", func(*throttle.Limits) {}, [2]func(int) []*wire.Host{oneHost, oneHost}},
		{"own lanes, rate", rate, [2]func(int) []*wire.Host{ownHost("a", 500), ownHost("b", 500)}},
		{"one lane and many, rate", rate, [2]func(int) []*wire.Host{ownHost("a", 500), oneHost}},
	} {
		if testing.Short() && i < 3 {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.allow(&a)
			w := newWorld(t, a, 1)
			w.scheduler.fair = fairqueue.New[*Probe](func(workspace uuid.UUID) int { return map[byte]int{1: 3, 2: 1}[workspace[15]] })
			heavy := newParty(w, 1, 1, weighed, 20, tc.route[0])
			light := newParty(w, 2, 2, weighed, 20, tc.route[1])
			parties{heavy, light}.listen(w)
			heavy.fill()
			light.fill()
			w.plan()
			w.run(begin.Add(time.Minute))
			h, l := heavy.done, light.done
			w.run(begin.Add(3 * time.Minute))
			h, l = heavy.done-h, light.done-l
			ratio := float64(h) / float64(l)
			t.Logf("%d and %d: %.3f", h, l, ratio)
			if ratio < 3*0.95 || ratio > 3*1.05 {
				t.Errorf("%d and %d addresses: %.3f to one instead of three", h, l, ratio)
			}
		})
	}
}

// TestNobodyStarves: whatever workspaces, weights, verifications and queues there are,
// everybody who waits is served again and again. A round is over as soon as everybody was.
func TestNobodyStarves(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		a := openedWide()
		a.Connections = rapid.IntRange(1, 4).Draw(rt, "connections")
		a.RcptRate = throttle.Rate{Events: rapid.SampledFrom([]int{5, 20}).Draw(rt, "rate"),
			Per: time.Second}
		a.RcptsPerConnection = rapid.SampledFrom([]int{5, 1_000_000}).Draw(rt, "per connection")
		a.RcptsPerTransaction = rapid.SampledFrom([]int{1, 20}).Draw(rt, "per transaction")
		w := newWorld(rt, a, rapid.Uint64().Draw(rt, "seed"))
		w.turn = 200 * time.Millisecond
		weights := map[byte]int{}
		var ps parties
		for n := range rapid.IntRange(2, 8).Draw(rt, "parties") {
			space := byte(rapid.IntRange(1, 4).Draw(rt, "workspace"))
			weights[space] = rapid.IntRange(1, 5).Draw(rt, "weight")
			prefix := rapid.SampledFrom([]string{"mx", "mx", "other", fmt.Sprintf("own%d-", n)}).Draw(rt, "hosts")
			lanes := rapid.SampledFrom([]int{1, 2, 10}).Draw(rt, "lanes")
			size := rapid.SampledFrom([]int{1, 7, 100}).Draw(rt, "chunk")
			p := newParty(w, space, byte(n+1), 1_000_000, size, ownHost(prefix, lanes))
			ps = append(ps, p)
		}
		w.scheduler.fair = fairqueue.New[*Probe](func(workspace uuid.UUID) int { return weights[workspace[15]] })
		ps.listen(w)
		for _, p := range ps {
			for range 20 { // some domains at a time
				p.offer()
			}
			w.scheduler.steps = nil
		}
		w.plan()
		for round := range 5 {
			if p := ps.starved(w, 10*time.Minute); p != nil {
				rt.Fatalf("round %d: verification %d of workspace %d got nothing in ten minutes", round, p.file,
					p.space)
			}
		}
	})
}

// starved returns a party that has got nothing for a while; nil if all have got something.
func (ps parties) starved(w *world, within time.Duration) *party {
	before := map[*party]int{}
	for _, p := range ps {
		before[p] = p.done
	}
	var hungry *party
	for until := w.now.Add(within); w.now.Before(until); {
		w.run(w.now.Add(5 * time.Second))
		hungry = nil
		for _, p := range ps {
			if p.done == before[p] {
				hungry = p
			}
		}
		if hungry == nil {
			return nil
		}
	}
	return hungry
}

// TestSharedLaneTakesNoTurnsAway: a workspace that shares a queue with another one gets its
// other verification served, in queues of its own, though the other one is given less.
func TestSharedLaneTakesNoTurnsAway(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 5, Per: time.Second}
	a.RcptsPerConnection = 5
	w := newWorld(t, a, 1)
	w.scheduler.fair = fairqueue.New[*Probe](func(workspace uuid.UUID) int { return map[byte]int{1: 1, 3: 3}[workspace[15]] })
	alone := newParty(w, 3, 2, 1_000_000, 7, ownHost("other", 2))
	beside := newParty(w, 3, 4, 1_000_000, 7, ownHost("mx", 2))
	other := newParty(w, 1, 3, 1_000_000, 1, ownHost("mx", 2))
	parties{alone, beside, other}.listen(w)
	for _, p := range []*party{alone, beside, other} {
		for range 20 {
			p.offer()
		}
		w.scheduler.steps = nil
	}
	w.plan()
	w.run(begin.Add(20 * time.Minute))
	if least := (alone.done + beside.done + other.done) / 10; alone.done < least || beside.done < least ||
		other.done < least {
		t.Errorf("%d, %d and %d addresses", alone.done, beside.done, other.done)
	}
}
