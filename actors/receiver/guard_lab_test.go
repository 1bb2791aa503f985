package receiver

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// TestOnlyBadAddresses asks each guard of the lab about bad addresses only: as many as an hour allows are answered,
// all correctly, and no guard has acted.
func TestOnlyBadAddresses(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup // they wait most of the time: all at once
	for _, name := range []string{"cisco", "ciscoqueue", "exim", "postfix", "chasquid", "forcepoint", "ionos",
		"symantec", "nospamtoday", "badtx", "yahooold"} {
		running.Go(func() {
			t.Run(name, func(t *testing.T) {
				a := stranger()
				b := newBench(t, 0, name, a)
				c, _ := b.customer(1, a.RefusedPerHour+10, func(n int) string { return "ghost." + letters(n) })
				c.until("the answers of an hour", func() bool { return len(c.answers) == a.RefusedPerHour })
				for _, one := range c.told {
					one.Agrees(t, 1)
					if one.Outcome != smtp.Invalid && (name != "ciscoqueue" || one.Outcome.Final()) {
						// Its words are those of a named gateway, which its host's name is not.
						t.Errorf("%s %s: %+v", one.Outcome, one.Reason, one.Attempts)
					}
				}
				tried := 0
				if name == "badtx" { // how many RCPTs a transaction may have is found by trying, on each connection at most
					tried = a.Connections
				}
				if s := b.lab.Manners(); s.Total.Tripped > 0 || s.Total.LimitsHit > tried {
					t.Errorf("guards: %v, limits: %d", s.Tripped, s.Total.LimitsHit)
				}
			})
		})
	}
	running.Wait()
}

// TestPathsOnTheWire: what the lab's receivers do to one address, and the attempts
// that its answer carries. Where nothing can be asked it is told after the first rests only.
func TestPathsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		local    string
		rcpts    int // addresses, RCPTs in a transaction
		outcome  smtp.Outcome
		reason   smtp.Reason
		attempts func(all []evidence.Attempt) bool
	}{
		{"tlsonly", "anna", 1, smtp.Valid, smtp.MailboxExists, lastIsTLS},
		{"tlsbroken", "anna", 1, smtp.Valid, smtp.MailboxExists,
			func(all []evidence.Attempt) bool { return !lastIsTLS(all) }},
		{"onercpt", "anna", 5, smtp.Valid, smtp.MailboxExists, nil},
		{"fewrcpts", "anna", 9, smtp.Valid, smtp.MailboxExists, nil},
		{"short", "anna", 12, smtp.Valid, smtp.MailboxExists, nil},
		{"closing", "anna", 1, smtp.Undecided, smtp.ReasonNone, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Code == 421
		}},
		{"nomail", "anna", 1, smtp.Invalid, smtp.NoMailService, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Code == 521
		}},
		{"blocked", "anna", 3, smtp.Undecided, smtp.SourceBlocked, func(all []evidence.Attempt) bool {
			return len(all) == 1 && all[0].Stage == smtp.StageGreeting && all[0].Blame == smtp.BlameSource
		}},
		{"policy", "anna", 2, smtp.Undecided, smtp.SourceBlocked, nil},
		{"badsender", "anna", 2, smtp.Undecided, smtp.SourceIdentity, func(all []evidence.Attempt) bool {
			return all[len(all)-1].Stage == smtp.StageMail
		}},
		{"badhello", "anna", 2, smtp.Undecided, smtp.SourceIdentity, func(all []evidence.Attempt) bool {
			return all[len(all)-1].Stage == smtp.StageHello
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := openedWide()
			a.RcptsPerTransaction, a.Pipelining = tc.rcpts, true
			b := newBench(t, 0, tc.name, a)
			b.options.Stretch = atOnce
			b.pid = b.spawn()
			b.ask(1, tc.rcpts, func(n int) string { return tc.local + "." + letters(n) }, func(one receivertest.Answer) {
				effort.ErrorIf(t, one.Outcome != tc.outcome || tc.reason != smtp.ReasonNone && one.Reason != tc.reason,
					"%s %s: %+v", one.Outcome, one.Reason, one.Attempts)
				effort.ErrorIf(t, tc.attempts != nil && !tc.attempts(one.Attempts), "attempts %+v", one.Attempts)
			})
		})
	}
}

