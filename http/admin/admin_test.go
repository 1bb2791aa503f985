package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/signin"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/identity"
)

// sickBook is the real ledger, but a test can make its pings fail.
type sickBook struct {
	*sqlstore.Store
	sick atomic.Bool
}

func (b *sickBook) Ping(ctx context.Context) error {
	if b.sick.Load() {
		return errors.New("connection refused")
	}
	return b.Store.Ping(ctx)
}

// rig is an admin listener on a real socket with a real ledger.
type rig struct {
	t        *testing.T
	book     *sickBook
	server   *admin.Server
	options  admin.Options
	url      string
	token    string
	draining atomic.Bool
	wakes    atomic.Int64
}

func newRig(t *testing.T, changes ...func(*admin.Options)) *rig {
	t.Helper()
	store := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	token := effort.Must(admin.EnsureToken(effort.Folder(t)))(t)
	r := &rig{t: t, book: &sickBook{Store: store}, token: token}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_test_total"}))
	o := admin.Options{
		Listen: "127.0.0.1:0", Book: r.book, Token: token, Limits: ledger.Limits{Open: 5, Stored: 6, Unpaid: 7}, Gatherer: registry,
		Draining: r.draining.Load, Wake: func() { r.wakes.Add(1) }, Log: slog.New(slog.DiscardHandler),
		PagesURL: func() string { return "" }, Tuned: func() {}, Ready: func(context.Context) error { return nil },
		ThrottleFile: func() admin.ThrottleFile { return admin.ThrottleFile{} }, Inspector: &fakeInspector{},
		Identity: func() admin.Identity { return admin.Identity{Probing: true} },
	}
	for _, change := range changes {
		change(&o)
	}
	s := effort.Must(admin.New(o))(t)
	r.server, r.options = s, o
	effort.OK(t, s.Start())
	r.url = "http://" + s.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for range 2 {
			effort.ErrIs(t, s.Stop(ctx), nil, "stop")
		}
		effort.OK(t, store.Close())
	})
	return r
}

// call makes one call with the token and decodes the JSON answer.
func (r *rig) call(method, path, body string) (status int, out map[string]any) {
	r.t.Helper()
	status, text := r.ask(method, path, body)
	err := json.Unmarshal([]byte(text), &out)
	effort.FatalIf(r.t, err != nil, "%s %s: %d %q is no JSON", method, path, status, text)
	return status, out
}

// ask makes one call with the token.
func (r *rig) ask(method, path, body string) (int, string) {
	r.t.Helper()
	return r.raw(method, path, body, "Bearer "+r.token)
}

// sent is an answer, for sent(r.ask(...)).Is(t, 200).
func sent(status int, text string) nettest.Answer { return nettest.Answer{Status: status, Body: text} }

