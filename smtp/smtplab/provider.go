package smtplab

import (
	"slices"

	"rollcall/smtp"
)

// provider is a receiver that exists in the world: how it answers an honest
// question, and what it says when it speaks about us. The facts (codes and key
// words) are those of public reports, in short texts of our own.
type provider struct {
	Personality
	us []aboutUs
}

// aboutUs is a personality of its own: the provider's name with mood behind it,
// with the same reply for every address.
type aboutUs struct {
	mood    string
	at      smtp.Stage // greeting, hello, mail or rcpt
	reply   string
	reasons []smtp.Reason // right with the outcome; nil: any
	not     bool          // it says that it does not serve the domain: invalid, hard to be sure of
}

// expanded gives a provider's personality and those of its moods.
func (p provider) expanded() []Personality {
	out := []Personality{p.Personality}
	for _, u := range p.us {
		m := Personality{
			Name: p.Name + u.mood, About: p.Name + " speaks about us: " + u.mood, MXSuffix: p.MXSuffix,
			NoEnhanced: p.NoEnhanced, Pipelining: p.Pipelining, TLS: p.TLS,
			Fixed: smtp.Unknown, Reasons: u.reasons, Base: p.Name,
		}
		if u.not {
			m.About, m.Fixed, m.Hard = p.Name+" says that it does not serve the domain", smtp.Invalid, true
		}
		switch u.at {
		case smtp.StageGreeting:
			m.Words.Greeting = u.reply
		case smtp.StageHello:
			m.Words.Hello = u.reply
		case smtp.StageMail:
			m.Words.Mail = u.reply
		default:
			m.Words.Any = u.reply
		}
		out = append(out, m)
	}
	return out
}

// providers are the personalities of the table, with those that speak about us
// in a family of their own.
func providers(family string, table []provider) []Personality {
	var out []Personality
	for _, p := range table {
		for _, q := range p.expanded() {
			q.Family = family
			if q.Base != "" {
				q.Family = "aboutus"
			}
			out = append(out, q)
		}
	}
	return out
}

// What a provider may mean by an answer, where it is not the usual.
var (
	isBusy     = Expectation{Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxBusy}, Knowable: true}
	isFull     = Expectation{Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxFull}, Knowable: true}
	isDisabled = Expectation{
		Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxDisabled, smtp.MailboxNotFound}, Knowable: true,
	}
	isRestricted = Expectation{
		Outcome: smtp.CatchAll, Also: []smtp.Outcome{smtp.Valid},
		Reasons: []smtp.Reason{smtp.MailboxRestricted}, Knowable: true,
	}
	// maybeGone is a refusal that stands for a mailbox that is off and for others.
	maybeGone = Expectation{Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid}}
	maybeBusy = Expectation{Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Valid}}
)

// noRcptAnswer is the truth at a provider that accepts every local part.
var noRcptAnswer = []smtp.Reason{smtp.NoRcptAnswer, smtp.AcceptAll}

// Reasons of the moods.
var (
	blockedUs = []smtp.Reason{smtp.SourceBlocked, smtp.Policy}
	knowsUs   = []smtp.Reason{smtp.SourceIdentity, smtp.SourceBlocked}
	slowsUs   = []smtp.Reason{smtp.ReceiverRateLimited, smtp.ReceiverBusy, smtp.SourceBlocked, smtp.Policy}
	notHosted = []smtp.Reason{smtp.DomainNotHosted}
)

// kinds writes replies by mailbox.
func kinds(pairs map[Mailbox]string) (out [MailboxKinds]string) {
	for kind, reply := range pairs {
		out[kind] = reply
	}
	return out
}

// means writes truths by mailbox.
func means(pairs map[Mailbox]Expectation) (out [MailboxKinds]Expectation) {
	for kind, e := range pairs {
		out[kind] = e
	}
	return out
}

// ofWorld gives every personality that emulates a provider or a server.
func ofWorld() []Personality {
	return slices.Concat(
		providers("provider", bigProviders), providers("gateway", gateways),
		providers("regional", regionals), providers("regional", regionalsEast),
		providers("software", software), providers("greylist", greylistKinds),
		providers("guard", guardKinds), providers("refusal", refusalKinds),
	)
}
