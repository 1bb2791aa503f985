package operate

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
)

//go:embed pages
var pageFiles embed.FS

// pageTimeout bounds the calls to nodes and the ledger for one page.
const pageTimeout = 15 * time.Second

// Options are the options of the pages.
type Options struct {
	Service *admin.Service
	TLS     bool // browsers use https to reach the listener
	Log     *slog.Logger
	Now     func() time.Time // nil: the clock
	// Version of the program, at the foot of each page.
	Version string
}

// Pages are the operators' web pages. Safe for concurrent use.
type Pages struct {
	*web.Site
	service  *admin.Service
	tls      bool
	version  string
	now      func() time.Time
	sessions *sessionStore
	lands    map[string]bool // patterns of the pages that may be shown after signing in
	audits   audits
}

// New makes the pages.
func New(o Options) *Pages {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Pages{service: o.Service, tls: o.TLS, version: o.Version, now: o.Now, lands: map[string]bool{},
		sessions: newSessionStore(o.Now)}
	p.Site = web.NewSite(pageFiles, template.FuncMap{"percent": percent, "rate": rateText, "left": p.left,
		"countdown": p.countdown, "sourcePath": sourcePath, "sourceRule": admin.SourceRule, "receiver": receiverPath,
		"source": inspect.SourceName, "state": stateOf, "explain": explainPath, "plain": nameText,
		"sentence": web.Sentence, "until": untilText(o.Now), "fieldsOf": fieldsOf, "word": stateWord},
		o.Log, p.fail)
	for _, r := range routes {
		p.Handle(r.pattern, p.admit(r))
		p.lands[r.pattern] = strings.HasPrefix(r.pattern, "GET ") && !r.open && !r.part
	}
	return p
}

// Link makes a path that signs in once, and returns its expiry.
func (p *Pages) Link(author string, readOnly bool) (string, time.Time) {
	name, until := rand.Text(), p.now().Add(codeHolds)
	p.sessions.codes.Add(name, code{author, readOnly, until})
	return "/link/" + name, until
}

type requestKey struct{}

// ServeHTTP answers one request.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := uuid.NewString()
	w.Header().Set("X-Request-Id", id)
	web.Secure(w.Header(), "", "", p.tls)
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), requestKey{}, id), pageTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	p.Serve(w, r, id)
}

type request struct {
	*http.Request
	in session
	id uuid.UUID // id in the path; Nil: the path has none
}

func (p *Pages) admit(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &request{Request: r}
		in, ok := p.sessions.of(r, !to.part && !to.open)
		if to.open {
			asked.in = in
			p.answer(w, asked, to)
			return
		}
		if !ok {
			p.signedOut(w, r, to)
			return
		}
		if in.ReadOnly && to.changes {
			p.fail(w, r, web.Failure{Status: http.StatusForbidden, Title: "You have read-only access",
				Text: "Your link was made with --read-only. Nothing was changed.",
				Next: "Run `rollcall operate` without it to change something.", Link: "/", Label: "To the receivers"})
			return
		}
		asked.in = in
		ctx := ledger.WithActor(r.Context(), "operator")
		if in.Author != "" {
			ctx = ledger.WithAuthor(ctx, in.Author)
		}
		asked.Request = r.WithContext(ctx)
		p.answer(w, asked, to)
	})
}

func (p *Pages) answer(w http.ResponseWriter, r *request, to route) {
	err := r.readID()
	if err == nil {
		err = to.handle(p, w, r)
	}
	if err != nil {
		p.refuse(w, r, err)
	}
}

// readID reads the id of a workspace or a verification in the path, if it has one.
func (r *request) readID() (err error) {
	if text := r.PathValue("id"); text != "" {
		if r.id, err = uuid.Parse(text); err != nil && strings.HasPrefix(r.URL.Path, "/verifications/") {
			return errNoVerification
		} else if err != nil {
			return errNoWorkspace
		}
	}
	return nil
}

func (p *Pages) signedOut(w http.ResponseWriter, r *http.Request, to route) {
	switch {
	case to.part:
		http.Error(w, "You were signed out.", http.StatusUnauthorized)
	case to.changes:
		p.fail(w, r, web.Failure{Status: http.StatusUnauthorized, Title: "You were signed out", Text: "Nothing was changed.",
			Next: "Run `rollcall operate` and open its link, then send the form again.", Link: "/sign-in", Label: "How to sign in"})
	default:
		p.keepNext(w, r, r.URL.RequestURI())
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	}
}

type frame struct {
	web.Frame
	In         *session
	Ineligible []ineligible // nodes that may not probe
	Body       any
}

// titled returns the frame of a page. here is the page's entry in the menu.
func titled(title, here string, body any) *frame {
	return &frame{Frame: web.Frame{Title: title, Here: here}, Body: body}
}

// refreshing is titled for a page with a part that refreshes itself.
func refreshing(title, here string, body any) *frame {
	return &frame{Frame: web.Frame{Title: title, Here: here, Live: true}, Body: body}
}

