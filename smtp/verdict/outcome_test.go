package verdict

import (
	"slices"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

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

// behaviours are what may be known of a domain: nothing, that it tells mailboxes apart, that it takes all.
var habits = []evidence.AcceptBehaviour{{}, {Accepted: 2, Refused: 1}, {Accepted: evidence.ControlsEnough}}

// mustStayOpen concludes about a reply that the only host of a domain gave, and both of two, with
// and without control probes, and says how often that was.
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
	for _, line := range openLines(t, "public-own-faults.txt") {
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
	for _, line := range openLines(t, "about-us.txt", "public-unclear.txt", "public-open.txt", "greylist.txt", "collected.txt",
		"words.txt", "enhanced.txt", "stages.txt", "languages.txt", "providers-*.txt", "software.txt", "misleading.txt") {
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

// Every refusal for good that says who is missing is temporary under a 4xx, whatever it says.
func TestTemporaryRefusalsAreNeverAnAnswer(t *testing.T) {
	tried := 0
	for _, line := range goldenLines(t, "testdata/replies/*.txt") {
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

// report prints how many cases were concluded.
func report(t *testing.T, tried, least int) {
	t.Helper()
	effort.ErrorIf(t, tried < least, "only %d cases", tried)
	t.Logf("%d cases", tried)
}
