package smtplab

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/smtp"
)

// lineBytesMax bounds one command line; RFC 5321 §4.5.3.1.4 asks for 512 and leaves room for extensions.
const lineBytesMax = 2048

// idleMax bounds a session's silence (RFC 5321 §4.5.3.2.7).
const idleMax = 5 * time.Minute

// idleSlack is how old a busy session's deadline may be before it is renewed.
const idleSlack = 30 * time.Second

// handshakeMax bounds a TLS handshake; guess, far above any on loopback.
const handshakeMax = time.Minute

// outBytesMax bounds one write for a client that sends far ahead.
const outBytesMax = 16 << 10

// lingerMax is how long a session that we ended waits for the client's close.
const lingerMax = time.Second

// sessionFigures are the counts of one session for the sheet.
type sessionFigures struct {
	rcpts, rcptsInTx, refused int
}

// session is one connection to a host. Other goroutines may only call abort.
type session struct {
	lab  *Lab
	host *host
	p    *persona
	link link

	client  string
	number  int  // among the sessions of the lab
	visit   int  // among the sessions of the receiver
	crowded bool // the lab has too many sessions

	hello     string
	encrypted bool
	extended  bool // EHLO, not HELO
	refusing  bool // the greeting refused us: only QUIT is allowed
	tx        transactions
	rcpts     int
	refused   int
	errors    int
	row       int    // refused RCPTs since the last good one
	guarded   bool   // the guard answered the current RCPT
	lastOK    string // the last foreign domain that this host serves
	left      bool   // no longer counts as open
}

// transactions are those of a session; rcpts and good are RCPTs of the newest one.
type transactions struct {
	from    string // return path
	open    bool
	refused bool // the newest MAIL was refused
	utf8    bool
	rcpts   int
	good    int

	badOnes, goodOnes int // those that ended without and with a good RCPT
}

// link is the connection of a session.
type link struct {
	conn    net.Conn // in clear or TLS
	under   net.Conn // the TCP connection
	in      *bufio.Reader
	out     []byte // replies not yet written
	ended   sync.Once
	renewed time.Time // the deadline
}

func newSession(l *Lab, h *host, conn net.Conn) *session {
	client, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		client = conn.RemoteAddr().String()
	}
	return &session{
		lab: l, host: h, p: h.receiver.persona, client: client,
		link: link{conn: conn, under: conn, in: bufio.NewReaderSize(conn, lineBytesMax)},
	}
}

// abort closes the connection; run then ends.
func (l *link) abort() {
	l.ended.Do(func() { _ = l.under.Close() })
}

// errEnd ends a session without another reply.
var errEnd = errors.New("session ended")

func (s *session) run() {
	now := time.Now()
	v := s.host.receiver.memory.enter(s, now)
	s.visit = v.number
	s.number = s.host.tallies[0].opened(now, 0)
	s.host.tallies[1].opened(now, v.open)
	s.host.tallies[2].opened(now, v.atHost)
	s.event("connect", "", 0)
	err := s.greet(v.refused || s.crowded)
	for err == nil {
		err = s.turn()
	}
	if !s.left && !s.lab.stopping() {
		s.host.tallies.count(func(t *Tally) { t.HungUp++ })
	}
	s.leave()
}

// leave removes the session from the open ones. It comes before the last reply, so that a client that has read it
// may open another at once.
func (s *session) leave() {
	if s.left {
		return
	}
	s.left = true
	s.event("end", "", 0)
	s.host.receiver.memory.leave(s)
	s.host.tallies.count(func(t *Tally) { t.SessionsOpen-- })
}

func (s *session) event(kind, address string, code int) {
	if s.lab.options.EventsMax == 0 {
		return
	}
	s.lab.manners.event(Event{
		At: time.Now(), Host: s.host.name, Client: s.client, Session: s.number,
		Kind: kind, Address: address, Code: code,
	})
}

func (s *session) greet(refused bool) error {
	if err := s.greetDelay(); err != nil {
		return err
	}
	s.link.renewDeadline(s.lab, s.p)
	if s.guardGreeting(time.Now()) {
		return s.finish()
	}
	if refused || s.limitOn(true, time.Now()) != nil {
		s.host.tallies.limitHit()
		return s.sayAndClose(&s.p.words.crowded)
	}
	if s.breaksAt(smtp.StageGreeting) {
		if s.p.Break == BreakEcho || s.p.Break == BreakWindow {
			s.say(&s.p.words.greeting)
		}
		return s.breakNow()
	}
	g := &s.p.words.greeting
	if s.blocksUs() {
		g = &s.p.words.blocked
	}
	switch {
	case g.code == 421 || g.code == 521:
		return s.sayAndClose(g)
	case g.code/100 != 2:
		s.refusing = true // RFC 5321 §3.1: wait for QUIT and refuse everything else
	}
	s.say(g)
	return nil
}

