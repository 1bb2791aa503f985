package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/config"
	httpd "rollcall/http"
	"rollcall/http/admin"
	pages "rollcall/http/dashboard"
	"rollcall/http/dashboard/operate"
	"rollcall/http/dashboard/signin"
	"rollcall/http/listen"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

type edgeOptions struct {
	registry *prometheus.Registry
	log      *slog.Logger
	token    string
	wake     func()
	trusted  listen.Trusted // the proxies in front of API and storage
	certs    *certificates
}

// nodes returns how many members the cluster has by the ledger, whether or not they see each other.
func (n *Node) nodes() (in int) {
	if roll := n.Cluster.Snapshot(); roll != nil {
		for _, row := range roll.Nodes {
			if row.Status == ledger.NodeIn {
				in++
			}
		}
	}
	return max(in, 1)
}

// startEdge starts the three listeners. The storage comes first, because the API's answers contain its address.
func (n *Node) startEdge(ctx context.Context, c config.Config, book *sqlstore.Store, o edgeOptions) (err error) {
	if o.trusted, err = listen.ParseTrusted(c.HTTP.TrustedProxies); err != nil {
		return err
	}
	o.certs = newCertificates(o.registry, o.log)
	tokens, err := n.startStorage(ctx, c, book, o)
	if err != nil {
		return err
	}
	if err := n.startAPI(ctx, c, book, o, tokens); err != nil {
		return err
	}
	return n.startAdmin(ctx, c, book, o)
}

func (n *Node) startStorage(ctx context.Context, c config.Config, book *sqlstore.Store, o edgeOptions) (*upload.Tokens,
	error) {
	secret, err := book.Secret(ctx, "upload-url", upload.TokenKeyBytes)
	if err != nil {
		return nil, err
	}
	tokens := upload.NewTokens([upload.TokenKeyBytes]byte(secret))
	storage := upload.DefaultOptions()
	storage.Listen, storage.Book, storage.Tokens = c.Upload.Listen, book, tokens
	storage.AllowedOrigins, storage.Wake, storage.Log, storage.Registerer = c.HTTP.AllowedOrigins, o.wake, o.log,
		o.registry
	storage.Tracer, storage.Trusted, storage.PagesOrigin = n.tracer, o.trusted, n.pagesOrigin
	storage.UploadsMax, storage.BytesPerSecond, storage.Weight = c.Upload.AtOnce, c.Upload.BytesPerSecond,
		n.settings.Weight
	storage.ConnectionsMax = max(connectionPlaces(c.Upload.Connections, 8, o.log, "upload"), c.Upload.AtOnce+1)
	cert, key := c.UploadTLS()
	settings, unfollow, err := o.certs.follow(ctx, "upload", cert, key)
	if err != nil {
		return nil, fmt.Errorf("upload.tls_cert: %w", err)
	}
	n.add("certificate of storage", unfollow)
	storage.TLS = settings
	files := upload.New(storage)
	if err := files.Start(); err != nil {
		return nil, listenError("upload", c.Upload.Listen, err)
	}
	n.add("storage", files.Stop)
	n.UploadURL = publicURL(c.Upload.PublicURL, c.Upload.Listen, cert, files.Addr())
	return tokens, nil
}

func (n *Node) startAPI(ctx context.Context, c config.Config, book *sqlstore.Store, o edgeOptions,
	tokens *upload.Tokens) error {
	public := apiOptions(c, book, o, func(id uuid.UUID) string { return tokens.URL(n.UploadURL, id) })
	public.Weight = n.settings.Weight
	public.Nodes = n.nodes
	public.Tracer = n.tracer
	settings, unfollow, err := o.certs.follow(ctx, "api", c.HTTP.TLSCert, c.HTTP.TLSKey)
	if err != nil {
		return fmt.Errorf("http.tls_cert: %w", err)
	}
	n.add("certificate of the api", unfollow)
	public.TLS = settings
	if err := n.addPages(ctx, c, book, &public); err != nil {
		return err
	}
	api := httpd.New(public)
	if err := api.Start(); err != nil {
		return listenError("http", c.HTTP.Listen, err)
	}
	n.add("api", api.Stop)
	n.APIURL = publicURL(c.HTTP.PublicURL, c.HTTP.Listen, c.HTTP.TLSCert, api.Addr())
	if public.Pages != nil {
		n.pages.Store(&n.APIURL)
	}
	return nil
}

