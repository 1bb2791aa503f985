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

// TLSMode says what a session does about STARTTLS (RFC 3207).
type TLSMode uint8

// The modes. No certificate is verified in any of them: a probe says nothing
// that is secret, and receivers' certificates often carry another name (RFC 7435).
const (
	TLSOpportunistic TLSMode = iota // when offered; goes on in clear when refused
	TLSOff                          // never, for a second try after a failed handshake
	TLSRequired                     // or no session
	TLSOffHELO                      // never, and HELO in place of EHLO, for a host that ends sessions at EHLO
)

// SessionOptions says how we introduce ourselves and what we tolerate.
type SessionOptions struct {
	HelloName  string // argument of EHLO (RFC 5321 §4.1.1.1): our host's full name
	ReturnPath string // argument of MAIL, without angle brackets; ASCII
	TLS        TLSMode
	Limits     Limits
}

// Validate answers ErrOptions when an option is missing or out of range.
func (o *SessionOptions) Validate() error {
	switch {
	case o.HelloName == "" || !printable(o.HelloName) || strings.Contains(o.HelloName, " "):
		return fmt.Errorf("%w: the hello name is empty or not one ascii word", ErrOptions)
	case o.ReturnPath == "" || !printable(o.ReturnPath) || strings.ContainsAny(o.ReturnPath, "<> "):
		return fmt.Errorf("%w: the return path is empty or not an ascii address", ErrOptions)
	case o.TLS > TLSOffHELO:
		return fmt.Errorf("%w: no such tls mode", ErrOptions)
	}
	return o.Limits.Validate()
}

// printable reports whether all of s is printable ASCII.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Session is one SMTP connection that only asks: greeting, EHLO, STARTTLS, then
// any number of MAIL and RCPT, never DATA. Open makes it; Quit or Close must end
// it. After a protocol error, a time-out, a 421 or a cancelled context it is
// over by itself.
//
// Invariant: before each command, or pipelined group of commands, no byte waits
// to be read; otherwise replies and commands are out of step and the session is
// over. A Session is for one goroutine at a time.
type Session struct {
	host    string
	source  netip.Addr // ours
	options SessionOptions

	raw  *peekConn // what was dialled; deadlines are set here
	conn net.Conn  // raw, or TLS over it
	in   replyReader
	out  []byte  // commands of the group that is being put together
	due  []Stage // of each of these, in a Probe

	greeting   string // what the receiver said first
	helloReply string // what it answered to the last EHLO or HELO

	tracer Tracer // nil: nobody ever looks

	interrupt func() // makes a wait in progress end at once

	gone <-chan struct{} // see Gone

	left time.Duration // what may still be spent waiting for the receiver
	end  time.Time     // when left runs out; only during a wait

	offers  extensions
	open    bool
	tls     bool
	mail    transaction
	counts  Counts
	granted int // RCPTs for which the limits of the session are good
}

