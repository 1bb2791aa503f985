package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
)

// tableRow is one request, and the answer that the error table requires.
type tableRow struct {
	name   string
	call   call
	status int
	code   string
}

// table has the names that the rows of the error table use.
type table struct {
	mine       string // a verification of the first customer
	identity   string // idempotency key of another verification, of 10 bytes
	otherKey   string // of the second customer
	unknownKey string // well-formed, but never stored
	brokenKey  string // the first customer's key with a typing error
}

const (
	create = "/v1/verifications"
	evil   = "https://evil.example"
)

func header(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// fresh returns the headers of a new creation, and more headers.
func fresh(more ...string) map[string]string {
	return header(append([]string{"Idempotency-Key", uuid.NewString(), "X-Upload-Content-Length", "10"}, more...)...)
}

// common returns the rows that every operation has.
func (x table) common() []tableRow {
	detail := create + "/" + x.mine
	return []tableRow{
		{"no key", get("/v1/credits", "X-API-Key", "-"), 401, "missing_api_key"},
		{"empty key", get("/v1/credits", "X-API-Key", ""), 401, "missing_api_key"},
		{"unknown key", get("/v1/credits", "X-API-Key", x.unknownKey), 401, "invalid_api_key"},
		{"broken key", get("/v1/credits", "X-API-Key", x.brokenKey), 401, "invalid_api_key"},
		{"no kind of key", get(create, "X-API-Key", "hello"), 401, "invalid_api_key"},
		{"foreign origin", get(create, "Origin", evil), 403, "origin_not_allowed"},
		{"key before origin", get(create, "Origin", evil, "X-API-Key", "x"), 401, "invalid_api_key"},
		{"origin before syntax", get(create+"?limit=0", "Origin", evil), 403, "origin_not_allowed"},
		{"foreign origin at credits", get("/v1/credits", "Origin", evil), 200, ""},
		{"credits", get("/v1/credits"), 200, ""},
		{"unknown path", get("/v2/credits"), 404, "route_not_found"},
		{"unknown path without a key", get("/", "X-API-Key", "-"), 404, "route_not_found"},
		{"path under results", get(detail + "/results/x"), 404, "route_not_found"},
		{"slash at the end", get(create + "/"), 404, "route_not_found"},
		{"wrong method", call{method: "DELETE", path: detail}, 405, "method_not_allowed"},
		{"wrong method without a key", call{method: "PUT", path: create, headers: header("X-API-Key", "-")},
			405, "method_not_allowed"},
		{"get of cancel", get(detail + "/cancel"), 405, "method_not_allowed"},
	}
}

// creates returns the rows of POST /v1/verifications.
func (x table) creates() []tableRow {
	identity := x.identity
	return []tableRow{
		{"create", post(create, fresh()), 201, ""},
		{"create with a small body", post(create, fresh(), "{}"), 201, ""},
		{"create with a name", post(create, fresh("X-Upload-Filename", "na%C3%AFve%20list.csv")), 201, ""},
		{"no identity", post(create, header("X-Upload-Content-Length", "10")), 422, "missing_idempotency_key"},
		{"identity no uuid", post(create, creation("abc", "10")), 422, "invalid_idempotency_key"},
		{"identity in braces", post(create, creation("{"+identity+"}", "10")), 422, "invalid_idempotency_key"},
		{"identity without dashes", post(create, creation(strings.ReplaceAll(identity, "-", ""), "10")),
			422, "invalid_idempotency_key"},
		{"no length", post(create, header("Idempotency-Key", identity)), 422, "missing_upload_length"},
		{"length 0", post(create, creation(identity, "0")), 422, "invalid_upload_length"},
		{"length -1", post(create, creation(identity, "-1")), 422, "invalid_upload_length"},
		{"length +5", post(create, creation(identity, "+5")), 422, "invalid_upload_length"},
		{"length 1.5", post(create, creation(identity, "1.5")), 422, "invalid_upload_length"},
		{"length 1e3", post(create, creation(identity, "1e3")), 422, "invalid_upload_length"},
		{"name with separator", post(create, fresh("X-Upload-Filename", "a%2Fb.csv")), 422, "invalid_filename"},
		{"body too large", post(create, fresh(), strings.Repeat("a", 8193)), 422, "unexpected_body"},
		{"body too large without a key", post(create, header("X-API-Key", "-"), strings.Repeat("a", 100000)),
			401, "missing_api_key"},
		{"body as large as may be", post(create, fresh(), strings.Repeat("a", 8192)), 201, ""},
		{"same identity, same length", post(create, creation(identity, "10")), 200, ""},
		{"same identity in capitals", post(create, creation(strings.ToUpper(identity), "10")), 200, ""},
		{"same identity, leading zero", post(create, creation(identity, "010")), 200, ""},
		{"same identity, other name", post(create, header("Idempotency-Key", identity,
			"X-Upload-Content-Length", "10", "X-Upload-Filename", "b.csv")), 200, ""},
		{"same identity, other length", post(create, creation(identity, "11")), 409, "idempotency_key_reused"},
		{"conflict before size", post(create, creation(identity, "99999999999999999999999")), 409, "idempotency_key_reused"},
		{"same identity, other workspace", post(create, header("Idempotency-Key", identity,
			"X-Upload-Content-Length", "11", "X-API-Key", x.otherKey)), 201, ""},
		{"largest file", post(create, creation(uuid.NewString(), strconv.Itoa(edgeFileBytes))), 201, ""},
		{"file too large", post(create, creation(uuid.NewString(), strconv.Itoa(edgeFileBytes+1))), 413, "file_too_large"},
		{"file beyond 64 bits", post(create, creation(uuid.NewString(), "99999999999999999999999")), 413, "file_too_large"},
	}
}

// histories returns the rows of GET /v1/verifications.
func (x table) histories() []tableRow {
	return []tableRow{
		{"history", get(create), 200, ""},
		{"history with all", get(create + "?limit=1&kind=bulk&unknown=1&unknown=2"), 200, ""},
		{"limit 0", get(create + "?limit=0"), 422, "invalid_limit"},
		{"limit 101", get(create + "?limit=101"), 422, "invalid_limit"},
		{"limit 257", get(create + "?limit=257"), 422, "invalid_limit"},
		{"limit empty", get(create + "?limit="), 422, "invalid_limit"},
		{"limit abc", get(create + "?limit=abc"), 422, "invalid_limit"},
		{"limit +5", get(create + "?limit=%2B5"), 422, "invalid_limit"},
		{"kind unknown", get(create + "?kind=Bulk"), 422, "invalid_kind"},
		{"cursor empty", get(create + "?cursor="), 422, "invalid_cursor"},
		{"cursor of our own making", get(create + "?cursor=abc"), 422, "invalid_cursor"},
		{"cursor too long", get(create + "?cursor=" + strings.Repeat("a", 513)), 422, "invalid_cursor"},
		{"parameter twice", get(create + "?limit=1&limit=2"), 422, "invalid_parameter"},
		{"parameter twice before its value", get(create + "?kind=x&kind=y&limit=0"), 422, "invalid_parameter"},
	}
}

// byID returns the rows of the three operations on one verification.
func (x table) byID() []tableRow {
	detail := create + "/" + x.mine
	return []tableRow{
		{"detail", get(detail), 200, ""},
		{"detail in capitals", get(create + "/" + strings.ToUpper(x.mine)), 200, ""},
		{"detail no uuid", get(create + "/123"), 422, "invalid_verification_id"},
		{"detail unknown", get(create + "/" + uuid.NewString()), 404, "verification_not_found"},
		{"detail of another workspace", get(detail, "X-API-Key", x.otherKey), 404, "verification_not_found"},
		{"body too large at detail", call{method: "GET", path: detail, body: strings.Repeat("a", 8193)},
			422, "unexpected_body"},
		{"results", get(detail + "/results"), 200, ""},
		{"results no uuid", get(create + "/123/results"), 422, "invalid_verification_id"},
		{"results unknown", get(create + "/" + uuid.NewString() + "/results"), 404, "verification_not_found"},
		{"results of another workspace", get(detail+"/results", "X-API-Key", x.otherKey), 404, "verification_not_found"},
		{"cancel no uuid", post(create+"/123/cancel", nil), 422, "invalid_verification_id"},
		{"cancel unknown", post(create+"/"+uuid.NewString()+"/cancel", nil), 404, "verification_not_found"},
		{"cancel of another workspace", post(detail+"/cancel", header("X-API-Key", x.otherKey)),
			404, "verification_not_found"},
		{"cancel with a large body", post(detail+"/cancel", nil, strings.Repeat("a", 8193)), 422, "unexpected_body"},
		{"cancel", post(detail+"/cancel", nil, "{}"), 200, ""},
		{"cancel again", post(detail+"/cancel", nil), 200, ""},
		{"description", get("/openapi.yaml", "X-API-Key", "-"), 200, ""},
	}
}

// TestRefusals sends every bad request of the error table, and a good request for each operation, on real
// connections. It checks that code and status are exactly those of the table.
func TestRefusals(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	x := table{mine: e.create("10").String(), identity: uuid.NewString()}
	_, x.otherKey, _ = e.customer("second")
	x.unknownKey, _ = api.NewKey()
	broken := []byte(e.key)
	broken[20] ^= 1
	x.brokenKey = string(broken)
	e.do(post(create, creation(x.identity, "10"))).must(t, 201, "first create")
	for _, c := range slices.Concat(x.common(), x.creates(), x.histories(), x.byID()) {
		t.Run(c.name, func(t *testing.T) {
			a := e.send(t, c.call)
			effort.Is(t, a.status, c.status, c.call.method, c.call.path, c.call.headers, a.body)
			effort.Is(t, a.code(), c.code, c.call.method, c.call.path, c.call.headers)
			if ra := a.header.Get("Retry-After"); ra != "" && a.status >= 400 {
				t.Errorf("Retry-After %q on a refusal that waiting doesn't end", ra)
			}
			effort.ErrorIf(t, a.status == 405 && a.header.Get("Allow") == "", "405 without Allow")
		})
	}
	effort.Not(t, e.wakes.Load(), 0, "cancel did not wake the engine")
}

// TestHeadAnswersAsGet: HEAD gets the status and headers of GET, and no body.
func TestHeadAnswersAsGet(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(3, results(2)).String()
	for _, path := range []string{
		"/v1/credits", "/v1/verifications", "/v1/verifications/" + id, "/v1/verifications/" + id + "/results",
		"/v1/verifications/" + uuid.NewString(), "/v1/verifications/" + uuid.NewString() + "/results",
		"/openapi.yaml",
	} {
		get, head := e.do(get(path)), e.do(call{method: "HEAD", path: path})
		effort.Is(t, get.status, head.status, path, "GET")
		effort.Is(t, len(head.body), 0, path, "GET")
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Content-Disposition"} {
			effort.Is(t, get.header.Get(name), head.header.Get(name), path, name, "for GET for HEAD")
		}
	}
}

