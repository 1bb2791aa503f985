package smtp

import (
	"context"
	"errors"
	"time"
)

// Answer is what came of asking one address.
type Answer struct {
	Reply Reply     // to RCPT; Code is 0 when Err is set
	Err   error     // why the address was not asked: ErrNoSMTPUTF8 or ErrMalformed
	Sent  time.Time // when the command, or its group, was written
	At    time.Time // when the reply was there
}

// Ask is how a Probe goes about its addresses.
type Ask struct {
	// Pipelining lets commands go in groups (RFC 2920) where the receiver offers it.
	Pipelining bool

	// Depth bounds the RCPT commands of such a group; 0 means as many as fit.
	Depth int

	// RefusedMax is after how many 5xx answers to RCPT the probe stops; 0 means
	// never. No group is larger than what is left of it.
	RefusedMax int

	// Stop is called with each reply, in order; true stops the probe. May be nil.
	Stop func(Address, Reply) bool

	// Hold is called right before each RCPT, or group of them, is sent; true stops
	// the probe before it. May be nil.
	Hold func() bool
}

// groupBytes is how much is written before replies are read: some hundred
// addresses, and little enough that both directions fit into the smallest
// socket buffers, so that nobody waits for the other for ever (RFC 2920 §3.1).
const groupBytes = 4096

// Probe asks for each address in one transaction: RSET if one was open before,
// MAIL, RCPT for each. It never sends DATA, and leaves the transaction open.
//
// The answers are for a prefix of addrs: it stops early as Ask says, and after
// a 421, which is the last answer. The rest was not asked, but for what stood in
// a group after the stop; their replies were read and dropped.
//
// The error is a *Failure, and the answers before it stand, but for ErrOutOfStep: then
// no answer is known to be that to its RCPT, and there are none. With StageMail and
// a Reply other than 421 the session may go on (Open); otherwise it is over.
// After a 421 to RCPT it is over too, without an error.
//
// When ctx is done the session is over; the error, if there is one, is its cause.
func (s *Session) Probe(ctx context.Context, addrs []Address, ask Ask) ([]Answer, error) {
	if !s.open {
		return nil, &Failure{Stage: StageMail, Err: ErrClosed, Source: s.source}
	}
	p := probe{s: s, ask: ask, addrs: addrs, answers: make([]Answer, 0, len(addrs))}
	p.survey()
	if p.asked == 0 {
		for _, a := range addrs {
			p.answers = append(p.answers, Answer{Err: s.unaskable(a)})
		}
		return p.answers, nil
	}
	stop := s.enter(ctx)
	first := s.rcpts == 0
	err := p.run(ctx)
	if first && err == nil && s.open && s.talksAhead(ctx) {
		err = s.fail(StageRcpt, ErrOutOfStep)
	}
	if errors.Is(err, ErrOutOfStep) {
		p.answers = nil // one of them may have been sent ahead of its RCPT
	}
	s.leave(stop)
	return p.answers, err
}

// grant widens the session's limits to those for addresses RCPTs in all. What
// was granted and not used stays for the next address.
func (s *Session) grant(addresses int) {
	if more := addresses - s.granted; more > 0 {
		s.granted = addresses
		s.end = s.end.Add(time.Duration(more) * s.options.Limits.SessionMore)
		s.in.left += more * s.options.Limits.SessionMoreBytes
	}
}

// unaskable says why a cannot be asked here, or nil.
func (s *Session) unaskable(a Address) error {
	if len(a.Local) > 64 || len(a.Domain) > 255 || a.Local == "" || a.Domain == "" { // RFC 5321 §4.5.3.1
		return ErrMalformed
	}
	for i := 0; i < len(a.Domain); i++ {
		if c := a.Domain[i]; c <= ' ' || c > '~' || c == '<' || c == '>' || c == '@' {
			return ErrMalformed
		}
	}
	wide := false
	for i := 0; i < len(a.Local); i++ {
		if a.Local[i] < ' ' || a.Local[i] == 0x7f {
			return ErrMalformed
		}
		wide = wide || a.Local[i] >= 0x80
	}
	if wide && !s.offers.smtputf8 {
		return ErrNoSMTPUTF8
	}
	return nil
}

// probe is one call of Probe.
type probe struct {
	s       *Session
	ask     Ask
	addrs   []Address
	answers []Answer
	asked   int  // addresses that can be asked
	wide    bool // one of them needs SMTPUTF8
	refused int
	stopped bool
}

// survey looks at what the transaction will need.
func (p *probe) survey() {
	for _, a := range p.addrs {
		if p.s.unaskable(a) == nil {
			p.asked++
			p.wide = p.wide || !a.ASCII()
		}
	}
}

