package smtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"rollcall/config/effort"
)

func TestProbeAsksInOneTransactionAndNeverSendsData(t *testing.T) {
	s := mustOpen(t, opened+`
		< MAIL FROM:<back@probe.example> => 250 2.1.0 ok
		< RCPT TO:<a@example.com> => 250 2.1.5 ok
		< RCPT TO:<b@example.com>
		> 550-5.1.1 no such
		> 550 5.1.1 user here
		< RCPT TO:<c@example.com> => 250 2.1.5 ok
		< QUIT => 221 bye
		! close`, testOptions())

	answers, err := s.Probe(t.Context(), addresses("a", "b"), Ask{Pipelining: true}) // not offered
	effort.FatalIf(t, err != nil || codes(answers) != "250 550",
		"first probe: %s, %v; want 250 550", codes(answers), err)
	refusal := answers[1].Reply
	effort.ErrorIf(t, refusal.Enhanced != (EnhancedCode{5, 1, 1}) || refusal.Text() != "no such user here",
		"reply: %+v", refusal)
	for i, a := range answers {
		effort.ErrorIf(t, a.Sent.IsZero() || a.At.Before(a.Sent), "answer %d: sent %v, at %v", i, a.Sent, a.At)
	}
	answers, err = s.Probe(t.Context(), addresses("c"), Ask{})
	effort.FatalIf(t, err != nil || codes(answers) != "250", "second probe: %s, %v", codes(answers), err)
	effort.ErrorIf(t, s.Counts().Rcpts != 3 || s.Counts().Refused != 1 || !s.Open() || s.TLS() ||
		s.Host() != "mx.example", "rcpts %d, refused %d, open %v, tls %v, host %q", s.Counts().Rcpts,
		s.Counts().Refused, s.Open(), s.TLS(), s.Host())
	s.Quit()
	effort.ErrorIf(t, s.Open(), "open after quit")
	effort.Denied(s.Probe(t.Context(), addresses("d"), Ask{}))(t, ErrClosed, "probe after quit")
}

// The receiver answers only when it has the whole group, so a client that waits in between hangs and fails.
func TestPipelinedGroupGoesInOneWrite(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<b@example.com>
		> 250 ok
		> 250 ok
		> 550 5.1.1 no
		< RCPT TO:<c@example.com> => 450 4.2.0 later
		! eof`, testOptions())
	for _, test := range []struct {
		locals []string
		want   string
	}{{[]string{"a", "b"}, "250 550"}, {[]string{"c"}, "450"}} {
		answers := effort.Must(s.Probe(t.Context(), addresses(test.locals...), Ask{Pipelining: true}))(t)
		effort.Is(t, codes(answers), test.want, test.locals)
	}
}

// TestPipelinedGroupsHaveADepth: no group has more RCPT commands than it may.
func TestPipelinedGroupsHaveADepth(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<b@example.com>
		> 250 ok
		> 250 ok
		> 550 5.1.1 no
		< RCPT TO:<c@example.com> => 250 ok
		! eof`, testOptions())
	answers := effort.Must(s.Probe(t.Context(), addresses("a", "b", "c"), Ask{Pipelining: true, Depth: 2}))(t)
	effort.Is(t, codes(answers), "250 550 250")
}

