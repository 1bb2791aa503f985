package smtplab

import (
	"slices"

	"rollcall/smtp"
)

// provider is a receiver that exists in the world: its replies about mailboxes and about us. Codes and key words are
// from public reports, in short texts of our own.
type provider struct {
	Personality
	us []aboutUs
}

// aboutUs is a variant of a provider that gives the same reply for every address. Its name is the provider's
// followed by mood.
type aboutUs struct {
	mood    string
	at      smtp.Stage // greeting, hello, mail or rcpt
	reply   string
	reasons []smtp.Reason // right with the outcome; nil: any
	not     bool          // it says that it does not serve the domain: invalid, but hard to be certain of
}

// expanded returns a provider's personality and its variants.
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

// providers returns the personalities of the table, with the variants about us in a family of their own.
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

// Truths for a provider's unusual answers.
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
	// maybeGone is the truth for a refusal that means disabled and other mailboxes.
	maybeGone = Expectation{Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid}}
	maybeBusy = Expectation{Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Valid}}
)

// noRcptAnswer is the truth for a provider that accepts every local part.
var noRcptAnswer = []smtp.Reason{smtp.NoRcptAnswer, smtp.AcceptAll}

// Reasons of the variants.
var (
	blockedUs = []smtp.Reason{smtp.SourceBlocked, smtp.Policy}
	knowsUs   = []smtp.Reason{smtp.SourceIdentity, smtp.SourceBlocked}
	slowsUs   = []smtp.Reason{smtp.ReceiverRateLimited, smtp.ReceiverBusy, smtp.SourceBlocked, smtp.Policy}
	notHosted = []smtp.Reason{smtp.DomainNotHosted}
)

// ofWorld returns every personality that emulates a provider or a server.
func ofWorld() []Personality {
	return slices.Concat(
		providers("provider", bigProviders), providers("gateway", gateways),
		providers("regional", regionals), providers("regional", regionalsEast),
		providers("software", software), providers("greylist", greylistKinds),
		providers("guard", guardKinds), providers("refusal", refusalKinds),
	)
}

