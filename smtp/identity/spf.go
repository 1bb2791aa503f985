package identity

import (
	"context"
	"fmt"
	"net"
	"strings"

	"blitiri.com.ar/go/spf"
	"github.com/miekg/dns"

	"rollcall/smtp"
)

// CheckSPF checks whether the return path's domain lets the source send (RFC 7208). A missing policy is no fault,
// but some receivers trust such a sender less.
func CheckSPF(ctx context.Context, r Resolver, s Source) Finding {
	f := Finding{Check: SPF, Source: s.Addr.String()}
	address, err := smtp.ParseAddress(s.ReturnPath)
	if err != nil {
		return notChecked(SPF, f.Source, fmt.Errorf("the return path is no address"))
	}
	domain, mechanism := address.Domain, "ip4:"
	if s.Addr.Unmap().Is6() {
		mechanism = "ip6:"
	}
	result, err := spf.CheckHostWithSender(s.Addr.Unmap().AsSlice(), s.Hello, s.ReturnPath,
		spf.WithContext(ctx), spf.WithResolver(names{r}))
	f.Saw = fmt.Sprintf("%s says %s", domain, result)
	switch result {
	case spf.Pass:
		f.State = OK
	case spf.None:
		f.State, f.Saw = Warn, domain+" has no SPF record"
		f.Next = fmt.Sprintf("Publish a TXT record for %s: v=spf1 %s%s -all", domain, mechanism, s.Addr)
	case spf.Neutral:
		f.State, f.Next = Warn, fmt.Sprintf("Add %s%s to the SPF record of %s.", mechanism, s.Addr, domain)
	case spf.Fail, spf.SoftFail:
		f.State, f.Next = Fail, fmt.Sprintf("Add %s%s to the SPF record of %s.", mechanism, s.Addr, domain)
	case spf.PermError:
		f.State, f.Saw = Fail, fmt.Sprintf("the SPF record of %s cannot be used: %v", domain, err)
		f.Next = fmt.Sprintf("Mend the SPF record of %s; RFC 7208 allows 10 lookups.", domain)
	default:
		return notChecked(SPF, f.Source, fmt.Errorf("dns: the SPF record of %s could not be read", domain))
	}
	return f
}

// names is a Resolver with the interface of the SPF library.
type names struct{ r Resolver }

// ask returns the records of a name, or an error of the library.
func (n names) ask(ctx context.Context, name string, qtype uint16) ([]dns.RR, error) {
	records, err := n.r.Ask(ctx, name, qtype)
	switch {
	case err != nil:
		return nil, &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
	case len(records) == 0:
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return records, nil
}

func (n names) LookupTXT(ctx context.Context, name string) (out []string, err error) {
	records, err := n.ask(ctx, name, dns.TypeTXT)
	for _, rr := range records {
		if txt, ok := rr.(*dns.TXT); ok {
			out = append(out, strings.Join(txt.Txt, "")) // RFC 7208 §3.3: without spaces
		}
	}
	return out, err
}

func (n names) LookupMX(ctx context.Context, name string) (out []*net.MX, err error) {
	records, err := n.ask(ctx, name, dns.TypeMX)
	for _, rr := range records {
		if mx, ok := rr.(*dns.MX); ok {
			out = append(out, &net.MX{Host: mx.Mx, Pref: mx.Preference})
		}
	}
	return out, err
}

func (n names) LookupIPAddr(ctx context.Context, host string) (out []net.IPAddr, err error) {
	found, err := addresses(ctx, n.r, host)
	for _, a := range found {
		out = append(out, net.IPAddr{IP: a.AsSlice()})
	}
	switch {
	case len(out) > 0:
		return out, nil
	case err != nil:
		return nil, &net.DNSError{Err: err.Error(), Name: host, IsTemporary: true}
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (n names) LookupAddr(ctx context.Context, addr string) (out []string, err error) {
	reverse, err := dns.ReverseAddr(addr)
	if err != nil {
		return nil, &net.DNSError{Err: err.Error(), Name: addr, IsNotFound: true}
	}
	records, err := n.ask(ctx, reverse, dns.TypePTR)
	for _, rr := range records {
		if ptr, ok := rr.(*dns.PTR); ok {
			out = append(out, ptr.Ptr)
		}
	}
	return out, err
}