// A group holds several transactions where they are to be small, and their replies are told apart.
func TestGroupOfTransactions(t *testing.T) {
	const mail = "\n< MAIL FROM:<back@probe.example>"
	const two = openedPipelining + mail + `
		< RCPT TO:<a@example.com>
		< RSET` + mail + `
		< RCPT TO:<b@example.com>
		< RSET` + mail + `
		< RCPT TO:<c@example.com>`
	ask := Ask{Pipelining: true, PerTransaction: 1}
	for _, test := range []struct {
		name   string
		script script
		ask    Ask
		want   string // codes of the answers
		nth    string // and which of their transactions they are
		failed string // stage and code of the failure; "": none
		rcpts  int
		refuse int
		open   bool
	}{
		{"of one RCPT each", two + "\n> 250 1\n> 250 2\n> 250 3\n> 250 4\n> 550 5\n> 250 6\n> 250 7\n> 250 8\n! eof",
			ask, "250 550 250", "1 1 1", "", 3, 1, true},
		{"of two RCPTs and the rest", openedPipelining + mail + `
			< RCPT TO:<a@example.com>
			< RCPT TO:<b@example.com>
			< RSET` + mail + `
			< RCPT TO:<c@example.com>
			> 250 1
			> 250 2
			> 452 4.5.3 too many
			> 250 4
			> 250 5
			> 250 6
			! eof`, Ask{Pipelining: true, PerTransaction: 2}, "250 452 250", "1 2 1", "", 3, 0, true},
		{"and a transaction may go on in the next group", openedPipelining + mail + `
			< RCPT TO:<a@example.com>
			> 250 1
			> 250 2
			< RCPT TO:<b@example.com> => 250 3
			< RSET` + mail + `
			< RCPT TO:<c@example.com>
			> 250 4
			> 250 5
			> 250 6
			! eof`, Ask{Pipelining: true, PerTransaction: 2, Depth: 1}, "250 250 250", "1 2 1", "", 3, 0, true},
		{"no larger than the refusals left", openedPipelining + mail + `
			< RCPT TO:<a@example.com>
			< RSET` + mail + `
			< RCPT TO:<b@example.com>
			> 250 1
			> 550 2
			> 250 3
			> 250 4
			> 550 5
			! eof`, Ask{Pipelining: true, PerTransaction: 1, RefusedMax: 2}, "550 550", "1 1", "", 2, 2, true},
		{"MAIL refused within it: what is behind was sent, and is dropped",
			two + "\n> 250 1\n> 550 2\n> 250 3\n> 450 4\n> 503 5\n> 250 6\n> 250 7\n> 550 8\n! eof",
			ask, "550", "1", "MAIL 450", 3, 2, true},
		{"RSET refused within it ends the session", two + "\n> 250 1\n> 250 2\n> 502 3\n! eof",
			ask, "250", "1", "RSET 502", 3, 0, false},
		{"421 to MAIL within it", two + "\n> 250 1\n> 250 2\n> 250 3\n> 421 4\n! eof",
			ask, "250", "1", "MAIL 421", 3, 0, false},
		{"421 to RCPT within it is the last answer", two + "\n> 250 1\n> 250 2\n> 250 3\n> 250 4\n> 421 5\n! eof",
			ask, "250 421", "1 1", "", 3, 0, false},
		{"cut within it", two + "\n> 250 1\n> 250 2\n> 250 3\n> 250 4\n! close", ask, "250", "1", "RCPT 0", 3, 0, false},
		{"each reply awaited where it is not offered", opened + mail + `
			> 250 1
			< RCPT TO:<a@example.com> => 250 2
			< RSET
			> 250 3` + mail + `
			> 250 4
			< RCPT TO:<b@example.com> => 550 5
			< RSET
			> 250 6` + mail + `
			> 450 7
			! eof`, ask, "250 550", "1 1", "MAIL 450", 2, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mustOpen(t, test.script, testOptions())
			answers, err := s.Probe(t.Context(), addresses("a", "b", "c"), test.ask)
			failed, nth := "", ""
			if err != nil {
				f := failure(t, err)
				failed = fmt.Sprint(f.Stage, " ", f.Reply.Code)
			}
			for _, a := range answers {
				nth += fmt.Sprint(a.Nth, " ")
			}
			if codes(answers) != test.want || strings.TrimSpace(nth) != test.nth || !strings.EqualFold(failed, test.failed) {
				t.Errorf("answers %q, nth %q, failed %q (%v)", codes(answers), nth, failed, err)
			}
			effort.ErrorIf(t, s.Counts().Rcpts != test.rcpts || s.Counts().Refused != test.refuse ||
				s.Open() != test.open, "%d RCPTs, %d refused, open %v", s.Counts().Rcpts, s.Counts().Refused, s.Open())
		})
	}
}

