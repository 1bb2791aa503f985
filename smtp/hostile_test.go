package smtp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/verdict"
)

// The matrix: a session with each of the lab's hostile behaviours, in clear and after STARTTLS, on real sockets. The
// limits of time are shortened to those of matrixLimits; those of size are the shipped ones.

const (
	matrixAtOnce = 64               // sessions at once; nearly all of them only wait
	matrixEnd    = 60 * time.Second // only against a session that never ends
	matrixTries  = 5                // of a session that found out too little beside all others

	// matrixSize bounds what a session may read, in clear or not: the bytes of its replies, one read buffer, and a TLS
	// handshake with the records around them. Guess for the last: a chain of certificates may have 16 KiB.
	matrixSize = 256<<10 + 2*4096 + 4096 + 64<<10
)

func matrixLimits() smtp.Limits {
	l := smtp.DefaultLimits()
	l.Greeting, l.Hello, l.StartTLS, l.Mail = 3*time.Second, 3*time.Second, 3*time.Second, 3*time.Second
	l.Rcpt, l.Handshake, l.Quit = 3*time.Second, 3*time.Second, 500*time.Millisecond
	l.Session, l.SessionMore = 8*time.Second, time.Second
	return l
}

func TestMatrixOfHostileReceivers(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	lab := startMatrixLab(t)
	var rows []string // the names
	for _, p := range smtplab.Personalities() {
		if strings.HasPrefix(p.Family, "hostile") {
			rows = append(rows, p.Name)
		}
	}
	effort.MustBe(t, len(rows), 128, "behaviours, in clear and after STARTTLS")
	var wait sync.WaitGroup
	var late sync.Map // functions by row: sessions that found out too little
	slots := make(chan struct{}, matrixAtOnce)
	for _, name := range rows {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			matrixRow(t, lab, name, &late)
		})
	}
	wait.Wait()
	late.Range(func(_, again any) bool { again.(func())(); return true })
	sheet := lab.Manners().Total
	effort.ErrorIf(t, sheet.Data != 0 || sheet.UnaskedGroups != 0 || sheet.EarlyTalk != 0, "bad manners: %+v", sheet)
}

func startMatrixLab(t *testing.T) *smtplab.Lab {
	t.Helper()
	lab := effort.Must(smtplab.Start(smtplab.Defaults()))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), matrixEnd)
		defer cancel()
		effort.OK(t, lab.Stop(ctx))
	})
	return lab
}

// matrixRow asks a mailbox that exists and one that does not, in both orders at once. On a busy machine a session beside all
// others may meet its time limits, and then finds out too little: it is noted, to be held again when nobody else talks.
func matrixRow(t *testing.T, lab *smtplab.Lab, personality string, late *sync.Map) {
	domain := "m-" + personality + ".test"
	at, host, err := labHost(lab, domain)
	if err != nil {
		t.Errorf("%s: %v", personality, err)
		return
	}
	var wait sync.WaitGroup
	for _, locals := range [][]string{{"ada.adler", "no-such-one"}, {"no-such-one", "ada.adler"}} {
		var list []smtp.Address
		for _, local := range locals {
			list = append(list, smtp.Address{Local: local, Domain: domain})
		}
		wait.Go(func() {
			talk := func() string { return matrixTalk(t, lab, personality, matrixTarget{lab.SMTPPort(), at, host}, list) }
			if talk() != "" {
				late.Store(personality+list[0].Local, func() { matrixAgain(t, talk) })
			}
		})
	}
	wait.Wait()
}

// matrixAgain has a session held anew, until it finds out all that can be known.
func matrixAgain(t *testing.T, talk func() string) {
	missing := ""
	for range matrixTries {
		if missing = talk(); missing == "" {
			return
		}
	}
	t.Error(missing)
}

// matrixTalk has one session about two addresses, and compares what it finds with the truth. It gives what it did not find
// out although it can be known; "": nothing.
func matrixTalk(t *testing.T, lab *smtplab.Lab, personality string, target matrixTarget, list []smtp.Address) (missing string) {
	found := matrixSession(t, personality, target, list)
	for i, address := range list {
		want, got := lab.Truth(address.String()), found[i]
		// That a domain accepts everything is more than one session can know.
		effort.ErrorIf(t, want.Wrong(got) && !(got == smtp.Valid && want.Outcome == smtp.CatchAll) &&
			got != smtp.Undecided, "%s: %s is %v, right is %v", personality, address.Local, got, want.Outcome)
		first := i == 0 && want.Outcome != smtp.CatchAll && !strings.Contains(personality, "second250")
		if want.Knowable && first && got != want.Outcome {
			missing = fmt.Sprintf("%s: %s is %v, which can be known to be %v", personality, address.Local, got, want.Outcome)
		}
	}
	return missing
}

