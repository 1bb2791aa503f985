package smtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// TLSMode is how a session uses STARTTLS (RFC 3207).
type TLSMode uint8

// The modes. None of them verifies certificates: a probe sends nothing secret, and receivers' certificates often
// have another name (RFC 7435).
const (
	TLSOpportunistic TLSMode = iota // when offered; continues in clear when refused
	TLSOff                          // never, for a second try after a failed handshake
	TLSRequired                     // no session without it
	TLSOffHELO                      // never, and HELO in place of EHLO, for a host that ends sessions at EHLO
)

// SessionOptions are our names in a session and its limits.
type SessionOptions struct {
	HelloName  string // argument of EHLO (RFC 5321 §4.1.1.1): our host's full name
	ReturnPath string // argument of MAIL, without angle brackets; ASCII
	TLS        TLSMode
	Limits     Limits
}

// Validate returns ErrOptions when an option is missing or out of range.
func (o *SessionOptions) Validate() error {
	switch {
	case o.HelloName == "" || !printable(o.HelloName) || strings.Contains(o.HelloName, " "):
		return fmt.Errorf("%w: the hello name is empty or not one ascii word", ErrOptions)
	case o.ReturnPath == "" || !printable(o.ReturnPath) || strings.ContainsAny(o.ReturnPath, "<> "):
		return fmt.Errorf("%w: the return path is empty or not an ascii address", ErrOptions)
	case o.TLS > TLSOffHELO:
		return fmt.Errorf("%w: no such tls mode", ErrOptions)
	}
	return nil
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Session is one SMTP connection for probes: greeting, EHLO, STARTTLS, then any number of MAIL and RCPT, never DATA.
// Open makes it; Quit or Close must end it. A protocol error, a time-out, a 421 or a cancelled context also ends it.
//
// Invariant: before each command, or pipelined group of commands, no byte waits to be read. Otherwise replies no
// longer match their commands, and the session ends. A Session is for one goroutine at a time.
type Session struct {
	host    string
	source  netip.Addr // our address
	options SessionOptions

	raw  *peekConn // the connection itself; deadlines are set here
	conn net.Conn  // raw, or TLS over it
	in   replyReader
	out  []byte  // commands of the group that is being put together
	due  []Stage // their stages, in a Probe

	greeting   string // what the receiver said first
	helloReply string // what it answered to the last EHLO or HELO

	tracer Tracer // nil: no tracer

	interrupt func() // ends a wait in progress

	left time.Duration // remaining time to wait for the receiver
	end  time.Time     // when left runs out; only during a wait

	offers  extensions
	open    bool
	tls     bool
	mail    transaction
	counts  Counts
	granted int // RCPTs that the session's limits allow for
}

// transaction is the newest MAIL of a session and its RCPTs.
type transaction struct {
	open                     bool     // MAIL was accepted and no RSET has followed
	sent, answered, accepted int      // RCPTs
	refused                  bool     // a RCPT was refused, and none was accepted since
	shown                    refusals // in this session
}

// extensions is what the receiver's EHLO reply offers (RFC 5321 §4.1.1.1).
type extensions struct {
	pipelining bool // RFC 2920
	smtputf8   bool // RFC 6531
	starttls   bool // RFC 3207
}

// Host returns the name of the host that Open was given.
func (s *Session) Host() string { return s.host }

// Source returns our address in the session; the zero value when the connection has none.
func (s *Session) Source() netip.Addr { return s.source }

func sourceOf(conn net.Conn) netip.Addr {
	if at, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Greeting returns the receiver's greeting without the code, at most 512 bytes.
func (s *Session) Greeting() string { return s.greeting }

// HelloReply returns the reply to the last EHLO or HELO, without the code and our own name, at most 512 bytes. After
// STARTTLS it is the reply under TLS.
func (s *Session) HelloReply() string { return s.helloReply }

// TLS reports whether the session is encrypted.
func (s *Session) TLS() bool { return s.tls }

// Pipelining reports whether the receiver offers PIPELINING.
func (s *Session) Pipelining() bool { return s.offers.pipelining }

// Open reports whether the session may be used for another Probe.
func (s *Session) Open() bool { return s.open }

// Counts are the commands sent in a session, and the 5xx replies to RCPT.
type Counts struct{ Mails, Rcpts, Refused int }

// Counts returns the counts of the session so far.
func (s *Session) Counts() Counts { return s.counts }

// Close ends the session without QUIT. It closes only our side and does not wait for the receiver's: see Gone. It
// may be called twice.
func (s *Session) Close() { s.part(nil) }

// part is Close; with waiting it also expects the reply to QUIT.
func (s *Session) part(waiting *replyReader) {
	s.open = false
	s.raw.part(s.options.Limits.Unended, waiting)
}

// Quit ends the session politely (RFC 5321 §4.1.1.10): it sends QUIT, waits at most Limits.Quit for the reply and
// for the receiver's close, and closes. If the session is over it only closes.
func (s *Session) Quit() { s.QuitWithin(s.options.Limits.Quit) }

// QuitWithin is Quit with the given time limit.
func (s *Session) QuitWithin(limit time.Duration) {
	if !s.open || !s.in.empty() {
		s.Close()
		return
	}
	s.raw.giveUpAfter(s.options.Limits.Unended) // everything before was answered, and a late QUIT does no harm
	_ = s.raw.SetDeadline(time.Now().Add(limit))
	s.traceSaid([]byte("QUIT"))
	if _, err := s.conn.Write([]byte("QUIT\r\n")); err != nil {
		s.Close()
		return
	}
	reply, err := s.in.read()
	switch {
	case err == nil:
		_, _ = s.in.buf.Peek(1) // returns at the receiver's close
		s.raw.ended = s.raw.ended || reply.Code == 221
		s.Close()
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.part(&s.in)
	default:
		s.Close()
	}
}

// pollWait is long enough to read what the system already holds, and short beside a round trip.
const pollWait = time.Millisecond

// Poll checks an idle session. An unsolicited reply, such as 421 before a shutdown (RFC 5321 §3.8), or a close ends
// the session and gives a *Failure with StageNone. Nil means that nothing has come. It takes about a millisecond;
// call it after an idle time, not before each Probe.
func (s *Session) Poll() error {
	if !s.open {
		return &Failure{Err: ErrClosed}
	}
	if !s.in.empty() {
		return s.outOfStep(StageNone)
	}
	if err := s.raw.SetDeadline(time.Now().Add(pollWait)); err != nil {
		return s.fail(StageNone, err)
	}
	if _, err := s.in.buf.Peek(1); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return s.fail(StageNone, err)
	}
	if s.in.skipBlank(); s.in.empty() {
		return nil
	}
	return s.outOfStep(StageNone)
}

// enter begins a wait that ends when ctx is done or the session's time runs out. The caller must pass stop to leave.
func (s *Session) enter(ctx context.Context) (stop func() bool) {
	s.end = time.Now().Add(s.left)
	if ctx.Done() == nil {
		return nil
	}
	return context.AfterFunc(ctx, s.interrupt)
}

// leave ends a wait. If ctx was done meanwhile, the session is over even if the last reply just came: interrupt may
// still be about to run.
func (s *Session) leave(stop func() bool) {
	s.left = time.Until(s.end)
	if stop != nil && !stop() && s.open {
		s.Close()
	}
}

// arm sets the deadline to limit from now, within the session's time, and returns now.
func (s *Session) arm(ctx context.Context, limit time.Duration) (time.Time, error) {
	now := time.Now()
	deadline := now.Add(limit)
	if s.end.Before(deadline) {
		deadline = s.end
	}
	if err := s.raw.SetDeadline(deadline); err != nil {
		return now, err
	}
	return now, ctx.Err() // SetDeadline overwrote the deadline of an interrupt that came before it
}

// send writes the commands that were put and allows limit from now for their replies. It returns when it began. The
// error is a *Failure and the session is over.
func (s *Session) send(ctx context.Context, stage Stage, limit time.Duration) (time.Time, error) {
	if s.in.skipBlank(); !s.in.empty() {
		return time.Time{}, s.outOfStep(stage)
	}
	now, err := s.arm(ctx, limit)
	if err == nil && s.early() {
		return now, s.outOfStep(stage)
	}
	if err == nil {
		s.traceSaid(s.out)
		_, err = s.conn.Write(s.out)
	}
	s.out = s.out[:0]
	if err != nil {
		return now, s.fail(stage, s.cause(ctx, err))
	}
	return now, nil
}

// outOfStep ends the session because unexpected bytes wait. If they are a 421 of a shutdown (RFC 5321 §3.8), that
// reply is the cause.
func (s *Session) outOfStep(stage Stage) error {
	waiting, err := s.in.buf.Peek(s.in.buf.Buffered())
	end := bytes.IndexByte(waiting, '\n')
	if err != nil || end < 0 {
		return s.fail(stage, ErrOutOfStep)
	}
	code, _, text, ok := parseReplyLine(waiting[:end+1])
	if !ok || code != 421 {
		return s.fail(stage, ErrOutOfStep)
	}
	enhanced, text := cutEnhanced(text)
	return s.refuse(stage, Reply{Code: code, Enhanced: enhanced, Lines: []string{string(text)}})
}

// ask sends one command line and returns its reply. A 421 is an error. The error is a *Failure and the session is over.
func (s *Session) ask(ctx context.Context, stage Stage, limit time.Duration) (Reply, error) {
	if _, err := s.send(ctx, stage, limit); err != nil {
		return Reply{}, err
	}
	return s.receive(ctx, stage)
}

// receive reads the reply to a command that was sent; errors as in ask.
func (s *Session) receive(ctx context.Context, stage Stage) (Reply, error) {
	reply, err := s.in.read()
	if err != nil {
		return Reply{}, s.fail(stage, s.cause(ctx, err))
	}
	s.traceHeard(reply, Address{})
	if reply.Code == 421 { // RFC 5321 §3.8: the receiver is closing
		return Reply{}, s.refuse(stage, reply)
	}
	return reply, nil
}

// cause returns the cause of ctx's end instead of the time-out that it led to.
func (s *Session) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// fail ends the session because it got no usable reply.
func (s *Session) fail(stage Stage, err error) error {
	s.Close()
	return &Failure{Stage: stage, Err: err, Source: s.source, ending: s.raw.ending}
}

// refuse ends the session because of a reply.
func (s *Session) refuse(stage Stage, reply Reply) error {
	s.Close()
	return &Failure{Stage: stage, Reply: reply, Source: s.source, ending: s.raw.ending}
}