// Early talk is looked for before each group, and makes every answer of the call void.
func TestGroupOfTransactionsOutOfStep(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		> 250 ok
		> 250 ok
		> 250 and one more
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a", "b"), Ask{Pipelining: true, PerTransaction: 1, Depth: 1})
	if f := failure(t, err); !errors.Is(f, ErrOutOfStep) || len(answers) != 0 || s.Open() || s.Counts().Rcpts > 2 {
		t.Errorf("failure %v, answers %s, open %v, %d RCPTs", f, codes(answers), s.Open(), s.Counts().Rcpts)
	}
}

// Only the transaction that needs SMTPUTF8 asks for it, even in a group with others.
func TestSMTPUTF8InAGroupOfTransactions(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RSET
		< MAIL FROM:<back@probe.example> SMTPUTF8
		< RCPT TO:<ä@example.com>
		> 250 ok
		> 250 ok
		> 250 ok
		> 250 ok
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a", "", "ä", ""), Ask{Pipelining: true, PerTransaction: 1})
	effort.ErrorIf(t, err != nil || codes(answers) != "250 0 250 0", "%s, %v", codes(answers), err)
}

func TestPipeliningNeedsLeave(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		! eof`, testOptions())
	effort.Is(t, codes(effort.Must(s.Probe(t.Context(), addresses("a"), Ask{}))(t)), "250")
}

// A long list is cut into groups that fit groupBytes, and every reply is read.
func TestPipelinedGroupIsBounded(t *testing.T) {
	const n = 1000
	client, server := net.Pipe()
	most := make(chan int, 1)
	go func() {
		defer server.Close()
		_, _ = io.WriteString(server, "220 hi\r\n")
		largest, buffer := 0, make([]byte, 64<<10)
		for {
			size, err := server.Read(buffer) // one write of the client: a pipe keeps writes apart
			if err != nil {
				most <- largest
				return
			}
			largest = max(largest, size)
			lines := strings.Count(string(buffer[:size]), "\r\n")
			reply := strings.Repeat("250 ok\r\n", lines)
			if strings.HasPrefix(string(buffer[:size]), "EHLO") {
				reply = "250-mx\r\n250 PIPELINING\r\n"
			}
			if _, err := io.WriteString(server, reply); err != nil {
				most <- largest
				return
			}
		}
	}()
	dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
	s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
	locals := make([]string, n)
	for i := range locals {
		locals[i] = strings.Repeat("x", 1+i%64)
	}
	answers, err := s.Probe(t.Context(), addresses(locals...), Ask{Pipelining: true})
	effort.ErrorIf(t, err != nil || len(answers) != n || s.Counts().Rcpts != n,
		"%d answers, %d rcpts, %v; want %d", len(answers), s.Counts().Rcpts, err, n)
	s.Close()
	if got := <-most; got > groupBytes || got < groupBytes/2 {
		t.Errorf("largest write %d, want at most %d and not far from it", got, groupBytes)
	}
}

func TestProbeStops(t *testing.T) {
	const lockstep = opened + `
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 550 5.1.1 no
		< RCPT TO:<b@example.com> => 550 5.1.1 no
		! eof`
	const grouped = openedPipelining + `
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<b@example.com>
		> 250 ok
		> 550 5.1.1 no
		> 550 5.1.1 no
		! eof`
	const all = openedPipelining + `
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<b@example.com>
		< RCPT TO:<c@example.com>
		> 250 ok
		> 550 5.1.1 no
		> 550 5.1.1 no
		> 550 5.1.1 no
		! eof`
	stopAtB := func(a Address, _ Reply) bool { return a.Local == "b" }
	for _, test := range []struct {
		name        string
		script      script
		ask         Ask
		wantRefused int
	}{
		{"after the refusals allowed", lockstep, Ask{RefusedMax: 2}, 2},
		{"when the caller says so", lockstep, Ask{Stop: stopAtB}, 2},
		{"with a group no larger than the refusals allowed", grouped, Ask{Pipelining: true, RefusedMax: 2}, 2},
		{"behind the group, whose replies are all read", all, Ask{Pipelining: true, Stop: stopAtB, Depth: 3}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mustOpen(t, test.script, testOptions())
			answers, err := s.Probe(t.Context(), addresses("a", "b", "c", "d"), test.ask)
			if err != nil || len(answers) != test.wantRefused || strings.Trim(codes(answers), "50 ") != "" {
				t.Errorf("answers %s, %v; want %d times 550", codes(answers), err, test.wantRefused)
			}
			effort.ErrorIf(t, !s.Open() || s.Counts().Refused != test.wantRefused,
				"open %v, refused %d, want true, %d", s.Open(), s.Counts().Refused, test.wantRefused)
		})
	}
}

// Hold is asked before each command, or group of them.
func TestProbeIsHeld(t *testing.T) {
	for _, test := range []struct {
		name   string
		script script
		ask    Ask
		after  int // commands, or groups, that are let through
		want   string
	}{
		{"before the first command", opened + `
			! eof`, Ask{}, 0, ""},
		{"before the first RCPT", opened + `
			< MAIL FROM:<back@probe.example> => 250 ok
			! eof`, Ask{}, 1, ""},
		{"before the second RCPT", opened + `
			< MAIL FROM:<back@probe.example> => 250 ok
			< RCPT TO:<a@example.com> => 250 ok
			! eof`, Ask{}, 2, "250"},
		{"before the second transaction", opened + `
			< MAIL FROM:<back@probe.example> => 250 ok
			< RCPT TO:<a@example.com> => 250 ok
			! eof`, Ask{PerTransaction: 1}, 2, "250"},
		{"before a group", openedPipelining + `
			! eof`, Ask{Pipelining: true}, 0, ""},
		{"before the second group of transactions", openedPipelining + `
			< MAIL FROM:<back@probe.example>
			< RCPT TO:<a@example.com>
			> 250 ok
			> 250 ok
			! eof`, Ask{Pipelining: true, PerTransaction: 1, Depth: 1}, 1, "250"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mustOpen(t, test.script, testOptions())
			asked := 0
			test.ask.Hold = func() bool { asked++; return asked > test.after }
			answers, err := s.Probe(t.Context(), addresses("a", "b"), test.ask)
			if err != nil || codes(answers) != test.want || !s.Open() || s.Counts().Rcpts != len(answers) {
				t.Errorf("answers %s, %v, open %v, %d RCPTs", codes(answers), err, s.Open(), s.Counts().Rcpts)
			}
		})
	}
}

func TestRefusalsAllowedSpanGroups(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<b@example.com>
		> 250 ok
		> 550 no
		> 250 ok
		< RCPT TO:<c@example.com> => 250 ok
		< RCPT TO:<d@example.com> => 550 no
		! eof`, testOptions())
	ask := Ask{Pipelining: true, RefusedMax: 2}
	answers := effort.Must(s.Probe(t.Context(), addresses("a", "b", "c", "d", "e"), ask))(t)
	effort.Is(t, codes(answers), "550 250 250 550", "answers")
}

