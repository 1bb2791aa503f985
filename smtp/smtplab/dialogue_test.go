package smtplab

import (
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"rollcall/config/effort"
)

// play follows a script on a connection: "> text" sends a line, "< text" reads one reply and compares its beginning
// ("\n" between lines is " / "), "< EOF" and "< RST" want the connection to end, "TLS" makes a handshake.
func (w *wire) play(script string) {
	w.t.Helper()
	for step := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		step = strings.TrimSpace(step)
		switch {
		case step == "":
		case strings.HasPrefix(step, "> "):
			w.send(step[2:] + "\r\n")
		case step == "< EOF" || step == "< RST":
			w.ends(step == "< RST")
		case step == "TLS":
			w.handshake()
		default:
			want := strings.ReplaceAll(strings.TrimPrefix(step, "< "), " / ", "\n")
			got := w.reply()
			effort.FatalIf(w.t, !strings.HasPrefix(got, want), "reply %q, want %q...", got, want)
		}
	}
}

func (w *wire) ends(reset bool) {
	w.t.Helper()
	rest, err := io.ReadAll(w.r)
	effort.FatalIf(w.t, len(rest) > 0, "read %q, want the end", rest)
	effort.MustBe(w.t, reset, errors.Is(err, syscall.ECONNRESET), "the end", err, "want a reset")
}

func (w *wire) handshake() {
	w.t.Helper()
	conn := tls.Client(w.conn, &tls.Config{InsecureSkipVerify: true})
	effort.OK(w.t, conn.Handshake())
	w.conn = conn
	w.r.Reset(conn)
}

const opening = `
	< 220
	> EHLO probe.example
	< 250
	> MAIL FROM:<postmaster@probe.example>
	< 250
`