// codeOf returns the code of a refusal, or "".
func codeOf(out map[string]any) string {
	e, _ := out["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// raw makes one call; more headers follow as names and values.
func (r *rig) raw(method, path, body, authorization string, more ...string) (int, string) {
	r.t.Helper()
	if authorization != "" {
		more = append(more, "Authorization", authorization)
	}
	a := nettest.Send(r.t, method, r.url+path, body, more...)
	effort.Is(r.t, a.Header.Get("X-Content-Type-Options"), "nosniff", method, path, "X-Content-Type-Options")
	return a.Status, a.Body
}

// TestOperatorTour does what an operator does for a new customer.
func TestOperatorTour(t *testing.T) {
	r := newRig(t)
	status, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	effort.FatalIf(t, status != 200 || uuid.Validate(id) != nil || w["name"] != "Example" || len(w) != 2,
		"create workspace: %d %v", status, w)
	_, list := r.call("GET", "/v1/workspaces", "")
	effort.ErrorIf(t, !holds(list["workspaces"], "id", id, "id", "name", "created_at", "weight"),
		"workspaces: %v", list)
	status, k := r.call("POST", "/v1/workspaces/"+id+"/keys", `{"label":"laptop"}`)
	text, _ := k["key"].(string)
	parsed, ok := api.ParseKey([]byte(text))
	effort.FatalIf(t, status != 200 || !ok || k["id"] != parsed.ID || len(k) != 2, "create key: %d %v", status, k)
	stored, err := r.book.KeyByID(t.Context(), parsed.ID)
	effort.ErrorIf(t, err != nil || stored.SecretSHA256 != parsed.SHA256 || stored.Workspace.String() != id,
		"stored key: %+v %v", stored, err)
	grant := uuid.NewString()
	want := map[string]any{"granted": 500.0, "available": 500.0, "held": 0.0, "spent": 0.0}
	for range 2 { // the same grant twice counts once
		status, b := r.call("POST", "/v1/workspaces/"+id+"/credits", `{"id":"`+grant+`","credits":500,"reason":"trial"}`)
		effort.ErrorIf(t, status != 200 || !same(b, want), "grant: %d %v", status, b)
	}
	effort.Not(t, r.wakes.Load(), 0, "a grant did not wake the engine")
	_, b := r.call("GET", "/v1/workspaces/"+id+"/credits", "")
	effort.ErrorIf(t, !same(b, want), "balance: %v", b)
	_, list = r.call("GET", "/v1/workspaces/"+id+"/keys", "")
	effort.ErrorIf(t, !holds(list["keys"], "revoked_at", nil, "id", "label", "created_at", "revoked_at"),
		"keys: %v", list)
	status, revoked := r.call("POST", "/v1/keys/"+parsed.ID+"/revoke", "")
	effort.ErrorIf(t, status != 200 || revoked["id"] != parsed.ID || revoked["revoked_at"] == nil || len(revoked) != 2,
		"revoke: %d %v", status, revoked)
	_, again := r.call("POST", "/v1/keys/"+parsed.ID+"/revoke", "")
	effort.ErrorIf(t, again["revoked_at"] != revoked["revoked_at"], "revoke again: %v, first %v", again, revoked)
	_, report := r.call("GET", "/v1/audit", "")
	effort.ErrorIf(t, report["violations"] == nil || len(report["violations"].([]any)) != 0 ||
		report["workspaces"] != 1.0, "audit: %v", report)
}

// holds reports whether a list has one object with exactly these fields, of which one has this value.
func holds(list any, field string, value any, fields ...string) bool {
	all, _ := list.([]any)
	if len(all) != 1 {
		return false
	}
	o, _ := all[0].(map[string]any)
	for _, f := range fields {
		if _, there := o[f]; !there {
			return false
		}
	}
	return len(o) == len(fields) && o[field] == value
}

func same(a, b map[string]any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// TestRefusals: all refusals have one form and say what to do.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id := w["id"].(string)
	effort.Must(r.book.Grant(t.Context(), uuid.MustParse("11111111-1111-4111-8111-111111111111"),
		uuid.MustParse(id), 5, ""))(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/workspaces", `{"name":""}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces", `{"name":"` + strings.Repeat("a", 201) + `"}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces", `{"nane":"a"}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces", `hello`, 400, "invalid_request"},
		{"POST", "/v1/workspaces", `{"name":"` + strings.Repeat("a", 70000) + `"}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces/abc/keys", `{"label":"a"}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces/" + uuid.NewString() + "/keys", `{"label":"a"}`, 404, "workspace_not_found"},
		{"GET", "/v1/workspaces/" + uuid.NewString() + "/keys", "", 404, "workspace_not_found"},
		{"GET", "/v1/workspaces/" + uuid.NewString() + "/credits", "", 404, "workspace_not_found"},
		{"POST", "/v1/keys/nokey/revoke", "", 404, "key_not_found"},
		{"POST", "/v1/workspaces/" + id + "/credits", `{"credits":1}`, 400, "invalid_request"},
		{"POST", "/v1/workspaces/" + id + "/credits", `{"id":"` + uuid.NewString() + `","credits":0}`, 400,
			"invalid_request"},
		{"POST", "/v1/workspaces/" + id + "/credits", `{"id":"` + uuid.NewString() + `","credits":1.5}`, 400,
			"invalid_request"},
		{"POST", "/v1/workspaces/" + id + "/credits", `{"id":"` + uuid.NewString() + `","credits":-5}`, 400,
			"invalid_request"},
		{"POST", "/v1/workspaces/" + id + "/credits", `{"id":"11111111-1111-4111-8111-111111111111","credits":6}`,
			409, "conflict"},
		{"DELETE", "/v1/workspaces", "", 405, "method_not_allowed"},
		{"GET", "/v1/nothing", "", 404, "not_found"},
		{"GET", "/", "", 404, "not_found"},
	} {
		status, out := r.call(c.method, c.path, c.body)
		e, _ := out["error"].(map[string]any)
		effort.ErrorIf(t, status != c.status || e["code"] != c.code || e["message"] == "" || len(out) != 1,
			"%s %s %.60s: %d %v, want %d %s", c.method, c.path, c.body, status, out, c.status, c.code)
	}
}

// TestTokenIsNeeded: only the operator API needs the token.
func TestTokenIsNeeded(t *testing.T) {
	r := newRig(t)
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", r.token, "Basic " +
		r.token, "Bearer " + r.token + "x"} {
		status, text := r.raw("GET", "/v1/workspaces", "", authorization)
		effort.ErrorIf(t, status != 401 || !strings.Contains(text, "unauthorized"),
			"%q: %d %s", authorization, status, text)
	}
	for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready",
		"/metrics": "rollcall_test_total 0"} {
		sent(r.raw("GET", path, "", "")).Says(t, 200, want, path)
	}
}

// TestReady follows the ledger, the drain and the cluster, while the process stays alive.
func TestReady(t *testing.T) {
	var outside atomic.Bool
	r := newRig(t, func(o *admin.Options) {
		o.Ready = func(context.Context) error {
			if outside.Load() {
				return errors.New("the node has not joined yet")
			}
			return nil
		}
	})
	ready := func() int { status, _ := r.raw("GET", "/readyz", "", ""); return status }
	effort.Is(t, ready(), 200, "not ready at first")
	r.book.sick.Store(true)
	effort.Is(t, ready(), 503, "ready without a ledger")
	r.book.sick.Store(false)
	outside.Store(true)
	status, text := r.raw("GET", "/readyz", "", "")
	effort.ErrorIf(t, status != 503 || !strings.Contains(text, "not_ready") ||
		!strings.Contains(text, "the node has not joined yet"), "outside of the cluster: %d %s", status, text)
	outside.Store(false)
	effort.Is(t, ready(), 200, "not ready again")
	r.draining.Store(true)
	effort.Is(t, ready(), 503, "ready while draining")
	sent(r.raw("GET", "/healthz", "", "")).Is(t, 200, "alive while draining")
}

// TestTokenIsMadeOnce: also if several processes start at once.
func TestTokenIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	tokens := make([]string, 16)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			tokens[i], err = admin.EnsureToken(dir)
			effort.ErrorIf(t, err != nil, "%v", err)
		})
	}
	wg.Wait()
	for _, token := range tokens {
		effort.ErrorIf(t, token != tokens[0] || len(token) < 43,
			"token of %d characters differs from the first", len(token))
	}
	path := filepath.Join(dir, admin.TokenFile)
	info := effort.Must(os.Stat(path))(t)
	effort.Is(t, info.Mode().Perm(), 0o600, "mode")
	left, _ := os.ReadDir(dir)
	effort.ErrorIf(t, len(left) != 1, "%d files are left in the data directory, want 1", len(left))
	effort.OK(t, os.Chmod(path, 0o644))
	_, err := admin.EnsureToken(dir)
	effort.ErrorIf(t, !errors.Is(err, admin.ErrToken) || !strings.Contains(err.Error(), "chmod 600"),
		"a token that others can read: %v", err)
	effort.OK(t, errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 0)))
	effort.Denied(admin.EnsureToken(dir))(t, admin.ErrToken, "an empty token")
}