func (p *probe) run(ctx context.Context) error {
	pipelined := p.ask.Pipelining && p.s.offers.pipelining
	if !pipelined {
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	for first := true; !p.stopped && len(p.answers) < len(p.addrs); first = false {
		if p.ask.Hold != nil && p.ask.Hold() {
			return nil
		}
		if err := p.group(ctx, pipelined, pipelined && first); err != nil {
			return err
		}
	}
	return nil
}

// begin opens the transaction, each reply awaited.
func (p *probe) begin(ctx context.Context) error {
	s := p.s
	s.grant(s.rcpts + 1)
	if s.transaction {
		s.put("RSET", "")
		reply, err := s.ask(ctx, StageRset, s.options.Limits.Mail)
		if err != nil {
			return err
		}
		if !reply.Accepted() { // RFC 5321 §4.1.1.5 knows no refusal
			return s.refuse(StageRset, reply)
		}
	}
	p.putMail()
	reply, err := s.ask(ctx, StageMail, s.options.Limits.Mail)
	if err != nil {
		return err
	}
	return s.mailDone(reply)
}

// group sends RCPT for the next addresses, one or as many as fit, preceded by
// what opens the transaction when lead is set; then it reads the replies.
func (p *probe) group(ctx context.Context, pipelined, lead bool) error {
	s := p.s
	reset := lead && s.transaction
	if reset {
		s.put("RSET", "")
	}
	stage, limit := StageRcpt, s.options.Limits.Rcpt
	if lead {
		p.putMail()
		stage, limit = StageMail, limit+2*s.options.Limits.Mail
	}
	batch, rcpts := p.fill(pipelined)
	if rcpts == 0 { // never at the head of a transaction: survey saw to that
		return p.collect(ctx, batch, time.Time{})
	}
	s.grant(s.rcpts)
	limit += time.Duration(rcpts-1) * s.options.Limits.SessionMore
	sent, err := s.send(ctx, stage, limit)
	if err != nil {
		return err
	}
	if lead {
		if err := p.lead(ctx, reset, rcpts); err != nil {
			return err
		}
	}
	return p.collect(ctx, batch, sent)
}

// fill puts RCPT for the next addresses and tells which they are, those that
// cannot be asked among them, and how many commands that makes.
func (p *probe) fill(pipelined bool) (batch []Address, rcpts int) {
	s := p.s
	room := 1
	if pipelined {
		room = len(p.addrs)
		if p.ask.Depth > 0 {
			room = min(room, p.ask.Depth)
		}
	}
	if left := p.ask.RefusedMax - p.refused; p.ask.RefusedMax > 0 && room > left {
		room = left
	}
	rest := p.addrs[len(p.answers):]
	for i, a := range rest {
		if rcpts == room {
			return rest[:i], rcpts
		}
		if s.unaskable(a) != nil {
			continue
		}
		if rcpts > 0 && len(s.out)+len(a.Local)+len(a.Domain)+len("RCPT TO:<@>\r\n") > groupBytes {
			return rest[:i], rcpts
		}
		s.out = append(s.out, "RCPT TO:<"...)
		s.out = append(s.out, a.Local...)
		s.out = append(s.out, '@')
		s.put(a.Domain, ">")
		s.rcpts++
		rcpts++
	}
	return rest, rcpts
}

// lead reads the replies to RSET and MAIL at the head of a group. When MAIL was
// refused the replies to its RCPTs are read and dropped, to stay in step.
func (p *probe) lead(ctx context.Context, reset bool, rcpts int) error {
	s := p.s
	if reset {
		reply, err := s.receive(ctx, StageRset)
		if err != nil {
			return err
		}
		if !reply.Accepted() { // RFC 5321 §4.1.1.5 knows no refusal
			return s.refuse(StageRset, reply)
		}
	}
	reply, err := s.receive(ctx, StageMail)
	if err != nil {
		return err
	}
	refusal := s.mailDone(reply)
	if refusal == nil {
		return nil
	}
	for range rcpts {
		if !s.open {
			break
		}
		_, _ = s.receive(ctx, StageMail) // an error ends the session; the refusal says more
	}
	return refusal
}

// collect reads the replies to the RCPTs of batch.
func (p *probe) collect(ctx context.Context, batch []Address, sent time.Time) error {
	s := p.s
	for _, a := range batch {
		if err := s.unaskable(a); err != nil {
			p.add(Answer{Err: err})
			continue
		}
		reply, err := s.in.read()
		if err != nil {
			return s.fail(StageRcpt, s.cause(ctx, err))
		}
		s.traceHeard(reply, a)
		if reply.Permanent() {
			p.refused++
			s.refused++
		}
		p.add(Answer{Reply: reply, Sent: sent, At: time.Now()})
		if reply.Code == 421 { // RFC 5321 §3.8
			p.stopped = true
			s.Close()
			return nil
		}
		if p.ask.Stop != nil && !p.stopped {
			p.stopped = p.ask.Stop(a, reply)
		}
	}
	p.stopped = p.stopped || (p.ask.RefusedMax > 0 && p.refused >= p.ask.RefusedMax)
	return nil
}

// add keeps an answer, unless the probe has stopped before it.
func (p *probe) add(a Answer) {
	if !p.stopped {
		p.answers = append(p.answers, a)
	}
}

// putMail puts MAIL; with SMTPUTF8 only when an address needs it (RFC 6531 §3.4).
func (p *probe) putMail() {
	p.s.out = append(p.s.out, "MAIL FROM:<"...)
	if p.wide {
		p.s.put(p.s.options.ReturnPath, "> SMTPUTF8")
		return
	}
	p.s.put(p.s.options.ReturnPath, ">")
}

// mailDone takes the reply to MAIL. A refusal leaves the session open.
func (s *Session) mailDone(reply Reply) error {
	s.transaction = reply.Accepted()
	if !reply.Accepted() && !reply.Temporary() && !reply.Permanent() {
		return s.fail(StageMail, ErrProtocol)
	}
	if !reply.Accepted() {
		return &Failure{Stage: StageMail, Reply: reply, Source: s.source}
	}
	return nil
}
