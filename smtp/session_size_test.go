package smtp

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"rollcall/config/effort"
)

func benchAddresses(n int) []Address {
	list := make([]Address, n)
	for i := range list {
		list[i] = Address{Local: fmt.Sprintf("someone.%06d", i), Domain: "example.com"}
	}
	return list
}

// stubConn is a receiver without a goroutine: it answers when it is read.
type stubConn struct {
	net.Conn // a pipe, for its deadlines
	owed     int
	greeted  bool
}

func (c *stubConn) Write(p []byte) (int, error) {
	c.owed = bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func (c *stubConn) Read(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		return copy(p, "220 hi\r\n"), nil
	}
	if c.owed == 0 {
		return 0, os.ErrDeadlineExceeded // nothing more to say
	}
	n := copy(p, strings.Repeat("250-mx\r\n250 PIPELINING\r\n", c.owed))
	c.owed = 0
	return n, nil
}

// Ten thousand sessions may be open at once, so one may hold 16 KiB at most.
func TestSessionIsSmall(t *testing.T) {
	const n, most = 500, 16 << 10
	list := benchAddresses(50)
	open := make([]*Session, n)
	conns := make([]*stubConn, n)
	for i := range conns {
		client, server := net.Pipe()
		defer server.Close()
		conns[i] = &stubConn{Conn: client}
	}
	before := heap()
	for i, conn := range conns {
		dial := dialFunc(func(context.Context) (net.Conn, error) { return conn, nil })
		open[i] = effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		effort.Must(open[i].Probe(t.Context(), list, Ask{Pipelining: true}))(t)
	}
	if each := (heap() - before) / n; each > most {
		t.Errorf("%d bytes each, want at most %d", each, most)
	} else {
		t.Logf("%d bytes each", each)
	}
	runtime.KeepAlive(open)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
