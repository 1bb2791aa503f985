package smtplab

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/smtp"
)

// The usual replies, in Postfix's common form.
const (
	wordsGreeting = "220 {host} ESMTP ready"
	wordsRelay    = "550 5.7.1 <{address}>: Relay access denied"
	wordsLimit    = "452 4.5.3 Too many recipients"
	wordsGuard    = "421 4.7.0 {host} Error: too many errors"
	wordsGreylist = "451 4.7.1 Greylisted, please try again in {wait} seconds"
	wordsBlocked  = "554 5.7.1 Service unavailable; client [{client}] blocked using zen.test"
	wordsExcess   = "553 5.7.1 Excessive unknown recipients - possible Open Relay"
	wordsTx       = "550 5.1.0 Too many bad transactions, bye"
	wordsCrowded  = "421 4.7.0 {host} Too many connections, try again later"
)

// The replies of a session that do not depend on a personality.
const (
	wordsOK         = "250 2.0.0 Ok"
	wordsMailOK     = "250 2.1.0 Ok"
	wordsBye        = "221 2.0.0 Bye"
	wordsOrder      = "503 5.5.1 Bad sequence of commands"
	wordsSyntax     = "501 5.5.4 Syntax error in parameters"
	wordsAddress    = "501 5.1.3 Bad recipient address syntax"
	wordsUTF8       = "553 5.6.7 Non-ASCII address without SMTPUTF8"
	wordsUnknown    = "502 5.5.2 Command not recognized"
	wordsLong       = "500 5.5.6 Line too long"
	wordsNoData     = "554 5.5.1 No message is taken here"
	wordsNeedTLS    = "530 5.7.0 Must issue a STARTTLS command first"
	wordsTLSReady   = "220 2.0.0 Ready to start TLS"
	wordsTLSRefused = "454 4.7.0 TLS not available due to local problem"
	wordsIdle       = "421 4.4.2 {host} Timeout exceeded"
)

var wordsMailboxes = [MailboxKinds]string{
	NotFound:   "550 5.1.1 <{address}>: Recipient address rejected: User unknown in local recipient table",
	Exists:     "250 2.1.5 Ok",
	Disabled:   "550 5.2.1 The mailbox is disabled, not accepting messages",
	Full:       "552 5.2.2 The mailbox is over quota",
	OverQuota:  "452 4.2.2 The mailbox is over quota",
	Restricted: "550 5.7.2 Only members may post to this list",
	Busy:       "450 4.2.1 The user is receiving mail too quickly, try again later",
	Grey:       "451 4.7.1 Greylisted, please try again later",
	Deferred:   "451 4.3.0 Temporary lookup failure",
	Refused:    "550 5.7.1 Message refused by policy",
	Cut:        "-", // never sent
	Closing:    "421 4.2.1 Try again later, closing connection",
}

// filled returns w with the usual replies for its empty fields.
func (w Words) filled() Words {
	set := func(s *string, usual string) {
		if *s == "" {
			*s = usual
		}
	}
	set(&w.Greeting, wordsGreeting)
	set(&w.Blocked, wordsBlocked)
	set(&w.NeedTLS, wordsNeedTLS)
	set(&w.Crowded, wordsCrowded)
	set(&w.Greylist, wordsGreylist)
	set(&w.Relay, wordsRelay)
	set(&w.Limit, wordsLimit)
	set(&w.Guard, wordsGuard)
	for i := range w.Mailboxes {
		set(&w.Mailboxes[i], wordsMailboxes[i])
	}
	return w
}

var enhancedCode = regexp.MustCompile(`(?m)^(\d{3}[ -])\d\.\d{1,3}\.\d{1,3} `)

// phrase is one reply, ready to send.
type phrase struct {
	bytes []byte // with line ends; the whole reply when plain
	plain bool   // without placeholders
	code  int    // the reply code of its last line; 0 when it has none
}

func (p *phrase) said() bool { return len(p.bytes) > 0 }

// phraseOf returns text in wire form, with the line ends and codes of p.
func phraseOf(p *Personality, text string) phrase {
	if text == "" {
		return phrase{}
	}
	if p.NoEnhanced {
		text = enhancedCode.ReplaceAllString(text, "$1")
	}
	last := text[strings.LastIndexByte(text, '\n')+1:]
	code, _ := strconv.Atoi(last[:min(3, len(last))])
	end := "\r\n"
	switch {
	case p.BareLF:
		end = "\n"
	case p.BareCR:
		end = "\r"
	}
	text = strings.ReplaceAll(text, "\n", end) + end
	return phrase{bytes: []byte(text), plain: !strings.Contains(text, "{"), code: code}
}

