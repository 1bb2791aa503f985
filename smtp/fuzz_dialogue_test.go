package smtp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

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

// play says part after part, and closes behind the last one.
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

// unknownCommand gives a line that no session may send, "" for none. What follows a
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
