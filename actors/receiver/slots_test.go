package receiver

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/google/uuid"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// crowded is a node with few slots and a client that offers one address to each of many receivers.
type crowded struct {
	b     *bench
	props *actor.Props

	mu       sync.Mutex
	answered map[byte]int // by workspace
	pulses   map[wire.Cause]int
	most     int // receivers in work at a time
	changed  chan struct{}
}

// again is when nobody has taken an offer.
type again struct{}

// offer makes a receiver and offers it one address, again each second as a domain does.
func (w *crowded) offer(workspace byte, n int) {
	root := w.b.system.Root
	pid := root.Spawn(w.props)
	root.Send(pid, &cluster.ClusterInit{Identity: &cluster.ClusterIdentity{
		Identity: fmt.Sprintf("%d-%d", workspace, n), Kind: kind}})
	space := uuid.UUID{workspace}
	m := &wire.Offer{Task: &wire.Task{Verification: id(workspace), Epoch: 1, Domain: w.b.domain}, Chunk: 1,
		Hosts: []*wire.Host{w.b.host}, Workspace: space[:], Probes: []*wire.Probe{{Local: known(n)}}}
	acked := false
	root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch r := c.Message().(type) {
		case *actor.Started, again:
			if acked {
				return
			}
			c.Request(pid, m)
			self := c.Self()
			time.AfterFunc(time.Second, func() { root.Send(self, again{}) })
		case *wire.OfferAck:
			acked = true
		case *wire.Pulse:
			w.mu.Lock()
			w.pulses[r.GetCause()]++
			w.mu.Unlock()
		case *wire.Results:
			c.Respond(&wire.ResultsAck{Task: r.GetTask(), Chunk: r.GetChunk(), Batch: r.GetBatch()})
			w.mu.Lock()
			w.answered[workspace]++
			w.most = max(w.most, w.b.options.Registry.Count())
			w.mu.Unlock()
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}))
}

// until waits until a workspace has a number of answers, and returns how many the other has then.
func (w *crowded) until(workspace byte, n int, other byte) int {
	w.b.t.Helper()
	limit := time.After(patience)
	for {
		w.mu.Lock()
		got, others := w.answered[workspace], w.answered[other]
		w.mu.Unlock()
		if got >= n {
			return others
		}
		select {
		case <-w.changed:
		case <-limit:
			w.b.t.Fatalf("workspace %d has %d answers, want %d", workspace, got, n)
		}
	}
}

// TestManyReceiversOfOneWorkspaceKeepNobodyOut: 400 receivers with one address each on 20 slots. All are
// asked, no more than 20 live at a time, and the ten of another workspace do not wait behind them.
func TestManyReceiversOfOneWorkspaceKeepNobodyOut(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	const seats, greedy, few = 20, 400, 10
	b := newBench(t, 20*time.Millisecond, "clean", openedWide())
	b.options.Most = seats
	kinds := Kinds(b.options)
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	w := &crowded{b: b, props: kinds[kind].Clone(actor.WithGuardian(stop)), answered: map[byte]int{},
		pulses: map[wire.Cause]int{}, changed: make(chan struct{}, 1)}
	for n := range greedy {
		w.offer(1, n)
	}
	w.until(1, 10, 2)
	for n := range few {
		w.offer(2, n)
	}
	if others := w.until(2, few, 1); others > greedy/2 {
		t.Errorf("%d of the greedy workspace's %d were answered before the %d of the other", others, greedy, few)
	}
	w.until(1, greedy, 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	effort.ErrorIf(t, w.most > seats, "%d receivers lived at a time, the bound is %d", w.most, seats)
	effort.Is(t, w.b.options.Registry.waiting(), 0, "wait when all is done")
}

// TestWhoWaitsForASlotIsToldSo: those who offered something hear every second that it waits, and why.
func TestWhoWaitsForASlotIsToldSo(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	b := newBench(t, 0, "clean", openedWide())
	b.options.Most = 16
	kinds := Kinds(b.options)
	w := &crowded{b: b, props: kinds[kind], answered: map[byte]int{}, pulses: map[wire.Cause]int{},
		changed: make(chan struct{}, 1)}
	for range 16 {
		b.options.Registry.slots.Take(uuid.UUID{1}, uuid.Nil, func(any) {})
	}
	w.offer(1, 1)
	eventually(t, "two pulses", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pulses[wire.Cause_CONNECTIONS] >= 2
	})
	effort.ErrorIf(t, b.options.Registry.waiting() < 1, "nobody waits by the metric")
}

