package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	httpd "rollcall/http"
	"rollcall/http/dashboard/signin"
	"rollcall/http/dashboard/signin/provider"
	"rollcall/http/dashboard/view"
)

const (
	// formMax bounds the body of a form. The listener takes no more either.
	formMax = 8 << 10

	// ledgerTimeout bounds what one request asks of the ledger.
	ledgerTimeout = 10 * time.Second

	// secretBytes is the length of the key for what only this service may make.
	secretBytes = 32
)

// Dashboard is the pages. Safe for concurrent use.
type Dashboard struct {
	o       Options
	log     *slog.Logger
	signin  *signin.Service
	assets  *view.Assets
	pages   *view.Pages
	mux     *http.ServeMux
	guarded http.Handler

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
	d := &Dashboard{o: o, log: o.Log, now: o.Now, mux: http.NewServeMux(), provider: asked,
		signin: signin.New(signin.Options{Book: o.Book, Secret: secret, Idle: o.SessionIdle, Life: o.SessionLife, Now: o.Now,
			Provider: asked}),
		waiting: waitsCache{ask: o.Waits, now: o.Now, log: o.Log}}
	if d.signIns, err = newSignIns(o.Registerer); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if d.assets, err = view.NewAssets(); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if d.pages, err = newPages(d.assets); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	for _, r := range routes {
		d.mux.Handle(r.pattern, d.admit(r))
	}
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.fail(w, r, failure{Status: http.StatusForbidden, Title: "This request came from another site",
			Text: "Your browser says that another site sent this form. Nothing was changed.",
			Next: "Open the page here and send the form again."})
	}))
	d.guarded = cross.Handler(http.HandlerFunc(d.serve))
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
	view.Secure(w.Header(), originOf(d.o.UploadURL), d.formsGoTo(), strings.HasPrefix(d.o.PublicURL(), "https://"))
	ctx, cancel := context.WithTimeout(httpd.WithPage(context.Background(), page), ledgerTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("page panicked", "request", page.ID, "err", fmt.Sprintf("%T", p))
			d.fail(w, r, failure{Status: http.StatusServiceUnavailable, Title: "A fault on our side",
				Text: "This page couldn't be made.", Next: "Try again. If it keeps failing, send us the request number below."})
		}
	}()
	if page.Refused != "" {
		d.refused(w, r, page)
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, formMax)
	}
	d.guarded.ServeHTTP(w, r)
}

// asset answers GET /assets/{name}.
func (d *Dashboard) asset(w http.ResponseWriter, r *request) {
	if !d.assets.Serve(w, r.Request, r.PathValue("name")) {
		d.notFound(w, r.Request)
	}
}

// serve finds the route. What the mux would answer by itself gets a page of ours.
func (d *Dashboard) serve(w http.ResponseWriter, r *http.Request) {
	if _, pattern := d.mux.Handler(r); pattern != "" {
		d.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := d.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		d.fail(w, r, failure{Status: http.StatusMethodNotAllowed, Title: "This page can't handle this request",
			Text: "The page doesn't support this kind of request.", Next: "Go back and open the page again."})
		return
	}
	d.notFound(w, r)
}

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
