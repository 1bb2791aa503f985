package verdict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

func sample(t *testing.T, text string) evidence.Attempt {
	t.Helper()
	return effort.Must(Sample(text, "mx.example.com"))(t)
}

// What is wrong with our own rules fails the build.
func TestBuiltinRulesHaveNoFaults(t *testing.T) {
	t.Parallel()
	files, found := readBuiltin()
	if len(found) == 0 {
		found = compile(files).check(false)
	}
	for _, fault := range found {
		t.Error(fault)
	}
}

// What is promised of every rule: only RCPT gives an outcome, invalid only a 5xx
// of both codes and never a policy code but 5.7.13, and "again" says how.
func TestRulesKeepTheContract(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 19
	}
	for stage := smtp.StageNone; stage <= smtp.StageRset; stage++ {
		for code := 200; code < 600; code += step {
			for _, enhanced := range []string{
				"", "2.1.5 ", "4.1.1 ", "5.1.1 ", "5.2.1 ", "5.7.1 ", "5.7.2 ", "5.7.13 ",
			} {
				for _, words := range []string{"no", "user unknown", "mailbox full", "account is disabled"} {
					text := fmt.Sprintf("%s | %d %s%s", stage, code, enhanced, words)
					checkContract(t, text, sample(t, text))
				}
			}
		}
	}
}

func checkContract(t *testing.T, text string, e evidence.Attempt) {
	t.Helper()
	v := Builtin().Judge(e)
	final := v.Outcome != smtp.Undecided
	switch policy := e.Enhanced[1] == 7 && e.Enhanced[2] != 13; {
	case v.Rule == "" || !v.Reason.Known():
		t.Fatalf("%s: %+v names no rule or reason", text, v)
	case final == (v.Action != ActNone):
		t.Fatalf("%s: %+v is final with an action, or neither", text, v)
	case final && e.Stage != smtp.StageRcpt:
		t.Fatalf("%s: %+v before RCPT", text, v)
	case v.Outcome == smtp.Valid && e.Code != 250 && e.Code != 251 && v.Reason != smtp.MailboxBusy:
		t.Fatalf("%s: %+v without 250 or 251", text, v)
	case v.Outcome == smtp.Invalid && (e.Code/100 != 5 || e.Enhanced[0] == 4 || policy):
		t.Fatalf("%s: %+v without a refusal of the mailbox for good", text, v)
	case v.Outcome == smtp.Invalid && v.Blame != smtp.BlameAddress && v.Blame != smtp.BlameDomain:
		t.Fatalf("%s: %+v blames somebody else", text, v)
	case final && v.Wait != 0:
		t.Fatalf("%s: %+v waits", text, v)
	}
}

func TestNoReply(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, test := range []struct {
		stage smtp.Stage
		err   error
		want  string
	}{
		{smtp.StageConnect, timeout, "undecided | timeout | receiver | next_mx"},
		{smtp.StageConnect, context.DeadlineExceeded, "undecided | timeout | receiver | next_mx"},
		{smtp.StageConnect, refused, "undecided | connection_failed | receiver | next_mx"},
		{smtp.StageConnect, smtp.ErrForbiddenAddress, "undecided | connection_failed | domain | next_mx"},
		{smtp.StageGreeting, timeout, "undecided | timeout | receiver | next_mx"},
		{smtp.StageGreeting, io.EOF, "undecided | connection_failed | receiver | next_mx"},
		{smtp.StageGreeting, smtp.ErrProtocol, "undecided | protocol | receiver | next_mx"},
		{smtp.StageHello, timeout, "undecided | timeout | receiver | next_mx"},
		{smtp.StageHello, reset, "undecided | connection_failed | receiver | next_mx"},
		{smtp.StageHello, smtp.ErrTooLarge, "undecided | protocol | receiver | next_mx"},
		{smtp.StageTLS, timeout, "undecided | timeout | receiver | retry"},
		{smtp.StageTLS, errors.New("tls: handshake failure"), "undecided | tls_failed | receiver | retry"},
		{smtp.StageTLS, reset, "undecided | tls_failed | receiver | retry"},
		{smtp.StageTLS, smtp.ErrOutOfStep, "undecided | protocol | receiver | retry"},
		{smtp.StageTLS, smtp.ErrNoSTARTTLS, "undecided | tls_failed | receiver | next_mx"},
		{smtp.StageMail, timeout, "undecided | timeout | receiver | retry"},
		{smtp.StageMail, reset, "undecided | connection_failed | receiver | retry"},
		{smtp.StageRcpt, timeout, "undecided | timeout | receiver | retry"},
		{smtp.StageRcpt, io.EOF, "undecided | connection_failed | receiver | retry"},
		{smtp.StageRcpt, smtp.ErrProtocol, "undecided | protocol | receiver | retry"},
		{smtp.StageRcpt, smtp.ErrNoSMTPUTF8, "undecided | eai_unsupported | receiver | next_mx"},
		{smtp.StageRcpt, smtp.ErrMalformed, "unknown | internal | nobody | none"},
		{smtp.StageRset, reset, "undecided | connection_failed | receiver | retry"},
		{smtp.StageRcpt, context.Canceled, "undecided | internal | nobody | retry"},
		{smtp.StageMail, smtp.ErrClosed, "undecided | internal | nobody | retry"},
		{smtp.StageNone, smtp.ErrOptions, "undecided | internal | nobody | retry"},
		{smtp.StageRcpt, nil, "undecided | internal | nobody | retry"},
	} {
		v := Builtin().Judge(evidence.Note(evidence.Raw{Stage: test.stage, Err: fmt.Errorf("wrapped: %w", test.err)}))
		if test.err == nil {
			v = Builtin().Judge(evidence.Attempt{Stage: test.stage})
		}
		effort.ErrorIf(t, v.golden() != test.want || v.Rule == "",
			"%v, %v:\n got %s\nwant %s", test.stage, test.err, v.golden(), test.want)
	}
}