// TestOptionsNeedsNoKey: OPTIONS answers, without a key, which methods a path supports.
func TestOptionsNeedsNoKey(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	a := e.do(call{method: "OPTIONS", path: "/v1/verifications", headers: map[string]string{"X-API-Key": "-"}})
	effort.ErrorIf(t, a.status != 204 || a.header.Get("Allow") != "GET, HEAD, POST, OPTIONS" || len(a.body) != 0,
		"got %d, Allow %q, %d bytes", a.status, a.header.Get("Allow"), len(a.body))
}

// TestRecoveredCreationHasTheSameURL: a repeated creation and the verification's detail have the same URL. Once all
// bytes are stored there is no URL.
func TestRecoveredCreationHasTheSameURL(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	headers := creation(uuid.NewString(), "4")
	read := func() (c api.Creation) {
		a := e.do(post("/v1/verifications", headers))
		effort.OK(t, json.Unmarshal(a.body, &c))
		return c
	}
	first, second := read(), read()
	effort.FatalIf(t, first.Upload == nil || second.Upload == nil || first.ID != second.ID ||
		*first.Upload != *second.Upload, "first %+v, second %+v", first, second)
	var detail api.Detail
	effort.OK(t, json.Unmarshal(e.do(get("/v1/verifications/"+first.ID)).body, &detail))
	effort.ErrorIf(t, detail.Upload == nil || *detail.Upload != *first.Upload,
		"the detail has %+v, want %+v", detail.Upload, first.Upload)
	e.upload(uuid.MustParse(first.ID), 4)
	if third := read(); third.Upload != nil || third.Status != "preparing" || third.ID != first.ID {
		t.Errorf("after the upload: %+v", third)
	}
}

