package listen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	"rollcall/http/api"
)

func TestParseTrusted(t *testing.T) {
	t.Parallel()
	good := effort.Must(ParseTrusted([]string{"10.0.0.0/8", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::/32",
		"10.1.2.3/16"}))(t)
	for text, want := range map[string]bool{
		"10.255.0.1": true, "11.0.0.0": false, "192.0.2.1": true, "192.0.2.2": true, "192.0.2.3": false,
		"2001:db8::1": true, "2001:db9::1": false, "::ffff:10.0.0.1": true, "fe80::1%eth0": false,
	} {
		effort.Is(t, good.Contains(netip.MustParseAddr(text)), want, "contains", text, !want)
	}
	effort.ErrorIf(t, good.Contains(netip.Addr{}) || (Trusted{}).Contains(netip.MustParseAddr("127.0.0.1")),
		"nobody is trusted")
	for _, bad := range []string{"", "10.0.0.0/33", "proxy.example.com", "10.0.0.1:80", "fe80::1%eth0", "10.0.0"} {
		effort.Denied(ParseTrusted([]string{bad}))(t, ErrNetwork, bad)
	}
}

func TestClientOfARequest(t *testing.T) {
	t.Parallel()
	trusted := effort.Must(ParseTrusted([]string{"10.0.0.0/8", "2001:db8::/32"}))(t)
	for _, c := range []struct {
		name, connected string
		lines           []string
		want            string
	}{
		{"no proxy", "192.0.2.1", nil, "192.0.2.1"},
		{"a stranger's line is ignored", "192.0.2.1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"a proxy without a line", "10.0.0.1", nil, "10.0.0.1"},
		{"one hop", "10.0.0.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"what the client wrote himself", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1,10.0.0.2"}, "198.51.100.1"},
		{"two lines", "10.0.0.1", []string{"203.0.113.9, 198.51.100.1", "10.0.0.3, 10.0.0.2"}, "198.51.100.1"},
		{"all are proxies", "10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"spaces and tabs", "10.0.0.1", []string{"203.0.113.9 ,\t198.51.100.1 "}, "198.51.100.1"},
		{"with ports", "10.0.0.1", []string{"198.51.100.1:4711, 10.0.0.2:80"}, "198.51.100.1"},
		{"IPv6", "2001:db8::1", []string{"2001:db9::5"}, "2001:db9::5"},
		{"IPv6 with a port", "2001:db8::1", []string{"[2001:db9::5]:443"}, "2001:db9::5"},
		{"mapped IPv4", "::ffff:10.0.0.1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a word", "10.0.0.1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"a word left of a proxy", "10.0.0.1", []string{"unknown, 10.0.0.2"}, "10.0.0.2"},
		{"an empty hop", "10.0.0.1", []string{"198.51.100.1,"}, "10.0.0.1"},
		{"an empty line", "10.0.0.1", []string{"198.51.100.1", ""}, "10.0.0.1"},
	} {
		var lines [][]byte
		for _, l := range c.lines {
			lines = append(lines, []byte(l))
		}
		effort.Is(t, trusted.Client(netip.MustParseAddr(c.connected), lines), netip.MustParseAddr(c.want), c.name, c.want)
	}
	got := trusted.Client(netip.Addr{}, [][]byte{[]byte("192.0.2.1")})
	effort.ErrorIf(t, got.IsValid(), "a connection without an address has %s", got)
}

// header writes a header of version 2.
func header(command, family byte, payload ...byte) string {
	h := append(append([]byte(nil), version2...), command, family)
	h = binary.BigEndian.AppendUint16(h, uint16(len(payload)))
	return string(append(h, payload...))
}

// Addresses of headers: 198.51.100.7:4711 and 2001:db9::7, port 4711.
var (
	four = []byte{198, 51, 100, 7, 10, 0, 0, 9, 0x12, 0x67, 0, 80}
	six  = append(append(netip.MustParseAddr("2001:db9::7").AsSlice(),
		netip.MustParseAddr("2001:db8::9").AsSlice()...), 0x12, 0x67, 0, 80)
)

const request = "GET / HTTP/1.1\r\n\r\n"

// begin sends pieces to a listener that trusts the sender or nobody, and reads until the end.
func begin(t *testing.T, trust bool, timeout time.Duration, pieces ...string) (text string, client net.Addr,
	refused []string, err error) {
	t.Helper()
	bound := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer bound.Close()
	var trusted Trusted
	if trust {
		trusted = effort.Must(ParseTrusted([]string{"127.0.0.1"}))(t)
	}
	l := behindProxies(bound, trusted, func(reason string) { refused = append(refused, reason) }).(*proxyListener)
	l.timeout = timeout
	out := effort.Must(net.Dial("tcp", bound.Addr().String()))(t)
	defer out.Close()
	in := effort.Must(l.Accept())(t)
	defer in.Close()
	effort.OK(t, in.SetReadDeadline(time.Now().Add(time.Minute)))
	go func() {
		for _, p := range pieces {
			_, _ = io.WriteString(out, p)
		}
		if timeout == proxyHeaderTimeout {
			_ = out.(*net.TCPConn).CloseWrite()
		}
	}()
	got, err := io.ReadAll(in)
	return string(got), in.RemoteAddr(), refused, err
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	large := append(append([]byte(nil), four...), make([]byte, proxyHeaderMax-len(four))...)
	sound := []struct{ name, head, client string }{
		{"none", "", "127.0.0.1"},
		{"TCP over IPv4", header(0x21, 0x11, four...), "198.51.100.7"},
		{"TCP over IPv6", header(0x21, 0x21, six...), "2001:db9::7"},
		{"extensions are skipped", header(0x21, 0x11, append(append([]byte(nil), four...), 4, 0, 1, 0)...), "198.51.100.7"},
		{"as long as may be", header(0x21, 0x11, large...), "198.51.100.7"},
		{"LOCAL", header(0x20, 0), "127.0.0.1"},
		{"LOCAL with addresses", header(0x20, 0x11, four...), "127.0.0.1"},
		{"LOCAL with half an address", header(0x20, 0x11, four[:5]...), "127.0.0.1"},
	}
	for _, c := range sound {
		whole := c.head + request
		bytewise := strings.Split(whole, "")
		if len(whole) > 1000 {
			bytewise = []string{whole[:700], whole[700:]}
		}
		for _, pieces := range [][]string{{whole}, {c.head, request}, bytewise} {
			text, client, refused, err := begin(t, true, proxyHeaderTimeout, pieces...)
			if text != request || err != nil || refused != nil || IPOf(client) != netip.MustParseAddr(c.client) {
				t.Errorf("%s in %d pieces: %q from %s, refused %q, %v", c.name, len(pieces), text, client, refused, err)
			}
		}
		text, client, refused, err := begin(t, false, proxyHeaderTimeout, whole)
		if c.head != "" && (text != "" || !errors.Is(err, ErrProxyHeader) || len(refused) != 1 ||
			refused[0] != proxyReasonUntrusted) || IPOf(client) != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%s of a stranger: %q from %s, refused %q, %v", c.name, text, client, refused, err)
		}
	}
	for _, c := range []struct{ name, head, reason string }{
		{"version 1", "PROXY TCP4 198.51.100.7 10.0.0.9 4711 80\r\n", proxyReasonVersion},
		{"version 3", header(0x31, 0x11, four...), proxyReasonMalformed},
		{"another command", header(0x22, 0x11, four...), proxyReasonMalformed},
		{"UDP", header(0x21, 0x12, four...), proxyReasonMalformed},
		{"a unix socket", header(0x21, 0x31, make([]byte, 216)...), proxyReasonMalformed},
		{"no family", header(0x21, 0), proxyReasonMalformed},
		{"an unknown family", header(0x21, 0x41, four...), proxyReasonMalformed},
		{"an unknown transport", header(0x21, 0x13, four...), proxyReasonMalformed},
		{"IPv4 too short", header(0x21, 0x11, four[:11]...), proxyReasonMalformed},
		{"IPv6 too short", header(0x21, 0x21, six[:35]...), proxyReasonMalformed},
		{"too long", header(0x21, 0x11, append(large, 0)...), proxyReasonMalformed},
		{"LOCAL too long", header(0x20, 0, append(large, 0)...), proxyReasonMalformed},
		{"cut in the addresses", header(0x21, 0x11, four...)[:20], proxyReasonMalformed},
		{"cut in the length", header(0x21, 0x11, four...)[:15], proxyReasonMalformed},
	} {
		more := request
		if strings.HasPrefix(c.name, "cut") {
			more = ""
		}
		text, client, refused, err := begin(t, true, proxyHeaderTimeout, c.head+more)
		effort.ErrorIf(t, text != "" || !errors.Is(err, ErrProxyHeader) || len(refused) != 1 ||
			refused[0] != c.reason || IPOf(client) != netip.MustParseAddr("127.0.0.1"),
			"%s: %q from %s, refused %q, %v", c.name, text, client, refused, err)
	}
}

// TestWhatIsNoHeader: bytes that are not a PROXY header reach the next reader unchanged.
func TestWhatIsNoHeader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "P", "POST / HTTP/1.1\r\n", "PROXY", "PROXYING", "\r\n", "\r\n\r\nGET /",
		"\r\n\r\n\x00\r\nQUIT", "\x16\x03\x01", strings.Repeat("a", 100_000)} {
		for _, trust := range []bool{true, false} {
			got, _, refused, err := begin(t, trust, proxyHeaderTimeout, text)
			effort.ErrorIf(t, got != text || err != nil || refused != nil,
				"%.20q: %.20q, refused %q, %v", text, got, refused, err)
		}
	}
}

