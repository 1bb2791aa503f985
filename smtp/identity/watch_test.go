package identity

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// book is a Resolver in memory, for bubbles.
type book struct {
	mu      sync.Mutex
	records map[string][]dns.RR
	broken  bool
	asked   int
}

func newBook(t *testing.T, records ...string) *book {
	b := &book{records: map[string][]dns.RR{}}
	b.add(t, records...)
	return b
}

func (b *book) add(t *testing.T, records ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range records {
		rr := effort.Must(dns.NewRR(text))(t)
		k := key(rr.Header().Name, rr.Header().Rrtype)
		b.records[k] = append(b.records[k], rr)
	}
}

func (b *book) forget(name string, qtype uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.records, key(name, qtype))
}

func (b *book) breakAll(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

func (b *book) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// Ask implements Resolver.
func (b *book) Ask(_ context.Context, name string, qtype uint16) ([]dns.RR, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.broken {
		return nil, errDNS
	}
	return b.records[key(dns.Fqdn(name), qtype)], nil
}

// options are those of a watch over one source, without jitter.
func options(r Resolver, log *bytes.Buffer) Options {
	return Options{Resolver: r, Sources: func() ([]Source, error) { return []Source{source()}, nil },
		Return: source().ReturnPath, Jitter: func(n int64) int64 { return n / 2 },
		Log: slog.New(slog.NewTextHandler(log, nil)), Changed: func(Report) {}}
}

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }

func watchOf(t *testing.T, o Options) *Watch {
	t.Helper()
	w := NewWatch(o)
	if r := w.Report(); r.Eligible() || r.Why() != "its identity has not been checked yet" {
		t.Errorf("before the first look it is fit: %+v", r)
	}
	return w
}

func TestWhatFailsIsLookedAtEachMinuteUntilItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBook(t, sound...)
		w := watchOf(t, options(b, &log))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go w.Run(ctx)
		synctest.Wait()
		first := b.questions()
		if r := w.Report(); !r.Eligible() || r.Why() != "" || first == 0 || log.Len() != 0 {
			t.Fatalf("got %+v, %d questions, log %s", r, first, log.String())
		}
		b.forget("10.2.0.192.in-addr.arpa.", dns.TypePTR)
		pass(checkEvery - time.Second)
		if synctest.Wait(); b.questions() != first || !w.Report().Eligible() {
			t.Errorf("%d questions within %s, want %d", b.questions(), checkEvery, first)
		}
		pass(2 * time.Second)
		synctest.Wait()
		if r := w.Report(); r.Eligible() || r.Why() != "ptr of 192.0.2.10: the address has no PTR" {
			t.Errorf("after %s: got %q", checkEvery, r.Why())
		}
		n := strings.Count(log.String(), "identity check does not pass")
		effort.ErrorIf(t, n != 1, "%d lines were written, want 1:\n%s", n, log.String())
		b.add(t, sound[0])
		pass(failingEvery + time.Second)
		if synctest.Wait(); !w.Report().Eligible() || !strings.Contains(log.String(), "passes again") {
			t.Errorf("a minute after it was mended: %q\n%s", w.Report().Why(), log.String())
		}
	})
}

func TestAnOperatorNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBook(t)
		w := watchOf(t, options(b, &log))
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		synctest.Wait()
		effort.FatalIf(t, w.Report().Eligible(), "it is fit without any name")
		b.add(t, sound...)
		before := time.Now()
		if r, err := w.Again(ctx); err != nil || !r.Eligible() || !time.Now().Equal(before) {
			t.Errorf("got %+v, %v after %s", r, err, time.Since(before))
		}
		cancel()
		synctest.Wait()
		r, err := w.Again(ctx)
		effort.ErrorIf(t, !errors.Is(err, context.Canceled) || !r.Eligible(), "when nothing runs any more: %+v, %v", r, err)
	})
}

// TestTroubleWithDNS: what was found stands for a while; when nothing is known any more, the node is not fit.
func TestTroubleWithDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBook(t, sound[1:]...) // no PTR
		w := watchOf(t, options(b, &log))
		effort.FatalIf(t, w.Once(t.Context()).Eligible(), "it is fit without a PTR")
		b.breakAll(true)
		pass(keptFor - time.Second)
		if r := w.Once(t.Context()); r.Eligible() || r.Incomplete() {
			t.Errorf("what was found does not stand: %+v", r)
		}
		pass(time.Second)
		r := w.Once(t.Context())
		if r.Eligible() || !r.Blind() || len(r.Failing()) > 0 ||
			!strings.HasPrefix(r.Why(), "nothing could be checked: ptr of ") {
			t.Errorf("after %s: %+v, because %s", keptFor, r, r.Why())
		}
		for _, f := range r.Findings {
			effort.Is(t, f.State, Skipped, f)
			effort.Has(t, f.Saw, "not checked", f)
		}
		effort.ErrorIf(t, w.wait(r) > failingEvery*21/20, "it is looked at again after %s", w.wait(r))
		r.Findings[1].State, r.Findings[1].trouble = OK, false // one answer came
		effort.ErrorIf(t, !r.Eligible() || !r.Incomplete() || r.Blind() || r.Why() != "",
			"when its hello name is known: %+v, because %s", r, r.Why())
	})
}

