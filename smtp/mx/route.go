package mx

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"rollcall/smtp"
)

// How much of an answer is used. Real domains have less; hostile ones have more, to make us dial.
const (
	mxMax         = 100 // MX records read; one answer of 64 KB could have thousands
	hostsMax      = 5   // hosts in a route, as Postfix tries
	hostAddrsMax  = 4   // addresses of a host
	routeAddrsMax = 8   // addresses in a route
)

// nameMax is the longest name without its final dot (RFC 1035 §2.3.4).
const nameMax = 253

// hostAnswer is what DNS says about the addresses of a host.
type hostAnswer struct {
	addrs   []netip.Addr // that may be dialled; at most hostAddrsMax, IPv4 first
	expires time.Time
	err     error // no addresses, but there may be some
}

// pickHosts returns the hosts of a domain's MX records that can be hosts at all, best first, by preference and name.
// null says that the domain takes no mail.
//
// It skips records with an IP address or an invalid host name (RFC 5321 §5.1: the data is a domain name), and a null
// MX beside others, which RFC 7505 §3 forbids.
func pickHosts(records []mxRecord) (hosts []mxRecord, null bool) {
	nulls := 0
	for _, r := range records {
		if r.host == "." {
			nulls++
			continue
		}
		r.host = plain(r.host)
		if !isHostName(r.host) {
			continue
		}
		hosts = append(hosts, r)
	}
	if nulls > 0 && nulls == len(records) {
		return nil, true
	}
	slices.SortFunc(hosts, func(a, b mxRecord) int {
		return cmp.Or(cmp.Compare(a.preference, b.preference), strings.Compare(a.host, b.host))
	})
	seen := make(map[string]bool, len(hosts))
	hosts = slices.DeleteFunc(hosts, func(r mxRecord) bool {
		twice := seen[r.host]
		seen[r.host] = true
		return twice
	})
	return hosts, false
}

// isHostName reports whether a name can be that of a mail host. An IP address can not.
func isHostName(name string) bool {
	_, err := netip.ParseAddr(name)
	return err != nil && len(name) <= nameMax && hasHostLetters(name)
}

// hasHostLetters reports whether a name is not empty and has only letters, digits, hyphens, dots and underscores
// (they exist). Other names never get into a route, a log or a question.
func hasHostLetters(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// planRoute makes a domain's route from its hosts and an answer for each; seed orders hosts of equal preference.
//
// RFC 5321 §5.1 asks to spread the load over hosts of equal preference. The seed spreads it between resolvers;
// inside one resolver the order stays, so that sessions can be reused for the next domain.
//
// If no host can be used, the error is that of the first host with a failed lookup, because then nothing is certain.
func planRoute(domain string, hosts []mxRecord, answers []hostAnswer, seed maphash.Seed) (Route, error) {
	route := Route{Domain: domain}
	var failed error
	for i, h := range hosts {
		a := answers[i]
		if a.err != nil {
			failed = cmp.Or(failed, a.err)
			continue
		}
		if route.Expires.IsZero() || a.expires.Before(route.Expires) {
			route.Expires = a.expires
		}
		if len(a.addrs) > 0 {
			route.Hosts = append(route.Hosts, Host{Name: h.host, Preference: h.preference, Addrs: a.addrs})
		}
	}
	if len(route.Hosts) == 0 && failed != nil {
		return Route{}, failed
	}
	if len(route.Hosts) == 0 {
		route.NoMail = smtp.NoMailService
		return route, nil
	}
	// The key must not depend on the seed: all nodes need the same key.
	route.Receiver = Registrable(route.Hosts[0].Name)
	slices.SortStableFunc(route.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.Preference, b.Preference),
			cmp.Compare(maphash.String(seed, a.Name), maphash.String(seed, b.Name)))
	})
	route.Hosts = boundAddrs(route.Hosts)
	if failed != nil {
		route.Expires = time.Time{} // kept as short as possible: a better host may come back
	}
	return route, nil
}

// boundAddrs keeps at most routeAddrsMax addresses, in order.
func boundAddrs(hosts []Host) []Host {
	left := routeAddrsMax
	for i := range hosts {
		if left == 0 {
			return hosts[:i]
		}
		n := min(left, len(hosts[i].Addrs))
		hosts[i].Addrs = hosts[i].Addrs[:n:n]
		left -= n
	}
	return hosts
}

// Registrable returns the registrable domain of a name, or the name itself if it has none.
func Registrable(name string) string {
	if domain, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return domain
	}
	return name
}

// Host is one mail host of a domain, with its addresses.
type Host struct {
	Name       string       // lower case, no final dot
	Preference uint16       // RFC 5321 §5.1: lower first
	Addrs      []netip.Addr // in the order to try; at most 4
}

// Route is where mail for a domain goes, or that the domain takes no mail.
type Route struct {
	Domain string // lower-case A-label

	// Hosts are in the order to try; at most 5. Empty only with NoMail.
	Hosts []Host

	// NoMail is set when DNS says for certain that mail cannot be delivered: smtp.DomainNotFound or
	// smtp.NoMailService. Both give invalid.
	NoMail smtp.Reason

	// Receiver is the key of the receiver: the best host's registrable domain, lower case. Empty with NoMail.
	Receiver string

	Expires time.Time // from the TTLs, within the resolver's bounds
}