// dialogues has one raw dialogue for each personality whose manner shows in one session.
var dialogues = []struct{ host, script string }{
	{"mx1.a-plain.test", opening + `
		> RCPT TO:<anna@a-plain.test>
		< 250 Ok
		> RCPT TO:<nobody@a-plain.test>
		< 550 <nobody@a-plain.test>: Recipient address rejected: User unknown
		> RCPT TO:<anna@elsewhere.test>
		< 550 <anna@elsewhere.test>: Relay access denied`},
	{"mx1.a-helo.test", `
		< 220
		> EHLO probe.example
		< 502
		> HELO probe.example
		< 250 mx1.a-helo.test
		> MAIL FROM:<>
		< 250
		> RCPT TO:<anna@a-helo.test>
		< 250`},
	{"mx1.a-exchange.test", opening + `
		> RCPT TO:<anna-smith@a-exchange.test>
		< 550 5.1.10 RESOLVER`},
	{"mx1.a-multiline.test", `
		< 220-mx1.a-multiline.test speaks to you, 127.0.0.1 / 220-Be kind / 220 ESMTP
		> HELO probe.example
		< 250
		> MAIL FROM:<>
		< 250
		> RCPT TO:<nobody@a-multiline.test>
		< 550-5.1.1 We sought nobody@a-multiline.test / 550-5.1.1 all over. / 550 5.1.1 User unknown`},
	{"mx1.a-chatty.test", opening + `
		> RCPT TO:<anna@a-chatty.test>
		< 250 2.1.5 Dear probe.example: <anna@a-chatty.test> is welcome`},
	{"mx1.a-formula.test", opening + `
		> RCPT TO:<ghost@a-formula.test>
		< 550 5.1.1 =HYPERLINK("http://evil.test/`},
	{"mx1.a-lying.test", opening + `
		> RCPT TO:<anna@a-lying.test>
		< 250 5.1.1
		> RCPT TO:<ghost@a-lying.test>
		< 550 2.1.5`},
	{"mx1.a-nonascii.test", opening + "> RCPT TO:<ghost@a-nonascii.test>\n< 550 5.1.1 Empf\xe4nger"},
	{"mx1.a-starttls.test", `
		< 220
		> EHLO probe.example
		< 250-mx1.a-starttls.test greets probe.example / 250-SIZE
		> STARTTLS
		< 220
		TLS
		> MAIL FROM:<>
		< 503
		> EHLO probe.example
		< 250-mx1
		> STARTTLS
		< 502
		> MAIL FROM:<>
		< 250
		> RCPT TO:<anna@a-starttls.test>
		< 250`},
	{"mx1.a-tlsonly.test", `
		< 220
		> EHLO probe.example
		< 250
		> MAIL FROM:<>
		< 530 5.7.0
		> STARTTLS
		< 220
		TLS
		> EHLO probe.example
		< 250
		> MAIL FROM:<>
		< 250`},
	{"mx1.a-tlsrefused.test", `
		< 220
		> EHLO probe.example
		< 250
		> STARTTLS
		< 454 4.7.0
		> MAIL FROM:<>
		< 250`},
	{"mx1.a-tlsbroken.test", `
		< 220
		> EHLO probe.example
		< 250
		> STARTTLS
		< 220
		< 221
		< EOF`},
	{"mx1.a-tlsinjected.test", `
		< 220
		> EHLO probe.example
		< 250
		> STARTTLS
		< 220
		< 250 2.0.0 Ok`},
	{"mx1.a-catchall.test", opening + `
		> RCPT TO:<qzx81hwe0vk3npd7@a-catchall.test>
		< 250`},
	{"mx1.a-cannotsay.test", opening + `
		> RCPT TO:<anna@a-cannotsay.test>
		< 252`},
	{"mx1.a-tempfail.test", opening + `
		> RCPT TO:<anna@a-tempfail.test>
		< 451 4.3.0`},
	{"mx1.a-norelay.test", opening + `
		> RCPT TO:<anna@a-norelay.test>
		< 550 5.7.1 <anna@a-norelay.test>: Relay access denied`},
	{"mx1.a-onercpt.test", opening + `
		> RCPT TO:<anna@a-onercpt.test>
		< 250
		> RCPT TO:<ben@a-onercpt.test>
		< 452 4.5.3
		> RSET
		< 250
		> MAIL FROM:<>
		< 250
		> RCPT TO:<ben@a-onercpt.test>
		< 250`},
	{"mx1.a-short.test", opening + strings.Repeat("> RCPT TO:<anna@a-short.test>\n< 250\n", 5) + `
		> RCPT TO:<anna@a-short.test>
		< 421
		< EOF`},
	{"mx1.a-chasquid.test", opening + strings.Repeat("> RCPT TO:<ghost@a-chasquid.test>\n< 550\n", 2) + `
		> RCPT TO:<ghost@a-chasquid.test>
		< 421 4.5.0
		< EOF`},
	{"mx1.a-exim.test", opening + strings.Repeat("> RCPT TO:<ghost@a-exim.test>\n< 550 Unrouteable\n", 10) + `
		> RCPT TO:<anna@a-exim.test>
		< 550 Too many bad recipients
		> RSET
		< 250
		> MAIL FROM:<>
		< 250
		> RCPT TO:<anna@a-exim.test>
		< 250`},
	{"mx1.a-cisco.test", opening + strings.Repeat("> RCPT TO:<ghost@a-cisco.test>\n< 550 5.1.1\n", 25) + `
		> RCPT TO:<anna@a-cisco.test>
		< 550 Too many invalid recipients
		< EOF`},
	{"mx1.a-blocked.test", `
		< 554 5.7.1 Service unavailable; client [127.0.0.1] blocked
		> EHLO probe.example
		< 503
		> QUIT
		< 221
		< EOF`},
	{"mx1.a-clean.test", opening + `
		> RCPT TO:<grey.ann@a-clean.test>
		< 451 4.7.1
		> RCPT TO:<deferred.ann@a-clean.test>
		< 451 4.3.0
		> RCPT TO:<refused@a-clean.test>
		< 550 5.7.1
		> RCPT TO:<closing@a-clean.test>
		< 421 4.2.1
		< EOF`},
	{"mx1.a-clean.test", opening + `
		> RCPT TO:<cut.ann@a-clean.test>
		< EOF`},
	{"mx1.a-policy.test", opening + `
		> RCPT TO:<anna@a-policy.test>
		< 550 5.7.1 Service unavailable`},
	{"mx1.a-badhello.test", `
		< 220
		> EHLO probe.example
		< 550 5.7.1 <probe.example>: Helo command rejected
		> MAIL FROM:<>
		< 503`},
	{"mx1.a-badsender.test", `
		< 220
		> EHLO probe.example
		< 250
		> MAIL FROM:<a@b.example>
		< 550 5.1.8
		> RCPT TO:<anna@a-badsender.test>
		< 503`},
	{"mx1.a-closing.test", "< 421 4.3.2\n< EOF"},
	{"mx1.a-nomail.test", "< 521 5.3.2\n< EOF"},
	{"mx1.a-dropgreeting.test", "< EOF"},
	{"mx1.a-drophello.test", "< 220\n> EHLO x\n< EOF"},
	{"mx1.a-dropmail.test", "< 220\n> EHLO x\n< 250\n> MAIL FROM:<>\n< EOF"},
	{"mx1.a-droprcpt.test", opening + "> RCPT TO:<anna@a-droprcpt.test>\n< EOF"},
	{"mx1.a-resethello.test", "< 220\n> EHLO x\n< RST"},
	{"mx1.a-resetmail.test", "< 220\n> EHLO x\n< 250\n> MAIL FROM:<>\n< RST"},
	{"mx1.a-resetrcpt.test", opening + "> RCPT TO:<anna@a-resetrcpt.test>\n< RST"},
	{"mx1.a-flaky.test", opening + "> RCPT TO:<anna@a-flaky.test>\n< RST"},
	{"mx1.a-flaky.test", opening + "> RCPT TO:<anna@a-flaky.test>\n< 250"},
	{"mx1.a-garbage.test", "< HTTP/1.1 400\n< Connection"},
	{"mx1.a-badcode.test", opening + "> RCPT TO:<anna@a-badcode.test>\n< 999"},
	{"mx1.a-nocode.test", opening + "> RCPT TO:<anna@a-nocode.test>\n< User unknown"},
	{"mx1.a-go354.test", opening + "> RCPT TO:<anna@a-go354.test>\n< 354"},
	{"mx1.a-twocodes.test", opening + "> RCPT TO:<anna@a-twocodes.test>\n< 550-5.1.1 User unknown / 250"},
	{"a-implicit.test", opening + "> RCPT TO:<anna@a-implicit.test>\n< 250"},
	{"mx2.a-firstdown.test", opening + "> RCPT TO:<anna@a-firstdown.test>\n< 250"},
	{"mail.a-hostalias.test", opening + "> RCPT TO:<anna@a-hostalias.test>\n< 250"},
	{"mx1.a-tarpit.test", "< 220 mx1.a-tarpit.test ESMTP"},
	{"mx1.a-slow.test", opening},
}

