package smtplab

import "rollcall/smtp"

// regionals are national providers, and hosters in Europe and America.
var regionals = []provider{
	{Personality{
		Name: "gmx", About: "GMX, web.de and mail.com: the last line decides", MXSuffix: "gmx.net",
		NoEnhanced: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550-Requested action not taken: mailbox unavailable\n" +
				"550 For explanation visit https://postmaster.gmx.net/en/error-messages?c=unkn",
			Full: "552-Requested mail action aborted: exceeded storage allocation\n552 Quota exceeded.",
		}},
		Means: [MailboxKinds]Expectation{Full: isFull},
	}, []aboutUs{
		{"policy", smtp.StageRcpt, "550-Requested action not taken: mailbox unavailable\n" +
			"550 Reject due to policy restrictions.", blockedUs, false},
		{"ptr", smtp.StageGreeting, "554-gmx.net (mxgmx101) Nemesis ESMTP Service not available\n554-No SMTP " +
			"service\n554-Bad DNS PTR resource record.\n554 For explanation visit " +
			"https://postmaster.gmx.net/en/error-messages?ip={client}&c=rdns", knowsUs, false},
		{"listed", smtp.StageGreeting, "554-gmx.net (mxgmx101) Nemesis ESMTP Service not available\n554-No SMTP " +
			"service\n554 IP address is block listed. ?c=bl", blockedUs, false},
		{"rate", smtp.StageRcpt, "421 Rate limit reached. Too many messages within a short period", slowsUs, false},
		{"parameters", smtp.StageMail, "550 Syntax error in parameters or arguments", nil, false},
	}},
	{Personality{
		Name: "tonline", About: "T-Online", MXSuffix: "t-online.de", NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 user unknown"}},
	}, []aboutUs{
		{"stranger", smtp.StageGreeting, "554 IP={client} - A problem occurred. Ask your postmaster for help. (BL)",
			blockedUs, false},
	}},
	{Personality{
		Name: "freenet", About: "freenet", MXSuffix: "freenet.de", NoEnhanced: true,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 unknown user"}},
	}, []aboutUs{
		{"ptr", smtp.StageRcpt, "550 inconsistent or no DNS PTR record for {client}", knowsUs, false},
	}},
	{Personality{
		Name: "orange", About: "Orange and Wanadoo", MXSuffix: "orange.fr", TLS: TLSSelfSigned, SessionsMax: 2,
		Words: Words{
			Busy: "421 {host} ME Trop de connexions, veuillez verifier votre configuration. OFR_104 [104]",
			Mailboxes: [MailboxKinds]string{
				NotFound: "550 5.1.1 <{address}> Adresse d au moins un destinataire invalide. Invalid recipient. " +
					"OFR_416 [416]",
				Full: "552 5.1.1 <{address}> Boite du destinataire pleine. Recipient overquota. OFR_417 [417]",
			}},
		Means: [MailboxKinds]Expectation{Full: isFull},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "550 5.2.0 Mail rejete. Mail rejected. OFR_506 [506]", blockedUs, false},
		{"connections", smtp.StageGreeting, "421 {host} ME Trop de connexions, veuillez verifier votre " +
			"configuration. Too many connections, slow down. OFR_104 [104]", slowsUs, false},
		{"sender", smtp.StageMail, "501 5.1.0 Emetteur invalide. Invalid Sender. OFR_405 [405]", knowsUs, false},
	}},
	{Personality{
		Name: "freefr", About: "Free", MXSuffix: "free.fr", Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			Disabled: "550 5.2.1 This mailbox has been blocked due to inactivity",
			Full:     "550 5.2.2 Over quota",
		}},
	}, nil},
	{Personality{
		Name: "comcast", About: "Comcast", MXSuffix: "comcast.net", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound:  "550 5.1.1 Not our Customer",
			Disabled:  "550 5.2.0 Recipient unavailable",
			OverQuota: "452 4.1.1 Recipient over quota",
			Busy:      "452 4.1.1 too many recent messages for this recipient",
		}},
		Means: [MailboxKinds]Expectation{
			Disabled: maybeGone, OverQuota: {Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Valid}},
			Busy: {Outcome: smtp.Valid, Also: []smtp.Outcome{smtp.Unknown}, Knowable: false},
		},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "554 {host} {client} Comcast block for spam. BL000000", blockedUs, false},
		{"rate", smtp.StageMail, "421 4.1.0 {client} Throttled - try again later. RL000001", slowsUs, false},
		{"ptr", smtp.StageGreeting, "554 {host} {client} found no PTR record, access denied. PT000000", knowsUs, false},
	}},
	{Personality{
		Name: "att", About: "AT&T and Prodigy", MXSuffix: "prodigy.net",
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.2.1 <{address}>... Addressee unknown, relay=[{client}]",
		}},
		Means: [MailboxKinds]Expectation{NotFound: isDisabled},
	}, []aboutUs{
		{"blocked", smtp.StageMail, "553 5.3.0 DNSBL:RBL 521< {client} >_is_blocked.", blockedUs, false},
	}},
	{Personality{
		Name: "cox", About: "Cox", MXSuffix: "cox.net", NoEnhanced: true, Guard: GuardHarvest, GuardAt: 25, // guess
		Words: Words{
			Guard:     "550 too many invalid recipients",
			Mailboxes: [MailboxKinds]string{NotFound: "550 <{address}> recipient rejected, user unknown"},
		},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "554 {host} {client} blocked. CXBL", blockedUs, false},
		{"ptr", smtp.StageGreeting, "554 {host} {client} has no reverse DNS. CXDNS", knowsUs, false},
		{"connections", smtp.StageGreeting, "421 {host} too many connections from {client}. CXCNCT", slowsUs, false},
	}},
	{Personality{
		Name: "godaddy", About: "GoDaddy", MXSuffix: "secureserver.net", Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.1 <{address}> Recipient not found, account does not exist.",
		}},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "554 {host} bizsmtp Connection refused. {client} is blocked. IB103",
			blockedUs, false},
		{"rate", smtp.StageMail, "421 {host} bizsmtp Temporarily rejected, too many connections. IB105", slowsUs,
			false},
	}},
	{Personality{
		Name: "rackspace", About: "Rackspace", MXSuffix: "emailsrvr.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.1 <{address}>: Recipient address rejected: User unknown. G8",
		}},
	}, nil},
	{Personality{
		Name: "hey", About: "HEY", MXSuffix: "app.hey.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 That address is unknown at HEY"}},
	}, nil},
	{Personality{
		Name: "improvmx", About: "ImprovMX, a forwarder", MXSuffix: "improvmx.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 No such recipient here"}},
	}, []aboutUs{
		{"nodomain", smtp.StageRcpt, "551 5.7.1 Domain not found", notHosted, true},
		{"plan", smtp.StageRcpt, "550 That needs an account that requires an upgrade", nil, false},
	}},
	{Personality{
		Name: "ovh", About: "OVH, in the style of Postfix", MXSuffix: "mail.ovh.net", Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.1.1 <{address}>: Recipient address rejected: User unknown",
		}},
	}, nil},
	{Personality{
		Name: "hotee", About: "Hot.ee and Mail.ee", MXSuffix: "hot.ee",
		Words: Words{Mailboxes: [MailboxKinds]string{
			Disabled: "554 5.2.1 Mailbox of an expired account or inactive user",
		}},
	}, nil},
}

