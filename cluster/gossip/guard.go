package gossip

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// streamsMax bounds the incoming streams that are open at once: each may hold twice streamBytesMax. Members open one
// every few seconds. Guess.
const streamsMax = 64

// errDropped is what the library reads instead of a dropped stream's bytes.
var errDropped = errors.New("dropped by the guard")

// packetFilter is a transport that passes only what an inspector accepts. It counts dropped messages and all bytes,
// and remembers how attempts to join went. Safe for concurrent use.
type packetFilter struct {
	memberlist.NodeAwareTransport
	inspect  inspector
	networks []netip.Prefix
	meters   *meters
	limiter  *logLimiter

	packets chan *memberlist.Packet
	streams chan net.Conn
	open    atomic.Int64 // incoming streams
	done    chan struct{}
	pumps   sync.WaitGroup
	once    sync.Once

	mu          sync.Mutex
	attempts    map[string]*attempt // guarded by mu; by address
	openStreams map[*stream]bool    // guarded by mu; open streams, incoming and outgoing
}

// start begins to filter what the transport receives.
func (g *packetFilter) start() {
	g.packets, g.streams = make(chan *memberlist.Packet), make(chan net.Conn)
	g.done, g.attempts, g.openStreams = make(chan struct{}), map[string]*attempt{}, map[*stream]bool{}
	g.pumps.Go(g.passPackets)
	g.pumps.Go(g.passStreams)
}

func (g *packetFilter) passPackets() {
	for {
		select {
		case <-g.done:
			return
		case p := <-g.NodeAwareTransport.PacketCh():
			g.meters.received(unitPacket, len(p.Buf))
			if why, label := g.judge(p); why != passes {
				g.drop(unitPacket, why, label, p.From)
				continue
			}
			select {
			case <-g.done:
				return
			case g.packets <- p:
			}
		}
	}
}

func (g *packetFilter) judge(p *memberlist.Packet) (reason, string) {
	if !g.allowed(p.From) {
		return otherNetwork, ""
	}
	return g.inspect.packet(p.Buf)
}

func (g *packetFilter) passStreams() {
	for {
		select {
		case <-g.done:
			return
		case c := <-g.NodeAwareTransport.StreamCh():
			g.meters.stream(directionIn)
			guarded := g.accept(c)
			if guarded == nil {
				_ = c.Close()
				continue
			}
			select {
			case <-g.done:
				_ = guarded.Close()
				return
			case g.streams <- guarded:
			}
		}
	}
}

// accept returns the guard of an incoming stream, or nil if the stream must be closed at once.
func (g *packetFilter) accept(c net.Conn) net.Conn {
	if !g.allowed(c.RemoteAddr()) {
		g.drop(unitStream, otherNetwork, "", c.RemoteAddr())
		return nil
	}
	if g.open.Add(1) > streamsMax {
		g.open.Add(-1)
		g.drop(unitStream, tooManyAtOnce, "", c.RemoteAddr())
		return nil
	}
	return g.hold(&stream{Conn: c, filter: g, incoming: true})
}

// hold remembers an open stream, so that Shutdown can end it.
func (g *packetFilter) hold(s *stream) *stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.openStreams[s] = true
	return s
}

func (g *packetFilter) release(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.openStreams, s)
}

// allowed reports whether an address is in an allowed network. Only traffic within this process, in memory, has no IP
// address; it is allowed.
func (g *packetFilter) allowed(a net.Addr) bool {
	if a.Network() == "pipe" {
		return true
	}
	from, err := netip.ParseAddrPort(a.String())
	address := from.Addr().Unmap().WithZone("")
	return err == nil && slices.ContainsFunc(g.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// drop counts a dropped message, and logs it if an operator may have to act.
func (g *packetFilter) drop(unit string, why reason, label string, from net.Addr) {
	g.meters.drops.WithLabelValues(unit, string(why)).Inc()
	switch why {
	case otherCluster:
		g.limiter.warn(string(why), "dropped gossip of another cluster",
			"from", from.String(), "its_cluster", label, "our_cluster", g.inspect.label)
	case otherKey:
		g.limiter.warn(string(why), "dropped gossip encrypted with a key that is not on our ring",
			"from", from.String(), "our_keys", g.inspect.keys.Fingerprints())
	case notEncrypted:
		g.limiter.warn(string(why), "dropped unencrypted gossip: its node has no gossip_key_file", "from", from.String())
	case otherNetwork:
		g.limiter.warn(string(why), "dropped gossip from outside cluster.allow_networks", "from", from.String())
	default:
		g.limiter.warn(string(why), "dropped gossip that no member sends", "from", from.String(),
			"unit", unit, "reason", string(why))
	}
}

func (g *packetFilter) PacketCh() <-chan *memberlist.Packet { return g.packets }

func (g *packetFilter) StreamCh() <-chan net.Conn { return g.streams }

func (g *packetFilter) WriteTo(b []byte, address string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: address})
}

