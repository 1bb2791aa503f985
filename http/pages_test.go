package http_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// pageRig is an API whose pages do what the path says: /refused/… tells what was refused, /do/OPERATION/ID acts.
func pageRig(t *testing.T, rows httpd.Rows, name string) *edge {
	e := (*edge)(nil)
	var acting ledger.Acting
	e = newEdge(t, func(o *httpd.Options) {
		o.Pages = func(ctx *fasthttp.RequestCtx) {
			p := httpd.PageRequestOf(ctx)
			if p.Refused != "" {
				ctx.SetStatusCode(p.Status)
				ctx.SetBodyString("refused " + string(p.Refused) + " " + p.ID)
				return
			}
			ctx.SetBodyString("page " + string(ctx.Path()) + " " + p.Client.String())
			part := strings.Split(string(ctx.Path()), "/")
			if len(part) != 4 || part[1] != "do" {
				return
			}
			operation := map[string]httpd.Operation{"create": httpd.Create, "detail": httpd.Detail,
				"download": httpd.Download}[part[2]]
			p.Do(httpd.Act{Operation: operation, Workspace: e.workspace, User: uuid.UUID{7}, Verification: part[3],
				Rows: rows, Name: name, Acting: acting})
		}
	})
	acting = e.signsIn(t)
	return e
}

// signsIn makes a member of the edge's workspace, signed in.
func (e *edge) signsIn(t *testing.T) ledger.Acting {
	t.Helper()
	link := ledger.Link{ID: ledger.Hash{1}, Purpose: ledger.InviteLink, Workspace: e.workspace, Email: "anna@acme.test",
		Role: ledger.Member, MadeBy: "operator"}
	session := ledger.NewSession{ID: ledger.Hash{2}, Life: time.Hour}
	_, err := e.book.MakeLink(t.Context(), link)
	if err == nil {
		_, err = e.book.AcceptLink(t.Context(), ledger.Accept{Link: link.ID, User: uuid.New(), Password: "x",
			Session: session})
	}
	effort.OK(t, err)
	return ledger.Acting{Session: session.ID, Idle: time.Hour, Workspace: e.workspace, Role: ledger.Member}
}

// page asks for one.
func (e *edge) page(t *testing.T, method, path string, headers map[string]string) (answer, string) {
	t.Helper()
	a, err := e.try(call{method: method, path: path, headers: headers})
	effort.OK(t, err, method, path)
	return a, string(a.body)
}

func TestPagesGetWhatIsNotOfTheAPI(t *testing.T) {
	e := pageRig(t, httpd.Rows{}, "")
	for path, want := range map[string]string{
		"/": "page / 127.0.0.1", "/w/x": "page /w/x 127.0.0.1", "/v10": "page /v10 127.0.0.1",
		"/vip": "page /vip 127.0.0.1",
	} {
		browser := map[string]string{"Accept": "text/html,*/*;q=0.8"}
		if a, text := e.page(t, "GET", path, browser); a.status != 200 || text != want || a.header.Get("X-Request-Id") == "" {
			t.Errorf("GET %s: %d %q, want %q", path, a.status, text, want)
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/other", "/v2/credits", "/v10", "/w/../v1/credits", "//v1/credits",
		"/w%2fx"} {
		if a, text := e.page(t, "GET", path, nil); a.status != 404 || a.code() != string(api.RouteNotFound) ||
			a.header.Get("Link") != `</docs/errors#route_not_found>; rel="help"` {
			t.Errorf("GET %s: %d %q with the link %q, want the API's 404", path, a.status, text, a.header.Get("Link"))
		}
	}
	if a, _ := e.page(t, "GET", "/openapi.yaml", nil); a.status != 200 || a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("the description: %d", a.status)
	}
	a := e.do(get("/v1/credits"))
	effort.ErrorIf(t, a.status != 200 || string(a.body) != `{"credits":1000000}`, "credits: %d %s", a.status, a.body)
}

func TestPagesAreNowhereWithoutPages(t *testing.T) {
	e := newEdge(t, nil)
	for _, path := range []string{"/", "/sign-in", "/assets/app.css"} {
		a, _ := e.page(t, "GET", path, nil)
		effort.ErrorIf(t, a.status != 404 || a.code() != string(api.RouteNotFound) || a.header.Get("Link") != "",
			"GET %s: %d %s", path, a.status, a.body)
	}
}

