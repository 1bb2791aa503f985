package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// shownMax bounds the kept bytes of a greeting and of a reply to EHLO: the longest line of RFC 5321 §4.5.3.1.5.
const shownMax = 512

// Open connects to host at the address and port, reads its greeting, sends EHLO (HELO if EHLO is refused for good),
// and encrypts as o.TLS says. MAIL may follow.
//
// The error is always a *Failure. With StageTLS, TLSOpportunistic and no Reply, the handshake failed or the session
// broke right after it: the caller may open again with TLSOff. A Reply with StageGreeting or StageHello is about us or
// the host, never about an address; with NoHELO it is about neither. When ctx is done Open returns its cause at once.
func Open(
	ctx context.Context, dial Dialer, host string, at netip.AddrPort, o SessionOptions,
) (*Session, error) {
	if err := o.Validate(); err != nil {
		return nil, &Failure{Err: err}
	}
	begin := time.Now()
	dialCtx, cancel := context.WithDeadline(ctx, begin.Add(o.Limits.Session))
	defer cancel()
	conn, err := dial.DialContext(dialCtx, "tcp", at.String())
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &Failure{Stage: StageConnect, Err: err}
	}
	s := &Session{
		host: host, source: sourceOf(conn), options: o, raw: newPeekConn(conn), open: true,
		left: o.Limits.Session - time.Since(begin), granted: 1, tracer: tracerOf(ctx),
	}
	s.conn, s.in = s.raw, newReplyReader(s.raw, &o.Limits)
	s.raw.giveUpAfter(o.Limits.Unacknowledged)
	s.interrupt = func() { _ = conn.SetDeadline(time.Unix(1, 0)) } // long ago
	stop := s.enter(ctx)
	err = s.introduce(ctx)
	s.leave(stop)
	if err != nil {
		return nil, err
	}
	if !s.open { // ctx was done in the last moment
		return nil, &Failure{Stage: StageHello, Err: context.Cause(ctx), Source: s.source, ending: s.raw.ending}
	}
	return s, nil
}

// introduce takes a new connection to the point where MAIL may be sent.
func (s *Session) introduce(ctx context.Context) error {
	if _, err := s.arm(ctx, s.options.Limits.Greeting); err != nil {
		return s.fail(StageGreeting, s.cause(ctx, err))
	}
	reply, err := s.receive(ctx, StageGreeting)
	if err != nil {
		return err
	}
	s.greeting = bounded(strings.Join(reply.Lines, " "))
	if reply.Code != 220 { // RFC 5321 §3.1, §4.3.2
		return s.turnedAway(StageGreeting, reply)
	}
	if err := s.hello(ctx); err != nil {
		return err
	}
	if s.options.TLS == TLSOff || s.options.TLS == TLSOffHELO || (s.options.TLS == TLSOpportunistic && !s.offers.starttls) {
		return nil
	}
	return s.encrypt(ctx)
}

// turnedAway ends a session because of a reply. It answers a refusal with QUIT (RFC 5321 §3.1); any other reply is a
// protocol error.
func (s *Session) turnedAway(stage Stage, reply Reply) error {
	if !reply.Temporary() && !reply.Permanent() {
		return s.fail(stage, ErrProtocol)
	}
	s.Quit()
	return &Failure{Stage: stage, Reply: reply, Source: s.source, ending: s.raw.ending}
}

// hello sends EHLO and notes the extensions that the receiver offers. If EHLO is refused for good it sends HELO:
// servers that do not know EHLO reply with 500 to 504, 550 or 554 (RFC 5321 §3.2).
func (s *Session) hello(ctx context.Context) error {
	s.offers = extensions{}
	isHELO, verb := s.options.TLS == TLSOffHELO, "EHLO "
	if isHELO {
		verb = "HELO "
	}
	s.put(verb, s.options.HelloName)
	reply, err := s.ask(ctx, StageHello, s.options.Limits.Hello)
	if err != nil {
		return err
	}
	if !isHELO && reply.Permanent() {
		if reply, err = s.helo(ctx, reply); err != nil {
			return err
		}
		isHELO = true
	}
	if reply.Code != 250 {
		return s.turnedAway(StageHello, reply)
	}
	s.helloReply = bounded(withoutName(strings.Join(reply.Lines, " "), s.options.HelloName))
	for i, line := range reply.Lines {
		if i > 0 && !isHELO { // the first line names the host, and a HELO reply has no extensions
			s.offers.note(line)
		}
	}
	return nil
}

