package smtplab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// networkText is the default network of the hosts: 131,072 addresses, in a part of 127.0.0.0/8 that nothing else is
// known to use.
const networkText = "127.66.0.0/15"

// portTries is how many ports Start tries before it gives up with ErrNoPort.
const portTries = 100

// Start chooses a port in this range. It is below 32768, where Linux by default begins the local ports of outgoing
// connections, so that the port is free when a host opens later.
const (
	portFirst = 20_000
	portCount = 12_000
)

// Lab is a set of simulated receivers with their DNS. Its methods are safe for concurrent use.
type Lab struct {
	options Options
	network netip.Prefix
	port    int
	anchor  net.Listener // holds the port at the first address of network
	dns     *nameServer
	manners *manners
	meters  sync.Map // *meter by its receiver's registrable name: those of SetLimit

	done    chan struct{}  // closed by Stop
	running sync.WaitGroup // every goroutine of the lab

	mu        sync.Mutex // guards the fields below
	stopped   bool
	personas  map[string]*persona  // by name: the built-in ones, never changed
	domains   map[string]*added    // by name: those of Add
	receivers map[string]*receiver // by registrable name
	hosts     map[string]*host     // by name
	taken     map[netip.Addr]struct{}
	dead      []netip.Addr      // part of taken, where nothing ever listens
	suffixes  map[string]bool   // every Personality.MXSuffix
	bases     map[string]string // zones of Add with an MXSuffix, by their hostZone
	sessions  map[*session]struct{}
}

// persona is a personality with prepared replies.
type persona struct {
	Personality
	words  *vocabulary
	inside *persona // of AfterTLS
}

// builtin are the personas of Personalities by name, made once and never changed.
var builtin = sync.OnceValue(func() map[string]*persona {
	out := make(map[string]*persona)
	for _, p := range personalities() {
		out[p.Name] = personaOf(p)
	}
	return out
})

func personaOf(p Personality) *persona {
	out := &persona{Personality: p, words: vocabularyOf(&p)}
	if p.AfterTLS != nil {
		out.inside = personaOf(*p.AfterTLS)
	}
	return out
}

// Start runs a lab until Stop. The errors are ErrOptions, ErrNetwork, ErrPortTaken and ErrNoPort.
func Start(o Options) (*Lab, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := &Lab{
		options:   o,
		network:   o.Network,
		manners:   newManners(o),
		done:      make(chan struct{}),
		personas:  builtin(),
		domains:   make(map[string]*added),
		receivers: make(map[string]*receiver),
		hosts:     make(map[string]*host),
		taken:     make(map[netip.Addr]struct{}),
		suffixes:  make(map[string]bool),
		bases:     make(map[string]string),
		sessions:  make(map[*session]struct{}),
	}
	for _, p := range l.personas {
		l.suffixes[p.MXSuffix] = p.MXSuffix != ""
	}
	if err := l.choosePort(); err != nil {
		return nil, err
	}
	var err error
	if l.dns, err = startNameServer(l, o.DNSListen); err != nil {
		return nil, errors.Join(err, l.anchor.Close())
	}
	return l, nil
}

// choosePort chooses the port of all receivers by listening at the first address.
func (l *Lab) choosePort() error {
	first := l.network.Addr().Next()
	l.taken[l.network.Addr()] = struct{}{}
	l.taken[first] = struct{}{}
	port, tries := l.options.SMTPPort, 1
	if port == 0 {
		port, tries = portFirst+rand.IntN(portCount), portTries
	}
	for range tries {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(first, uint16(port)).String())
		switch {
		case err == nil:
			l.port, l.anchor = port, listener
			return nil
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("%w: %v", ErrNetwork, err)
		case l.options.SMTPPort != 0 && errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("%w: SMTP %d", ErrPortTaken, port)
		case l.options.SMTPPort != 0:
			return fmt.Errorf("listen for SMTP: %w", err)
		}
		port = portFirst + (port+1-portFirst)%portCount
	}
	return ErrNoPort
}

// DNSAddr returns the host:port of the DNS server, for UDP and TCP.
func (l *Lab) DNSAddr() string { return l.dns.addr }

// SMTPPort returns the port of every receiver.
func (l *Lab) SMTPPort() int { return l.port }