func lastIsTLS(all []evidence.Attempt) bool { return len(all) > 0 && all[len(all)-1].TLS }

// ask waits for the answers to n addresses and looks at each.
func (b *bench) ask(verification byte, n int, local func(int) string, each func(receivertest.Answer)) {
	b.t.Helper()
	c, _ := b.customer(verification, n, local)
	c.until("all answers", func() bool { return len(c.answers) == n })
	for _, one := range c.told {
		one.Agrees(b.t, 1)
		each(one)
	}
}

// TestGuardOnTheWire: when a guard steps in, those that it has not judged before are
// put off for an hour, and nobody is judged by it.
func TestGuardOnTheWire(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "cisco", openedWide())
	invalid := 0
	b.ask(1, 60, func(n int) string { return "ghost." + letters(n) }, func(one receivertest.Answer) {
		switch {
		case one.Outcome == smtp.Invalid:
			invalid++
		case one.Outcome != smtp.Undecided || one.Reason != smtp.HarvestGuard || one.Wait < 59*time.Minute:
			t.Errorf("%s %s in %s: %+v", one.Outcome, one.Reason, one.Wait, one.Attempts)
		}
	})
	effort.ErrorIf(t, invalid > 25 || invalid < 20, "%d addresses were judged, the guard let 25 through", invalid)
	n := b.lab.Manners().Total.Tripped
	effort.ErrorIf(t, n > openedWide().Connections, "the guard stepped in %d times", n)
}

// TestIPv6OnTheWire: a host with an IPv6 address alone is asked like any other.
func TestIPv6OnTheWire(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "sixonly", openedWide())
	b.ask(1, 10, half, func(one receivertest.Answer) {
		want := [...]smtp.Outcome{smtp.Invalid, smtp.Valid}[one.Ordinal%2]
		effort.ErrorIf(t, one.Outcome != want, "%s %s: %+v", one.Outcome, one.Reason, one.Attempts)
	})
}

// TestSourcesOnTheWire: the lab refuses the source that came first; the other one
// gets the answers, and evidence names it.
func TestSourcesOnTheWire(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, "blockone", openedWide())
	from := []string{"127.0.0.21", "127.0.0.22"}
	list := make([]egress.Source, len(from))
	for i, a := range from {
		at := netip.MustParseAddr(a)
		list[i] = egress.Source{Addr: at, Hello: "probe.example", Open: openerFrom(t, b.lab, at)}
	}
	sources := effort.Must(egress.NewPool(list))(t)
	b.options.Sources = sources
	b.pid = b.spawn()
	seen := map[string]bool{}
	b.ask(1, 40, half, func(one receivertest.Answer) {
		effort.ErrorIf(t, !one.Outcome.Final(), "%s %s: %+v", one.Outcome, one.Reason, one.Attempts)
		seen[one.Attempts[len(one.Attempts)-1].Source] = true
	})
	effort.ErrorIf(t, len(seen) != 1 || !seen[from[0]] && !seen[from[1]], "answers from %v", seen)
	rested := 0
	for _, s := range sources.State(time.Now()) {
		rested += s.Blocked
	}
	if rested != 1 {
		t.Errorf("state %+v", sources.State(time.Now()))
	}
}

// gateway is who answers in place of all hosts: with one name, and accepts everything.
func gateway(t *testing.T) int { return serveHosts(t, accept) }

// serveHosts answers at the addresses of the hosts.
func serveHosts(t *testing.T, serve func(net.Conn)) (port int) {
	t.Helper()
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range strangersHosts {
		listener := effort.Must(net.Listen("tcp", fmt.Sprintf("127.77.0.%d:%d", 1+i, port)))(t)
		port = listener.Addr().(*net.TCPAddr).Port
		t.Cleanup(func() { _ = listener.Close() })
		all.Go(func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				all.Go(func() { serve(conn) })
			}
		})
	}
	return port
}

// strangersHosts is how many hosts it stands for.
const strangersHosts = 5

// accept accepts every command.
func accept(conn net.Conn) { answer(conn, "gw.isp.example", "250 ok", "250 ok") }