func TestPersonalityDialogues(t *testing.T) {
	t.Parallel()
	l := startLab(t, nil)
	for _, c := range dialogues {
		t.Run(c.host, func(t *testing.T) {
			w := dialHost(t, l, c.host)
			w.t = t
			w.play(c.script)
		})
	}
}

func TestMailboxReplies(t *testing.T) {
	l := startLab(t, nil)
	w := dialHost(t, l, "mx1.clean.test")
	w.play(opening)
	for _, c := range []struct{ local, want string }{
		{"anna", "250 2.1.5"},
		{"Anna.Smith1985", "250 2.1.5"},
		{"postmaster", "250 2.1.5"},
		{"anna-smith", "550 5.1.1"},
		{"anna..smith", "550 5.1.1"},
		{"anna.b.smith", "550 5.1.1"},
		{"anna12345", "550 5.1.1"},
		{"12anna", "550 5.1.1"},
		{"anna.", "550 5.1.1"},
		{"abcdefghijklmno", "250 2.1.5"},
		{"abcdefghijklmnop", "550 5.1.1"},
		{`"anna"`, "550 5.1.1"},
		{"nobody", "550 5.1.1"},
		{"GHOST7", "550 5.1.1"},
		{"disabled.ann", "550 5.2.1"},
		{"full3", "552 5.2.2"},
		{"overquota", "452 4.2.2"},
		{"restricted", "550 5.7.2"},
		{"busy", "450 4.2.1"},
		{"müller", "553 5.6.7"},
	} {
		w.says("RCPT TO:<"+c.local+"@clean.test>", c.want)
	}
	w.says("RCPT TO:<no-at-sign>", "501 5.1.3")
	w.says("RCPT TO: anna", "501 5.1.3")
	w.says("RSET", "250")
	w.says("MAIL FROM:<a@b.example> SMTPUTF8", "250")
	w.says("RCPT TO:<müller@clean.test>", "250 2.1.5")
	w.says("RCPT TO:<anna@eu.clean.test>", "250 2.1.5")
	w.says("RCPT TO:<anna@xclean.test>", "550 5.7.1")
}

func TestInjectionBeforeHandshakeBreaksIt(t *testing.T) {
	l := startLab(t, nil)
	w := dialHost(t, l, "mx1.a-starttls.test")
	w.play("< 220\n> EHLO x\n< 250")
	w.send("STARTTLS\r\nNOOP\r\n")
	w.says("", "220")
	conn := tls.Client(w.conn, &tls.Config{InsecureSkipVerify: true})
	effort.Not(t, conn.Handshake(), nil, "handshake with a command in clear before it succeeded")
}