// Network returns the network of all receivers' IPv4 addresses; smtp.allow_networks must contain it. Receivers with
// IPv6 only (OnlyIPv6) are at ::1.
func (l *Lab) Network() netip.Prefix { return l.network }

// Stop closes every socket and waits until the last goroutine has ended or ctx ends, whose error it then returns. It
// may be called again.
func (l *Lab) Stop(ctx context.Context) error {
	l.mu.Lock()
	if !l.stopped {
		l.stopped = true
		close(l.done)
		_ = l.anchor.Close()
		for _, h := range l.hosts {
			h.close()
		}
		for s := range l.sessions {
			s.link.abort()
		}
	}
	l.mu.Unlock()
	l.dns.stop()
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lasts returns how long a personality's wait takes in this lab.
func (l *Lab) lasts(d time.Duration) time.Duration {
	if l.options.SecondLasts == time.Second || d == 0 {
		return d
	}
	return max(1, time.Duration(float64(d)*l.options.SecondLasts.Seconds()))
}

// wait waits for d, and returns false when the lab stops first.
func (l *Lab) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-l.done:
		return false
	}
}

// stopping reports whether Stop was called.
func (l *Lab) stopping() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// nameServer is the DNS of a lab on one UDP and one TCP socket.
type nameServer struct {
	addr string
	udp  *dns.Server
	tcp  *dns.Server
	once sync.Once
}

// startNameServer listens at an address. With port 0 it tries UDP ports until the TCP port is free, too.
func startNameServer(l *Lab, at netip.AddrPort) (*nameServer, error) {
	for range portTries {
		packets, err := net.ListenPacket("udp", at.String())
		if err != nil {
			return nil, listenDNSError(at, err)
		}
		addr := packets.LocalAddr().String()
		streams, err := net.Listen("tcp", addr)
		if err != nil {
			_ = packets.Close()
			if at.Port() == 0 && errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			return nil, listenDNSError(at, err)
		}
		handler := dns.HandlerFunc(l.serveDNS)
		n := &nameServer{
			addr: addr,
			udp:  &dns.Server{PacketConn: packets, Handler: handler},
			tcp:  &dns.Server{Listener: streams, Handler: handler},
		}
		n.run(l, n.udp)
		n.run(l, n.tcp)
		return n, nil
	}
	return nil, ErrNoPort
}

func listenDNSError(at netip.AddrPort, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: DNS %s", ErrPortTaken, at)
	}
	return fmt.Errorf("listen for DNS: %w", err)
}

// run serves until stop; it returns when s can be stopped.
func (n *nameServer) run(l *Lab, s *dns.Server) {
	ready := make(chan struct{})
	s.NotifyStartedFunc = func() { close(ready) }
	l.running.Go(func() {
		if err := s.ActivateAndServe(); err != nil {
			l.options.Log.Error("lab dns ended", "err", err)
		}
	})
	<-ready
}

func (n *nameServer) stop() {
	n.once.Do(func() {
		_ = n.udp.Shutdown()
		_ = n.tcp.Shutdown()
	})
}