// matrixTarget is where a receiver listens.
type matrixTarget struct {
	port int
	at   netip.Addr
	host string
}

// matrixSession has one session ask and gives what its answers say.
func matrixSession(t *testing.T, personality string, to matrixTarget, list []smtp.Address) []smtp.Outcome {
	found := make([]smtp.Outcome, len(list))
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	counted := &countingDialer{Dialer: smtp.NewDialer(smtp.DialerOptions{AllowNetworks: loopback, Port: to.port,
		ConnectTimeout: smtp.ConnectTimeout})}
	ctx, cancel := context.WithTimeoutCause(context.Background(), matrixEnd, errEndless)
	defer cancel()
	end := func(stage smtp.Stage, err error) {
		var failed *smtp.Failure
		if !errors.As(err, &failed) {
			t.Errorf("%s: at %v the error is %v, want a *smtp.Failure", personality, stage, err)
			return
		}
		effort.ErrorIf(t, errors.Is(err, errEndless) || ctx.Err() != nil,
			"%s: the session did not end by itself", personality)
		effort.Is(t, judged(failed.Stage, failed.Reply, failed.Err).Outcome, smtp.Undecided, personality, err, "is taken for")
	}
	s, err := smtp.Open(ctx, counted, to.host, netip.AddrPortFrom(to.at, uint16(to.port)), smtp.SessionOptions{
		HelloName: "probe.example", ReturnPath: "back@probe.example", Limits: matrixLimits()})
	if err != nil {
		end(smtp.StageConnect, err)
		return found
	}
	defer func() {
		s.Quit()
		if n := counted.read.Load(); n > matrixSize {
			t.Errorf("%s: the session read %d bytes, at most %d are allowed", personality, n, matrixSize)
		}
	}()
	for i := range list {
		answers, err := s.Probe(ctx, list[i:i+1], smtp.Ask{})
		if len(answers) > 0 && answers[0].Err == nil {
			a := evidence.Note(evidence.Raw{At: time.Unix(1, 0), Stage: smtp.StageRcpt, Host: to.host,
				Reply: answers[0].Reply, Address: list[i], Hello: "probe.example"})
			effort.ErrorIf(t, len(a.Text) > evidence.TextMax || strings.ContainsAny(a.Text, "\r\n\x00"),
				"%s: a text of %d bytes is kept: %.80q", personality, len(a.Text), a.Text)
			if v := builtin().Judge(a); !v.Bare { // which needs a witness
				found[i] = v.Outcome
			}
		}
		if err != nil {
			end(smtp.StageRcpt, err)
			return found
		}
		if !s.Open() {
			return found
		}
	}
	return found
}

var errEndless = errors.New("the session is endless")

// labHost finds the first host of a domain of the lab.
func labHost(lab *smtplab.Lab, domain string) (netip.Addr, string, error) {
	r, err := mx.New(mx.Options{Servers: []string{lab.DNSAddr()}, Allow: func(netip.Addr) bool { return true },
		Timeout: 5 * time.Second, TTLMin: time.Minute, TTLMax: time.Hour, CacheMax: 1000})
	if err != nil {
		return netip.Addr{}, "", err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), matrixEnd)
	defer cancel()
	route, err := r.Lookup(ctx, domain)
	if err != nil {
		return netip.Addr{}, "", err
	}
	if len(route.Hosts) == 0 {
		return netip.Addr{}, "", errors.New("no host")
	}
	return route.Hosts[0].Addrs[0], route.Hosts[0].Name, nil
}

// countingDialer counts the bytes that come in.
type countingDialer struct {
	smtp.Dialer
	read atomic.Int64
}

func (d *countingDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countingConn{TCPConn: conn.(*net.TCPConn), read: &d.read}, nil
}

