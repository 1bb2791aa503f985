package receiver

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

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

// accept says yes to everything.
func accept(conn net.Conn) { answer(conn, "gw.isp.example", "250 ok", "250 ok") }

// answer greets by a name, says the same to each EHLO and to each RCPT, and goes behind a refusal.
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

// locked is a log that many write to.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestAnInterceptedNetworkIsTold: behind the third unrelated host at which the same stranger accepts a control probe
// nothing is judged any more, in sessions that are open and in new ones, and people are told once.
func TestAnInterceptedNetworkIsTold(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	log := &locked{}
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
	log.mu.Lock()
	defer log.mu.Unlock()
	effort.Is(t, strings.Count(log.b.String(), "level=ERROR msg=\"network intercepted"), 1, "told", &log.b)
}

// intercepted is a bench whose sessions go to the hosts' addresses at a port.
func intercepted(t *testing.T, port int, log *locked) *bench {
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

// askOne gives what is first told about one address.
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
	}), &locked{})
	one := b.at(0)
	outcome, reason := one.askOne(1, 0)
	effort.FatalIf(t, outcome != smtp.Invalid, "the host itself: %v %v", outcome, reason)
	outcome, reason = one.askOne(2, 0)
	effort.ErrorIf(t, outcome != smtp.Undecided || reason != smtp.Intercepted, "somebody else: %v %v", outcome, reason)
}
