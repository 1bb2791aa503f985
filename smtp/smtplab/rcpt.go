package smtplab

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/smtp"
)

// rcpt answers one probe (RFC 5321 §4.1.1.3).
func (s *session) rcpt(rest []byte) error {
	now := time.Now()
	s.rcpts++
	address, _, ok := cutPath(rest, "TO:")
	if !s.tx.open {
		s.noteRcpt(now, address, 503)
		if s.tx.refused && s.extended { // it was pipelined after a refused MAIL (RFC 2920)
			s.errors++
			s.say(&s.p.words.order)
			return nil
		}
		return s.fault(&s.p.words.order)
	}
	s.tx.rcpts++
	if ok {
		s.lab.manners.address(address)
	}
	if s.breaksAt(smtp.StageRcpt) {
		s.noteRcpt(now, address, 0)
		return s.breakNow()
	}
	if !ok {
		s.noteRcpt(now, address, 501)
		return s.fault(&s.p.words.address)
	}
	reply, wait, end := s.judge(address, now)
	if reply.code/100 == 5 {
		s.refused++
		s.row++
	}
	guarded := s.guarded
	s.guarded = false
	if s.p.Guard != GuardNone && !guarded { // a refusal by the guard does not trip it again
		s.host.receiver.memory.noteAnswer(s.client, reply.code/100 == 5, now)
	}
	if reply.code/100 != 2 {
		s.errors++
		if !guarded {
			var over bool
			reply, over = s.guardAfter(reply, now)
			end = end || over
		}
	} else {
		s.tx.good++
		s.row = 0
	}
	s.noteRcpt(now, address, reply.code)
	if reply == &s.p.words.mailboxes[Cut] {
		return s.finish()
	}
	if reply.code/100 == 5 && !s.lab.wait(s.lab.lasts(s.p.RefusalDelay)) {
		return errEnd
	}
	s.sayOf(reply, address, wait)
	switch {
	case s.p.breaksBehind(smtp.StageRcpt):
		return s.breakBehind(reply)
	case end:
		return s.finish()
	}
	return nil
}

func (s *session) noteRcpt(now time.Time, address []byte, code int) {
	figures := sessionFigures{rcpts: s.rcpts, rcptsInTx: s.tx.rcpts, refused: s.refused}
	for _, t := range s.host.tallies {
		t.rcpt(now, code, figures)
	}
	if s.lab.options.EventsMax > 0 {
		s.event("rcpt", string(address), code)
	}
}

// who identifies the client for greylisting. Guards use only the address.
func (s *session) who() string { return s.client + " " + s.tx.from }

// judge returns the reply to a probe: first limits, then general replies, then the mailbox. end asks to end the
// session after it.
func (s *session) judge(address []byte, now time.Time) (reply *phrase, wait time.Duration, end bool) {
	p, words := s.p, s.p.words
	if reply, end := s.limits(now); reply != nil {
		s.host.tallies.limitHit()
		return reply, 0, end
	}
	at := bytes.LastIndexByte(address, '@')
	if at <= 0 {
		return &words.address, 0, false
	}
	local, domain := address[:at], address[at+1:]
	switch {
	case words.any.said():
		return &words.any, 0, words.any.code == 421
	case words.first.said() && strings.HasPrefix(s.host.name, "mx1."):
		return &words.first, 0, words.first.code == 421
	case !s.serves(domain):
		return &words.relay, 0, false
	case !s.tx.utf8 && !ascii(local):
		return &words.utf8, 0, false
	}
	if p.Greylist {
		if reply, wait := s.greylist(address, now); reply != nil {
			return reply, wait, false
		}
	}
	if reply, end := s.guardBefore(now); reply != nil {
		return reply, 0, end
	}
	if p.CatchAll || p.BackupAll && s.atBackup() {
		return &words.mailboxes[Exists], 0, false
	}
	kind := mailboxOf(local)
	if kind == Grey {
		g := greylistRule{wait: s.lab.options.GreylistWait, always: true}
		if left, _ := s.host.receiver.memory.greylist(s.who(), string(address), g, now); left <= 0 {
			kind = Exists
		}
	}
	return &words.mailboxes[kind], 0, kind == Closing || kind == Cut
}

// limits reports whether a limit on RCPTs applies.
func (s *session) limits(now time.Time) (reply *phrase, end bool) {
	if reply := s.limitOn(false, now); reply != nil {
		return reply, reply.code == 421
	}
	p := s.p
	switch {
	case p.RcptsPerSession > 0 && s.rcpts > p.RcptsPerSession:
		return &p.words.crowded, true
	case p.RcptsPerTx > 0 && s.tx.rcpts > p.RcptsPerTx:
		return &p.words.limit, false
	case p.RcptsPerSecond > 0 && s.host.receiver.memory.rateLimited(p.RcptsPerSecond, now):
		return &p.words.limit, false
	}
	return nil, false
}

// postgreyWait is Postgrey's default.
const postgreyWait = 300 * time.Second

func (s *session) greylist(address []byte, now time.Time) (reply *phrase, wait time.Duration) {
	memory := &s.host.receiver.memory
	if s.p.PerVisit {
		if memory.firstContact(s.client, s.visit) {
			return &s.p.words.greylist, 0
		}
		return nil, 0
	}
	who, wait := s.who(), s.lab.options.GreylistWait
	if s.p.GreylistHello {
		who += " " + s.hello
	}
	if s.p.GreylistWait > 0 {
		wait = max(1, time.Duration(float64(wait)*s.p.GreylistWait.Seconds()/postgreyWait.Seconds()))
	}
	left, known := memory.greylist(who, string(address), greylistRule{wait, s.p.GreylistEarly, s.p.GreylistAlways}, now)
	if left <= 0 {
		return nil, 0
	}
	if known && (s.p.words.statesWait || s.p.GreylistEarly) {
		s.host.tallies.count(func(t *Tally) { t.TooEarly++ })
	}
	return &s.p.words.greylist, left
}

// serves reports whether this host takes mail for domain.
func (s *session) serves(domain []byte) bool {
	own := s.host.receiver.name
	if n := len(domain) - len(own); n >= 0 && strings.EqualFold(string(domain[n:]), own) &&
		(n == 0 || domain[n-1] == '.') {
		return true
	}
	if s.lastOK == string(domain) {
		return true
	}
	name, err := canonical(string(domain))
	if err != nil {
		return false
	}
	s.lab.mu.Lock()
	defer s.lab.mu.Unlock()
	_, p, a := s.lab.owner(name)
	shared := p != nil && p.DNS == OnlyIPv6 && p == s.host.receiver.persona
	if !shared && (a == nil || !a.mx[s.host.name]) {
		return false
	}
	s.lastOK = string(domain)
	return true
}

func ascii(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
}
