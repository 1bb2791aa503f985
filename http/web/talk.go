package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/ledger"
	kept "rollcall/ledger/evidence"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Attempt is one attempt, its reply and the verdict, in words.
type Attempt struct {
	At      time.Time
	Host    string
	Source  string // our address; "": it isn't shown
	TLS     bool
	Rule    string
	Ask     string // the stage of the dialogue; "": none
	Reply   string // or why there was none
	Replied bool
	Read    string
	Note    string
}

// stages describe stages of the dialogue before an address could be named.
var stages = map[string]string{"connect": "(a connection)", "greeting": "(the greeting)", "hello": "EHLO",
	"tls": "STARTTLS", "mail": "MAIL FROM"}

// placeholders replace addresses, our names and other names in the cleaned text of a reply.
var placeholders = strings.NewReplacer("<^>", "‹the address›", "^", "‹the address›", `\`, "‹our name›", "~", "‹…›")

// attemptOf describes an attempt. asked is the address, or its placeholder.
func attemptOf(s evidence.Attempt, asked string, toOperators bool) Attempt {
	a := Attempt{At: s.At, Host: s.Host, TLS: s.TLS, Rule: s.Rule, Ask: stages[s.Stage.String()],
		Reply: evidence.TroubleSays(s.Trouble.String()), Read: OutcomeWord(s.Outcome.String())}
	if toOperators {
		a.Source, a.Rule = cmp.Or(s.Source, "no known source of ours"), kept.RuleName(s.Rule, s.Version)
	}
	if s.Stage == smtp.StageRcpt || s.Stage == smtp.StageRset {
		a.Ask = "RCPT TO:<" + asked + ">"
	}
	if a.Replied = s.Code != 0; a.Replied {
		words := []string{strconv.Itoa(s.Code), s.Enhanced.String(), placeholders.Replace(s.Text)}
		a.Reply = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
	}
	if s.Outcome == smtp.Undecided {
		a.Read = "a reason to ask again"
	}
	if s.Reason != smtp.ReasonNone {
		a.Read += " (" + s.Reason.String() + ")"
	}
	switch {
	case s.Void:
		a.Note = "Ignored: the session was no longer reliable."
	case s.Others:
		a.Note = "This wasn't about this address, which waited for the outcome."
	case s.Cause.Why != "":
		a.Note = Sentence(strings.TrimSuffix(s.Cause.Why, "."))
	}
	return a
}

// controlName replaces the address of a control probe.
func controlName(witness bool) string {
	if witness {
		return "another address of the domain"
	}
	return "a made-up name"
}

// behaviourText says what control probes showed about a receiver; "": nothing is known.
func behaviourText(accepts, known bool) string {
	switch {
	case !known:
		return ""
	case accepts:
		return "The receiver accepts made-up names, so a yes doesn't show that the mailbox exists."
	}
	return "The receiver refuses made-up names, so its answers about real addresses can be trusted."
}

// Talk is the evidence for an outcome. Attempts and Controls are in order.
type Talk struct {
	Email                    string
	Outcome, Token, Sentence string
	Flags                    []string // what the address itself shows, in sentences
	Kept                     bool     // there is evidence
	NoRoute                  string
	Attempts, Controls       []Attempt
	Omitted                  int
	Behaviour                string
	GaveUp                   bool
}

// TalkOf describes the evidence for an outcome; c is nil without evidence. For operators it also names the source that
// asked, and the version of the rule.
func TalkOf(r ledger.Result, c *evidence.Case, toOperators bool) *Talk {
	t := &Talk{Email: r.Email, Outcome: r.Outcome.String(), Token: r.Reason.String(), Sentence: SentenceOf(r.Reason)}
	if c == nil {
		return t
	}
	t.Kept, t.Omitted, t.GaveUp = true, c.Omitted, c.GaveUp
	for _, a := range c.Attempts {
		t.Attempts = append(t.Attempts, attemptOf(a, r.Email, toOperators))
	}
	for _, a := range c.Behaviour.Controls {
		t.Controls = append(t.Controls, attemptOf(a, controlName(a.Witness), toOperators))
	}
	switch {
	case c.NoRoute == smtp.ReasonNone:
	case toOperators:
		t.NoRoute = "DNS gave no route (" + c.NoRoute.String() + ")."
	default:
		t.NoRoute = SentenceOf(c.NoRoute)
	}
	t.Behaviour = behaviourText(c.Behaviour.CatchAll())
	return t
}

// SentenceOf is the sentence of a reason, without its word.
func SentenceOf(r smtp.Reason) string {
	_, sentence, _ := strings.Cut(r.Message(), " ")
	return sentence
}
