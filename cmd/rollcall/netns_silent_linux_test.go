package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rollcall/cluster"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// cutReceiver is a receiver at a place behind a hub that answers what comes, and notes it.
type cutReceiver struct {
	at    netip.AddrPort
	lines chan string // of its session
}

// newCutReceiver listens at a place and serves one session.
func newCutReceiver(t *testing.T, p *place) *cutReceiver {
	t.Helper()
	l := effort.Must(p.listen(p.addr + ":0"))(t)
	r := &cutReceiver{at: netip.MustParseAddrPort(l.Addr().String()), lines: make(chan string, 100)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		r.serve(conn)
	}()
	return r
}

func (r *cutReceiver) serve(conn net.Conn) {
	defer conn.Close()
	_, _ = io.WriteString(conn, "220 mx.test\r\n")
	in := bufio.NewScanner(conn)
	for in.Scan() {
		r.lines <- in.Text()
		_, _ = io.WriteString(conn, "250 fine\r\n")
	}
}

// awaitLine waits for a command.
func (r *cutReceiver) awaitLine(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for {
		select {
		case line := <-r.lines:
			if strings.HasPrefix(line, want) {
				return
			}
		case <-deadline:
			t.Fatalf("%s did not come", want)
		}
	}
}

// dialFrom dials from inside a place.
type dialFrom struct{ *place }

// DialContext implements smtp.Dialer.
func (d dialFrom) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dial(ctx, network, address)
}

// TestACutEndsWhatIsUnderWay: a RCPT that a cut has swallowed is not sent again when the cut heals, once the
// system has given the connection up, and its place is kept although nobody hears of it again. Beside it is a
// session that may wait for longer: its RCPT comes then, so the cut was one, and healed. A session that had
// nothing under way says its QUIT after the heal.
func TestACutEndsWhatIsUnderWay(t *testing.T) {
	effort.NotShort(t, "the system gives a connection up after seconds")
	t.Parallel()
	needSpaces(t)
	h := newHub(t, "a", labHome)
	open := func(unacknowledged time.Duration) (*cutReceiver, *smtp.Session) {
		r := newCutReceiver(t, h.places[labHome])
		limits := smtp.DefaultLimits()
		limits.Unacknowledged, limits.Unended, limits.Rcpt, limits.Quit = unacknowledged, time.Hour, time.Hour, time.Second
		s := effort.Must(smtp.Open(t.Context(), dialFrom{h.places["a"]}, "mx.test", r.at, smtp.SessionOptions{
			HelloName: "probe.test", ReturnPath: "back@probe.test", TLS: smtp.TLSOff, Limits: limits}))(t)
		return r, s
	}
	ask := func(s *smtp.Session, local string) error {
		_, err := s.Probe(t.Context(), []smtp.Address{{Local: local, Domain: "mx.test"}}, smtp.Ask{})
		return err
	}
	short, shortSession := open(cluster.DefaultTimes().Unacknowledged)
	long, longSession := open(time.Hour)
	idle, idleSession := open(cluster.DefaultTimes().Unacknowledged)
	for i, s := range []*smtp.Session{shortSession, longSession, idleSession} {
		effort.OK(t, ask(s, fmt.Sprintf("before%d", i)))
	}
	h.cut("a", labHome)
	asked := make(chan error, 1)
	go func() { asked <- ask(longSession, "late") }()
	idleSession.Quit()
	err := ask(shortSession, "late")
	effort.FatalIf(t, err == nil || shortSession.Open(), "asked through a cut: %v", err)
	t.Logf("given up: %v", err)
	h.heal()
	long.awaitLine(t, "RCPT TO:<late") // or its RSET, which goes first
	effort.ErrIs(t, <-asked, nil, "what may wait")
	idle.awaitLine(t, "QUIT")
	<-idleSession.Gone()
	select {
	case <-shortSession.Gone():
		t.Error("the place of a session whose end nobody knows is free")
	default:
	}
	for line := next(short.lines); line != ""; line = next(short.lines) {
		effort.ErrorIf(t, strings.HasPrefix(line, "RSET") || strings.Contains(line, "late"),
			"came after the heal: %s", line)
	}
	longSession.Quit()
}

// next is a line that is there, or "".
func next(lines chan string) string {
	select {
	case line := <-lines:
		return line
	default:
		return ""
	}
}