var menu = []web.Entry{{Key: "receivers", Link: "/", Word: "Receivers"},
	{Key: "verifications", Link: "/verifications", Word: "Verifications"},
	{Key: "throttles", Link: "/throttles", Word: "Throttles"}, {Key: "sources", Link: "/sources", Word: "Sources"},
	{Key: "cluster", Link: "/cluster", Word: "Cluster"}, {Key: "workspaces", Link: "/workspaces", Word: "Workspaces"},
	{Key: "health", Link: "/health", Word: "Health"}, {Key: "log", Link: "/log", Word: "Log"}}

type ineligible struct{ Who, Why string }

// ineligible returns the nodes that may not probe, this one first. It asks no other node, because what this node
// knows is enough.
func (p *Pages) ineligible(ctx context.Context) (list []ineligible) {
	if ok, why := p.service.Probing(); !ok {
		list = append(list, ineligible{"This node", why})
	}
	known, err := p.service.Members(ctx)
	if err != nil {
		return list
	}
	for _, m := range known.Members {
		if m.State == admin.StateIneligible && !m.This {
			list = append(list, ineligible{"Node " + m.Name, "Its identity fails a check."})
		}
	}
	return list
}

// show answers with a page for a signed-in operator. It returns nil, so that a handler can end with it.
func (p *Pages) show(w http.ResponseWriter, r *request, status int, name string, f *frame) error {
	f.RequestID, _ = r.Context().Value(requestKey{}).(string) // for the page and the log
	f.Colours, f.Version = web.ColoursOf(r.Request), p.version
	if r.in.ID != (sessionID{}) {
		f.In, f.Nav = &r.in, menu
		f.Ineligible = p.ineligible(r.Context())
	}
	p.Pages.Render(w, status, name, f)
	return nil
}

func seeOther(w http.ResponseWriter, r *request, to string) error {
	http.Redirect(w, r.Request, to, http.StatusSeeOther)
	return nil
}

func (p *Pages) fail(w http.ResponseWriter, r *http.Request, f web.Failure) {
	asked := &request{Request: r}
	asked.in, _ = p.sessions.of(r, false)
	p.show(w, asked, f.Status, "error", &frame{Frame: web.Frame{Title: f.Title, Reload: f.Announce(w, r)}, Body: f})
}

// refuse answers for an error of the service, or with the page of a web.Failure.
func (p *Pages) refuse(w http.ResponseWriter, r *request, err error) {
	if page, is := errors.AsType[web.Failure](err); is {
		p.fail(w, r.Request, page)
		return
	}
	refused, is := errors.AsType[*admin.Refusal](err)
	if !is {
		refused = &admin.Refusal{Status: http.StatusInternalServerError, Message: "report this"}
	}
	f := web.Failure{Status: refused.Status, Title: "This wasn't done", Text: sentence(refused),
		Next: "Go back and change what is wrong.", Link: "/", Label: "To the receivers"}
	if r.Method == http.MethodGet {
		f.Title, f.Next = "This can't be shown", "Look at the receivers instead."
	}
	if refused.Status == http.StatusServiceUnavailable {
		f.After, f.Next = 5, "Send it again in a moment: nothing is done twice."
		if r.Method == http.MethodGet {
			f.Next = "This page reloads by itself in a moment."
		}
	}
	p.fail(w, r.Request, f)
}

// pagesOf names the pages that correspond to calls in messages of the operator API.
var pagesOf = strings.NewReplacer(
	"GET /v1/receivers", "the page Receivers", "GET /v1/throttle/explain", "the page Throttles", "GET /v1/throttle", "the page Throttles",
	"GET /v1/workspaces/{id}/keys", "the keys of the workspace", "its GET /v1/verifications", "its list of verifications",
	"GET /v1/users", "the people of a workspace", "GET /v1/cluster/members", "the page Cluster", "GET /v1/workspaces", "the page Workspaces",
	"`rollcall receivers show`", "its page", "`rollcall cluster members`", "the page Cluster",
	"send the same call again", "try again", "give --force (\"force\":true)", "tick the box", "ask another node",
	"open the pages of another node")

// sentence writes a refusal as a sentence for a page.
func sentence(r *admin.Refusal) string { return web.Sentence(plainly(r)) }

// plainly returns an error of the service, with names of pages in place of calls.
func plainly(err error) string { return pagesOf.Replace(err.Error()) }

// bearable reports whether browsers keep our cookie: they do with https, or if the listener is on loopback.
func (p *Pages) bearable(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return p.tls || strings.EqualFold(host, "localhost") || err == nil && at.IsLoopback()
}

func stateWord(state any) string {
	return strings.ReplaceAll(strings.Replace(fmt.Sprint(state), "waiting_", "waiting for ", 1), "_", " ")
}

func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }

// untilText writes a future time, with its date if it is on another day.
func untilText(now func() time.Time) func(time.Time) string {
	return func(t time.Time) string {
		if t.UTC().Truncate(24*time.Hour) != now().UTC().Truncate(24*time.Hour) {
			return web.When(t)
		}
		return web.Clock(t)
	}
}

func rateText(r float64) string { return fmt.Sprintf("%.1f/s", r) }

func (p *Pages) left(until time.Time) string { return web.Age(max(0, until.Sub(p.now()).Seconds())) }
