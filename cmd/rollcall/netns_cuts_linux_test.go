package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"rollcall/config/effort"
)

// TestCutsOfTheHub tries the cuts themselves: a rig that cuts nothing proves nothing.
func TestCutsOfTheHub(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	needSpaces(t)
	h := newHub(t, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		for _, port := range []int{gossipPort, actorPort, 8080} {
			answerAt(t, h.places[name], port)
		}
	}
	for _, x := range []struct {
		name    string
		what    traffic
		w       way
		port    int
		from    string
		to      string
		reaches bool
	}{
		{"gossip out of a", gossipSide, bothWays, gossipPort, "a", "b", false},
		{"gossip into a", gossipSide, bothWays, gossipPort, "b", "a", false},
		{"gossip of others", gossipSide, bothWays, gossipPort, "b", "c", true},
		{"actor traffic beside cut gossip", gossipSide, bothWays, actorPort, "a", "b", true},
		{"actor traffic out of a", actorSide, bothWays, actorPort, "a", "b", false},
		{"gossip beside cut actor traffic", actorSide, bothWays, gossipPort, "a", "b", true},
		{"everything", allSides, bothWays, 8080, "b", "a", false},
		{"everything but others", allSides, bothWays, 8080, "b", "c", true},
		{"a mute node answers nobody", actorSide, outgoing, actorPort, "b", "a", false},
		{"a deaf node hears no answer", actorSide, incoming, actorPort, "a", "b", false},
	} {
		h.cut("a", x.what, x.w)
		if got := reaches(t, h.places[x.from], h.places[x.to], x.port, x.reaches); got != x.reaches {
			t.Errorf("%s: reached is %t, want %t", x.name, got, x.reaches)
		}
		h.heal()
		if !reaches(t, h.places[x.from], h.places[x.to], x.port, true) {
			t.Errorf("%s: not reached after the heal", x.name)
		}
	}
	for _, x := range []struct {
		w    way
		want string // of the two datagrams, which came
	}{{outgoing, "to a"}, {incoming, "from a"}} {
		h.cut("a", gossipSide, x.w)
		if got := datagrams(t, h.places["a"], h.places["b"], x.want); got != x.want {
			t.Errorf("one way, %s: came %q, want %q", x.w, got, x.want)
		}
		h.heal()
	}
}

// answerAt listens at a port of a place and hangs up on everybody.
func answerAt(t *testing.T, p *place, port int) {
	t.Helper()
	l, err := p.listen(fmt.Sprintf("%s:%d", p.addr, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
}

// patience is how long to wait for what must come, or for what must not.
func patience(wanted bool) time.Duration {
	if wanted {
		return 30 * time.Second
	}
	return 300 * time.Millisecond
}

// reaches reports whether a connection comes about and is ended by the other side.
func reaches(t *testing.T, from, to *place, port int, want bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(want))
	defer cancel()
	conn, err := from.dial(ctx, "tcp", fmt.Sprintf("%s:%d", to.addr, port))
	if err != nil {
		return false
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err == io.EOF
}

// datagrams sends one each way and says which came, with patience for the wanted one.
func datagrams(t *testing.T, a, b *place, want string) (came string) {
	t.Helper()
	sockets := map[*place]net.PacketConn{}
	for _, p := range []*place{a, b} {
		err := p.in(func() (err error) {
			sockets[p], err = net.ListenPacket("udp", fmt.Sprintf("%s:%d", p.addr, gossipPort))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sockets[p].Close()
	}
	for _, x := range []struct {
		from, to *place
		name     string
	}{{a, b, "from a"}, {b, a, "to a"}} {
		to := net.UDPAddr{IP: net.ParseIP(x.to.addr), Port: gossipPort}
		if _, err := sockets[x.from].WriteTo([]byte("x"), &to); err != nil {
			t.Fatal(err)
		}
		_ = sockets[x.to].SetReadDeadline(time.Now().Add(patience(x.name == want)))
		if _, _, err := sockets[x.to].ReadFrom(make([]byte, 1)); err == nil {
			came += x.name
		}
	}
	return came
}
