package smtp

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Answer is the result of asking for one address.
type Answer struct {
	Reply Reply     // to RCPT; Code is 0 when Err is set
	Err   error     // why the address was not asked: ErrNoSMTPUTF8 or ErrMalformed
	Nth   int       // position of the RCPT in its transaction, from 1; 0 when Err is set
	Sent  time.Time // when the command, or its group, was written
	At    time.Time // when the reply had come

	// Led is the longer time of the replies to RSET and MAIL right before this RCPT; 0 if there were none.
	Led time.Duration
}

// Ask has the options of a Probe.
type Ask struct {
	// Pipelining allows groups of commands (RFC 2920) if the receiver offers it.
	Pipelining bool

	// Depth bounds the RCPT commands of a group; 0 means as many as fit.
	Depth int

	// PerTransaction bounds the RCPT commands of a transaction; 0 means the limit that every receiver accepts. A
	// group may hold several transactions, and a transaction may span several Probes.
	PerTransaction int

	// Sizes is called before each group and returns new values for PerTransaction and Depth. Nil: they stay.
	Sizes func() (perTransaction, depth int)

	// RefusedMax is the number of 5xx replies to RCPT after which the probe stops; 0 means never. No group is larger
	// than the remaining number.
	RefusedMax int

	// Doubt is set if the receiver may repeat a refusal for the next, existing address of the transaction. Until an
	// address was accepted right after a refused one, we doubt two refusals in a row: we ask for the second address
	// again, in its own transaction, and then also for each address that follows a refusal.
	Doubt bool

	// Stop is called with each reply, in order; true stops the probe after what was already sent. May be nil.
	Stop func(Address, Reply) bool

	// Hold is called right before each command or group is sent; true stops the probe before it. May be nil.
	Hold func() bool

	// Room holds the answers if it is large enough.
	Room []Answer
}

const (
	// groupBytes bounds the bytes written before replies are read. They fit into the smallest socket buffers of both
	// sides, so that the two sides never wait for each other (RFC 2920 §3.1).
	groupBytes = 4096

	// groupRcpts bounds the RCPT commands of a group: if the receiver refuses our source in the middle of a group, the
	// rest of the group is already sent.
	groupRcpts = 64
)

// Probe asks for each address, in transactions of the size in ask: first in the open one, then with RSET, MAIL and
// RCPT. It never sends DATA, and leaves the last transaction open.
//
// The answers are for a prefix of addrs. It stops early as ask says, and after a 421, which is the last answer. The
// remaining addresses were not asked, except those in the same group behind a stop or a refused MAIL, whose replies
// were dropped.
//
// The error is a *Failure, and the answers before it are valid. With ErrOutOfStep there are no answers, because no
// reply certainly belongs to its RCPT. With StageMail and a Reply other than 421 the session may continue (Open);
// otherwise it is over. After a 421 to RCPT it is over without an error.
//
// When ctx is done the session is over; an error is then ctx's cause.
func (s *Session) Probe(ctx context.Context, addrs []Address, ask Ask) ([]Answer, error) {
	if !s.open {
		return nil, &Failure{Stage: StageMail, Err: ErrClosed, Source: s.source}
	}
	p := probe{s: s, ask: ask, addrs: addrs, answers: slices.Grow(ask.Room[:0], len(addrs))[:len(addrs)]}
	clear(p.answers)
	p.choose()
	first := s.counts.Rcpts == 0
	stop := s.enter(ctx)
	err := p.run(ctx)
	if first && s.counts.Rcpts > 0 && err == nil && s.open && s.talksAhead(ctx) {
		err = s.fail(StageRcpt, ErrOutOfStep)
	}
	if errors.Is(err, ErrOutOfStep) {
		p.done = 0 // a reply may have been sent before its RCPT
	}
	s.leave(stop)
	return p.answers[:p.done], err
}

// grant widens the session's limits to that many addresses in all. An unused grant stays for the next address.
func (s *Session) grant(addresses int) {
	if more := addresses - s.granted; more > 0 {
		s.granted = addresses
		s.end = s.end.Add(time.Duration(more) * s.options.Limits.SessionMore)
		s.in.left += more * s.options.Limits.SessionMoreBytes
	}
}

// unaskable returns why a cannot be asked in this session, or nil.
func (s *Session) unaskable(a Address) error {
	if len(a.Local) > 64 || len(a.Domain) > 255 || a.Local == "" || a.Domain == "" { // RFC 5321 §4.5.3.1
		return ErrMalformed
	}
	for i := 0; i < len(a.Domain); i++ {
		if c := a.Domain[i]; c <= ' ' || c > '~' || c == '<' || c == '>' || c == '@' {
			return ErrMalformed
		}
	}
	for i := 0; i < len(a.Local); i++ {
		if a.Local[i] < ' ' || a.Local[i] == 0x7f {
			return ErrMalformed
		}
	}
	if !a.ASCII() && !s.offers.smtputf8 {
		return ErrNoSMTPUTF8
	}
	return nil
}

