package listen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
)

// ErrProxyHeader: a connection begins with a PROXY header that is refused, because the peer is untrusted, or the
// header is of version 1 or malformed.
var ErrProxyHeader = errors.New("listen: the PROXY header is refused")

// The reasons why a PROXY header is refused.
const (
	proxyReasonUntrusted = "untrusted" // any header of an untrusted peer
	proxyReasonVersion   = "version"   // version 1
	proxyReasonMalformed = "malformed" // malformed as version 2 for TCP, or cut short
	proxyReasonTimeout   = "timeout"   // not complete within proxyHeaderTimeout
)

var proxyReasons = []string{proxyReasonUntrusted, proxyReasonVersion, proxyReasonMalformed, proxyReasonTimeout}

// proxyHeaderTimeout bounds the time from the first byte of a PROXY header to its last. Proxies write it in one piece.
const proxyHeaderTimeout = 5 * time.Second

// proxyHeaderMax bounds a header after its fixed 16 bytes: addresses, and the extensions (TLVs), which are skipped. The
// largest extension, a client certificate, has 1 to 2 KiB. It is the library's own bound.
const proxyHeaderMax = 4096

// proxyListener gives connections the addresses of their clients.
type proxyListener struct {
	net.Listener
	trusted Trusted
	refused func(reason string)
	timeout time.Duration
}

// behindProxies wraps a listener. A trusted peer may begin a connection with a PROXY protocol header of version 2
// (the text of HAProxy, 2020-03-05, section 2.2); the connection then has the client's address. Other peers that send
// such a header get ErrProxyHeader at the first Read. Version 1 is not supported: it is text without a fixed length,
// and all relevant proxies can write version 2. refused is called with the reason for each refused header; it must
// not block.
func behindProxies(l net.Listener, trusted Trusted, refused func(reason string)) net.Listener {
	return &proxyListener{Listener: l, trusted: trusted, refused: refused, timeout: proxyHeaderTimeout}
}

// Accept does not wait for a header; the connection's first Read does.
func (l *proxyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &proxiedConn{Conn: c, listener: l}, nil
}

// proxiedConn is a connection whose first bytes may be a PROXY header. One goroutine reads.
type proxiedConn struct {
	net.Conn
	listener *proxyListener
	begun    bool
	failed   error         // error of reading the header; every Read returns it
	head     *bufio.Reader // until its buffered bytes are used up
	client   atomic.Pointer[net.TCPAddr]
	onClient func() error

	mu       sync.Mutex
	deadline time.Time // guarded by mu; of reads, set by the owner
}

// OnClient sets f, which is called when a header has named the client, before any byte of the client is read. If f
// returns an error, the connection ends and every Read returns that error. Call OnClient before the first Read.
func (c *proxiedConn) OnClient(f func() error) { c.onClient = f }

// RemoteAddr returns the client's address once the first Read has found a header, and otherwise the peer's.
func (c *proxiedConn) RemoteAddr() net.Addr {
	if a := c.client.Load(); a != nil {
		return a
	}
	return c.Conn.RemoteAddr()
}

// CloseWrite closes the sending side.
func (c *proxiedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetReadDeadline keeps the owner's deadline, which a header may shorten for a while.
func (c *proxiedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *proxiedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Read reads and removes the header first; then it reads the connection.
func (c *proxiedConn) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.failed = c.begin()
	}
	switch {
	case c.failed != nil:
		return 0, c.failed
	case c.head == nil:
		return c.Conn.Read(b)
	}
	n, err := c.head.Read(b)
	if c.head.Buffered() == 0 {
		c.head = nil
	}
	return n, err
}

// The beginnings of the two versions of a header.
var (
	version1 = []byte("PROXY ")
	version2 = []byte("\r\n\r\n\x00\r\nQUIT\n")
)

// begin checks the first bytes and reads a header, if there is one.
func (c *proxiedConn) begin() error {
	trusted := c.listener.trusted.Contains(IPOf(c.Conn.RemoteAddr()))
	size := 16 // the smallest buffer that the library accepts
	if trusted {
		size = 256 // enough for a header without large extensions
	}
	c.head = bufio.NewReaderSize(c.Conn, size)
	first, err := c.head.Peek(1)
	if err != nil {
		return err
	}
	signature := version2
	switch first[0] {
	case version1[0]:
		signature = version1
	case version2[0]:
	default:
		return nil
	}
	if err := c.hurry(); err != nil {
		return err
	}
	begins, err := c.beginsWith(signature)
	switch {
	case err != nil || !begins:
		// the next reader reports what the bytes are
	case !trusted:
		err = c.refuse(proxyReasonUntrusted, nil)
	case first[0] == version1[0]:
		err = c.refuse(proxyReasonVersion, nil)
	default:
		err = c.header()
	}
	if relaxed := c.relax(); err == nil {
		err = relaxed
	}
	return err
}

