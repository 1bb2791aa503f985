package smtp

import (
	"errors"
	"io"
	"strings"
	"testing"

	"rollcall/config/effort"
)

const openedTLS = `
> 220 mx.example ESMTP
< EHLO probe.example
> 250-mx.example
> 250-PIPELINING
> 250 STARTTLS
< STARTTLS => 220 go
! tls
< EHLO probe.example
> 250-mx.example
> 250 STARTTLS
`

// A second reply shows that the receiver is out of step: neither is taken for the
// answer, since one of the replies before may have been sent ahead of its command.
func TestTwoRepliesInOnePacket(t *testing.T) {
	s := mustOpen(t, opened+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com>
		> 550 5.1.1 no
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a", "b"), Ask{})
	if f := failure(t, err); f.Stage != StageRcpt || !errors.Is(f, ErrOutOfStep) || !errors.Is(f, ErrProtocol) {
		t.Errorf("failure %v, want ErrOutOfStep", f)
	}
	effort.ErrorIf(t, codes(answers) != "" || s.Open(),
		"answers %s, open %v; want none, false", codes(answers), s.Open())
}

func TestExtraReplyToAGroup(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		> 250 ok
		> 250 ok
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a"), Ask{Pipelining: true})
	effort.MustBe(t, codes(answers), "", err)
	f := failure(t, err)
	effort.ErrorIf(t, !errors.Is(f, ErrOutOfStep) || s.Open(), "failure %v, open %v", f, s.Open())
}

func TestHostileBeginning(t *testing.T) {
	for _, test := range []struct {
		name   string
		script script
		stage  Stage
		want   error
	}{
		{"greeting without end", `>? "` + script(strings.Repeat("220-x\\r\\n", 1000)) + `"`, StageGreeting, ErrTooLarge},
		{"greeting line without end", `>? "` + script(strings.Repeat("2", 1<<17)) + `"`, StageGreeting, ErrTooLarge},
		{"ssh", "> SSH-2.0-OpenSSH_9.9", StageGreeting, ErrProtocol},
		{"http", "> HTTP/1.1 400 Bad Request", StageGreeting, ErrProtocol},
		{"greeting 250", "> 250 hi", StageGreeting, ErrProtocol},
		{"greeting 354", "> 354 hi", StageGreeting, ErrProtocol},
		{"no greeting", "! close", StageGreeting, io.EOF},
		{"two greetings", "> 220 hi\n> 220 hi\n! eof", StageHello, ErrOutOfStep},
		{"ehlo 10,000 extensions", "> 220 hi\n< *\n>? \"" + script(strings.Repeat("250-X\\r\\n", 10000)) + `"`,
			StageHello, ErrTooLarge},
		{"ehlo 220", "> 220 hi\n< *\n> 220 hi\n! eof", StageHello, ErrProtocol},
		{"ehlo, then gone", "> 220 hi\n< *\n! close", StageHello, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, at := test.script.listen(t)
			_, err := Open(t.Context(), dial, "mx.example", at, testOptions())
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != test.stage || f.Reply.Code != 0 || !errors.Is(f, test.want),
				"failure %v, want %v at %v", f, test.want, test.stage)
		})
	}
}

// 421 with a text of many lines, at each stage, is the reply in the failure.
func TestClosingAtEachStage(t *testing.T) {
	text := script("")
	for _, step := range []struct {
		stage Stage
		lines script
	}{
		{StageGreeting, ""},
		{StageHello, "> 220 hi\n< *\n"},
		{StageMail, "> 250 hi\n< *\n"},
		{StageRset, "> 250 ok\n< *\n> 250 ok\n< *\n"},
	} {
		text += step.lines
		t.Run(step.stage.String(), func(t *testing.T) {
			dial, at := (text + "> 421-4.7.0 too\n> 421 4.7.0 much\n! eof").listen(t)
			s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
			for i := 0; err == nil && i < 2; i++ {
				_, err = s.Probe(t.Context(), addresses("a"), Ask{PerTransaction: 1})
			}
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != step.stage || f.Reply.Code != 421 || f.Reply.Text() != "too much",
				"failure %v, want 421 at %v", f, step.stage)
		})
	}
}

