package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"rollcall/actors/dispatcher"
	"rollcall/actors/domain"
	"rollcall/actors/process"
	"rollcall/actors/receiver"
	"rollcall/cluster"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/tracing"
	"rollcall/smtp/mx"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Options are a node's options beside its configuration.
type Options struct {
	Lab bool // start the lab and send DNS and SMTP there
	// LabGreylist is how long its receivers greylist; 0: as smtplab.Defaults has it.
	LabGreylist time.Duration
	Log         *slog.Logger
	Forgets     bool          // facts about receivers learned earlier; the lab's receivers are new, too
	Hour        time.Duration // length of an hour for limits and pauses, and in the lab; 0: an hour. For trials
}

// Node is everything that runs in one process.
type Node struct {
	APIURL, UploadURL, AdminURL string

	Registry *prometheus.Registry
	Lab      *smtplab.Lab // nil without one
	Book     *sqlstore.Store
	Cluster  *cluster.Node // this process as a member

	watchdog *process.Watchdog
	window   *process.Window
	rules    *liveRules
	tracer   *tracing.Tracer // nil: nothing is traced
	work     *workload
	*throttling
	self  *selfCheck
	pages atomic.Pointer[string] // their URL; nil until it is known, and when they are disabled

	stops    []stopper // in the order of the starts
	stopping atomic.Bool
	once     sync.Once
	stopErr  error
}

// stopper ends one part of a node.
type stopper struct {
	name string
	stop func(ctx context.Context) error
}

// Start builds a node and starts it: lab, ledger, cluster, actors, edge.
func Start(ctx context.Context, c config.Config, o Options) (n *Node, err error) {
	begun := &Node{}
	defer func() {
		if err != nil {
			_ = begun.Stop(context.WithoutCancel(ctx))
		}
	}()
	n = begun
	if err := checkOwned(c.DataDir); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	n.Registry = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.startWatchdog(ctx, o.Log)
	if c, err = n.startLab(c, o); err != nil {
		return nil, err
	}
	if err := n.startRules(ctx, c, o); err != nil {
		return nil, err
	}
	id, err := nodeIdentity(c)
	if err != nil {
		return nil, err
	}
	token, err := admin.EnsureToken(c.DataDir)
	if err != nil {
		return nil, err
	}
	if err := n.startTracing(ctx, c, id, o.Log); err != nil {
		return nil, err
	}
	book, err := sqlstore.Open(ctx, c.Ledger.URL, sqlstore.Options{Folder: c.DataDir, Log: o.Log,
		Registerer: registry, DiskReserve: c.Ledger.DiskReserve})
	if err != nil {
		return nil, err
	}
	n.Book = book
	n.add("ledger", func(context.Context) error { return book.Close() })
	wake, err := n.startEngine(ctx, c, id, engineOptions{registry: registry, log: o.Log, rules: n.rules.Now,
		guard: process.NewPanicGuard(registry, o.Log), hour: throttle.Hour(o.Hour), facts: factsOf(book, o.Forgets)})
	if err != nil {
		return nil, err
	}
	if err := n.startEdge(ctx, c, book, edgeOptions{registry: registry, log: o.Log, token: token,
		wake: wake}); err != nil {
		return nil, err
	}
	n.startSelfAudit(ctx, c, engineOptions{registry: registry, log: o.Log})
	o.Log.Info("node started", "node", id, "api", n.APIURL, "upload", n.UploadURL, "admin", n.AdminURL)
	return n, nil
}

type engineOptions struct {
	registry *prometheus.Registry
	log      *slog.Logger
	rules    func() *verdict.Rules
	guard    *process.PanicGuard
	hour     throttle.Hour           // of receivers and of what is known of domains
	facts    ledger.Facts            // what is known of receivers and of domains
	opened   func(openFunc) openFunc // watches how sessions are opened
}