// regionalsEast are providers in Russia, India and China.
var regionalsEast = []provider{
	{Personality{
		Name: "yandex", About: "Yandex", MXSuffix: "yandex.net", TLS: TLSSelfSigned, Pipelining: true,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 5.7.1 No such user!",
			Disabled: "550 5.7.1 Policy rejection on the target address",
			Full:     "552 5.2.2 Mailbox size limit exceeded",
			Busy:     "450 4.2.1 The recipient has exceeded message rate limit. Try again later.",
		}},
		Means: [MailboxKinds]Expectation{Busy: isBusy, Disabled: isDisabled},
	}, []aboutUs{
		{"spam", smtp.StageRcpt, "554 5.7.1 [1] Message rejected under suspicion of SPAM", blockedUs, false},
	}},
	{Personality{
		Name: "mailru", About: "mail.ru: accepts any local part", MXSuffix: "mail.ru", TLS: TLSSelfSigned,
		CatchAll: true, Fixed: smtp.CatchAll, Reasons: noRcptAnswer,
		Words: Words{Mailboxes: [MailboxKinds]string{Exists: "250 OK"}},
	}, nil},
	{Personality{
		Name: "rambler", About: "Rambler", MXSuffix: "rambler.ru",
		Words: Words{Mailboxes: [MailboxKinds]string{Disabled: "540 5.7.1 <{address}>: recipient is inactive"}},
		Means: [MailboxKinds]Expectation{Disabled: isDisabled},
	}, []aboutUs{
		{"rate", smtp.StageRcpt, "452 4.5.3 Rate limit exceeded", slowsUs, false},
	}},
	{Personality{
		Name: "nicru", About: "nic.ru hosting: the first host sends everybody to the second", DNS: TwoMX,
		MXSuffix: "nic.ru", Words: Words{First: "451 Please try another server"},
	}, nil},
	{Personality{
		Name: "zoho", About: "Zoho", MXSuffix: "zoho.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{NotFound: "550 5.1.1 User unknown <{address}>"}},
	}, []aboutUs{
		{"policy", smtp.StageRcpt, "541 5.4.1 Mail rejected by destination domain", blockedUs, false},
		{"mailpolicy", smtp.StageRcpt, "554 5.2.3 MailPolicy violation error", blockedUs, false},
		{"relay", smtp.StageRcpt, "553 Relaying disallowed. Invalid domain", notHosted, true},
	}},
	{Personality{
		Name: "qq", About: "QQ and exmail", MXSuffix: "qq.com", NoEnhanced: true, RcptsPerSession: 8,
		TLS: TLSSelfSigned,
		Words: Words{Mailboxes: [MailboxKinds]string{
			NotFound: "550 Mailbox not found. http://service.mail.qq.com/cgi-bin/help?subtype=1",
			Disabled: "550 The recipient has a deactivated mailbox",
			Busy:     "550 Mailbox unavailable or access denied [{client}]",
		}},
		Means: [MailboxKinds]Expectation{Disabled: isDisabled, Busy: maybeBusy},
	}, []aboutUs{
		{"rate", smtp.StageRcpt, "550 Ip frequency limited", slowsUs, false},
		{"connections", smtp.StageGreeting, "550 Connection frequency limited", slowsUs, false},
	}},
	{Personality{
		Name: "netease", About: "163 and NetEase", MXSuffix: "netease.com", NoEnhanced: true, SessionsMax: 4,
		TLS: TLSSelfSigned,
		Words: Words{
			Busy:      "421 too many connections from {client}",
			Mailboxes: [MailboxKinds]string{NotFound: "550 User not found: {address}"},
		},
	}, []aboutUs{
		{"daily", smtp.StageMail, "550 RP:ORQ http://mail.163.com/help/help_spam_16.htm", slowsUs, false},
		{"daylimit", smtp.StageRcpt, "554 HL:ITC too many messages from {client} today", slowsUs, false},
		{"spam", smtp.StageRcpt, "451 DT:SPM suspected spam", nil, false},
		{"connections", smtp.StageGreeting, "421 too many connections from {client}", slowsUs, false},
	}},
}