func TestMailRefusalLeavesTheSessionOpen(t *testing.T) {
	for name, text := range map[string]script{
		"each reply awaited": opened + `
			< MAIL FROM:<back@probe.example> => 450 4.3.2 not now
			< MAIL FROM:<back@probe.example> => 250 ok
			< RCPT TO:<a@example.com> => 250 ok
			! eof`,
		"in a group": openedPipelining + `
			< MAIL FROM:<back@probe.example>
			< RCPT TO:<a@example.com>
			> 450 4.3.2 not now
			> 503 5.5.1 need mail
			< MAIL FROM:<back@probe.example>
			< RCPT TO:<a@example.com>
			> 250 ok
			> 250 ok
			! eof`,
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, text, testOptions())
			answers, err := s.Probe(t.Context(), addresses("a"), Ask{Pipelining: true})
			f := failure(t, err)
			effort.FatalIf(t, f.Stage != StageMail || f.Reply.Code != 450 || len(answers) != 0 || !s.Open(),
				"failure %v, answers %d, open %v", f, len(answers), s.Open())
			answers = effort.Must(s.Probe(t.Context(), addresses("a"), Ask{Pipelining: true}))(t)
			effort.Is(t, codes(answers), "250", "answers")
		})
	}
}

func TestSMTPUTF8IsAskedForOnlyWhenNeeded(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		< RSET => 250 ok
		< MAIL FROM:<back@probe.example> SMTPUTF8 => 250 ok
		< RCPT TO:<ä@example.com> => 250 ok
		! eof`, testOptions())
	for _, local := range []string{"a", "ä"} {
		effort.Is(t, codes(effort.Must(s.Probe(t.Context(), addresses(local), Ask{}))(t)), "250", local)
	}
}

func TestUnaskableAddressesAreAnsweredWithoutAsking(t *testing.T) {
	s := mustOpen(t, opened+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		! eof`, testOptions())
	list := append(addresses("ä", "a", "x\r\nDATA", "nul\x00", strings.Repeat("x", 65), ""),
		Address{Local: "a", Domain: "example.com>\r\nDATA"}, Address{Local: "a", Domain: "example.com> NOTIFY=NEVER"})
	want := []error{ErrNoSMTPUTF8, nil}
	for len(want) < len(list) {
		want = append(want, ErrMalformed)
	}
	answers, err := s.Probe(t.Context(), list, Ask{})
	effort.FatalIf(t, err != nil || len(answers) != len(want), "%d answers, %v", len(answers), err)
	for i, a := range answers {
		if !errors.Is(a.Err, want[i]) || (a.Err == nil) != (want[i] == nil) {
			t.Errorf("%q: %v, want %v", list[i], a.Err, want[i])
		}
	}
	answers, err = s.Probe(t.Context(), addresses("ö"), Ask{}) // says nothing at all
	effort.ErrorIf(t, err != nil || len(answers) != 1 || !errors.Is(answers[0].Err, ErrNoSMTPUTF8),
		"%v, %v", answers, err)
	effort.Is(t, s.Counts().Rcpts, 1, "rcpts")
}

