package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// frontDialWait bounds a connection to a node: its kernel answers at once, or
// the way is cut.
const frontDialWait = 2 * time.Second

// front passes connections on from an address of this process to one elsewhere:
// from the machine into the places, as a load balancer does, and from a
// place to a socket of the machine.
type front struct {
	listener net.Listener
	pick     func() (to string) // "": nobody is there now
	dial     func(ctx context.Context, to string) (net.Conn, error)

	mu   sync.Mutex
	open map[net.Conn]string // to whom; guarded by mu
}

// run takes connections until the test ends.
func (f *front) run(t *testing.T) *front {
	f.open = map[net.Conn]string{}
	go func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			go f.pass(conn)
		}
	}()
	t.Cleanup(func() {
		_ = f.listener.Close()
		f.drop("")
	})
	return f
}

// pass joins a connection with one of whom is picked.
func (f *front) pass(client net.Conn) {
	defer client.Close()
	to := f.pick()
	if to == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), frontDialWait)
	defer cancel()
	server, err := f.dial(ctx, to)
	if err != nil {
		return
	}
	defer server.Close()
	for _, c := range []net.Conn{client, server} {
		f.keep(c, to)
		defer f.forget(c)
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // the end of either is the end of both
			done <- struct{}{}
		}()
	}
	<-done
}

func (f *front) keep(c net.Conn, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[c] = to
}

func (f *front) forget(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
}

// drop ends the connections to one place, or to all for "".
func (f *front) drop(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, at := range f.open {
		if to == "" || at == to {
			_ = c.Close()
		}
	}
}

// machineFront is a front at a port of the machine.
func (h *hub) machineFront(t *testing.T, pick func() string) (f *front, address string) {
	t.Helper()
	address = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f = &front{listener: l, pick: pick, dial: func(ctx context.Context, to string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(to)
		for _, p := range h.places {
			if p.addr == host && port == "8081" { // the admin listener is for its own machine only
				return p.dial(ctx, "tcp", "127.0.0.1:8081")
			}
		}
		return h.places[outside].dial(ctx, "tcp", to)
	}}
	return f.run(t), address
}
