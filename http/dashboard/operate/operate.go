package operate

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	waiting "rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

//go:embed pages
var pageFiles embed.FS

// formMax bounds the body of a form.
const formMax = 8 << 10

// pageTimeout bounds what one page asks of nodes and of the ledger.
const pageTimeout = 15 * time.Second

// Options are what the pages need.
type Options struct {
	Desk  *admin.Desk
	Token string // the admin token; cookies are sealed with a key that is made of it and of random bytes
	TLS   bool   // browsers reach the listener by https
	Log   *slog.Logger
	Now   func() time.Time // nil: the clock
}

// Pages are what operators see in a browser. Safe for concurrent use.
type Pages struct {
	desk    *admin.Desk
	tls     bool
	log     *slog.Logger
	now     func() time.Time
	keeper  *keeper
	assets  *view.Assets
	pages   *view.Pages
	mux     *http.ServeMux
	guarded http.Handler
	lands   map[string]bool // patterns of the pages that somebody may land on after signing in
	audits  audits
}

// New makes the pages.
func New(o Options) (*Pages, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Pages{desk: o.Desk, tls: o.TLS, log: o.Log, now: o.Now, mux: http.NewServeMux(), lands: map[string]bool{}}
	var err error
	if p.keeper, err = newKeeper(o.Token, o.Now); err != nil {
		return nil, err
	}
	if p.assets, err = view.NewAssets(); err != nil {
		return nil, err
	}
	if p.pages, err = view.NewPages(p.assets, pageFiles, []string{"pages/parts/*.html"}, template.FuncMap{
		"credits": view.Thin[ledger.Credits], "int": thin, "age": ageText, "percent": percent, "rate": rateText,
		"left": p.left, "countdown": p.countdown, "sourcePath": sourcePath, "sourceRule": admin.SourceRule,
		"receiver": receiverPath, "source": waiting.SourceName, "state": stateOf, "explain": explainPath,
		"moment": func(t api.Time) time.Time { return time.Time(t) }, "plain": nameText, "sentence": asSentence,
		"fieldsOf": fieldsOf, "word": stateWord}); err != nil {
		return nil, err
	}
	for _, r := range routes {
		p.mux.Handle(r.pattern, p.admit(r))
		p.lands[r.pattern] = strings.HasPrefix(r.pattern, "GET ") && !r.open && !r.part
	}
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, view.Failure{Status: http.StatusForbidden, Title: "This request came from another site",
			Text: "Your browser says that another site sent this form. Nothing was changed.",
			Next: "Open the page here and send the form again."})
	}))
	p.guarded = cross.Handler(http.HandlerFunc(p.serve))
	return p, nil
}

// Link makes a path that signs somebody in once, and says until when it can.
func (p *Pages) Link(author string, readOnly bool) (string, time.Time) {
	name, until := p.keeper.newCode(author, readOnly)
	return "/link/" + name, until
}

type requestKey struct{}

// requestID is the number of a request, for its page and the log.
func requestID(r *http.Request) string {
	id, _ := r.Context().Value(requestKey{}).(string)
	return id
}

// ServeHTTP answers one request.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := uuid.NewString()
	w.Header().Set("X-Request-Id", id)
	view.Secure(w.Header(), "", "", p.tls)
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), requestKey{}, id), pageTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	defer func() {
		if fault := recover(); fault != nil {
			p.log.Error("operator page panicked", "request", id, "err", fmt.Sprintf("%T", fault))
			p.fail(w, r, view.Failure{Status: http.StatusInternalServerError, Title: "A fault on our side",
				Text: "This page couldn't be made.", Next: "Use the command instead, and report the request number below."})
		}
	}()
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	p.guarded.ServeHTTP(w, r)
}

// serve finds the route. What the mux would answer by itself gets a page of ours.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request) {
	if _, pattern := p.mux.Handler(r); pattern != "" {
		p.mux.ServeHTTP(w, r)
		return
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if _, pattern := p.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "" {
			w.Header().Set("Allow", method)
			p.fail(w, r, view.Failure{Status: http.StatusMethodNotAllowed, Title: "This page can't handle this request",
				Text: "The page doesn't support this kind of request.", Next: "Go back and open the page again."})
			return
		}
	}
	p.fail(w, r, view.Failure{Status: http.StatusNotFound, Title: "There is nothing here",
		Text: "This page does not exist.", Next: "Check the link.", Link: "/", Label: "To the receivers"})
}

// request is one that was let in.
type request struct {
	*http.Request
	in session
}

// admit lets in who may use a route.
func (p *Pages) admit(to route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := &request{Request: r}
		in, err := p.keeper.of(r)
		if to.open {
			asked.in = in
			to.handle(p, w, asked)
			return
		}
		if err != nil {
			p.signedOut(w, r, to)
			return
		}
		if in.ReadOnly && to.changes {
			p.fail(w, r, view.Failure{Status: http.StatusForbidden, Title: "You have read-only access",
				Text: "Your link was made with --read-only. Nothing was changed.",
				Next: "Run `rollcall operate` without it to change something.", Link: "/", Label: "To the receivers"})
			return
		}
		if now := p.now(); !to.part && now.Sub(in.Seen) > time.Minute {
			in.Seen = now
			p.keeper.give(w, r, in)
		}
		asked.in = in
		ctx := ledger.WithActor(r.Context(), "operator")
		if in.Author != "" {
			ctx = ledger.WithAuthor(ctx, in.Author)
		}
		asked.Request = r.WithContext(ctx)
		to.handle(p, w, asked)
	})
}

