package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/dispatcher"
	"rollcall/actors/domain"
	"rollcall/actors/process"
	"rollcall/actors/receiver"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/verification"
	"rollcall/cluster"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/quota"
	"rollcall/smtp"
	"rollcall/smtp/mx"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
)

const (
	// domainsMax is how many domains of one verification are in work at a time. Measured: this keeps a node busy
	// within the memory in docs/developers/measured.md.
	domainsMax = 1024

	// domainsLeast is how many domains of a file may be in work even if the run queue is long. With so many domains,
	// even receivers that take a second for a reply give hundreds of replies a second.
	domainsLeast = 16

	// SessionsMax bounds the SMTP sessions of a node. When the system allows fewer open files, descriptorsKept are left
	// for everything else.
	SessionsMax     = 4096
	descriptorsKept = 1024

	routeTTLMin = time.Minute
	routeTTLMax = 24 * time.Hour

	// routesMax is how many routes are cached. Most domains of a large file are needed once. Measured: 0.6 KB each.
	routesMax = 20_000
)

// startLab starts the simulated receivers and points DNS and SMTP at them.
func (n *Node) startLab(c config.Config, o Options) (config.Config, error) {
	if !o.Lab {
		return c, nil
	}
	options := smtplab.Defaults()
	options.Log = o.Log
	if o.Hour > 0 {
		options.HourLasts = o.Hour
	}
	if o.LabGreylist > 0 {
		options.GreylistWait = o.LabGreylist
	}
	// The lab needs no limit on sessions: its only client is this node, which limits itself, and a 421 from the lab
	// would make the node pause. The factor of two is for sessions that are just closing.
	options.SessionsMax = 2 * SessionsMax
	lab, err := smtplab.Start(options)
	if err != nil {
		return c, fmt.Errorf("start the lab: %w", err)
	}
	n.Lab = lab
	n.add("lab", lab.Stop)
	c.DNS.Servers = []string{lab.DNSAddr()}
	c.SMTP.Port = lab.SMTPPort()
	c.SMTP.AllowNetworks = []string{lab.Network().String()}
	if c.SMTP.HelloName == "" {
		c.SMTP.HelloName = "rollcall.example"
	}
	return c, nil
}

// nodeIdentity is the node's identity, which survives restarts: configured, or made once and kept in the data folder.
func nodeIdentity(c config.Config) (uuid.UUID, error) {
	if c.Cluster.Node != "" {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(c.Cluster.Node)), nil
	}
	path := filepath.Join(c.DataDir, "node.id")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := uuid.New()
		return id, term.WriteText(path, []byte(id.String()))
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the node's identity: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return uuid.Nil, fmt.Errorf("%s holds no node identity; delete it and a new one is made: %w", path, err)
	}
	return id, nil
}

// NewResolver makes a resolver that asks the configured DNS servers and drops hosts that must not be dialled. With
// lab it asks the lab's DNS in this process.
func NewResolver(c config.Config, turn mx.Turn, lab bool) (*mx.Resolver, error) {
	o := mx.Options{Servers: c.DNS.Servers, Timeout: c.DNS.Timeout.Duration, IPv6: hasIPv6(),
		Allow: smtp.NewDialGuard(AllowNetworks(c)).Allows, TTLMin: routeTTLMin, TTLMax: routeTTLMax, CacheMax: routesMax,
		Turn: turn}
	if len(c.SMTP.AllowNetworks) == 0 {
		o.KnownName = "com" // networks are allowed only for a lab, whose DNS doesn't know com
	}
	if lab {
		o.Only = smtplab.TopLevel
	}
	return mx.New(o)
}

// AllowNetworks returns the networks that a lab may use; none of them is on the Internet.
func AllowNetworks(c config.Config) []netip.Prefix {
	return parsed(c.SMTP.AllowNetworks, netip.MustParsePrefix)
}

// sourceAddresses returns the addresses to speak from. If none is configured, it returns one invalid address: the
// system chooses.
func sourceAddresses(c config.Config) []netip.Addr {
	if len(c.SMTP.SourceAddresses) == 0 {
		return []netip.Addr{{}}
	}
	return parsed(c.SMTP.SourceAddresses, netip.MustParseAddr)
}

// parsed parses texts of a configuration that were checked before.
func parsed[T any](texts []string, parse func(string) T) []T {
	list := make([]T, len(texts))
	for i, text := range texts {
		list[i] = parse(text)
	}
	return list
}

// hasIPv6 reports whether this host has a global IPv6 address.
func hasIPv6() bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() &&
			p.Addr().IsGlobalUnicast() && !p.Addr().IsPrivate() {
			return true
		}
	}
	return false
}

// helloName returns our name in EHLO: the configured name, or this host's full name.
func helloName(c config.Config) (string, error) {
	if c.SMTP.HelloName != "" {
		return c.SMTP.HelloName, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("smtp.hello_name is not set and this host has no full name: %w", err)
	}
	if strings.Contains(name, ".") {
		return name, nil
	}
	return fullName(name), nil
}

// fullName asks the system for the full form of a short host name, for two seconds at most. It returns the short name
// if there is none.
func fullName(short string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, short)
	if err != nil {
		return short
	}
	for _, a := range addrs {
		names, _ := net.DefaultResolver.LookupAddr(ctx, a)
		for _, name := range names {
			if strings.HasPrefix(name, short+".") {
				return strings.TrimSuffix(name, ".")
			}
		}
	}
	return short
}