// vocabulary is every prepared reply of a personality.
type vocabulary struct {
	greeting, refuseHello, refuseEHLO, refuseMail, any phrase
	greylist, relay, limit, guard, crowded             phrase
	blocked, first, excess, refuseTx                   phrase
	ok, mailOK, bye, order, syntax, address            phrase
	utf8, unknown, long, noData, needTLS, idle         phrase
	tlsReady, tlsRefused                               phrase
	hello, helloTLS, helo                              phrase
	mailboxes                                          [MailboxKinds]phrase

	statesWait bool // the greylisting reply names the wait
}

func vocabularyOf(p *Personality) *vocabulary {
	w := p.Words.filled()
	say := func(text string) phrase { return phraseOf(p, text) }
	v := &vocabulary{
		greeting: say(w.Greeting), refuseHello: say(w.Hello), refuseEHLO: say(w.EHLO), refuseMail: say(w.Mail), any: say(w.Any),
		greylist: say(w.Greylist), relay: say(w.Relay), limit: say(w.Limit), guard: say(w.Guard),
		crowded: say(w.Crowded), blocked: say(w.Blocked), first: say(w.First),
		excess: say(wordsExcess), refuseTx: say(wordsTx), ok: say(wordsOK), mailOK: say(wordsMailOK),
		bye:   say(wordsBye),
		order: say(wordsOrder), syntax: say(wordsSyntax), address: say(wordsAddress), utf8: say(wordsUTF8),
		unknown: say(wordsUnknown), long: say(wordsLong), noData: say(wordsNoData),
		needTLS: say(w.NeedTLS), idle: say(wordsIdle), tlsReady: say(wordsTLSReady),
		tlsRefused: say(wordsTLSRefused), helo: say("250 {host}"),
		helloTLS: say(helloText(p, p.TLS == TLSAgain)),
		hello:    say(helloText(p, p.TLS != TLSNone)),
	}
	v.statesWait = strings.Contains(w.Greylist, "{wait}")
	for i := range v.mailboxes {
		v.mailboxes[i] = say(w.Mailboxes[i])
	}
	return v
}

// helloText is the reply to EHLO (RFC 5321 §4.1.1.1).
func helloText(p *Personality, startTLS bool) string {
	lines := []string{"{host} greets {hello}", "SIZE 35651584", "8BITMIME"}
	if !p.NoEnhanced {
		lines = append(lines, "ENHANCEDSTATUSCODES")
	}
	if p.Pipelining {
		lines = append(lines, "PIPELINING")
	}
	if p.UTF8 {
		lines = append(lines, "SMTPUTF8")
	}
	if p.Words.Extra != "" {
		lines = append(lines, strings.Split(p.Words.Extra, "\n")...)
	}
	if startTLS {
		lines = append(lines, "STARTTLS")
	}
	return "250-" + strings.Join(lines[:len(lines)-1], "\n250-") + "\n250 " + lines[len(lines)-1]
}

// endlessMax bounds an endless reply, so that a client without limits fails its test and does not break the machine.
const endlessMax = 64 << 20

// garbage is the reply of a server that does not speak SMTP.
const garbage = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"

// breaksAt reports whether the receiver breaks at this stage of this session instead of replying.
func (s *session) breaksAt(stage smtp.Stage) bool {
	return s.p.Break != BreakNone && s.p.Break < BreakEarly && s.p.BreakAt == stage &&
		(!s.p.BreakEveryOther || s.visit%2 == 1) && (!s.p.BackupAll || s.visit > 1 && !s.atBackup())
}

// atBackup reports whether the host is the second one.
func (s *session) atBackup() bool { return strings.HasPrefix(s.host.name, "mx2.") }

// breaksBehind reports the same for breaks that come after the reply.
func (p *persona) breaksBehind(stage smtp.Stage) bool {
	return p.Break >= BreakEarly && p.BreakAt == stage
}

// breakBehind carries out Personality.Break after reply.
func (s *session) breakBehind(reply *phrase) error {
	switch s.p.Break {
	case BreakEarly:
		if err := s.link.flush(s.lab, s.p); err != nil {
			return err
		}
		s.link.out = append(s.link.out, s.p.BreakWords...)
		return s.link.flush(s.lab, s.p)
	case BreakTwice:
		contrary := contraryNo
		if reply.code/100 != 2 {
			contrary = contraryYes
		}
		s.link.out = append(s.link.out, contrary...)
		return nil
	}
	s.link.out = append(s.link.out, s.p.BreakWords...)
	return s.finish()
}

// The second replies of BreakTwice.
const (
	contraryYes = "250 2.1.5 Ok\r\n"
	contraryNo  = "550 5.1.1 User unknown\r\n"
)

