package verdict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Every rule keeps this: only RCPT gives an outcome; invalid needs a 5xx in both codes, and no policy code but
// 5.7.13; "again" says how.
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

// Any attempt gives some verdict that keeps the contract, from whatever host.
func FuzzJudge(f *testing.F) {
	f.Add(uint8(smtp.StageRcpt), 550, uint16(5), uint16(1), uint16(1), "user unknown", "mx.example.com", "john@example.com")
	f.Add(uint8(smtp.StageRcpt), 451, uint16(4), uint16(7), uint16(1), "greylisted for 300 seconds\xff", "", "ä@")
	f.Add(uint8(smtp.StageRcpt), 250, uint16(0), uint16(0), uint16(0), "ok", "mta5.am0.yahoodns.net", "a@b")
	f.Add(uint8(smtp.StageRcpt), 550, uint16(5), uint16(2), uint16(1), "rate that prevents", "aspmx.l.google.com", "a@b")
	f.Add(uint8(200), -1, uint16(9), uint16(65535), uint16(0), "00:00:00 1 hour and 1 hour", "..", "@@")
	f.Fuzz(func(t *testing.T, stage uint8, code int, class, subject, detail uint16, text, host, address string) {
		local, domain, _ := strings.Cut(address, "@")
		a := evidence.Note(evidence.Raw{
			Stage: smtp.Stage(stage), Host: host, Hello: domain, Source: local,
			Address: smtp.Address{Local: local, Domain: domain},
			Reply: smtp.Reply{
				Code: code, Enhanced: smtp.EnhancedCode{class, subject, detail}, Lines: strings.Split(text, "\n"),
			},
		})
		checkContract(t, fmt.Sprintf("%+v", a), a)
		v := Builtin().Judge(a)
		effort.ErrorIf(t, v.Wait < 0 || v.Wait > waitMax || v != Builtin().Judge(a), "%+v", v)
	})
}

// Any bytes are refused, or give rules that judge.
func FuzzRuleFile(f *testing.F) {
	f.Add([]byte(ownHead + ownRule))
	f.Add([]byte("title = \"x\"\n" + with(`words = ["(a|b) (c|d*)", "ж"]`, `enhanced = ["x.1.2-9", "none"]`)))
	f.Add([]byte("title = 1\n[[rule]]\nid = [[1]]\n[rule]\nrule = [{id = \"x\"}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		own, found := readFile("verdict.toml", data, true)
		if len(found) > 0 || len(own.rules) > rulesMax {
			return
		}
		phrases := 0
		for _, r := range own.rules {
			phrases += len(r.phrases)
		}
		if phrases > 1000 {
			t.Skip("the machine takes too long for a fuzz test")
		}
		s := compile([]*ruleFile{own})
		if s.check(true) != nil {
			return
		}
		for _, r := range s.rules { // what has no faults decides about its samples
			a := sample(t, r.doc.Match[0])
			if len(r.scope) > 0 {
				a.Host = r.scope[0]
			}
			v := s.Judge(a)
			effort.ErrorIf(t, v.Rule != r.doc.ID && !strings.Contains(r.doc.Match[0], "@"), "%s: %+v", r.doc.ID, v)
		}
	})
}

// What a customer is told rests on outcomes, not on verdicts: these tests conclude.

// foreignOpenings say in other languages that there is no such mailbox, and name it.
var foreignOpenings = []string{
	"Empfänger unbekannt: ", "Utilisateur inconnu; ", "Usuario desconocido - ", "Utente sconosciuto. ",
	"Пользователь не найден: ", "Usuário inexistente - ", "<john.doe@example.com> does not exist; ",
}

// dresses put something beside a text that is no part of what it says, such as links, and addresses of ours and of
// others, or write it another way.
var dresses = []func(text string) string{
	func(text string) string { return text },
	func(text string) string { return text + " (see https://help.example.org/errors/user-unknown)" },
	func(text string) string { return "<check@probe.example>: " + text },
	func(text string) string { return text + " [sender check@probe.example, host mail.probe.example]" },
	func(text string) string { return "<jane.roe@elsewhere.example> " + text },
	func(text string) string { return "<john.doe@example.com> " + text },
	strings.ToUpper,
	func(text string) string { return "!!! " + strings.ReplaceAll(text, " ", "  ") + " !!!" },
	func(text string) string { return "Sorry. / " + text + " / Bye." },
}

// habits are the possible facts about a domain: none, it tells mailboxes apart, or it accepts everything.
var habits = []evidence.AcceptBehaviour{{}, {Accepted: 2, Refused: 1}, {Accepted: evidence.ControlsEnough}}