// TestHeaderInTime: the wait for the rest of a header is shorter than for a request.
func TestHeaderInTime(t *testing.T) {
	t.Parallel()
	_, _, refused, err := begin(t, true, 10*time.Millisecond, header(0x21, 0x11, four...)[:20])
	effort.ErrorIf(t, !errors.Is(err, ErrProxyHeader) || !errors.Is(err, os.ErrDeadlineExceeded) || len(refused) != 1 ||
		refused[0] != proxyReasonTimeout, "refused %q, %v", refused, err)
}

// TestDeadlinesOfTheOwner: the owner's deadlines hold while a header is read and after it.
func TestDeadlinesOfTheOwner(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"\r\n", header(0x21, 0x11, four...)} {
		near, far := net.Pipe()
		defer far.Close()
		c := &proxiedConn{Conn: near, listener: &proxyListener{refused: func(string) {}, timeout: time.Minute}}
		go func() { _, _ = io.WriteString(far, head) }()
		effort.OK(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
		_, err := io.ReadAll(c)
		effort.ErrorIf(t, !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrProxyHeader),
			"%.5q: %v", head, err)
		_ = c.Close()
	}
}

// sender is a connection that delivers bytes in pieces of one size.
type sender struct {
	net.Conn
	from *bytes.Reader
	size int
}

