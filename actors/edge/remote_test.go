package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	httpd "rollcall/http"
)

var _ httpd.Limiter = (*Limiter)(nil)

// ownersVariable makes the test binary a node that only hosts owners, with the limits
// in it; a process of its own, since the library can start one node in a process
// without a data race, and since it can be killed.
const ownersVariable = "ROLLCALL_EDGE_OWNERS"

func TestMain(m *testing.M) {
	if limits := os.Getenv(ownersVariable); limits != "" {
		if err := hostOwners(limits); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hostOwners hosts owners until its input ends. It prints its address first.
func hostOwners(limits string) error {
	var l Limits
	if err := json.Unmarshal([]byte(limits), &l); err != nil {
		return err
	}
	kinds, err := Kinds(newOptions(l, whole))
	if err != nil {
		return err
	}
	system := listen()
	p := &place{system: system, props: kinds[kind], owners: map[string]*actor.PID{}}
	_, err = system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*cluster.ActivationRequest); ok {
			c.Respond(&cluster.ActivationResponse{Pid: p.resolve(kind, m.ClusterIdentity.Identity)})
		}
	}), "placement")
	if err != nil {
		return err
	}
	fmt.Println(system.Address())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// listen makes an actor system that other processes reach.
func listen() *actor.ActorSystem {
	system := quietSystem()
	remote.NewRemote(system, remote.Configure("127.0.0.1", 0,
		remote.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials())),
		remote.WithEndpointWriterQueueSize(1024))).Start()
	return system
}

// home is the actor system of this process.
var home = sync.OnceValue(listen)

// far is a node in another process that hosts owners.
type far struct {
	address string
	kill    func()
}

func startFar(t testing.TB, l Limits) *far {
	t.Helper()
	limits, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), ownersVariable+"="+string(limits))
	node.Stderr = os.Stderr
	in, err := node.StdinPipe() // closed when this process ends, too
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	f := &far{kill: sync.OnceFunc(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
		_ = in.Close()
	})}
	t.Cleanup(f.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the node did not start: %v", err)
	}
	f.address = strings.TrimSpace(line)
	return f
}

// resolve asks the node for an owner.
func (f *far) resolve(kind, key string) *actor.PID {
	answer, err := home().Root.RequestFuture(actor.NewPID(f.address, "placement"),
		&cluster.ActivationRequest{ClusterIdentity: &cluster.ClusterIdentity{Identity: key, Kind: kind}},
		time.Second).Result()
	if a, ok := answer.(*cluster.ActivationResponse); ok && err == nil {
		return a.Pid
	}
	return nil
}

// nodeAt starts the limiter of one node in this process.
func nodeAt(t testing.TB, o Options, resolve func(kind, key string) *actor.PID) *Limiter {
	t.Helper()
	l, err := Start(home(), resolve, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestOwnerInAnotherProcess counts by real messages for two nodes, and goes on when
// the owner's process is killed: first alone, then with the owner that comes after it.
func TestOwnerInAnotherProcess(t *testing.T) {
	slow := Limits{Reads: Rate{1e-6, 40}, Creates: Rate{1e-6, 20}, Downloads: 4} // nothing comes back
	var mu sync.Mutex
	var find func(kind, key string) *actor.PID
	resolve := func(kind, key string) *actor.PID {
		mu.Lock()
		now := find
		mu.Unlock()
		return now(kind, key)
	}
	first := startFar(t, slow)
	find = first.resolve
	none := func(string) (int, int) { return 0, 2 }
	nodes := []*Limiter{nodeAt(t, newOptions(slow, none), resolve), nodeAt(t, newOptions(slow, none), resolve)}
	for _, n := range nodes {
		connected(t, n)
	}
	spent := spend(t, nodes)

	first.kill()
	fallbacks := func() int { return metric(t, nodes[0].options.Metrics.fallbacks, "creates") }
	if nodes[0].Create("fresh") != 0 || fallbacks() == 0 {
		t.Fatal("a node whose owner is gone refuses, or was answered by it")
	}
	second := newPlace(t, home(), newOptions(slow, whole))
	mu.Lock()
	find = second.resolve
	mu.Unlock()
	answered := func() int { return metric(t, nodes[0].options.Metrics.asks, "answered") }
	before := answered()
	until(t, "the new owner to hear what was used", func() bool {
		nodes[0].Create(spent)
		return answered() > before
	})
	before = metric(t, nodes[0].options.Metrics.fallbacks, "reads")
	got := burst(spent, nodes[0]) - (metric(t, nodes[0].options.Metrics.fallbacks, "reads") - before)
	if got > 0 {
		t.Errorf("%d more were granted because the owner moved", got)
	}
}

// spend takes all reads and downloads of a key at two nodes, checks how many there
// were, and gives the key. A machine that is too slow for once counts without the
// owner: then again, with another key.
func spend(t *testing.T, nodes []*Limiter) string {
	t.Helper()
	fallbacks := func() (n int) {
		for _, l := range nodes {
			n += metric(t, l.options.Metrics.fallbacks, "reads") + metric(t, l.options.Metrics.fallbacks, "downloads")
		}
		return n
	}
	for i := range 100 {
		key, before := fmt.Sprint("key ", i), fallbacks()
		reads, downloads := burst(key, nodes...), 0
		for i := range 6 {
			if _, ok := nodes[i%2].Download(key); ok {
				downloads++
			}
		}
		if fallbacks() != before {
			continue
		}
		if reads != 40 || downloads != 4 {
			t.Fatalf("two nodes were granted %d reads and %d downloads, want 40 and 4", reads, downloads)
		}
		return key
	}
	t.Fatal("the owner never answered in time")
	return ""
}

// burst sends 60 reads at once to each node, and counts those that were granted.
func burst(key string, nodes ...*Limiter) int {
	var g taken
	var done sync.WaitGroup
	for _, n := range nodes {
		for range 60 {
			done.Go(func() {
				if n.Read(key) == 0 {
					g.note(time.Now())
				}
			})
		}
	}
	done.Wait()
	return g.count()
}

// connected waits until a node reaches the owner: the first connection of a loaded
// machine may take longer than a request waits.
func connected(t testing.TB, l *Limiter) {
	t.Helper()
	until(t, "a connection", func() bool {
		l.Create("first")
		return metric(t, l.options.Metrics.asks, "answered") > 0
	})
}

// until waits for a condition, at most a minute.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		case <-tick.C:
		}
	}
}
