package clustertest

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/cluster/gossip/gossiptest"
	"rollcall/cluster/secure"
	"rollcall/config/effort"
	"rollcall/ledger/sqlstore"
)

const (
	// patience is how long an expected event may take: far longer than it takes on a slow machine.
	patience = 3 * time.Minute

	// scale makes the times of a world's nodes a fifth of those in production. A busy machine then causes false
	// alarms. The stories tolerate them: they wait for a state, and check in between only what must never happen.
	scale = 0.2

	// atOnce is how many worlds may run at the same time. With more of them each gets too little processor time, and
	// all nodes time out.
	atOnce = 6

	// lookEvery is how often Await looks.
	lookEvery = 20 * time.Millisecond
)

// slower is the factor by which the times of nodes are longer: the race detector makes a heartbeat ten times as
// expensive.
func slower() int {
	if effort.Raced {
		return 2
	}
	return 1
}

// AtOnce is how many worlds may run at the same time.
func AtOnce() int { return atOnce / slower() }

// networks are the networks of gossiptest's nodes.
var networks = []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")}

// World is a cluster and the connections between its nodes.
type World struct {
	Use  *Use
	Echo *Echo

	t       *testing.T
	network *gossiptest.Network
	store   *sqlstore.Store
	ca      *secure.Authority
	nodes   []*Node
	folder  string            // of copies
	copies  []*sqlstore.Store // see OnCopy
}

// New makes a world of n nodes, named node-0, node-1 and so on, none of which has joined. change, which may be nil,
// alters the options of a node.
//
// New makes the test a parallel one. The ports of all tests of a package are opened before any port is used. Whenever
// the actor library opens a port, it sets the process-wide logger of its transport: a data race with every port in
// use.
func New(t *testing.T, n int, change func(i int, o *Options)) *World {
	t.Helper()
	w := Open(t, n, change)
	t.Parallel()
	return w
}

// Open is New for a test that is not parallel: no other test may use ports at the same time.
func Open(t *testing.T, n int, change func(i int, o *Options)) *World {
	t.Helper()
	w := &World{t: t, network: gossiptest.New(), Use: newUse(), Echo: &Echo{living: map[string][]int{}}}
	// These tests are not about the disk, and the folders are removed after the world is closed.
	url := effort.Ledger(t, sqlstore.Migrate)
	w.folder = effort.Folder(t)
	t.Cleanup(w.close)
	w.store = effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	w.ca = effort.Must(secure.NewAuthority("test", time.Now(), secure.AuthorityValidity))(t)
	for i := range n {
		w.open(i, change)
	}
	return w
}

// Start makes a world of n nodes that have all joined and agree. A short run skips these worlds: their cuts take
// seconds.
func Start(t *testing.T, n int) *World {
	t.Helper()
	effort.NotShort(t, "a world that is cut takes seconds")
	w := New(t, n, nil)
	for i := range n {
		w.MustJoin(i)
	}
	w.AwaitShared(w.nodes...)
	return w
}

// Story runs one of several stories of a world. Each story begins in the state that the story before left. After a
// failure no further story runs.
func (w *World) Story(name string, tell func(t *testing.T)) {
	w.t.Helper()
	outer := w.t
	ok := outer.Run(name, func(t *testing.T) {
		w.t = t
		defer func() { w.t = outer }()
		tell(t)
	})
	if !ok {
		outer.FailNow()
	}
}

// close ends all nodes one after the other: two nodes that leave gossip at the same time would each wait in vain for
// the other's answer.
func (w *World) close() {
	w.Heal()
	for _, n := range w.nodes {
		n.end()
	}
	for _, store := range append(w.copies, w.store) {
		if store == nil {
			continue
		}
		effort.ErrIs(w.t, store.Close(), nil, "close the ledger")
	}
	for _, text := range w.Use.broken() {
		w.t.Error(text)
	}
	if w.t.Failed() {
		for _, n := range w.nodes {
			w.t.Logf("log of %s:\n%s", n.Name, n.Log.String())
		}
	}
}

// Node returns a node by its number.
func (w *World) Node(i int) *Node { return w.nodes[i] }

// Join lets a node join. It returns when the node is a member, or why it was refused.
func (w *World) Join(i int) error {
	w.t.Helper()
	n := w.nodes[i]
	close(n.gate)
	select {
	case <-n.started:
		return n.err
	case <-time.After(patience):
		w.t.Fatalf("%s did not start in time", n.Name)
		return nil
	}
}

// OnCopy lets a node that has not joined yet use a copy of the present ledger. A world has one copy.
func (w *World) OnCopy(i int) {
	w.t.Helper()
	path := filepath.Join(w.folder, "copy.db")
	effort.OK(w.t, w.store.Backup(w.t.Context(), path))
	store := effort.Must(sqlstore.Open(w.t.Context(), "sqlite:"+path, sqlstore.Options{}))(w.t)
	w.copies = append(w.copies, store)
	w.nodes[i].book.ledger = store
}

