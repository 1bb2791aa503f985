package smtplab

import "rollcall/smtp"

// bigProviders are Google, Microsoft, Yahoo and Apple.
var bigProviders = []provider{
	{Personality{
		Name: "google", About: "Gmail", MXSuffix: "l.google.com", Pipelining: true, UTF8: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
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
		})},
		Means: means(map[Mailbox]Expectation{Busy: isBusy}),
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
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "550 5.1.1 <{address}>: NoSuchUser - that account does not exist. - gsmtp",
				Disabled: "550 5.2.1 The account is inactive. ?p=DisabledUser - gsmtp",
				Full:     "552 5.2.2 The recipient is out of storage space and inactive. ?p=OverQuotaPerm - gsmtp",
				Busy:     "550 5.2.1 The user receives mail at a rate that prevents more. ?p=ReceivingRatePerm - gsmtp",
			})},
		Means: means(map[Mailbox]Expectation{Busy: isBusy}),
	}, nil},
	{Personality{
		Name: "outlook", About: "Outlook.com and Hotmail", MXSuffix: "olc.protection.outlook.com", UTF8: true,
		TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
			Full:     "552 5.2.2 Mailbox full (S2017062303)",
			Busy: "554 5.2.122 The recipient has exceeded their limit for the number of messages " +
				"they can receive per hour",
		})},
		Means: means(map[Mailbox]Expectation{Busy: isBusy}),
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
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
			})},
	}, nil},
	{Personality{
		Name: "office365", About: "Exchange Online with edge blocking", MXSuffix: "mail.protection.outlook.com",
		UTF8: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound:   "550 5.4.1 Recipient address rejected: Access denied. [AM6EUR05FT042.protection.outlook.com]",
			Disabled:   "550 5.2.1 The mailbox cannot be accessed",
			Full:       "552 5.2.2 The recipient's mailbox is full",
			Restricted: "550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required",
		})},
		Means: means(map[Mailbox]Expectation{Restricted: isRestricted}),
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
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
		})},
	}, nil},
	{Personality{
		Name: "office365open", About: "Exchange Online without edge blocking: accepts everything",
		MXSuffix: "mail.protection.outlook.com", CatchAll: true, TLS: TLSSelfSigned,
		Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
	}, nil},
	{Personality{
		Name: "yahoo", About: "Yahoo and AOL: RCPT is no evidence", MXSuffix: "yahoodns.net", TLS: TLSSelfSigned,
		CatchAll: true, Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{Exists: "250 recipient <{address}> ok"})},
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
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "554 delivery error: dd This user doesn't have a yahoo.com account",
			Disabled: "554 delivery error: dd This mailbox is disabled (554.30)",
			Busy:     "450 User is receiving mail too quickly",
		})},
		Means: means(map[Mailbox]Expectation{
			Exists: {Outcome: smtp.CatchAll, Also: []smtp.Outcome{smtp.Valid}, Reasons: noRcptAnswer, Knowable: true},
			Busy:   {Outcome: smtp.Valid, Also: []smtp.Outcome{smtp.CatchAll}, Knowable: true},
		}),
	}, nil},
	{Personality{
		Name: "icloud", About: "Apple iCloud", MXSuffix: "mail.icloud.com", TLS: TLSSelfSigned, Pipelining: true,
		Guard: GuardErrors, GuardAt: 12, // guess: too many errors in a session
		Words: Words{
			Guard: "421 4.7.0 {host} Error: too many errors",
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "550 5.1.1 <{address}>: user does not exist",
				Disabled: "550 5.1.6 <{address}>: recipient no longer on server",
				Full:     "552 5.2.2 <{address}>: user is over quota",
			})},
		Means: means(map[Mailbox]Expectation{Disabled: isDisabled}),
	}, []aboutUs{
		{"listed", smtp.StageRcpt, "550 5.7.1 Mail from IP {client} was rejected due to listing in Spamhaus PBL.",
			blockedUs, false},
		{"deferred", smtp.StageGreeting, "421 [HCM1] Message from ({client}) deferred", slowsUs, false},
		{"policy", smtp.StageMail, "550 5.7.1 [CS01] Message rejected due to local policy.", blockedUs, false},
		{"sender", smtp.StageMail, "450 4.1.8 Sender address rejected: Domain not found", knowsUs, false},
	}},
}
