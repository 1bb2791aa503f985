package smtp

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// A script is one side of a dialogue, a line each:
//
//	> text     send text and CRLF; neighbours go in one write
//	>> "raw"   send the bytes of a Go string, in a write of their own
//	>? "raw"   the same, and never mind whether the client still listens
//	< text     expect this line; "< *" takes any; "< text => text" answers it, as a line with > below would
//	! close | reset    end the connection
//	! tls              go on under TLS
//	! tls10            go on under TLS 1.0; tls11 under 1.1
//	! eof              expect that the client ends the connection, and nothing before
//	! hang             read until the client ends the connection
//	! deaf             neither read nor write for an hour; only on a fake clock
type script string

// play runs the script on conn and says where the client left it.
func (s script) play(conn net.Conn) error {
	in := bufio.NewReader(conn)
	out := ""
	for number, line := range strings.Split(strings.TrimSpace(string(s)), "\n") {
		verb, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == ">" {
			out += text + "\r\n"
			continue
		}
		err := say(conn, out)
		out = ""
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		switch verb {
		case "":
		case ">>", ">?":
			if text, err = strconv.Unquote(text); err == nil {
				err = say(conn, text)
			}
			if verb == ">?" {
				err = nil
			}
		case "<":
			wanted, answer, answered := strings.Cut(text, " => ")
			if err = expect(in, wanted); answered {
				out = answer + "\r\n"
			}
		case "!":
			conn, in, err = act(conn, in, text)
		default:
			err = errors.New("no such verb: " + verb)
		}
		if err != nil {
			return fmt.Errorf("line %d, %q: %w", number, line, err)
		}
	}
	return say(conn, out)
}

func say(conn net.Conn, text string) error {
	if text == "" {
		return nil
	}
	_, err := io.WriteString(conn, text)
	return err
}

func expect(in *bufio.Reader, want string) error {
	got, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	got, crlf := strings.CutSuffix(got, "\r\n")
	if !crlf || (want != "*" && got != want) {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

func act(conn net.Conn, in *bufio.Reader, what string) (net.Conn, *bufio.Reader, error) {
	switch what {
	case "close":
		return conn, in, conn.Close()
	case "reset":
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		return conn, in, conn.Close()
	case "tls", "tls10", "tls11":
		config := ServerTLS.Clone()
		config.MaxVersion = map[string]uint16{"tls10": tls.VersionTLS10, "tls11": tls.VersionTLS11}[what]
		config.MinVersion = config.MaxVersion
		secure := tls.Server(conn, config)
		return secure, bufio.NewReader(secure), secure.Handshake()
	case "deaf":
		<-time.After(time.Hour)
		return conn, in, nil
	case "hang": // takes everything, says nothing
		_, _ = io.Copy(io.Discard, in)
		return conn, in, nil
	case "eof":
		rest, err := io.ReadAll(in)
		if len(rest) > 0 {
			err = fmt.Errorf("got %q", rest)
		} else if err != nil && !errors.Is(err, net.ErrClosed) {
			err = nil // a reset is an end too
		}
		return conn, in, err
	}
	return conn, in, errors.New("no such act")
}

// ServerTLS has a certificate that is expired, self-signed and for another name.
var ServerTLS = func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"other.example"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}()

// listen plays s to the first connection on a loopback socket. The test fails when the client leaves the script.
func (s script) listen(t *testing.T) (Dialer, netip.AddrPort) {
	t.Helper()
	listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- nil // the client never came
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // only against a hanging test
		done <- s.play(conn)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		effort.OK(t, <-done)
	})
	at := netip.MustParseAddrPort(listener.Addr().String())
	return loopbackDialer(t, int(at.Port())), at
}

func loopbackDialer(t testing.TB, port int) Dialer {
	t.Helper()
	return NewDialer(DialerOptions{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Port:          port, ConnectTimeout: 5 * time.Second,
	})
}

// dialFunc is a Dialer made of a function.
type dialFunc func(ctx context.Context) (net.Conn, error)

func (f dialFunc) DialContext(ctx context.Context, _, _ string) (net.Conn, error) { return f(ctx) }

func testOptions() SessionOptions {
	return SessionOptions{HelloName: "probe.example", ReturnPath: "back@probe.example", Limits: DefaultLimits()}
}

// opened is the beginning of most scripts.
const opened = `
> 220 mx.example ESMTP
< EHLO probe.example
> 250-mx.example
> 250-8BITMIME
> 250 SIZE 1000
`

const openedPipelining = `
> 220-mx.example ESMTP
> 220 be patient
< EHLO probe.example
> 250-mx.example
> 250-pipelining
> 250 SMTPUTF8
`

func mustOpen(t *testing.T, s script, o SessionOptions) *Session {
	t.Helper()
	dial, at := s.listen(t)
	session := effort.Must(Open(t.Context(), dial, "mx.example", at, o))(t)
	t.Cleanup(session.Close)
	return session
}

func addresses(locals ...string) []Address {
	list := make([]Address, len(locals))
	for i, local := range locals {
		list[i] = Address{Local: local, Domain: "example.com"}
	}
	return list
}

// failure returns the *Failure in err; without one it ends the test.
func failure(t *testing.T, err error) *Failure {
	t.Helper()
	var f *Failure
	effort.FatalIf(t, !errors.As(err, &f), "error is %v, want a *Failure", err)
	return f
}

// codes returns the codes of answers, 0 for one that was not asked.
func codes(answers []Answer) string {
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "%d ", a.Reply.Code)
	}
	return strings.TrimSpace(b.String())
}
