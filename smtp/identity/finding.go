package identity

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Check names a check.
type Check string

// The checks.
const (
	Port25     Check = "port25"      // receivers can be connected to
	PTR        Check = "ptr"         // the address has a name that leads back to it
	Hello      Check = "hello"       // the name in EHLO resolves, to the address
	SPF        Check = "spf"         // the return path's domain lets the address send
	ReturnPath Check = "return_path" // the return path's domain takes mail
	BlockList  Check = "block_list"  // no configured list has the address
	Clock      Check = "clock"       // the machine's clock agrees with the ledger's
	Suspended  Check = "suspended"   // receivers take connections from the address
)

// Checks are all checks in the order of display.
var Checks = []Check{Port25, PTR, Hello, SPF, ReturnPath, BlockList, Clock, Suspended}

// State is the result of a check.
type State string

// The states, the worst first.
const (
	Fail    State = "fail"    // receivers will refuse us
	Warn    State = "warn"    // some receivers may
	OK      State = "ok"      // as it should be
	Skipped State = "skipped" // not checked; Saw says why
)

var states = []State{Fail, Warn, OK, Skipped}

// Finding is the result of one check at one source.
type Finding struct {
	Check   Check
	Source  string // IP address, or "" for a check that is the same for all
	List    string // with BlockList
	State   State
	Saw     string // one line
	Next    string // one sentence: what to do; "" when there is nothing
	At      time.Time
	trouble bool // it could not be checked; an earlier finding may stay valid
}

// about identifies the subject of a finding.
type about struct {
	check        Check
	source, list string
}

func (f Finding) about() about { return about{f.Check, f.Source, f.List} }

// String returns the finding for a log line.
func (f Finding) String() string {
	text := string(f.Check)
	if f.Source != "" {
		text += " of " + f.Source
	}
	return text + ": " + f.Saw
}

// Report is all findings about a node's identity. It is never changed.
type Report struct {
	Checked  time.Time // time of the last full check; zero: never
	Findings []Finding // by check and source
}

// Eligible reports whether no check fails. An empty report is not eligible.
func (r Report) Eligible() bool { return !r.Checked.IsZero() && len(r.Failing()) == 0 && !r.Blind() }

// Blind reports whether every question failed, so that nothing is known about what receivers see.
func (r Report) Blind() bool {
	return r.Incomplete() && !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.State != Skipped && f.Check != Clock && f.Check != Suspended
	})
}

// Failing returns the findings that fail.
func (r Report) Failing() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.State != Fail })
}

// Incomplete reports whether something could not be checked.
func (r Report) Incomplete() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.trouble })
}

// Why returns one line on why the node is not eligible; "" when it is.
func (r Report) Why() string {
	if r.Checked.IsZero() {
		return "its identity has not been checked yet"
	}
	var out []string
	for _, f := range r.Failing() {
		out = append(out, f.String())
	}
	if len(out) == 0 && r.Blind() {
		first := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.trouble })
		return "nothing could be checked: " + r.Findings[first].String()
	}
	return strings.Join(out, "; ")
}

// sorted returns findings in the order of display.
func sorted(list []Finding) []Finding {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Checks, a.Check), slices.Index(Checks, b.Check)),
			strings.Compare(a.Source, b.Source), strings.Compare(a.List, b.List),
			cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)))
	})
	return list
}

// notChecked returns the finding of a check that could not be made.
func notChecked(c Check, source string, err error) Finding {
	next := "Check that the servers in [dns] answer; the check is repeated by itself."
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
		next = "This machine has no route to the Internet: check its network, with `ip route`."
	}
	return Finding{Check: c, Source: source, State: Skipped, Saw: "not checked: " + err.Error(), trouble: true, Next: next}
}

// keptFor is how long a finding stays valid while DNS gives no newer one. Guess: an outage of DNS ends within an hour,
// and a longer one stops probing anyway.
const keptFor = time.Hour

// merge returns the newer findings. It replaces those that could not be checked by older ones that are still valid.
func merge(older, newer []Finding, now time.Time) []Finding {
	known := map[about]Finding{}
	for _, f := range older {
		if !f.trouble {
			known[f.about()] = f
		}
	}
	out := slices.Clone(newer)
	for i, f := range out {
		if was, ok := known[f.about()]; f.trouble && ok && now.Sub(was.At) < keptFor {
			out[i] = was
		}
	}
	return sorted(out)
}

// Source is one of our addresses that receivers see, and our names there.
type Source struct {
	Addr       netip.Addr
	Hello      string // the name in EHLO
	ReturnPath string // the address in MAIL FROM
}

// sharedSpace is the address space behind a provider's NAT (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// special returns in a word why no receiver on the Internet can see an address; "" if one may. Documentation
// networks are allowed, because only tests use them.
func special(a netip.Addr) string {
	switch a = a.Unmap(); {
	case a.IsLoopback():
		return "loopback"
	case a.IsPrivate():
		return "private"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case sharedSpace.Contains(a):
		return "behind a provider's NAT"
	}
	return ""
}

// LocalFor returns the local address that the system would use to reach another one. It sends nothing: connecting a
// UDP socket only reads the routes.
func LocalFor(to netip.Addr) (netip.Addr, error) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(to, 25).String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the source address: %w", err)
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the source address: %w", err)
	}
	return at.Addr().Unmap().WithZone(""), nil
}
