package evidence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"

	"rollcall/smtp"
)

const (
	// AttemptsMax bounds the attempts of a Case: the first AttemptsFirst and the newest others. A route has at most
	// 5 hosts and 8 addresses, so the last pass over them always fits.
	AttemptsMax = 16

	// AttemptsFirst is the number of first attempts that are always kept.
	AttemptsFirst = 4
)

// Case is everything on which the outcome of one address is based.
type Case struct {
	Attempts []Attempt // oldest first, at most AttemptsMax
	Omitted  int       // attempts left out after the first AttemptsFirst

	NoRoute smtp.Reason // what DNS said instead of a route; smtp.ReasonNone: there was one, or DNS was not asked
	Hosts   int         // of the route; 0: unknown

	Behaviour AcceptBehaviour // what was known of the domain when an acceptance was judged

	// GaveUp says that the engine stopped asking, and Why gives the reason; smtp.ReasonNone: the last attempt gives it.
	GaveUp bool
	Why    smtp.Reason
}

// Add appends an attempt within AttemptsMax.
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

// Attempt is one question about an address and its result. A verdict depends only on Stage, Host, Wide, Code,
// Enhanced, Text and Trouble.
type Attempt struct {
	At     time.Time  // when the answer came, or when it was certain that none would; to the millisecond
	Stage  smtp.Stage // at which the answer came
	Host   string     // MX host, lower case; empty: none yet
	Source string     // our IP address; empty: the system chose it, or there was no connection
	TLS    bool       // the session was encrypted
	Wide   bool       // the local part is not ASCII

	Code     int // of the reply; 0: there was none
	Enhanced smtp.EnhancedCode
	Text     string  // of the reply, cleaned; at most TextMax bytes
	Trouble  Trouble // why there was no reply

	// What the rules concluded.

	Outcome smtp.Outcome // smtp.Undecided: ask again
	Bare    bool         // smtp.Invalid by an ambiguous refusal: it needs a witness
	Reason  smtp.Reason
	Blame   smtp.Blame
	Rule    string // id of the deciding rule
	Version uint32 // of that rule: a hash of its content

	// Others says that the attempt was about another address or about none, and that its result keeps us from asking
	// for this address for a while.
	Others bool

	// Cause is the diagnosis of the attempt, from the results of other addresses.
	Cause Cause

	// Witness says that another address of the domain was probed, to get a witness.
	Witness bool

	Void bool // the answer does not count: the session was poisoned, or a harvest guard was active
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
	TroubleProtocol            // not an SMTP reply
	TroubleTimeout             // nothing came in time
	TroubleConnection          // no connection, or it broke
	TroubleIntercepted         // a middlebox answers in place of the host
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

// TroubleSays returns the sentence for a word of String. For "" and unknown words it only says that there was no reply.
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

// Raw is an unprocessed answer. Address, Hello, Source and ReturnPath are removed from its text, because they are
// not the receiver's own words.
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

// Note returns the attempt for a raw answer, without a verdict.
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

// RuleName returns the name of the deciding rule in the version that judged; "" for none.
func (a *Attempt) RuleName() string {
	if a.Rule == "" {
		return ""
	}
	return fmt.Sprintf("%s@%08x", a.Rule, a.Version)
}

// Unreadable reports whether a permanent refusal stayed undecided because its text could not be read: most of its
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

// NameMax bounds host, source and rule of an attempt: a DNS name has at most 253 octets (RFC 1035 §2.3.4), and the
// others are shorter.
const NameMax = 255

// Cause is the diagnosis of an attempt whose own answer did not explain it, with the trials that led to the
// diagnosis. It is for people: no verdict depends on it.
type Cause struct {
	Scope Scope  // ScopeNone: no diagnosis
	Why   string // a plain sentence with the trials, without addresses; at most WhyMax bytes
}

// WhyMax bounds the sentence of a Cause.
const WhyMax = 200

// NewCause makes a cause, with at most WhyMax bytes of why.
func NewCause(s Scope, why string) Cause { return Cause{Scope: s, Why: why[:min(len(why), WhyMax)]} }

// Scope is how much a cause affects.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Scope uint8

// The scopes.
const (
	ScopeNone     Scope = iota
	ScopeAddress        // only the address that was asked for
	ScopeDomain         // its mail domain
	ScopeTenant         // the list of one customer
	ScopeReceiver       // the receiver: our rate there, or its own trouble
	ScopeSource         // our source address, which the receiver refuses
	ScopeHost           // one of the receiver's hosts; others answer
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
