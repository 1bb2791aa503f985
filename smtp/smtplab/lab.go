package smtplab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// networkText holds the address of every host unless another network is asked
// for: 131,072 of them, in a part of 127.0.0.0/8 that nothing else is known to use.
const networkText = "127.66.0.0/15"

// portTries is how many ports Start tries before it gives up with ErrNoPort.
const portTries = 100

// Ports that Start chooses from: below 32768, where Linux by default takes the
// local ports of outgoing connections, so that a host opened later finds its
// port free.
const (
	portFirst = 20_000
	portCount = 12_000
)

// Lab is a set of simulated receivers with their DNS. Its methods are safe for
// concurrent use.
type Lab struct {
	options Options
	network netip.Prefix
	port    int
	anchor  net.Listener // holds the port at the first address of network
	dns     *nameServer
	manners *manners
	meters  sync.Map // *meter by the registrable name of its receiver: those of SetLimit

	done    chan struct{}  // closed by Stop
	running sync.WaitGroup // every goroutine of the lab

	mu        sync.Mutex // guards the fields below
	stopped   bool
	personas  map[string]*persona  // by name: the built-in ones, never changed
	domains   map[string]*added    // by name: those of Add
	receivers map[string]*receiver // by registrable name
	hosts     map[string]*host     // by name
	taken     map[netip.Addr]struct{}
	dead      []netip.Addr      // of taken: where nothing ever listens
	suffixes  map[string]bool   // every Personality.MXSuffix
	bases     map[string]string // the zones of Add with one, by their hostZone
	sessions  map[*session]struct{}
}

// persona is a personality with its replies made ready.
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

// Start runs a lab until Stop. The errors are ErrOptions, ErrNetwork,
// ErrPortTaken and ErrNoPort.
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

// choosePort takes the port of all receivers by listening at the first address.
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

// DNSAddr is the host:port of the DNS server, for UDP and TCP.
func (l *Lab) DNSAddr() string { return l.dns.addr }

// SMTPPort is the port of every receiver.
func (l *Lab) SMTPPort() int { return l.port }

// Network holds the IPv4 address of every receiver; it is what
// smtp.allow_networks must name. Receivers with IPv6 only (OnlyIPv6) are at ::1.
func (l *Lab) Network() netip.Prefix { return l.network }

// Stop closes every socket and waits until the last goroutine has ended, or
// until ctx ends, whose error it then returns. It may be called again.
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
			s.abort()
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

// lasts is how long a wait of a personality lasts here.
func (l *Lab) lasts(d time.Duration) time.Duration {
	if l.options.SecondLasts == time.Second || d == 0 {
		return d
	}
	return max(1, time.Duration(float64(d)*l.options.SecondLasts.Seconds()))
}

// wait waits for d; false when the lab stops first.
func (l *Lab) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
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

// startNameServer listens at at. With port 0 the UDP socket chooses the port,
// and another one is tried while TCP finds it taken.
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
