package mx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// socketUses and socketAge bound the use of a UDP socket. A forger has to guess its port (RFC 5452 §9.2), so it
	// must change; a new socket costs two thirds of a query's time, so not every time.
	socketUses = 256
	socketAge  = 10 * time.Second

	// socketsIdle bounds a server's unused sockets: the query rate is highest with 50 at once, and more only cost
	// descriptors.
	socketsIdle = 64

	// straysMax bounds the packets in one exchange that do not answer the question. If more come, somebody forges
	// answers (RFC 5452 §9.2); over TCP they cannot.
	straysMax = 8

	// udpBytes is the largest UDP answer read. It is above the EDNS size because some servers exceed that.
	udpBytes = 4096
)

// sendShares divide a server's time: after each part the question is sent again, and after the last it fails. With 5
// s that is after 0.5 and 1.7 s. Hundreds of questions at once overflow a server's socket, and waiting long then
// costs more than asking a slow server twice.
var sendShares = [...]time.Duration{10, 3, 1}

var (
	errMalformed = errors.New("not a dns answer")
	errAskTCP    = errors.New("udp answer cannot be trusted or read")
)

// server is one recursive server with its kept sockets. Safe for concurrent use.
type server struct {
	addr string

	mu     sync.Mutex // guards idle and closed
	idle   []*socket  // last used last; at most socketsIdle
	closed bool
}

// socket is a connected UDP socket, used by one exchange at a time. The kernel drops packets from other peers.
type socket struct {
	conn net.Conn
	born time.Time
	uses int
	in   []byte
	out  []byte
}

func (s *server) take(ctx context.Context) (*socket, error) {
	if k := s.pop(); k != nil {
		return k, nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", s.addr)
	if err != nil {
		return nil, err
	}
	return &socket{conn: conn, born: time.Now(), in: make([]byte, udpBytes), out: make([]byte, 512)}, nil
}

func (s *server) pop() *socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		k := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		if k.uses < socketUses && time.Since(k.born) < socketAge {
			return k
		}
		_ = k.conn.Close() // no data is lost
	}
	return nil
}

// give keeps a socket for the next question if fit is set.
func (s *server) give(k *socket, fit bool) {
	k.uses++
	s.mu.Lock()
	defer s.mu.Unlock()
	if fit && !s.closed && len(s.idle) < socketsIdle {
		s.idle = append(s.idle, k)
		return
	}
	_ = k.conn.Close() // no data is lost
}

func (s *server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, k := range s.idle {
		errs = append(errs, k.conn.Close())
	}
	s.idle = nil
	return errors.Join(errs...)
}

// exchangeUDP sends a question, repeats it, and returns the answer. errAskTCP: the answer must be fetched over TCP.
func (c *client) exchangeUDP(ctx context.Context, s *server, q *dns.Msg) (*dns.Msg, error) {
	k, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = k.conn.SetDeadline(time.Unix(1, 0)) })
	m, fit, err := c.converse(ctx, k, q)
	// If stop came too late, the other goroutine may still set the deadline.
	s.give(k, stop() && fit)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return m, err
}

// converse sends and receives for exchangeUDP; fit reports whether the socket may be reused: only after exactly one
// question and one answer.
func (c *client) converse(ctx context.Context, k *socket, q *dns.Msg) (m *dns.Msg, fit bool, err error) {
	packet, err := q.PackBuffer(k.out)
	if err != nil {
		return nil, true, fmt.Errorf("%w: question: %w", errMalformed, err)
	}
	begin, strays := time.Now(), 0
	for try, share := range sendShares {
		c.queries.Add(1)
		if try > 0 {
			c.repeated.Add(1)
		}
		if _, err := k.conn.Write(packet); err != nil {
			return nil, false, err
		}
		if err := k.conn.SetReadDeadline(begin.Add(c.timeout / share)); err != nil {
			return nil, false, err
		}
		for ctx.Err() == nil {
			n, err := k.conn.Read(k.in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, false, err
			}
			m, answers, err := readReply(k.in[:n], q)
			if answers {
				return m, try == 0 && strays == 0, err
			}
			c.strays.Add(1)
			if strays++; strays > straysMax {
				return nil, false, errAskTCP
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, false, os.ErrDeadlineExceeded
}

// readReply reports whether a packet answers the question. A packet with the right number that is unreadable or too
// long for UDP gives errAskTCP.
func readReply(packet []byte, q *dns.Msg) (m *dns.Msg, answers bool, err error) {
	if len(packet) < 12 || binary.BigEndian.Uint16(packet) != q.Id {
		return nil, false, nil
	}
	m = new(dns.Msg)
	if err := m.Unpack(packet); err != nil && !m.Truncated {
		return nil, true, fmt.Errorf("%w: %w", errAskTCP, err)
	}
	return m, fits(m, q), nil
}

// fits reports whether a reply repeats the question (RFC 5452 §9.1). A server that could not read the question may
// omit it.
func fits(m, q *dns.Msg) bool {
	if !m.Response || m.Opcode != dns.OpcodeQuery || m.Id != q.Id {
		return false
	}
	if len(m.Question) == 0 {
		return m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError
	}
	got, want := m.Question[0], q.Question[0]
	return len(m.Question) == 1 && got.Qtype == want.Qtype && got.Qclass == want.Qclass &&
		dns.CanonicalName(got.Name) == want.Name
}

// exchangeTCP asks over a new TCP connection. Questions over TCP are too rare to keep connections.
func (c *client) exchangeTCP(ctx context.Context, s *server, q *dns.Msg) (*dns.Msg, error) {
	c.queries.Add(1)
	c.overTCP.Add(1)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := &dns.Conn{Conn: raw}
	if err := conn.WriteMsg(q); err != nil {
		return nil, err
	}
	m, err := conn.ReadMsg()
	var network net.Error
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && m == nil && errors.As(err, &network):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	case !fits(m, q) || m.Truncated:
		return nil, fmt.Errorf("%w: over tcp", errMalformed)
	}
	return m, nil
}
