package mx

import (
	"errors"
	"testing"

	"github.com/miekg/dns"

	"rollcall/smtp"
)

// Servers that deny everything, as in a captive network, must not make a file
// full of invalid addresses; and what they denied is forgotten when they are gone.
func TestDenialsAreBelievedOnlyOfServersThatKnowTheWitness(t *testing.T) {
	z := startZone(t, "there.example. 60 MX 10 mx.gone.example.")
	z.code("missing.example.", dns.RcodeNameError)
	z.code("mx.gone.example.", dns.RcodeNameError)
	z.code("com.", dns.RcodeNameError)
	o := testOptions(z.addr)
	o.Witness = "com"
	r := startResolver(t, o)
	for _, domain := range []string{"missing.example", "there.example"} {
		_, err := r.Lookup(t.Context(), domain)
		if walled := (*Error)(nil); !errors.As(err, &walled) || walled.Kind != Walled {
			t.Errorf("%s: got %v, want a walled error", domain, err)
		}
	}
	if err := r.Check(t.Context()); err == nil {
		t.Error("Check: got nil, want a walled error")
	}
	z.mu.Lock()
	delete(z.rcodes, "com.")
	delete(z.rcodes, "missing.example.")
	z.mu.Unlock()
	z.add(t, "com. 60 NS a.gtld.example.", "missing.example. 60 MX 10 mx.missing.example.",
		"mx.missing.example. 60 A 192.0.2.1")
	r = startResolver(t, o) // which has forgotten the failures: they last a second
	if route, err := r.Lookup(t.Context(), "missing.example"); err != nil || len(route.Hosts) != 1 {
		t.Errorf("missing.example on the open network: got %+v, %v, want its host", route, err)
	}
	if route, err := r.Lookup(t.Context(), "there.example"); err != nil || route.NoMail != smtp.NoMailService {
		t.Errorf("there.example on the open network: got %+v, %v, want no mail service", route, err)
	}
}