// bigProviders are Google, Microsoft, Yahoo and Apple.
var bigProviders = []provider{
	{Personality{
		Name: "google", About: "Gmail", MXSuffix: "l.google.com", Pipelining: true, UTF8: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550-5.1.1 The email account that you tried to reach does not exist. Check it\n" +
				"550 5.1.1 for typos: https://support.google.com/mail/?p=NoSuchUser 4fc8-gsmtp",
			Disabled: "550 5.2.1 The email account that you tried to reach is disabled. " +
				"https://support.google.com/mail/?p=DisabledUser - gsmtp",
			Full: "552 5.2.2 The recipient's inbox is out of storage space and inactive. " +
				"https://support.google.com/mail/?p=OverQuotaPerm - gsmtp",
			OverQuota: "452 4.2.2 The recipient's inbox is out of storage space. " +
				"https://support.google.com/mail/?p=OverQuotaTemp - gsmtp",
			Busy: "450 4.2.1 The user you are trying to contact is receiving mail too quickly, at a rate that " +
				"prevents more. https://support.google.com/mail/?p=ReceivingRate - gsmtp",
		}},
		Means: [MailboxKinds]Expectation{Busy: isBusy},
	}, []aboutUs{
		{"reputation", smtp.StageRcpt, "550-5.7.1 [{client}] Our system sees a very low reputation of the\n" +
			"550 5.7.1 sending IP address. https://support.google.com/mail/answer/188131 - gsmtp", blockedUs, false},
		{"rate", smtp.StageRcpt, "421-4.7.28 An unusual rate of mail comes from your IP address [{client}].\n" +
			"421 4.7.28 It was limited for now. https://support.google.com/mail/?p=UnsolicitedRateLimitError - gsmtp",
			slowsUs, false},
		{"ptr", smtp.StageRcpt, "550-5.7.25 [{client}] The IP address sending this message does not have a PTR\n" +
			"550 5.7.25 record set up. https://support.google.com/mail/answer/81126 - gsmtp", knowsUs, false},
		{"whitelist", smtp.StageRcpt, "421 4.7.0 IP not in whitelist for RCPT domain, closing connection. - gsmtp",
			nil, false},
		{"later", smtp.StageHello, "421 4.7.0 Try again later, closing connection. (EHLO) - gsmtp", nil, false},
		{"policy", smtp.StageRcpt, "550 5.7.1 The user or domain that you are sending to has a policy that " +
			"prohibited the mail that you sent. - gsmtp", blockedUs, false},
		{"dialup", smtp.StageRcpt, "550 5.7.1 [{client}] The IP you're using to send mail is not authorized to " +
			"send email directly to our servers. - gsmtp", blockedUs, false},
	}},
	{Personality{
		Name: "workspace", About: "Google Workspace, TLS demanded", MXSuffix: "googlemail.com", Pipelining: true,
		UTF8: true, TLS: TLSSelfSigned, NeedsTLS: true, RcptsPerTx: 20,
		Words: Words{
			NeedTLS: "530 5.7.0 Must issue a STARTTLS command first. - gsmtp",
			Limit:   "452 4.5.3 Your message has too many recipients. ?p=TooManyRecipients - gsmtp",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 <{address}>: NoSuchUser - that account does not exist. - gsmtp",
				Disabled: "550 5.2.1 The account is inactive. ?p=DisabledUser - gsmtp",
				Full:     "552 5.2.2 The recipient is out of storage space and inactive. ?p=OverQuotaPerm - gsmtp",
				Busy:     "550 5.2.1 The user receives mail at a rate that prevents more. ?p=ReceivingRatePerm - gsmtp",
			}},
		Means: [MailboxKinds]Expectation{Busy: isBusy},
	}, nil},
	{Personality{
		Name: "outlook", About: "Outlook.com and Hotmail", MXSuffix: "olc.protection.outlook.com", UTF8: true,
		TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
			Full:     "552 5.2.2 Mailbox full (S2017062303)",
			Busy: "554 5.2.122 The recipient has exceeded their limit for the number of messages " +
				"they can receive per hour",
		}},
		Means: [MailboxKinds]Expectation{Busy: isBusy},
	}, []aboutUs{
		{"denied", smtp.StageRcpt, "550 5.4.1 All recipient addresses rejected : Access denied [AS(201806281)]",
			blockedUs, false},
		{"blocked", smtp.StageMail, "550 5.7.1 Unfortunately, messages from [{client}] weren't sent. Please " +
			"contact your provider since part of their network is on our block list (S3140).", blockedUs, false},
		{"rate", smtp.StageRcpt, "451 4.7.650 The mail server [{client}] has been temporarily rate limited " +
			"due to IP reputation. (S775)", slowsUs, false},
		{"connections", smtp.StageGreeting, "421 4.7.652 The mail server [{client}] has exceeded the maximum " +
			"number of connections. (S3115)", slowsUs, false},
		{"busy", smtp.StageMail, "451 4.7.500 Server busy. Please try again later from [{client}]. (S77719)",
			slowsUs, false},
	}},
	{Personality{
		Name: "outlookregions", About: "Outlook.com with recipients in several regions",
		MXSuffix: "olc.protection.outlook.com", RcptsPerTx: 1,
		Words: Words{
			Limit: "452 4.5.3 Recipients belong to multiple regions ATTR38",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
			}},
	}, nil},
	{Personality{
		Name: "office365", About: "Exchange Online with edge blocking", MXSuffix: "mail.protection.outlook.com",
		UTF8: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound:   "550 5.4.1 Recipient address rejected: Access denied. [AM6EUR05FT042.protection.outlook.com]",
			Disabled:   "550 5.2.1 The mailbox cannot be accessed",
			Full:       "552 5.2.2 The recipient's mailbox is full",
			Restricted: "550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required",
		}},
		Means: [MailboxKinds]Expectation{Restricted: isRestricted},
	}, []aboutUs{
		{"blocked", smtp.StageRcpt, "550 5.7.606 Access denied, banned sending IP [{client}]. To request removal " +
			"visit https://sender.office.com/", blockedUs, false},
		{"listed", smtp.StageRcpt, "550 5.7.1 Service unavailable, Client host [{client}] blocked using " +
			"Spamhaus. AS16012611", blockedUs, false},
		{"tenant", smtp.StageRcpt, "550 5.7.513 Service unavailable, Client host [{client}] blocked by customer " +
			"block list", blockedUs, false},
		{"throttled", smtp.StageRcpt, "451 4.7.500 Access denied, please try again later", slowsUs, false},
		{"quota", smtp.StageRcpt, "450 4.7.3 Organization queue quota exceeded.", slowsUs, false},
		{"relay", smtp.StageRcpt, "550 5.7.64 TenantAttribution; Relay Access Denied", notHosted, true},
		{"nomailboxes", smtp.StageRcpt, "451 4.4.4 Mail received as unauthenticated for a domain with no " +
			"mail-enabled subscriptions", nil, false},
	}},
	{Personality{
		Name: "office365resolver", About: "Exchange Online that says 5.1.10", MXSuffix: "mx.microsoft", UTF8: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
		}},
	}, nil},
	{Personality{
		Name: "office365open", About: "Exchange Online without edge blocking: accepts everything",
		MXSuffix: "mail.protection.outlook.com", CatchAll: true, TLS: TLSSelfSigned,
		Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
	}, nil},
	{Personality{
		Name: "yahoo", About: "Yahoo and AOL: RCPT is no evidence", MXSuffix: "yahoodns.net", TLS: TLSSelfSigned,
		CatchAll: true, Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Words: Words{Mailboxes: [MailboxKinds]string{Exists: "250 recipient <{address}> ok"}},
	}, []aboutUs{
		{"deferred", smtp.StageGreeting, "421 4.7.0 [TSS04] Messages from {client} temporarily deferred due to " +
			"unexpected volume or user complaints", slowsUs, false},
		{"permanent", smtp.StageGreeting, "421 4.7.1 [TS03] All messages from {client} will be permanently " +
			"deferred; Retrying will NOT succeed.", blockedUs, false},
		{"listed", smtp.StageGreeting, "553 5.7.1 [BL21] Connections will not be accepted from {client}, because " +
			"the ip is in Spamhaus's list", blockedUs, false},
		{"policy", smtp.StageMail, "554 5.7.9 [PH01] Message not accepted for policy reasons.", blockedUs, false},
	}},
	{Personality{
		Name: "yahoodd", About: "Yahoo that refuses at RCPT who has no account", MXSuffix: "yahoodns.net",
		NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "554 delivery error: dd This user doesn't have a yahoo.com account",
			Disabled: "554 delivery error: dd This mailbox is disabled (554.30)",
			Busy:     "450 User is receiving mail too quickly",
		}},
		Means: [MailboxKinds]Expectation{
			Exists: {Outcome: smtp.CatchAll, Also: []smtp.Outcome{smtp.Valid}, Reasons: noRcptAnswer, Knowable: true},
			Busy:   {Outcome: smtp.Valid, Also: []smtp.Outcome{smtp.CatchAll}, Knowable: true},
		},
	}, nil},
	{Personality{
		Name: "icloud", About: "Apple iCloud", MXSuffix: "mail.icloud.com", TLS: TLSSelfSigned, Pipelining: true,
		Guard: GuardErrors, GuardAt: 12, // guess: too many errors in a session
		Words: Words{
			Guard: "421 4.7.0 {host} Error: too many errors",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 <{address}>: user does not exist",
				Disabled: "550 5.1.6 <{address}>: recipient no longer on server",
				Full:     "552 5.2.2 <{address}>: user is over quota",
			}},
		Means: [MailboxKinds]Expectation{Disabled: isDisabled},
	}, []aboutUs{
		{"listed", smtp.StageRcpt, "550 5.7.1 Mail from IP {client} was rejected due to listing in Spamhaus PBL.",
			blockedUs, false},
		{"deferred", smtp.StageGreeting, "421 [HCM1] Message from ({client}) deferred", slowsUs, false},
		{"policy", smtp.StageMail, "550 5.7.1 [CS01] Message rejected due to local policy.", blockedUs, false},
		{"sender", smtp.StageMail, "450 4.1.8 Sender address rejected: Domain not found", knowsUs, false},
	}},
}

