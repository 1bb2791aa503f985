package smtplab

import "rollcall/smtp"

// guardKinds are harvest guards beside chasquid, postfix, exim
// and cisco. Numbers that no manual gives are guesses, and said to be.
var guardKinds = []provider{
	{Personality{
		Name: "ciscoqueue", About: "Cisco in work-queue mode: after 25 refused in an hour it accepts everything",
		Guard: GuardSilent, GuardAt: 25, Pipelining: true,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{NotFound: "550 #5.1.0 Address rejected."})},
	}, nil},
	{Personality{
		Name:     "forcepoint",
		About:    "Forcepoint: over 5 RCPTs in a session with half refused: dropped, and blocked for 3 hours",
		MXSuffix: "mailcontrol.com", Guard: GuardShare, GuardAt: 5, GuardPercent: 50, ConnectsPerMinute: 30,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{NotFound: "550 5.1.1 Recipient unknown"})},
	}, nil},
	{Personality{
		Name:     "ionos",
		About:    "IONOS: over 25 refused in an hour, or a second hello name: 450 for an hour",
		MXSuffix: "kundenserver.de", NoEnhanced: true, TLS: TLSSelfSigned,
		Guard: GuardPolicy, GuardAt: 25, // guess: the number is not public
		Words: Words{
			Guard: "450 Requested mail action not taken: mailbox unavailable. Reject due to policy violations",
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "550 Requested action not taken: mailbox unavailable",
			})},
	}, nil},
	{Personality{
		Name:  "symantec",
		About: "Symantec Messaging Gateway: over 25 refused in an hour and over half: 451 for an hour",
		Guard: GuardWindow, GuardAt: 25, GuardPercent: 50, // guess: both are settings
		Words: Words{Guard: "451 4.7.1 Deferred, try again later"},
	}, nil},
	{Personality{
		Name: "nospamtoday", About: "NoSpamToday: 10 refused in a row end the session", NoEnhanced: true,
		Guard: GuardRow, GuardAt: 10,
		Words: Words{
			Guard:     "421 Too many failed recipients, closing",
			Mailboxes: kinds(map[Mailbox]string{NotFound: "550 No such user here"}),
		},
	}, nil},
	{Personality{
		Name: "badtx", About: "over ten bad transactions and no good one: 550 5.1.0 at MAIL, as mox does",
		RcptsPerTx: 1, Guard: GuardTx, GuardAt: 10,
	}, nil},
	{Personality{
		Name:     "yahooold",
		About:    "Yahoo of old: over 25 refused in an hour: 421 for an hour, 553 for who comes back",
		MXSuffix: "yahoodns.net", NoEnhanced: true, Guard: GuardExcess, GuardAt: 25, // guess
		Words: Words{
			Guard: "421 VS1-IP Excessive unknown recipients - possible Open Relay",
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "554 delivery error: dd This user doesn't have a yahoo.com account",
			})},
		Means: means(map[Mailbox]Expectation{
			Exists: {Outcome: smtp.CatchAll, Also: []smtp.Outcome{smtp.Valid}, Reasons: noRcptAnswer, Knowable: true},
		}),
	}, nil},
}

// refusalKinds refuse us for who we are: by address, PTR or return path.
var refusalKinds = []provider{
	{Personality{
		Name: "blockone", About: "refuses the source that connected first and welcomes every other one",
		Blocks: BlockFirst, Hard: true, Pipelining: true,
	}, nil},
	{Personality{
		Name: "blockeven", About: "refuses every source whose address ends in an even number", Blocks: BlockEven,
		Hard: true, Pipelining: true,
	}, nil},
	{Personality{
		Name: "noptr", About: "refuses us for a missing PTR, at RCPT", Fixed: smtp.Unknown, Reasons: knowsUs,
		Words: Words{Any: "550 5.7.25 Client host rejected: cannot find your hostname, [{client}]"},
	}, nil},
	{Personality{
		Name: "badspf", About: "refuses us for the SPF of our return path", Fixed: smtp.Unknown, Reasons: knowsUs,
		Words: Words{Mail: "550 5.7.23 SPF check failed: {client} may not send for this domain"},
	}, nil},
}