// Options configure a Lab. Defaults returns a complete set; Start refuses an incomplete one with ErrOptions.
type Options struct {
	// Network has the address of every host: a part of 127.0.0.0/8 or of a private network (RFC 1918), IPv4, /8 to
	// /24, without 10.66.66.66, the address that nobody may dial. All its addresses must be local. On Linux those of
	// 127.0.0.0/8 are local, others after "ip route add local NETWORK dev lo".
	Network netip.Prefix

	// DNSListen is the address and port of the DNS server, UDP and TCP; port 0
	// chooses a free one. On loopback or in Network.
	DNSListen netip.AddrPort

	// SMTPPort is the port of every receiver; 0 chooses a free one.
	SMTPPort int

	// GreylistWait is the delay of the greylisting personalities; 100 ms to 24 h. Their replies name it in whole
	// seconds, rounded up.
	GreylistWait time.Duration

	// HourLasts is the length of an "hour" of the guards, 10 ms to 24 h. Limits of refused recipients an hour keep
	// their numbers, so a shorter hour makes a guard forget sooner. The client's own hour must then be set to the
	// same length. Default 1 h.
	HourLasts time.Duration

	// SecondLasts is the length of a second in the waits of personalities (GreetDelay, TurnDelay, ByteDelay, IdleMax),
	// 1 µs to 1 min: tests may shorten it. RCPTs per second and the pause of Postfix use real seconds. Default 1 s.
	SecondLasts time.Duration

	// Latency is a wait before each flush of replies, for every receiver, like a network's round trip; 0 to 1 min. A
	// personality's own wait is added.
	Latency time.Duration

	// HostsMax bounds the hosts with an address, each with a listening socket; 1 to 100,000, and at most the
	// addresses of Network. For further hosts DNS answers SERVFAIL.
	HostsMax int

	// SessionsMax bounds the open sessions of all receivers together; 1 to 100,000. Further ones are refused with
	// 421 and counted in LimitsHit.
	SessionsMax int

	// AddressesMax bounds the addresses with a count of their own; at most 10,000,000 (about 40 bytes each), 0:
	// none. Probes for other addresses count in Sheet.Uncounted.
	AddressesMax int

	// EventsMax bounds the log that Events returns; at most 10,000,000 events (about 150 bytes each), 0: no log.
	// Later events count in Sheet.EventsDropped.
	EventsMax int

	Log *slog.Logger
}

// Defaults returns the options of a demonstration on a free port: no latency, 3 s of greylisting, no log of events.
func Defaults() Options {
	return Options{
		Network:      netip.MustParsePrefix(networkText),
		DNSListen:    netip.MustParseAddrPort("127.0.0.1:0"),
		GreylistWait: 3 * time.Second, // long enough to see, short enough to await
		HourLasts:    time.Hour,
		SecondLasts:  time.Second,
		HostsMax:     9_000,     // guess: each is an open file, of which many systems allow 20,000
		SessionsMax:  6_000,     // also open files; the rest is for a node in the same process
		AddressesMax: 2_000_000, // twice the largest file
		Log:          slog.New(slog.DiscardHandler),
	}
}

// Validate returns nil, or an error that wraps ErrOptions and names the field.
func (o Options) Validate() error {
	switch {
	case !networkFits(o.Network):
		return fmt.Errorf("%w: Network %q is no part of 127.0.0.0/8 or a private network, /8 to /24, without %s",
			ErrOptions, o.Network, insideV4)
	case !o.DNSListen.IsValid() || !o.DNSListen.Addr().IsLoopback() && !o.Network.Contains(o.DNSListen.Addr()):
		return fmt.Errorf("%w: DNSListen %q is no address and port on loopback or in %s", ErrOptions, o.DNSListen,
			o.Network)
	case o.SMTPPort < 0 || o.SMTPPort > 65535:
		return fmt.Errorf("%w: SMTPPort %d", ErrOptions, o.SMTPPort)
	case o.GreylistWait < 100*time.Millisecond || o.GreylistWait > 24*time.Hour:
		return fmt.Errorf("%w: GreylistWait %v is not within 100ms to 24h", ErrOptions, o.GreylistWait)
	case o.HourLasts < 10*time.Millisecond || o.HourLasts > 24*time.Hour:
		return fmt.Errorf("%w: HourLasts %v is not within 10ms to 24h", ErrOptions, o.HourLasts)
	case o.SecondLasts < time.Microsecond || o.SecondLasts > time.Minute:
		return fmt.Errorf("%w: SecondLasts %v is not within 1µs to 1m", ErrOptions, o.SecondLasts)
	case o.Latency < 0 || o.Latency > time.Minute:
		return fmt.Errorf("%w: Latency %v is not within 0 to 1m", ErrOptions, o.Latency)
	case o.HostsMax < 1 || o.HostsMax > 100_000:
		return fmt.Errorf("%w: HostsMax %d is not within 1 to 100000", ErrOptions, o.HostsMax)
	case o.SessionsMax < 1 || o.SessionsMax > 100_000:
		return fmt.Errorf("%w: SessionsMax %d is not within 1 to 100000", ErrOptions, o.SessionsMax)
	case o.AddressesMax < 0 || o.AddressesMax > 10_000_000:
		return fmt.Errorf("%w: AddressesMax %d is not within 0 to 10000000", ErrOptions, o.AddressesMax)
	case o.EventsMax < 0 || o.EventsMax > 10_000_000:
		return fmt.Errorf("%w: EventsMax %d is not within 0 to 10000000", ErrOptions, o.EventsMax)
	case o.Log == nil:
		return fmt.Errorf("%w: Log is missing", ErrOptions)
	}
	return nil
}

