package http_test

import (
	"strconv"
	"testing"

	"github.com/google/uuid"

	httpd "rollcall/http"
	"rollcall/ledger"
)

// TestWhatAWorkspaceMayHave refuses a create over each limit with its own code and counts it,
// lets what was made before be recovered, and lets another workspace create.
func TestWhatAWorkspaceMayHave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, code string
		set         func(l *ledger.Limits)
		after       int // seconds
	}{
		{"open", "too_many_active_verifications", func(l *ledger.Limits) { l.Open = 1 }, 60},
		{"stored_bytes", "too_many_stored_bytes", func(l *ledger.Limits) { l.Stored = 19 }, 60},
		{"unpaid", "too_many_unpaid_verifications", func(l *ledger.Limits) { l.Unpaid = 1 }, 3600},
	} {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t, func(o *httpd.Options) { c.set(&o.PerWorkspace) })
			first := creation(uuid.NewString(), "10")
			if a := e.do(call{method: "POST", path: "/v1/verifications", headers: first}); a.status != 201 {
				t.Fatalf("first: %d %s", a.status, a.body)
			}
			second := call{method: "POST", path: "/v1/verifications", headers: creation(uuid.NewString(), "10")}
			a := e.do(second)
			if a.status != 429 || a.code() != c.code || a.header.Get("Retry-After") != strconv.Itoa(c.after) {
				t.Errorf("second: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
			}
			if n := e.counted("rollcall_http_limited_total", "limit", c.limit); n != 1 {
				t.Errorf("counted %v times", n)
			}
			if a := e.do(call{method: "POST", path: "/v1/verifications", headers: first}); a.status != 200 {
				t.Errorf("first again: %d %s", a.status, a.body)
			}
			_, key, _ := e.customer("second")
			other := creation(uuid.NewString(), "10")
			other["X-API-Key"] = key
			if a := e.do(call{method: "POST", path: "/v1/verifications", headers: other}); a.status != 201 {
				t.Errorf("another workspace: %d %s", a.status, a.body)
			}
			// What an operator sets goes before, and the same request is let in.
			more := int64(20)
			_, err := e.book.SetLimits(t.Context(), ledger.LimitsChange{Workspace: e.workspace, Open: &more, Stored: &more,
				Unpaid: &more})
			if err != nil {
				t.Fatal(err)
			}
			if a := e.do(second); a.status != 201 {
				t.Errorf("with other limits: %d %s", a.status, a.body)
			}
		})
	}
}

// TestNoRoomForANewFile: the disk of the ledger is nearly full.
func TestNoRoomForANewFile(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	e.free.Store(0)
	a := e.do(call{method: "POST", path: "/v1/verifications", headers: creation(uuid.NewString(), "10")})
	if a.status != 503 || a.code() != "storage_unavailable" || a.header.Get("Retry-After") != "60" {
		t.Errorf("create: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	}
	if n := e.counted("rollcall_http_limited_total", "limit", "disk"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if a := e.do(call{method: "GET", path: "/v1/credits"}); a.status != 200 {
		t.Errorf("credits: %d %s", a.status, a.body)
	}
}

// counted reads a counter by one of its labels.
func (e *edge) counted(name, label, value string) float64 {
	e.t.Helper()
	families, err := e.registry.Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	e.t.Fatalf("there is no %s{%s=%q}", name, label, value)
	return 0
}