// greetDelay waits before the greeting and counts clients that send meanwhile.
func (s *session) greetDelay() error {
	delay := s.lab.lasts(s.p.GreetDelay)
	if delay <= 0 {
		return nil
	}
	_ = s.link.conn.SetReadDeadline(time.Now().Add(delay))
	_, err := s.link.in.Peek(1)
	if err == nil {
		s.host.tallies.count(func(t *Tally) { t.EarlyTalk++ })
		return nil
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return nil
	}
	return err
}

func (s *session) turn() error {
	ahead := s.link.in.Buffered() > 0
	if ahead && !s.p.Pipelining {
		s.host.tallies.count(func(t *Tally) { t.UnaskedGroups++ })
	}
	if !ahead || len(s.link.out) >= outBytesMax {
		s.link.renewDeadline(s.lab, s.p)
		if err := s.link.flush(s.lab, s.p); err != nil {
			return err
		}
	}
	line, err := s.link.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return s.sayAndClose(&s.p.words.long)
	case err != nil:
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			_ = s.link.conn.SetDeadline(time.Now().Add(lingerMax))
			return s.sayAndClose(&s.p.words.idle)
		}
		return err
	}
	return s.command(bytes.TrimRight(line, "\r\n"))
}

// renewDeadline sets the deadline for reading and writing to about idleMax from now.
func (l *link) renewDeadline(lab *Lab, p *persona) {
	most, slack := idleMax, idleSlack
	if p.IdleMax > 0 {
		most, slack = lab.lasts(p.IdleMax), 0
	}
	if now := time.Now(); now.Sub(l.renewed) > slack {
		l.renewed = now
		_ = l.conn.SetDeadline(now.Add(most))
	}
}

func (s *session) command(line []byte) error {
	verb, rest, _ := bytes.Cut(line, []byte(" "))
	switch {
	case is(verb, "QUIT"):
		s.host.tallies.count(func(t *Tally) { t.Quits++ })
		return s.sayAndClose(&s.p.words.bye)
	case s.refusing:
		return s.fault(&s.p.words.order)
	case is(verb, "RCPT"):
		return s.rcpt(rest)
	case is(verb, "MAIL"):
		return s.mail(rest)
	case is(verb, "RSET"):
		s.host.tallies.count(func(t *Tally) { t.Rsets++ })
		if s.breaksAt(smtp.StageRset) {
			return s.breakNow()
		}
		s.tx.end()
		s.say(&s.p.words.ok)
		return nil
	case is(verb, "EHLO"), is(verb, "HELO"):
		return s.greeted(is(verb, "EHLO"), string(rest))
	case is(verb, "STARTTLS") && s.p.TLS != TLSNone && (!s.encrypted || s.p.TLS == TLSAgain):
		return s.startTLS()
	case is(verb, "NOOP"):
		s.say(&s.p.words.ok)
		return nil
	case is(verb, "DATA"), is(verb, "BDAT"):
		s.host.tallies.count(func(t *Tally) { t.Data++ })
		return s.fault(&s.p.words.noData)
	}
	return s.fault(&s.p.words.unknown)
}

func is(verb []byte, name string) bool {
	return strings.EqualFold(string(verb), name)
}

// fault answers a client's error.
func (s *session) fault(reply *phrase) error {
	if reply == &s.p.words.order {
		s.host.tallies.count(func(t *Tally) { t.OutOfOrder++ })
	}
	s.errors++
	s.say(reply)
	return nil
}

// greeted answers EHLO and HELO (RFC 5321 §4.1.1.1); both end a transaction.
func (s *session) greeted(extended bool, name string) error {
	if s.breaksAt(smtp.StageHello) {
		return s.breakNow()
	}
	s.hello, s.extended = name, extended
	s.tx.end()
	reply := &s.p.words.hello
	switch {
	case name == "":
		reply = &s.p.words.syntax
	case s.p.words.refuseHello.said():
		reply = &s.p.words.refuseHello
	case !extended:
		reply = &s.p.words.helo
	case s.p.words.refuseEHLO.said():
		reply = &s.p.words.refuseEHLO
	case s.p.NoEHLO:
		reply = &s.p.words.unknown
	case s.encrypted:
		reply = &s.p.words.helloTLS
	}
	s.guardHello(name, time.Now())
	s.say(reply)
	switch {
	case reply.code == 421, s.p.EHLOEnds && extended && reply.code/100 == 5:
		return s.finish()
	case reply.code/100 != 2:
		s.hello = ""
		s.errors++
	}
	return nil
}