func (n *Node) startAdmin(ctx context.Context, c config.Config, book *sqlstore.Store, o edgeOptions) error {
	settings, unfollow, err := o.certs.follow(ctx, "admin", c.Admin.TLSCert, c.Admin.TLSKey)
	if err != nil {
		return fmt.Errorf("admin.tls_cert: %w", err)
	}
	operate := admin.Options{Listen: c.Admin.Listen, TLS: settings, Hosts: c.Admin.Hosts, Book: book, Token: o.token,
		PagesURL: n.pagesURL, Limits: workspaceLimits(c),
		Gatherer: o.registry, Wake: o.wake, Log: o.log,
		Draining: func() bool { return n.stopping.Load() || n.Cluster.Draining() },
		Cluster:  membersView{c.Cluster.Name, n.Cluster}, Ready: n.Cluster.Ready,
		Identity: n.Identity, CheckIdentity: n.CheckIdentity, Throttle: n.table,
		ThrottleFile: func() admin.ThrottleFile { return throttleFileView(n.file.State()) },
		Inspector:    n.inspector, Tuned: n.settings.Wake,
		ReplayThrottle: func(ctx context.Context, candidate string) (inspect.Replayed, error) {
			return n.replay(ctx, c.Throttle, candidate)
		}, ReplayOverride: n.replayOverride, Pages: func(d *admin.Service) admin.Pages {
			return operate.New(operate.Options{Service: d, TLS: settings != nil, Log: o.log, Version: ThisVersion().Version})
		}}
	n.stops = append([]stopper{{"certificate of admin", unfollow}}, n.stops...)
	operator, err := admin.New(operate)
	if err != nil {
		return err
	}
	if err := operator.Start(); err != nil {
		return listenError("admin", c.Admin.Listen, err)
	}
	n.AdminURL = c.Admin.Listen
	if !strings.HasPrefix(c.Admin.Listen, config.UnixPrefix) {
		n.AdminURL = publicURL("", c.Admin.Listen, c.Admin.TLSCert, operator.Addr())
	}
	n.stops = append([]stopper{{"admin", operator.Stop}}, n.stops...) // stops last, so that it answers until the end
	n.add("audits", func(context.Context) error { operator.Drain(); return nil })
	return nil
}

func apiOptions(c config.Config, book *sqlstore.Store, o edgeOptions, url func(uuid.UUID) string) httpd.Options {
	limits := httpd.DefaultLimits()
	limits.Reads = httpd.Rate{PerSecond: float64(c.HTTP.ReadsPerSecond), Burst: c.HTTP.Burst}
	limits.Creates = httpd.Rate{PerSecond: float64(c.HTTP.CreatesPerSecond), Burst: c.HTTP.CreatesBurst}
	limits.BadKeys = httpd.Rate{PerSecond: float64(c.HTTP.BadKeysPerMinute) / 60, Burst: c.HTTP.BadKeysPerMinute}
	limits.DownloadMax = c.HTTP.DownloadsAtOnce
	limits.ConnsMax = connectionPlaces(c.HTTP.Connections, 4, o.log, "http")
	return httpd.Options{Listen: c.HTTP.Listen, Book: book, Writes: book.Writes, PublicUpload: url,
		AllowedOrigins: c.HTTP.AllowedOrigins,
		Limits:         limits, MaxFileBytes: c.Limits.MaxFileBytes, MaxRows: c.Limits.MaxRows,
		PerWorkspace: workspaceLimits(c), UploadExpiry: c.Upload.ExpiresAfter.Duration, Trusted: o.trusted,
		Wake: o.wake, Log: o.log, Registerer: o.registry}
}

// connectionPlaces returns how many connections a listener accepts: the configured number, but at most a fraction of
// the files that this process may open, so that receivers and the ledger get the rest.
func connectionPlaces(configured, part int, log *slog.Logger, listener string) int {
	places := openFiles() / part
	if places >= configured {
		return configured
	}
	log.Warn("fewer connections than configured: the system lets this process open too few files", "listener", listener,
		"connections", places, "configured", configured, "files", openFiles())
	return places
}

func workspaceLimits(c config.Config) ledger.Limits {
	return ledger.Limits{Open: int64(c.Limits.MaxOpenVerifications), Stored: c.Limits.StoredBytes,
		Unpaid: int64(c.Limits.UnpaidPerDay)}
}

// publicURL returns the URL of a listener: the configured one, or one made from the address at which it listens.
func publicURL(configured, listen, cert string, at net.Addr) string {
	if configured != "" && !strings.HasSuffix(listen, ":0") {
		return configured
	}
	return config.LocalURL(at.String(), cert)
}

func listenError(section, listen string, err error) error {
	return fmt.Errorf("%s.listen: cannot listen on %s (is another node running? choose another port): %w",
		section, listen, err)
}

type certificates struct {
	log  *slog.Logger
	ends *prometheus.GaugeVec
	used *prometheus.GaugeVec
}

