package clustertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/receiver"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/wire"
	"rollcall/cluster/clustertest"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	figureReceivers = 100_000
	slotsOfNode     = 100 // SMTP sessions; the other receivers wait for one
	offerers        = 4   // at the same time: more of them starve the heartbeats of all nodes in one process
)

// TestFiguresOfReceivers measures the memory of receivers that have work, in a
// cluster of three nodes in one process. Run it with -long -v.
func TestFiguresOfReceivers(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes a minute: run it with -long")
	}
	var living []*receiver.Registry
	w := clustertest.Open(t, 3, func(_ int, o *clustertest.Options) {
		l := receiver.NewRegistry()
		kinds, err := receiver.Kinds(waiting(l, receiver.NewMetrics(o.Registerer)))
		if err != nil {
			t.Fatal(err)
		}
		living, o.Kinds, o.Comply = append(living, l), kinds, l.ApplyShares
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	before, began := memory(), time.Now()
	var taken atomic.Int64
	client := w.Node(0).System().Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wire.OfferAck); ok && m.GetRefusal() == wire.Refusal_NONE {
			taken.Add(1)
		}
	}))
	var all sync.WaitGroup
	for asker := range offerers {
		all.Go(func() {
			for i := asker; i < figureReceivers; i += offerers {
				offer(t.Context(), w.Node(0), client, i)
			}
		})
	}
	all.Wait()
	w.Await("every receiver has taken its work", func() bool { return taken.Load() >= figureReceivers })
	took, after, count := time.Since(began), memory(), 0
	for i, l := range living {
		t.Logf("node-%d has %d receivers", i, l.Count())
		count += l.Count()
	}
	if count != figureReceivers {
		t.Errorf("%d receivers live, want %d", count, figureReceivers)
	}
	t.Logf("| %d receivers with work in one cluster | %d bytes each, %d MB in all | made in %s |", count,
		(after-before)/figureReceivers, (after-before)>>20, took.Round(100*time.Millisecond))
}

// waiting are the options of receivers whose SMTP sessions never begin.
func waiting(l *receiver.Registry, m *receiver.Metrics) receiver.Options {
	open := func(ctx context.Context, _ string, _ netip.Addr, _ smtp.TLSMode) (*smtp.Session, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	sources, err := egress.NewPool([]egress.Source{{Hello: "probe.example", Open: open}})
	if err != nil {
		panic(err)
	}
	return receiver.Options{
		Registry: l, Fenced: func() bool { return false }, Waits: []time.Duration{time.Minute}, Sources: sources,
		Allow: func(string) throttle.Limits {
			rate := throttle.Rate{Events: 10, Per: time.Second}
			return throttle.Limits{Connections: 2, ConnectionRate: rate, RcptRate: rate,
				RcptsPerConnection: 100, RcptsPerTransaction: 1, RefusedPerSession: 100, RefusedPerHour: 1000}
		},
		Slots: receiver.NewSlots(slotsOfNode), Rules: verdict.Builtin,
		Log: slog.New(slog.DiscardHandler), Metrics: m,
	}
}

// offer gives a receiver ten addresses to ask for, as soon as it is found.
func offer(ctx context.Context, n *clustertest.Node, client *actor.PID, i int) {
	id := uuid.New()
	m := &wire.Offer{Task: &wire.Task{Verification: id[:], Epoch: 1, Domain: fmt.Sprintf("d%d.example", i)}, Chunk: 1,
		Hosts: []*wire.Host{{Name: fmt.Sprintf("mx.d%d.example", i), Addrs: [][]byte{{192, 0, 2, 1}}}}}
	for p := range uint32(10) {
		m.Probes = append(m.Probes, &wire.Probe{Ordinal: p, Local: fmt.Sprintf("anna.%d", p)})
	}
	resolve := receiver.Resolver(n.Resolve)
	for ctx.Err() == nil {
		if pid := resolve(fmt.Sprintf("mx.d%d.example", i)); pid != nil {
			n.System().Root.RequestWithCustomSender(actor.NewPID(pid.Address, pid.Id), m, client)
			return
		}
	}
}

// memory is what the process uses after a collection, in bytes.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
