package smtp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

var anyAddrPort = netip.MustParseAddrPort("192.0.2.1:25")

func TestGuard(t *testing.T) {
	lab := NewDialGuard([]netip.Prefix{netip.MustParsePrefix("127.66.1.9/16")})
	for _, test := range []struct {
		address string
		want    bool
	}{
		{"8.8.8.8", true}, {"1.1.1.1", true}, {"193.0.6.139", true},
		{"172.15.255.255", true}, {"172.32.0.1", true},
		{"100.63.255.255", true}, {"198.17.255.255", true}, {"223.255.255.255", true},
		{"0.0.0.0", false}, {"0.1.2.3", false}, {"10.1.2.3", false}, {"100.64.0.1", false},
		{"100.127.255.255", false},
		{"127.0.0.1", false}, {"127.255.255.255", false}, {"169.254.169.254", false}, {"172.16.0.1", false},
		{"172.31.255.255", false}, {"192.0.0.8", false}, {"192.0.0.170", false}, {"192.0.2.1", false},
		{"192.31.196.1", false}, {"192.52.193.1", false}, {"192.88.99.2", false}, {"192.168.0.1", false},
		{"192.175.48.1", false}, {"198.18.0.1", false}, {"198.19.255.255", false}, {"198.51.100.1", false},
		{"203.0.113.1", false}, {"224.0.0.1", false}, {"239.255.255.255", false}, {"240.0.0.1", false},
		{"255.255.255.255", false},

		{"2606:4700:4700::1111", true}, {"2a00:1450:4001:81b::200e", true}, {"2001:4860:4860::8888", true},
		{"::", false}, {"::1", false}, {"fe80::1", false}, {"fe80::1%eth0", false}, {"2a00::1%eth0", false},
		{"fc00::1", false}, {"fd12:3456::1", false}, {"ff02::1", false}, {"100::1", false}, {"100:0:0:1::1", false},
		{"2001::1", false}, {"2001:2::1", false}, {"2001:20::1", false}, {"2001:db8::1", false},
		{"2620:4f:8000::1", false}, {"3fff::1", false}, {"5f00::1", false}, {"4000::1", false},

		{"::ffff:8.8.8.8", true}, {"::ffff:127.0.0.1", false}, {"::ffff:10.0.0.1", false}, // mapped
		{"::127.0.0.1", false}, {"::8.8.8.8", false}, // compatible
		{"64:ff9b::808:808", true}, {"64:ff9b::7f00:1", false}, {"64:ff9b::a00:1", false}, // NAT64
		{"64:ff9b:1::808:808", false}, {"64:ff9b:1::7f00:1", false}, // local NAT64
		{"2002:808:808::1", true}, {"2002:7f00:1::1", false}, {"2002:c0a8:1::1", false}, // 6to4
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", false}, // Teredo
	} {
		a := netip.MustParseAddr(test.address)
		effort.Is(t, (DialGuard{}).Allows(a), test.want, test.address)
	}
	for address, want := range map[string]bool{
		"127.66.200.1": true, "127.67.0.1": false, "::ffff:127.66.0.1": true,
		"64:ff9b::7f42:1": false, "10.0.0.1": false, "8.8.8.8": true,
	} {
		effort.Is(t, lab.Allows(netip.MustParseAddr(address)), want, fmt.Sprintf("with an allowed network, %s", address))
	}
	effort.ErrorIf(t, (DialGuard{}).Allows(netip.Addr{}), "the zero address is allowed")
}

