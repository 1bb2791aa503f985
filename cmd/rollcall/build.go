package main

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
	"rollcall/actors/guard"
	"rollcall/actors/receiver"
	"rollcall/actors/runqueue"
	spans "rollcall/actors/span"
	"rollcall/actors/watchdog"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// nodeOptions is what a node is told beside its configuration.
type nodeOptions struct {
	Lab bool // start the lab and send DNS and SMTP there
	// LabGreylist is how long its receivers greylist; 0: as smtplab.Defaults has it.
	LabGreylist time.Duration
	Log         *slog.Logger
	Forgets     bool          // what earlier lives learned of receivers: those of the lab are new, too
	Hour        time.Duration // how long an hour lasts for allowances and rests, and in the lab; 0: an hour. For trials
}

// node is everything that runs in one process.
type node struct {
	APIURL, UploadURL, AdminURL string

	pages atomic.Pointer[string] // where they are; nil until it is known, and when they are off

	lab      *smtplab.Lab // nil without one
	rules    *liveRules
	book     *sqlstore.Store
	members  *membership
	self     *selfCheck
	stops    []stopper // in the order of the starts
	once     sync.Once
	stopErr  error
	tracer   *spans.Tracer // nil: nothing is traced
	registry *prometheus.Registry
	watchdog *watchdog.Watchdog
	window   *runqueue.Window
	*throttling
	stopping atomic.Bool
}

// stopper ends one part of a node.
type stopper struct {
	name string
	stop func(ctx context.Context) error
}

// startNode builds a node and starts it: lab, ledger, cluster, actors, edge.
func startNode(ctx context.Context, c config.Config, o nodeOptions) (n *node, err error) {
	begun := &node{}
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
	n.registry = registry
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
	n.book = book
	n.add("ledger", func(context.Context) error { return book.Close() })
	work, err := n.startEngine(ctx, c, book, id, engineOptions{registry: registry, log: o.Log, rules: n.rules.Now,
		guard: guard.New(registry, o.Log), hour: throttle.Hour(o.Hour), facts: factsOf(book, o.Forgets)})
	if err != nil {
		return nil, err
	}
	if err := n.startEdge(ctx, c, book, edgeOptions{registry: registry, log: o.Log, token: token,
		wake: work.Wake}); err != nil {
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
	guard    *guard.Guard
	hour     throttle.Hour           // of receivers and of what is known of domains
	facts    ledger.Facts            // what is known of receivers and of domains
	opened   func(openFunc) openFunc // watches how sessions are opened
}

// startEngine starts the actors: receivers on the cluster, then who gives them work.
func (n *node) startEngine(ctx context.Context, c config.Config, book *sqlstore.Store, id uuid.UUID,
	o engineOptions) (*dispatcher.Dispatcher, error) {
	n.members = &membership{living: receiver.NewRegistry()}
	if err := n.startThrottling(ctx, c, book, o); err != nil {
		return nil, err
	}
	resolver, err := newResolver(c, n.tuning.weightOf)
	if err != nil {
		return nil, err
	}
	n.add("dns", func(context.Context) error { return resolver.Close() })
	registerDNSMetrics(o.registry, resolver)
	if n.self, err = newSelfCheck(c, n.members, o); err != nil {
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
	members, err := n.members.start(ctx, c, book, memberOptions{id, kinds, o.registry, o.log, n.self.unfit(),
		n.inspector.Answer, o.guard})
	if err != nil {
		return nil, err
	}
	n.inspector.Join(members)
	n.self.apply() // what was found meanwhile
	n.add("what receivers taught", n.members.living.Flush)
	n.add("cluster", members.Stop)
	facts := n.startFacts(ctx, book, o)
	parts := workParts{book, resolver, n.table, n.members, facts, n.tuning.weight, n.window}
	options := workOptions(c, id, parts, o)
	options.Work.Tracer = n.tracer
	work, err := dispatcher.Start(members.System(), options)
	if err != nil {
		return nil, err
	}
	n.members.work.Store(work)
	members.OnDrain(work.Drain)
	n.add("dispatcher", work.Stop)
	return work, nil
}

// startWatchdog lets somebody notice when the process does not run, or has too much to run.
func (n *node) startWatchdog(ctx context.Context, log *slog.Logger) {
	n.watchdog, n.window = watchdog.New(n.registry, log), runqueue.New(n.registry, domainsLeast, domainsMax)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { n.watchdog.Run(ctx) })
	running.Go(func() { n.window.Run(ctx) })
	n.add("watchdog", func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	})
}

// startFacts shares what is learned of domains with the other nodes, and with later
// lives of this one.
func (n *node) startFacts(ctx context.Context, book *sqlstore.Store, o engineOptions) *domain.Facts {
	facts := domain.ShareFacts(o.facts, o.log)
	facts.Hour = o.hour
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		facts.Run(ctx)
	}()
	n.add("facts", func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	return facts
}

func (n *node) add(name string, stop func(ctx context.Context) error) {
	n.stops = append(n.stops, stopper{name, stop})
}

// draining says whether this node gives its work away and should get no requests.
func (n *node) draining() bool {
	return n.stopping.Load() || n.members.node.Load().Draining()
}

// Stop drains the node: no new requests, no new work, leases given back, sessions
// ended, the book closed. Twice is fine.
func (n *node) Stop(ctx context.Context) error {
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