// helo sends HELO after a refused EHLO. If the session ends at it, or HELO is out of sequence (503), the error has
// NoHELO.
func (s *Session) helo(ctx context.Context, refused Reply) (Reply, error) {
	s.put("HELO ", s.options.HelloName)
	reply, err := s.ask(ctx, StageHello, s.options.Limits.Hello)
	if err == nil && reply.Code != 503 || ctx.Err() != nil {
		return reply, err
	}
	s.Quit()
	return Reply{}, &Failure{Stage: StageHello, Reply: refused, Source: s.source, NoHELO: true, ending: s.raw.ending}
}

// bounded returns the first shownMax bytes of a text.
func bounded(text string) string { return text[:min(len(text), shownMax)] }

// withoutName replaces our own name in a text, in any case, by a blank, except inside another word. A receiver that
// repeats our name says nothing about itself.
func withoutName(text, name string) string {
	isPart := func(at int) bool {
		if at < 0 || at >= len(text) {
			return false
		}
		c := text[at]
		return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
	}
	var b strings.Builder
	for at := 0; at < len(text); {
		end := at + len(name)
		if name != "" && end <= len(text) && strings.EqualFold(text[at:end], name) && !isPart(at-1) && !isPart(end) {
			b.WriteByte(' ')
			at = end
			continue
		}
		b.WriteByte(text[at])
		at++
	}
	return b.String()
}

// note remembers the keyword of one line of an EHLO reply, in any case.
func (x *extensions) note(line string) {
	keyword, _, _ := strings.Cut(line, " ")
	switch {
	case strings.EqualFold(keyword, "PIPELINING"):
		x.pipelining = true
	case strings.EqualFold(keyword, "SMTPUTF8"):
		x.smtputf8 = true
	case strings.EqualFold(keyword, "STARTTLS"):
		x.starttls = true
	}
}

// encrypt starts TLS (RFC 3207 §4) and sends EHLO again, because the reply in clear no longer counts (§4.2).
func (s *Session) encrypt(ctx context.Context) error {
	if !s.offers.starttls {
		s.Quit()
		return &Failure{Stage: StageTLS, Err: ErrNoSTARTTLS, Source: s.source, ending: s.raw.ending}
	}
	s.put("STARTTLS", "")
	reply, err := s.ask(ctx, StageTLS, s.options.Limits.StartTLS)
	switch {
	case err != nil:
		return err
	case reply.Code != 220 && s.options.TLS == TLSOpportunistic && !reply.Accepted():
		return nil // RFC 3207 §4.1: continue in clear
	case reply.Code != 220:
		return s.turnedAway(StageTLS, reply)
	}
	// Anybody may have sent the bytes after the 220 in clear. Reading them as if they were encrypted is the classic
	// STARTTLS injection.
	if !s.in.empty() {
		return s.fail(StageTLS, ErrOutOfStep)
	}
	if err := s.handshake(ctx); err != nil {
		return s.fail(StageTLS, s.cause(ctx, err))
	}
	err = s.hello(ctx)
	if f := (*Failure)(nil); errors.As(err, &f) && f.Reply.Code == 0 && s.options.TLS == TLSOpportunistic &&
		ctx.Err() == nil {
		f.Stage = StageTLS // the handshake succeeded, but the session failed right after it
	}
	return err
}

// handshake switches to TLS. It keeps the count of the session's bytes, and drops everything that was read in clear.
func (s *Session) handshake(ctx context.Context) error {
	conn := tls.Client(s.raw, &tls.Config{
		ServerName:         s.host,
		InsecureSkipVerify: true,             // see TLSMode
		MinVersion:         tls.VersionTLS10, // some old receivers offer only this or clear text
	})
	if _, err := s.arm(ctx, s.options.Limits.Handshake); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		return err
	}
	s.conn, s.tls = conn, true
	s.in.buf.Reset(conn)
	return nil
}

// put adds a command line to the next group. Neither part has a CR, LF or NUL: options and addresses were checked.
func (s *Session) put(verb, argument string) {
	s.out = append(s.out, verb...)
	s.out = append(s.out, argument...)
	s.out = append(s.out, '\r', '\n')
}