// A real listener waits on each address, so that only the guard can keep us out.
func TestDialerRefusesBeforeTheConnection(t *testing.T) {
	listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	here := listener.Addr().String()
	for _, test := range []struct {
		name    string
		allow   string
		port    int
		address string
		want    bool
	}{
		{"allowed network and port", "127.0.0.0/8", port, here, true},
		{"no network allowed", "", port, here, false},
		{"another network allowed", "10.0.0.0/8", port, here, false},
		{"another port", "127.0.0.0/8", port%65535 + 1, here, false},
		{"a name", "127.0.0.0/8", port, "localhost:25", false},
		{"no port", "127.0.0.0/8", port, "127.0.0.1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := DialerOptions{Port: test.port, ConnectTimeout: ConnectTimeout}
			if test.allow != "" {
				o.AllowNetworks = []netip.Prefix{netip.MustParsePrefix(test.allow)}
			}
			d := NewDialer(o)
			conn, err := d.DialContext(t.Context(), "tcp", test.address)
			if err == nil {
				_ = conn.Close()
			}
			effort.ErrorIf(t, (err == nil) != test.want || (!test.want && !errors.Is(err, ErrForbiddenAddress)),
				"%v, want allowed %v", err, test.want)
		})
	}
}

func TestForbiddenAddressFailsAtConnect(t *testing.T) {
	d := NewDialer(DialerOptions{Port: 25, ConnectTimeout: ConnectTimeout})
	_, err := Open(t.Context(), d, "mx.example", netip.MustParseAddrPort("127.0.0.1:25"), testOptions())
	f := failure(t, err)
	effort.ErrorIf(t, f.Stage != StageConnect || !errors.Is(f, ErrForbiddenAddress), "failure %v", f)
}