// startEngine starts the actors: receivers on the cluster, then the dispatcher, which gives them work.
func (n *Node) startEngine(ctx context.Context, c config.Config, id uuid.UUID, o engineOptions) (wake func(),
	err error) {
	if err := n.newMember(c, id, o); err != nil {
		return nil, err
	}
	if err := n.startThrottling(ctx, c, n.Book, o); err != nil {
		return nil, err
	}
	resolver, err := NewResolver(c, n.settings.WeightOf, n.Lab != nil)
	if err != nil {
		return nil, err
	}
	n.add("dns", func(context.Context) error { return resolver.Close() })
	registerDNSMetrics(o.registry, resolver)
	if n.self, err = newSelfCheck(c, n.Cluster, o); err != nil {
		return nil, err
	}
	o.opened = n.self.opened
	receivers, err := n.receivers(c, o)
	if err != nil {
		return nil, err
	}
	if err := n.openInspector(receivers, resolver); err != nil {
		return nil, err
	}
	n.self.sources, n.self.metrics = receivers.Sources, receivers.Metrics
	n.add("identity", n.self.start(ctx))
	kinds, err := receiver.Kinds(receivers)
	if err != nil {
		return nil, err
	}
	if err := n.Cluster.Serve(ctx, kinds, n.inspector.Answer); err != nil {
		return nil, err
	}
	n.add("what receivers taught", n.work.receivers.Flush)
	n.add("cluster", n.Cluster.Stop)
	return n.startDispatcher(ctx, c, id, resolver, o)
}

// startDispatcher starts the actor that takes verifications into work.
func (n *Node) startDispatcher(ctx context.Context, c config.Config, id uuid.UUID, resolver *mx.Resolver,
	o engineOptions) (wake func(), err error) {
	options := n.workOptions(c, id, resolver, n.startFacts(ctx, n.Book, o), o)
	options.Work.Tracer = n.tracer
	d, err := dispatcher.Start(n.Cluster.System(), options)
	if err != nil {
		return nil, err
	}
	n.work.dispatcher.Store(d)
	n.Cluster.OnDrain(d.Drain)
	n.add("dispatcher", d.Stop)
	return d.Wake, nil
}

// startWatchdog starts the watchdog, which notices when the process does not run or is overloaded.
func (n *Node) startWatchdog(ctx context.Context, log *slog.Logger) {
	n.watchdog, n.window = process.NewWatchdog(n.Registry, log), process.NewWindow(n.Registry, domainsLeast, domainsMax)
	n.add("watchdog", process.Background(ctx, n.watchdog.Run, n.window.Run))
}

// startFacts shares learned facts about domains with the other nodes, and with later processes of this one.
func (n *Node) startFacts(ctx context.Context, book *sqlstore.Store, o engineOptions) *domain.Facts {
	facts := domain.ShareFacts(o.facts, o.log)
	facts.Hour = o.hour
	n.add("facts", process.Background(ctx, facts.Run))
	return facts
}

func (n *Node) add(name string, stop func(ctx context.Context) error) {
	n.stops = append(n.stops, stopper{name, stop})
}

// draining reports whether this node gives its work away and should get no requests.
func (n *Node) draining() bool {
	return n.stopping.Load() || n.Cluster.Draining()
}

// Identity returns the last report on this node's identity.
func (n *Node) Identity() admin.Identity { return n.self.view() }

// CheckIdentity checks the identity now.
func (n *Node) CheckIdentity(ctx context.Context) (admin.Identity, error) { return n.self.check(ctx) }

// Stop drains the node: no new requests, no new work, leases given back, sessions ended, the ledger closed. It may be
// called twice.
func (n *Node) Stop(ctx context.Context) error {
	n.once.Do(func() {
		n.stopping.Store(true)
		for i := len(n.stops) - 1; i >= 0; i-- {
			if err := n.stops[i].stop(ctx); err != nil {
				n.stopErr = errors.Join(n.stopErr, fmt.Errorf("stop %s: %w", n.stops[i].name, err))
			}
		}
	})
	return n.stopErr
}
