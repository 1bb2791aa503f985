package smtplab

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
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

// repeated are lines of a dialogue that come a number of times.
var repeated = regexp.MustCompile(`(?m)^(\d+) (> .*\n< .*\n)`)

// TestPersonalityDialogues plays those of testdata/dialogues.txt.
func TestPersonalityDialogues(t *testing.T) {
	t.Parallel()
	l := startLab(t, nil)
	text := strings.ReplaceAll(string(effort.Must(os.ReadFile("testdata/dialogues.txt"))(t)), `\xe4`, "\xe4")
	text = repeated.ReplaceAllStringFunc(text, func(lines string) string {
		count, once, _ := strings.Cut(lines, " ")
		return strings.Repeat(once, effort.Must(strconv.Atoi(count))(t))
	})
	all := strings.Split(text, "\n= ")[1:]
	effort.Is(t, len(all), 49, "dialogues")
	for _, one := range all {
		host, script, _ := strings.Cut(one, "\n")
		t.Run(host, func(t *testing.T) {
			w := dialHost(t, l, host)
			w.t = t
			w.play(strings.Replace(script, "opening\n", opening, 1))
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
