package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"rollcall/actors/dispatcher"
	"rollcall/actors/domain"
	"rollcall/actors/edge"
	"rollcall/actors/receiver"
	spans "rollcall/actors/span"
	"rollcall/actors/view"
	"rollcall/config"
	httpd "rollcall/http"
	"rollcall/http/admin"
	"rollcall/http/proxies"
	"rollcall/http/upload"
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
	Hour        time.Duration // how long an hour lasts for allowances and rests; 0: an hour. For trials
}

// node is everything that runs in one process.
type node struct {
	APIURL, UploadURL, AdminURL string

	lab      *smtplab.Lab // nil without one
	rules    *liveRules
	book     *sqlstore.Store
	members  *membership
	self     *selfCheck
	limits   edge.Options // of API keys, for all nodes together
	stops    []stopper    // in the order of the starts
	once     sync.Once
	stopErr  error
	tracer   *spans.Tracer // nil: nothing is traced
	registry *prometheus.Registry
	*throttling
	draining atomic.Bool
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
	registry := prometheus.NewRegistry()
	n.registry = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
		Registerer: registry})
	if err != nil {
		return nil, err
	}
	n.book = book
	n.add("ledger", func(context.Context) error { return book.Close() })
	work, err := n.startEngine(ctx, c, book, id, engineOptions{registry: registry, log: o.Log, rules: n.rules.Now,
		hour: throttle.Hour(o.Hour)})
	if err != nil {
		return nil, err
	}
	counted, err := n.startLimiter()
	if err != nil {
		return nil, err
	}
	if err := n.startEdge(ctx, c, book, edgeOptions{registry, o.Log, token, work.Wake, counted}); err != nil {
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
	hour     throttle.Hour           // of receivers and of what is known of domains
	opened   func(openFunc) openFunc // watches how sessions are opened
}

// startEngine starts the actors: receivers on the cluster, then who gives them work.
func (n *node) startEngine(ctx context.Context, c config.Config, book *sqlstore.Store, id uuid.UUID,
	o engineOptions) (*dispatcher.Dispatcher, error) {
	n.members = &membership{living: receiver.NewRegistry()}
	if err := n.startThrottling(ctx, c, book, o); err != nil {
		return nil, err
	}
	resolver, err := newResolver(c)
	if err != nil {
		return nil, err
	}
	n.add("dns", func(context.Context) error { return resolver.Close() })
	registerDNSMetrics(o.registry, resolver)
	if n.self, err = newSelfCheck(c, n.members, o); err != nil {
		return nil, err
	}
	o.opened = n.self.opened
	receivers, err := n.receivers(c, book, o)
	if err != nil {
		return nil, err
	}
	if err := n.openClerk(receivers, resolver); err != nil {
		return nil, err
	}
	n.limits = edge.Options{Limits: edgeLimits(c), Share: n.members.part, Metrics: edge.NewMetrics(o.registry)}
	n.self.sources = receivers.Sources
	n.add("identity", n.self.start(ctx))
	kinds, err := kindsOf(receivers, n.limits)
	if err != nil {
		return nil, err
	}
	members, err := n.members.start(ctx, c, book, memberOptions{id, kinds, o.registry, o.log, n.self.unfit(),
		n.clerk.Answer})
	if err != nil {
		return nil, err
	}
	n.clerk.Join(members)
	n.self.apply() // what was found meanwhile
	n.add("what receivers taught", n.members.living.Flush)
	n.add("cluster", members.Stop)
	facts := n.startFacts(ctx, book, o)
	parts := workParts{book, resolver, n.table, n.members, facts}
	options := workOptions(c, id, parts, o)
	options.Work.Tracer = n.tracer
	work, err := dispatcher.Start(members.System(), options)
	if err != nil {
		return nil, err
	}
	n.members.work.Store(work)
	members.OnDrain(func() {
		n.draining.Store(true)
		work.Drain()
	})
	n.add("dispatcher", work.Stop)
	return work, nil
}