// requestsInOne is how many requests are drawn at a time. One takes a quarter of a millisecond.
const requestsInOne = 20

// TestGeneratedRequests sends requests that are valid, nearly valid, or hostile. Each answer is one that openapi.yaml
// describes (the rig checks that), and none is an internal error.
func TestGeneratedRequests(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "hundreds of requests")
	e := newEdge(t, nil)
	known := e.create("10").String()
	long, hostile := strings.Repeat("a", 4000), "http://evil.example"
	one := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) } // "-" sends none
	ids := one(known, known, strings.ToUpper(known), uuid.NewString(), known[1:], "%00", "..", "null", "-1", "{id}",
		"%F0%9F%98%80", long, uuid.Nil.String())
	methods := one("GET", "GET", "POST", "POST", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "BREW")
	paths := one("/v1/credits", "/v1/verifications", "/v1/verifications", "/v1/verifications/ID", "/v2/credits", "/v0",
		"/none",
		"/v1/verifications/ID/results", "/v1/verifications/ID/cancel", "/v1/verifications/ID/other", "/v1", "/v1/credits/")
	queries := one("", "", "", "?limit=5&kind=bulk", "?limit=0", "?limit=x", "?cursor="+long[:600], "?kind=all", "?a=b",
		"?limit=1&limit=2", "?%ff=%", "?cursor=AAAA")
	bodies := one("", "", "{}", "\x00\xff", strings.Repeat("x", 9000))
	values := map[string]*rapid.Generator[string]{
		"X-API-Key":               one(e.key, e.key, e.key, e.key, "-", e.key[:20], "rc_x_y", "é", long),
		"Idempotency-Key":         one("-", "new", "new", "new", uuid.Nil.String(), "1", known+","+known, "{"+known+"}"),
		"X-Upload-Content-Length": one("-", "1", "10", "10", "0", "-1", "1e3", "1048577", "9223372036854775808", " 7 ", ""),
		"X-Upload-Filename":       one("-", "a.csv", "%C3%BC.csv", "../x", "%2e%2e%2fx", "%", "%E2%80%AE", long[:1025]),
		"Origin":                  one("-", "-", "-", listedOrigin, "null", hostile, "https://a b"),
		"Accept":                  one("-", "*/*", "application/json", "text/html", "x"),
		"Content-Type":            one("-", "text/csv", "application/json", "multipart/form-data; boundary=x"),
		"Content-Encoding":        one("-", "-", "gzip", "br"),
		"Range":                   one("-", "-", "bytes=0-1", "bytes=5-1", "x"),
		"Expect":                  one("-", "-", "-", "nothing"),
	}
	names := []string{}
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same draws make the same request
	seen := map[int]int{}
	effort.Check(t, func(draw *rapid.T) {
		for range requestsInOne {
			c := call{method: methods.Draw(draw, "method"), body: bodies.Draw(draw, "body"), headers: map[string]string{},
				path: strings.Replace(paths.Draw(draw, "path"), "ID", ids.Draw(draw, "id"), 1) + queries.Draw(draw, "query")}
			for _, name := range names {
				if c.headers[name] = values[name].Draw(draw, name); c.headers[name] == "new" {
					c.headers[name] = uuid.NewString()
				}
			}
			a, err := e.try(c)
			if err != nil {
				continue // our HTTP client doesn't send it, or the node closed the connection because it isn't HTTP
			}
			e.checker.check(t, c, a)
			if seen[a.status]++; a.code() == "internal_error" || a.status == http.StatusInternalServerError {
				draw.Fatalf("%s %s: got %d %s", c.method, c.path, a.status, a.body)
			}
		}
	})
	for _, status := range []int{200, 201, 401, 403, 404, 405, 422} {
		effort.Not(t, seen[status], 0, "no request was answered with", status, seen)
	}
}

// TestDescriptionIsLinted uses Redocly's recommended rules. It needs Redocly, installed by npm
// (api/npm/package.json).
func TestDescriptionIsLinted(t *testing.T) {
	linter := filepath.Join("api", "npm", "node_modules", ".bin", "redocly")
	if _, err := os.Stat(linter); err != nil {
		t.Skip("openapi.yaml is not linted: run npm --prefix http/api/npm ci")
	}
	lint := exec.CommandContext(t.Context(), linter, "lint", "--format=stylish", "api/openapi.yaml")
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, err := lint.CombinedOutput()
	effort.ErrorIf(t, err != nil, "%v: %s", err, out)
}

// pageRig is an API with pages that show what was requested or refused; /download/ID downloads.
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

// page requests a page.
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
