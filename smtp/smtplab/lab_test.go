package smtplab

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// testTimeout bounds every wait of these tests on something that must happen.
const testTimeout = 10 * time.Second

// startLab runs a lab for one test.
func startLab(t testing.TB, change func(*Options)) *Lab {
	t.Helper()
	o := Defaults()
	if change != nil {
		change(&o)
	}
	l, err := Start(o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return l
}

// ask sends one question to the lab over network.
func ask(t testing.TB, l *Lab, network, name string, qtype uint16) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: testTimeout}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	in, _, err := client.Exchange(m, l.DNSAddr())
	if err != nil {
		t.Fatalf("ask %s %s: %v", name, dns.TypeToString[qtype], err)
	}
	return in
}

// hostAddr asks for the address of a host.
func hostAddr(t testing.TB, l *Lab, host string) string {
	t.Helper()
	in := ask(t, l, "udp", host, dns.TypeA)
	for _, rr := range in.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			if !l.Network().Contains(addr) {
				t.Fatalf("host %s is at %s, outside of %s", host, addr, l.Network())
			}
			return net.JoinHostPort(addr.String(), strconv.Itoa(l.SMTPPort()))
		}
	}
	t.Fatalf("host %s has no address: %v", host, in)
	return ""
}

// wire is a raw SMTP connection.
type wire struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

func newReader(conn net.Conn) *bufio.Reader { return bufio.NewReader(conn) }

func dialHost(t testing.TB, l *Lab, host string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", hostAddr(t, l, host), testTimeout)
	if err != nil {
		t.Fatalf("dial %s: %v", host, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &wire{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := w.conn.Write([]byte(text)); err != nil {
		w.t.Fatalf("send %q: %v", text, err)
	}
}

// reply reads a whole reply as text with "\n" between its lines.
func (w *wire) reply() string {
	w.t.Helper()
	var lines []string
	for {
		line, err := w.r.ReadString('\n')
		if err != nil {
			w.t.Fatalf("reply: %v after %q", err, lines)
		}
		line = strings.TrimRight(line, "\r\n")
		lines = append(lines, line)
		if len(line) < 4 || line[3] != '-' {
			return strings.Join(lines, "\n")
		}
	}
}

// says sends a command, unless it is empty, and checks how the reply begins.
func (w *wire) says(command, want string) string {
	w.t.Helper()
	if command != "" {
		w.send(command + "\r\n")
	}
	got := w.reply()
	if !strings.HasPrefix(got, want) {
		w.t.Fatalf("after %q: reply %q, want %q...", command, got, want)
	}
	return got
}

func TestCleanReceiverKnowsItsMailboxes(t *testing.T) {
	l := startLab(t, nil)
	in := ask(t, l, "udp", "acme-clean.test", dns.TypeMX)
	if len(in.Answer) != 1 || in.Answer[0].(*dns.MX).Mx != "mx1.acme-clean.test." {
		t.Fatalf("MX of acme-clean.test: %v", in.Answer)
	}
	w := dialHost(t, l, "mx1.acme-clean.test")
	w.says("", "220 mx1.acme-clean.test ESMTP")
	w.says("EHLO probe.example", "250-mx1.acme-clean.test greets probe.example\n")
	w.says("MAIL FROM:<postmaster@probe.example>", "250 2.1.0 ")
	w.says("RCPT TO:<anna.smith12@acme-clean.test>", "250 2.1.5 ")
	w.says("RCPT TO:<nobody@acme-clean.test>", "550 5.1.1 <nobody@acme-clean.test>")
	w.says("RCPT TO:<vera.kowalski8291@acme-clean.test>", "550 5.1.1 ")
	w.says("RCPT TO:<anna@other.test>", "550 5.7.1 ")
	w.says("QUIT", "221 ")
}
