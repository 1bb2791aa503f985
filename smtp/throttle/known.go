package throttle

import "strings"

// operator is the published limits of one operator of receivers.
type operator struct {
	hosts string // suffixes of its MX hosts, with blanks between them
	set   string // fields, "name=value" with blanks between them
	where string // source of the values, and its date
	tls   string // where the operator says that it requires TLS; "": nowhere
}

// The sources of the values: files of the repository KumoCorp/kumomta, below assets.
const (
	shipped   = "KumoMTA policy-extras/shaping.toml 2026-08, "
	community = "KumoMTA community/shaping.toml 2026-08, "
)

// cutDown ends every source. cutDown says that our values are below the published ones. The published limits are for
// mail senders, while we send no message and get many refusals.
const cutDown = "; for probing about a fifth of the connections, a tenth of the rate"

// Operators with many tenants judge a client by its share of refusals; strict ones complain early.
const (
	manyTenants = "connections=2 rcpt_rate=60/min rcpts_per_connection=20 refused_share=30"
	outlookCom  = "connections=2 rcpt_rate=60/min rcpts_per_connection=5 refused_share=20"
	yahoo       = "connections=1 rcpt_rate=60/min rcpts_per_connection=20"
	apple       = "connections=1 rcpt_rate=30/min rcpts_per_connection=5 refused_per_session=3"
	strict      = "connections=1 rcpt_rate=20/min rcpts_per_connection=5 refused_per_hour=10"
)

// operators are the operators with published limits. All other receivers get the default.
var operators = []operator{
	{"google.com googlemail.com", manyTenants, shipped + "google: 5 connections, 50 messages each",
		"support.google.com/mail/answer/81126 2026-08"},
	{"mail.protection.outlook.com", manyTenants, shipped + "office365: 5 connections, 50 messages each", ""},
	{"mx.microsoft", manyTenants, shipped + "office365-dane: 5 connections, 50 messages each", ""},
	{"olc.protection.outlook.com", outlookCom, shipped + "outlook: 5 connections, 50 messages each", ""},
	{"yahoodns.net", yahoo, shipped + "yahoo: 10 connections, 20 messages each", ""},
	{"yahoo.co.jp", yahoo, community + "yahoo.co.jp: 2 connections, 20 messages each, 10/s", ""},
	{"icloud.com", apple, shipped + "apple: 10 connections, 5 messages each", ""},
	{"qq.com", strict, community + "qq.com: 4 connections, 8 messages each", community + "qq.com"},
	{"netease.com", strict, community + "163.com: 4 connections, 7 messages each", community + "163.com"},
	{"gmx.net web.de", strict, community + "gmx.net_web.de: 4 connections, 20 messages each",
		community + "gmx.net_web.de"},
	{"mail.com", strict, shipped + "mail.com: 10 connections, 100 messages each; of the house of gmx.net", ""},
	{"kundenserver.de perfora.net", strict, community +
		"gmx.net_web.de: 4 connections, 20 messages each; IONOS, of the house of gmx.net", ""},
	{"orange.fr", strict, shipped + "orange: 2 connections, 100 messages each", shipped + "orange"},
	{"comcast.net", strict, shipped + "comcast.net: 25 connections, 1000 messages each",
		shipped + "comcast.net"},
	{"barracudanetworks.com", "connections=2 rcpts_per_connection=15",
		community + "barracuda: 10 connections, 15 messages each", community + "barracuda"},
	{"kpnmail.nl", "connections=2 rcpts_per_connection=10", community + "kpn: 10 connections, 10 messages each",
		community + "kpn"},
	{"netvigator.com", "connections=1 rcpts_per_connection=10",
		community + "netvigator: 5 connections, 10 messages each", community + "netvigator"},
	{"docomo.ne.jp ezweb.ne.jp au.com softbank.ne.jp", strict, "note.com/sendmagic, au.com mobile/service/attention/" +
		"specification 2026-11: many unknown addresses bring a block", ""},
	{"uol.com.br", "connections=1 refused_share=5", "email.uol.com.br/postmaster 2026-11: more than 10 % unknown " +
		"addresses bring a block", ""},
}

// homes maps the hosts of operators to their own mail domains. An operator's rule for such a domain wins over the
// built-in rule for its hosts.
var homes = map[string]string{
	"gmail.com":   "google.com",
	"hotmail.com": "olc.protection.outlook.com", "live.com": "olc.protection.outlook.com",
	"msn.com": "olc.protection.outlook.com", "outlook.com": "olc.protection.outlook.com",
	"yahoo.com": "yahoodns.net", "aol.com": "yahoodns.net", "ymail.com": "yahoodns.net",
	"me.com": "icloud.com", "mac.com": "icloud.com",
	"gmx.de": "gmx.net", "163.com": "netease.com", "126.com": "netease.com",
}

// knownRules returns the limits of known operators. Every other rule with the same name wins over these limits.
func knownRules() []Rule {
	var rules []Rule
	for _, o := range operators {
		for name := range strings.FieldsSeq(o.hosts) {
			r := Rule{Name: name, Where: map[Field]string{0: o.where + cutDown}}
			set := o.set
			if o.tls != "" {
				set += " tls=required"
				r.Where[FieldTLS] = o.tls
			}
			for one := range strings.FieldsSeq(set) {
				field, text, _ := strings.Cut(one, "=")
				f, _ := ParseField(field)
				if err := r.Set.Set(f, text); err != nil {
					panic(err) // the table is wrong, and every test of a Table fails
				}
			}
			rules = append(rules, r)
		}
	}
	return rules
}