// holder is a receiver that answers everything but RCPT. When a client has gone, it holds the session until the
// test releases one.
type holder struct {
	at      netip.AddrPort
	release chan struct{} // one of all sessions ends for each
	begun   chan int      // how many were open with each that began

	mu   sync.Mutex
	open int // guarded by mu
}

func newHolder(t *testing.T) *holder {
	t.Helper()
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	k := &holder{at: netip.MustParseAddrPort(l.Addr().String()), release: make(chan struct{}), begun: make(chan int, 1000)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			k.begun <- k.count(1)
			all.Go(func() { k.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		close(k.release)
		all.Wait()
	})
	return k
}

func (k *holder) count(more int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open += more
	return k.open
}

func (k *holder) serve(conn net.Conn) {
	defer conn.Close()
	defer k.count(-1) // before the close, so that whoever has seen it may come
	reply, in := "220 mx.test\r\n", bufio.NewScanner(conn)
	for {
		if _, err := fmt.Fprint(conn, reply); err != nil || !in.Scan() || strings.HasPrefix(in.Text(), "RCPT") {
			break
		}
		reply = "250 fine\r\n"
	}
	<-k.release
}

// opener opens sessions that give up soon, and whose silence lasts longer than the test.
func (k *holder) opener(t *testing.T) receivertest.OpenFunc {
	t.Helper()
	limits := smtp.DefaultLimits()
	limits.Rcpt, limits.Quit, limits.Unended = 20*time.Millisecond, 20*time.Millisecond, time.Hour
	return openerTo(t, smtp.DialerOptions{Port: int(k.at.Port())}, limits)
}

// TestSilentSessionsKeepTheirPlaces: a receiver that keeps what we have ended never has more than it allows, and
// each session that it lets go makes room for the next one.
func TestSilentSessionsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	const most = 3
	allowed := openedWide()
	allowed.Connections = most
	k := newHolder(t)
	b := &bench{t: t, system: actor.NewActorSystem(actor.WithLoggerFactory(silent)), options: testOptions(allowed),
		domain: "x-clean.test", host: &wire.Host{Name: "mx.test", Addrs: [][]byte{{127, 0, 0, 1}}}}
	b.options.Sources, b.options.Stretch = sourcesOf(k.opener(t)), atOnce
	b.options.Waits = []time.Duration{time.Millisecond, time.Millisecond}
	b.pid = b.spawn()
	t.Cleanup(func() {
		_ = b.system.Root.StopFuture(b.pid).Wait()
		b.system.Shutdown()
	})
	next := func() {
		t.Helper()
		select {
		case n := <-k.begun:
			effort.FatalIf(t, n > most, "%d sessions at once, %d are allowed", n, most)
		case <-time.After(patience):
			t.Fatalf("no session comes; %d are silent here", b.options.Registry.SilentCount())
		}
	}
	for verification := range byte(20) { // each address is told to come later
		b.customer(verification, 20, known)
	}
	for range most {
		next()
	}
	for range 5 {
		eventually(t, "all places to be kept", func() bool { return b.options.Registry.SilentCount() == most })
		k.release <- struct{}{}
		next()
	}
	keys := b.options.Registry.Silent()
	effort.ErrorIf(t, len(keys) > 1 || len(keys) == 1 && keys[0] != "x", "silent receivers: %q", keys)
}
