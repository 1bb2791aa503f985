package evidence

import (
	"context"
	"errors"
	"net"
	"time"
	"unicode/utf8"

	"rollcall/smtp"
)

const (
	// AttemptsMax bounds the attempts of a Case: the first AttemptsFirst and the
	// newest others. A route has at most 5 hosts that are tried and 8 addresses, so
	// the last pass over them is always whole.
	AttemptsMax = 16

	// AttemptsFirst is how many of the first attempts are kept whatever follows: they
	// show how it began.
	AttemptsFirst = 4

	// ControlsMax bounds the control probes that a Case shows.
	ControlsMax = 8

	// WitnessWithin is how long after a refusal in bare words the acceptance of another
	// address shows that we are heard, and were so when it came. Guess: long enough to ask
	// one more, and shorter than filters keep somebody out.
	WitnessWithin = 20 * time.Second

	// ControlsEnough is how many control probes must be accepted, and none refused,
	// before "accepts every address" is believed.
	ControlsEnough = 3
)

// Case is all that the outcome of one address rests on.
type Case struct {
	Attempts []Attempt // oldest first, at most AttemptsMax
	Omitted  int       // attempts that are left out behind the first AttemptsFirst

	NoRoute smtp.Reason // what DNS said instead of a route; smtp.ReasonNone: there was one, or nobody asked
	Hosts   int         // of the route; 0: not known

	Behaviour AcceptBehaviour // what was known of the domain when an acceptance was judged

	// GaveUp says that the engine stopped asking, and Why it did; smtp.ReasonNone:
	// because of what the last attempt says.
	GaveUp bool
	Why    smtp.Reason
}

// Add appends an attempt and keeps to AttemptsMax.
func (c *Case) Add(a Attempt) {
	if len(c.Attempts) == AttemptsMax {
		c.Attempts = append(c.Attempts[:AttemptsFirst], c.Attempts[AttemptsFirst+1:]...)
		c.Omitted++
	}
	c.Attempts = append(c.Attempts, a)
}

// Last returns the newest attempt that is not void.
func (c *Case) Last() (Attempt, bool) {
	for i := len(c.Attempts) - 1; i >= 0; i-- {
		if !c.Attempts[i].Void {
			return c.Attempts[i], true
		}
	}
	return Attempt{}, false
}

// AcceptBehaviour is what is known of a domain's way to answer: does its receiver tell the
// mailboxes that it has from those that it has not, before delivery?
type AcceptBehaviour struct {
	// Accepted and Refused count the control probes that were answered, by whomever
	// they were asked; those that were not answered clearly count in neither.
	Accepted, Refused int
	First, Last       time.Time // of these answers

	// Controls are the control probes of this very run, oldest first, at most
	// ControlsMax. Their attempts name no address: a control probe is nobody's. Those that
	// are witnesses are about other addresses that were accepted, and count in neither.
	Controls []Attempt
}

// Witnessed reports whether another address of the domain was accepted soon after an attempt, at the same host and
// from the same source. Then the attempt was not refused for what we are.
func (h *AcceptBehaviour) Witnessed(a *Attempt) bool {
	for i := range h.Controls {
		w := &h.Controls[i]
		if after := w.At.Sub(a.At); w.Witness && w.Code/100 == 2 && !w.Void && w.Host == a.Host && w.Source == a.Source &&
			after >= 0 && after <= WitnessWithin {
			return true
		}
	}
	return false
}

// CatchAll reports whether the domain accepts every address; known is false while that
// is not clear. One refusal of a mailbox that cannot exist shows that mailboxes are
// told apart; it takes ControlsEnough acceptances, and no refusal, to show that they
// are not.
func (h AcceptBehaviour) CatchAll() (catchAll, known bool) {
	switch {
	case h.Refused > 0:
		return false, true
	case h.Accepted >= ControlsEnough:
		return true, true
	}
	return false, false
}

// Attempt is one thing that was asked about an address, and what came of it. A
// verdict depends on nothing but Stage, Host, Wide, Code, Enhanced, Text and Trouble.
type Attempt struct {
	At     time.Time  // when the answer was there, or that none would come; to the millisecond
	Stage  smtp.Stage // where the answer came
	Host   string     // MX host, lower case; empty before there was one
	Source string     // our IP address; empty: the system chose it, or there was no connection
	TLS    bool       // the session was encrypted
	Wide   bool       // the local part is not ASCII

	Code     int // of the reply; 0: there was none
	Enhanced smtp.EnhancedCode
	Text     string  // of the reply, cleaned; at most TextMax bytes
	Trouble  Trouble // why there was no reply

	// What the rules made of it.

	Outcome smtp.Outcome // smtp.Undecided: ask again
	Bare    bool         // smtp.Invalid in words that could mean somebody else: it takes a witness
	Reason  smtp.Reason
	Blame   smtp.Blame
	Rule    string // id of the rule that decided
	Version uint32 // of that rule: a hash of what it says

	// Others says that it was not about this address: another one, or nobody, was asked, and what
	// came of that keeps us from asking this one for a while.
	Others bool

	// Cause is what it was believed to be about, by what others got.
	Cause Cause

	// Witness says that another address of the domain was asked, to see whether we are heard.
	Witness bool

	Void bool // the answer was found to be worth nothing: the session was poisoned, or a guard at work
}

// Trouble is why an attempt got no reply.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Trouble uint8