// answer greets with a name, gives one reply to each EHLO and one to each RCPT, and hangs up after a refusal.
func answer(conn net.Conn, name, hello, rcpt string) {
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "220 %s ESMTP\r\n", name)
	for in := bufio.NewScanner(conn); in.Scan(); {
		switch {
		case strings.HasPrefix(in.Text(), "QUIT"):
			_, _ = fmt.Fprint(conn, "221 bye\r\n")
			return
		case strings.HasPrefix(in.Text(), "EHLO"):
			_, _ = fmt.Fprintf(conn, "%s\r\n", hello)
		case strings.HasPrefix(in.Text(), "RCPT"):
			if _, _ = fmt.Fprintf(conn, "%s\r\n", rcpt); rcpt[0] == '5' {
				return
			}
		default:
			_, _ = fmt.Fprint(conn, "250 ok\r\n")
		}
	}
}

// TestAnInterceptedNetworkIsTold: behind the third unrelated host at which the same stranger accepts a control probe
// nothing is judged any more, in sessions that are open and in new ones, and people are told once.
func TestAnInterceptedNetworkIsTold(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	log := &effort.Log{}
	b := intercepted(t, gateway(t), log)
	var receivers []*bench
	for i := range strangersHosts {
		receivers = append(receivers, b.at(i))
	}
	for i, one := range append(receivers, receivers[0]) {
		outcome, reason := one.askOne(byte(i+1), wire.ControlOrdinal)
		want, why := smtp.Valid, smtp.MailboxExists
		if i >= 3 {
			want, why = smtp.Undecided, smtp.Intercepted
		}
		effort.ErrorIf(t, outcome != want || reason != why,
			"question %d: %v %v, want %v %v", i, outcome, reason, want, why)
	}
	if n := b.options.Metrics.Intercepted(); n < strangersHosts-2 { // those that are asked again count, too
		t.Errorf("%d times counted", n)
	}
	effort.Is(t, strings.Count(log.String(), "level=ERROR msg=\"network intercepted"), 1, "logged", log.String())
}

// intercepted is a bench whose sessions go to the hosts' addresses at a port.
func intercepted(t *testing.T, port int, log *effort.Log) *bench {
	t.Helper()
	b := newBench(t, 0, "clean", openedWide())
	b.options.Log = slog.New(slog.NewTextHandler(log, nil))
	b.options.Sources = sourcesOf(openerTo(t, smtp.DialerOptions{Port: port}, smtp.DefaultLimits()))
	return b
}

// at is a bench for the nth host.
func (b *bench) at(i int) *bench {
	one := *b
	one.domain = fmt.Sprintf("d%d.example", i)
	one.host = &wire.Host{Name: "mx." + one.domain, Addrs: [][]byte{{127, 77, 0, byte(1 + i)}}}
	one.pid = one.spawn()
	b.t.Cleanup(func() { _ = one.system.Root.StopFuture(one.pid).Wait() })
	return &one
}

// askOne returns the first answer about one address.
func (b *bench) askOne(verification byte, ordinal uint32) (smtp.Outcome, smtp.Reason) {
	c, pid := b.customer(verification, 0, nil)
	b.system.Root.Send(pid, &wire.Offer{Task: c.task, Chunk: 1, Hosts: []*wire.Host{b.host},
		Probes: []*wire.Probe{{Ordinal: ordinal, Local: "anna"}}})
	c.until("an answer", func() bool { return len(c.told) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[0].Outcome, c.told[0].Reason
}

// TestAnotherGreeterAtAHostThatToldApart: what somebody else accepts where the host itself has refused is no answer.
func TestAnotherGreeterAtAHostThatToldApart(t *testing.T) {
	t.Parallel()
	var sessions atomic.Int32
	b := intercepted(t, serveHosts(t, func(conn net.Conn) {
		if sessions.Add(1) == 1 {
			answer(conn, "mx.d0.example", "250 ok", "550 5.1.1 User unknown")
			return
		}
		accept(conn)
	}), &effort.Log{})
	one := b.at(0)
	outcome, reason := one.askOne(1, 0)
	effort.FatalIf(t, outcome != smtp.Invalid, "the host itself: %v %v", outcome, reason)
	outcome, reason = one.askOne(2, 0)
	effort.ErrorIf(t, outcome != smtp.Undecided || reason != smtp.Intercepted, "somebody else: %v %v", outcome, reason)
}