// A receiver may send only so much in a whole session, and more for each address.
func TestBytesOfASessionAreBounded(t *testing.T) {
	o := testOptions()
	o.Limits.SessionBytes, o.Limits.SessionMoreBytes = 2000, 100
	text := script(opened + "< *\n> 250 ok\n")
	for range 5 {
		text += script("< *\n> 250 " + strings.Repeat("x", 494) + "\n") // 500 bytes
	}
	s := mustOpen(t, text+"! eof", o)
	answers, err := s.Probe(t.Context(), addresses("a", "b", "c", "d", "e"), Ask{}) // 2,400 bytes in all
	if f := failure(t, err); f.Stage != StageRcpt || !errors.Is(f, ErrTooLarge) || s.Open() {
		t.Errorf("failure %v, open %v; want ErrTooLarge", f, s.Open())
	}
	effort.Is(t, codes(answers), "250 250 250 250", "answers")
}

func TestStartTLS(t *testing.T) {
	const offered = `
		> 220 hi
		< EHLO probe.example
		> 250-mx.example
		> 250-PIPELINING
		> 250 STARTTLS
		`
	required, off := testOptions(), testOptions()
	required.TLS, off.TLS = TLSRequired, TLSOff
	for _, test := range []struct {
		name    string
		script  script
		options SessionOptions
		tls     bool // the session that comes of it
		code    int  // of the failure, 0 with err
		err     error
	}{
		{"expired, self-signed, other name", openedTLS + "! eof", testOptions(), true, 0, nil},
		{"required", openedTLS + "! eof", required, true, 0, nil},
		{"off", offered + "! eof", off, false, 0, nil},
		{"refused: on in clear", offered + "< STARTTLS\n> 454 4.7.0 not now\n! eof", testOptions(), false, 0, nil},
		{"refused and required", offered + "< STARTTLS\n> 454 4.7.0 not now\n< QUIT\n> 221 bye\n! close",
			required, false, 454, nil},
		{"not offered and required", opened + "< QUIT\n> 221 bye\n! close", required, false, 0, ErrNoSTARTTLS},
		{"injected in clear", offered + "< STARTTLS\n> 220 go\n> 250 ok\n! eof", testOptions(), false, 0, ErrOutOfStep},
		{"closing", offered + "< STARTTLS\n> 421 bye\n! eof", testOptions(), false, 421, nil},
		{"what is no answer", offered + "< STARTTLS\n> 250 ok\n! eof", testOptions(), false, 0, ErrProtocol},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, at := test.script.listen(t)
			s, err := Open(t.Context(), dial, "mx.example", at, test.options)
			if test.code == 0 && test.err == nil {
				effort.FatalIf(t, err != nil || s.TLS() != test.tls || s.offers.pipelining == test.tls,
					"%v; tls %v, want %v and what was offered in clear forgotten", err, s.TLS(), test.tls)
				s.Close()
				return
			}
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != StageTLS || f.Reply.Code != test.code ||
				(test.err != nil && !errors.Is(f, test.err)), "failure %v, want %d %v", f, test.code, test.err)
		})
	}
}

func TestProbeAndPollUnderTLS(t *testing.T) {
	s := mustOpen(t, openedTLS+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		< RCPT TO:<b@example.com> => 550 no
		< QUIT => 221 bye
		! close`, testOptions())
	for _, test := range []struct{ local, want string }{{"a", "250"}, {"b", "550"}} {
		answers := effort.Must(s.Probe(t.Context(), addresses(test.local), Ask{}))(t)
		effort.Is(t, codes(answers), test.want, test.local)
		if err := s.Poll(); err != nil { // a read that times out must not spoil the TLS state
			t.Errorf("poll: %v", err)
		}
	}
	s.Quit()
}
