package smtplab

import "rollcall/smtp"

// gateways stand before the mail of companies.
var gateways = []provider{
	{Personality{
		Name: "proofpoint", About: "Proofpoint", MXSuffix: "pphosted.com", TLS: TLSSelfSigned, Pipelining: true,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "550 5.1.1 <{address}>... User Unknown",
		})},
	}, []aboutUs{
		{"blocked", smtp.StageGreeting, "554 Blocked - see https://ipcheck.proofpoint.com/?ip={client}",
			blockedUs, false},
		{"csi", smtp.StageRcpt, "550 5.7.1 Mail from {client} blocked: Cloudmark CSI", blockedUs, false},
		{"relay", smtp.StageRcpt, "550 5.7.1 Relaying denied", notHosted, true},
		{"sender", smtp.StageMail, "550 5.1.8 Domain of sender address does not resolve", knowsUs, false},
	}},
	{Personality{
		Name: "proofpointmarked", About: "Proofpoint with the customer's directory", MXSuffix: "ppe-hosted.com",
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "550 5.7.1 <{address}>: Recipient address rejected: marked as invalid",
		})},
	}, nil},
	{Personality{
		Name: "proofpointcall", About: "Proofpoint that asks the inner host first", MXSuffix: "pphosted.com",
		Greylist: true, GreylistFactor: 1,
		Words: Words{
			Greylist: "450 4.1.1 <{address}>: Recipient address rejected: unverified address: " +
				"Address verification in progress",
			Mailboxes: kinds(map[Mailbox]string{
				NotFound: "550 5.1.1 <{address}>: Recipient address rejected: undeliverable address",
			})},
	}, nil},
	{Personality{
		Name: "mimecast", About: "Mimecast, without enhanced codes", MXSuffix: "mimecast.com", NoEnhanced: true,
		TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550",
		})},
	}, []aboutUs{
		{"unsure", smtp.StageRcpt, "451 Invalid Recipient - verification is not possible", nil, false},
		{"connections", smtp.StageMail, "451 Account service is temporarily unavailable", slowsUs, false},
		{"blocked", smtp.StageMail, "451 IP temporarily blacklisted", nil, false},
		{"reputation", smtp.StageRcpt, "550 Rejected by header based policy: local CT IP reputation", blockedUs,
			false},
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
			Mailboxes: kinds(map[Mailbox]string{NotFound: "550 Invalid Recipient"}),
		},
	}, nil},
	{Personality{
		Name: "barracuda", About: "Barracuda", MXSuffix: "barracudanetworks.com", NoEnhanced: true,
		Pipelining: true, TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{NotFound: "550 No such user ({address})"})},
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
			Mailboxes: kinds(map[Mailbox]string{NotFound: "550 #5.1.0 Address rejected."}),
		},
	}, []aboutUs{
		{"reputation", smtp.StageGreeting, "554 Your access to this mail system has been rejected due to the " +
			"sending MTA's poor reputation", blockedUs, false},
	}},
	{Personality{
		Name: "messagelabs", About: "Symantec's hosted gateway", MXSuffix: "messagelabs.com", NoEnhanced: true,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{NotFound: "550 Invalid recipient <{address}> (#5.1.1)"})},
	}, []aboutUs{
		{"throttled", smtp.StageRcpt, "450 Requested action aborted [7.2] 15412", slowsUs, false},
		{"relay", smtp.StageRcpt, "553 you are trying to use me [{host}] as a relay, but I have not been " +
			"configured to let you do this", notHosted, true},
	}},
	{Personality{
		Name: "trendmicro", About: "Trend Micro", MXSuffix: "tmes.trendmicro.com", TLS: TLSSelfSigned,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "554 5.7.1 <{address}>: Recipient address rejected: INVALID-RECIPIENT",
		})},
	}, []aboutUs{
		{"blocked", smtp.StageRcpt, "550 5.7.1 Service unavailable; Client host [{client}] blocked using " +
			"Trend Micro RBL+. ERS-RBL", blockedUs, false},
		{"sender", smtp.StageRcpt, "554 5.7.1 Sender address rejected: BLOCK-SEND-ER", blockedUs, false},
		{"relay", smtp.StageRcpt, "554 5.7.1 Recipient address rejected: NO-DOMAIN", notHosted, true},
	}},
	{Personality{
		Name: "zerospam", About: "ZEROSPAM", MXSuffix: "zerospam.ca", Pipelining: true,
		Words: Words{Mailboxes: kinds(map[Mailbox]string{
			NotFound: "554 5.7.1 <{address}>: Recipient address rejected: not in recipient list",
		})},
	}, nil},
	{Personality{
		Name: "fireeye", About: "Trellix (FireEye) ETP", MXSuffix: "fireeyecloud.com", TLS: TLSSelfSigned,
	}, []aboutUs{
		{"listed", smtp.StageMail, "550 5.5.4 IP [{client}] is listed. ETP208", blockedUs, false},
	}},
}