func (s *sender) Read(b []byte) (int, error)      { return s.from.Read(b[:min(s.size, len(b))]) }
func (s *sender) SetReadDeadline(time.Time) error { return nil }
func (s *sender) RemoteAddr() net.Addr            { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// model reads a header from the whole bytes, as section 2.2 of the protocol's text says.
func model(data []byte) (client netip.Addr, rest []byte, ok bool) {
	local := netip.MustParseAddr("127.0.0.1")
	if bytes.HasPrefix(data, version1) {
		return local, nil, false
	}
	if !bytes.HasPrefix(data, version2) {
		return local, data, true
	}
	if len(data) < 16 {
		return local, nil, false
	}
	command, family, length := data[12], data[13], int(binary.BigEndian.Uint16(data[14:]))
	families := map[byte]bool{0: true, 0x11: true, 0x12: true, 0x21: true, 0x22: true, 0x31: true, 0x32: true}
	if command != 0x20 && command != 0x21 || !families[family] || length > proxyHeaderMax || len(data) < 16+length {
		return local, nil, false
	}
	payload, rest := data[16:16+length], data[16+length:]
	switch {
	case command == 0x20:
		return local, rest, true
	case family == 0x11 && length >= 12:
		return netip.AddrFrom4([4]byte(payload)), rest, true
	case family == 0x21 && length >= 36:
		return netip.AddrFrom16([16]byte(payload)).Unmap(), rest, true
	}
	return local, nil, false
}

func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"", request, header(0x21, 0x11, four...) + request, header(0x21, 0x21, six...),
		header(0x20, 0), header(0x20, 0x11, 1, 2), header(0x21, 0x12, four...), "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
		header(0x21, 0x31, make([]byte, 216)...), header(0x21, 0x11, make([]byte, proxyHeaderMax+1)...), "\r\n\r\n\x00"} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(255))
	}
	trusted := effort.Must(ParseTrusted([]string{"127.0.0.1"}))(f)
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		refused := 0
		l := &proxyListener{trusted: trusted, refused: func(string) { refused++ }, timeout: proxyHeaderTimeout}
		c := &proxiedConn{Conn: &sender{from: bytes.NewReader(data), size: int(size) + 1}, listener: l}
		got, err := io.ReadAll(c)
		client, rest, ok := model(data)
		effort.FatalIf(t, ok != (err == nil) || ok != (refused == 0) || !ok && !errors.Is(err, ErrProxyHeader),
			"%q: %v, refused %d, want sound: %v", data, err, refused, ok)
		if ok && (!bytes.Equal(got, rest) || IPOf(c.RemoteAddr()) != client) {
			t.Fatalf("%q: %q from %s, want %q from %s", data, got, c.RemoteAddr(), rest, client)
		}
	})
}