func TestNamedWait(t *testing.T) {
	for _, test := range []struct {
		text string
		want time.Duration
	}{
		{"", 0}, {"no time", 0}, {"300", 0}, {"300 times", 0}, {"5 m", 0}, {"v5m", 0}, {"1.5 minutes", 0},
		{"300 seconds", 300 * time.Second}, {"300s", 300 * time.Second}, {"300 s", 0}, {"60 sec.", time.Minute},
		{"5 minutes", 5 * time.Minute}, {"5 min", 5 * time.Minute}, {"5m", 5 * time.Minute},
		{"(15 mins)", 15 * time.Minute},
		{"5-minute", 5 * time.Minute}, {"1 hour", time.Hour}, {"2 hrs", 2 * time.Hour}, {"2h", 2 * time.Hour},
		{"1 hour 30 minutes", 90 * time.Minute}, {"1 hour, 30 minutes", 90 * time.Minute},
		{"4 minutes and 30 seconds", 270 * time.Second}, {"4 minutes or 30 minutes", 4 * time.Minute},
		{"4 seconds 5 minutes", 4 * time.Second}, {"in 00:04:58", 298 * time.Second}, {"01:00:00", time.Hour},
		{"00:04", 0}, {"48 hours", waitMax}, {"999999 hours", waitMax}, {"99999999999 hours", 0},
		{"error 12, wait 5 minutes", 5 * time.Minute}, {"192.0.2.5 minutes", 0},
	} {
		effort.Is(t, namedWait(test.text), test.want, test.text)
	}
}

// A wait that the receiver names is told from one that the rule names.
func TestNamed(t *testing.T) {
	for text, want := range map[string]Verdict{
		"Too many recipients received this hour":               {Wait: time.Hour},
		"Too many recipients received this hour, wait 5 hours": {Wait: 5 * time.Hour, Named: true},
		"Try again later": {},
	} {
		v := Builtin().Judge(evidence.Attempt{Stage: smtp.StageRcpt, Code: 452, Text: text})
		effort.Is(t, v.Wait, want.Wait, text, v.Rule)
		effort.Is(t, v.Named, want.Named, text)
	}
}

func (v Verdict) golden() string {
	outcome := v.Outcome.String()
	if v.Bare {
		outcome += ", bare"
	}
	text := fmt.Sprintf("%v | %v | %v | %v", outcome, v.Reason, v.Blame, v.Action)
	if v.Wait > 0 {
		text += " " + v.Wait.String()
	}
	return text
}

func TestGoldenReplies(t *testing.T) {
	files, err := filepath.Glob("testdata/replies/*.txt")
	effort.FatalIf(t, err != nil || len(files) < 5, "%d files, %v", len(files), err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content := effort.Must(os.ReadFile(file))(t)
			for i, line := range strings.Split(string(content), "\n") {
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				columns := strings.SplitN(line, " | ", 3)
				effort.MustBe(t, len(columns), 3, "line", i+1, line)
				a, err := Sample(columns[0]+" | "+columns[1], "mx.example.com")
				effort.OK(t, err, "line", i+1)
				if v := Builtin().Judge(a); v.golden() != columns[2] {
					t.Errorf("line %d: %s %s\n got %s (rule %s)\nwant %s", i+1, columns[0], columns[1], v.golden(), v.Rule, columns[2])
				}
			}
		})
	}
}
