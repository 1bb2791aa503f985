package smtplab

import "rollcall/smtp"

// software are servers with default settings, besides those in personalities.go.
var software = []provider{
	{Personality{
		Name: "postfixvirtual", About: "Postfix with a virtual mailbox table", Pipelining: true, UTF8: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.1 <{address}>: Recipient address rejected: User unknown in virtual mailbox table",
		}},
	}, []aboutUs{
		{"ptr", smtp.StageRcpt, "450 4.7.25 Client host rejected: cannot find your hostname, [{client}]", knowsUs,
			false},
		{"reverse", smtp.StageRcpt, "450 4.7.1 Client host rejected: cannot find your reverse hostname, [{client}]",
			knowsUs, false},
		{"sender", smtp.StageRcpt, "450 4.1.8 <{hello}>: Sender address rejected: Domain not found", knowsUs, false},
		{"hello", smtp.StageRcpt, "504 5.5.2 <{hello}>: Helo command rejected: need fully-qualified hostname",
			knowsUs, false},
		{"listed", smtp.StageRcpt, "554 5.7.1 Service unavailable; Client host [{client}] blocked using " +
			"zen.test; https://check.test/query/ip/{client}", blockedUs, false},
		{"greylike", smtp.StageRcpt, "450 4.3.2 Service currently unavailable", nil, false},
	}},
	{Personality{
		Name: "postfixunverified", About: "Postfix that verifies an address when it is first asked",
		Greylist: true, Pipelining: true,
		Words: Words{
			Greylist: "450 4.1.1 <{address}>: Recipient address rejected: unverified address: " +
				"Address verification in progress",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 <{address}>: Recipient address rejected: undeliverable address: unknown user",
			}},
	}, nil},
	{Personality{
		Name: "postfixsoft", About: "Postfix in soft-bounce mode", Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "450 4.1.1 <{address}>: Recipient address rejected: User unknown in local recipient table",
			Disabled: "450 4.2.1 <{address}>: mailbox disabled",
			Full:     "452 4.2.2 <{address}>: mailbox full",
		}},
		Means: [MailboxKinds]Expectation{
			// Control probes are always deferred, too, so even an acceptance is hard to trust.
			Exists:   {Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxExists}},
			NotFound: maybeGone, Disabled: maybeGone, Full: maybeGone,
		},
	}, nil},
	{Personality{
		Name: "exchangeopen", About: "Exchange without recipient filtering: accepts everything", CatchAll: true,
		Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
	}, nil},
	{Personality{
		Name: "exchangetarpit", About: "Exchange that takes five seconds for a refusal", RefusalDelay: tarpitDelay,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 User unknown"}},
	}, nil},
	{Personality{
		Name: "qmail", About: "qmail as it comes: accepts everything, bounces later", NoEnhanced: true,
		CatchAll: true, Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Words: Words{Relay: "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)"},
	}, []aboutUs{
		{"relay", smtp.StageRcpt, "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)",
			notHosted, true},
	}},
	{Personality{
		Name: "qmailpatched", About: "qmail with a patch that checks recipients", NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 sorry, no mailbox here by that name. (#5.1.1)",
		}},
	}, nil},
	{Personality{
		Name: "mox", About: "mox: accepts unknown users at RCPT; many bad transactions: 550 at MAIL", UTF8: true,
		TLS: TLSSelfSigned, Pipelining: true, CatchAll: true, Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Guard: GuardTx, GuardAt: 10,
	}, []aboutUs{
		{"hello", smtp.StageHello, "550 5.5.0 your ehlo domain does not resolve to an ip address", knowsUs, false},
		{"rate", smtp.StageGreeting, "421 4.7.0 connection rate from your ip or network too high, slow down please",
			slowsUs, false},
		{"disabled", smtp.StageRcpt, "450 4.2.1 recipient domain temporarily disabled", nil, false},
	}},
	{Personality{
		Name: "moxone", About: "mox that takes one recipient from a stranger", RcptsPerTx: 1, CatchAll: true,
		Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Words: Words{Limit: "452 4.5.3 only one recipient is allowed without spf pass"},
	}, nil},
	{Personality{
		Name: "stalwart", About: "Stalwart", UTF8: true, Pipelining: true, TLS: TLSSelfSigned,
		Guard: GuardErrors, GuardAt: 12, // guess: it is a setting
		Words: Words{
			Guard:     "451 4.3.0 Too many errors, disconnecting.",
			Relay:     "550 5.1.2 Relay not allowed.",
			Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.2 Mailbox does not exist."},
		},
	}, []aboutUs{
		{"rate", smtp.StageRcpt, "452 4.4.5 Rate limit exceeded, try again later.", slowsUs, false},
		{"lookup", smtp.StageRcpt, "451 4.4.3 Unable to verify address at this time.", nil, false},
	}},
	{Personality{
		Name: "haraka", About: "Haraka: the same words for an unknown user and an unknown domain",
		Pipelining: true, UTF8: true, NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 I cannot deliver mail for <{address}>"}},
		Means: [MailboxKinds]Expectation{
			NotFound: {Outcome: smtp.Invalid}, Exists: {Outcome: smtp.Valid, Knowable: true},
		},
	}, nil},
	{Personality{
		Name: "sendmail", About: "Sendmail", Pipelining: true,
		Words: Words{
			Relay:     "550 5.7.1 <{address}>... Relaying denied",
			Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 <{address}>... User unknown"},
		},
	}, []aboutUs{
		{"sender", smtp.StageMail, "553 5.1.8 Domain of sender address does not exist", knowsUs, false},
	}},
	{Personality{
		Name: "eximcpanel", About: "Exim as cPanel sets it up", NoEnhanced: true, Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 No Such User Here"}},
	}, []aboutUs{
		{"relay", smtp.StageRcpt, "550 relay not permitted", notHosted, true},
		{"callout", smtp.StageRcpt, "550 Sender verify failed", knowsUs, false},
		{"later", smtp.StageRcpt, "451 Temporary local problem - please try later", nil, false},
	}},
}

