package smtplab

import (
	"slices"
	"strings"

	"rollcall/smtp"
)

// Expectation is what is right to say about an address.
type Expectation struct {
	Outcome  smtp.Outcome   // the right one; smtp.Undecided: no address
	Also     []smtp.Outcome // not wrong either
	Reasons  []smtp.Reason  // right with Outcome; empty: any
	Knowable bool           // a careful engine that takes its time finds Outcome, and it is not unknown
}

// Wrong reports whether o is a false statement. Unknown never is.
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

// Truth tells what is right to say about an address, in any spelling of its
// domain. A domain outside of the lab is unknown.
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

// hostOwner finds the personality behind the MX hosts of a tenant; nil when none
// is of the lab. The caller holds l.mu.
func (l *Lab) hostOwner(a *added) *persona {
	for host := range a.mx {
		if _, p, _ := l.owner(host); p != nil {
			return p
		}
	}
	return nil
}

// truth is what is right about a local part at this receiver.
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
	// Without an enhanced code, words alone tell these from other refusals.
	if p.NoEnhanced && kind != Exists && kind != NotFound {
		e.Knowable, e.Reasons = false, nil
	}
	return e
}
