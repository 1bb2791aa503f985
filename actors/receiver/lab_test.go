package receiver

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/process"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Short names of what tests of other packages share.
var (
	openedWide = receivertest.OpenedWide
	stranger   = receivertest.Stranger
	sourcesOf  = receivertest.SourcesOf
	letters    = receivertest.Letters
	known      = receivertest.Known
	half       = receivertest.Half
	share      = receivertest.Used
	checkRate  = receivertest.CheckRate
	id         = receivertest.ID
	offerOf    = receivertest.OfferOf
)

// slotsOfWorld is more than any receiver of a test needs.
const slotsOfWorld = 1000

// of gives every receiver k of n parts.
func of(k, n int) func(string) (int, int) { return func(string) (int, int) { return k, n } }

// silent is the logger of an actor system under test.
func silent(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }

// testOptions are those of a node of its own with an allowance for every receiver.
func testOptions(a throttle.Limits) Options {
	living := NewRegistry()
	living.Alone()
	return Options{
		Options: scheduler.Options{Fenced: func() bool { return false }, Allow: func(string) throttle.Limits { return a },
			Waits: []time.Duration{time.Second, 5 * time.Second}, Slots: registry.NewSlots(slotsOfWorld),
			Rules: verdict.Builtin, Sources: sourcesOf(receivertest.NoSession), Log: slog.New(slog.DiscardHandler),
			Guard: process.NewPanicGuard(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))},
		Registry: living, Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

const (
	atOnce   = 0.05 // stretches waits for hosts that are down and sources that rest
	soonOver = 0.1  // stretches waits that a test waits for
	neverOut = 60   // and those that end what would end by itself, however busy the machine is
)

// bench is one receiver actor, one receiver of the lab, and what clients hear.
type bench struct {
	t       *testing.T
	lab     *smtplab.Lab
	system  *actor.ActorSystem
	pid     *actor.PID
	options Options
	domain  string
	host    *wire.Host
	late    *atomic.Int64 // as watchLateness
}

// newBench starts a lab with a receiver and an actor for it.
func newBench(t *testing.T, latency time.Duration, personality string, a throttle.Limits) *bench {
	t.Helper()
	o := smtplab.Defaults()
	o.Latency, o.EventsMax = latency, 100_000
	lab := effort.Must(smtplab.Start(o))(t)
	b := &bench{t: t, lab: lab, system: actor.NewActorSystem(actor.WithLoggerFactory(silent)),
		options: testOptions(a), domain: "x-" + personality + ".test", late: watchLateness(t)}
	b.options.Sources = sourcesOf(opener(t, lab))
	b.options.Waits = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond}
	name := b.exchanger()
	b.host = &wire.Host{Name: name, Addrs: [][]byte{b.lookup(name)}}
	b.pid = b.spawn()
	t.Cleanup(func() {
		_ = b.system.Root.StopFuture(b.pid).Wait()
		b.system.Shutdown()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		effort.OK(t, lab.Stop(ctx))
	})
	return b
}

// spawn begins a receiver actor as a node does.
func (b *bench) spawn() *actor.PID {
	b.t.Helper()
	kinds := Kinds(b.options)
	stop := actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
	pid := b.system.Root.WithGuardian(stop).Spawn(kinds[kind])
	b.system.Root.Send(pid, &cluster.ClusterInit{Identity: &cluster.ClusterIdentity{Identity: "x", Kind: kind}})
	return pid
}

func opener(t *testing.T, lab *smtplab.Lab) receivertest.OpenFunc {
	t.Helper()
	return openerFrom(t, lab, netip.Addr{})
}

// openerFrom opens sessions to a lab from an address.
func openerFrom(t *testing.T, lab *smtplab.Lab, source netip.Addr) receivertest.OpenFunc {
	t.Helper()
	return openerTo(t, smtp.DialerOptions{Source: source, Port: lab.SMTPPort(),
		AllowNetworks: []netip.Prefix{lab.Network(), netip.PrefixFrom(netip.IPv6Loopback(), 128)}}, smtp.DefaultLimits())
}