// TestLimitsOfAWorkspace: limits are shown with what is used, changed one by one, and refused if out of bounds. A
// limit that nobody set is the node's default.
func TestLimitsOfAWorkspace(t *testing.T) {
	r := newRig(t)
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	path := "/v1/workspaces/" + id + "/limits"
	_, _, err := r.book.Create(t.Context(), ledger.NewVerification{ID: uuid.New(), Workspace: uuid.MustParse(id),
		Identity: uuid.New(), Bytes: 7, BytesMax: 7, Limits: ledger.Limits{Open: 1, Stored: 7, Unpaid: 1}})
	effort.OK(t, err)
	shows := func(method, body, open, stored, unpaid string) {
		t.Helper()
		want := `{"id":"` + id + `","name":"Example","weight":1,"open":` + open + `,"stored":` + stored + `,"unpaid":` + unpaid + `}`
		status, text := r.ask(method, path, body)
		effort.Is(t, status, 200, method, body, text)
		effort.Is(t, strings.TrimSpace(text), want, method, body)
	}
	open, stored, unpaid := `{"limit":5,"default":true,"used":1}`, `{"limit":6,"default":true,"used":7}`,
		`{"limit":7,"default":true,"used":1}`
	shows("GET", "", open, stored, unpaid)
	stored = `{"limit":100,"default":false,"used":7}`
	shows("POST", `{"stored":100,"reason":"contract"}`, open, stored, unpaid)
	shows("POST", `{"open":9007199254740992}`, `{"limit":9007199254740992,"default":false,"used":1}`, stored, unpaid)
	shows("POST", `{"open":0}`, open, stored, unpaid)
	for _, wrong := range []string{`{"open":-1}`, `{"stored":9007199254740993}`, `{"unpaid":"7"}`, `{"weight":7}`, ``,
		`{"open":1,"reason":"` + strings.Repeat("x", 201) + `"}`} {
		sent(r.ask("POST", path, wrong)).Is(t, 400, wrong)
	}
	shows("GET", "", open, stored, unpaid)
	for _, method := range []string{"GET", "POST"} {
		sent(r.ask(method, "/v1/workspaces/x/limits", `{}`)).Is(t, 400, method, "of no id")
		sent(r.ask(method, "/v1/workspaces/"+uuid.NewString()+"/limits", `{}`)).Is(t, 404, method, "of nobody")
	}
}