// mustStayOpen judges a reply of a domain's only host, and the same reply of two hosts, with and without control
// probes. It returns the number of judgements.
func mustStayOpen(t *testing.T, place, stage, reply string) (tried int) {
	t.Helper()
	name, host, _ := strings.Cut(stage, "@")
	a, err := Sample(name+" | "+reply, "mx1.example.com")
	effort.OK(t, err, place, reply)
	if host != "" {
		a.Host = host
	}
	Builtin().Decide(&a)
	other := a
	other.Host = "mx2." + other.Host
	Builtin().Decide(&other)
	for _, attempts := range [][]evidence.Attempt{{a}, {a, other}} {
		for _, behaviour := range habits {
			tried++
			c := evidence.Case{Attempts: attempts, Hosts: len(attempts), GaveUp: true, Behaviour: behaviour}
			if outcome, reason := Conclude(c); outcome != smtp.Unknown {
				t.Errorf("%s: %d hosts, behaviour %+v: %v, %v by %s: %s", place, len(attempts), behaviour, outcome, reason,
					a.Rule, reply)
				return tried
			}
		}
	}
	return tried
}

// openLines are the replies of the files for which nothing follows about a mailbox, and that don't
// say that the domain is not served, which is an answer at its only host.
func openLines(t *testing.T, files ...string) (list []goldenLine) {
	t.Helper()
	for _, file := range files {
		list = append(list, goldenLines(t, "testdata/replies/"+file)...)
	}
	return slices.DeleteFunc(list, func(l goldenLine) bool {
		return !strings.HasPrefix(l.verdict, "undecided") || strings.Contains(l.verdict, "domain_not_hosted") ||
			strings.Contains(l.verdict, "no_mail_service")
	})
}

// No own fault is ever an answer, whatever it is dressed in.
func TestOwnFaultsAreNeverAnAnswer(t *testing.T) {
	t.Parallel()
	tried, try := 0, effort.EveryNth(37)
	for _, line := range effort.Some(openLines(t, "public-own-faults.txt")) {
		tried += mustStayOpen(t, line.place, line.stage, line.reply)
		reply, err := ParseReply(line.reply)
		if err != nil || reply.Code < 500 {
			continue
		}
		text := strings.Join(reply.Lines, " / ")
		for _, opening := range slices.Concat(mailboxOpenings, foreignOpenings) {
			for _, code := range mailboxCodes {
				for _, dress := range dresses {
					if try() {
						tried += mustStayOpen(t, line.place, "rcpt", code+dress(opening+text))
					}
				}
			}
		}
	}
	report(t, tried, 10_000)
}

// Nor is what is temporary, or what leaves open whom it means: with links and addresses beside it.
func TestWhatIsOpenIsNeverAnAnswer(t *testing.T) {
	tried := 0
	for _, line := range effort.Some(openLines(t, "about-us.txt", "public-unclear.txt", "public-open.txt", "greylist.txt",
		"collected.txt", "words.txt", "enhanced.txt", "stages.txt", "languages.txt", "providers-*.txt", "software.txt",
		"misleading.txt")) {
		code, text, _ := strings.Cut(line.reply, " ")
		for _, dress := range dresses {
			if enhanced, rest, found := strings.Cut(text, " "); found && strings.Count(enhanced, ".") == 2 {
				tried += mustStayOpen(t, line.place, line.stage, code+" "+enhanced+" "+dress(rest))
			} else {
				tried += mustStayOpen(t, line.place, line.stage, code+" "+dress(text))
			}
		}
	}
	report(t, tried, 10_000)
}

// Every permanent refusal that says who is missing becomes temporary with a 4xx code, whatever its words.
func TestTemporaryRefusalsAreNeverAnAnswer(t *testing.T) {
	tried := 0
	for _, line := range effort.Some(goldenLines(t, "testdata/replies/*.txt")) {
		reply, err := ParseReply(line.reply)
		if err != nil || reply.Code < 500 || !strings.HasPrefix(line.stage, "rcpt") || strings.Contains(line.stage, "@") {
			continue
		}
		text := strings.Join(reply.Lines, " / ")
		for _, code := range []string{"450 ", "451 4.3.0 ", "452 4.1.1 ", "421 ", "450 5.1.1 ", "550 4.1.1 "} {
			tried += mustStayOpen(t, line.place, line.stage, code+text)
		}
	}
	report(t, tried, 20_000)
}

// report prints how many cases were concluded, and fails if a default run has fewer than least.
func report(t *testing.T, tried, least int) {
	t.Helper()
	effort.ErrorIf(t, tried < min(least, effort.Cases(least)), "only %d cases", tried) // a long run has no longer tables
	t.Logf("%d cases", tried)
}