type probe struct {
	s       *Session
	ask     Ask
	addrs   []Address
	answers []Answer      // for each address; Err is known from the start
	done    int           // number of answered addresses
	wide    bool          // one of them needs SMTPUTF8
	heard   time.Time     // time of the newest reply, or of sending its group
	slowest time.Duration // see Answer.Led
	refused int
	stopped bool
	dropped bool // the remaining replies of the group are ignored
}

// choose finds the addresses that can be asked, and whether one needs SMTPUTF8.
func (p *probe) choose() {
	for i, a := range p.addrs {
		if p.answers[i].Err = p.s.unaskable(a); p.answers[i].Err == nil {
			p.wide = p.wide || !a.ASCII()
		}
	}
	if p.wide { // the open transaction may be without SMTPUTF8
		p.s.mail.sent = math.MaxInt
	}
}

// transactionMax returns the limit of RCPTs in a transaction. Exim's default configuration refuses RCPTs after the
// tenth while fewer than half were accepted (configure.default, acl_check_rcpt).
func (p *probe) transactionMax() int {
	most := max(10, 2*p.s.mail.accepted)
	if p.ask.PerTransaction > 0 {
		return min(most, p.ask.PerTransaction)
	}
	return most
}

// skip moves on to the next address that can be asked.
func (p *probe) skip() {
	for p.done < len(p.addrs) && p.answers[p.done].Err != nil {
		p.done++
	}
}