// mail opens a transaction (RFC 5321 §4.1.1.2).
func (s *session) mail(rest []byte) error {
	s.tx.refused = true
	if s.breaksAt(smtp.StageMail) {
		return s.breakNow()
	}
	path, parameters, ok := cutPath(rest, "FROM:")
	switch {
	case s.hello == "" || s.tx.open:
		return s.fault(&s.p.words.order)
	case !ok:
		return s.fault(&s.p.words.syntax)
	case (s.p.TLS == TLSRequired || s.p.NeedsTLS) && !s.encrypted:
		return s.fault(&s.p.words.needTLS)
	case s.p.words.refuseMail.code == 421:
		return s.sayAndClose(&s.p.words.refuseMail)
	case s.p.words.refuseMail.said():
		return s.fault(&s.p.words.refuseMail)
	case s.guardMail():
		return s.sayAndClose(&s.p.words.refuseTx)
	}
	s.tx.open, s.tx.refused = true, false
	s.tx.utf8 = s.p.UTF8 && s.extended && slices.ContainsFunc(bytes.Fields(parameters), func(word []byte) bool {
		return is(word, "SMTPUTF8")
	})
	if s.tx.from != string(path) {
		s.tx.from = string(path)
	}
	s.say(&s.p.words.mailOK)
	if s.p.breaksBehind(smtp.StageMail) {
		return s.breakBehind(&s.p.words.mailOK)
	}
	return nil
}

// end ends a transaction, and counts it for GuardTx as good or bad.
func (t *transactions) end() {
	switch {
	case t.good > 0:
		t.goodOnes++
	case t.rcpts > 0:
		t.badOnes++
	}
	t.open, t.refused, t.utf8, t.rcpts, t.good = false, false, false, 0, 0
}

// cutPath parses "FROM:<path> parameters". It accepts a space before the path, which some clients send.
func cutPath(rest []byte, keyword string) (path, parameters []byte, ok bool) {
	if len(rest) < len(keyword) || !strings.EqualFold(string(rest[:len(keyword)]), keyword) {
		return nil, nil, false
	}
	rest = bytes.TrimLeft(rest[len(keyword):], " ")
	end := bytes.LastIndexByte(rest, '>')
	if len(rest) < 2 || rest[0] != '<' || end < 0 {
		return nil, nil, false
	}
	return rest[1:end], rest[end+1:], true
}

// say puts a reply without placeholders for an address.
func (s *session) say(reply *phrase) { s.sayOf(reply, nil, 0) }

// sayOf puts a reply; address and wait fill its placeholders.
func (s *session) sayOf(reply *phrase, address []byte, wait time.Duration) {
	if reply.plain {
		s.link.out = append(s.link.out, reply.bytes...)
		return
	}
	seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	text := strings.NewReplacer(
		"{address}", string(address), "{hello}", s.hello, "{client}", s.client,
		"{host}", s.host.name, "{wait}", seconds,
	).Replace(string(reply.bytes))
	s.link.out = append(s.link.out, text...)
}

// sayAndClose puts a last reply and ends the session.
func (s *session) sayAndClose(reply *phrase) error {
	s.say(reply)
	return s.finish()
}

// finish sends the remaining replies and closes so that the client can read them: closing with unread commands would
// reset the connection.
func (s *session) finish() error {
	s.leave()
	if err := s.link.flush(s.lab, s.p); err != nil {
		return err
	}
	s.link.closeWrite()
	_ = s.link.under.SetReadDeadline(time.Now().Add(lingerMax))
	_, _ = io.Copy(io.Discard, s.link.under)
	return errEnd
}

// closeWrite closes our side of the connection.
func (l *link) closeWrite() {
	if encrypted, ok := l.conn.(*tls.Conn); ok {
		_ = encrypted.CloseWrite()
	}
	if tcp, ok := l.under.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// flush writes the pending replies, at the receiver's pace.
func (l *link) flush(lab *Lab, p *persona) error {
	if len(l.out) == 0 {
		return nil
	}
	defer func() { l.out = l.out[:0] }()
	if !lab.wait(lab.options.Latency + lab.lasts(p.TurnDelay)) {
		return errEnd
	}
	if p.ByteDelay == 0 {
		_, err := l.conn.Write(l.out)
		return err
	}
	for i := range l.out {
		if !lab.wait(lab.lasts(p.ByteDelay)) {
			return errEnd
		}
		if _, err := l.conn.Write(l.out[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}
