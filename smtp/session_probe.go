package smtp

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// Answer is what came of asking one address.
type Answer struct {
	Reply Reply     // to RCPT; Code is 0 when Err is set
	Err   error     // why the address was not asked: ErrNoSMTPUTF8 or ErrMalformed
	Nth   int       // which RCPT of its transaction it was, from 1; 0 when Err is set
	Sent  time.Time // when the command, or its group, was written
	At    time.Time // when the reply was there

	// Led is how long the slower one of the replies to RSET and MAIL took that came right before it, 0 where none did.
	Led time.Duration
}

// Ask is how a Probe goes about its addresses.
type Ask struct {
	// Pipelining lets commands go in groups (RFC 2920) where the receiver offers it.
	Pipelining bool

	// Depth bounds the RCPT commands of such a group; 0 means as many as fit.
	Depth int

	// PerTransaction bounds the RCPT commands of a transaction; 0 means as many as any bears.
	// A group may hold several transactions, and a transaction several Probes.
	PerTransaction int

	// Sizes is called before each group and gives PerTransaction and Depth anew, as the answers until
	// then allow. Nil: they stay.
	Sizes func() (perTransaction, depth int)

	// RefusedMax is after how many 5xx answers to RCPT the probe stops; 0 means
	// never. No group is larger than what is left of it.
	RefusedMax int

	// Doubt is set where a refusal may be said again to the next address of its transaction that exists. Until one was
	// accepted right behind a refused one, two refusals in a row aren't believed: the second address is asked again in
	// a transaction of its own, and so is each one from then on that follows a refusal.
	Doubt bool

	// Stop is called with each reply, in order; true stops the probe behind what was
	// sent already. May be nil.
	Stop func(Address, Reply) bool

	// Hold is called right before each command, or group of them, is sent; true stops
	// the probe before it. May be nil.
	Hold func() bool

	// Room is where the answers are put, if it is large enough.
	Room []Answer
}

const (
	// groupBytes is how much is written before replies are read: little enough that
	// both directions fit into the smallest socket buffers, so that nobody waits for
	// the other for ever (RFC 2920 §3.1).
	groupBytes = 4096

	// groupRcpts bounds the RCPT commands of a group: what stands behind a refusal of
	// us was sent already.
	groupRcpts = 64
)

// Probe asks for each address, in transactions of so many as Ask says: the one that is open, then RSET, MAIL and
// RCPT for each. It never sends DATA, and leaves the last one open.
//
// The answers are for a prefix of addrs: it stops early as Ask says, and after
// a 421, which is the last answer. The rest was not asked, but for what stood in a
// group behind that, or behind a refusal of MAIL; replies to it were dropped.
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
	p := probe{s: s, ask: ask, addrs: addrs, answers: slices.Grow(ask.Room[:0], len(addrs))[:len(addrs)]}
	clear(p.answers)
	p.survey()
	first := s.counts.Rcpts == 0
	stop := s.enter(ctx)
	err := p.run(ctx)
	if first && s.counts.Rcpts > 0 && err == nil && s.open && s.talksAhead(ctx) {
		err = s.fail(StageRcpt, ErrOutOfStep)
	}
	if errors.Is(err, ErrOutOfStep) {
		p.done = 0 // one of the answers may have been sent ahead of its RCPT
	}
	s.leave(stop)
	return p.answers[:p.done], err
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
	answers []Answer      // of each address; Err is known from the start
	done    int           // addresses that are answered
	wide    bool          // one of them needs SMTPUTF8
	heard   time.Time     // the newest reply, or when its group was sent
	slowest time.Duration // as Answer has it
	refused int
	stopped bool
	dropped bool // the answers to the rest of the group aren't believed
}

// survey looks which addresses can be asked, and what they need.
func (p *probe) survey() {
	for i, a := range p.addrs {
		if p.answers[i].Err = p.s.unaskable(a); p.answers[i].Err == nil {
			p.wide = p.wide || !a.ASCII()
		}
	}
	if p.wide { // what is open may have been opened without SMTPUTF8
		p.s.mail.sent = math.MaxInt
	}
}

// transactionMax returns how many RCPTs may go in a transaction. Exim as shipped refuses those after the tenth while
// fewer than half were accepted (configure.default, acl_check_rcpt).
func (p *probe) transactionMax() int {
	most := max(10, 2*p.s.mail.accepted)
	if p.ask.PerTransaction > 0 {
		return min(most, p.ask.PerTransaction)
	}
	return most
}

// skip goes on to the next address that can be asked.
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

// fill puts a group of commands for the next addresses: RCPT for as many as may go at
// once, and what opens a transaction before each that needs a new one.
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

// put puts the next command that the address at i needs, where open says whether a
// transaction is: RSET, MAIL or, in one that may have it, RCPT. It returns its stage.
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

// putMail puts MAIL; with SMTPUTF8 only when an address of its transaction, which begins
// with that at i, needs it (RFC 6531 §3.4).
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

// group sends what was put and reads the replies, in the order of the commands. When a
// MAIL was refused those behind it are read and dropped, to stay in step.
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
	case !reply.Accepted(): // RFC 5321 §4.1.1.5 knows no refusal
		return p.s.refuse(stage, reply)
	}
	p.s.mail.open = false
	return nil
}

// answered reads the reply to a RCPT.
func (p *probe) answered(ctx context.Context, sent time.Time, dropped bool) error {
	s := p.s
	reply, err := s.in.read()
	if err != nil {
		return s.fail(StageRcpt, s.cause(ctx, err))
	}
	if reply.Permanent() && s.mail.open { // else it is about the MAIL that was refused
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

// refusals says what a session has shown of its refusals.
type refusals uint8

const (
	unproven refusals = iota
	single            // they are for one address: one was accepted right behind a refused one
	inDoubt           // two came in a row
)

// asksAlone reports whether each address goes in a group of its own, and a refused one ends its transaction.
func (p *probe) asksAlone() bool { return p.ask.Doubt && p.s.mail.shown == inDoubt }

// isCarried reports whether a reply may be the refusal of an address before it.
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

// mailDone takes the reply to MAIL. A refusal leaves the session open.
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