// signedOut answers who has no session.
func (p *Pages) signedOut(w http.ResponseWriter, r *http.Request, to route) {
	switch {
	case to.part:
		http.Error(w, "You were signed out.", http.StatusUnauthorized)
	case to.changes:
		p.fail(w, r, view.Failure{Status: http.StatusUnauthorized, Title: "You were signed out", Text: "Nothing was changed.",
			Next: "Run `rollcall operate` and open its link, then send the form again.", Link: "/sign-in", Label: "How to sign in"})
	default:
		p.keepNext(w, r, r.URL.RequestURI())
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	}
}

// frame is what the layout of every page shows, around the body of one.
type frame struct {
	view.Frame
	Here  string // which entry of the head is this page
	In    *session
	Unfit []unfit // nodes that may not probe
	Body  any
}

// unfit is a node that may not probe.
type unfit struct{ Who, Why string }

// unfit gives the nodes that may not probe, this one first. It asks nobody: what this node knows of others is enough.
func (p *Pages) unfit(ctx context.Context) (list []unfit) {
	if ok, why := p.desk.Probing(); !ok {
		list = append(list, unfit{"This node", why})
	}
	known, err := p.desk.Members(ctx)
	if err != nil {
		return list
	}
	for _, m := range known.Members {
		if m.State == admin.StateUnfit && !m.This {
			list = append(list, unfit{"Node " + m.Name, "Its identity fails a check."})
		}
	}
	return list
}

// show answers with a page for who is signed in.
func (p *Pages) show(w http.ResponseWriter, r *request, status int, name string, f *frame) {
	f.RequestID, f.Colours = requestID(r.Request), view.ColoursOf(r.Request)
	if r.in.ID != "" {
		f.In = &r.in
		f.Unfit = p.unfit(r.Context())
	}
	p.pages.Render(w, status, name, f)
}

// part answers with a part of a page that is asked for again, or 304 when it has not changed.
func (p *Pages) part(w http.ResponseWriter, r *request, name string, data any) {
	body := p.pages.Part(name, "live", data)
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body = []byte(strings.Replace(string(body), `data-etag=""`, `data-etag="`+template.HTMLEscapeString(etag)+`"`, 1))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// fail answers with an error page.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, f view.Failure) {
	reload := 0
	if f.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.After))
		if r.Method == http.MethodGet {
			reload = max(f.After, 2)
		}
	}
	asked := &request{Request: r}
	if in, err := p.keeper.of(r); err == nil {
		asked.in = in
	}
	p.show(w, asked, f.Status, "error", &frame{Frame: view.Frame{Title: f.Title, Reload: reload}, Body: f})
}

// refuse answers for an error of the desk.
func (p *Pages) refuse(w http.ResponseWriter, r *request, err error) {
	var refused *admin.Refusal
	if !errors.As(err, &refused) {
		refused = &admin.Refusal{Status: http.StatusInternalServerError, Message: "report this"}
	}
	f := view.Failure{Status: refused.Status, Title: "This wasn't done", Text: sentence(refused),
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

// pagesOf says where in the pages is what a message of the operator API names.
var pagesOf = strings.NewReplacer(
	"GET /v1/receivers", "the page Receivers", "GET /v1/throttle/explain", "the page Throttles", "GET /v1/throttle", "the page Throttles",
	"GET /v1/workspaces/{id}/keys", "the keys of the workspace", "its GET /v1/verifications", "its list of verifications",
	"GET /v1/users", "the people of a workspace", "GET /v1/cluster/members", "the page Cluster", "GET /v1/workspaces", "the page Workspaces",
	"`rollcall receivers show`", "its page", "`rollcall cluster members`", "the page Cluster",
	"send the same call again", "try again", "give --force (\"force\":true)", "tick the box", "ask another node",
	"open the pages of another node")

// sentence is a refusal in words for a page.
func sentence(r *admin.Refusal) string { return asSentence(plainly(r)) }

// plainly is an error of the desk with the names of pages.
func plainly(err error) string { return pagesOf.Replace(err.Error()) }

// asSentence begins a text as a sentence does, and ends it so.
func asSentence(text string) string {
	if text == "" {
		return "It was refused."
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// bearable reports whether browsers keep our cookie: https, or a listener on loopback.
func (p *Pages) bearable(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return p.tls || strings.EqualFold(host, "localhost") || err == nil && at.IsLoopback()
}

// thin writes a whole number with groups.
func thin(n int) string { return view.Thin(int64(n)) }

// stateWord is a state of a verification in words.
func stateWord(state any) string {
	return strings.ReplaceAll(strings.Replace(fmt.Sprint(state), "waiting_", "waiting for ", 1), "_", " ")
}

// percent is a part, 0 to 1, in whole percent.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// rateText is a rate a second.
func rateText(r float64) string { return fmt.Sprintf("%.1f/s", r) }

// ageText is a number of seconds, in the unit that suits it.
func ageText(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}

// left is how long it is until a moment.
func (p *Pages) left(until time.Time) string { return ageText(max(0, until.Sub(p.now()).Seconds())) }