func TestPagesAreToldWhatIsRefused(t *testing.T) {
	e := pageRig(t, httpd.Rows{}, "")
	long := map[string]string{"Content-Type": "text/plain"}
	a, err := e.try(post("/x", long, strings.Repeat("a", 9<<10)))
	if err != nil || a.status != 422 || string(a.body) != "refused unexpected_body "+a.header.Get("X-Request-Id") {
		t.Errorf("a long body: %v %d %q", err, a.status, a.body)
	}
	if a, text := e.page(t, "GET", "/do/download/"+uuid.NewString(), nil); a.status != 404 ||
		text != "refused verification_not_found "+a.header.Get("X-Request-Id") {
		t.Errorf("no such results: %d %q", a.status, text)
	}
	if a, text := e.page(t, "GET", "/do/download/x", nil); a.status != 422 || !strings.HasPrefix(text, "refused invalid_verification_id") {
		t.Errorf("no id: %d %q", a.status, text)
	}
}

func TestPagesCreateAndReadAsTheAPIDoes(t *testing.T) {
	e := pageRig(t, httpd.Rows{}, "")
	identity := uuid.NewString()
	a, text := e.page(t, "POST", "/do/create/x", creation(identity, "10"))
	effort.FatalIf(t, a.status != 201 || !strings.Contains(text, uploadCanary) ||
		a.header.Get("Content-Type") != "application/json", "create: %d %s", a.status, text)
	again := e.do(post("/v1/verifications", creation(identity, "10")))
	effort.Is(t, again.status, 200, "the API recovers", again.body)
	effort.Is(t, string(again.body), text, "the API recovers")
	other, _ := e.page(t, "POST", "/do/create/x", creation(identity, "11"))
	effort.Is(t, other.status, 409, "another length", other.body)
	effort.Is(t, other.code(), string(api.IdempotencyReused), "another length")
	id := text[strings.Index(text, `"id":"`)+6:][:36]
	detail, shown := e.page(t, "GET", "/do/detail/"+id, nil)
	same := e.do(get("/v1/verifications/" + id))
	effort.ErrorIf(t, detail.status != 200 || shown != string(same.body) || detail.header.Get("Retry-After") != "1",
		"detail: %d %s, want %s", detail.status, shown, same.body)
}

func TestPagesDownloadWhatIsWanted(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	settled := []ledger.Result{
		{Ordinal: 0, Email: "a@x.test", Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: at},
		{Ordinal: 1, Email: "=b@x.test", Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: at},
		{Ordinal: 2, Email: "c@x.test", Outcome: smtp.Invalid, Reason: smtp.MailboxFull, At: at},
	}
	const head = "email,result,message,checked_at\n"
	for _, c := range []struct {
		name, file string
		rows       httpd.Rows
		emails     []string
		saved      string
	}{
		{"all", "", httpd.Rows{}, []string{"a@", "=b@", "c@"}, ""},
		{"one outcome", "ü;b.csv", httpd.Rows{Outcome: smtp.Invalid}, []string{"=b@", "c@"},
			`attachment; filename="__b.csv"; filename*=UTF-8''%C3%BC%3Bb.csv`},
		{"one reason", "x.csv", httpd.Rows{Reason: smtp.MailboxFull}, []string{"c@"},
			`attachment; filename="x.csv"; filename*=UTF-8''x.csv`},
		{"for a spreadsheet", "", httpd.Rows{Spreadsheet: true}, []string{"a@", "'=b@", "c@"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := pageRig(t, c.rows, c.file)
			id := e.verified(3, settled)
			a, text := e.page(t, "GET", "/do/download/"+id.String(), nil)
			want := head
			for _, email := range c.emails {
				for _, r := range settled {
					if strings.HasSuffix(email, r.Email[:strings.IndexByte(r.Email, '@')+1]) {
						want += email + "x.test," + r.Outcome.String() + "," + r.Reason.Message() + ",2023-11-14T22:13:20.000Z\n"
					}
				}
			}
			effort.Is(t, a.status, 200)
			effort.Is(t, text, want)
			if c.saved == "" {
				c.saved = `attachment; filename="results-` + id.String() + `.csv"`
			}
			effort.Is(t, a.header.Get("Content-Disposition"), c.saved, "saved as")
		})
	}
}

func TestPagesAreRefusedWhileTheServerStops(t *testing.T) {
	block, arrived := make(chan struct{}), make(chan struct{})
	e := newEdge(t, func(o *httpd.Options) {
		o.Pages = func(ctx *fasthttp.RequestCtx) {
			p := httpd.PageRequestOf(ctx)
			if p.Refused != "" {
				ctx.SetStatusCode(p.Status)
				ctx.SetBodyString("refused " + string(p.Refused))
				return
			}
			if string(ctx.Path()) == "/slow" {
				close(arrived)
				<-block
			}
		}
	})
	first := make(chan error, 1)
	go func() {
		_, err := e.try(get("/slow"))
		first <- err
	}()
	<-arrived
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ended <- e.server.Stop(ctx)
	}()
	for {
		p := effort.Must(e.try(get("/other", "X-API-Key", "-")))(t)
		if p.status == http.StatusServiceUnavailable && string(p.body) == "refused service_unavailable" {
			break
		}
	}
	close(block)
	effort.OK(t, errors.Join(<-first, <-ended))
}