// transaction is the newest MAIL of a session and its RCPTs.
type transaction struct {
	open                     bool     // MAIL was accepted and no RSET has followed
	sent, answered, accepted int      // RCPTs
	refused                  bool     // one was, and none was accepted since
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

// Source returns the address of ours that the session speaks from; the zero value when
// the connection has none.
func (s *Session) Source() netip.Addr { return s.source }

// sourceOf returns our address of a connection.
func sourceOf(conn net.Conn) netip.Addr {
	if at, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Greeting is what the receiver said first, without the code, at most 512 bytes of it.
func (s *Session) Greeting() string { return s.greeting }

// HelloReply is what the receiver answered to the last EHLO, or HELO, without the code and without our
// own name where it repeats that, at most 512 bytes of it. After STARTTLS it is what was said under TLS.
func (s *Session) HelloReply() string { return s.helloReply }

// TLS reports whether the session is encrypted.
func (s *Session) TLS() bool { return s.tls }

// Pipelining reports whether the receiver takes commands in groups.
func (s *Session) Pipelining() bool { return s.offers.pipelining }

// Open reports whether the session may be used for another Probe.
func (s *Session) Open() bool { return s.open }

// Counts are the commands that a session has sent, and the 5xx answers to RCPT.
type Counts struct{ Mails, Rcpts, Refused int }

// Counts returns those of the session so far.
func (s *Session) Counts() Counts { return s.counts }

// Close ends the session without a word, but for the end of what we send. It does not
// wait for the far side's end: see Gone. It may be called twice.
func (s *Session) Close() { s.part(nil) }

// part is Close of a session that may wait for a reply to QUIT.
func (s *Session) part(waiting *replyReader) {
	if s.open = false; s.gone == nil {
		s.gone = s.raw.part(s.options.Limits.Unended, waiting)
	}
}

// Quit ends the session politely (RFC 5321 §4.1.1.10): it sends QUIT, waits at
// transactionMax Limits.Quit for the reply and for the far side's close, and closes. On a
// session that is over it only closes.
func (s *Session) Quit() { s.QuitWithin(s.options.Limits.Quit) }

// QuitWithin is Quit for who has so much time.
func (s *Session) QuitWithin(limit time.Duration) {
	if !s.open || !s.in.empty() {
		s.Close()
		return
	}
	s.raw.giveUpAfter(s.options.Limits.Unended) // all before it was answered, and QUIT does no harm when it is late
	_ = s.raw.SetDeadline(time.Now().Add(limit))
	s.traceSaid([]byte("QUIT"))
	if _, err := s.conn.Write([]byte("QUIT\r\n")); err != nil {
		s.Close()
		return
	}
	reply, err := s.in.read()
	switch {
	case err == nil:
		_, _ = s.in.buf.Peek(1) // returns at the far side's close
		s.raw.ended = s.raw.ended || reply.Code == 221
		s.Close()
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.part(&s.in)
	default:
		s.Close()
	}
}

// pollWait is long enough for a read to see what the system already holds, and
// short beside any turn to a receiver.
const pollWait = time.Millisecond

// Poll looks at an idle session: an unsolicited reply, as 421 before a shutdown
// (RFC 5321 §3.8), or a close gives a *Failure with StageNone, and the session is
// over. Nil means that nothing has come. It takes about a millisecond; call it
// after an idle time, not before each Probe.
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

// enter begins a time of waiting that ends when ctx is done or the session's
// time runs out. Leave must be called with what it returns.
func (s *Session) enter(ctx context.Context) (stop func() bool) {
	s.end = time.Now().Add(s.left)
	if ctx.Done() == nil {
		return nil
	}
	return context.AfterFunc(ctx, s.interrupt)
}

// leave ends a time of waiting. When ctx was done meanwhile the session is over,
// even if the last reply just came: interrupt may still be about to run.
func (s *Session) leave(stop func() bool) {
	s.left = time.Until(s.end)
	if stop != nil && !stop() && s.open {
		s.Close()
	}
}

// arm returns everything that follows until limit from now, within the session's time.
func (s *Session) arm(ctx context.Context, limit time.Duration) (time.Time, error) {
	now := time.Now()
	deadline := now.Add(limit)
	if s.end.Before(deadline) {
		deadline = s.end
	}
	if err := s.raw.SetDeadline(deadline); err != nil {
		return now, err
	}
	return now, ctx.Err() // an interrupt that came before SetDeadline was undone by it
}

// send writes the commands that were put and gives their replies until limit
// from now. It tells when it began. The error is a *Failure and the session is over.
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

// outOfStep ends the session because bytes wait that answer nothing. When they
// are the 421 of a receiver that shuts down (RFC 5321 §3.8), that is the reason.
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

// ask sends one command line and waits for its reply, which may be any but 421.
// The error is a *Failure and the session is over.
func (s *Session) ask(ctx context.Context, stage Stage, limit time.Duration) (Reply, error) {
	if _, err := s.send(ctx, stage, limit); err != nil {
		return Reply{}, err
	}
	return s.receive(ctx, stage)
}

// receive reads one reply to a command that was sent; errors as of ask.
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

// cause prefers the end of ctx to the time-out by which it showed itself.
func (s *Session) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// fail ends the session because no usable reply came.
func (s *Session) fail(stage Stage, err error) error {
	s.Close()
	return &Failure{Stage: stage, Err: err, Source: s.source, gone: s.gone}
}

// refuse ends the session because of a reply.
func (s *Session) refuse(stage Stage, reply Reply) error {
	s.Close()
	return &Failure{Stage: stage, Reply: reply, Source: s.source, gone: s.gone}
}
