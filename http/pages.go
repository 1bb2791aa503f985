package http

import (
	"bytes"
	"context"
	"net/netip"
	"regexp"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/smtp"
)

// PageRequest has what Options.Pages may know about a request in addition to the request itself, and what it may ask
// the server to do. Only one goroutine at a time may use it.
type PageRequest struct {
	ID         string     // also in the header X-Request-Id of the answer
	Client     netip.Addr // address of the client, as trusted proxies report it
	Network    string     // network of Client, by which limits count
	Refused    api.Code   // code of a refusal that Pages has to show; "": none
	Message    string     // message of Refused, in one sentence
	Status     int        // of Refused
	RetryAfter int        // for Refused, in seconds; 0: none
	Route      string     // route in metrics: Options.Pages sets it to one of Options.PageRoutes; otherwise "pages"

	act  *Act
	move func(to uuid.UUID) bool  // nil outside of a server, like rate
	rate func(user uuid.UUID) int // takes a token of a user
}

// Act is an operation of the API that the server does for a signed-in user. It replaces the answer of Options.Pages,
// which has checked that the user may do it.
type Act struct {
	Operation    Operation
	Workspace    uuid.UUID
	User         uuid.UUID     // the user's requests count like those of a key
	Verification string        // the id in the path; not for Create
	Acting       ledger.Acting // session; for Create

	Rows Rows   // of Download: which rows
	Name string // for Download: the name of the file, without the directory
}

// Operation is the operation of an Act.
type Operation int

// The operations. The answers of Create and Detail are those of the API, also when it refuses; a refused Download goes
// back to Options.Pages.
const (
	Create   Operation = iota + 1 // POST /v1/verifications, with the same headers
	Detail                        // GET /v1/verifications/{id}
	Download                      // GET /v1/verifications/{id}/results
)

// Rows says which rows of the results are wanted, and how.
type Rows struct {
	Outcome     smtp.Outcome // Undecided: all
	Reason      smtp.Reason  // ReasonNone: all
	Spreadsheet bool         // no cell may begin like a formula
}

type pageKeyType struct{}

var pageKey pageKeyType

// WithPage returns a context with a PageRequest. Its parent must not be a context of fasthttp, because waiting for
// one is a data race with the end of the server.
func WithPage(ctx context.Context, p *PageRequest) context.Context {
	return context.WithValue(ctx, pageKey, p)
}

// PageRequestOf returns the PageRequest of a request to Options.Pages. Elsewhere it is empty.
func PageRequestOf(ctx context.Context) *PageRequest {
	if p, ok := ctx.Value(pageKey).(*PageRequest); ok {
		return p
	}
	return &PageRequest{}
}

// BelongsTo sets the owner of a request, a workspace or a user. Call it as soon as the owner is known: from then on
// the request takes one of the owner's places, and no longer one that strangers share. It returns false if the owner
// has no place left.
func (p *PageRequest) BelongsTo(tenant uuid.UUID) bool { return p.move == nil || p.move(tenant) }

// RateOf counts the request as one of a signed-in user. It returns 0, or after how many seconds the user may send
// another request.
func (p *PageRequest) RateOf(user uuid.UUID) int {
	if p.rate == nil {
		return 0
	}
	return p.rate(user)
}

// Do makes the server act after Options.Pages has returned. The answer of Options.Pages is dropped.
func (p *PageRequest) Do(a Act) { p.act = &a }

// versioned matches the paths of an API, of this version or another.
var versioned = regexp.MustCompile(`^/v([0-9]+)(/|$)`)

// isPage reports whether a path that is no route of the API may be a page's. If it begins with a version, it is one
// only if the client accepts HTML, because a program with a wrong version should get JSON.
func (s *Server) isPage(r *request, path []byte) bool {
	if s.options.Pages == nil || len(path) == 0 || path[0] != '/' {
		return false
	}
	version := versioned.FindSubmatch(path)
	return version == nil || string(version[1]) != "1" &&
		bytes.Contains(r.Request.Header.Peek(fasthttp.HeaderAccept), []byte("text/html"))
}

