package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	httpd "rollcall/http"
	"rollcall/http/dashboard/signin"
	"rollcall/http/dashboard/signin/provider"
	"rollcall/http/web"
	"rollcall/ledger"
)

const (
	// ledgerTimeout bounds what one request asks of the ledger.
	ledgerTimeout = 10 * time.Second

	// secretBytes is the length of the key for what only this service may make.
	secretBytes = 32
)

// Dashboard is the pages. Safe for concurrent use.
type Dashboard struct {
	*web.Site
	o      Options
	log    *slog.Logger
	signin *signin.Service

	breakdowns breakdowns
	waiting    waitsCache
	tags       partTags
	now        func() time.Time
	signIns    signIns

	provider *provider.Provider // nil: there is none
}

// New makes the pages. It asks the ledger for a secret.
func New(ctx context.Context, o Options) (*Dashboard, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	secret, err := o.Book.Secret(ctx, "dashboard", secretBytes)
	if err != nil {
		return nil, fmt.Errorf("dashboard: read the secret: %w", err)
	}
	asked := o.newProvider()
	d := &Dashboard{o: o, log: o.Log, now: o.Now, provider: asked,
		signin: signin.New(signin.Options{Book: o.Book, Secret: secret, Idle: o.SessionIdle, Life: o.SessionLife, Now: o.Now,
			Provider: asked}),
		waiting: waitsCache{ask: o.Waits, now: o.Now, log: o.Log}}
	if d.signIns, err = newSignIns(o.Registerer); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if d.Site, err = web.NewSite(pageFiles, template.FuncMap{"proof": proofOf}, o.Log, d.fail); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	for _, r := range routes {
		d.Handle(r.pattern, d.admit(r))
	}
	return d, nil
}

// Stop writes what is left to note about the use of sessions.
func (d *Dashboard) Stop() { d.signin.Stop() }

// Handler is the pages for http.Options.Pages.
func (d *Dashboard) Handler() fasthttp.RequestHandler {
	return fasthttpadaptor.NewFastHTTPHandler(d)
}

// ServeHTTP answers one request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page := httpd.PageRequestOf(r.Context())
	web.Secure(w.Header(), originOf(d.o.UploadURL), d.formsGoTo(), strings.HasPrefix(d.o.PublicURL(), "https://"))
	ctx, cancel := context.WithTimeout(httpd.WithPage(context.Background(), page), ledgerTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	if page.Refused != "" {
		d.refused(w, r, page)
		return
	}
	d.Serve(w, r, page.ID)
}

// guide answers GET /docs and GET /docs/{page}.
func guide(d *Dashboard, w http.ResponseWriter, r *request) {
	page, ok, err := web.Guide(r.PathValue("page"))
	if err != nil {
		panic(err)
	}
	if !ok {
		d.notFound(w, r.Request)
		return
	}
	d.show(w, r, http.StatusOK, "guide", titled(page.Title, "", page))
}

// status answers GET /status.
func status(d *Dashboard, w http.ResponseWriter, r *request) {
	_, err := d.o.Book.History(strangers(r), ledger.HistoryQuery{Limit: 1}) // of no workspace
	d.show(w, r, http.StatusOK, "status", titled("Status", "", web.Status{Ledger: err == nil,
		Checks: d.o.Checks == nil || d.o.Checks()}))
}

// asset answers GET /assets/{name}.
func asset(d *Dashboard, w http.ResponseWriter, r *request) { d.Asset(w, r.Request) }

// formsGoTo is where forms may lead beside to us: with a provider, to it.
func (d *Dashboard) formsGoTo() string {
	if d.provider == nil {
		return ""
	}
	issuer := originOf(d.o.Provider.Issuer)
	if page := d.provider.Origin(); page != issuer {
		return strings.TrimSpace(issuer + " " + page)
	}
	return issuer
}