func (p *probe) run(ctx context.Context) error {
	for p.skip(); p.done < len(p.addrs) && !p.stopped && p.s.open; p.skip() {
		if p.ask.Hold != nil && p.ask.Hold() {
			return nil
		}
		if p.ask.Sizes != nil {
			p.ask.PerTransaction, p.ask.Depth = p.ask.Sizes()
		}
		p.s.out, p.s.due = p.s.out[:0], p.s.due[:0]
		p.dropped = false
		if p.ask.Pipelining && p.s.offers.pipelining {
			p.fill()
		} else {
			p.put(p.done, p.s.mail.open)
		}
		if err := p.group(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the next group: as many RCPTs as allowed, and the commands that open their transactions.
func (p *probe) fill() {
	left, open := groupRcpts, p.s.mail.open
	if p.ask.Depth > 0 {
		left = min(left, p.ask.Depth)
	}
	if p.asksAlone() {
		left = 1
	}
	if p.ask.RefusedMax > 0 {
		left = min(left, p.ask.RefusedMax-p.refused)
	}
	lead := len("RSET\r\nMAIL FROM:<> SMTPUTF8\r\n") + len(p.s.options.ReturnPath)
	for i := p.done; i < len(p.addrs) && left > 0; i++ {
		if p.answers[i].Err != nil {
			continue
		}
		a := &p.addrs[i]
		size := lead + len(a.Local) + len(a.Domain) + len("RCPT TO:<@>\r\n")
		if len(p.s.out) > 0 && len(p.s.out)+size > groupBytes {
			return
		}
		for p.put(i, open) != StageRcpt {
			open = !open
		}
		left--
	}
}

// put puts the next command for the address at i and returns its stage: RSET, MAIL or, in an open transaction with
// room, RCPT.
func (p *probe) put(i int, open bool) Stage {
	s, a := p.s, &p.addrs[i]
	stage := StageRcpt
	switch {
	case open && s.mail.sent < p.transactionMax():
		s.out = append(s.out, "RCPT TO:<"...)
		s.out = append(s.out, a.Local...)
		s.out = append(s.out, '@')
		s.put(a.Domain, ">")
		s.counts.Rcpts++
		s.mail.sent++
		s.grant(s.counts.Rcpts)
	case open:
		stage = StageRset
		s.put("RSET", "")
		s.grant(s.counts.Rcpts + 1)
	default:
		stage = StageMail
		s.mail.sent, s.mail.accepted = 0, 0
		p.putMail(i)
		s.counts.Mails++
		s.grant(s.counts.Rcpts + 1)
	}
	s.due = append(s.due, stage)
	return stage
}

// putMail appends the MAIL of a transaction that begins with the address at i. It uses SMTPUTF8 only if one of the
// transaction's addresses needs it (RFC 6531 §3.4).
func (p *probe) putMail(i int) {
	p.s.out = append(p.s.out, "MAIL FROM:<"...)
	for room := p.transactionMax(); p.wide && i < len(p.addrs) && room > 0; i++ {
		if p.answers[i].Err != nil {
			continue
		}
		if !p.addrs[i].ASCII() {
			p.s.put(p.s.options.ReturnPath, "> SMTPUTF8")
			return
		}
		room--
	}
	p.s.put(p.s.options.ReturnPath, ">")
}

// group sends the commands and reads the replies in their order. After a refused MAIL it reads and drops the rest,
// to stay in step.
func (p *probe) group(ctx context.Context) error {
	s, limit := p.s, p.s.options.Limits.Mail
	if s.due[len(s.due)-1] == StageRcpt {
		limit = s.options.Limits.Rcpt
	}
	sent, err := s.send(ctx, s.due[0], limit)
	if err != nil {
		return err
	}
	p.heard = sent
	var refusal error
	for i, stage := range s.due {
		s.in.grouped = i < len(s.due)-1
		if i > 0 && s.in.empty() {
			_, err = s.arm(ctx, limit)
		}
		switch {
		case err != nil:
			err = s.fail(stage, s.cause(ctx, err))
		case stage == StageRcpt:
			err = p.answered(ctx, sent, refusal != nil || p.dropped)
		default:
			err = p.led(ctx, stage)
		}
		if err != nil && refusal == nil {
			refusal = err
		}
		if !s.open {
			break
		}
		err = nil
	}
	s.in.grouped = false
	p.stopped = p.stopped || (p.ask.RefusedMax > 0 && p.refused >= p.ask.RefusedMax)
	return refusal
}

// led reads the reply to a RSET or a MAIL.
func (p *probe) led(ctx context.Context, stage Stage) error {
	reply, err := p.s.receive(ctx, stage)
	now := time.Now()
	p.slowest, p.heard = max(p.slowest, now.Sub(p.heard)), now
	switch {
	case err != nil:
		return err
	case stage == StageMail:
		p.s.mail.answered, p.s.mail.accepted, p.s.mail.refused = 0, 0, false
		return p.s.mailDone(reply)
	case !reply.Accepted(): // RFC 5321 §4.1.1.5: RSET is never refused
		return p.s.refuse(stage, reply)
	}
	p.s.mail.open = false
	return nil
}

func (p *probe) answered(ctx context.Context, sent time.Time, dropped bool) error {
	s := p.s
	reply, err := s.in.read()
	if err != nil {
		return s.fail(StageRcpt, s.cause(ctx, err))
	}
	if reply.Permanent() && s.mail.open { // else it is about the refused MAIL
		p.refused++
		s.counts.Refused++
	}
	if reply.Code == 421 { // RFC 5321 §3.8
		s.Close()
	}
	if dropped || p.isCarried(reply) {
		p.dropped = true
		return nil
	}
	p.skip()
	a := p.addrs[p.done]
	s.traceHeard(reply, a)
	if s.mail.answered++; reply.Accepted() {
		s.mail.accepted++
	}
	p.heard = time.Now()
	p.answers[p.done] = Answer{Reply: reply, Nth: s.mail.answered, Sent: sent, At: p.heard, Led: p.slowest}
	p.slowest = 0
	p.done++
	if s.open && p.ask.Stop != nil && p.ask.Stop(a, reply) {
		p.stopped = true
	}
	return nil
}

// refusals is what the session has shown about repeated refusals.
type refusals uint8

const (
	unproven refusals = iota
	single            // each refusal is for one address: an address was accepted right after a refused one
	inDoubt           // two refusals came in a row
)

// asksAlone reports whether each address gets its own group, and a refusal ends its transaction.
func (p *probe) asksAlone() bool { return p.ask.Doubt && p.s.mail.shown == inDoubt }

// isCarried reports whether a reply may repeat the refusal of an earlier address.
func (p *probe) isCarried(reply Reply) bool {
	s, behind := p.s, p.s.mail.refused
	switch {
	case reply.Accepted():
		if s.mail.refused = false; behind {
			s.mail.shown = single
		}
		return false
	case !reply.Permanent():
		return false
	}
	carried := p.ask.Doubt && behind && s.mail.shown == unproven
	if carried {
		s.mail.shown = inDoubt
	}
	if s.mail.refused = true; p.asksAlone() {
		s.mail.sent = math.MaxInt // the next RCPT begins a transaction
	}
	return carried
}

// mailDone notes the reply to MAIL. A refusal leaves the session open.
func (s *Session) mailDone(reply Reply) error {
	s.mail.open = reply.Accepted()
	if !reply.Accepted() && !reply.Temporary() && !reply.Permanent() {
		return s.fail(StageMail, ErrProtocol)
	}
	if !reply.Accepted() {
		return &Failure{Stage: StageMail, Reply: reply, Source: s.source}
	}
	return nil
}