func TestWhatIsInMemoryIsLookedAtWithoutDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var mu sync.Mutex
		var resting []Suspension
		b := newBook(t, sound...)
		o := options(b, &log)
		o.Reach = &Reach{}
		o.Offset = func() (time.Duration, bool) { return time.Minute, true }
		o.Suspensions = func() []Suspension {
			mu.Lock()
			defer mu.Unlock()
			return resting
		}
		var told atomic.Int32
		o.Changed = func(Report) { told.Add(1) }
		w := watchOf(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go w.Run(ctx)
		synctest.Wait()
		first := b.questions()
		mu.Lock()
		resting = []Suspension{{Source: "192.0.2.10", Until: time.Now().Add(time.Minute), Why: "4 receivers refuse it"}}
		mu.Unlock()
		pass(lookEvery + time.Second)
		synctest.Wait()
		if r := w.Report(); r.Eligible() || !strings.Contains(r.Why(), "4 receivers refuse it") || told.Load() != 2 {
			t.Errorf("got %q, told %d times", r.Why(), told.Load())
		}
		pass(time.Minute)
		synctest.Wait()
		for i := range silentMin {
			o.Reach.Note(string(rune('a'+i)), false, time.Now())
		}
		if !w.Report().Eligible() {
			t.Errorf("after its rest: %q", w.Report().Why())
		}
		pass(lookEvery + time.Second)
		synctest.Wait()
		effort.ErrorIf(t, !strings.HasPrefix(w.Report().Why(), "port25: port 25 seems to be blocked"),
			"got %q", w.Report().Why())
		pass(silentFor)
		synctest.Wait()
		if r := w.Report(); !r.Eligible() || b.questions() != first {
			t.Errorf("when the port may be tried again: %q, %d questions, want %d", r.Why(), b.questions(), first)
		}
	})
}

func TestSourcesThatNoReceiverSees(t *testing.T) {
	var log bytes.Buffer
	for _, lab := range []bool{true, false} {
		b := newBook(t, sound...)
		o := options(b, &log)
		o.Lab = lab
		o.Sources = func() ([]Source, error) {
			s := source()
			s.Addr = netip.MustParseAddr("127.0.0.1")
			return []Source{s}, nil
		}
		r := watchOf(t, o).Once(t.Context())
		effort.ErrorIf(t, !r.Eligible() || r.Incomplete() || (b.questions() == 0) != lab,
			"lab %v: got %+v and %d questions", lab, r, b.questions())
		hello := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Check == Hello && f.State == OK })
		effort.Not(t, hello, lab, "the hello name is looked at")
		if f := r.Findings[0]; f.State != Skipped || !strings.Contains(f.Saw, "loopback") || (f.Next == "") != lab {
			t.Errorf("lab %v: got %+v", lab, f)
		}
	}
}

func TestSourcesThatAreNotKnown(t *testing.T) {
	var log bytes.Buffer
	o := options(newBook(t, sound...), &log)
	o.Sources = func() ([]Source, error) { return nil, errors.New("no way to the Internet") }
	r := watchOf(t, o).Once(t.Context())
	effort.ErrorIf(t, !r.Incomplete() || !strings.Contains(r.Findings[0].Saw, "no way"), "got %+v", r)
}

func TestLocalFor(t *testing.T) {
	got, err := LocalFor(netip.MustParseAddr("127.0.0.1"))
	effort.ErrorIf(t, err != nil || !got.IsLoopback(), "got %v, %v", got, err)
}

// zone is a DNS server on loopback, with records that can be changed.
type zone struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	records map[string][]dns.RR // by name and type
	broken  map[string]bool     // names that are answered with SERVFAIL
	asked   map[string]int      // questions by name
}

func newZone(t *testing.T, records ...string) *zone {
	t.Helper()
	z := &zone{t: t, records: map[string][]dns.RR{}, broken: map[string]bool{}, asked: map[string]int{}}
	z.add(records...)
	packets, streams := listenBoth(t)
	z.addr = packets.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: streams, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return z
}

// listenBoth takes one port for UDP and TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 20 { // another test may have the port for the other one
		var streams net.Listener
		if streams, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", streams.Addr().String()); err == nil {
			return packets, streams
		}
		_ = streams.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// client asks this zone.
func (z *zone) client() *Client {
	return effort.Must(NewClient([]string{z.addr}, 5*time.Second))(z.t)
}

func (z *zone) add(records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, text := range records {
		rr, err := dns.NewRR(text)
		effort.OK(z.t, err, text)
		k := key(rr.Header().Name, rr.Header().Rrtype)
		z.records[k] = append(z.records[k], rr)
	}
}

// breakName makes the zone fail for a name, or answer again.
func (z *zone) breakName(name string, broken bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken[dns.Fqdn(name)] = broken
}

func (z *zone) questions(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[dns.Fqdn(name)]
}

func key(name string, qtype uint16) string { return dns.CanonicalName(name) + dns.TypeToString[qtype] }

// ServeDNS implements dns.Handler. TXT answers over UDP are cut when they are long.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	answer := new(dns.Msg)
	answer.SetReply(q)
	answer.RecursionAvailable = true
	name := q.Question[0].Name
	z.asked[name]++
	answer.Answer = z.records[key(name, q.Question[0].Qtype)]
	switch {
	case z.broken[name]:
		answer.Rcode, answer.Answer = dns.RcodeServerFailure, nil
	case len(answer.Answer) == 0:
		answer.Rcode = dns.RcodeNameError
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		answer.Truncate(512)
	}
	_ = w.WriteMsg(answer)
}

// away is a Resolver that never knows.
type away struct{}

func (away) Ask(context.Context, string, uint16) ([]dns.RR, error) { return nil, errDNS }

// source is the address that the tests speak from.
func source() Source {
	return Source{Addr: netip.MustParseAddr("192.0.2.10"), Hello: "probe.example", ReturnPath: "bounce@example.org"}
}

// sound are the records of a node whose identity is as it should be.
var sound = []string{
	"10.2.0.192.in-addr.arpa. PTR probe.example.",
	"probe.example. A 192.0.2.10",
	"example.org. MX 10 mx.example.org.",
	"mx.example.org. A 192.0.2.25",
	`example.org. TXT "v=spf1 ip4:192.0.2.0/28 -all"`,
}