// openerTo opens sessions to the hosts' addresses at the port of some options, which may name networks other than
// 127.0.0.0/8.
func openerTo(t *testing.T, o smtp.DialerOptions, limits smtp.Limits) receivertest.OpenFunc {
	t.Helper()
	o.ConnectTimeout = smtp.ConnectTimeout
	if o.AllowNetworks == nil {
		o.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	dialer := smtp.NewDialer(o)
	return func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error) {
		return smtp.Open(ctx, dialer, host, netip.AddrPortFrom(at, uint16(o.Port)), smtp.SessionOptions{
			HelloName: "probe.example", ReturnPath: "probe@probe.example", TLS: tls, Limits: limits})
	}
}

// exchange asks the lab's DNS by TCP, which loses nothing on a busy machine.
func exchange(m *dns.Msg, at string) (*dns.Msg, error) {
	reply, _, err := (&dns.Client{Net: "tcp", Timeout: patience}).Exchange(m, at)
	return reply, err
}

// exchanger asks the lab's DNS for the domain's mail host.
func (b *bench) exchanger() string {
	b.t.Helper()
	reply, err := exchange(new(dns.Msg).SetQuestion(b.domain+".", dns.TypeMX), b.lab.DNSAddr())
	effort.FatalIf(b.t, err != nil || len(reply.Answer) == 0, "lookup MX of %s: %v", b.domain, err)
	return strings.TrimSuffix(reply.Answer[0].(*dns.MX).Mx, ".")
}

// lookup asks the lab's DNS, which makes the host listen.
func (b *bench) lookup(host string) []byte {
	b.t.Helper()
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		reply, err := exchange(new(dns.Msg).SetQuestion(host+".", kind), b.lab.DNSAddr())
		effort.OK(b.t, err, "lookup", host)
		for _, r := range reply.Answer {
			switch r := r.(type) {
			case *dns.A:
				return r.A.To4()
			case *dns.AAAA:
				return r.AAAA
			}
		}
	}
	b.t.Fatalf("lookup %s: no address", host)
	return nil
}

// customer is a client that keeps the receiver busy with two chunks.
type customer struct {
	b     *bench
	task  *wire.Task
	local func(n int) string
	deaf  func(*wire.Results) bool // whether to ignore results; nil: never

	mu      sync.Mutex // guards the fields below
	asked   int
	chunk   uint64
	answers []*wire.Answer
	told    []receivertest.Answer // the same, with their attempts
	moved   int
	ended   int
	refused []wire.Refusal
	results int               // messages
	taken   map[[2]int64]bool // answers, by epoch and ordinal
	acked   int               // offers
	more    int               // addresses still to offer
	changed chan struct{}
}

// customer begins a client with n addresses.
func (b *bench) customer(verification byte, n int, local func(n int) string) (*customer, *actor.PID) {
	c := &customer{b: b, local: local, more: n, changed: make(chan struct{}, 1),
		taken: map[[2]int64]bool{}, task: &wire.Task{Verification: id(verification), Epoch: 1, Domain: b.domain}}
	pid := b.system.Root.Spawn(actor.PropsFromFunc(c.receive))
	return c, pid
}