// breakNow carries out Personality.Break.
func (s *session) breakNow() error {
	if err := s.link.flush(s.lab, s.p); err != nil {
		return err
	}
	switch s.p.Break {
	case BreakSilent:
		return s.stall()
	case BreakDrop:
		return s.finish()
	case BreakReset:
		s.reset()
	case BreakEndless:
		return s.endless([]byte(s.p.stageCode() + "-still more to say\r\n"))
	case BreakLine:
		return s.endless([]byte(s.p.stageCode() + "-and so on "))
	case BreakGarbage:
		s.link.out = append(s.link.out, garbage...)
		return s.finish()
	case BreakSay:
		s.link.out = append(s.link.out, s.p.BreakWords...)
		return s.finish()
	case BreakSayReset:
		s.link.out = append(s.link.out, s.p.BreakWords...)
		if err := s.link.flush(s.lab, s.p); err != nil {
			return err
		}
		s.reset()
	case BreakHalf:
		s.link.closeWrite()
		return s.stall()
	case BreakEcho:
		_, _ = io.CopyN(s.link.conn, s.link.in, endlessMax)
		s.leave()
	case BreakWindow:
		s.closeWindow()
	}
	return errEnd
}

// stageCode returns the usual reply code at Personality.BreakAt.
func (p *persona) stageCode() string {
	if p.BreakAt == smtp.StageGreeting || p.BreakAt == smtp.StageTLS {
		return "220"
	}
	return "250"
}

// reset makes the session end with a reset of the connection.
func (s *session) reset() {
	s.leave()
	if tcp, ok := s.link.under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// closeWindow reads nothing until the client leaves or idleMax is over. It uses a small system buffer, so that the
// TCP window closes after a few KiB.
func (s *session) closeWindow() {
	if tcp, ok := s.link.under.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(1)
	}
	for end := time.Now().Add(idleMax); time.Now().Before(end) && !clientLeft(s.link.under); {
		if !s.lab.wait(windowPause) {
			break
		}
	}
	s.leave()
}

// windowPause is how often closeWindow checks for the client; guess.
const windowPause = 100 * time.Millisecond

// stall sends nothing and reads until the client leaves or idleMax is over.
func (s *session) stall() error {
	_ = s.link.conn.SetReadDeadline(time.Now().Add(idleMax))
	_, _ = io.Copy(io.Discard, s.link.in)
	s.leave()
	return errEnd
}

// endless sends a piece of a reply repeatedly.
func (s *session) endless(piece []byte) error {
	block := bytes.Repeat(piece, 4096/len(piece))
	for sent := 0; sent < endlessMax; sent += len(block) {
		if _, err := s.link.conn.Write(block); err != nil {
			break
		}
	}
	s.leave()
	return errEnd
}

// hostileFamily is the family of the behaviours that a client must survive, in clear.
const hostileFamily = "hostile"

// shownAt is the stage at which a hostile personality is seen to be one.
func (p *Personality) shownAt() smtp.Stage { return cmp.Or(p.Shows, p.BreakAt) }

// afterSTARTTLS returns the second personality of a hostile one, with "tls" behind its name. It refuses MAIL before
// STARTTLS and behaves well until after the handshake; a behaviour at the greeting then comes right after it. If the
// behaviour is about STARTTLS itself, the second only requires TLS.
func afterSTARTTLS(clear Personality) Personality {
	p := clear
	if clear.shownAt() == smtp.StageTLS {
		p.NeedsTLS = true
		if p.TLS == TLSRefused || p.TLS == TLSNone || p.BreakAt == smtp.StageTLS {
			p.Fixed = smtp.Unknown
		}
	} else {
		p = Personality{TLS: TLSSelfSigned, NeedsTLS: true, AfterTLS: &clear, Shows: clear.Shows,
			Fixed: clear.Fixed, Also: clear.Also, Reasons: clear.Reasons, Hard: clear.Hard,
			NoEnhanced: clear.NoEnhanced, UTF8: clear.UTF8}
	}
	p.Name, p.About, p.Family = clear.Name+"tls", clear.About+", after STARTTLS", hostileFamily+"tls"
	return p
}

// longTexts puts the texts that are too long for a line into those of personalities.txt.
var longTexts = sync.OnceValue(func() *strings.Replacer {
	extensions := make([]string, 10_000)
	for i := range extensions {
		extensions[i] = fmt.Sprintf("X-FEATURE-%d", i)
	}
	return strings.NewReplacer("{extensions}", strings.Join(extensions, "\n"), "{long}", strings.Repeat("LONG", 1<<10),
		"{refusal}", longRefusal(), "{nonsense}", nonsense())
})

// longRefusal has 60 lines of a KiB each.
func longRefusal() string {
	const lines, bytes = 60, 1 << 10
	line := "5.1.1 User unknown "
	line += strings.Repeat("x", bytes-len("550-")-len(line)-len("\r\n"))
	return strings.Repeat("550-"+line+"\n", lines-1) + "550 " + line
}

// nonsense is 4 KiB of fixed, meaningless text.
var nonsense = sync.OnceValue(func() string {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, 4<<10)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return string(out)
})