func receiverOptions(c config.Config, table *throttle.Table, o engineOptions) (receiver.Options, error) {
	hello, err := helloName(c)
	if err != nil {
		return receiver.Options{}, err
	}
	sources, err := newSources(c, hello, o)
	if err != nil {
		return receiver.Options{}, err
	}
	sources.Hour = o.hour
	return receiver.Options{
		Options: scheduler.Options{Sources: sources, Allow: table.For, Waits: durations(c.Retry.GreylistWaits),
			Slots: registry.NewSlots(sessionSlots()), Rules: o.rules, Log: o.log},
		Metrics: receiver.NewMetrics(o.registry)}, nil
}

// newSources makes the sources of sessions; if none is configured the system chooses the address.
func newSources(c config.Config, hello string, o engineOptions) (*egress.Pool, error) {
	returnPath := cmp.Or(c.SMTP.ReturnPath, "postmaster@"+hello)
	from, err := smtp.ParseAddress(returnPath)
	if err != nil {
		from = smtp.Address{} // replies are not searched for an empty address
	}
	port, limits, list := uint16(c.SMTP.Port), smtp.DefaultLimits(), []egress.Source(nil)
	// A connection with unacknowledged bytes is ended before other nodes may count this node out. In a trial with
	// short hours, a receiver also forgets a session that much sooner.
	limits.Unacknowledged, limits.Unended = cluster.DefaultTimes().Unacknowledged, o.hour.Of(limits.Unended)
	for _, a := range sourceAddresses(c) {
		dialer := newDialer(c, a)
		list = append(list, egress.Source{Addr: a, Hello: hello, ReturnPath: from, Open: o.opened(func(
			ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode,
		) (*smtp.Session, error) {
			return smtp.Open(ctx, dialer, host, netip.AddrPortFrom(at, port),
				smtp.SessionOptions{HelloName: hello, ReturnPath: returnPath, TLS: tls, Limits: limits})
		})})
	}
	return egress.NewPool(list)
}

// newDialer makes the dialer for sessions from an address of this machine.
func newDialer(c config.Config, source netip.Addr) smtp.Dialer {
	return smtp.NewDialer(smtp.DialerOptions{Source: source, AllowNetworks: AllowNetworks(c), Port: c.SMTP.Port,
		ConnectTimeout: smtp.ConnectTimeout})
}

// openFiles returns how many files this process may open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}

// sessionSlots returns how many SMTP sessions this process can have.
func sessionSlots() int { return min(SessionsMax, max(64, (openFiles()-descriptorsKept)/2)) }

func (n *Node) workOptions(c config.Config, id uuid.UUID, resolver *mx.Resolver, facts *domain.Facts,
	o engineOptions) dispatcher.Options {
	match := func(r mx.Route) string {
		names := make([]string, len(r.Hosts))
		for i, h := range r.Hosts {
			names[i] = h.Name
		}
		key, _ := n.table.Match(r.Receiver, names, r.Domain)
		return key
	}
	waits := durations(c.Retry.GreylistWaits) // for receivers without waits of their own
	return dispatcher.Options{
		Book: n.Book, Node: id, Log: o.log, LeasesMax: c.Limits.FilesAtOnce, BytesMax: c.Limits.FileBytesAtOnce,
		Ahead: n.Cluster.Ahead, Weight: n.settings.Weight, Metrics: dispatcher.NewMetrics(o.registry),
		Retention: ledger.Retention{Uploads: c.Retention.Uploads.Duration,
			Results: c.Retention.Results.Duration, Funding: c.Retention.Funding.Duration},
		Work: verification.Options{Book: n.Book, RowsMax: c.Limits.MaxRows, DomainsMax: domainsMax, Window: n.window,
			Left: &n.work.left, Log: o.log, Metrics: verification.NewMetrics(o.registry),
			Domain: domain.Options{Route: resolver.Lookup, Match: match, Version: n.table.Version,
				Waits: func(key string) []time.Duration {
					if own := n.table.For(key).Waits.List(); len(own) > 0 {
						return own
					}
					return waits
				}, Facts: facts, Load: domainLoad(o.registry, n.settings.Weight), Log: o.log,
				Resolve: receiver.Resolver(n.Cluster.Resolve), ControlPauses: durations(c.Retry.ControlWaits),
				GiveUpAfter: c.Retry.GiveUpAfter.Duration}},
	}
}

func domainLoad(r prometheus.Registerer, weight func(uuid.UUID) int) *domain.Load {
	load := domain.NewLoad(weight)
	process.NewGaugeFunc(r, "domain_addresses",
		"Addresses that this node's domains have at receivers; a workspace has its share of 120,000.",
		func() float64 { return float64(load.Addresses()) })
	return load
}

func durations(list []config.Duration) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, d := range list {
		out[i] = d.Duration
	}
	return out
}

func registerDNSMetrics(r prometheus.Registerer, resolver *mx.Resolver, turns *quota.Slots[string]) {
	for _, c := range []struct {
		name, help string
		count      func(mx.Stats) uint64
	}{
		{"queries", "Questions sent to DNS servers, repeated ones and those over TCP included.",
			func(s mx.Stats) uint64 { return s.Queries }},
		{"queries_repeated", "Questions sent again because no answer came.", func(s mx.Stats) uint64 { return s.Repeated }},
		{"queries_over_tcp", "Questions asked over TCP, because an answer was cut short.",
			func(s mx.Stats) uint64 { return s.OverTCP }},
		{"stray_packets", "Packets that arrived for a question but did not answer it.",
			func(s mx.Stats) uint64 { return s.Strays }},
		{"failures", "Questions that no DNS server answered.", func(s mx.Stats) uint64 { return s.Failures }},
	} {
		r.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "rollcall_dns_" + c.name + "_total", Help: c.help},
			func() float64 { return float64(c.count(resolver.Stats())) }))
	}
	process.NewGaugeFunc(r, "dns_lookups_waiting", "Lookups of domains that wait for their turn (dns.at_once).",
		func() float64 { return float64(turns.Waiting()) })
}
