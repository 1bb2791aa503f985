package smtplab

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/smtp"
)

// Expectation is the truth about an address.
type Expectation struct {
	Outcome  smtp.Outcome   // the right one; smtp.Undecided: not an address
	Also     []smtp.Outcome // also acceptable
	Reasons  []smtp.Reason  // right with Outcome; empty: any
	Knowable bool           // a careful engine with enough time finds Outcome, and it is not unknown
}

// Wrong reports whether o is a false result. Unknown never is.
func (e Expectation) Wrong(o smtp.Outcome) bool {
	return o != e.Outcome && o != smtp.Unknown && !slices.Contains(e.Also, o)
}

// Right reports whether o is the right outcome with a right reason.
func (e Expectation) Right(o smtp.Outcome, reason smtp.Reason) bool {
	return o == e.Outcome && (len(e.Reasons) == 0 || slices.Contains(e.Reasons, reason))
}

// byMailbox is the truth at a receiver that knows its mailboxes.
var byMailbox = [MailboxKinds]Expectation{
	NotFound:   {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxNotFound}, Knowable: true},
	Exists:     {Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxExists}, Knowable: true},
	Disabled:   {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxDisabled}, Knowable: true},
	Full:       {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxFull}, Knowable: true},
	OverQuota:  {Outcome: smtp.Unknown},
	Restricted: {Outcome: smtp.CatchAll, Reasons: []smtp.Reason{smtp.MailboxRestricted}, Knowable: true},
	Busy:       {Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Valid}},
	Grey:       {Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxExists}, Knowable: true},
	Deferred:   {Outcome: smtp.Unknown},
	Refused:    {Outcome: smtp.Unknown},
	Cut:        {Outcome: smtp.Unknown},
	Closing:    {Outcome: smtp.Unknown},
}

// Truth returns the truth about an address, in any spelling of its domain. A domain outside of the lab is unknown.
func (l *Lab) Truth(address string) Expectation {
	at := strings.LastIndexByte(address, '@')
	if at <= 0 {
		return Expectation{}
	}
	name, err := canonical(address[at+1:])
	if err != nil {
		return Expectation{}
	}
	l.mu.Lock()
	zone, p, a := l.owner(name)
	if a != nil && len(a.mx) > 0 {
		p = l.hostOwner(a)
	}
	l.mu.Unlock()
	switch {
	case a != nil && len(a.mx) == 1 && a.mx[""]: // a null MX (RFC 7505 §3)
		return Expectation{Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.NoMailService}, Knowable: true}
	case zone == "" || p == nil && a != nil:
		return Expectation{Outcome: smtp.Unknown}
	case p == nil:
		return Expectation{Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.DomainNotFound}, Knowable: true}
	}
	return p.truth([]byte(address[:at]))
}

// hostOwner returns the personality behind a tenant's MX hosts; nil when none is in the lab. The caller holds l.mu.
func (l *Lab) hostOwner(a *added) *persona {
	for host := range a.mx {
		if _, p, _ := l.owner(host); p != nil {
			return p
		}
	}
	return nil
}

// truth returns the truth about a local part at this receiver.
func (p *Personality) truth(local []byte) Expectation {
	if p.Fixed != smtp.Undecided {
		return Expectation{
			Outcome: p.Fixed, Also: p.Also, Reasons: p.Reasons,
			Knowable: p.Fixed != smtp.Unknown && !p.Hard,
		}
	}
	if !p.UTF8 && !ascii(local) {
		return Expectation{
			Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid},
			Reasons: []smtp.Reason{smtp.EAIUnsupported},
		}
	}
	kind := mailboxOf(local)
	e := byMailbox[kind]
	if own := p.Means[kind]; own.Outcome != smtp.Undecided {
		return own
	}
	if p.Hard {
		e.Knowable, e.Reasons = false, nil
	}
	// Without an enhanced code, only words distinguish these from other refusals.
	if p.NoEnhanced && kind != Exists && kind != NotFound {
		e.Knowable, e.Reasons = false, nil
	}
	return e
}

// Mailbox is what a receiver of the lab knows about a local part.
type Mailbox uint8

// The kinds of mailbox. The local part decides, in any case of letters.
const (
	NotFound     Mailbox = iota // everything else, nobody..., ghost...
	Exists                      // name, first.last, name12, at most 15 bytes
	Disabled                    // disabled...
	Full                        // full...
	OverQuota                   // overquota...: full at the moment
	Restricted                  // restricted...: takes mail from members only
	Busy                        // busy...: receives too much at the moment
	Grey                        // grey...: always greylisted by itself
	Deferred                    // deferred...: always deferred
	Refused                     // refused...: no mail from us is accepted for it
	Cut                         // cut...: the connection ends instead of an answer
	Closing                     // closing...: 421, and the end of the session
	MailboxKinds                // number of kinds
)

// mailboxBytesMax is the longest local part that exists. Control probes are longer (16 bytes and more), so a
// receiver that knows its mailboxes refuses them.
const mailboxBytesMax = 15

// digitsMax bounds the digits at the end of a mailbox's name: a year.
const digitsMax = 4

var mailboxPrefixes = [...]struct {
	prefix string
	kind   Mailbox
}{
	{"nobody", NotFound},
	{"ghost", NotFound},
	{"disabled", Disabled},
	{"full", Full},
	{"overquota", OverQuota},
	{"restricted", Restricted},
	{"busy", Busy},
	{"grey", Grey},
	{"deferred", Deferred},
	{"refused", Refused},
	{"cut", Cut},
	{"closing", Closing},
}

// mailboxOf returns the kind of a local part. Existing mailboxes have letters, at most one dot between letters, at
// most four digits at the end, and at most 15 bytes; the first letters may name another kind.
func mailboxOf(local []byte) Mailbox {
	if len(local) > mailboxBytesMax || !wellNamed(local) {
		return NotFound
	}
	for i := range mailboxPrefixes {
		p := &mailboxPrefixes[i]
		if len(local) >= len(p.prefix) && bytes.EqualFold(local[:len(p.prefix)], []byte(p.prefix)) {
			return p.kind
		}
	}
	return Exists
}

// wellNamed reports whether local is letters [ "." letters ] [ 1 to 4 digits ].
func wellNamed(local []byte) bool {
	letters, dots := 0, 0
	for i := 0; i < len(local); {
		r, size := rune(local[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(local[i:])
		}
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z' || r >= utf8.RuneSelf && unicode.IsLetter(r):
			letters++
		case r == '.' && letters > 0 && dots == 0:
			letters, dots = 0, 1
		case '0' <= r && r <= '9' && letters > 0:
			return len(local)-i <= digitsMax && len(bytes.TrimLeft(local[i:], "0123456789")) == 0
		default:
			return false
		}
		i += size
	}
	return letters > 0
}
