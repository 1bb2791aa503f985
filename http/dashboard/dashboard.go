package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"rollcall/actors/inspect"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
)

const (
	// ledgerTimeout bounds the ledger calls of one request.
	ledgerTimeout = 10 * time.Second

	// secretBytes is the length of the key that protects values made by this service.
	secretBytes = 32
)

// Dashboard serves the pages. Safe for concurrent use.
type Dashboard struct {
	*web.Site
	o      Options
	log    *slog.Logger
	signin *signin.Service

	breakdowns *breakdowns
	waiting    *waitsCache
	// tags are the tags of finished parts, by the parts' content. So an unchanged part need not be made again for a
	// comparison.
	tags    *lru.Cache[partKey, string]
	now     func() time.Time
	signIns signIns

	provider *signin.Provider // nil: there is none
}

// New makes the pages. It reads a secret from the ledger.
func New(ctx context.Context, o Options) (*Dashboard, error) {
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
			Provider: asked}), waiting: newWaitsCache(o), breakdowns: newBreakdowns(), signIns: newSignIns(o.Registerer)}
	d.tags, _ = lru.New[partKey, string](tagsMax)
	proofOf := func(key string, user *ledger.User, codes bool) proof { return proof{key, user, codes} }
	d.Site = web.NewSite(pageFiles, template.FuncMap{"proof": proofOf}, o.Log, d.fail)
	for _, r := range routes {
		d.Handle(r.pattern, d.admit(r))
	}
	return d, nil
}

// Stop writes the pending notes about the use of sessions.
func (d *Dashboard) Stop() { d.signin.Stop() }

// Handler returns the pages for http.Options.Pages.
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

func guide(d *Dashboard, w http.ResponseWriter, r *request) error {
	page, err := web.Guide(r.PathValue("page"))
	if err != nil {
		return err
	}
	return d.show(w, r, http.StatusOK, "guide", titled(page.Title, "", page))
}

func status(d *Dashboard, w http.ResponseWriter, r *request) error {
	_, err := d.o.Book.History(strangers(r), ledger.HistoryQuery{Limit: 1}) // of no workspace
	return d.show(w, r, http.StatusOK, "status", titled("Status", "", web.Status{Ledger: err == nil,
		Checks: d.o.Checks()}))
}

func asset(d *Dashboard, w http.ResponseWriter, r *request) error {
	d.Asset(w, r.Request)
	return nil
}

// formsGoTo returns the other origins to which forms may lead: the provider's, if there is one.
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

// Options are the options of the pages; all are required unless their line says otherwise.
type Options struct {
	Book         ledger.Book
	PublicURL    func() string // how browsers reach the pages, without a final slash
	UploadURL    string        // how browsers reach the storage
	MaxFileBytes int64         // of a new file
	MaxRows      int64
	PerWorkspace ledger.Limits // defaults of a workspace, as for the API
	// Waits asks all nodes what the open addresses of a verification wait for.
	Waits       func(ctx context.Context, verification string) (inspect.Verification, error)
	SessionIdle time.Duration           // how long an unused session lasts
	SessionLife time.Duration           // how long a session lasts at most
	Checks      func() bool             // whether this node checks addresses
	Version     string                  // of the program, at the foot of each page
	Dev         bool                    // the node's receivers are simulated
	Contact     string                  // where people get help, such as an email address or a URL; may be empty
	Provider    *signin.ProviderOptions // without Redirect and Now; nil: people sign in with passwords only
	Wake        func()                  // called when the ledger has something new
	Log         *slog.Logger            // what went wrong
	Registerer  prometheus.Registerer   // gets rollcall_sign_ins_total
	Now         func() time.Time        // nil: time.Now
}

// originOf returns scheme, host and port of a URL, or "".
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// keepsCookies reports whether a browser keeps our cookie at a URL: with https, or on the browser's own machine.
func keepsCookies(public string) bool {
	u, err := url.Parse(public)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// failure is an error page: what happened and what to do.
type failure = web.Failure

func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, f failure) {
	d.render(w, r, f.Status, "error", &frame{Frame: web.Frame{Title: f.Title, Reload: f.Announce(w, r)}, Body: f})
}

// retryLater is the Retry-After, in seconds, while the ledger does not answer.
const retryLater = 5

type ledgerError struct {
	step string // for the log
	err  error
}

func at(step string, err error) error { return &ledgerError{step, err} }

// Error and Unwrap are those of an error.
func (e *ledgerError) Error() string { return e.step + ": " + e.err.Error() }
func (e *ledgerError) Unwrap() error { return e.err }