func TestHeloWhereEhloIsNotKnown(t *testing.T) {
	s := mustOpen(t, `
		> 220 old
		< EHLO probe.example => 502 what
		< HELO probe.example
		> 250-old
		> 250 PIPELINING
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 251 will forward
		! eof`, testOptions())
	effort.Is(t, s.offers, (extensions{}), "a reply to HELO offers")
	answers := effort.Must(s.Probe(t.Context(), addresses("a"), Ask{Pipelining: true}))(t)
	effort.Is(t, codes(answers), "251")
}

func TestOpenTurnedAway(t *testing.T) {
	for _, test := range []struct {
		name      string
		script    script
		wantStage Stage
		wantCode  int
	}{
		{"greeting 554, answered with QUIT", "> 554 5.7.1 no\n< QUIT\n> 221 bye\n! close", StageGreeting, 554},
		{"greeting 521", "> 521 no mail\n< QUIT\n> 221 bye\n! close", StageGreeting, 521},
		{"greeting 421", "> 421 busy\n! close", StageGreeting, 421},
		{"ehlo and helo 550", "> 220 hi\n< EHLO probe.example\n> 550 who\n< HELO probe.example\n> 553 who\n< QUIT\n> 221 bye\n! close",
			StageHello, 553},
		{"helo 501", "> 220 hi\n< EHLO probe.example\n> 500 what\n< HELO probe.example\n> 501 who\n< QUIT\n! close",
			StageHello, 501},
		{"ehlo 421", "> 220 hi\n< EHLO probe.example\n> 421 4.3.2 busy\n! close", StageHello, 421},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, at := test.script.listen(t)
			_, err := Open(t.Context(), dial, "mx.example", at, testOptions())
			f := failure(t, err)
			effort.Is(t, f.Stage, test.wantStage, "failure", f)
			effort.Is(t, f.Reply.Code, test.wantCode, "failure", f)
		})
	}
}

