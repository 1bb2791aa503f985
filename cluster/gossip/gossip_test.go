package gossip

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

func TestMembersFindEachOtherOverOneAddress(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, gossiptest.New(), 3, nil)
	for _, n := range nodes {
		members := n.Members()
		if !slices.IsSortedFunc(members, func(a, b Member) int {
			return strings.Compare(a.Session.String(), b.Session.String())
		}) {
			t.Errorf("%s: members are not sorted by session", n.options.Self.Name)
		}
		for _, m := range members {
			i := slices.IndexFunc(nodes, func(o *node) bool { return o.options.Self.Session == m.Session })
			if i < 0 || m.NodeMeta != nodes[i].options.Self || m.Address != nodes[i].Address() || m.Since.IsZero() {
				t.Errorf("%s sees %+v, want the card of that node", n.options.Self.Name, m)
			}
		}
		select {
		case <-n.Changed():
		case <-time.After(patience):
			t.Errorf("%s: no change was told", n.options.Self.Name)
		}
		effort.Not(t, n.counter(t, "rollcall_gossip_bytes_total"), 0, n.options.Self.Name, "no bytes were counted")
		effort.Within(t, "metric says 3 members", func() bool { return n.counter(t, "rollcall_gossip_members") == 3 })
		if got := n.counter(t, "rollcall_gossip_dropped_total"); got != 0 {
			t.Errorf("%s dropped %v of what members send", n.options.Self.Name, got)
		}
	}
}

func TestMembersFindEachOtherOverSockets(t *testing.T) {
	t.Parallel()
	key := NewKey()
	var nodes []*node
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		o := options(t, name)
		o.Listen, o.Networks, o.Keys = "127.0.0.1:0", loopback, ring(t, key)
		if len(nodes) > 0 {
			o.Join = []string{nodes[0].Address(), "127.0.0.1:1"} // nobody is at the second
		}
		nodes = append(nodes, mustBegin(t, o))
	}
	for _, n := range nodes {
		n.awaitNames(t, "node-a", "node-b", "node-c")
	}
	heard(t, "leave", nodes[2].Leave(t.Context()))
	nodes[0].awaitNames(t, "node-a", "node-b")
	if err := nodes[1].Stop(); err != nil { // without a word, as a killed one
		t.Errorf("stop: %v", err)
	}
	nodes[0].awaitNames(t, "node-a")
	for _, n := range nodes {
		if got := n.counter(t, "rollcall_gossip_dropped_total"); got != 0 {
			t.Errorf("%s dropped %v of what members send", n.options.Self.Name, got)
		}
	}
}

func TestAKilledMemberIsNoticedAndItsSuccessorTakesItsPlace(t *testing.T) {
	t.Parallel()
	network := gossiptest.New()
	nodes := cluster(t, network, 3, nil)
	nodes[2].wire.Kill()
	for _, n := range nodes[:2] {
		n.awaitNames(t, "node-a", "node-b")
	}
	effort.Within(t, "the log says it", func() bool { return nodes[0].log.Has("member gone") })
	o := nodes[2].options
	o.Self.Session, o.Self.Started = uuid.New(), o.Self.Started+1
	o.Transport = network.Transport()
	mustBegin(t, o)
	for _, n := range nodes[:2] {
		n.awaitNames(t, "node-a", "node-b", "node-c")
	}
}

func TestASilentMemberIsSuspectBeforeItIsGone(t *testing.T) {
	t.Parallel()
	network := gossiptest.New()
	nodes := cluster(t, network, 2, func(o *Options) {
		cutOff(o)
		o.Timing.SuspicionMult = 10_000
	})
	network.Isolate(nodes[1].Address())
	suspect := func() bool {
		for _, m := range nodes[0].Members() {
			if m.Suspect {
				return m.Name == "node-b"
			}
		}
		return false
	}
	effort.Within(t, "node-b is suspect", suspect)
	effort.Within(t, "metric says that one is suspect", func() bool {
		return nodes[0].counter(t, "rollcall_gossip_members", "state=suspect") == 1
	})
	network.Heal()
	effort.Within(t, "node-b is alive", func() bool { return !suspect() })
	nodes[0].awaitNames(t, "node-a", "node-b")
}

// heard wants that what a node says was heard; on a busy machine nobody may have
// confirmed it in time, and what the others know tells whether it was.
func heard(t *testing.T, what string, err error) {
	t.Helper()
	effort.ErrorIf(t, err != nil && !strings.Contains(err.Error(), "timeout waiting"), "%s: %v", what, err)
}

func TestDrainAndLeaveAreHeard(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, gossiptest.New(), 3, nil)
	for _, draining := range []bool{true, false, true} {
		heard(t, "drain", nodes[1].Drain(draining))
		for _, n := range nodes {
			effort.Within(t, "all know whether node-b drains", func() bool {
				for _, m := range n.Members() {
					if m.Draining != (draining && m.Name == "node-b") {
						return false
					}
				}
				return true
			})
		}
	}
	heard(t, "leave", nodes[1].Leave(t.Context()))
	nodes[0].awaitNames(t, "node-a", "node-c")
	effort.Is(t, len(nodes[0].table.lost(time.Now())), 0, "nodes that drained and left are looked for")
}

func TestEndsComeInAnyOrderAndOnceEach(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, gossiptest.New(), 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = nodes[0].Leave(ctx) // does not wait; may not have been heard
	for range 2 {
		effort.ErrIs(t, nodes[0].Stop(), nil, "stop")
		effort.ErrIs(t, nodes[0].Leave(t.Context()), nil, "leave after stop")
	}
	effort.ErrIs(t, nodes[0].Drain(true), ErrStopped, "drain after stop")
	for range 2 {
		heard(t, "leave", nodes[1].Leave(t.Context()))
	}
	effort.ErrIs(t, nodes[2].Stop(), nil, "stop without leave")
}

// A partition that outlives the library's memory of the dead heals by itself, from the seeds, and where the only seed
// is gone, because members remember whom they have lost.
func TestALongPartitionHeals(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	for name, seeds := range map[string]int{"with its seed": 1, "without": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := gossiptest.New()
			nodes := cluster(t, network, 3, func(o *Options) {
				cutOff(o)
				o.Timing.DeadTime = 100 * time.Millisecond
			})
			if seeds == 0 {
				nodes[0].wire.Kill() // node-a is the seed of the others
				nodes = nodes[1:]
			}
			last := len(nodes) - 1
			network.Isolate(nodes[last].Address())
			forget(t, nodes[:last])
			forget(t, nodes[last:])
			network.Heal()
			for _, n := range nodes {
				n.awaitNames(t, names(nodes...)...)
			}
		})
	}
}

// forget waits until nodes see no others than themselves, and then long enough for the
// library to forget the dead, which it does not tell: DeadTime and two rounds of pings.
func forget(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		n.awaitNames(t, names(nodes...)...)
	}
	<-time.After(100*time.Millisecond + 3*quick().ProbeInterval)
}
