package throttle

import "strings"

// Shown is what a host's replies showed of its software in one session.
type Shown struct {
	Greeting string // the greeting without the code
	Hello    string // the reply to EHLO, without the codes and our own name
	Host     string // the host's name in the MX record
	Groups   bool   // the host takes commands in groups (RFC 2920)
}

// Software says how a mail server counts refused recipients. The zero value is an unknown server.
type Software struct {
	Name       string
	PerSession int    // we end a session after this many, below the server's limit; 0: the hourly budget applies
	PerHour    int    // refusals that the server tolerates in an hour, all sessions together; 0: not published
	PerMail    int    // transactions without a message that the server tolerates in a session; 0: any number
	Repeats    bool   // the server may repeat a refusal for the next address of the transaction
	Where      string // source: a manual and its option, or a file of its code
	By         string // the evidence, as "its greeting"
}

// softwareRow is one row of the table: a server, and how we recognize it.
type softwareRow struct {
	name     string
	greeting string // marks in a greeting: whole words in lower case, with "|" between them
	hello    string // marks in a reply to EHLO, in the same form
	hosts    string // suffixes of host names, with blanks between them

	perSession int // see Software
	perHour    int
	perMail    int
	repeats    bool
	where      string
}

// unpublished marks a gateway that is known by its host names, but not its limit of refusals.
const unpublished = "its count is not published; the suffix is in "

// softwares is the table of known mail server software and gateways.
//
// The first rows, with their default settings, count refusals within a session only. The other rows count beyond a
// session, or nobody has published how they count. The servers of these rows keep the budget of strangers, even if they
// are built on one of the first.
//
// Some software isn't listed, because it doesn't show its name. qmail, notqmail and Courier greet with "ESMTP" alone,
// and others give the same EHLO reply as qmail-smtpd.c (PIPELINING, 8BITMIME). hMailServer and maddy greet like many
// others. Sendmail, OpenSMTPD and Proofpoint say "Pleased to meet you"; Exim, Exchange and others say "Hello" and our
// address. mox refuses no unknown mailbox before DATA.
var softwares = []softwareRow{
	{name: "Postfix", greeting: "postfix", perSession: 8,
		where: "postconf(5): smtpd_soft_error_limit 10, smtpd_hard_error_limit 20; anvil counts no refusals"},
	// Exim counts every RSET, EHLO and STARTTLS but the first. At the eleventh it logs a line for which fail2ban bans. We
	// send nine RSETs at most. Nine RSETs leave one command for what a host adds.
	{name: "Exim", greeting: "exim", perSession: 8, perMail: 10,
		where: "Exim specification, chapter 14: smtp_max_synprot_errors and smtp_max_unknown_commands; " +
			"rcpt_fail_count limits nothing as shipped; smtp_accept_max_nonmail 10, and smtp_in.c: all but MAIL, RCPT and DATA"},
	{name: "Sendmail", greeting: "sendmail", perSession: 8,
		where: "Sendmail Installation and Operation Guide: BadRcptThrottle slows a session, off by default"},
	{name: "Haraka", greeting: "haraka", hello: "haraka is at your service", perSession: 8, repeats: true,
		where: "Haraka config/connection.ini and config/plugins; limits are in haraka-plugin-limit, off by default; " +
			"plugins/delay_deny.js keeps a refusal that it has said, for the next address that exists"},
	// Exchange 2003 and the SMTP service of IIS show X-EXPS and X-LINK2STATE too, and greet with a version after
	// "Service". No manual says how they count.
	{name: "Exchange", greeting: "microsoft esmtp mail service ready", hello: "x-anonymoustls|xrdst", perSession: 3,
		where: "Set-ReceiveConnector: MaxProtocolErrors 5, TarpitInterval 5 s"},
	{name: "chasquid", greeting: "chasquid", hello: "your hour of destiny has come", perSession: 2,
		where: "chasquid internal/smtpsrv/conn.go: Conn.Handle ends a session at its third error"},
	{name: "OpenSMTPD", greeting: "opensmtpd", perSession: 8,
		where: "OpenSMTPD usr.sbin/smtpd/smtp_session.c: smtp_reply counts no refusals; smtpd.conf(5): max-rcpt"},
	{name: "James", greeting: "james smtp server|james awesome smtp server", perSession: 8,
		where: "Apache James smtpserver.xml, ValidRcptHandler: refuses and counts nothing"},

	{name: "cPanel", greeting: "we do not authorize the use of this system", perMail: 10, // cPanel runs Exim
		where: "cPanel, Exim Configuration Manager: Dictionary attack protection, on by default, limits the rate of " +
			"hosts with more than four failed recipients"},
	{name: "Stalwart", greeting: "stalwart", perHour: 1,
		where: "Stalwart crates/registry: Security.abuse_ban_rate, 35 in a day over all sessions"},
	{name: "Kerio Connect", greeting: "kerio connect",
		where: "Kerio Connect, Securing the SMTP server: Max. number of unknown recipients, for an hour"},
	{name: "Cisco", hosts: "iphmx.com",
		where: "AsyncOS user guide: Directory Harvest Attack Prevention, Max. Invalid Recipients Per Hour"},
	{name: "Proofpoint", hosts: "pphosted.com ppe-hosted.com gpphosted.com",
		where: unpublished + "ActiveCampaign/smtp-field-manual"},
	{name: "Mimecast", hosts: "mimecast.com mimecast.co.za mimecast-offshore.com",
		where: unpublished + "KumoMTA policy-extras/shaping.toml"},
	{name: "Barracuda", hosts: "barracudanetworks.com", where: unpublished + "KumoMTA community/shaping.toml"},
	{name: "Symantec", hosts: "messagelabs.com", where: unpublished + "sisimai/go-sisimai rhost"},
	{name: "Trend Micro", hosts: "trendmicro.com trendmicro.eu trendmicro.com.au trendmicro.co.jp",
		where: unpublished + "ActiveCampaign/smtp-field-manual"},
	{name: "Sophos", hosts: "hydra.sophos.com",
		where: unpublished + "Sophos Central help, Using TLS connections"},
	{name: "Hornetsecurity", hosts: "antispameurope.com hornetsecurity.com",
		where: unpublished + "the AGNITAS bounce rules"},
	{name: "Retarus", hosts: "retarus.com rmx.de", where: unpublished + "the AGNITAS bounce rules"},
	{name: "SpamExperts", hosts: "spamexperts.com spamexperts.eu spamexperts.net antispamcloud.com",
		where: unpublished + "N-able SpamExperts user guide, MX Records"},
	{name: "Forcepoint", hosts: "mailcontrol.com", where: unpublished + "Forcepoint 8.5 help"},
	{name: "Trellix", hosts: "fireeyecloud.com fireeyegov.com", where: unpublished + "zone-eu/zone-mta bounces.txt"},
	{name: "Zerospam", hosts: "zerospam.ca", where: unpublished + "ActiveCampaign/smtp-field-manual"},
}