// greylistKinds are greylisting implementations in use. The factors are their first wait divided by the 300 s of
// Postgrey.
var greylistKinds = []provider{
	{Personality{
		Name: "postgrey", About: "Postgrey: 300 s", Greylist: true, Pipelining: true,
		Words: Words{Greylist: "450 4.2.0 <{address}>: Recipient address rejected: Greylisted, " +
			"see http://postgrey.schweikert.ch/help/test.html"},
	}, nil},
	{Personality{
		Name: "plesk", About: "Plesk's greylisting: 5 min, and who asks too early waits again", Greylist: true,
		GreylistEarly: true, Pipelining: true,
		Words: Words{Greylist: "451 4.7.1 Greylisting in action, please try later"},
	}, nil},
	{Personality{
		Name: "harakagrey", About: "Haraka's greylisting: 850 s", Greylist: true, GreylistFactor: 850.0 / 300,
		Words: Words{Greylist: "450 4.7.1 This host is new here. Deferred, please retry"},
	}, nil},
	{Personality{
		Name: "stalwartgrey", About: "Stalwart's greylisting: 452 4.2.2", Greylist: true, UTF8: true,
		Words: Words{
			Greylist:  "452 4.2.2 Greylisted, please try again in a few moments.",
			Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.2 Mailbox does not exist."},
		},
	}, nil},
	{Personality{
		Name: "zerospamgrey", About: "ZEROSPAM's greylisting: 60 s", MXSuffix: "zerospam.ca", Greylist: true,
		GreylistFactor: 60.0 / 300, Pipelining: true,
		Words: Words{
			Greylist: "450 4.2.0 <{address}>: Recipient address rejected: Greylisted for {wait} seconds",
			Mailboxes: [MailboxKinds]string{
				NotFound: "554 5.7.1 <{address}>: Recipient address rejected: not in recipient list",
			}},
	}, nil},
	{Personality{
		Name: "barracudagrey", About: "Barracuda's greylisting: 5 min", MXSuffix: "barracudanetworks.com",
		Greylist: true, TLS: TLSSelfSigned,
		Words: Words{
			Greylist:  "450 4.7.1 <{address}>: Recipient address rejected: Greylisted, try again later",
			Mailboxes: [MailboxKinds]string{NotFound: "550 No such user ({address})"},
		},
	}, nil},
	{Personality{
		Name: "mimecastgrey", About: "Mimecast's greylisting: 1 min, no such word", MXSuffix: "mimecast.com",
		Greylist: true, GreylistFactor: 60.0 / 300, NoEnhanced: true, TLS: TLSSelfSigned,
		Words: Words{
			Greylist:  "451 Internal resources are temporarily unavailable",
			Mailboxes: [MailboxKinds]string{NotFound: "550 Invalid Recipient"},
		},
	}, nil},
	{Personality{
		Name: "rspamd", About: "rspamd's greylisting", Greylist: true, Pipelining: true,
		Words: Words{Greylist: "451 4.7.1 Try again later"},
	}, nil},
	{Personality{
		Name: "yandexgrey", About: "Yandex's greylisting", MXSuffix: "yandex.net", Greylist: true, Pipelining: true,
		Words: Words{
			Greylist:  "451 4.7.1 Sorry, the service is currently unavailable. Please come back later.",
			Mailboxes: [MailboxKinds]string{NotFound: "550 5.7.1 No such user!"},
		},
	}, nil},
	{Personality{
		Name: "hellogrey", About: "greylists by client, hello name, return path and address", Greylist: true,
		GreylistHello: true,
		Words:         Words{Greylist: "450 4.2.0 <{address}>: Recipient address rejected: Greylisted"},
	}, nil},
}

// tarpitDelay is Exchange's default delay before a refusal.
const tarpitDelay = 5e9
