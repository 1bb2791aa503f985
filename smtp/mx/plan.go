package mx

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/publicsuffix"

	"rollcall/smtp"
)

// How much of an answer is used. Real domains have less; hostile ones have more, to make us dial.
const (
	mxMax         = 100 // MX records read; one answer of 64 KB could have thousands
	hostsMax      = 5   // hosts in a route, as Postfix tries
	hostAddrsMax  = 4   // addresses of a host
	routeAddrsMax = 8   // addresses in a route
)

// nameMax is the longest name without its final dot (RFC 1035 §2.3.4).
const nameMax = 253

// hostAnswer is what DNS says about the addresses of a host.
type hostAnswer struct {
	addrs   []netip.Addr // that may be dialled; at most hostAddrsMax, IPv4 first
	expires time.Time
	err     error // no addresses, but there may be some
}

// pickHosts returns the hosts of a domain's MX records that can be hosts at all, best first, by preference and name.
// null says that the domain takes no mail.
//
// It skips records with an IP address or an invalid host name (RFC 5321 §5.1: the data is a domain name), and a null
// MX beside others, which RFC 7505 §3 forbids.
func pickHosts(records []mxRecord) (hosts []mxRecord, null bool) {
	nulls := 0
	for _, r := range records {
		if r.host == "." {
			nulls++
			continue
		}
		r.host = plain(r.host)
		if !isHostName(r.host) {
			continue
		}
		hosts = append(hosts, r)
	}
	if nulls > 0 && nulls == len(records) {
		return nil, true
	}
	slices.SortFunc(hosts, func(a, b mxRecord) int {
		return cmp.Or(cmp.Compare(a.preference, b.preference), strings.Compare(a.host, b.host))
	})
	seen := make(map[string]bool, len(hosts))
	hosts = slices.DeleteFunc(hosts, func(r mxRecord) bool {
		twice := seen[r.host]
		seen[r.host] = true
		return twice
	})
	return hosts, false
}

// isHostName reports whether a name can be that of a mail host. An IP address can not.
func isHostName(name string) bool {
	_, err := netip.ParseAddr(name)
	return err != nil && len(name) <= nameMax && hasHostLetters(name)
}

// hasHostLetters reports whether a name is not empty and has only letters, digits, hyphens, dots and underscores
// (they exist). Other names never get into a route, a log or a question.
func hasHostLetters(name string) bool {
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
		if !ok {
			return false
		}
	}
	return name != ""
}

// planRoute makes a domain's route from its hosts and an answer for each; seed orders hosts of equal preference.
//
// RFC 5321 §5.1 asks to spread the load over hosts of equal preference. The seed spreads it between resolvers;
// inside one resolver the order stays, so that sessions can be reused for the next domain.
//
// If no host can be used, the error is that of the first host with a failed lookup, because then nothing is certain.
func planRoute(domain string, hosts []mxRecord, answers []hostAnswer, seed maphash.Seed) (Route, error) {
	route := Route{Domain: domain}
	var failed error
	for i, h := range hosts {
		a := answers[i]
		if a.err != nil {
			failed = cmp.Or(failed, a.err)
			continue
		}
		if route.Expires.IsZero() || a.expires.Before(route.Expires) {
			route.Expires = a.expires
		}
		if len(a.addrs) > 0 {
			route.Hosts = append(route.Hosts, Host{Name: h.host, Preference: h.preference, Addrs: a.addrs})
		}
	}
	if len(route.Hosts) == 0 && failed != nil {
		return Route{}, failed
	}
	if len(route.Hosts) == 0 {
		route.NoMail = smtp.NoMailService
		return route, nil
	}
	// The key must not depend on the seed: all nodes need the same key.
	route.Receiver = receiverKey(route.Hosts[0].Name)
	slices.SortStableFunc(route.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Preference, b.Preference),
			cmp.Compare(maphash.String(seed, a.Name), maphash.String(seed, b.Name)))
	})
	route.Hosts = boundAddrs(route.Hosts)
	if failed != nil {
		route.Expires = time.Time{} // kept as short as possible: a better host may come back
	}
	return route, nil
}

// boundAddrs keeps at most routeAddrsMax addresses, in order.
func boundAddrs(hosts []Host) []Host {
	left := routeAddrsMax
	for i := range hosts {
		if left == 0 {
			return hosts[:i]
		}
		n := min(left, len(hosts[i].Addrs))
		hosts[i].Addrs = hosts[i].Addrs[:n:n]
		left -= n
	}
	return hosts
}

// receiverKey is the registrable domain of a host, or the host itself if it has none.
func receiverKey(host string) string {
	key, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return key
}

// Host is one mail host of a domain, with its addresses.
type Host struct {
	Name       string       // lower case, no final dot
	Preference uint16       // RFC 5321 §5.1: lower first
	Addrs      []netip.Addr // in the order to try; at most 4
}

// Route is where mail for a domain goes, or that the domain takes no mail.
type Route struct {
	Domain string // lower-case A-label

	// Hosts are in the order to try; at most 5. Empty only with NoMail.
	Hosts []Host

	// NoMail is set when DNS says for certain that mail cannot be delivered: smtp.DomainNotFound or
	// smtp.NoMailService. Both give invalid.
	NoMail smtp.Reason

	// Receiver is the key of the receiver: the best host's registrable domain, lower case. Empty with NoMail.
	Receiver string

	Expires time.Time // from the TTLs, within the resolver's bounds
}

const (
	// socketUses and socketAge bound the use of a UDP socket. A forger has to guess its port (RFC 5452 §9.2), so it
	// must change; a new socket costs two thirds of a query's time, so not every time.
	socketUses = 256
	socketAge  = 10 * time.Second

	// socketsIdle bounds a server's unused sockets: the query rate is highest with 50 at once, and more only cost
	// descriptors.
	socketsIdle = 64

	// straysMax bounds the packets in one exchange that do not answer the question. More come from a forger (RFC
	// 5452 §9.2), who cannot reach TCP.
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

// exchangeTCP asks over a new TCP connection, because that is rare.
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