func TestIdentity(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	bad := identity.Report{Checked: at, Findings: []identity.Finding{
		{Check: identity.PTR, Source: "192.0.2.1", State: identity.Fail, Saw: "the address has no PTR", Next: "Ask.", At: at},
		{Check: identity.BlockList, Source: "192.0.2.1", List: "bl.test", State: identity.OK, Saw: "not on bl.test", At: at}}}
	good := identity.Report{Checked: at}
	now, fails := bad, error(nil)
	r := newRig(t, func(o *admin.Options) {
		o.Identity = func() admin.Identity { return admin.IdentityOf(now, true) }
		o.CheckIdentity = func(context.Context) (admin.Identity, error) { return admin.IdentityOf(good, true), fails }
	})
	const want = `{"eligible":false,"enforced":true,"probing":false,"why":"ptr of 192.0.2.1: the address has no PTR",` +
		`"checked_at":"2030-01-02T03:04:05.000Z","findings":[{"check":"ptr","source":"192.0.2.1","state":"fail",` +
		`"saw":"the address has no PTR","next":"Ask.","checked_at":"2030-01-02T03:04:05.000Z"},` +
		`{"check":"block_list","source":"192.0.2.1","list":"bl.test","state":"ok","saw":"not on bl.test",` +
		`"checked_at":"2030-01-02T03:04:05.000Z"}]}` + "\n"
	sent(r.ask("GET", "/v1/identity", "")).Says(t, 200, want)
	sent(r.raw("GET", "/v1/identity", "", "Bearer wrong")).Is(t, 401, "a stranger")
	sent(r.raw("GET", "/readyz", "", "")).Says(t, 200, `"probing":"no: run`, "readyz of a node that is not fit")
	status, out := r.call("POST", "/v1/identity/check", "")
	effort.ErrorIf(t, status != 200 || out["eligible"] != true || out["probing"] != true, "after a look: %d %v",
		status, out)
	fails = errors.New("too late")
	sent(r.ask("POST", "/v1/identity/check", "")).Says(t, 503, "unavailable", "a look that is too slow")
	now = good
	_, text := r.raw("GET", "/readyz", "", "")
	effort.ErrorIf(t, text != `{"status":"ready"}`+"\n", "readyz of a node that is fit: %s", text)
	now = identity.Report{}
	if _, out := r.call("GET", "/v1/identity", ""); out["checked_at"] != nil || out["eligible"] != false {
		t.Errorf("before the first look: %v", out)
	}
}

