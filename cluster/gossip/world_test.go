package gossip

import (
	"encoding/base64"
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

// patience is how long something that must happen may take on a slow machine.
const patience = 3 * time.Minute

// quick is a fifth of the product's timing, with which a dead member is found in half a second, and mends lost news as
// quickly. A slow answer is an answer: only where one is cut off does somebody wait for a stream in vain (cutOff). A
// busy machine makes false alarms with it, so that a test waits for a state and does not mind what came before.
func quick() Timing {
	t := effort.Scaled(DefaultTiming(), 0.2)
	t.PushPullInterval, t.RejoinEvery, t.StreamTimeout = 500*time.Millisecond, 100*time.Millisecond, patience
	t.DeadTime = 500 * time.Millisecond
	return t
}

// cutOff is for nodes that cannot reach others for a while.
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

// sees gives the names of the members that a node sees.
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

// counter gives a counter's value by its name and labels ("unit=packet").
func (n *node) counter(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return effort.Sum(t, n.metrics, name, labels...)
}

// writeKeys writes a file of keys and gives its path.
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
