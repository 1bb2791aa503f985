package node

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/process"
	"rollcall/actors/receiver"
	"rollcall/actors/receiver/egress"
	"rollcall/cluster"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/smtp"
	"rollcall/smtp/identity"
)

// firstLook is how long a starting node waits for the first check of its identity. If the check takes longer, the
// node joins as ineligible, and probes when the check is done. Guess: healthy DNS answers within a second.
const firstLook = 2 * time.Second

// listsFile is the file in the data folder with the last answers of block lists.
const listsFile = "blocklists.json"

// selfCheck keeps a node from probing while its identity fails a check.
type selfCheck struct {
	watch    *identity.Watch
	reach    *identity.Reach // nil in a lab, where silent receivers are simulated
	enforced bool
	log      *slog.Logger
	node     *cluster.Node
	sources  *egress.Pool
	metrics  *receiver.Metrics

	first  chan struct{} // closed after the first check of everything
	once   sync.Once
	mu     sync.Mutex // of tell
	logged string     // why the node was ineligible at the last log line; guarded by turn
}

// newSelfCheck prepares the checks of a node. Set sources, which knows how receivers treat it, before start.
func newSelfCheck(c config.Config, n *cluster.Node, o engineOptions) (*selfCheck, error) {
	s := &selfCheck{enforced: c.Identity.Enforce, log: o.log, node: n, first: make(chan struct{})}
	options, err := IdentityOptions(c)
	if err != nil {
		return nil, err
	}
	if !options.Lab {
		s.reach = &identity.Reach{}
	}
	options.Reach, options.Log, options.Changed = s.reach, o.log, s.changed
	if !strings.HasPrefix(c.Ledger.URL, "sqlite:") { // the embedded ledger uses this machine's clock
		options.Offset = func() (time.Duration, bool) { return n.ClockOffset(), n.Snapshot() != nil }
	}
	options.Suspensions = func() []identity.Suspension { return suspensionsOf(s.sources) }
	s.watch = identity.NewWatch(options)
	o.registry.MustRegister(identityMetrics{s.watch})
	return s, nil
}

// start begins the checks, and waits at most firstLook for the first result.
func (s *selfCheck) start(ctx context.Context) (stop func(context.Context) error) {
	s.apply() // the node may not probe until something is known
	stop = process.Background(ctx, s.watch.Run)
	select {
	case <-s.first:
	case <-time.After(firstLook):
	}
	return stop
}

// ineligible returns why the node may not probe now, or "" if it may.
func (s *selfCheck) ineligible() string {
	if !s.enforced {
		return ""
	}
	return s.watch.Report().Why()
}

func (s *selfCheck) changed(r identity.Report) {
	s.once.Do(func() { close(s.first) })
	s.logFitness(r)
	s.apply()
}

func (s *selfCheck) apply() { s.node.SetIneligible(s.ineligible()) }

func (s *selfCheck) logFitness(r identity.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := r.Why()
	switch {
	case (why == "") == (s.logged == ""):
	case why == "":
		s.log.Info("node may probe again")
	case s.enforced:
		s.log.Warn("node does not probe", "reason", why, "next", "rollcall doctor")
	default:
		s.log.Warn("node probes although its identity fails, because identity.enforce = false", "reason", why)
	}
	s.logged = why
}

func (s *selfCheck) view() admin.Identity {
	i := admin.IdentityOf(s.watch.Report(), s.enforced)
	i.Unread, i.Foreign = int(s.metrics.Unread()), int(s.metrics.Intercepted())
	return i
}

func (s *selfCheck) check(ctx context.Context) (admin.Identity, error) {
	report, err := s.watch.Again(ctx)
	return admin.IdentityOf(report, s.enforced), err
}

// noWay are the errors that mean that the network prevents a connection.
var noWay = []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT,
	syscall.EPERM, syscall.EACCES, context.DeadlineExceeded, os.ErrDeadlineExceeded}

// note records whether a connection to a receiver succeeded. It ignores faults of this machine, such as too many open
// files, which say nothing about the network.
func (s *selfCheck) note(receiver string, err error) {
	if s.reach == nil {
		return
	}
	if failed, is := errors.AsType[*smtp.Failure](err); !is || failed.Stage > smtp.StageConnect {
		s.reach.Note(receiver, true, time.Now())
		return
	}
	if slices.ContainsFunc(noWay, func(target error) bool { return errors.Is(err, target) }) {
		s.reach.Note(receiver, false, time.Now())
	}
}

type openFunc = func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error)

// opened is an openFunc that notes its results. Hosts with the same last two labels count as one receiver, so that many
// hosts of one operator do not look like many receivers.
func (s *selfCheck) opened(open openFunc) openFunc {
	return func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error) {
		session, err := open(ctx, host, at, tls)
		labels := strings.Split(strings.TrimSuffix(host, "."), ".")
		s.note(strings.Join(labels[max(0, len(labels)-2):], "."), err)
		return session, err
	}
}