// The troubles.
const (
	TroubleNone        Trouble = iota
	TroubleOurs                // we ended it, or never began
	TroubleMalformed           // the address does not fit a command line
	TroubleNoUTF8              // the address needs SMTPUTF8, which is not offered
	TroubleForbidden           // the dial guard refused the host's address
	TroubleNoTLS               // STARTTLS was demanded and is not offered
	TroubleProtocol            // what came was no reply
	TroubleTimeout             // nothing came in time
	TroubleConnection          // no connection, or one that broke
	TroubleIntercepted         // somebody else answers in place of the host
	troubles
)

var troubleTexts = [troubles]struct{ word, says string }{
	{"", ""},
	{"ours", "We closed the connection."},
	{"malformed", "The address doesn't fit into an SMTP command."},
	{"no_smtputf8", "The address needs SMTPUTF8, which the receiver doesn't offer."},
	{"forbidden_address", "We aren't allowed to contact the receiver's IP address."},
	{"no_starttls", "We need STARTTLS, which the receiver doesn't offer."},
	{"protocol", "The receiver sent something that isn't an SMTP reply."},
	{"timeout", "The receiver didn't answer in time."},
	{"connection", "We couldn't connect, or the connection broke."},
	{"intercepted", "Somebody else answers in place of the receiver."},
}

// String returns the word for records, such as "timeout"; "" for none.
func (t Trouble) String() string {
	if t.Known() {
		return troubleTexts[t].word
	}
	return "unknown"
}

// TroubleSays returns the sentence for people of a word for records; that of none, and of one it doesn't know, says
// only that there was no reply.
func TroubleSays(word string) string {
	for _, t := range troubleTexts[1:] {
		if t.word == word {
			return t.says
		}
	}
	return "There was no reply."
}

// Known reports whether t is one of these.
func (t Trouble) Known() bool { return t < troubles }

// Raw is an answer as it came. Address, Hello, Source and ReturnPath are taken out of
// the text, since they are not the receiver's own words.
type Raw struct {
	At      time.Time
	Stage   smtp.Stage
	Host    string     // MX host name, any case
	Reply   smtp.Reply // Code 0 when there was none
	Err     error      // why there was no reply
	Address smtp.Address
	Hello   string // our hello name
	Source  string // our IP address
	TLS     bool

	ReturnPath smtp.Address // our MAIL FROM; the zero value: none
}

// Note makes the attempt of a raw answer. It has no verdict yet.
func Note(r Raw) Attempt {
	a := Attempt{At: r.At.Truncate(time.Millisecond), Stage: r.Stage, Host: lowerHost(r.Host), Source: r.Source,
		TLS: r.TLS, Wide: !r.Address.ASCII()}
	if r.Reply.Code == 0 {
		a.Trouble = troubleOf(r.Err)
		return a
	}
	a.Code, a.Enhanced, a.Text = r.Reply.Code, r.Reply.Enhanced, Clean(r)
	return a
}

// Unreadable reports whether a refusal for good was undecided because its text could not be read: most of its
// letters are marks or not plain English, so its charset is unknown or was mistaken.
func (a *Attempt) Unreadable() bool {
	plain, strange := 0, 0
	for i := range len(a.Text) {
		switch c := a.Text[i]; {
		case c >= 'a' && c <= 'z':
			plain++
		case c == mark || c >= utf8.RuneSelf:
			strange++
		}
	}
	return a.Stage == smtp.StageRcpt && a.Code >= 500 && a.Outcome == smtp.Undecided && strange > plain
}

// troubleOf names the kind of an error of a session.
func troubleOf(err error) Trouble {
	var timeout net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, smtp.ErrClosed),
		errors.Is(err, smtp.ErrOptions):
		return TroubleOurs
	case errors.Is(err, smtp.ErrMalformed):
		return TroubleMalformed
	case errors.Is(err, smtp.ErrNoSMTPUTF8):
		return TroubleNoUTF8
	case errors.Is(err, smtp.ErrForbiddenAddress):
		return TroubleForbidden
	case errors.Is(err, smtp.ErrNoSTARTTLS):
		return TroubleNoTLS
	case errors.Is(err, smtp.ErrIntercepted):
		return TroubleIntercepted
	case errors.Is(err, smtp.ErrProtocol):
		return TroubleProtocol
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return TroubleTimeout
	}
	return TroubleConnection
}

// NameMax bounds host, source and rule of an attempt: a DNS name has 253 octets at
// most (RFC 1035 §2.3.4), and the others are shorter.
const NameMax = 255

// Cause is what an attempt was believed to be about when its own answer did not settle that, and the trials
// that showed it. It is for people: no verdict depends on it.
type Cause struct {
	Scope Scope  // ScopeNone: nothing was believed
	Why   string // a plain sentence with the trials, without addresses; at most WhyMax bytes
}

// WhyMax bounds the sentence of a Cause.
const WhyMax = 200

// NewCause makes a cause; of what is longer than WhyMax only the beginning is kept.
func NewCause(s Scope, why string) Cause { return Cause{Scope: s, Why: why[:min(len(why), WhyMax)]} }

// Scope is how far a cause reaches.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Scope uint8

// The scopes.
const (
	ScopeNone     Scope = iota
	ScopeAddress        // the address that was asked, and nobody else
	ScopeDomain         // its mail domain
	ScopeTenant         // the list of one customer
	ScopeReceiver       // the receiver: our pace there, or its own trouble
	ScopeSource         // our source address, which the receiver refuses
	ScopeHost           // one of the receiver's hosts, while others answer
	scopes
)

var scopeNames = [scopes]string{"", "address", "domain", "list", "receiver", "source", "host"}

// String returns the word for records, such as "receiver"; "" for none.
func (s Scope) String() string {
	if s.Known() {
		return scopeNames[s]
	}
	return "unknown"
}

// Known reports whether s is one of these.
func (s Scope) Known() bool { return s < scopes }
