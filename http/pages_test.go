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
)

// pageRig is an API whose pages say what was asked for or refused; /download/ID downloads.
func pageRig(t *testing.T) *edge {
	e := (*edge)(nil)
	e = newEdge(t, func(o *httpd.Options) {
		o.Pages = func(ctx *fasthttp.RequestCtx) {
			p := httpd.PageRequestOf(ctx)
			if p.Refused != "" {
				ctx.SetStatusCode(p.Status)
				ctx.SetBodyString("refused " + string(p.Refused) + " " + p.ID)
				return
			}
			ctx.SetBodyString("page " + string(ctx.Path()) + " " + p.Client.String())
			if id, found := strings.CutPrefix(string(ctx.Path()), "/download/"); found {
				p.Do(httpd.Act{Operation: httpd.Download, Workspace: e.workspace, User: uuid.UUID{7}, Verification: id})
			}
		}
	})
	return e
}

// page asks for one.
func (e *edge) page(t *testing.T, method, path string, headers map[string]string) (answer, string) {
	t.Helper()
	a, err := e.try(call{method: method, path: path, headers: headers})
	effort.OK(t, err, method, path)
	return a, string(a.body)
}

func TestPagesGetWhatIsNotOfTheAPI(t *testing.T) {
	e := pageRig(t)
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
	e := pageRig(t)
	long := map[string]string{"Content-Type": "text/plain"}
	a, err := e.try(post("/x", long, strings.Repeat("a", 9<<10)))
	if err != nil || a.status != 422 || string(a.body) != "refused unexpected_body "+a.header.Get("X-Request-Id") {
		t.Errorf("a long body: %v %d %q", err, a.status, a.body)
	}
	if a, text := e.page(t, "GET", "/download/"+uuid.NewString(), nil); a.status != 404 ||
		text != "refused verification_not_found "+a.header.Get("X-Request-Id") {
		t.Errorf("no such results: %d %q", a.status, text)
	}
	if a, text := e.page(t, "GET", "/download/x", nil); a.status != 422 || !strings.HasPrefix(text, "refused invalid_verification_id") {
		t.Errorf("no id: %d %q", a.status, text)
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