func (s *Server) beginPage(r *request) {
	client := s.client(r)
	r.route = routePages
	r.page = &PageRequest{ID: listen.RequestID(r.RequestCtx), Client: client, Network: listen.NetworkOf(client),
		move: func(to uuid.UUID) bool { s.leave(r); r.key.Workspace = to; return s.enter(r) },
		rate: func(user uuid.UUID) int {
			wait := s.limits.pages.takeToken(user.String())
			if wait == 0 {
				return 0
			}
			s.metrics.limited.WithLabelValues("pages").Inc()
			return seconds(wait, 60)
		}}
	r.SetUserValue(pageKey, r.page)
}

// pages lets Options.Pages answer, and does the operation that it asks for.
func (s *Server) pages(r *request) {
	if r.hugeBody {
		s.refuse(r, api.UnexpectedBody, 0)
		return
	}
	r.key.Workspace = ledger.Strangers // until BelongsTo names the owner
	if !s.enter(r) {
		s.refuse(r, api.Overloaded, listen.Jitter(10, 10))
		return
	}
	s.options.Pages(r.RequestCtx)
	if r.page.act == nil {
		return
	}
	s.leave(r)
	s.act(r, *r.page.act)
}

func (s *Server) act(r *request, a Act) {
	r.Response.Reset()
	r.Response.Header.Set(listen.HeaderRequestID, r.page.ID)
	r.Response.Header.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	r.key = ledger.Key{ID: "user-" + a.User.String(), Workspace: a.Workspace}
	r.idText, r.rows, r.fileName = []byte(a.Verification), a.Rows, a.Name
	r.placed = false
	if !s.enter(r) {
		s.refuse(r, api.Overloaded, listen.Jitter(10, 10))
		return
	}
	if !takeRate(s, r, a.Operation == Create) {
		return
	}
	ctx, cancel := context.WithTimeout(r.span.Under(context.Background()), ledgerTimeout)
	defer cancel()
	ctx = ledger.WithTenant(ledger.WithActor(ctx, "user:"+a.User.String()), a.Workspace)
	if a.Operation == Create {
		s.create(ledger.WithActing(ctx, a.Acting), r)
		return
	}
	var ok bool
	if r.id, ok = parseUUID(r.idText); !ok {
		s.refuse(r, api.InvalidID, 0)
		return
	}
	if a.Operation == Detail {
		s.detail(ctx, r)
		return
	}
	s.results(r)
}

// refuse answers a refused request. If the client accepts HTML, the answer is a page. Otherwise it is the API's
// answer, with a link to the code in the guide if the guide is served.
func (s *Server) refuse(r *request, code api.Code, retryAfter int) {
	if r.page == nil || r.page.act != nil && r.page.act.Operation != Download {
		listen.WriteIssue(r.RequestCtx, code, retryAfter)
		if s.options.Pages != nil {
			r.Response.Header.Set(fasthttp.HeaderLink, "</docs/errors#"+string(code)+`>; rel="help"`)
		}
		return
	}
	status, message := listen.Refusal(code)
	r.Response.Reset()
	r.Response.Header.Set(listen.HeaderRequestID, r.page.ID)
	r.page.act = nil
	r.page.Refused, r.page.Message, r.page.Status, r.page.RetryAfter = code, message, status, retryAfter
	s.options.Pages(r.RequestCtx)
	r.page.act = nil
}

func (w Rows) has(row ledger.Result) bool {
	return (w.Outcome == smtp.Undecided || row.Outcome == w.Outcome) &&
		(w.Reason == smtp.ReasonNone || row.Reason == w.Reason)
}

// guardCell keeps a spreadsheet from taking a cell for a formula.
func guardCell(text string) string {
	if text != "" && (text[0] == '=' || text[0] == '+' || text[0] == '-' || text[0] == '@') {
		return "'" + text
	}
	return text
}

// attachment names a file to save in both forms of RFC 6266: ASCII for old programs, and the complete name (RFC 8187).
func attachment(name string) string {
	plain, whole := make([]byte, 0, len(name)), make([]byte, 0, 3*len(name))
	for i := range len(name) {
		c := name[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		switch {
		case word:
			plain, whole = append(plain, c), append(whole, c)
		case c < 0x80 || c >= 0xc0: // one underscore for each character
			plain = append(plain, '_')
			fallthrough
		default:
			whole = append(whole, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return `attachment; filename="` + string(plain) + `"; filename*=UTF-8''` + string(whole)
}
