package gossip

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
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
	if err := nodes[1].Stop(); err != nil { // without Leave, as a killed process
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

// heard accepts an error if the message arrived all the same: on a busy machine no node may have confirmed it in
// time, but the others' lists of members show that they have it.
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
	_ = nodes[0].Leave(ctx) // returns at once; perhaps no member has the message
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

// TestALongPartitionHeals: a partition heals by itself even when it lasts longer than the library remembers dead
// members. Nodes reconnect through the seeds, and through addresses of lost members if the only seed is gone.
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

// forget waits until nodes see only themselves, and then until the library has forgotten the dead members. The
// library does not report that, so forget waits for DeadTime and two rounds of pings.
func forget(t *testing.T, nodes []*node) {
	t.Helper()
	for _, n := range nodes {
		n.awaitNames(t, names(nodes...)...)
	}
	<-time.After(100*time.Millisecond + 3*quick().ProbeInterval)
}

// TestANodeThatDoesNotBelongIsRefusedOnBothSides: each case is a node that must not become a member. It checks what
// the node's operator reads and what the cluster's operator reads. Neither text contains a key.
func TestANodeThatDoesNotBelongIsRefusedOnBothSides(t *testing.T) {
	key, other := NewKey(), NewKey()
	for _, c := range []struct {
		name   string
		change func(*Options)
		error  []string // in the error of Start
		log    []string // in the log of the member
		metric string   // of the member, with its labels
	}{
		{"another ledger", func(o *Options) { o.Self.Ledger = uuid.New() },
			[]string{`node \"stranger\"`, "works on ledger", "give both the same ledger.url", ledgerID.String()},
			[]string{"node is refused", `stranger`, "ledger.url"}, "rollcall_gossip_refused_total reason=ledger"},
		{"another wire version", func(o *Options) { o.Self.Wire = 8 },
			[]string{"speaks wire version 7", `node \"stranger\" (program v1.2.3) 8`, "programs of one wire version"},
			[]string{"node is refused", "speaks wire version 8", "(program v1.2.3) 7"},
			"rollcall_gossip_refused_total reason=wire"},
		{"another cluster's name", func(o *Options) { o.Cluster = "second" },
			[]string{"refuses this node", "hung up", "cluster.name"},
			[]string{"dropped gossip of another cluster", "its_cluster=second", "our_cluster=test"},
			"rollcall_gossip_dropped_total reason=cluster unit=stream"},
		{"another key", func(o *Options) { o.Keys = ring(t, other) }, []string{"refuses this node", "hung up", "gossip key"},
			[]string{"encrypted with a key that is not on our ring", fingerprintOf(rawKey(t, key))},
			"rollcall_gossip_dropped_total reason=key unit=stream"},
		{"no key", func(o *Options) { o.Keys = nil }, []string{"refuses this node", "hung up"},
			[]string{"dropped unencrypted gossip"}, "rollcall_gossip_dropped_total reason=unsealed unit=stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			network := gossiptest.New()
			nodes := cluster(t, network, 2, func(o *Options) { o.Keys = ring(t, key) })
			o := options(t, "stranger")
			o.Transport, o.Keys = network.Transport(), ring(t, key)
			o.Join = []string{"10.7.99.99:7946", nodes[0].Address()} // nobody is at the first
			c.change(&o)
			stranger, err := begin(t, o)
			effort.FatalIf(t, !errors.Is(err, ErrRefused), "start: got %v, want ErrRefused", err)
			for _, want := range c.error {
				want = strings.ReplaceAll(want, `\"`, `"`)
				effort.Has(t, err.Error(), want, "start")
			}
			for _, want := range c.log {
				effort.Within(t, "the member's log says "+want, func() bool { return nodes[0].log.Has(want) })
			}
			name, labels, _ := strings.Cut(c.metric, " ")
			got := nodes[0].counter(t, name, strings.Fields(labels)...)
			effort.ErrorIf(t, got < 1, "%s is %v, want at least 1", c.metric, got)
			for _, n := range nodes {
				n.awaitNames(t, "node-a", "node-b")
			}
			all := err.Error() + nodes[0].log.String() + stranger.log.String()
			for _, secret := range []string{key, other} {
				effort.Lacks(t, all, secret, "a key is")
				effort.Lacks(t, all, string(rawKey(t, secret)), "a key is")
			}
		})
	}
}

