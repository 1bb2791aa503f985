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

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// keeper is a receiver that answers everything but RCPT, and keeps the session when the client has gone: until
// the test lets one go.
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