// TestEveryCodeHasItsRow: each row has an error status and a sentence.
func TestEveryCodeHasItsRow(t *testing.T) {
	for code, r := range refusals {
		effort.ErrorIf(t, r.status < 400 || r.status > 599 || !strings.HasSuffix(r.message, "."), "%s: %+v", code, r)
	}
	var ctx fasthttp.RequestCtx
	WriteIssue(&ctx, api.Code("no such code"), 0)
	effort.Is(t, ctx.Response.StatusCode(), 503, "an unknown code", ctx.Response.Body())
	effort.Has(t, string(ctx.Response.Body()), "internal_error", "an unknown code")
}

// TestFramingIssues checks answers to causes that would take a test too long, such as a slow sender.
func TestFramingIssues(t *testing.T) {
	for _, c := range []struct {
		err  error
		want api.Code
	}{
		{os.ErrDeadlineExceeded, api.RequestTimeout},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, api.RequestTimeout},
		{fasthttp.ErrUnsupportedTransferEncoding, api.LengthRequired},
		{&fasthttp.ErrSmallBuffer{}, api.HeadersTooLarge},
		{io.ErrUnexpectedEOF, api.BadRequest},
	} {
		got, _ := FramingIssue(c.err)
		effort.ErrorIf(t, got != c.want, "%v: %s, want %s", c.err, got, c.want)
	}
}

func TestAddresses(t *testing.T) {
	same := [][2]string{{"192.0.2.1", "::ffff:192.0.2.1"}, {"2001:db8::1", "2001:db8::ffff:1"}}
	other := [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8:0:1::1"}}
	for _, p := range same {
		effort.Is(t, NetworkOf(netip.MustParseAddr(p[0])), NetworkOf(netip.MustParseAddr(p[1])), p, "counted apart")
	}
	for _, p := range other {
		effort.Not(t, NetworkOf(netip.MustParseAddr(p[0])), NetworkOf(netip.MustParseAddr(p[1])), p, "are counted together")
	}
}

// TestWarningsAreFew writes the same warning a thousand times a second for twelve seconds.
func TestWarningsAreFew(t *testing.T) {
	var lines bytes.Buffer
	c := Warning{Log: slog.New(slog.NewTextHandler(&lines, nil)), Message: "ledger did not answer"}
	begun := time.Now()
	for i := range 12_000 {
		c.Write(begun.Add(time.Duration(i)*time.Millisecond), "stage", "create")
	}
	got := lines.String()
	n := strings.Count(got, "\n")
	effort.ErrorIf(t, n != 3 || strings.Count(got, "more=0") != 1 || strings.Count(got, "more=4999") != 2 ||
		strings.Count(got, "level=WARN") != 3, "got %d lines, want 3 that say how many were not logged:\n%s", n, got)
}