func TestDialerSpeaksFromItsSource(t *testing.T) {
	listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	at := netip.MustParseAddrPort(listener.Addr().String())
	source := netip.MustParseAddr("127.0.0.77")
	d := NewDialer(DialerOptions{
		Source: source, Port: int(at.Port()), ConnectTimeout: ConnectTimeout,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	conn := effort.Must(d.DialContext(t.Context(), "tcp", at.String()))(t)
	defer conn.Close()
	effort.Is(t, conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), source, "speaks from")
}

// TestSessionsAndFailuresNameOurAddress: it is taken out of replies, and evidence
// shows it, also when the system chose it.
func TestSessionsAndFailuresNameOurAddress(t *testing.T) {
	listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	for _, source := range []netip.Addr{netip.MustParseAddr("127.0.0.9"), {}} {
		want := source
		if !want.IsValid() {
			want = netip.MustParseAddr("127.0.0.1")
		}
		dialer := NewDialer(DialerOptions{Source: source, Port: int(at.Port()), ConnectTimeout: time.Minute,
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		for _, dialogue := range []script{"> 554 no\n< QUIT", "> 220 mx\n< EHLO probe.example\n> 250 mx\n! hang"} {
			go func() {
				if conn, err := listener.Accept(); err == nil {
					_ = dialogue.play(conn)
					_ = conn.Close()
				}
			}()
			s, err := Open(t.Context(), dialer, "mx", at, SessionOptions{HelloName: "probe.example",
				ReturnPath: "probe@probe.example", Limits: DefaultLimits()})
			var failure *Failure
			switch {
			case errors.As(err, &failure):
				effort.Is(t, failure.Stage, StageGreeting, failure, "from")
				effort.Is(t, failure.Source, want, failure, "from")
			case s.Source() != want:
				t.Errorf("a session from %v, want %v", s.Source(), want)
			default:
				s.Close()
			}
		}
	}
}

// heard is a Tracer that keeps what it is told.
type heard struct {
	on    bool
	lines []string
}

func (h *heard) On() bool            { return h.on }
func (h *heard) Said(command string) { h.lines = append(h.lines, "> "+command) }
func (h *heard) Heard(reply Reply, of Address) {
	h.lines = append(h.lines, fmt.Sprintf("< %d %s %s", reply.Code, reply.Text(), of.Local))
}

func TestATracerHearsWhatASessionSaysWithoutLocalParts(t *testing.T) {
	h := &heard{on: true}
	dial, at := script(openedPipelining + `
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<"odd@local"@example.com>
		> 250 ok
		> 250 ok
		> 550 no such user
		< QUIT => 221 bye
		! close`).listen(t)
	s := effort.Must(Open(WithTracer(t.Context(), h), dial, "mx.example", at, testOptions()))(t)
	asked := append(addresses("a"), Address{Local: `"odd@local"`, Domain: "example.com"})
	effort.Must(s.Probe(t.Context(), asked, Ask{Pipelining: true}))(t)
	h.on = false // nobody looks any more
	s.Quit()
	want := []string{"< 220 mx.example ESMTP be patient ", "> EHLO probe.example",
		"< 250 mx.example pipelining SMTPUTF8 ", "> MAIL FROM:<back@probe.example>", "> RCPT TO:<…@example.com>",
		"> RCPT TO:<…@example.com>", "< 250 ok ", "< 250 ok a", `< 550 no such user "odd@local"`}
	effort.Equal(t, h.lines, want, "the tracer heard", strings.Join(h.lines, "\n"), strings.Join(want, "\n"))
}

// TestHELOFollowsEveryRefusalOfEHLO draws refusals of EHLO and what follows: only what HELO gets counts, and
// when that is not known the caller is told to begin with HELO.
func TestHELOFollowsEveryRefusalOfEHLO(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 28))
	words := []string{"", " 5.5.4 Syntax", " 5.7.1 Access denied", " Command not implemented", "\t5.5.1 what"}
	for i := range 60 {
		code := 500 + r.IntN(60)
		text := fmt.Sprintf("%d%s", code, words[r.IntN(4)])
		if r.IntN(4) == 0 {
			text = fmt.Sprintf("%d-EHLO\n> %d no", code, code)
		}
		tail := []struct {
			name, script string
			code         int // of the failure; 0: the session is open
			noHELO       bool
		}{
			{"accepted", "< HELO probe.example\n> 250 old\n! eof", 0, false},
			{"our name is refused", "< HELO probe.example\n> 550 who are you\n< QUIT\n! close", 550, false},
			{"not now", "< HELO probe.example\n> 451 later\n< QUIT\n! close", 451, false},
			{"out of sequence", "< HELO probe.example\n> 503 order\n< QUIT\n! close", code, true},
			{"busy", "< HELO probe.example\n> 421 bye\n! close", code, true},
			{"closed", "< HELO probe.example\n! close", code, true},
			{"closed at once", "! close", code, true},
			{"reset", "< HELO probe.example\n! reset", code, true},
		}[i%8]
		script := script("> 220 hi\n< EHLO probe.example\n> " + text + "\n" + tail.script)
		dial, at := script.listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		switch {
		case tail.code == 0 && err != nil:
			t.Errorf("%q, HELO %s: %v", text, tail.name, err)
		case tail.code == 0:
			s.Close()
		default:
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != StageHello || f.Reply.Code != tail.code || f.NoHELO != tail.noHELO,
				"%q, HELO %s: %v, NoHELO %v", text, tail.name, f, f.NoHELO)
		}
	}
	o := testOptions()
	o.TLS = TLSOffHELO
	mustOpen(t, "> 220 hi\n< HELO probe.example\n> 250-old\n> 250 STARTTLS\n! eof", o)
}

// TestASessionThatDiesBehindTheHandshake may be opened again in clear, where TLS is opportunistic; what is
// said under TLS counts as it is.
func TestASessionThatDiesBehindTheHandshake(t *testing.T) {
	const encrypted = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n< STARTTLS\n> 220 go\n! tls\n"
	for _, end := range []struct {
		name, script string
		code         int
	}{
		{"closes", "! close", 0},
		{"closes at EHLO", "< EHLO probe.example\n! close", 0},
		{"resets at EHLO", "< EHLO probe.example\n! reset", 0},
		{"says nothing", "! hang", 0},
		{"says no reply", "< EHLO probe.example\n> !$%&\n! hang", 0},
		{"stops in the middle", "< EHLO probe.example\n>> \"250-mx\\r\\n250\"\n! close", 0},
		{"says 421", "< EHLO probe.example\n> 421 4.7.0 busy\n! close", 421},
		{"refuses HELO", "< EHLO probe.example\n> 550 no\n< HELO probe.example\n> 550 no\n< QUIT\n! close", 550},
	} {
		for _, mode := range []TLSMode{TLSOpportunistic, TLSRequired} {
			o := testOptions()
			o.TLS, o.Limits.Hello, o.Limits.Quit = mode, 300*time.Millisecond, 300*time.Millisecond
			dial, at := script(encrypted + end.script).listen(t)
			_, err := Open(t.Context(), dial, "mx.example", at, o)
			f := failure(t, err)
			want := StageHello
			if end.code == 0 && mode == TLSOpportunistic {
				want = StageTLS
			}
			effort.Is(t, f.Stage, want, end.name, "mode", mode, f)
			effort.Is(t, f.Reply.Code, end.code, end.name, "mode", mode, f)
		}
	}
}