// beginsWith compares byte by byte, so that it never waits for more than it needs.
func (c *proxiedConn) beginsWith(signature []byte) (bool, error) {
	for i := range signature {
		got, err := c.head.Peek(i + 1)
		if len(got) <= i {
			if i > 0 { // the next reader gets the error after the buffered bytes
				err = nil
			}
			return false, err
		}
		if got[i] != signature[i] {
			return false, nil
		}
	}
	return true, nil
}

func (c *proxiedConn) header() error {
	h, err := proxyproto.Read(c.head)
	if err != nil {
		reason := proxyReasonMalformed
		if errors.Is(err, os.ErrDeadlineExceeded) {
			reason = proxyReasonTimeout
		}
		return c.refuse(reason, err)
	}
	if h.Command == proxyproto.LOCAL {
		return nil // the proxy's own connection, such as a health check
	}
	client, _, ok := h.TCPAddrs()
	if !ok {
		return c.refuse(proxyReasonMalformed, errors.New("not of TCP"))
	}
	c.client.Store(client)
	if c.onClient != nil {
		return c.onClient()
	}
	return nil
}

func (c *proxiedConn) refuse(reason string, err error) error {
	c.listener.refused(reason)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrProxyHeader, reason, err)
	}
	return fmt.Errorf("%w: %s", ErrProxyHeader, reason)
}

// hurry sets the listener's timeout for the header.
func (c *proxiedConn) hurry() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := time.Now().Add(c.listener.timeout)
	if !c.deadline.IsZero() && c.deadline.Before(end) {
		end = c.deadline
	}
	return c.Conn.SetReadDeadline(end)
}

// relax restores the owner's deadline.
func (c *proxiedConn) relax() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.deadline)
}

// ErrNetwork: a text is neither an address nor a network.
var ErrNetwork = errors.New("listen: neither an address nor a network")

// Trusted are the networks of trusted proxies. The zero value trusts nobody.
type Trusted struct{ networks []netip.Prefix }

// ParseTrusted reads networks such as 10.0.0.0/8 and addresses such as 10.0.0.1; ErrNetwork.
func ParseTrusted(texts []string) (Trusted, error) {
	var t Trusted
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			alone, err := netip.ParseAddr(text)
			if err != nil || alone.Zone() != "" {
				return Trusted{}, fmt.Errorf("%w: %q", ErrNetwork, text)
			}
			alone = alone.Unmap()
			network = netip.PrefixFrom(alone, alone.BitLen())
		}
		t.networks = append(t.networks, network.Masked())
	}
	return t, nil
}

// Contains reports whether an address belongs to a trusted proxy.
func (t Trusted) Contains(a netip.Addr) bool {
	a = plain(a)
	return slices.ContainsFunc(t.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Client returns the address that a request comes from. That is the connection's address, unless it belongs to a
// trusted proxy. Then it is the right-most address in the X-Forwarded-For lines, passed in order, that is not a
// trusted proxy's; if all are, the left-most one. At an unreadable part it stops with the last address read, because
// somebody untrusted wrote everything to the left.
func (t Trusted) Client(connected netip.Addr, forwarded [][]byte) netip.Addr {
	client := plain(connected)
	for i := len(forwarded) - 1; i >= 0; i-- {
		line := forwarded[i]
		for more := true; more; {
			if !t.Contains(client) {
				return client
			}
			var hop []byte
			comma := bytes.LastIndexByte(line, ',')
			if more = comma >= 0; more {
				line, hop = line[:comma], line[comma+1:]
			} else {
				hop = line
			}
			a, ok := parseHop(bytes.Trim(hop, " \t"))
			if !ok {
				return client
			}
			client = a
		}
	}
	return client
}

// parseHop reads an address, which some proxies write with a port.
func parseHop(text []byte) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(string(text)); err == nil {
		return plain(a), true
	}
	p, err := netip.ParseAddrPort(string(text))
	return plain(p.Addr()), err == nil
}

// plain returns the form for comparing addresses.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// IPOf returns the IP address of an end of a TCP connection, or the zero value for other connections.
func IPOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	return plain(ip)
}

// NetworkOf returns the network address by which limits count: one IPv4 address, or one IPv6 /64, the usual size for
// one customer line (RFC 6177).
func NetworkOf(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return string(a.AsSlice())
	}
	p, err := a.Prefix(64)
	if err != nil {
		return ""
	}
	return string(p.Addr().AsSlice())
}