// gateways filter the mail of companies.
var gateways = []provider{
	{Personality{
		Name: "proofpoint", About: "Proofpoint", MXSuffix: "pphosted.com", TLS: TLSSelfSigned, Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.1 <{address}>... User Unknown",
		}},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "554 Blocked - see https://ipcheck.proofpoint.com/?ip={client}",
			blockedUs, false},
		{"csi", smtp.StageRcpt, "550 5.7.1 Mail from {client} blocked: Cloudmark CSI", blockedUs, false},
		{"relay", smtp.StageRcpt, "550 5.7.1 Relaying denied", notHosted, true},
		{"sender", smtp.StageMail, "550 5.1.8 Domain of sender address does not resolve", knowsUs, false},
	}},
	{Personality{
		Name: "proofpointmarked", About: "Proofpoint with the customer's directory", MXSuffix: "ppe-hosted.com",
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.7.1 <{address}>: Recipient address rejected: marked as invalid",
		}},
	}, nil},
	{Personality{
		Name: "proofpointcall", About: "Proofpoint that asks the inner host first", MXSuffix: "pphosted.com",
		Greylist: true, GreylistFactor: 1,
		Words: Words{
			Greylist: "450 4.1.1 <{address}>: Recipient address rejected: unverified address: " +
				"Address verification in progress",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 <{address}>: Recipient address rejected: undeliverable address",
			}},
	}, nil},
	{Personality{
		Name: "mimecast", About: "Mimecast, without enhanced codes", MXSuffix: "mimecast.com", NoEnhanced: true,
		TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550",
		}},
	}, []aboutUs{
		{"unsure", smtp.StageRcpt, "451 Invalid Recipient - verification is not possible", nil, false},
		{"connections", smtp.StageMail, "451 Account service is temporarily unavailable", slowsUs, false},
		{"blocked", smtp.StageMail, "451 IP temporarily blacklisted", nil, false},
		{"reputation", smtp.StageRcpt, "550 Rejected by header based policy: local CT IP reputation", blockedUs, false},
		{"envelope", smtp.StageRcpt, "550 Administrative prohibition - envelope blocked", blockedUs, false},
		{"off", smtp.StageRcpt, "451 Account inbounds disabled", nil, false},
		{"network", smtp.StageMail, "554 Host network not allowed", blockedUs, false},
		{"relay", smtp.StageRcpt, "554 Open relay not allowed", notHosted, true},
	}},
	{Personality{
		Name: "mimecasttls", About: "Mimecast that demands TLS with a code of its own", MXSuffix: "mimecast.com",
		NoEnhanced: true, TLS: TLSSelfSigned, NeedsTLS: true,
		Words: Words{
			NeedTLS:   "553 This route requires encryption (TLS)",
			Mailboxes: [MailboxKinds]string{NotFound: "550 Invalid Recipient"},
		},
	}, nil},
	{Personality{
		Name: "barracuda", About: "Barracuda", MXSuffix: "barracudanetworks.com", NoEnhanced: true,
		Pipelining: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 No such user ({address})"}},
	}, []aboutUs{
		{"blocked", smtp.StageRcpt, "550 permanent failure for one or more recipients ({address}:blocked)",
			blockedUs, false},
		{"abuse", smtp.StageRcpt, "450 4.7.1 Policy Rejection- Abuse", slowsUs, false},
		{"license", smtp.StageGreeting, "421 License expired", nil, false},
		{"listed", smtp.StageGreeting, "554 Service unavailable; Client host [{client}] blocked using Barracuda " +
			"Reputation; http://www.barracudanetworks.com/reputation/?r=1&ip={client} b.barracudacentral.org",
			blockedUs, false},
	}},
	{Personality{
		Name: "ironport", About: "Cisco's hosted gateway", MXSuffix: "iphmx.com", Pipelining: true,
		TLS: TLSSelfSigned, Guard: GuardHarvest, GuardAt: 25,
		Words: Words{
			Guard:     "550 Too many invalid recipients",
			Mailboxes: [MailboxKinds]string{NotFound: "550 #5.1.0 Address rejected."},
		},
	}, []aboutUs{
		{"reputation", smtp.StageGreeting, "554 Your access to this mail system has been rejected due to the " +
			"sending MTA's poor reputation", blockedUs, false},
	}},
	{Personality{
		Name: "messagelabs", About: "Symantec's hosted gateway", MXSuffix: "messagelabs.com", NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 Invalid recipient <{address}> (#5.1.1)"}},
	}, []aboutUs{
		{"throttled", smtp.StageRcpt, "450 Requested action aborted [7.2] 15412", slowsUs, false},
		{"relay", smtp.StageRcpt, "553 you are trying to use me [{host}] as a relay, but I have not been " +
			"configured to let you do this", notHosted, true},
	}},
	{Personality{
		Name: "trendmicro", About: "Trend Micro", MXSuffix: "tmes.trendmicro.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "554 5.7.1 <{address}>: Recipient address rejected: INVALID-RECIPIENT",
		}},
	}, []aboutUs{
		{"blocked", smtp.StageRcpt, "550 5.7.1 Service unavailable; Client host [{client}] blocked using " +
			"Trend Micro RBL+. ERS-RBL", blockedUs, false},
		{"sender", smtp.StageRcpt, "554 5.7.1 Sender address rejected: BLOCK-SEND-ER", blockedUs, false},
		{"relay", smtp.StageRcpt, "554 5.7.1 Recipient address rejected: NO-DOMAIN", notHosted, true},
	}},
	{Personality{
		Name: "zerospam", About: "ZEROSPAM", MXSuffix: "zerospam.ca", Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "554 5.7.1 <{address}>: Recipient address rejected: not in recipient list",
		}},
	}, nil},
	{Personality{
		Name: "fireeye", About: "Trellix (FireEye) ETP", MXSuffix: "fireeyecloud.com", TLS: TLSSelfSigned,
	}, []aboutUs{
		{"listed", smtp.StageMail, "550 5.5.4 IP [{client}] is listed. ETP208", blockedUs, false},
	}},
}