func TestClosingReplyEndsTheSession(t *testing.T) {
	const mail = "\n< MAIL FROM:<back@probe.example>"
	for _, test := range []struct {
		name      string
		script    script
		ask       Ask
		want      string // codes of the answers
		wantStage Stage  // StageNone: no error
	}{
		{"to MAIL", opened + mail + "\n> 421 4.7.0 bye\n! eof", Ask{}, "", StageMail},
		{"to RCPT, which is an answer", opened + mail + `
			> 250 ok
			< RCPT TO:<a@example.com> => 250 ok
			< RCPT TO:<b@example.com> => 421 4.7.0 too many errors
			! eof`, Ask{}, "250 421", StageNone},
		{"to RCPT in a group", openedPipelining + mail + `
			< RCPT TO:<a@example.com>
			< RCPT TO:<b@example.com>
			< RCPT TO:<c@example.com>
			> 250 ok
			> 250 ok
			> 421 4.7.0 too many errors
			! close`, Ask{Pipelining: true}, "250 421", StageNone},
		{"right behind a reply", opened + mail + `
			> 250 ok
			> 421 4.3.2 shutting down
			! eof`, Ask{}, "", StageRcpt},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mustOpen(t, test.script, testOptions())
			answers, err := s.Probe(t.Context(), addresses("a", "b", "c"), test.ask)
			effort.ErrorIf(t, codes(answers) != test.want || s.Open(),
				"answers %q, open %v; want %q, false", codes(answers), s.Open(), test.want)
			if test.wantStage == StageNone {
				effort.OK(t, err, "error")
				return
			}
			if f := failure(t, err); f.Stage != test.wantStage || f.Reply.Code != 421 {
				t.Errorf("failure %v, want %v 421", f, test.wantStage)
			}
		})
	}
}

