package smtp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
)

// cleanReceiver answers every command at once and offers PIPELINING; replies to
// what came together go together.
func cleanReceiver(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	out := bufio.NewWriterSize(conn, 64<<10)
	_, _ = out.WriteString("220 mx.example ESMTP\r\n")
	for {
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		switch line[0] {
		case 'E':
			_, err = out.WriteString("250-mx.example\r\n250 PIPELINING\r\n")
		case 'R':
			_, err = out.WriteString("250 2.1.5 ok\r\n")
		default:
			_, err = out.WriteString("250 2.1.0 ok\r\n")
		}
		if err != nil {
			return
		}
	}
}

func listenClean(b *testing.B) netip.AddrPort {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go cleanReceiver(conn)
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func benchAddresses(n int) []Address {
	list := make([]Address, n)
	for i := range list {
		list[i] = Address{Local: fmt.Sprintf("someone.%06d", i), Domain: "example.com"}
	}
	return list
}

// BenchmarkBareLoop is the bound: the same bytes on a kept connection, with
// nothing learned of them. An operation is one RCPT.
func BenchmarkBareLoop(b *testing.B) {
	for _, group := range []int{1, 10, 50, 100} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			conn, err := net.Dial("tcp", listenClean(b).String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			if _, err := in.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
			command := strings.Repeat("RCPT TO:<someone.000000@example.com>\r\n", group)
			b.ReportAllocs()
			for asked := 0; b.Loop(); asked++ {
				if asked%group != 0 {
					continue // its reply was read with its group
				}
				if _, err := io.WriteString(conn, command); err != nil {
					b.Fatal(err)
				}
				for range group {
					if _, err := in.ReadSlice('\n'); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rcpt/s")
		})
	}
}

// BenchmarkProbe asks on one kept session so many addresses a call, in transactions of so
// many, each reply awaited or in groups. An operation is one RCPT.
func BenchmarkProbe(b *testing.B) {
	for _, test := range []struct {
		addresses, perTransaction int
		pipelining                bool
	}{{1, 1, false}, {64, 1, false}, {100, 100, false}, {1, 1, true}, {64, 1, true}, {64, 4, true}, {100, 100, true}} {
		name := fmt.Sprintf("addresses=%d/transaction=%d/pipelining=%v", test.addresses, test.perTransaction, test.pipelining)
		b.Run(name, func(b *testing.B) {
			at := listenClean(b)
			s, err := Open(b.Context(), loopbackDialer(b, int(at.Port())), "mx.example", at, testOptions())
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			list := benchAddresses(test.addresses)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ReportAllocs()
			for asked := 0; b.Loop(); asked++ {
				if asked%len(list) != 0 {
					continue
				}
				answers, err := s.Probe(ctx, list, Ask{Pipelining: test.pipelining, PerTransaction: test.perTransaction})
				if err != nil || len(answers) != len(list) {
					b.Fatal(len(answers), err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rcpt/s")
		})
	}
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
		var err error
		if open[i], err = Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()); err != nil {
			t.Fatal(err)
		}
		if _, err = open[i].Probe(t.Context(), list, Ask{Pipelining: true}); err != nil {
			t.Fatal(err)
		}
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