// guardKinds are harvest guards besides chasquid, postfix, exim and cisco. A number that no manual gives is marked
// as a guess.
var guardKinds = []provider{
	{Personality{
		Name: "ciscoqueue", About: "Cisco in work-queue mode: after 25 refused in an hour it accepts everything",
		Guard: GuardSilent, GuardAt: 25, Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 #5.1.0 Address rejected."}},
	}, nil},
	{Personality{
		Name:     "forcepoint",
		About:    "Forcepoint: over 5 RCPTs in a session with half refused: dropped, and blocked for 3 hours",
		MXSuffix: "mailcontrol.com", Guard: GuardShare, GuardAt: 5, GuardPercent: 50, ConnectsPerMinute: 30,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 Recipient unknown"}},
	}, nil},
	{Personality{
		Name:     "ionos",
		About:    "IONOS: over 25 refused in an hour, or a second hello name: 450 for an hour",
		MXSuffix: "kundenserver.de", NoEnhanced: true, TLS: TLSSelfSigned,
		Guard: GuardPolicy, GuardAt: 25, // guess: the number is not public
		Words: Words{
			Guard: "450 Requested mail action not taken: mailbox unavailable. Reject due to policy violations",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 Requested action not taken: mailbox unavailable",
			}},
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
			Mailboxes: [MailboxKinds]string{NotFound: "550 No such user here"},
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
			Mailboxes: [MailboxKinds]string{
				NotFound: "554 delivery error: dd This user doesn't have a yahoo.com account",
			}},
		Means: [MailboxKinds]Expectation{
			Exists: {Outcome: smtp.CatchAll, Also: []smtp.Outcome{smtp.Valid}, Reasons: noRcptAnswer, Knowable: true},
		},
	}, nil},
}

// refusalKinds refuse us by address, PTR or return path.
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
