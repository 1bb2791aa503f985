package clustertest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/cluster"
	"rollcall/cluster/clustertest"
	"rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/cluster/wire"
	"rollcall/config/effort"
)

const (
	figureNodes  = 50
	figureDie    = 10
	figureKeys   = 2000
	figureRounds = 3
	figureIdle   = 20 * time.Second
	askersMax    = 64 // that resolve keys at the same time
)

// TestFiguresOfFiftyNodes measures how long fifty nodes in one process take to agree when the last has started, and
// what they do when ten of them die at once. Run it with -long -v.
func TestFiguresOfFiftyNodes(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	var seen, agreed, gone, served, whole []time.Duration
	for round := range figureRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			f := newFifty(t)
			a, b := f.join()
			seen, agreed = append(seen, a), append(agreed, b)
			if round == 0 {
				f.idle()
			}
			g, s, h := f.die()
			gone, served, whole = append(gone, g), append(served, s), append(whole, h)
		})
	}
	t.Logf("on %d processors, %d rounds, min/median/max:", runtime.GOMAXPROCS(0), figureRounds)
	t.Logf("| %d nodes: from the last start until every view has all | %s |", figureNodes, spread(seen))
	t.Logf("| ... until every key is wholly one node's | %s |", spread(agreed))
	t.Logf("| %d die at once: until they are out of all views | %s |", figureDie, spread(gone))
	t.Logf("| ... until all %d keys are served | %s |", figureKeys, spread(served))
	t.Logf("| ... until every key is wholly one node's | %s |", spread(whole))
}

// spread shows the least, the middle and the most.
func spread(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	if len(d) == 0 {
		return "none"
	}
	round := func(x time.Duration) time.Duration { return x.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s / %s / %s", round(d[0]), round(d[len(d)/2]), round(d[len(d)-1]))
}

// fifty is a world whose nodes are many.
type fifty struct {
	*clustertest.World
	t    *testing.T
	keys []string
}

func newFifty(t *testing.T) *fifty {
	f := &fifty{t: t, World: clustertest.Open(t, figureNodes, func(_ int, o *clustertest.Options) {
		o.Times, o.Peers.Gossip.Timing, o.Peers.Traffic = cluster.Times{}, gossip.DefaultTiming(), secure.Times{}
		// Adding up what everybody uses would be most of what the processors do.
		o.ApplyShares = func(context.Context, func(string) (int, int)) error { return nil }
	})}
	for i := range figureKeys {
		f.keys = append(f.keys, fmt.Sprintf("key-%d.example", i))
	}
	return f
}

// numbers gives the first n nodes.
func (f *fifty) numbers(n int) (nodes []*clustertest.Node) {
	for i := range n {
		nodes = append(nodes, f.Node(i))
	}
	return nodes
}

// seldom asks a question that costs much four times a second.
func seldom(ok func() bool) func() bool {
	var last time.Time
	return func() bool {
		if time.Since(last) < 250*time.Millisecond {
			return false
		}
		defer func() { last = time.Now() }()
		return ok()
	}
}

// shared waits until each of some keys is wholly one's of the first n nodes.
func (f *fifty) shared(n int) {
	keys := f.keys[:10*figureNodes]
	f.Await("every key is wholly one node's", seldom(func() bool {
		return clustertest.Shared(keys, f.numbers(n)...)
	}))
}

// views reports whether each of the first n nodes counts on n.
func (f *fifty) views(n int) func() bool {
	return func() bool {
		for _, node := range f.numbers(n) {
			if node.Metric("rollcall_cluster_view_members") != float64(n) {
				return false
			}
		}
		return true
	}
}

// join lets all join and gives how long they take from the last on.
func (f *fifty) join() (seen, agreed time.Duration) {
	began := time.Now()
	for i := range figureNodes - 1 {
		f.MustJoin(i)
	}
	f.t.Logf("%d nodes joined one after the other in %s", figureNodes-1, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	f.MustJoin(figureNodes - 1)
	f.Await("all views have all", seldom(f.views(figureNodes)))
	seen = time.Since(began)
	f.shared(figureNodes)
	return seen, time.Since(began)
}

// idle measures what nodes say when nothing happens.
func (f *fifty) idle() {
	sum := func(name string) (all float64) {
		for _, n := range f.numbers(figureNodes) {
			all += n.Metric(name)
		}
		return all
	}
	const units, octets = "rollcall_gossip_units_total", "rollcall_gossip_bytes_total"
	u, o, a, began := sum(units), sum(octets), f.ActorBytes(), time.Now()
	<-time.After(figureIdle)
	per := func(x float64) float64 { return x / figureNodes / time.Since(began).Seconds() }
	// What one sends another gets, so that half of both is what a node sends.
	f.t.Logf("| idle: gossip that a node sends | %.1f packets and streams, %.0f bytes a second |",
		per(sum(units)-u)/2, per(sum(octets)-o)/2)
	f.t.Logf("| idle: actor traffic that a node sends | %.0f bytes a second |", per(float64(f.ActorBytes()-a)))
}

// die kills ten at once and gives how long the others take.
func (f *fifty) die() (gone, served, whole time.Duration) {
	if left := f.serve(f.keys); len(left) != 0 {
		f.Await("all keys are served before", func() bool { return len(f.serve(f.keys)) == 0 })
	}
	living := figureNodes - figureDie
	began := time.Now()
	for i := living; i < figureNodes; i++ {
		f.Crash(i)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for left := f.keys; len(left) > 0; served = time.Since(began) {
			left = f.serve(left)
		}
	})
	f.Await("the dead are out of all views", seldom(f.views(living)))
	gone = time.Since(began)
	all.Wait()
	f.shared(living)
	return gone, served, time.Since(began)
}

// serve has each key's virtual actor answer, and gives the keys for which none did.
func (f *fifty) serve(keys []string) (left []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for asker := range askersMax {
		all.Go(func() {
			for i := asker; i < len(keys); i += askersMax {
				if !f.answers(f.Node(i%(figureNodes-figureDie)), keys[i]) {
					mu.Lock()
					left = append(left, keys[i])
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return left
}

// answers reports whether the virtual actor of a key answers a node.
func (f *fifty) answers(n *clustertest.Node, key string) bool {
	pid := n.Resolve(clustertest.EchoKind, key)
	if pid == nil {
		return false
	}
	// A PID remembers the process it led to.
	to := actor.NewPID(pid.Address, pid.Id)
	_, err := n.System().Root.RequestFuture(to, &wire.Ask{}, time.Second).Result()
	return err == nil
}