// MustJoin does what Join does, and fails the test if the node is refused.
func (w *World) MustJoin(i int) {
	w.t.Helper()
	if err := w.Join(i); err != nil {
		w.t.Fatalf("%s: %v", w.nodes[i].Name, err)
	}
}

// CutGossip stops packets and streams of gossip from one node to another.
func (w *World) CutGossip(from, to int) {
	w.network.Cut(w.nodes[from].wire.Address(), w.nodes[to].wire.Address())
}

// IsolateGossip cuts a node's gossip off from all others, in both directions.
func (w *World) IsolateGossip(i int) { w.network.Isolate(w.nodes[i].wire.Address()) }

// CutLedger makes a node's calls to the ledger wait until Heal.
func (w *World) CutLedger(i int) { w.nodes[i].book.cut() }

// CutActors stops what is sent to a node over actor traffic. The node can still send, but gets no questions, so it
// sends no answers.
func (w *World) CutActors(i int) { w.nodes[i].door.hold() }

// Cut cuts a node off from everything.
func (w *World) Cut(i int) {
	w.IsolateGossip(i)
	w.CutLedger(i)
	w.CutActors(i)
}

// Heal ends all cuts.
func (w *World) Heal() {
	w.network.Heal()
	for _, n := range w.nodes {
		n.book.heal()
		n.door.release()
	}
}

// Crash ends a node as kill -9 does: at once, and its system refuses connections.
func (w *World) Crash(i int) {
	n := w.nodes[i]
	w.Use.dead(i)
	n.wire.Kill()
	n.book.die()
	n.door.close()
	go n.end()
}

// Leave ends a node as an operator does.
func (w *World) Leave(i int) {
	w.t.Helper()
	if err := w.nodes[i].stop(); err != nil {
		w.t.Errorf("%s leaves: %v", w.nodes[i].Name, err)
	}
}

// Await waits until ok returns true.
func (w *World) Await(what string, ok func() bool) {
	w.t.Helper()
	end, tick := time.After(patience), time.Tick(lookEvery)
	for !ok() {
		select {
		case <-tick:
		case <-end:
			w.t.Fatalf("not in time: %s", what)
		}
	}
}

// AwaitShared waits until some nodes share everything: each key belongs wholly to one of them.
func (w *World) AwaitShared(nodes ...*Node) {
	w.t.Helper()
	w.Await("every key is one node's", func() bool { return Shared(w.Use.Keys(), nodes...) })
}

// Shared reports whether each key belongs wholly to one of these nodes, and every node has some keys.
func Shared(keys []string, nodes ...*Node) bool {
	has := make([]int, len(nodes))
	for _, key := range keys {
		owners := 0
		for i, n := range nodes {
			switch k, of := n.Share(key); {
			case k == of:
				owners++
				has[i]++
			case k > 0:
				return false
			}
		}
		if owners != 1 {
			return false
		}
	}
	for _, count := range has {
		if count == 0 {
			return false
		}
	}
	return true
}

// identity writes the files of a node's certificate and loads them.
func (w *World) identity(name string, log *slog.Logger) (*secure.Identity, error) {
	pair, err := w.ca.Issue(name, time.Now(), secure.NodeValidity)
	if err != nil {
		return nil, err
	}
	folder := w.t.TempDir()
	var paths []string
	for i, text := range [][]byte{w.ca.Pair().Cert, pair.Cert, pair.Key} {
		paths = append(paths, filepath.Join(folder, []string{"ca.crt", "node.crt", "node.key"}[i]))
		if err := os.WriteFile(paths[i], text, 0o600); err != nil {
			return nil, err
		}
	}
	return secure.Load(paths[0], paths[1], paths[2], log)
}

// Gossip has settings that find a dead member within a second and retry vanished members as quickly, so that nodes
// meet soon after a cut.
func Gossip() gossip.Timing {
	t := effort.Scaled(gossip.DefaultTiming(), scale*float64(slower()))
	t.PushPullInterval, t.DeadTime, t.RejoinEvery = time.Second, time.Second, 200*time.Millisecond
	return t
}

// Times are the times of a node in a world. Two of them are as long as in production, because no story waits for
// them: how long the shares of a lost machine stay unused, and how long an answer may take.
func Times() cluster.Times {
	t := effort.Scaled(cluster.DefaultTimes(), scale*float64(slower()))
	t.Linger, t.Ask = cluster.LingerMax, cluster.DefaultTimes().Ask
	return t
}

// traffic gives a slow machine time for handshakes; no story waits for these times to pass.
var traffic = secure.Times{Connect: patience, Handshake: patience, Admit: patience}

// Context ends with the test.
func (w *World) Context() context.Context { return w.t.Context() }
