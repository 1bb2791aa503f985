package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
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
	"rollcall/http/admin"
	"rollcall/http/apikey"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// sickBook is the real ledger, which can be made to fail its pings.
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
	dir := effort.Folder(t)
	store, err := sqlstore.Open(t.Context(), "sqlite:"+filepath.Join(dir, "ledger.db"), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.EnsureToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, book: &sickBook{Store: store}, token: token}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_test_total"}))
	o := admin.Options{
		Listen: "127.0.0.1:0", Book: r.book, Token: token, Limits: ledger.Limits{Open: 5, Stored: 6, Unpaid: 7}, Gatherer: registry,
		Draining: r.draining.Load, Wake: func() { r.wakes.Add(1) }, Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&o)
	}
	s, err := admin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.server, r.options = s, o
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + s.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for range 2 {
			if err := s.Stop(ctx); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// call makes one call with the token and reads the JSON answer.
func (r *rig) call(method, path, body string) (status int, out map[string]any) {
	r.t.Helper()
	status, text := r.raw(method, path, body, "Bearer "+r.token)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		r.t.Fatalf("%s %s: %d %q is no JSON", method, path, status, text)
	}
	return status, out
}

func (r *rig) raw(method, path, body, authorization string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("X-Content-Type-Options"); got != "nosniff" {
		r.t.Errorf("%s %s: X-Content-Type-Options %q", method, path, got)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestOperatorTour does what an operator does for a new customer.
func TestOperatorTour(t *testing.T) {
	r := newRig(t)
	status, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	if status != 200 || uuid.Validate(id) != nil || w["name"] != "Example" || len(w) != 2 {
		t.Fatalf("create workspace: %d %v", status, w)
	}
	if _, list := r.call("GET", "/v1/workspaces", ""); !holds(list["workspaces"], "id", id, "id", "name",
		"created_at", "weight") {
		t.Errorf("workspaces: %v", list)
	}
	status, k := r.call("POST", "/v1/workspaces/"+id+"/keys", `{"label":"laptop"}`)
	text, _ := k["key"].(string)
	parsed, ok := apikey.Parse([]byte(text))
	if status != 200 || !ok || k["id"] != parsed.ID || len(k) != 2 {
		t.Fatalf("create key: %d %v", status, k)
	}
	stored, err := r.book.KeyByID(t.Context(), parsed.ID)
	if err != nil || stored.SecretSHA256 != parsed.SHA256 || stored.Workspace.String() != id {
		t.Errorf("stored key: %+v %v", stored, err)
	}
	grant := uuid.NewString()
	want := map[string]any{"granted": 500.0, "available": 500.0, "held": 0.0, "spent": 0.0}
	for range 2 { // the same grant twice counts once
		status, b := r.call("POST", "/v1/workspaces/"+id+"/credits",
			`{"id":"`+grant+`","credits":500,"reason":"trial"}`)
		if status != 200 || !same(b, want) {
			t.Errorf("grant: %d %v", status, b)
		}
	}
	if r.wakes.Load() == 0 {
		t.Error("a grant did not wake the engine")
	}
	if _, b := r.call("GET", "/v1/workspaces/"+id+"/credits", ""); !same(b, want) {
		t.Errorf("balance: %v", b)
	}
	if _, list := r.call("GET", "/v1/workspaces/"+id+"/keys", ""); !holds(list["keys"], "revoked_at", nil,
		"id", "label", "created_at", "revoked_at") {
		t.Errorf("keys: %v", list)
	}
	status, revoked := r.call("POST", "/v1/keys/"+parsed.ID+"/revoke", "")
	if status != 200 || revoked["id"] != parsed.ID || revoked["revoked_at"] == nil || len(revoked) != 2 {
		t.Errorf("revoke: %d %v", status, revoked)
	}
	if _, again := r.call("POST", "/v1/keys/"+parsed.ID+"/revoke",
		""); again["revoked_at"] != revoked["revoked_at"] {
		t.Errorf("revoke again: %v, first %v", again, revoked)
	}
	if _, report := r.call("GET", "/v1/audit", ""); report["violations"] == nil ||
		len(report["violations"].([]any)) != 0 || report["workspaces"] != 1.0 {
		t.Errorf("audit: %v", report)
	}
}

// holds reports whether list has one object with exactly the fields, one of which has the value.
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

// TestRefusals are in one form and say what to do.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id := w["id"].(string)
	if _, err := r.book.Grant(t.Context(), uuid.MustParse("11111111-1111-4111-8111-111111111111"),
		uuid.MustParse(id), 5, ""); err != nil {
		t.Fatal(err)
	}
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
		if status != c.status || e["code"] != c.code || e["message"] == "" || len(out) != 1 {
			t.Errorf("%s %s %.60s: %d %v, want %d %s", c.method, c.path, c.body, status, out, c.status, c.code)
		}
	}
}

// TestTokenIsNeeded for the operator API, and for nothing else.
func TestTokenIsNeeded(t *testing.T) {
	r := newRig(t)
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", r.token, "Basic " +
		r.token, "Bearer " + r.token + "x"} {
		if status, text := r.raw("GET", "/v1/workspaces", "", authorization); status != 401 ||
			!strings.Contains(text, "unauthorized") {
			t.Errorf("%q: %d %s", authorization, status, text)
		}
	}
	for path, want := range map[string]string{"/healthz": "alive", "/readyz": "ready",
		"/metrics": "rollcall_test_total 0"} {
		if status, text := r.raw("GET", path, "", ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
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
	if ready() != 200 {
		t.Error("not ready at first")
	}
	r.book.sick.Store(true)
	if ready() != 503 {
		t.Error("ready without a ledger")
	}
	r.book.sick.Store(false)
	outside.Store(true)
	if status, text := r.raw("GET", "/readyz", "", ""); status != 503 || !strings.Contains(text, "not_ready") ||
		!strings.Contains(text, "the node has not joined yet") {
		t.Errorf("outside of the cluster: %d %s", status, text)
	}
	outside.Store(false)
	if ready() != 200 {
		t.Error("not ready again")
	}
	r.draining.Store(true)
	if ready() != 503 {
		t.Error("ready while draining")
	}
	if status, _ := r.raw("GET", "/healthz", "", ""); status != 200 {
		t.Error("not alive while draining")
	}
}

// TestTokenIsMadeOnce also when several processes start at once.
func TestTokenIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	tokens := make([]string, 16)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			var err error
			if tokens[i], err = admin.EnsureToken(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token) < 43 {
			t.Errorf("token of %d characters differs from the first", len(token))
		}
	}
	path := filepath.Join(dir, admin.TokenFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left in the data directory, want 1", len(left))
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.EnsureToken(dir); !errors.Is(err, admin.ErrToken) || !strings.Contains(err.Error(),
		"chmod 600") {
		t.Errorf("a token that others can read: %v", err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.EnsureToken(dir); !errors.Is(err, admin.ErrToken) {
		t.Errorf("an empty token: %v", err)
	}
}

// TestOptionsAreCompleteOrRefused.
func TestOptionsAreCompleteOrRefused(t *testing.T) {
	if _, err := admin.New(admin.Options{Listen: "127.0.0.1:0", Token: "short"}); !errors.Is(err,
		admin.ErrOptions) {
		t.Errorf("got %v", err)
	}
}

var _ admin.Book = (ledger.Book)(nil)
