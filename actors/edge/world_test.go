package edge

import (
	"context"
	"io"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/prometheus/client_golang/prometheus"
)

// deadLetters is how long the library counts dead letters in a goroutine; bubbles wait for it.
const deadLetters = time.Millisecond

// quietSystem is an actor system that says nothing.
func quietSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}), actor.WithDeadLetterRequestLogging(false), actor.WithDeadLetterThrottleInterval(deadLetters))
}

// newOptions are those of one node with its own metrics.
func newOptions(limits Limits, share func(string) (int, int)) Options {
	return Options{Limits: limits, Share: share, Metrics: NewMetrics(prometheus.NewRegistry())}
}

func whole(string) (int, int) { return 1, 1 }

// place is where the actors of keys live: one owner for each, as nodes that agree see it.
type place struct {
	system  *actor.ActorSystem
	options Options
	props   *actor.Props

	mu     sync.Mutex
	owners map[string]*actor.PID // guarded by mu
	closed bool                  // guarded by mu; nobody can be resolved
	finds  int                   // guarded by mu
}

func newPlace(t testing.TB, system *actor.ActorSystem, o Options) *place {
	t.Helper()
	kinds, err := Kinds(o)
	if err != nil {
		t.Fatal(err)
	}
	return &place{system: system, options: o, props: kinds["edge"], owners: map[string]*actor.PID{}}
}

func (p *place) resolve(kind, key string) *actor.PID {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finds++
	if kind != "edge" || p.closed {
		return nil
	}
	owner := p.owners[key]
	if owner == nil {
		pid := p.system.Root.Spawn(p.props)
		p.system.Root.Send(pid, &cluster.ClusterInit{Identity: &cluster.ClusterIdentity{Identity: key, Kind: kind}})
		p.owners[key], owner = pid, pid
	}
	// A copy, as it comes over the network: the original knows the actor itself.
	return actor.NewPID(owner.Address, owner.Id)
}

// end stops the owner of a key; the next resolve makes another.
func (p *place) end(key string) {
	p.mu.Lock()
	pid := p.owners[key]
	delete(p.owners, key)
	p.mu.Unlock()
	if pid != nil {
		_ = p.system.Root.StopFuture(pid).Wait()
	}
}

func (p *place) close(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
}

// put makes an actor the owner of a key.
func (p *place) put(key string, pid *actor.PID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owners[key] = pid
}

// world is some nodes in one process, in a bubble whose clock runs by itself.
type world struct {
	t      *testing.T
	system *actor.ActorSystem
	place  *place
	nodes  []*Limiter
}

// inBubble runs a test with so many nodes that agree on one place.
func inBubble(t *testing.T, limits Limits, nodes int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, system: quietSystem()}
		w.place = newPlace(t, w.system, newOptions(limits, whole))
		for range nodes {
			w.node(w.place.resolve, newOptions(limits, whole))
		}
		test(w)
		for _, n := range w.nodes {
			if err := n.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
		for key := range w.place.owners {
			w.place.end(key)
		}
		w.system.Shutdown()
		after(2*pauseMax + deadLetters)
	})
}

func (w *world) node(resolve func(kind, key string) *actor.PID, o Options) *Limiter {
	w.t.Helper()
	l, err := Start(w.system, resolve, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.nodes = append(w.nodes, l)
	return l
}

// deaf is an actor that answers nothing.
func (w *world) deaf() *actor.PID {
	return w.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
}

// after lets time pass, and what is due in it happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// taken notes when tokens were granted.
type taken struct {
	mu sync.Mutex
	at []time.Time // guarded by mu
}

func (g *taken) note(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = append(g.at, at)
}

// within checks that in no time more was granted than a burst and what came back,
// but for extra tokens.
func (g *taken) within(t *testing.T, r Rate, extra int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	// With level(i) = tokens granted until i, less those that came back, the worst
	// time is from the lowest level to the highest after it.
	low, worst := math.Inf(1), 0.0
	for i, at := range g.at {
		level := float64(i) - r.PerSecond*at.Sub(g.at[0]).Seconds()
		low = min(low, level)
		worst = max(worst, level+1-low)
	}
	if worst > float64(r.Burst+extra)+1e-3 {
		t.Errorf("%.3f tokens more were granted in some time than came back in it, a burst is %d and %d extra",
			worst, r.Burst, extra)
	}
}

func (g *taken) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.at)
}

// hammer asks a node for reads, many at once, until the end.
func (g *taken) hammer(done *sync.WaitGroup, take func(key string) time.Duration, many int, end time.Time) {
	for range many {
		done.Go(func() {
			for time.Now().Before(end) {
				wait := take("key")
				if wait == 0 {
					g.note(time.Now())
					continue
				}
				<-time.After(wait)
			}
		})
	}
}

// value reads a counter or a gauge.
func value(t testing.TB, c prometheus.Collector) int {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
		t.Fatalf("gather: %v, %v", families, err)
	}
	m := families[0].Metric[0]
	return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
}

// metric reads one counter of several.
func metric(t testing.TB, v *prometheus.CounterVec, label string) int {
	t.Helper()
	return value(t, v.WithLabelValues(label))
}
