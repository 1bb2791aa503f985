package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config"
	"rollcall/smtp/smtplab"
)

// TestPublicDomains plays the public samples that are about DNS as whole domains, for a node that asks over sockets:
// P070, an MX with a private address only; P071, an MX of localhost; P073, a good A record beside an AAAA that is
// SERVFAIL, denied by the wrong code or never answered.
func TestPublicDomains(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	f := soundFront(t, lab.DNSAddr())
	f.set(t, "p070.test.", dns.TypeMX, "10 mx.p070.test.")
	f.set(t, "mx.p070.test.", dns.TypeA, "10.1.2.3")
	f.set(t, "mx.p070.test.", dns.TypeAAAA)
	f.set(t, "p071.test.", dns.TypeMX, "0 localhost.")
	f.set(t, "localhost.", dns.TypeA, "127.0.0.1")
	f.set(t, "localhost.", dns.TypeAAAA, "::1")
	want := map[string]string{"anna@p070.test": "invalid no_mail_service", "anna@p071.test": "invalid no_mail_service"}
	file := "email\nanna@p070.test\nanna@p071.test\n"
	for i, code := range []int{dns.RcodeServerFailure, dns.RcodeNameError, silent} {
		domain := fmt.Sprintf("p073%d-clean.test", i)
		asked, err := dns.Exchange(new(dns.Msg).SetQuestion(domain+".", dns.TypeMX), lab.DNSAddr())
		if err != nil || len(asked.Answer) == 0 {
			t.Fatalf("%s: %v, %v", domain, asked, err)
		}
		f.codes[asked.Answer[0].(*dns.MX).Mx+"AAAA"] = code
		want["anna@"+domain], want["nobody@"+domain] = "valid mailbox_exists", "invalid mailbox_not_found"
		file += "anna@" + domain + "\nnobody@" + domain + "\n"
	}
	n, _ := checkedNode(t, lab, f, func(c *config.Config) {
		c.DNS.Timeout = config.Duration{Duration: 200 * time.Millisecond}
		hurry(c)
	})
	v := finish(t, n, submit(t, n, []byte(file), 100), time.Minute)
	found := results(t, n, v)
	if len(found) != len(want) {
		t.Errorf("%d results, want %d", len(found), len(want))
	}
	for email, r := range found {
		if got := fmt.Sprint(r.Outcome, " ", r.Reason); got != want[email] {
			t.Errorf("%s: %s, want %s", email, got, want[email])
		}
	}
}
