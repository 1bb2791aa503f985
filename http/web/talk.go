package web

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Said is what was asked of a receiver and what came of it, by the words that the ledger keeps.
type Said struct {
	At             time.Time
	Stage, Host    string
	Source         string // our address; "": it isn't shown
	TLS            bool
	Code           int // 0: there was no reply
	Enhanced, Text string
	Trouble        string // why there was none
	Outcome        string
	Reason, Rule   string
	Void, Others   bool
	Why            string // it was believed to be about somebody else
	Asked          string // the address, or what stands for it
}

// Attempt is one question, its answer and how that was read, in words.
type Attempt struct {
	Said
	Label      string // which of them it is
	Ask        string // what was said or waited for; "": nothing
	Reply      string // or why there was none
	Replied    bool
	Read, Note string
}

// stages say what was said or waited for before an address could be named.
var stages = map[string]string{"connect": "(a connection)", "greeting": "(the greeting)", "hello": "EHLO",
	"tls": "STARTTLS", "mail": "MAIL FROM"}

// placeholders are what stands in the cleaned text of a reply in place of an address, of our names and of other names.
var placeholders = strings.NewReplacer("<^>", "‹the address›", "^", "‹the address›", `\`, "‹our name›", "~", "‹…›")

// AttemptOf puts an attempt into words.
func AttemptOf(s Said) Attempt {
	a := Attempt{Said: s, Ask: stages[s.Stage], Reply: evidence.TroubleSays(s.Trouble),
		Read: OutcomeWord(s.Outcome)}
	if s.Stage == "rcpt" || s.Stage == "rset" {
		a.Ask = "RCPT TO:<" + s.Asked + ">"
	}
	if a.Replied = s.Code != 0; a.Replied {
		words := []string{strconv.Itoa(s.Code), s.Enhanced, placeholders.Replace(s.Text)}
		a.Reply = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
	}
	if s.Outcome == smtp.Undecided.String() {
		a.Read = "a reason to ask again"
	}
	if s.Reason != smtp.ReasonNone.String() {
		a.Read += " (" + s.Reason + ")"
	}
	switch {
	case s.Void:
		a.Note = "Ignored: the session was no longer reliable."
	case s.Others:
		a.Note = "This wasn't about this address, which waited for the outcome."
	case s.Why != "":
		a.Note = Sentence(strings.TrimSuffix(s.Why, "."))
	}
	return a
}

// ControlName is what stands for an address that was asked as a test.
func ControlName(witness bool) string {
	if witness {
		return "another address of the domain"
	}
	return "a made-up name"
}

// BehaviourText says what made-up names showed about a receiver; "": nothing is known.
func BehaviourText(accepts, known bool) string {
	switch {
	case !known:
		return ""
	case accepts:
		return "The receiver accepts made-up names, so a yes doesn't show that the mailbox exists."
	}
	return "The receiver refuses made-up names, so its answers about real addresses can be trusted."
}

// Talk is what an outcome rests on. Attempts and Controls are in their order.
type Talk struct {
	Email                    string
	Outcome, Token, Sentence string
	Flags                    []string // what is said of the address without asking, in sentences
	Kept                     bool     // there is evidence
	NoRoute                  string
	Attempts, Controls       []Attempt
	Omitted                  int
	Behaviour                string
	GaveUp                   bool
}