type countingConn struct {
	*net.TCPConn
	read *atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// FuzzDialogue lets a whole session talk to a peer that says what the fuzzer wants: the bytes are cut at each turnMark,
// and the peer sends one part at the start and one for each command that it reads. A part that ends with tlsMark is
// followed by a TLS handshake, and the dialogue goes on inside it.
//
// Whatever comes: the session ends, sends nothing but its few commands, reads no more
// than its limits, and no address is judged by anything but an answer to its own RCPT.
func FuzzDialogue(f *testing.F) {
	for _, seed := range []string{
		"220 hi\r\n|250-mx\r\n250 PIPELINING\r\n|250 ok\r\n|250 2.1.5 ok\r\n|550 5.1.1 User unknown\r\n|221 bye",
		"220 hi\r\n|250-mx\r\n250 STARTTLS\r\n|220 go\r\n!|250-mx\r\n250 SMTPUTF8\r\n|250 ok\r\n" +
			"|550-5.1.1 a\r\n550 5.1.1 no such user\r\n",
		"220 hi\r\n|250 STARTTLS\r\n|220 go\r\n250 ok\r\n!|250 mx\r\n",
		"220 hi\r\n|250 mx\r\n|250 ok\r\n|550 5.1.1 no\r\n250 ok\r\n",
		"220 hi\r\n|502 what\r\n|250 mx\r\n|250 ok\r\n|452 4.5.3 Too many recipients\r\n|250 ok\r\n",
		"220 hi\r\n|250 mx\r\n|250 ok\r\n|421 4.7.0 Too many errors\r\n",
		"554 5.7.1 blocked\r\n", "220-\r\n", "220 hi\r\n|250 mx\r\n|250 ok\r\n|550 5.1.1 User unk",
		"220 hi\r\n|250-mx\r\n250 STARTTLS\r\n|220 go\r\n|\x16\x03\x01\x00\x05hello",
	} {
		f.Add([]byte(strings.NewReplacer("|", turnMark, "!", tlsMark).Replace(seed)), false)
		f.Add([]byte(strings.NewReplacer("|", turnMark, "!", tlsMark).Replace(seed)), true)
	}
	f.Fuzz(func(t *testing.T, dialogue []byte, pipelining bool) {
		if len(dialogue) > 64<<10 {
			return // the fuzzer's time is worth more than longer ones
		}
		p := newPeer(dialogue)
		talk(t, p, pipelining)
		p.wait()
		effort.Is(t, p.unknownCommand(), "", "the session sent")
		// Two addresses are within the limits of the first one and one more.
		l := smtp.DefaultLimits()
		if most := l.SessionBytes + 2*l.SessionMoreBytes + 2*l.LineBytes; !p.secured && p.line.taken > most {
			t.Errorf("the session read %d bytes, its limit is %d", p.line.taken, most)
		}
	})
}

// Marks in a dialogue, which no reply has any use for.
const (
	turnMark = "\x1e"
	tlsMark  = "\x1d"
)

// talk has two addresses asked as a receiver actor would, and judges the answers.
func talk(t *testing.T, p *peer, pipelining bool) {
	t.Helper()
	at := netip.MustParseAddrPort("192.0.2.1:25")
	s, err := smtp.Open(t.Context(), p, "mx.example", at, smtp.SessionOptions{HelloName: "probe.example",
		ReturnPath: "back@probe.example", Limits: smtp.DefaultLimits()})
	if err != nil {
		notInvalid(t, err)
		return
	}
	defer s.Quit()
	list := []smtp.Address{{Local: "ada", Domain: "example.com"}, {Local: "bob", Domain: "example.com"}}
	for n := range 2 { // in one transaction, then in one each
		answers, err := s.Probe(t.Context(), list, smtp.Ask{Pipelining: pipelining, PerTransaction: n})
		effort.FatalIf(t, len(answers) > len(list), "%d answers for %d addresses", len(answers), len(list))
		for i, a := range answers {
			c := a.Reply.Code
			effort.ErrorIf(t, a.Err != nil || c < 200 || c > 599, "answer %d: code %d, %v", i, c, a.Err)
			v := judged(smtp.StageRcpt, a.Reply, nil)
			effort.ErrorIf(t, v.Outcome == smtp.Invalid && c < 500 || v.Outcome == smtp.Valid && c/100 == 3,
				"%v for an answer %d", v.Outcome, c)
		}
		if err != nil {
			notInvalid(t, err)
			return
		}
		if len(answers) < len(list) && s.Open() || s.Poll() != nil {
			return
		}
	}
}

// notInvalid holds that the end of a session says nothing against an address.
func notInvalid(t *testing.T, err error) {
	t.Helper()
	var failed *smtp.Failure
	effort.FatalIf(t, !errors.As(err, &failed), "error %v, want a *smtp.Failure", err)
	effort.Is(t, judged(failed.Stage, failed.Reply, failed.Err).Outcome, smtp.Undecided, err, "at stage", failed.Stage,
		"is taken for")
}

var builtin = sync.OnceValue(verdict.Builtin)

func judged(stage smtp.Stage, reply smtp.Reply, err error) verdict.Verdict {
	a := evidence.Note(evidence.Raw{At: time.Unix(1, 0), Stage: stage, Host: "mx.example", Reply: reply,
		Err: err, Address: smtp.Address{Local: "ada", Domain: "example.com"}, Hello: "probe.example"})
	return builtin().Judge(a)
}

// peer is the far side of one session, and the Dialer to it.
type peer struct {
	parts   [][]byte
	line    *line
	done    chan struct{}
	begun   bool
	secured bool

	mu       sync.Mutex // guards commands
	commands []string
}

func newPeer(dialogue []byte) *peer {
	return &peer{parts: bytes.Split(dialogue, []byte(turnMark)), line: newLine(), done: make(chan struct{})}
}

// DialContext gives the session its end, and lets the peer begin.
func (p *peer) DialContext(context.Context, string, string) (net.Conn, error) {
	p.begun = true
	go p.play()
	return &end{line: p.line, mine: 0}, nil
}

func (p *peer) wait() {
	if p.begun {
		p.line.close()
		<-p.done
	}
}

// play sends part after part, and closes after the last one.
func (p *peer) play() {
	defer close(p.done)
	defer p.line.close()
	var conn net.Conn = &end{line: p.line, mine: 1}
	in := bufio.NewReader(conn)
	for i, part := range p.parts {
		if i > 0 {
			command, err := in.ReadString('\n')
			if err != nil {
				return
			}
			p.mu.Lock()
			p.commands = append(p.commands, command)
			p.mu.Unlock()
		}
		part, handshake := bytes.CutSuffix(part, []byte(tlsMark))
		if _, err := conn.Write(part); err != nil {
			return
		}
		if handshake && !p.secured {
			secure := tls.Server(conn, smtp.ServerTLS)
			if secure.HandshakeContext(context.Background()) != nil {
				return
			}
			p.secured, conn, in = true, secure, bufio.NewReader(secure)
		}
	}
}

// unknownCommand returns a line that no session may send, "" for none. What follows a
// STARTTLS that the peer does not follow is a handshake and no command.
func (p *peer) unknownCommand() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := []string{"EHLO", "HELO", "STARTTLS", "MAIL", "RCPT", "RSET", "QUIT"}
	for _, line := range p.commands {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), " ")
		if word == "STARTTLS" && !p.secured {
			return ""
		}
		if !slices.Contains(words, word) || !strings.HasSuffix(line, "\r\n") {
			return line
		}
	}
	return ""
}