// TestEntriesOfAVerification reads two pages of entries. Then it sends queries that are refused.
func TestEntriesOfAVerification(t *testing.T) {
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 50)
	v, l := d.Prepares(3)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	d.Settles(l, 2, 2, 2, smtp.Unknown)
	path := "/v1/workspaces/" + d.Workspace.String() + "/verifications/" + v.ID.String() + "/entries"
	want := map[string]any{"verification": v.ID.String(), "status": "completed", "addresses": 3.0, "held": 3.0,
		"charged": 2.0, "released": 1.0, "still_held": 0.0, "count": 3.0}
	var lines []string
	for after := ""; ; {
		status, page := r.call("GET", path+"?limit=2"+after, "")
		for _, e := range page["entries"].([]any) {
			e := e.(map[string]any)
			effort.ErrorIf(t, len(e) != 4 || e["at"] == "", "entry %v", e)
			lines = append(lines, fmt.Sprint(e["kind"], " ", e["settlement"], " ", e["credits"]))
		}
		next, more := page["next"].(string)
		delete(page, "entries")
		delete(page, "next")
		effort.ErrorIf(t, status != 200 || !same(page, want), "%d %v, want %v", status, page, want)
		if !more {
			break
		}
		after = "&after=" + next
	}
	effort.Is(t, strings.Join(lines, ", "), "release 2 1, charge 1 2, hold <nil> 3", "entries")
	_, page := r.call("GET", path, "")
	effort.ErrorIf(t, len(page["entries"].([]any)) != 3 || page["next"] != nil, "without a limit: %v", page)
	for query, want := range map[string]int{"?limit=0": 400, "?limit=1001": 400, "?limit=a": 400,
		"?after=a": 400, "?after=1.2.gift": 400, "?after=1.2": 400, "?limit=1000": 200} {
		sent(r.ask("GET", path+query, "")).Is(t, want, query)
	}
	other := strings.Replace(path, d.Workspace.String(), uuid.NewString(), 1)
	if status, out := r.call("GET", other, ""); status != 404 || codeOf(out) != "verification_not_found" {
		t.Errorf("in another workspace: %d %v", status, out)
	}
}

// TestDrainEndsLongCalls: a drain ends running audits, so that the ledger can be closed.
func TestDrainEndsLongCalls(t *testing.T) {
	r := newRig(t)
	r.server.Drain()
	r.server.Drain()
	sent(r.ask("GET", "/v1/audit", "")).Is(t, 503, "audit after the drain")
}

// closedLog is a ledger that refuses every line of the operator log.
type closedLog struct{ *sickBook }

func (closedLog) Note(context.Context, ledger.LogLine) error { return errors.New("the log is closed") }

// TestTheLogOfTheNodeHasNoEmail: if the ledger refuses a line of the operator log, the node logs it without emails.
func TestTheLogOfTheNodeHasNoEmail(t *testing.T) {
	var logs bytes.Buffer
	var service *admin.Service
	r := newRig(t, func(o *admin.Options) {
		o.Book, o.PagesURL = closedLog{o.Book.(*sickBook)}, func() string { return "https://rollcall.test" }
		o.Inspector = &fakeInspector{}
		o.Log = slog.New(slog.NewTextHandler(&logs, nil))
		o.Pages = func(d *admin.Service) admin.Pages { service = d; return nil }
	})
	w := effort.Must(r.book.CreateWorkspace(t.Context(), uuid.New(), "acme"))(t)
	const email = "anna@acme.test"
	for _, c := range []struct {
		action string
		do     func() error
	}{
		{"user invite", func() error {
			link, err := service.Invite(t.Context(), admin.InviteCall{Workspace: w.ID, Email: email, Role: ledger.Viewer})
			if err != nil {
				return err
			}
			id, _ := signin.Token(link.URL[strings.LastIndex(link.URL, "/")+1:]).Hash()
			_, err = r.book.AcceptLink(t.Context(), ledger.Accept{Link: id, User: uuid.New(), Password: "x",
				Session: ledger.NewSession{ID: ledger.Hash{1}, Life: time.Hour}})
			return err
		}},
		{"user password link", func() error { _, err := service.MakePasswordLink(t.Context(), email); return err }},
		{"user end-sessions", func() error { _, _, err := service.EndSessions(t.Context(), email); return err }},
		{"user end-two-step", func() error { _, err := service.ResetTOTP(t.Context(), email); return err }},
		{"user disable", func() error { _, err := service.DisableUser(t.Context(), email, true); return err }},
		{"session close", func() error {
			return service.CloseSession(t.Context(), admin.CloseCall{Key: "mx.big.test", Session: 1})
		}},
	} {
		logs.Reset()
		effort.OK(t, c.do())
		effort.ErrorIf(t, !strings.Contains(logs.String(), "operator log not written") ||
			!strings.Contains(logs.String(), `action="`+c.action+`"`) || strings.Contains(logs.String(), "anna"),
			"%s: the log of the node says %s", c.action, &logs)
	}
	effort.Has(t, logs.String(), "subject=mx.big.test", "the log of the node")
}