// suspensionsOf returns how many receivers refuse each of a node's sources.
func suspensionsOf(sources *egress.Pool) []identity.Suspension {
	var out []identity.Suspension
	for _, s := range sources.State(time.Now()) {
		out = append(out, identity.Suspension{Source: s.Source, Until: s.SuspendedUntil, Blocks: s.Blocked,
			Why: "many receivers refuse it: " + s.Reason.Message()})
	}
	return out
}

// IdentityOptions returns the checks of a configuration.
func IdentityOptions(c config.Config) (identity.Options, error) {
	client, err := identity.NewClient(c.DNS.Servers, c.DNS.Timeout.Duration)
	if err != nil {
		return identity.Options{}, err
	}
	hello, err := helloName(c)
	if err != nil {
		return identity.Options{}, err
	}
	returnPath := cmp.Or(c.SMTP.ReturnPath, "postmaster@"+hello)
	o := identity.Options{Resolver: client, Return: returnPath, Lab: len(c.SMTP.AllowNetworks) > 0,
		Hosts: c.Identity.Reach, Jitter: rand.Int64N,
		Sources: func() ([]identity.Source, error) { return identitySources(c, hello, returnPath) }}
	if len(c.Identity.BlockLists) > 0 {
		path := filepath.Join(c.DataDir, listsFile)
		o.Lists = identity.NewLists(c.Identity.BlockLists, func() ([]byte, error) { return readIfThere(path) },
			func(text []byte) error { return term.WriteText(path, text) })
	}
	if len(c.Identity.Reach) > 0 {
		o.Ways = waysOut(c)
	}
	return o, nil
}

// identitySources returns the addresses that receivers see: the configured ones, or those that the system would
// choose.
func identitySources(c config.Config, hello, returnPath string) (out []identity.Source, err error) {
	addrs := c.Identity.PublicAddresses
	if len(addrs) == 0 {
		addrs = c.SMTP.SourceAddresses
	}
	for _, a := range parsed(addrs, netip.MustParseAddr) {
		out = append(out, identity.Source{Addr: a, Hello: hello, ReturnPath: returnPath})
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, to := range sampleTargets(c) {
		a, failed := identity.LocalFor(to)
		if failed != nil {
			err = failed // this machine has no route for this address family
			continue
		}
		out = append(out, identity.Source{Addr: a, Hello: hello, ReturnPath: returnPath})
	}
	if len(out) > 0 {
		err = nil
	}
	return out, err
}

// sampleTargets returns addresses that stand for all receivers: documentation addresses for the Internet, the lab's
// network in a lab.
func sampleTargets(c config.Config) []netip.Addr {
	if networks := AllowNetworks(c); len(networks) > 0 {
		return []netip.Addr{networks[0].Masked().Addr().Next()}
	}
	targets := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	if hasIPv6() {
		targets = append(targets, netip.MustParseAddr("2001:db8::1"))
	}
	return targets
}

// waysOut returns dialers to the hosts of identity.reach, one for each local address.
func waysOut(c config.Config) (out []identity.Way) {
	for _, source := range sourceAddresses(c) {
		way := identity.Way{Dial: newDialer(c, source), Port: c.SMTP.Port}
		if source.IsValid() {
			way.Source = source.String()
		}
		out = append(out, way)
	}
	return out
}

func readIfThere(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

type identityMetrics struct{ watch *identity.Watch }

var (
	identityCheckDesc = prometheus.NewDesc("rollcall_identity_check",
		"Result of a check of this node's identity: 1 ok, 0.5 a warning, 0 a failure. Skipped checks are absent.",
		[]string{"check", "source"}, nil)
	nodeEligibleDesc = prometheus.NewDesc("rollcall_node_eligible",
		"1 while no check of this node's identity fails and something could be checked. With identity.enforce it probes "+
			"only then.", nil, nil)
)

func (identityMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- identityCheckDesc
	to <- nodeEligibleDesc
}

// Collect implements prometheus.Collector. Of several block lists it shows the worst.
func (m identityMetrics) Collect(to chan<- prometheus.Metric) {
	type key struct {
		check  identity.Check
		source string
	}
	report, worst := m.watch.Report(), map[key]float64{}
	for _, f := range report.Findings {
		value, shown := map[identity.State]float64{identity.OK: 1, identity.Warn: 0.5, identity.Fail: 0}[f.State]
		if !shown {
			continue
		}
		k := key{f.Check, f.Source}
		if before, there := worst[k]; !there || value < before {
			worst[k] = value
		}
	}
	for k, value := range worst {
		to <- prometheus.MustNewConstMetric(identityCheckDesc, prometheus.GaugeValue, value, string(k.check), k.source)
	}
	fit := 0.0
	if report.Eligible() {
		fit = 1
	}
	to <- prometheus.MustNewConstMetric(nodeEligibleDesc, prometheus.GaugeValue, fit)
}
