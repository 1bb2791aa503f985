package http

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// storageListener hands out storageConns and bounds how many are open.
type storageListener struct {
	net.Listener
	max    int
	linger time.Duration
	alive  sync.WaitGroup // of open connections

	mu   sync.Mutex // guards open
	open map[*storageConn]struct{}
}

// storageCrowdedMax bounds the connections above the bound that get an answer
// at the same time; further ones are closed without a word (guess).
const storageCrowdedMax = 32

func newStorageListener(inner net.Listener, most int, linger time.Duration) *storageListener {
	return &storageListener{Listener: inner, max: most, linger: linger, open: make(map[*storageConn]struct{})}
}

// Accept waits for a connection that fits the bound, and refuses the others.
func (l *storageListener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &storageConn{Conn: inner, listener: l}
		switch place := l.admit(conn); {
		case place <= l.max:
			return conn, nil
		case place <= l.max+storageCrowdedMax:
			go conn.crowded()
		default:
			_ = inner.Close()
		}
	}
}

// admit counts the connection, if it gets any place, and says which place it has.
func (l *storageListener) admit(c *storageConn) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := len(l.open) + 1
	if place <= l.max+storageCrowdedMax {
		l.open[c] = struct{}{}
		l.alive.Add(1)
	}
	return place
}

func (l *storageListener) remove(c *storageConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, found := l.open[c]; found {
		delete(l.open, c)
		l.alive.Done()
	}
}

// wait returns when every connection is closed; those that are open when ctx ends are cut.
func (l *storageListener) wait(ctx context.Context) {
	closed := make(chan struct{})
	go func() { l.alive.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done():
		l.each((*storageConn).cut)
		<-closed
	}
}

// interrupt ends every wait for bytes that runs now.
func (l *storageListener) interrupt() {
	l.each(func(c *storageConn) { _ = c.SetReadDeadline(time.Now()) })
}

func (l *storageListener) each(do func(*storageConn)) {
	l.mu.Lock()
	conns := make([]*storageConn, 0, len(l.open))
	for c := range l.open {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// storageConn is a connection that can be cut from another goroutine, and that
// is drained before it closes when an answer overtook the request's body.
type storageConn struct {
	net.Conn
	listener *storageListener
	early    atomic.Bool // an answer was given before the body's last byte
	closed   atomic.Bool
}

// storageLingerBytes bounds what a drain reads and drops: a client that is
// still sending after that much has had its answer for long (guess).
const storageLingerBytes = 64 << 20

// Close ends the connection. After an early answer it first says that no more
// will come and reads on for a bounded time: bytes that lie unread at a close
// make the kernel send a reset, which would take our answer with it (RFC 9112 §9.6).
func (c *storageConn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	defer c.listener.remove(c)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.early.Load() && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(c.listener.linger))
		_, _ = io.CopyN(io.Discard, c.Conn, storageLingerBytes)
	}
	return c.Conn.Close()
}

// cut ends the connection at once, also one that is being drained. Whoever
// reads or writes it gets an error.
func (c *storageConn) cut() {
	c.closed.Store(true)
	_ = c.Conn.Close()
	c.listener.remove(c)
}

// crowded answers a connection above the bound.
func (c *storageConn) crowded() {
	_ = c.SetDeadline(time.Now().Add(c.listener.linger)) // a handshake reads too
	_, _ = io.WriteString(c, storageCrowded())
	c.early.Store(true)
	_ = c.Close()
}
