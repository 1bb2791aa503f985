package identity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"rollcall/smtp"
)

// CheckPTR checks whether a source has a name that leads back to it. Receivers that check names refuse a sender
// without one.
func CheckPTR(ctx context.Context, r Resolver, s Source) Finding {
	f := Finding{Check: PTR, Source: s.Addr.String()}
	reverse, err := dns.ReverseAddr(s.Addr.String())
	if err != nil {
		return notChecked(PTR, f.Source, err)
	}
	records, err := r.Ask(ctx, reverse, dns.TypePTR)
	if err != nil {
		return notChecked(PTR, f.Source, err)
	}
	var names []string
	for _, rr := range records {
		if ptr, ok := rr.(*dns.PTR); ok && len(names) < recordsMax {
			names = append(names, strings.ToLower(strings.TrimSuffix(ptr.Ptr, ".")))
		}
	}
	if len(names) == 0 {
		f.State, f.Saw = Fail, "the address has no PTR"
		f.Next = fmt.Sprintf("Ask who gave you %s to set its PTR to %s.", s.Addr, s.Hello)
		return f
	}
	return leadBack(ctx, r, s, names)
}

// leadBack checks whether one of the names of a source resolves to it.
func leadBack(ctx context.Context, r Resolver, s Source, names []string) Finding {
	f := Finding{Check: PTR, Source: s.Addr.String()}
	var failed error
	for _, name := range names {
		found, err := addresses(ctx, r, name)
		if slices.Contains(found, s.Addr.Unmap()) {
			return namedLike(f, s, name)
		}
		if err != nil {
			failed = err
		}
	}
	if failed != nil {
		return notChecked(PTR, f.Source, failed)
	}
	f.State, f.Saw = Fail, fmt.Sprintf("its PTR is %s, which does not resolve to it", names[0])
	f.Next = fmt.Sprintf("Add an address record for %s with %s, or have the PTR changed.", names[0], s.Addr)
	return f
}

// namedLike judges the name of a PTR that resolves back to the source: a name that contains the address looks like a
// dial-up line, and some receivers refuse it.
func namedLike(f Finding, s Source, name string) Finding {
	f.State, f.Saw = OK, name+" and back"
	a := s.Addr.Unmap()
	if !a.Is4() {
		return f
	}
	b := a.As4()
	for _, separator := range []string{".", "-"} {
		there := fmt.Sprintf("%[2]d%[1]s%[3]d%[1]s%[4]d%[1]s%[5]d", separator, b[0], b[1], b[2], b[3])
		back := fmt.Sprintf("%[2]d%[1]s%[3]d%[1]s%[4]d%[1]s%[5]d", separator, b[3], b[2], b[1], b[0])
		if strings.Contains(name, there) || strings.Contains(name, back) {
			f.State, f.Saw = Warn, name+" looks like a dial-up address"
			f.Next = fmt.Sprintf("Have the PTR of %s set to a name of your own, such as %s.", s.Addr, s.Hello)
		}
	}
	return f
}

// CheckHello checks whether the name in EHLO is fully qualified (RFC 5321 §4.1.4) and resolves, best to the source.
func CheckHello(ctx context.Context, r Resolver, s Source) Finding {
	f := Finding{Check: Hello, Source: s.Addr.String()}
	if !fullName(s.Hello) {
		f.State, f.Saw = Fail, fmt.Sprintf("%q is no full host name", s.Hello)
		f.Next = "Set smtp.hello_name to a full name of this machine, such as probe.example.com."
		return f
	}
	found, err := addresses(ctx, r, s.Hello)
	switch {
	case slices.Contains(found, s.Addr.Unmap()):
		f.State, f.Saw = OK, s.Hello+" resolves to it"
	case len(found) > 0 && special(s.Addr) != "":
		f.State, f.Saw = OK, s.Hello+" resolves" // perhaps to the public address, which is not known here
	case err != nil:
		return notChecked(Hello, f.Source, err)
	case len(found) == 0:
		f.State, f.Saw = Fail, s.Hello+" does not resolve"
		f.Next = fmt.Sprintf("Add an address record for %s with %s, or set smtp.hello_name to a name that has one.",
			s.Hello, s.Addr)
	default:
		f.State, f.Saw = Warn, fmt.Sprintf("%s resolves to %s", s.Hello, found[0])
		f.Next = fmt.Sprintf("Add %s to the addresses of %s.", s.Addr, s.Hello)
	}
	return f
}