func (g *packetFilter) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	g.meters.sent(unitPacket, len(b))
	return g.NodeAwareTransport.WriteToAddress(b, a)
}

func (g *packetFilter) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

func (g *packetFilter) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	c, err := g.dial(a, timeout)
	if err != nil {
		return nil, err
	}
	g.meters.stream(directionOut)
	s := g.hold(&stream{Conn: c, filter: g})
	if a.Name == "" { // a join has no name; pings and syncs of members have one
		g.mu.Lock()
		s.attempt = g.attempts[a.Addr]
		g.mu.Unlock()
		s.attempt.reach()
	}
	return s, nil
}

// dial connects unless the guard is shut down. Shutdown does not wait for it.
func (g *packetFilter) dial(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := g.NodeAwareTransport.DialAddressTimeout(a, timeout)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-g.done:
		go func() { // ends when the connection is made or the dial times out
			if r := <-done; r.c != nil {
				_ = r.c.Close()
			}
		}()
		return nil, ErrStopped
	}
}

// Shutdown implements memberlist.Transport. The library calls it while it still reads incoming messages, so that the
// transport's listeners can end.
func (g *packetFilter) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	g.once.Do(func() { close(g.done) })
	g.pumps.Wait()
	g.mu.Lock()
	living := slices.Collect(maps.Keys(g.openStreams))
	g.mu.Unlock()
	for _, s := range living {
		_ = s.Close()
	}
	return err
}

// begin makes the guard note, until end, how a join at an address goes.
func (g *packetFilter) begin(address string) *attempt {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := &attempt{}
	g.attempts[address] = a
	return a
}

func (g *packetFilter) end(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.attempts, address)
}

// attempt notes how a join at one address goes, because the library's errors are only texts. On nil all its methods
// do nothing. Safe for concurrent use.
type attempt struct {
	mu      sync.Mutex
	reached bool  // guarded by mu: the connection was accepted
	cause   error // guarded by mu: why it failed after that, if the stream shows it
}

func (a *attempt) reach() {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reached = true
	}
}

func (a *attempt) fail(err error) {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.cause == nil {
			a.cause = err
		}
	}
}

func (a *attempt) result() (reached bool, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reached, a.cause
}

// stream is a connection whose first message is inspected before the library reads it. Only one goroutine may read
// from it.
type stream struct {
	net.Conn
	filter   *packetFilter
	incoming bool
	attempt  *attempt // of a join, or nil

	from  io.Reader // nil until the first Read
	err   error
	close sync.Once
}

var (
	errHungUp = errors.New("it hung up: its cluster.name or gossip key differs, or its " +
		"cluster.allow_networks exclude this node; its log says which")
	errAnswer = errors.New("its answer is not a member's")
	errSilent = errors.New("it did not answer in time")
)

func (s *stream) Read(b []byte) (int, error) {
	if s.from == nil && s.err == nil {
		s.inspect()
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.from.Read(b)
}

// inspect reads the first message; the library has set a deadline.
func (s *stream) inspect() {
	from, why, label, err := s.filter.inspect.stream(counted{s}, s.incoming)
	switch {
	case err != nil:
		s.err = err
		s.attempt.fail(cause(err))
	case why != passes:
		s.err = fmt.Errorf("%w: %s", errDropped, why)
		s.filter.drop(unitStream, why, label, s.RemoteAddr())
		s.attempt.fail(answerError(why))
	default:
		s.from = from
	}
}

// cause translates an error of a stream for the operator of a node that joins.
func cause(err error) error {
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return errSilent
	}
	return errHungUp
}

func answerError(why reason) error {
	if why == otherKey {
		return errors.New("it answered with a gossip key that is not on this node's ring")
	}
	return fmt.Errorf("%w (%s)", errAnswer, why)
}

func (s *stream) Write(b []byte) (int, error) {
	s.filter.meters.sent(unitStream, len(b))
	n, err := s.Conn.Write(b)
	if err != nil {
		s.attempt.fail(cause(err))
		_ = s.Close() // the library does not close it when it can't write the cluster's name
	}
	return n, err
}

func (s *stream) Close() error {
	s.close.Do(func() {
		s.filter.release(s)
		if s.incoming {
			s.filter.open.Add(-1)
		}
	})
	return s.Conn.Close()
}

// counted reads from the connection below a stream and counts the bytes.
type counted struct{ of *stream }

func (c counted) Read(b []byte) (int, error) {
	n, err := c.of.Conn.Read(b)
	c.of.filter.meters.received(unitStream, n)
	return n, err
}
