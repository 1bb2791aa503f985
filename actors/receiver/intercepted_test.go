package receiver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

// gateway is who answers in place of all hosts: with one name, and accepts everything.
func gateway(t *testing.T) (port int) {
	t.Helper()
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range strangersHosts {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.77.0.%d:%d", 1+i, port))
		if err != nil {
			t.Fatal(err)
		}
		port = listener.Addr().(*net.TCPAddr).Port
		t.Cleanup(func() { _ = listener.Close() })
		all.Go(func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				all.Go(func() { accept(conn) })
			}
		})
	}
	return port
}

// strangersHosts is how many hosts it stands for.
const strangersHosts = 5

// accept says yes to everything.
func accept(conn net.Conn) {
	defer conn.Close()
	_, _ = fmt.Fprint(conn, "220 gw.isp.example ESMTP\r\n")
	for in := bufio.NewScanner(conn); in.Scan(); {
		if strings.HasPrefix(in.Text(), "QUIT") {
			_, _ = fmt.Fprint(conn, "221 bye\r\n")
			return
		}
		_, _ = fmt.Fprint(conn, "250 ok\r\n")
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

// TestAnInterceptedNetworkIsTold: behind the third unrelated host that the same stranger answers for nothing is
// judged any more, in sessions that are open and in new ones, and people are told once.
func TestAnInterceptedNetworkIsTold(t *testing.T) {
	t.Parallel()
	port := gateway(t)
	dialer, err := smtp.NewDialer(smtp.DialerOptions{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Port: port, ConnectTimeout: smtp.ConnectTimeout})
	if err != nil {
		t.Fatal(err)
	}
	log := &locked{}
	b := newBench(t, 0, "clean", openedWide())
	b.options.Log = slog.New(slog.NewTextHandler(log, nil))
	b.options.Sources = sourcesOf(func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error) {
		return smtp.Open(ctx, dialer, host, netip.AddrPortFrom(at, uint16(port)), smtp.SessionOptions{
			HelloName: "probe.example", ReturnPath: "probe@probe.example", TLS: tls, Limits: smtp.DefaultLimits()})
	})
	var receivers []*bench
	for i := range strangersHosts {
		one := *b
		one.domain = fmt.Sprintf("d%d.example", i)
		one.host = &wire.Host{Name: "mx." + one.domain, Addrs: [][]byte{{127, 77, 0, byte(1 + i)}}}
		one.pid = one.spawn()
		t.Cleanup(func() { _ = one.system.Root.StopFuture(one.pid).Wait() })
		receivers = append(receivers, &one)
	}
	ask := func(one *bench, verification byte) (smtp.Outcome, smtp.Reason) {
		c, _ := one.customer(verification, 1, func(int) string { return "anna" })
		c.until("an answer", func() bool { return len(c.told) > 0 })
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.told[0].Outcome, c.told[0].Reason
	}
	for i, one := range append(receivers, receivers[0]) {
		outcome, reason := ask(one, byte(i+1))
		want, why := smtp.Valid, smtp.MailboxExists
		if i >= 3 {
			want, why = smtp.Undecided, smtp.Intercepted
		}
		if outcome != want || reason != why {
			t.Errorf("question %d: %v %v, want %v %v", i, outcome, reason, want, why)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if n := strings.Count(log.b.String(), "level=ERROR msg=\"network intercepted"); n != 1 {
		t.Errorf("told %d times: %s", n, &log.b)
	}
}