// networkFits reports whether hosts may live in n: it is not public and does not contain the address that nobody may
// dial.
func networkFits(n netip.Prefix) bool {
	first := n.Addr()
	return n.IsValid() && first.Is4() && n == n.Masked() && n.Bits() >= 8 && n.Bits() <= 24 &&
		(first.IsLoopback() || first.IsPrivate() && privateWhole(n)) && !n.Contains(insideV4)
}

// privateWhole reports whether all of n is private, from the first address to the last.
func privateWhole(n netip.Prefix) bool {
	last := n.Addr().As4()
	for i := n.Bits(); i < 32; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(last).IsPrivate()
}

var (
	// ErrOptions: the Options are incomplete or contradict each other.
	ErrOptions = errors.New("smtplab: bad options")

	// ErrNetwork: addresses of Options.Network cannot be bound. Those of 127.0.0.0/8
	// are local on Linux, others after "ip route add local NETWORK dev lo".
	ErrNetwork = errors.New("smtplab: the network is not local: on Linux, \"ip route add local NETWORK dev lo\"")

	// ErrPortTaken: the requested port is in use.
	ErrPortTaken = errors.New("smtplab: port is in use")

	// ErrNoPort: no free port was found after portTries tries.
	ErrNoPort = errors.New("smtplab: no free port found")

	// ErrDomain: a Domain given to Add cannot be served.
	ErrDomain = errors.New("smtplab: bad domain")

	// ErrHostsMax: Options.HostsMax hosts are open, or Network is full; DNS answers SERVFAIL for more.
	ErrHostsMax = errors.New("smtplab: too many hosts")
)

// acceptPause is the wait after a temporary failure of accept, such as too many open files; guess.
const acceptPause = 10 * time.Millisecond

// host is one name with an address of its own.
type host struct {
	name     string
	addr     netip.Addr
	receiver *receiver
	tallies  tallies
	listener net.Listener // nil when the host is down
}

func (h *host) close() {
	if h.listener != nil {
		_ = h.listener.Close()
	}
}

// openHost returns the host, and makes it listen if needed. The caller holds l.mu. The error is ErrHostsMax or wraps
// a net.Error.
func (l *Lab) openHost(name string, r *receiver, down bool) (*host, error) {
	if h := l.hosts[name]; h != nil {
		return h, nil
	}
	if len(l.hosts) >= l.options.HostsMax || len(l.taken) >= 1<<(32-l.network.Bits()) {
		return nil, ErrHostsMax
	}
	h := &host{name: name, addr: netip.IPv6Loopback(), receiver: r}
	if r.persona.DNS != OnlyIPv6 {
		h.addr = l.addressOf(name)
	}
	if !down && !l.stopped {
		at := netip.AddrPortFrom(h.addr, uint16(l.port))
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			delete(l.taken, h.addr)
			return nil, err
		}
		h.listener = listener
		l.running.Go(func() { l.accept(h) })
	}
	h.tallies = tallies{l.manners.total, h.receiver.tally, l.manners.host(name)}
	l.hosts[name] = h
	return h, nil
}

// accept runs the sessions of a host until the lab stops.
func (l *Lab) accept(h *host) {
	for {
		conn, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !l.wait(acceptPause) {
				return
			}
			continue
		}
		s := newSession(l, h, conn)
		if !l.keep(s) {
			s.link.abort()
			return
		}
		l.running.Go(func() {
			defer l.forget(s)
			s.run()
		})
	}
}

// keep remembers an open session for Stop; it returns false when the lab stops.
func (l *Lab) keep(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.sessions[s] = struct{}{}
	s.crowded = len(l.sessions) > l.options.SessionsMax
	return true
}

func (l *Lab) forget(s *session) {
	l.mu.Lock()
	delete(l.sessions, s)
	l.mu.Unlock()
	s.link.abort()
}