func TestRsetRefusedEndsTheSession(t *testing.T) {
	s := mustOpen(t, opened+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		< RSET => 503 no
		! eof`, testOptions())
	effort.Must(s.Probe(t.Context(), addresses("a"), Ask{}))(t)
	_, err := s.Probe(t.Context(), addresses("b"), Ask{PerTransaction: 1})
	f := failure(t, err)
	effort.ErrorIf(t, f.Stage != StageRset || f.Reply.Code != 503 || s.Open(), "failure %v, open %v", f, s.Open())
}

func TestOptionsAreCompleteOrRefused(t *testing.T) {
	dial := dialFunc(func(context.Context) (net.Conn, error) {
		t.Error("dialled with unusable options")
		return nil, io.EOF
	})
	for name, change := range map[string]func(*SessionOptions){
		"no hello name":             func(o *SessionOptions) { o.HelloName = "" },
		"two lines as hello name":   func(o *SessionOptions) { o.HelloName = "a\r\nMAIL" },
		"two words as hello name":   func(o *SessionOptions) { o.HelloName = "a b" },
		"no return path":            func(o *SessionOptions) { o.ReturnPath = "" },
		"return path with brackets": func(o *SessionOptions) { o.ReturnPath = "<a@b.example>" },
		"return path beyond ascii":  func(o *SessionOptions) { o.ReturnPath = "ä@b.example" },
		"no such tls mode":          func(o *SessionOptions) { o.TLS = TLSOffHELO + 1 },
	} {
		o := testOptions()
		change(&o)
		effort.Denied(Open(t.Context(), dial, "mx.example", anyAddrPort, o))(t, ErrOptions, name)
	}
}

// TestWhatAReceiverShowsIsKept: its greeting, and its reply to the last EHLO, without our own name where
// it repeats that, and 512 bytes of each at most.
func TestWhatAReceiverShowsIsKept(t *testing.T) {
	o := testOptions()
	o.HelloName, o.TLS = "xrdst.example", TLSOpportunistic
	s := mustOpen(t, `
		> 220-mx.example ESMTP
		> 220 be patient
		< EHLO xrdst.example
		> 250-mx.example said in clear
		> 250 STARTTLS
		< STARTTLS => 220 go
		! tls
		< EHLO xrdst.example
		> 250-mx.example Hello XRDST.example[192.0.2.1] my-xrdst.example, Haraka is at your service.
		> 250 SIZE 1`, o)
	if got := s.HelloReply(); s.Greeting() != "mx.example ESMTP be patient" ||
		got != "mx.example Hello  [192.0.2.1] my-xrdst.example, Haraka is at your service. SIZE 1" {
		t.Errorf("kept %q and %q", s.Greeting(), got)
	}
	long := strings.Repeat("x", 400)
	s = mustOpen(t, script("> 220-"+long+"\n> 220 "+long+"\n< EHLO probe.example\n> 250-"+long+" probe.example\n> 250 X-"+long),
		testOptions())
	effort.ErrorIf(t, s.Greeting() != (long + " " + long)[:512] || s.HelloReply() != (long + "   X-" + long)[:512],
		"kept %d and %d bytes", len(s.Greeting()), len(s.HelloReply()))
	s = mustOpen(t, "> 220 mx.example\n< EHLO probe.example\n> 502 what\n< HELO probe.example\n> 250 mx.example XRDST", testOptions())
	effort.Is(t, s.HelloReply(), "mx.example XRDST", "after HELO")
	effort.Is(t, s.offers, extensions{}, "after HELO")
}

// TestTransactionsGoOn: a transaction is filled by as many Probes as it takes, and a receiver that refuses what comes
// behind the tenth of which fewer than half were accepted, as Exim does as shipped, is never met.
func TestTransactionsGoOn(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		per, share, groups := 1+random.IntN(20), random.IntN(101), seed%2 == 0
		l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		mails := make(chan []int)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				mails <- filled(conn)
			}
		}()
		s := effort.Must(Open(t.Context(), loopbackDialer(t, l.Addr().(*net.TCPAddr).Port), "mx.example",
			netip.MustParseAddrPort(l.Addr().String()), testOptions()))(t)
		for asked := 0; asked < 100; {
			var locals []string
			for range 1 + random.IntN(9) {
				if random.IntN(100) < share {
					locals = append(locals, "good")
				} else {
					locals = append(locals, "bad")
				}
			}
			asked += len(locals)
			answers, err := s.Probe(t.Context(), addresses(locals...), Ask{Pipelining: groups, PerTransaction: per})
			effort.FatalIf(t, err != nil || len(answers) != len(locals),
				"%d of %d answers, %v", len(answers), len(locals), err)
			for i, a := range answers {
				effort.ErrorIf(t, a.Reply.Accepted() != (locals[i] == "good") || a.Reply.Code == 554,
					"seed %d: %s got %d", seed, locals[i], a.Reply.Code)
			}
		}
		s.Quit()
		got := <-mails
		for i, n := range got {
			if n > per || i < len(got)-1 && n < min(per, 10) {
				t.Errorf("seed %d: transactions of %v RCPTs, at most %d", seed, got, per)
				break
			}
		}
		_ = l.Close()
	}
}

// filled plays an Exim as shipped, and returns how many RCPTs each transaction has had.
func filled(conn net.Conn) (mails []int) {
	defer conn.Close()
	_, _ = io.WriteString(conn, "220 mx.example\r\n")
	accepted := 0
	for in := bufio.NewScanner(conn); in.Scan(); {
		reply := "250 ok"
		switch line := in.Text(); {
		case strings.HasPrefix(line, "EHLO"):
			reply = "250-mx.example\r\n250 PIPELINING"
		case strings.HasPrefix(line, "QUIT"):
			return mails
		case strings.HasPrefix(line, "MAIL"):
			mails, accepted = append(mails, 0), 0
		case strings.HasPrefix(line, "RCPT"):
			n := &mails[len(mails)-1]
			switch *n++; {
			case *n > 10 && accepted < *n/2:
				reply = "554 rejected for too many bad recipients"
			case strings.Contains(line, "good"):
				accepted++
			default:
				reply = "550 no such user"
			}
		}
		_, _ = io.WriteString(conn, reply+"\r\n")
	}
	return mails
}
