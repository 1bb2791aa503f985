package throttle

import "strings"

// Software is what is known of how a mail server counts the recipients that it refuses.
type Software struct {
	Name       string
	greeting   string // in lower case; a word of its greeting (RFC 5321 section 4.3.1)
	PerSession int    // refusals after which we end a session: below what it counts to
	Where      string // who says so
}

// softwares are those that count within a session and remember nothing beyond it, as they are
// shipped. Gateways that count by the hour (Cisco's DHAP: 25 an hour) are not here and keep the
// budget of strangers, and so does everything that nobody knows.
var softwares = []Software{
	{"Postfix", "postfix", 8,
		"postconf(5): smtpd_soft_error_limit 10 and smtpd_hard_error_limit 20 in a session; anvil limits no recipients by default"},
	{"Exim", "exim", 8,
		"Exim specification, chapter 14: smtp_max_unknown_commands and smtp_max_synprot_errors count no refused recipients"},
	{"Sendmail", "sendmail", 8,
		"Sendmail Installation and Operation Guide: BadRcptThrottle slows a session, and is off by default"},
	{"Haraka", "haraka", 8,
		"Haraka docs/plugins/limit.md: error limits are of a connection, by a plugin that has to be enabled"},
	{"Exchange", "microsoft esmtp mail service", 3,
		"Set-ReceiveConnector: MaxProtocolErrors 5 and TarpitInterval 5 s, both of a session"},
	{"chasquid", "chasquid", 2, "chasquid internal/smtpsrv: a session ends at its third error"},
}

// SoftwareOf names the server software of a greeting, when it is known to count refused recipients
// within a session only.
func SoftwareOf(greeting string) (Software, bool) {
	greeting = strings.ToLower(greeting)
	for _, s := range softwares {
		if strings.Contains(greeting, s.greeting) {
			return s, true
		}
	}
	return Software{}, false
}

// Apply gives limits for a receiver that runs the software and of which nobody has said how many
// refusals it bears: any number in an hour, and few in a session.
func (s Software) Apply(a Limits) Limits {
	a.RefusedPerHour = CountMax
	a.RefusedPerSession = min(a.RefusedPerSession, s.PerSession)
	return a
}