// fullName reports whether a name has at least two labels and is no address.
func fullName(name string) bool {
	_, err := netip.ParseAddr(name)
	labels, ok := dns.IsDomainName(name)
	return err != nil && ok && labels >= 2 && !strings.ContainsAny(name, " _[]")
}

// CheckReturnPath checks whether the return path's domain can take replies: receivers refuse a sender whose domain
// has neither MX nor address (RFC 5321 §5.1), or publishes that it takes no mail (RFC 7505 §4.2).
func CheckReturnPath(ctx context.Context, r Resolver, returnPath string) Finding {
	f := Finding{Check: ReturnPath}
	address, err := smtp.ParseAddress(returnPath)
	if err != nil {
		f.State, f.Saw = Fail, "the return path is no address"
		f.Next = "Set smtp.return_path to an address of yours that takes mail."
		return f
	}
	domain := address.Domain
	records, err := r.Ask(ctx, domain, dns.TypeMX)
	if err != nil {
		return notChecked(ReturnPath, "", err)
	}
	for _, rr := range records {
		if mx, ok := rr.(*dns.MX); ok && mx.Mx == "." && len(records) == 1 {
			f.State, f.Saw = Fail, domain+" says that it takes no mail (null MX)"
			f.Next = "Set smtp.return_path to an address in a domain that takes mail, or remove the null MX."
			return f
		}
	}
	if len(records) > 0 {
		f.State, f.Saw = OK, domain+" has an MX"
		return f
	}
	found, err := addresses(ctx, r, domain)
	switch {
	case len(found) > 0:
		f.State, f.Saw = OK, domain+" has an address and no MX"
	case err != nil:
		return notChecked(ReturnPath, "", err)
	default:
		f.State, f.Saw = Fail, domain+" has neither MX nor address"
		f.Next = fmt.Sprintf("Add an MX for %s, or set smtp.return_path to an address that takes mail.", domain)
	}
	return f
}

// clockOffset is the difference between the machine's and the ledger's clock from which it is reported.
const clockOffset = 2 * time.Second

// CheckClock compares the machine's clock with the ledger's; ok says that the offset is known. A wrong clock is a
// warning, never a failure: receivers do not see it, and waits and shares use the ledger's clock or durations
// (docs/operators/cluster.md). If the ledger's clock is wrong, a failure would stop every node at once.
func CheckClock(offset time.Duration, ok bool, now time.Time) Finding {
	f := Finding{Check: Clock, At: now}
	switch {
	case !ok:
		f.State, f.Saw = Skipped, "the ledger is on this machine, or has not answered yet"
	case offset.Abs() > clockOffset:
		f.State, f.Saw = Warn, fmt.Sprintf("the ledger's clock is %s %s", offset.Abs().Round(time.Second/10),
			map[bool]string{true: "ahead", false: "behind"}[offset > 0])
		f.Next = "Mend the time service of this machine or of the database: times of evidence and logs are wrong."
	default:
		f.State, f.Saw = OK, "within 2s of the ledger's"
	}
	return f
}

// Suspension is whether a source is suspended, and where.
type Suspension struct {
	Source string    // address; "": chosen by the system
	Until  time.Time // end of the general suspension; zero: none
	Why    string
	Blocks int // number of receivers at which it is suspended
}

// CheckSuspensions judges the sources by refusals: a source that many receivers refuse is suspended, and a node with
// all sources suspended cannot probe.
func CheckSuspensions(list []Suspension, now time.Time) []Finding {
	suspended := 0
	for _, s := range list {
		if s.Until.After(now) {
			suspended++
		}
	}
	var out []Finding
	for _, s := range list {
		f := Finding{Check: Suspended, Source: s.Source, State: OK, At: now, Saw: "receivers take us"}
		switch {
		case s.Until.After(now):
			f.State = Warn
			if suspended == len(list) {
				f.State = Fail
			}
			f.Saw = fmt.Sprintf("paused until %s: %s", s.Until.UTC().Format("15:04:05Z"), s.Why)
			f.Next = "Look in `rollcall evidence` for what receivers say; the source is tried again by itself."
		case s.Blocks > 0:
			f.Saw = fmt.Sprintf("paused at receivers: %d", s.Blocks)
		}
		out = append(out, f)
	}
	return out
}