func TestANodeFromOutsideTheNetworksIsNotHeard(t *testing.T) {
	t.Parallel()
	network := gossiptest.New()
	narrow := []netip.Prefix{netip.MustParsePrefix("10.7.0.0/30")} // addresses 1 to 3
	nodes := cluster(t, network, 2, func(o *Options) { o.Networks = narrow })
	network.Transport()
	_, _ = network.Transport().WriteTo([]byte("x"), nodes[0].Address()) // address 4
	effort.Within(t, "its packet is dropped", func() bool {
		return nodes[0].counter(t, "rollcall_gossip_dropped_total", "reason=network", "unit=packet") == 1
	})
	o := options(t, "stranger")
	o.Transport, o.Join = network.Transport(), []string{nodes[0].Address()} // address 5
	_, err := begin(t, o)
	effort.ErrorIf(t, !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "cluster.allow_networks"),
		"start: got %v, want ErrRefused and a word about cluster.allow_networks", err)
	got := nodes[0].counter(t, "rollcall_gossip_dropped_total", "reason=network", "unit=stream")
	effort.ErrorIf(t, got < 1, "%v dropped, want at least 1", got)
	o = options(t, "lost")
	o.Transport, o.Networks = network.Transport(), narrow // address 6
	if _, err := begin(t, o); err == nil || !strings.Contains(err.Error(), "own address 10.7.0.6") {
		t.Errorf("start outside its own networks: got %v", err)
	}
}

func TestANodeStartsAloneAndJoinsWhenSomebodyIsThere(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	network := gossiptest.New()
	late := network.Transport()
	o := options(t, "early")
	o.Transport, o.Join = network.Transport(), []string{late.Address()}
	cutOff(&o)
	network.Isolate(late.Address())
	early := mustBegin(t, o)
	early.awaitNames(t, "early")
	effort.ErrorIf(t, !early.log.Has("this node is alone"), "nothing in the log")
	network.Heal()
	o = options(t, "late")
	o.Transport = late
	mustBegin(t, o).awaitNames(t, "early", "late")
	early.awaitNames(t, "early", "late")
}

func TestAClusterMeetsAnotherOneLaterAndStaysApart(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	network := gossiptest.New()
	first := network.Transport()
	o := options(t, "early")
	o.Transport, o.Join = network.Transport(), []string{first.Address()}
	cutOff(&o)
	network.Isolate(first.Address())
	early := mustBegin(t, o)
	o = options(t, "other")
	o.Transport, o.Self.Ledger = first, uuid.New()
	other := mustBegin(t, o)
	network.Heal()
	for _, n := range []*node{early, other} {
		effort.Within(t, "refused", func() bool { return n.log.Has("node is refused") })
		n.awaitNames(t, n.options.Self.Name)
	}
	effort.Within(t, "the log says it", func() bool { return early.log.Has("members refuse this node") })
}

// TestAStrangerThatDoesNotAskIsNoMember: a process without any checks takes the members as its own, and sends them,
// in packets and through others, that it is alive. No node makes it a member.
func TestAStrangerThatDoesNotAskIsNoMember(t *testing.T) {
	t.Parallel()
	network := gossiptest.New()
	nodes := cluster(t, network, 2, nil)
	card := options(t, "stranger").Self
	card.Ledger = uuid.New()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.EnableCompression = card.Session.String(), "test", false
	c.GossipInterval = quick().GossipInterval
	c.Transport, c.Delegate = network.Transport(), meta{&delegate{}, card.encode()}
	c.Logger = log.New(io.Discard, "", 0)
	list := effort.Must(memberlist.Create(c))(t)
	defer list.Shutdown()
	effort.Must(list.Join([]string{nodes[0].Address()}))(t)
	refused := func(n *node) bool { return n.counter(t, "rollcall_gossip_refused_total", "reason=ledger") >= 2 }
	effort.Within(t, "its packets are refused too", func() bool { return refused(nodes[0]) && refused(nodes[1]) })
	for _, n := range nodes {
		n.awaitNames(t, "node-a", "node-b")
	}
}

// meta is a delegate with metadata that the test sets.
type meta struct {
	*delegate
	card []byte
}

func (m meta) NodeMeta(int) []byte { return m.card }

func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	o := options(t, "node-a")
	o.Transport = gossiptest.New().Transport()
	n := mustBegin(t, o)
	alive := func() error {
		one := listed(options(t, "node-b").Self, 1)
		one.PMin, one.PMax, one.PCur = 1, 5, protocol
		err := events{n.Gossip}.NotifyAlive(one)
		if err == nil {
			n.table.put(one, time.Now())
		}
		return err
	}
	for i := range membersMax - 1 {
		effort.OK(t, alive(), "member", i+2)
	}
	effort.ErrHas(t, alive(), "finds no room", "member", membersMax+1)
}