func (c *customer) receive(x actor.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := x.Message().(type) {
	case *actor.Started:
		x.Watch(c.b.pid)
		c.offer(x)
		c.offer(x)
	case *wire.OfferAck:
		if c.acked++; m.GetRefusal() != wire.Refusal_NONE {
			c.refused = append(c.refused, m.GetRefusal())
		}
	case *wire.Results:
		c.results++
		if c.deaf != nil && c.deaf(m) {
			break
		}
		x.Send(c.b.pid, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
		told, fresh := receivertest.AnswersOf(m), false
		for i, one := range m.GetAnswers() {
			key := [2]int64{m.GetTask().GetEpoch(), int64(one.GetOrdinal())}
			if c.taken[key] {
				continue // on a busy machine it was sent again before it was acknowledged
			}
			c.taken[key], fresh = true, true
			c.answers, c.told = append(c.answers, one), append(c.told, told[i])
		}
		if !fresh {
			break
		}
		for range m.GetCredit() {
			c.offer(x)
		}
	case *wire.Moved:
		c.moved++
	case *actor.Terminated:
		c.ended++
	case *wire.Offer, *wire.Cancel: // a test wants it sent from here
		x.Request(c.b.pid, m)
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *customer) offer(x actor.Context) {
	if c.more == 0 {
		return
	}
	c.chunk++
	m := &wire.Offer{Task: c.task, Chunk: c.chunk, Hosts: []*wire.Host{c.b.host}}
	for len(m.Probes) < wire.AddressesMax && c.more > 0 {
		c.more--
		m.Probes = append(m.Probes, &wire.Probe{Ordinal: uint32(c.asked), Local: c.local(c.asked)})
		c.asked++
	}
	x.Request(c.b.pid, m)
}

// until waits until the client's state is as wanted.
func (c *customer) until(what string, wanted func() bool) {
	c.b.t.Helper()
	limit := time.After(patience)
	for {
		c.mu.Lock()
		ok := wanted()
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-c.changed:
		case <-limit:
			c.b.t.Fatalf("in vain: %s", what)
		}
	}
}

// times returns when the lab saw events of a kind.
func (b *bench) times(kind string) []time.Time {
	var out []time.Time
	for _, e := range b.lab.Events() {
		if e.Kind == kind {
			out = append(out, e.At)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// TestLimitsAsTheLabSeesThem drives a receiver at each of its limits, on real connections: the lab counts no violation,
// in any window of a tenth of a second, and the limit is used. The used part of a rate falls on a busy machine, so it
// is only measured (docs/developers/measured.md); TestFamilies/told requires nearly all of it.
func TestLimitsAsTheLabSeesThem(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	tenth := func(n int) throttle.Rate { return throttle.Rate{Events: n, Per: time.Second / 10} }
	var running sync.WaitGroup // they wait most of the time: all at once
	for _, tc := range []limitCase{
		{"rcpt rate of a stranger", 0, 30, known, func(a *throttle.Limits) { a.RcptRate = tenth(2) }, rcptShare},
		{"rcpt rate", 0, 300, half, func(a *throttle.Limits) { a.RcptRate = tenth(20) }, rcptShare},
		{"rcpt rate of a stranger, far away", 20 * time.Millisecond, 30, known, func(a *throttle.Limits) {
			a.RcptRate, a.Connections = tenth(2), 6
		}, rcptShare},
		{"connection rate", 0, 60, known, func(a *throttle.Limits) {
			a.ConnectionRate, a.RcptsPerConnection, a.Connections = tenth(4), 1, 10
		}, dialShare},
		{"connection rate, far away", 20 * time.Millisecond, 40, known, func(a *throttle.Limits) {
			a.ConnectionRate, a.RcptsPerConnection, a.Connections = tenth(3), 1, 40
		}, dialShare},
		{"connections at once", 20 * time.Millisecond, 250, known, func(a *throttle.Limits) {
			a.Connections, a.RcptsPerTransaction = 5, 10
		}, func(_ *bench, s smtplab.Tally, a throttle.Limits) float64 {
			return float64(s.SessionsAtOnce) / float64(a.Connections)
		}},
		{"rcpts in a session", 0, 100, known, func(a *throttle.Limits) { a.RcptsPerConnection = 7 },
			func(_ *bench, s smtplab.Tally, a throttle.Limits) float64 {
				return float64(s.RcptsPerSession) / float64(a.RcptsPerConnection)
			}},
		{"rcpts in a transaction, refusals in a session", 0, 200, half, func(a *throttle.Limits) {
			a.RcptsPerTransaction, a.RefusedPerSession, a.Pipelining = 10, 9, true
		}, func(_ *bench, s smtplab.Tally, a throttle.Limits) float64 {
			return min(float64(s.RcptsPerTx)/float64(a.RcptsPerTransaction),
				float64(s.RefusedPerSession)/float64(a.RefusedPerSession))
		}},
	} {
		running.Go(func() { t.Run(tc.name, tc.run) })
	}
	running.Wait()
}

// limitCase is one limit and how much of it was used.
type limitCase struct {
	name      string
	latency   time.Duration
	addresses int
	local     func(int) string
	allow     func(*throttle.Limits)
	used      func(b *bench, s smtplab.Tally, a throttle.Limits) float64
}

func (tc limitCase) run(t *testing.T) {
	a := openedWide()
	tc.allow(&a)
	b := newBench(t, tc.latency, "clean", a)
	c, _ := b.customer(1, tc.addresses, tc.local)
	c.until("all answers", func() bool { return len(c.answers) == tc.addresses })
	s := b.lab.Manners().Receivers[b.domain]
	used, least := tc.used(b, s, a), 0.5
	if a.RcptRate.Per < time.Second || a.ConnectionRate.Per < time.Second {
		least = 0 // it depends on the machine
	}
	t.Logf("used %.1f %% of what is allowed", 100*used)
	effort.ErrorIf(t, used < least, "used %.1f %%: %+v", 100*used, s)
	b.checkManners(s, a)
	for _, answer := range c.answers {
		o := smtp.Outcome(answer.GetOutcome())
		effort.FatalIf(t, !o.Final(), "answer %d: %s %s", answer.GetOrdinal(), o, smtp.Reason(answer.GetReason()))
	}
}

func rcptShare(b *bench, _ smtplab.Tally, a throttle.Limits) float64 {
	times := b.times("rcpt")
	return share(times[len(times)/2:], a.RcptRate) // once the way is known
}

func dialShare(b *bench, _ smtplab.Tally, a throttle.Limits) float64 {
	times := b.times("connect")
	third := len(times) / 3 // once the way is known, and as long as there is work for all
	return share(times[third:2*third+1], a.ConnectionRate)
}

// watchLateness measures how late a goroutine of this process wakes up at worst. The lab may note an event that much
// too late, and two events then seem closer to each other than they were.
func watchLateness(t *testing.T) *atomic.Int64 {
	t.Helper()
	worst := new(atomic.Int64)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		every, last := time.NewTicker(time.Millisecond), time.Now()
		defer every.Stop()
		for {
			select {
			case <-every.C:
				now := time.Now()
				worst.Store(max(worst.Load(), int64(now.Sub(last)-time.Millisecond)))
				last = now
			case <-done:
				return
			}
		}
	}()
	return worst
}

// checkManners fails when the lab has seen a limit broken by more than it may have been late.
func (b *bench) checkManners(s smtplab.Tally, a throttle.Limits) {
	b.t.Helper()
	late := time.Duration(b.late.Load())
	second := func(r throttle.Rate) int {
		return r.Events * int((time.Second+late.Truncate(5*time.Millisecond)+r.Per-1)/r.Per)
	}
	for _, one := range []struct {
		what       string
		seen, most int
	}{
		{"sessions at once", s.SessionsAtOnce, a.Connections},
		{"sessions in 1 s", s.SessionsIn1s, second(a.ConnectionRate)},
		{"RCPTs in 1 s", s.RcptsIn1s, second(a.RcptRate)},
		{"RCPTs in a session", s.RcptsPerSession, a.RcptsPerConnection},
		{"RCPTs in a transaction", s.RcptsPerTx, a.RcptsPerTransaction},
		{"refused in a session", s.RefusedPerSession, a.RefusedPerSession},
		{"limits hit", s.LimitsHit, 0}, {"commands out of order", s.OutOfOrder, 0}, {"DATA", s.Data, 0},
		{"sessions without QUIT", s.HungUp, 0},
	} {
		effort.ErrorIf(b.t, one.seen > one.most, "%s: %d, allowed are %d", one.what, one.seen, one.most)
	}
	checkRate(b.t, "RCPTs", b.times("rcpt"), onSockets(a.RcptRate, late))
	checkRate(b.t, "sessions", b.times("connect"), onSockets(a.ConnectionRate, late))
}

// onSockets is a rate as the lab may see it: when the receiver saw a command is known to a
// part of the shortest turn (throttle.Turnaround), which is some tenths of a millisecond here.
func onSockets(r throttle.Rate, late time.Duration) throttle.Rate {
	r.Per -= min(time.Millisecond+late, r.Per/2)
	return r
}

// TestMain lets tests that talk over connections run beside each other: they mostly wait.
func TestMain(m *testing.M) {
	effort.AtOnce(16)
	os.Exit(m.Run())
}
