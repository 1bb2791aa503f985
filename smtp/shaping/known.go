package shaping

import (
	"maps"
	"slices"
	"strings"
)

// knownFrom is where the values of Known were found, and when.
const knownFrom = "RECEIVERS D2, a fifth of the connections and a tenth of the rate of mail senders; 2026-08"

// known are the fields of some operators, as ParseOverride's texts: "name=value" with blanks
// between them.
const (
	// Operators of many tenants, who judge by the share of refusals.
	manyTenants = "connections=2 rcpt_rate=60/min rcpts_per_connection=20 refused_share=30"
	outlookCom  = "connections=2 rcpt_rate=60/min rcpts_per_connection=5 refused_share=20"
	yahoo       = "connections=1 rcpt_rate=60/min rcpts_per_connection=20"
	apple       = "connections=1 rcpt_rate=30/min rcpts_per_connection=5 refused_per_session=3"
	// Those that complain of little.
	strict = "connections=1 rcpt_rate=20/min rcpts_per_connection=5 refused_per_hour=10"
)

// known is by the suffix of an operator's MX hosts.
var known = map[string]string{
	"google.com": manyTenants, "googlemail.com": manyTenants,
	"mail.protection.outlook.com": manyTenants, "mx.microsoft": manyTenants,
	"olc.protection.outlook.com": outlookCom,
	"yahoodns.net":               yahoo,
	"icloud.com":                 apple,
	"qq.com":                     strict, "netease.com": strict,
	"gmx.net": strict, "web.de": strict, "mail.com": strict, "kundenserver.de": strict, "perfora.net": strict,
	"orange.fr": strict, "comcast.net": strict,
}

// knownRules gives what is known of how much some operators bear: the starting values for
// a prober that were collected until August 2026. Everything else goes before it.
func knownRules() []Rule {
	rules := make([]Rule, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		r := Rule{Name: name, Where: map[Field]string{0: knownFrom}}
		for _, one := range strings.Fields(known[name]) {
			field, text, _ := strings.Cut(one, "=")
			f, _ := ParseField(field)
			if err := r.Set.Set(f, text); err != nil {
				panic(err) // this code is wrong, and every test of a Table fails
			}
		}
		rules = append(rules, r)
	}
	return rules
}