// refuse answers with the page of a failure. Other causes are that the ledger does not answer, or that a user may no
// longer change anything: see ledger.Acting.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var page failure
	switch {
	case errors.As(err, &page):
	case errors.Is(err, ledger.ErrNoSuchSession):
		page = signedOut
	case errors.Is(err, ledger.ErrNotAllowed), errors.Is(err, ledger.ErrNotOwner):
		page = failure{Status: http.StatusForbidden, Title: "Your role doesn't allow this",
			Text: "Your role was changed a moment ago. Nothing else was changed.",
			Next: "Ask an owner of the workspace for another role.", Link: "/", Label: "Back"}
	default:
		step := ""
		if unanswered, is := errors.AsType[*ledgerError](err); is {
			step, err = unanswered.step, unanswered.err
		}
		d.log.Warn("ledger did not answer a page", "stage", step, "request", httpd.PageRequestOf(r.Context()).ID, "err", err)
		page = failure{Status: http.StatusServiceUnavailable, Title: "We can't answer right now",
			Text: "The ledger isn't answering. Running verifications continue by themselves, and nothing is lost.",
			Next: "This page reloads by itself in a moment.", After: retryLater}
	}
	d.fail(w, r, page)
}

func (d *Dashboard) refused(w http.ResponseWriter, r *http.Request, p *httpd.PageRequest) {
	f := failure{Status: p.Status, Title: "This isn't possible", Text: p.Message, After: p.RetryAfter,
		Next: "Go back and try again."}
	switch p.Refused {
	case api.ServiceUnavailable, api.Overloaded, api.InternalError:
		f.Title, f.Text = "We can't answer right now",
			"This node is shutting down or busy. Running verifications continue by themselves, and nothing is lost."
		f.Next = "This page reloads by itself in a moment."
	case api.RateLimited:
		f.Title, f.Text = "Too much at once", "You sent too many requests at once."
		f.Next = "Wait a moment and try again."
	case api.NotFound, api.InvalidID:
		f = web.Nothing
	case api.ResultsExpired:
		f.Title, f.Text, f.Next = "The results are gone", "The results were deleted when their retention time ended.",
			"To check the addresses again, upload the file again. This costs credits again."
	}
	d.fail(w, r, f)
}

// The ways to sign in and their results are label values.
var (
	signInWays    = []string{"password", "code", "link", "provider"}
	signInResults = []string{"done", "code_wanted", "refused", "wait", "busy", "failed"}
)

type signIns struct{ counts *prometheus.CounterVec }

func newSignIns(r prometheus.Registerer) signIns {
	s := signIns{promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "rollcall_sign_ins_total",
		Help: "Sign-ins to the pages, by way (password, code after it, link, provider) and result (done, code_wanted: goes on " +
			"with a code or chooses an invitation, refused: wrong or not allowed, wait: too many failures, busy, failed: " +
			"the ledger or the provider did not answer)."}, []string{"way", "result"})}
	for _, way := range signInWays {
		for _, result := range signInResults {
			s.counts.WithLabelValues(way, result)
		}
	}
	return s
}

func (s signIns) count(way string, err error) {
	var code *signin.CodeWanted
	var choice *signin.Choice
	var wait *signin.Wait
	result := "failed"
	switch {
	case err == nil:
		result = "done"
	case errors.As(err, &code), errors.As(err, &choice):
		result = "code_wanted"
	case errors.As(err, &wait):
		result = "wait"
	case errors.Is(err, signin.ErrBusy):
		result = "busy"
	case errors.Is(err, signin.ErrWrong), errors.Is(err, signin.ErrCode), errors.Is(err, signin.ErrStep),
		errors.Is(err, signin.ErrKnown), passwordProblem(err) != "",
		errors.Is(err, signin.ErrFormUsed), errors.Is(err, ledger.ErrNoSuchLink), errors.Is(err, signin.ErrNotInvited), errors.Is(err, signin.ErrRefused):
		result = "refused"
	}
	s.counts.WithLabelValues(way, result).Inc()
}

// Routes are the paths of the pages as metrics name them, for http.Options.PageRoutes.
func Routes() (all []string) {
	for _, r := range routes {
		if name := r.name(); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// name returns the path of a route, with placeholders such as {ws}.
func (r route) name() string {
	_, path, _ := strings.Cut(r.pattern, " ")
	return strings.TrimSuffix(path, "{$}")
}