// TestPublicHellos are the public samples P012, P014, P017 (EHLO refused), P044 and P045 (STARTTLS that fails):
// each has a session in the end, in clear.
func TestPublicHellos(t *testing.T) {
	const offered = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n< STARTTLS\n"
	for _, tc := range []struct {
		id     string
		script script
		again  bool // the first session fails at STARTTLS, and the next one is in clear
	}{
		{"P012", "> 220 hi\n< EHLO probe.example\n> 501 5.5.4 Syntax\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P014", "> 220 hi\n< EHLO probe.example\n> 504 Not implemented\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P017", "> 220 hi\n< EHLO probe.example\n> 500 what\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P017", "> 220 hi\n< EHLO probe.example\n> 502 what\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P044", offered + "> 454 not now\n! eof", false},
		{"P045", offered + "> 220 go\n! close", true},
		{"P045", offered + "> 220 go\n>? \"HTTP/1.1 400 Bad Request\\r\\n\"\n! close", true},
	} {
		dial, at := tc.script.listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		switch {
		case !tc.again && err != nil:
			t.Errorf("%s: %v", tc.id, err)
		case !tc.again:
			s.Close()
		default:
			if f := failure(t, err); f.Stage != StageTLS || f.Reply.Code != 0 {
				t.Errorf("%s: %v, want a failure of the handshake", tc.id, f)
			}
		}
	}
}

// TestAnOldTLS is the public sample P042: a receiver that knows nothing newer than TLS 1.0 is asked under TLS 1.0,
// because clear text is the alternative. If the handshake fails, it is asked in clear.
func TestAnOldTLS(t *testing.T) {
	const offered = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n"
	asked := "< EHLO probe.example\n> 250 mx\n< MAIL FROM:<back@probe.example>\n> 250 ok\n" +
		"< RCPT TO:<a@b.example>\n> 550 5.1.1 no\n< QUIT\n> 221 bye\n! close"
	ask := func(s *Session) Reply {
		answers := effort.Must(s.Probe(t.Context(), []Address{{Local: "a", Domain: "b.example"}},
			Ask{Depth: 1, PerTransaction: 1, RefusedMax: 1}))(t)
		effort.MustBe(t, len(answers), 1, "answers")
		s.Quit()
		return answers[0].Reply
	}
	for _, version := range []string{"tls10", "tls11"} {
		dial, at := script(offered + "< STARTTLS\n> 220 go\n! " + version + "\n" + asked).listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		effort.FatalIf(t, err != nil || !s.TLS() || ask(s).Code != 550, "under %s: %v", version, err)
	}

	dial, at := script(offered + "< STARTTLS\n> 220 go\n! close").listen(t)
	_, err := Open(t.Context(), dial, "mx.example", at, testOptions())
	effort.MustBe(t, failure(t, err).Stage, StageTLS, "a handshake that fails")
	o := testOptions()
	o.TLS = TLSOff
	dial, at = script("> 220 hi\n" + asked).listen(t)
	if s, err := Open(t.Context(), dial, "mx.example", at, o); err != nil || s.TLS() || ask(s).Code != 550 {
		t.Fatalf("in clear: %v", err)
	}
}