// SoftwareOf says which software a host runs. A known gateway or operator comes first, because it counts over all its
// machines. Then comes software that isn't known to count by the session. If a host shows two kinds of software that
// count by the session, SoftwareOf returns none.
func SoftwareOf(shown Shown) Software {
	if s := softwareOfHost(shown.Host); s.Name != "" {
		return s
	}
	greeting, hello := wordsOf(shown.Greeting), wordsOf(shown.Hello)
	var found []Software
	for _, row := range softwares {
		inGreeting, inHello := hasMark(greeting, row.greeting), hasMark(hello, row.hello)
		by := "its greeting"
		switch {
		case !inGreeting && !inHello:
			continue
		case inGreeting && inHello:
			by = "its greeting and its EHLO reply"
		case inHello:
			by = "its EHLO reply"
		}
		if row.perSession == 0 {
			return row.shownBy(by)
		}
		found = append(found, row.shownBy(by))
	}
	if len(found) != 1 {
		return Software{}
	}
	return found[0]
}

// shownBy returns the software of a row, with the words that showed it.
func (r softwareRow) shownBy(what string) Software {
	return Software{Name: r.name, PerSession: r.perSession, PerHour: r.perHour, PerMail: r.perMail, Repeats: r.repeats,
		Where: r.where, By: what}
}

// softwareOfHost returns the gateway or operator of a host, by the host's name.
func softwareOfHost(host string) Software {
	const by = "the name of its host"
	host = "." + strings.TrimSuffix(strings.ToLower(host), ".")
	for _, row := range softwares {
		for suffix := range strings.FieldsSeq(row.hosts) {
			if strings.HasSuffix(host, "."+suffix) {
				return row.shownBy(by)
			}
		}
	}
	for _, o := range operators {
		for suffix := range strings.FieldsSeq(o.hosts) {
			if strings.HasSuffix(host, "."+suffix) {
				return Software{Name: suffix, Where: o.where, By: by}
			}
		}
	}
	return Software{}
}

// wordsOf returns the words of a greeting or an EHLO reply in lower case, each between two spaces. wordsOf leaves out
// the first word, the host's name (RFC 5321 sections 4.2 and 4.1.1.1), and parts of other names, addresses and links.
func wordsOf(text string) string {
	words := strings.Fields(strings.ToLower(text))
	var b strings.Builder
	b.WriteByte(' ')
	for _, word := range words[min(1, len(words)):] {
		if strings.Contains(word, "://") {
			continue
		}
		for part := range strings.FieldsFuncSeq(word, func(r rune) bool { return strings.ContainsRune("/()", r) }) {
			if part = strings.Trim(part, `.,;:!"'<>[]`); part != "" {
				b.WriteString(part + " ")
			}
		}
	}
	return b.String()
}

// hasMark reports whether the words, as wordsOf writes them, contain one of the marks.
func hasMark(words, marks string) bool {
	for mark := range strings.SplitSeq(marks, "|") {
		if mark != "" && strings.Contains(words, " "+mark+" ") {
			return true
		}
	}
	return false
}

// CountsBySession reports whether the software is known to count refusals within a session only.
func (s Software) CountsBySession() bool { return s.PerSession > 0 }

// Apply returns the limits for a receiver with this software, if no rule sets its refusals. Software that counts by the
// session tolerates few refusals in a session, and any number in an hour.
func (s Software) Apply(a Limits) Limits {
	if s.PerHour > 0 {
		a.RefusedPerHour = min(a.RefusedPerHour, s.PerHour)
	}
	if !s.CountsBySession() {
		return a
	}
	a.RefusedPerHour = CountMax
	a.RefusedPerSession = min(a.RefusedPerSession, s.PerSession)
	return a
}