// newCertificates registers the metrics. A listener without TLS has none.
func newCertificates(r prometheus.Registerer, log *slog.Logger) *certificates {
	c := &certificates{log: log,
		ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_tls_certificate_not_after_timestamp_seconds",
			Help: "When the certificate of a listener ends, or the first of its chain; 0: it has none. Listener: api, " +
				"upload or admin.",
		}, []string{"listener"}),
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_tls_certificate_used",
			Help: "1 when a listener uses its certificate files as they are now, or has none; 0 when they can't be used and " +
				"the old ones stay in force.",
		}, []string{"listener"}),
	}
	r.MustRegister(c.ends, c.used)
	for _, listener := range []string{"api", "upload", "admin"} {
		c.ends.WithLabelValues(listener)
		c.used.WithLabelValues(listener).Set(1)
	}
	return c
}

// follow loads the certificate files of a listener and follows their changes until stop is called. Without files,
// settings and error are nil.
func (c *certificates) follow(ctx context.Context, listener, certFile, keyFile string) (settings *tls.Config,
	stop func(context.Context) error, err error) {
	if certFile == "" {
		return nil, func(context.Context) error { return nil }, nil
	}
	watch := config.WatchFiles(certFile, keyFile) // before loading, so that a change during it is seen
	pair, err := listen.LoadPair(certFile, keyFile)
	if err != nil {
		return nil, nil, err
	}
	c.noteLoaded(listener, pair)
	return pair.Config(), process.Background(ctx, func(ctx context.Context) {
		watch.Each(ctx, func() { c.reload(listener, pair) })
	}), nil
}

func (c *certificates) reload(listener string, pair *listen.Pair) {
	if err := pair.Reload(time.Now()); err != nil {
		c.used.WithLabelValues(listener).Set(0)
		c.log.Error("new certificate refused, the old one stays in use", "listener", listener, "until", pair.End(),
			"err", err)
		return
	}
	c.noteLoaded(listener, pair)
	c.log.Info("new certificate in force", "listener", listener, "until", pair.End())
}

// noteLoaded logs a certificate that came into use.
func (c *certificates) noteLoaded(listener string, pair *listen.Pair) {
	c.used.WithLabelValues(listener).Set(1)
	c.ends.WithLabelValues(listener).Set(float64(pair.End().Unix()))
	if time.Now().After(pair.End()) {
		c.log.Error("certificate has ended, clients will refuse it", "listener", listener, "until", pair.End())
	}
}

func (n *Node) addPages(ctx context.Context, c config.Config, book *sqlstore.Store, public *httpd.Options) error {
	if !c.Dashboard.Enabled {
		return nil
	}
	asked, err := ProviderOf(c.Dashboard)
	if err != nil {
		return err
	}
	served, err := pages.New(ctx, pages.Options{Book: book, PublicURL: n.pagesURL, UploadURL: n.UploadURL,
		MaxFileBytes: c.Limits.MaxFileBytes, MaxRows: c.Limits.MaxRows, Contact: c.Dashboard.Contact,
		SessionIdle: c.Dashboard.SessionIdle.Duration, SessionLife: c.Dashboard.SessionLife.Duration,
		Version: ThisVersion().Version, Dev: n.Lab != nil, Checks: func() bool { return n.Identity().Probing },
		PerWorkspace: public.PerWorkspace, Waits: n.inspector.Verification, Provider: asked, Wake: public.Wake,
		Log: public.Log, Registerer: public.Registerer})
	if err != nil {
		return fmt.Errorf("start the pages: %w", err)
	}
	n.add("pages", func(context.Context) error { served.Stop(); return nil })
	public.Pages, public.PageRoutes = served.Handler(), pages.Routes()
	return nil
}

// ProviderOf returns the configured provider with its secret, or nil if none is configured. It makes no connection.
func ProviderOf(d config.Dashboard) (*signin.ProviderOptions, error) {
	if !d.Enabled || d.OIDCIssuer == "" {
		return nil, nil
	}
	secret, err := signin.ReadSecret(d.OIDCSecretFile)
	if err != nil {
		return nil, fmt.Errorf("dashboard.oidc_secret_file: %w", err)
	}
	return &signin.ProviderOptions{Issuer: d.OIDCIssuer, ClientID: d.OIDCClientID, Secret: secret, Name: d.OIDCName}, nil
}

// pagesURL returns the URL of the pages. It is "" if they are disabled, and until the listener has its address.
func (n *Node) pagesURL() string {
	if url := n.pages.Load(); url != nil {
		return *url
	}
	return ""
}

// pagesOrigin returns the scheme, host and port of pagesURL, as browsers send them.
func (n *Node) pagesOrigin() string {
	u, err := url.Parse(n.pagesURL())
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// devEmail is the user of the pages of serve --dev.
const devEmail = "dev@rollcall.test"

// DevLink makes a link that signs in to the workspace of serve --dev, as its owner.
func (n *Node) DevLink(ctx context.Context, workspace string) (string, error) {
	id, err := uuid.Parse(workspace)
	if err != nil {
		return "", err
	}
	token, err := signin.DevLink(ctx, n.Book, id, devEmail)
	return n.pagesURL() + "/link/" + string(token), err
}
