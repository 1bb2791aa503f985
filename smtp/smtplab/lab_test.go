package smtplab

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// testTimeout bounds every wait of these tests on something that must happen.
const testTimeout = 10 * time.Second

func startLab(t testing.TB, change func(*Options)) *Lab {
	t.Helper()
	o := Defaults()
	if change != nil {
		change(&o)
	}
	l := effort.Must(Start(o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		effort.OK(t, l.Stop(ctx))
	})
	return l
}

// ask sends one question to the lab over network.
func ask(t testing.TB, l *Lab, network, name string, qtype uint16) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: testTimeout}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	in, _, err := client.Exchange(m, l.DNSAddr())
	effort.OK(t, err, "ask", name, dns.TypeToString[qtype])
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
	effort.OK(t, err, "dial", host)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &wire{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	_, err := w.conn.Write([]byte(text))
	effort.FatalIf(w.t, err != nil, "send %q: %v", text, err)
}

// reply reads a whole reply as text with "\n" between its lines.
func (w *wire) reply() string {
	w.t.Helper()
	var lines []string
	for {
		line, err := w.r.ReadString('\n')
		effort.OK(w.t, err, "reply: after", lines)
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
	effort.FatalIf(w.t, !strings.HasPrefix(got, want), "after %q: reply %q, want %q...", command, got, want)
	return got
}

// TestLimits: each kind of limit lets exactly its number through, even after the limit was changed, and is metered.
func TestLimits(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		name  string
		limit Limit
		every time.Duration
		let   int // of 100 RCPTs
	}{
		{"none", Limit{}, time.Millisecond, 100},
		{"sliding", Limit{Rcpts: 10, Per: time.Second}, 10 * time.Millisecond, 10},
		{"sliding, slow enough", Limit{Rcpts: 10, Per: time.Second}, 101 * time.Millisecond, 100},
		{"sliding, all count", Limit{Rcpts: 10, Per: time.Second, All: true}, 90 * time.Millisecond, 10},
		{"fixed", Limit{Rcpts: 10, Per: time.Second, Kind: LimitFixed}, 20 * time.Millisecond, 20},
		{"bucket", Limit{Rcpts: 40, Per: time.Second, Kind: LimitBucket}, 5 * time.Millisecond, 21},
		{"sessions", Limit{Rcpts: 10, Per: time.Second, Sessions: true}, 10 * time.Millisecond, 10},
		{"a penalty of ten after ten", Limit{Rcpts: 10, Per: 100 * time.Millisecond, Penalty: 100 * time.Millisecond},
			10*time.Millisecond - 1, 50},
		{"bucket of one", Limit{Rcpts: 1, Per: time.Minute, Kind: LimitBucket}, time.Second, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &meter{since: start}
			m.set(c.limit, start)
			let := 0
			for i := range 100 {
				if m.count(c.limit.Sessions, start.Add(time.Duration(i)*c.every)) == nil {
					let++
				}
			}
			effort.ErrorIf(t, let < c.let || let > c.let+1, "%d of 100 were let through, want %d", let, c.let)
			u := m.between(start, start.Add(time.Hour))
			effort.ErrorIf(t, u.Asked != 100 || u.Let != let || u.Held != 100-let, "the meter has %+v", u)
		})
	}
}

func TestUseAcrossAChange(t *testing.T) {
	start := time.Now()
	m := &meter{since: start}
	m.set(Limit{Rcpts: 5, Per: time.Second}, start)
	for i := range 200 {
		if i == 100 {
			m.set(Limit{Rcpts: 2, Per: time.Second}, start.Add(10*time.Second))
		}
		m.count(false, start.Add(time.Duration(i)*100*time.Millisecond))
	}
	u := m.between(start, start.Add(20*time.Second))
	effort.ErrorIf(t, u.Possible != 70 || u.Let < 68 || u.Let > 71 || u.Share() < 0.97 || u.HeldShare() < 0.6,
		"%+v, share %.2f, held %.2f", u, u.Share(), u.HeldShare())
	if u := m.between(start.Add(12*time.Second), start.Add(15*time.Second)); u.Possible != 6 || u.Asked != 30 {
		t.Errorf("in the middle: %+v", u)
	}
}

// TestMain lets tests that talk over sockets run beside each other: they mostly wait.
func TestMain(m *testing.M) {
	effort.AtOnce(12)
	os.Exit(m.Run())
}