// patience is how long something that must happen may take on a slow machine.
const patience = 3 * time.Minute

// quick is a fifth of the product's timing: it finds a dead member in half a second, and repairs lost messages as
// quickly. Streams have a long timeout except in tests that cut nodes off (cutOff). On a busy machine quick causes
// false alarms, so tests wait for a state and accept any state before it.
func quick() Timing {
	t := effort.Scaled(DefaultTiming(), 0.2)
	t.PushPullInterval, t.RejoinEvery, t.StreamTimeout = 500*time.Millisecond, 100*time.Millisecond, patience
	t.DeadTime = 500 * time.Millisecond
	return t
}

// cutOff is an option for nodes that cannot reach others for a while.
func cutOff(o *Options) { o.Timing.StreamTimeout = 2 * time.Second }

// TestMain lets all tests run at the same time: they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var (
	memory   = []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	ledgerID = uuid.MustParse("11111111-1111-4111-8111-111111111111")
)

func newPage(t *testing.T) (*effort.Log, *slog.Logger) {
	t.Helper()
	p := &effort.Log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", p.String())
		}
	})
	return p, slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// node is one member of a test.
type node struct {
	*Gossip
	options Options
	log     *effort.Log
	metrics *prometheus.Registry
	wire    *gossiptest.Transport // nil: sockets
}

func options(t *testing.T, name string) Options {
	return Options{
		Cluster: "test", Networks: memory, Timing: quick(),
		Self: NodeMeta{Session: uuid.New(), Node: uuid.New(), Ledger: ledgerID, Name: name, Actors: name + ":7947",
			Version: "v1.2.3", Wire: 7, Started: time.Now().UnixMilli()},
	}
}

// begin starts a node; it is stopped at the end of the test.
func begin(t *testing.T, o Options) (*node, error) {
	t.Helper()
	n := &node{options: o, metrics: prometheus.NewRegistry()}
	n.log, n.options.Log = newPage(t)
	n.options.Registerer = n.metrics
	n.wire, _ = o.Transport.(*gossiptest.Transport)
	g, err := Start(n.options)
	if err != nil {
		return n, err
	}
	n.Gossip = g
	t.Cleanup(func() { effort.OK(t, g.Stop()) })
	return n, nil
}

func mustBegin(t *testing.T, o Options) *node {
	t.Helper()
	return effort.Must(begin(t, o))(t)
}

// cluster starts n members on a network in memory; all join the first.
func cluster(t *testing.T, network *gossiptest.Network, n int, change func(*Options)) []*node {
	t.Helper()
	var nodes []*node
	for i := range n {
		o := options(t, "node-"+string(rune('a'+i)))
		o.Transport = network.Transport()
		if i > 0 {
			o.Join = []string{nodes[0].Address()}
		}
		if change != nil {
			change(&o)
		}
		nodes = append(nodes, mustBegin(t, o))
	}
	for _, member := range nodes {
		member.awaitNames(t, names(nodes...)...)
	}
	return nodes
}

func names(nodes ...*node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.options.Self.Name)
	}
	return list
}

// sees returns the names of the members that a node sees.
func (n *node) sees() map[string]bool {
	set := map[string]bool{}
	for _, m := range n.Members() {
		set[m.Name] = true
	}
	return set
}

// awaitNames waits until the node sees these members and no others.
func (n *node) awaitNames(t *testing.T, want ...string) {
	t.Helper()
	effort.Within(t, n.options.Self.Name+" sees "+strings.Join(want, " "), func() bool {
		got := n.sees()
		for _, name := range want {
			if !got[name] {
				return false
			}
		}
		return len(got) == len(want)
	})
}

// counter returns a counter's value by its name and labels ("unit=packet").
func (n *node) counter(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return nettest.Sum(t, n.metrics, name, labels...)
}

// writeKeys writes a file of keys and returns its path.
func writeKeys(t *testing.T, keys ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gossip.keys")
	effort.OK(t, os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600))
	return path
}

func ring(t *testing.T, keys ...string) *Keyring {
	t.Helper()
	return effort.Must(LoadKeyring(writeKeys(t, keys...)))(t)
}

func rawKey(t *testing.T, key string) []byte {
	t.Helper()
	return effort.Must(base64.StdEncoding.DecodeString(key))(t)
}
