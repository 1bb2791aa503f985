package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
)

func withKey(key string) call {
	return get("/v1/credits", "X-API-Key", key)
}

// TestBadKeysHitNobodyElse: an address that is above its limit of bad keys gets 429
// for requests whose key is rejected, and for no others.
func TestBadKeysHitNobodyElse(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) {
		o.Limits = httpd.DefaultLimits()
		o.Limits.KeyLookups = httpd.Rate{PerSecond: 1, Burst: 3}
		o.Now = clk.now
	})
	_, fresh, _ := e.customer("second")
	_, later, _ := e.customer("third")
	revoked, _ := api.NewKey()
	want := func(what, key string, status int, after string) {
		t.Helper()
		if a := e.do(withKey(key)); a.status != status || a.header.Get("Retry-After") != after {
			t.Errorf("%s: %d %s, Retry-After %q, want %d %q", what, a.status, a.body, a.header.Get("Retry-After"), status, after)
		}
	}
	want("a good key before", e.key, 200, "")
	for i := range 20 {
		effort.MustBe(t, e.do(withKey([]string{"bad", revoked}[i%2])).status, 401, "rejected key", i+1, "is not answered 401")
	}
	want("a malformed key", "bad", 429, "3")
	want("no key", "-", 401, "") // no guess
	want("an unknown key that was asked about", revoked, 429, "3")
	want("a known key", e.key, 200, "")
	want("a good key that was never seen", fresh, 200, "")
	for range 2 { // the lookups that are left
		unknown, _ := api.NewKey()
		want("an unknown key", unknown, 429, "3")
	}
	want("a good key that was never seen, without a lookup left", later, 429, "1")
	clk.advance(time.Second)
	want("the same after the time told", later, 200, "")
	clk.advance(time.Minute)
	for range 43 { // spends what came back of both limits
		unknown, _ := api.NewKey()
		e.do(withKey(unknown))
	}
	unknown, _ := api.NewKey()
	asked := e.book.keyReads.Load()
	want("an unknown key", unknown, 429, "1")
	effort.ErrorIf(t, e.book.keyReads.Load() != asked, "the ledger was asked although no lookup was left")
	if want("a known key that has to be looked up again", e.key, 200, ""); e.book.keyReads.Load() != asked+1 {
		t.Error("the ledger was not asked again about a key it spoke of a minute ago")
	}
}

// TestGoodKeysCostNothing: keys that the ledger says are good leave the limit of bad
// ones as it was, however many are seen for the first time.
func TestGoodKeysCostNothing(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) {
		o.Limits.BadKeys = httpd.Rate{PerSecond: 1, Burst: 1}
		o.Limits.KeyLookups = httpd.Rate{PerSecond: 1, Burst: 1}
		o.Now = clk.now
	})
	for i := range 5 {
		_, key, _ := e.customer(fmt.Sprint("customer ", i))
		e.do(withKey(key)).must(t, 200, "key", i)
	}
	e.book.away.Store(true)
	for range 3 { // nobody knows whether it is good
		if key, _ := api.NewKey(); e.do(withKey(key)).status != 503 {
			t.Fatal("a key that nobody could be asked about is not answered 503")
		}
	}
	e.book.away.Store(false)
	effort.Is(t, e.do(withKey("bad")).status, 401, "the first bad key")
	effort.Is(t, e.do(withKey("bad")).status, 429, "the second bad key")
}

// TestSilentConnectionsToTheAPIEnd after the time for a request, which is told.
func TestSilentConnectionsToTheAPIEnd(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) { o.Limits.Read = time.Second })
	c := effort.Dial(t, "127.0.0.1", e.server.Addr().String())
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	effort.FatalIf(t, err != nil || a.StatusCode != 408 || !a.Close, "got %v, %v, want 408", a, err)
	_, _ = io.Copy(io.Discard, a.Body)
	if n, err := io.Copy(io.Discard, r); n > 0 || listen.IsTimeout(err) {
		t.Errorf("%d bytes more, %v, want an end", n, err)
	}
}

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
			e.do(post("/v1/verifications", first)).must(t, 201, "first")
			second := post("/v1/verifications", creation(uuid.NewString(), "10"))
			a := e.do(second)
			if a.status != 429 || a.code() != c.code || a.header.Get("Retry-After") != strconv.Itoa(c.after) {
				t.Errorf("second: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
			}
			effort.Is(t, effort.Metric(t, e.registry, "rollcall_http_limited_total", "limit="+c.limit), 1, "counted times")
			e.do(post("/v1/verifications", first)).is(t, 200, "first again")
			_, key, _ := e.customer("second")
			other := creation(uuid.NewString(), "10")
			other["X-API-Key"] = key
			e.do(post("/v1/verifications", other)).is(t, 201, "another workspace")
			// What an operator sets goes before, and the same request is let in.
			more := int64(20)
			effort.Must(e.book.SetLimits(t.Context(), ledger.LimitsChange{Workspace: e.workspace, Open: &more, Stored: &more,
				Unpaid: &more}))(t)
			e.do(second).is(t, 201, "with other limits")
		})
	}
}

// TestNoRoomForANewFile: the disk of the ledger is nearly full.
func TestNoRoomForANewFile(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	e.free.Store(0)
	a := e.do(post("/v1/verifications", creation(uuid.NewString(), "10")))
	effort.ErrorIf(t, a.status != 503 || a.code() != "storage_unavailable" || a.header.Get("Retry-After") != "60",
		"create: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	effort.Is(t, effort.Metric(t, e.registry, "rollcall_http_limited_total", "limit=disk"), 1, "counted times")
	e.do(get("/v1/credits")).is(t, 200, "credits")
}