// startFacts shares what is learned of domains with the other nodes, and with later
// lives of this one.
func (n *node) startFacts(ctx context.Context, book *sqlstore.Store, o engineOptions) *domain.Facts {
	facts := domain.ShareFacts(book, o.log)
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

type edgeOptions struct {
	registry *prometheus.Registry
	log      *slog.Logger
	token    string
	wake     func()
	limiter  httpd.Limiter // of API keys; nil: this node counts alone
}

// startLimiter starts what counts the limits of API keys for all nodes.
func (n *node) startLimiter() (httpd.Limiter, error) {
	if n.book.Embedded() {
		return nil, nil
	}
	members := n.members.node.Load()
	limiter, err := edge.Start(members.System(), members.Resolve, n.limits)
	if err != nil {
		return nil, err
	}
	n.add("limits of keys", limiter.Stop)
	return limiter, nil
}

// startEdge starts the three listeners; the storage first, because the API tells its address.
func (n *node) startEdge(ctx context.Context, c config.Config, book *sqlstore.Store, o edgeOptions) error {
	secret, err := book.Secret(ctx, "upload-url", 32)
	if err != nil {
		return err
	}
	tokens, err := upload.NewTokens(secret)
	if err != nil {
		return err
	}
	trusted, err := proxies.Parse(c.HTTP.TrustedProxies)
	if err != nil {
		return err
	}
	storage := httpd.DefaultStorageOptions()
	storage.Trusted = trusted
	storage.Listen, storage.Book, storage.Tokens = c.Upload.Listen, book, tokens
	storage.AllowedOrigins, storage.Wake, storage.Log, storage.Registerer = c.HTTP.AllowedOrigins, o.wake, o.log, o.registry
	storage.Tracer = n.tracer
	files, err := httpd.NewStorage(storage)
	if err != nil {
		return err
	}
	if err := files.Start(); err != nil {
		return listenError("upload", c.Upload.Listen, err)
	}
	n.add("storage", files.Stop)
	n.UploadURL = publicURL(c.Upload.PublicURL, c.Upload.Listen, files.Addr())
	public := apiOptions(c, book, o, func(id uuid.UUID) string { return tokens.URL(n.UploadURL, id) })
	public.Tracer, public.Trusted = n.tracer, trusted
	api, err := httpd.New(public)
	if err != nil {
		return err
	}
	if err := api.Start(); err != nil {
		return listenError("http", c.HTTP.Listen, err)
	}
	n.add("api", api.Stop)
	n.APIURL = publicURL(c.HTTP.PublicURL, c.HTTP.Listen, api.Addr())
	operate := admin.Options{Listen: c.Admin.Listen, Book: book, Token: o.token,
		Gatherer: o.registry, Draining: n.draining.Load, Wake: o.wake, Log: o.log,
		Cluster: membersView{c.Cluster.Name, n.members.node.Load()}, Ready: n.members.node.Load().Ready,
		Identity: n.self.view, CheckIdentity: n.self.check, Rules: n.rules.Now, Throttle: n.table,
		ThrottleFile: func() admin.ThrottleFile { return throttleFileView(n.file.State()) },
		Survey:       n.clerk, Tuned: n.tuning.wake,
		ReplayThrottle: func(ctx context.Context, throttle, rules string) (view.Replayed, error) {
			return n.replay(ctx, c.Throttle, throttle, rules)
		}}
	if book.Embedded() {
		operate.Backup = book.OpenBackup
	}
	operator, err := admin.New(operate)
	if err != nil {
		return err
	}
	if err := operator.Start(); err != nil {
		return listenError("admin", c.Admin.Listen, err)
	}
	n.AdminURL = publicURL("", c.Admin.Listen, operator.Addr())
	n.stops = append([]stopper{{"admin", operator.Stop}}, n.stops...) // answers until the end
	n.add("audits and backups", func(context.Context) error { operator.Drain(); return nil })
	return nil
}

// apiOptions takes the API's limits from the configuration.
func apiOptions(c config.Config, book *sqlstore.Store, o edgeOptions, url func(uuid.UUID) string) httpd.Options {
	limits := httpd.DefaultLimits()
	limits.Reads = httpd.Rate{PerSecond: float64(c.HTTP.ReadsPerSecond), Burst: c.HTTP.Burst}
	limits.Creates = httpd.Rate{PerSecond: float64(c.HTTP.CreatesPerSecond), Burst: c.HTTP.CreatesBurst}
	limits.BadKeys = httpd.Rate{PerSecond: float64(c.HTTP.BadKeysPerMinute) / 60, Burst: c.HTTP.BadKeysPerMinute}
	limits.DownloadMax = c.HTTP.DownloadsAtOnce
	return httpd.Options{Listen: c.HTTP.Listen, Book: book, PublicUpload: url, AllowedOrigins: c.HTTP.AllowedOrigins,
		Limits: limits, MaxFileBytes: c.Limits.MaxFileBytes, MaxRows: c.Limits.MaxRows,
		OpenMax: c.Limits.MaxOpenVerifications, UploadExpiry: c.Upload.ExpiresAfter.Duration,
		Wake: o.wake, Log: o.log, Registerer: o.registry, Limiter: o.limiter}
}

func (n *node) add(name string, stop func(ctx context.Context) error) {
	n.stops = append(n.stops, stopper{name, stop})
}

// Stop drains the node: no new requests, no new work, leases given back, sessions
// ended, the book closed. Twice is fine.
func (n *node) Stop(ctx context.Context) error {
	n.once.Do(func() {
		n.draining.Store(true)
		for i := len(n.stops) - 1; i >= 0; i-- {
			if err := n.stops[i].stop(ctx); err != nil {
				n.stopErr = errors.Join(n.stopErr, fmt.Errorf("stop %s: %w", n.stops[i].name, err))
			}
		}
	})
	return n.stopErr
}

// publicURL is how a listener is reached: as configured, or at the address it got.
func publicURL(configured, listen string, at net.Addr) string {
	_, port, err := net.SplitHostPort(listen)
	if configured != "" && (err != nil || port != "0") {
		return configured
	}
	host, bound, err := net.SplitHostPort(at.String())
	if err != nil {
		return configured
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, bound)
}

func listenError(section, listen string, err error) error {
	return fmt.Errorf("%s.listen: cannot listen on %s (is another node running? choose another port): %w",
		section, listen, err)
}
