package evidence

import (
	"context"
	"errors"
	"net"
	"time"
	"unicode/utf8"

	"rollcall/smtp"
)

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