// line is a connection in memory that never makes anybody wait for nothing: when both
// ends wait for the other, the session's side has its time-out at once.
type line struct {
	mu      sync.Mutex // guards all below
	changed *sync.Cond
	to      [2][]byte // not read yet, by reader
	waits   [2]bool   // who waits for bytes
	closed  bool
	taken   int // bytes that the session read
}

func newLine() *line {
	l := &line{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
}

// end is one end of a line; 0 is the session's.
type end struct {
	line *line
	mine int
}

func (e *end) Read(p []byte) (int, error) {
	l, other := e.line, 1-e.mine
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits[e.mine] = true
	defer func() { l.waits[e.mine] = false }()
	for len(l.to[e.mine]) == 0 {
		if l.closed {
			return 0, io.EOF
		}
		if stuck := l.waits[other] && len(l.to[other]) == 0; stuck {
			if e.mine == 0 {
				return 0, os.ErrDeadlineExceeded
			}
			l.changed.Broadcast() // the session is to see it
		}
		l.changed.Wait()
	}
	n := copy(p, l.to[e.mine])
	l.to[e.mine] = l.to[e.mine][n:]
	if e.mine == 0 {
		l.taken += n
	}
	return n, nil
}

func (e *end) Write(p []byte) (int, error) {
	l := e.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, net.ErrClosed
	}
	l.to[1-e.mine] = append(l.to[1-e.mine], p...)
	l.changed.Broadcast()
	return len(p), nil
}

func (e *end) Close() error                     { e.line.close(); return nil }
func (e *end) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (e *end) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (e *end) SetDeadline(time.Time) error      { return nil }
func (e *end) SetReadDeadline(time.Time) error  { return nil }
func (e *end) SetWriteDeadline(time.Time) error { return nil }