// TestKnownHosts: requests with a host of this listener are accepted at every path.
func TestKnownHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *admin.Options) { o.Hosts = []string{"node-1.example", "2001:db8::1"} })
	_, port, err := net.SplitHostPort(r.server.Addr().String())
	effort.OK(t, err)
	ask := func(path, host string) (status int, body string) {
		t.Helper()
		c := effort.Must(net.Dial("tcp", r.server.Addr().String()))(t)
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, host, r.token)
		a := effort.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
		text, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(text)
	}
	for _, host := range []string{"127.0.0.1:" + port, "127.0.0.1", "localhost", "LOCALHOST:1", "localhost.", "[::1]:80",
		"[::1]", "127.9.9.9", "node-1.example", "Node-1.Example:8081", "[2001:db8::1]:8081"} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/v1/workspaces"} {
			sent(ask(path, host)).Is(t, 200, path, "for", host)
		}
	}
	for _, host := range []string{"", "evil.example", "127.0.0.1.evil.example", "node-1.example.evil", "192.0.2.1",
		"localhost@evil.example", "0.0.0.0", "[::]", "node-1"} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/v1/workspaces", "/"} {
			status, body := ask(path, host)
			effort.ErrorIf(t, status != 403 && !(status == 400 && strings.Contains(host, "@")) || status == 403 &&
				!strings.Contains(body, `"code":"unknown_host"`), "%s for %q: %d %s", path, host, status, body)
		}
	}
}

// TestTheAddressAConnectionCameTo: this address is a known host, also if the listener is on all interfaces.
func TestTheAddressAConnectionCameTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *admin.Options) { o.Listen = "127.0.0.3:0" })
	sent(r.raw("GET", "/healthz", "", "")).Is(t, 200, "at its own address")
}

func TestAdminTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := nettest.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	p := effort.Must(listen.LoadPair(certFile, keyFile))(t)
	r := newRig(t, func(o *admin.Options) { o.TLS = p.Config() })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	a, err := client.Get("https://" + r.server.Addr().String() + "/healthz")
	effort.FatalIf(t, err != nil || a.StatusCode != 200 || a.ProtoMajor != 1, "%v, %v", a, err)
	_ = a.Body.Close()
}

// TestUnixSocket: the socket has mode 0660. It replaces a socket that was left behind, but no other file.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "sock") // a socket's path must be short
	effort.OK(t, err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "admin.sock")
	left := effort.Must(net.Listen("unix", path))(t)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	r := newRig(t, func(o *admin.Options) { o.Listen = "unix:" + path })
	info := effort.Must(os.Stat(path))(t)
	effort.MustBe(t, info.Mode(), os.ModeSocket|0o660)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	a := effort.Must(client.Get("http://any.example/healthz"))(t)
	effort.MustBe(t, a.StatusCode, 200)
	_ = a.Body.Close()
	file := filepath.Join(folder, "file")
	effort.OK(t, os.WriteFile(file, []byte("mine"), 0o600))
	for _, taken := range []string{path, file} {
		o := r.options
		o.Listen = "unix:" + taken
		s := effort.Must(admin.New(o))(t)
		if err := s.Start(); err == nil {
			t.Errorf("%s is taken over", taken)
			_ = s.Stop(t.Context())
		}
	}
	effort.Is(t, string(effort.Must(os.ReadFile(file))(t)), "mine", "the file is")
}
