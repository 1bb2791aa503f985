package throttle

import (
	"strings"
	"testing"
)

// TestSoftwareOf: what real servers show, and what only looks like it. "" is a server of which nothing is known.
func TestSoftwareOf(t *testing.T) {
	const exchange = "EX1.customer.example Hello [192.0.2.1] SIZE 37748736 PIPELINING DSN ENHANCEDSTATUSCODES STARTTLS " +
		"X-ANONYMOUSTLS AUTH NTLM X-EXPS GSSAPI NTLM 8BITMIME BINARYMIME CHUNKING XRDST"
	const postfix = "mx.customer.example ESMTP Postfix (Debian/GNU)"
	for _, tc := range []struct {
		shown    Shown
		name, by string
	}{
		{Shown{Greeting: postfix}, "Postfix", "its greeting"},
		{Shown{Greeting: "mx.customer.example ESMTP POSTFIX."}, "Postfix", "its greeting"},
		{Shown{Greeting: "box.example ESMTP Hi, I'm a Mail-in-a-Box (Ubuntu/Postfix; see https://mailinabox.email/)"},
			"Postfix", "its greeting"},
		{Shown{Greeting: "mx.example ESMTP Exim 4.96 Mon, 02 Nov 2026 10:00:00 +0000"}, "Exim", "its greeting"},
		{Shown{Greeting: "mx.example ESMTP Sendmail 8.18.1/8.18.1; Mon, 2 Nov 2026 10:00:00 GMT",
			Hello: "mx.example Hello probe.example [192.0.2.1], pleased to meet you"}, "Sendmail", "its greeting"},
		{Shown{Greeting: "mx.example ESMTP Haraka/3.0.3 ready (0A1B2C)"}, "Haraka", "its greeting"},
		{Shown{Greeting: "mx.example ESMTP welcome", Hello: "mx.example Hello [192.0.2.1], Haraka is at your service. " +
			"PIPELINING 8BITMIME SMTPUTF8 SIZE 0"}, "Haraka", "its EHLO reply"},
		{Shown{Greeting: "EX1.example Microsoft ESMTP MAIL Service ready at Mon, 2 Nov 2026 10:00:00 +0100"},
			"Exchange", "its greeting"},
		{Shown{Greeting: "mail.example ESMTP", Hello: exchange}, "Exchange", "its EHLO reply"},
		{Shown{Greeting: "EX1.example Microsoft ESMTP MAIL Service ready at Mon, 2 Nov 2026", Hello: exchange},
			"Exchange", "its greeting and its EHLO reply"},
		{Shown{Greeting: "mx.example ESMTP chasquid"}, "chasquid", "its greeting"},
		{Shown{Greeting: "mx.example ESMTP OpenSMTPD"}, "OpenSMTPD", "its greeting"},
		{Shown{Greeting: "Apache JAMES awesome SMTP Server"}, "James", "its greeting"},

		// It counts beyond a session.
		{Shown{Greeting: "s1.example ESMTP Exim 4.98.2 #2 Mon, 02 Nov 2026 10:00:00 -0500 We do not authorize the use of " +
			"this system to transport unsolicited, and/or bulk e-mail."}, "cPanel", "its greeting"},
		{Shown{Greeting: "mx.example Stalwart ESMTP at your service"}, "Stalwart", "its greeting"},
		{Shown{Greeting: "mx.example Kerio Connect 10.0.2 ESMTP ready"}, "Kerio Connect", "its greeting"},
		{Shown{Greeting: postfix, Host: "mx1.customer.iphmx.com"}, "Cisco", "the name of its host"},
		{Shown{Greeting: "mx.example ESMTP Sendmail 8.18.1", Host: "MX0A-1.PPHOSTED.COM."}, "Proofpoint",
			"the name of its host"},
		{Shown{Greeting: postfix, Hello: exchange, Host: "d1.ess.barracudanetworks.com"}, "Barracuda", "the name of its host"},
		{Shown{Greeting: "AM1.mail.protection.outlook.com Microsoft ESMTP MAIL Service ready at Mon, 2 Nov 2026",
			Host: "customer.mail.protection.outlook.com"}, "mail.protection.outlook.com", "the name of its host"},

		// Near misses.
		{Shown{}, "", ""}, {Shown{Greeting: "mx.example ESMTP"}, "", ""}, {Shown{Greeting: "esa1.example ESMTP"}, "", ""},
		{Shown{Greeting: "postfix.customer.example ESMTP"}, "", ""}, {Shown{Greeting: "postfix ESMTP"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP at postfix.customer.example"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP write to postfix@customer.example or http://customer.example/postfix/"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP Postcow, no eximious sendmailer"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP", Host: "mx.postfix.example"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP", Hello: "mx.example Hello postfix-probe.example [192.0.2.1] PIPELINING"}, "", ""},
		{Shown{Greeting: "mx.example ESMTP", Hello: "mx.example Hello postfix [192.0.2.1] PIPELINING"}, "", ""},
		{Shown{Hello: "mx.example Hello haraka.example [192.0.2.1], pleased to meet you"}, "", ""},
		{Shown{Hello: "mx.example Hello [192.0.2.1] X-EXPS GSSAPI NTLM X-LINK2STATE"}, "", ""},
		{Shown{Greeting: "napier.example Microsoft ESMTP MAIL Service, Version: 6.0.3790.3959 ready at Sun, 2 Dec 2026"},
			"", ""},
		{Shown{Greeting: postfix, Host: "notiphmx.com"}, "Postfix", "its greeting"},
		{Shown{Greeting: postfix, Host: "iphmx.com.customer.example"}, "Postfix", "its greeting"},

		// They contradict each other.
		{Shown{Greeting: "mx.example ESMTP Postfix, not Sendmail"}, "", ""},
		{Shown{Greeting: postfix, Hello: exchange}, "", ""},
	} {
		s := SoftwareOf(tc.shown)
		if s.Name != tc.name || s.By != tc.by || (s.Where == "") != (tc.name == "") {
			t.Errorf("%+v: %q by %q, want %q by %q", tc.shown, s.Name, s.By, tc.name, tc.by)
		}
	}
}

// TestEachRowOfSoftware: a row has a source, something that it is known by, and is found by each of
// its marks, in any case and with whatever is around them.
func TestEachRowOfSoftware(t *testing.T) {
	for _, row := range softwares {
		if row.name == "" || row.where == "" || row.greeting+row.hello+row.hosts == "" {
			t.Errorf("%+v: a row without a name, a source or a mark", row)
		}
		if text := row.greeting + row.hello + row.hosts; text != strings.ToLower(text) {
			t.Errorf("%s: marks are in lower case", row.name)
		}
		var shown []Shown
		for mark := range strings.SplitSeq(row.greeting, "|") {
			if mark != "" {
				shown = append(shown, Shown{Greeting: "mx.example ESMTP (" + strings.ToUpper(mark) + "), at 10:00"})
			}
		}
		for mark := range strings.SplitSeq(row.hello, "|") {
			if mark != "" {
				shown = append(shown, Shown{Hello: "mx.example Hello there, " + strings.ToUpper(mark) + ". SIZE 1"})
			}
		}
		for suffix := range strings.FieldsSeq(row.hosts) {
			shown = append(shown, Shown{Host: suffix}, Shown{Host: "mx1." + strings.ToUpper(suffix) + "."})
		}
		for _, one := range shown {
			s := SoftwareOf(one)
			if s.Name != row.name || s.PerSession != row.perSession {
				t.Errorf("%+v: %+v, want %q", one, s, row.name)
			}
			a := DefaultLimits()
			if b := s.Apply(a); s.CountsBySession() && (b.RefusedPerHour != CountMax || b.RefusedPerSession > a.RefusedPerSession ||
				b.RefusedPerSession < 1) {
				t.Errorf("%s: %+v", row.name, b)
			}
		}
	}
}