// Texts about us come under any code and behind any words: that is how a peer's own fault became "invalid mailbox"
// elsewhere. These are the codes and words that a receiver keeps for a mailbox that is not there.
var (
	mailboxCodes = []string{
		"550 ", "550 5.1.1 ", "551 ", "552 5.2.2 ", "553 ", "553 5.3.0 ", "554 5.7.1 ", "525 ", "556 ",
		"550 5.0.0 ", "550 5.1.0 ", "550 5.1.2 ", "550 5.1.3 ", "550 5.1.6 ", "550 5.1.10 ", "550 5.2.1 ",
		"550 5.4.1 ", "550 5.5.0 ",
	}
	mailboxOpenings = []string{
		"", "mailbox unavailable: ", "user unknown; ", "Recipient address rejected: ", "User does not exist - ",
		"<john.doe@example.com>: Recipient rejected, ",
	}
)

// ownFaults are the replies of testdata that are about us or about the receiver.
func ownFaults(t *testing.T) []goldenLine {
	t.Helper()
	list := goldenLines(t, "testdata/replies/public-own-faults.txt")
	effort.FatalIf(t, len(list) < 400, "only %d replies", len(list))
	return list
}

// relayOpenings refuse to relay, which at the only host of a domain comes to invalid.
var relayOpenings = []string{"", "Relaying denied - ", "Relay access denied; ", "We do not relay. "}

// What is about us is unknown in the end, at a domain's only host too; where its words say that it is about us,
// whatever is said of relays beside them.
func TestOwnFaultsAreUnknownAtTheOnlyHost(t *testing.T) {
	tells, tried := evidence.AcceptBehaviour{Accepted: 2, Refused: 1}, 0
	for _, line := range ownFaults(t) {
		if !strings.Contains(line.verdict, "| source |") {
			continue
		}
		code, text, _ := strings.Cut(line.reply, " ")
		plain, err := Sample("rcpt | "+line.reply, "mx.example.com")
		effort.OK(t, err, line.place)
		openings := relayOpenings[:1]
		switch Builtin().Judge(plain).Rule {
		case "blocked", "blocked-languages", "identity", "rate-hard":
			openings = relayOpenings
		}
		for _, opening := range openings {
			a, err := Sample("rcpt | "+code+" "+opening+text, "mx.example.com")
			effort.OK(t, err, line.place)
			Builtin().Decide(&a)
			for _, behaviour := range []evidence.AcceptBehaviour{{}, tells} {
				tried++
				c := evidence.Case{Attempts: []evidence.Attempt{a}, Hosts: 1, GaveUp: true, Behaviour: behaviour}
				outcome, reason := Conclude(c)
				effort.Is(t, outcome, smtp.Unknown, line.place, reason, "by", a.Rule, opening, text)
			}
		}
	}
	effort.ErrorIf(t, tried < 1000, "only %d were tried", tried)
}

// The words of every rule, inside a link, leave a reply's verdict what it is without the link. Left out are
// rules that read links.
func TestWordsInsideLinksDecideNothing(t *testing.T) {
	replies := []string{
		"550 5.1.1 <john.doe@example.com>: User unknown", "552 5.2.2 Mailbox full", "550 5.2.1 Account disabled", "550 Refused",
		"554 5.7.1 Refused", "450 4.2.0 Greylisted", "421 4.7.0 Too many connections", "250 2.1.5 Ok",
	}
	forms := []string{"%s See https://%s.example.org/x", "%s (http://www.example.org/%s.html?x=1)", "%s: help.example.org/%s/42",
		"%s www.example.org/#%s", "%s-https://example.org/a/%s", "%s 详情https://example.org/a/%s"}
	reads := regexp.MustCompile("spamhaus|spamcop|sorbs|uceprotect|barracuda|abuseat|spamauditor|proofpoint|cloudmark|vade|" +
		"sender(base|score)|talos|spfbl|abusix|mailspike|help-spam|nosuchuser|receiving|rate-that|account.*reach|no-such-user")
	t.Parallel()
	tried, try := 0, effort.EveryNth(7)
	for _, r := range Builtin().rules {
		for _, phrase := range r.phrases {
			word := strings.ReplaceAll(strings.Trim(phrase, "*^\\ "), " ", "-")
			if reads.MatchString(word) || !isASCII(word) {
				continue
			}
			for i, reply := range replies {
				for _, host := range []string{"mx.example.com", "mta5.am0.yahoodns.net", "gmail-smtp-in.l.google.com"} {
					if tried++; !try() {
						continue
					}
					form := fmt.Sprintf(forms[(tried+i)%len(forms)], reply, word)
					with, err := Sample("rcpt | "+form, host)
					without, err2 := Sample("rcpt | "+reply, host)
					if got, want := Builtin().Judge(with).golden(), Builtin().Judge(without).golden(); err != nil || err2 != nil || got != want {
						t.Errorf("%s at %s: %s, without the link %s; %v %v", form, host, got, want, err, err2)
					}
				}
			}
		}
	}
	effort.ErrorIf(t, tried < 50_000, "only %d were tried", tried)
}
