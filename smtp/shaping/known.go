package shaping

import "time"

// Known gives what is known of how much some operators bear, by the suffix of their
// MX hosts: the starting values of RECEIVERS D2 for a prober, which are a fifth of the
// connections and a tenth of the rate that mail senders use, collected until August
// 2026. The configuration goes before it, field by field. The map is the caller's.
func Known() map[string]Override {
	perMinute := func(n int) *Rate { return &Rate{Events: n, Per: time.Minute} }
	one, two, three, five, ten, twenty, thirty := 1, 2, 3, 5, 10, 20, 30
	// Operators of many tenants, who judge by the share of refusals.
	many := Override{Connections: &two, RcptRate: perMinute(60), RcptsPerConnection: &twenty, RefusedShare: &thirty}
	outlook := Override{Connections: &two, RcptRate: perMinute(60), RcptsPerConnection: &five, RefusedShare: &twenty}
	yahoo := Override{Connections: &one, RcptRate: perMinute(60), RcptsPerConnection: &twenty}
	apple := Override{Connections: &one, RcptRate: perMinute(30), RcptsPerConnection: &five, RefusedPerSession: &three}
	// Those that complain of little.
	strict := Override{Connections: &one, RcptRate: perMinute(20), RcptsPerConnection: &five, RefusedPerHour: &ten}
	return map[string]Override{
		"google.com": many, "googlemail.com": many,
		"mail.protection.outlook.com": many, "mx.microsoft": many,
		"olc.protection.outlook.com": outlook,
		"yahoodns.net":               yahoo,
		"icloud.com":                 apple,
		"qq.com":                     strict, "netease.com": strict,
		"gmx.net": strict, "web.de": strict, "mail.com": strict, "kundenserver.de": strict, "perfora.net": strict,
		"orange.fr": strict, "comcast.net": strict,
	}
}
