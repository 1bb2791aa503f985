package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
)

// TestOrigins checks browser origins: only exactly the listed origin is allowed.
func TestOrigins(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	for _, c := range []struct {
		origin string
		listed bool
	}{
		{listedOrigin, true},
		{"https://app.example.com/", false},
		{"http://app.example.com", false},
		{"https://app.example.com:443", false},
		{"https://app.example.com:8443", false},
		{"https://app.example.com.evil.example", false},
		{"https://evilapp.example.com", false},
		{"https://sub.app.example.com", false},
		{"https://APP.example.com", false},
		{"https://example.com", false},
		{"null", false},
		{"*", false},
	} {
		t.Run(c.origin, func(t *testing.T) {
			for _, method := range []string{"GET", "OPTIONS"} {
				for _, path := range []string{"/v1/verifications", "/v1/credits"} {
					sent := call{method: method, path: path, headers: map[string]string{
						"Origin": c.origin, "Access-Control-Request-Method": "POST",
						"Access-Control-Request-Headers": "x-api-key",
					}}
					checkOrigin(t, c.origin, c.listed, sent, e.send(t, sent))
				}
			}
		})
	}
	a := e.do(get("/v1/credits", "Origin", listedOrigin, "X-API-Key", "x"))
	effort.Is(t, a.status, 401, "a listed page cannot read a refusal", a.header)
	effort.Is(t, a.header.Get("Access-Control-Allow-Origin"), listedOrigin, "a listed page cannot read a refusal")
}

func checkOrigin(t *testing.T, origin string, listed bool, sent call, a answer) {
	t.Helper()
	method, path, h := sent.method, sent.path, a.header
	want := map[string]int{"GET": 200, "OPTIONS": 204}[method]
	if !listed && path != "/v1/credits" {
		want = 403
	}
	effort.Is(t, a.status, want, fmt.Sprintf("%s %s", method, path))
	allowed := h.Get("Access-Control-Allow-Origin")
	effort.ErrorIf(t, listed && allowed != origin || !listed && allowed != "",
		"%s %s: Access-Control-Allow-Origin %q", method, path, allowed)
	effort.Is(t, h.Get("Vary"), "Origin", method, path)
	effort.Is(t, h.Get("Access-Control-Allow-Credentials"), "", method, path)
	if !listed {
		effort.Is(t, h.Get("Access-Control-Allow-Headers"), "", method, path, "a foreign page is told what it may send")
		effort.Is(t, h.Get("Access-Control-Max-Age"), "", method, path, "a foreign page is told what it may send")
		return
	}
	effort.Is(t, h.Get("Access-Control-Expose-Headers"), "Retry-After, X-Request-Id, Link", method, path, "exposes")
	if method == "OPTIONS" && (h.Get("Access-Control-Max-Age") != "600" || len(a.body) != 0 ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "X-API-Key")) {
		t.Errorf("%s: preflight %v with %d bytes", path, h, len(a.body))
	}
}

// clock is a clock that the test moves.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// TestRates empties each bucket, reads the time to the next token, waits that long and gets exactly one token.
func TestRates(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) {
		o.Limits = httpd.DefaultLimits()
		o.Now = clk.now
	})
	_, other, _ := e.customer("second")
	bad := map[string]string{"X-API-Key": "bad"}
	for _, c := range []struct {
		name  string
		call  func() call
		burst int
		ok    int
		wait  int // seconds told
	}{
		{"reads", func() call { return get("/v1/credits") }, 40, 200, 1},
		{"creates", func() call {
			return post("/v1/verifications", creation(uuid.NewString(), "1"))
		}, 20, 201, 1},
		{"bad keys", func() call { return call{method: "GET", path: "/v1/credits", headers: bad} }, 20, 401, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.burst {
				e.send(t, c.call()).must(t, c.ok, "request", i+1, c.burst)
			}
			a := e.send(t, c.call())
			if a.status != 429 || a.code() != "rate_limited" || a.header.Get("Retry-After") != strconv.Itoa(c.wait) {
				t.Fatalf("after the burst: %d %s, Retry-After %q, want %d s", a.status, a.body, a.header.Get("Retry-After"), c.wait)
			}
			if c.name != "bad keys" {
				effort.Is(t, e.send(t, get("/v1/credits", "X-API-Key", other)).status, 200, "another key")
			}
			clk.advance(time.Duration(c.wait) * time.Second)
			e.send(t, c.call()).is(t, c.ok, "after the wait")
		})
	}
}

// TestDownloadsAtOnce: one key can't download more results at once than its limit.
func TestDownloadsAtOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) { o.Limits.DownloadMax = 1 })
	id := e.verified(60000, results(60000)).String()
	path := "/v1/verifications/" + id + "/results"
	req, _ := http.NewRequest("GET", e.url+path, nil)
	req.Header.Set("X-API-Key", e.key)
	slow, err := http.DefaultTransport.RoundTrip(req) // the test does not read, so the server's buffers fill
	effort.OK(t, err)
	a := e.do(get(path))
	effort.ErrorIf(t, a.status != 429 || a.code() != "rate_limited" || a.header.Get("Retry-After") == "",
		"second download: %d %s", a.status, a.body)
	_ = slow.Body.Close() // the client goes away
	effort.Within(t, "the slot to come back", func() bool {
		return e.do(call{method: "HEAD", path: path}).status == 200
	})
}

// TestANodeHasItsPartOfTheLimits: when nodes join or leave, a node's share changes with the next request.
func TestANodeHasItsPartOfTheLimits(t *testing.T) {
	t.Parallel()
	clk, nodes := newClock(), atomic.Int64{}
	nodes.Store(2)
	e := newEdge(t, func(o *httpd.Options) {
		o.Limits.Reads = httpd.Rate{PerSecond: 20, Burst: 40}
		o.Now, o.Nodes = clk.now, func() int { return int(nodes.Load()) }
	})
	for _, c := range []struct {
		name    string
		nodes   int64
		after   time.Duration
		granted int
	}{
		{"half of the burst", 2, 0, 20},
		{"half of the rate", 2, time.Second, 10},
		{"what came in before a node went", 1, time.Second, 10},
		{"all of the rate", 1, time.Second, 20},
		{"all of the burst", 1, time.Minute, 40},
		{"the floor of a hundred nodes", 100, time.Minute, 5},
		{"and its rate", 100, 2 * time.Second, 2},
	} {
		nodes.Store(c.nodes)
		clk.advance(c.after)
		granted := 0
		for e.do(get("/v1/credits")).status == 200 {
			granted++
		}
		effort.Is(t, granted, c.granted, c.name)
	}
}

// TestRevokedKeyStops: a revoked key stops within five seconds. A key that was tried a moment before it was made
// works after one second.
func TestRevokedKeyStops(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) { o.Now = clk.now })
	credits := get("/v1/credits")
	effort.MustBe(t, e.do(credits).status, 200, "good key")
	asked := e.book.keyReads.Load()
	e.do(credits)
	effort.ErrorIf(t, e.book.keyReads.Load() != asked, "the ledger is asked about the same key for each request")
	effort.Must(e.book.RevokeKey(context.Background(), e.keyID))(t)
	clk.advance(5 * time.Second)
	e.do(credits).says(t, 401, "invalid_api_key", "5 s after its end the key")
}

// TestLedgerAway: while the ledger is away the answer is 503, never 401; afterwards the service works again.
func TestLedgerAway(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) { o.Now = clk.now })
	id := e.create("1").String()
	e.book.away.Store(true)
	for _, wait := range []time.Duration{0, 6 * time.Second} { // with the key in the cache, and without
		clk.advance(wait)
		for _, path := range []string{"/v1/credits", "/v1/verifications/" + id} {
			a := e.do(get(path))
			after, _ := strconv.Atoi(a.header.Get("Retry-After"))
			effort.ErrorIf(t, a.status != 503 || a.code() != "service_unavailable" || after < 5 || after > 10,
				"%s after %v: %d %s, Retry-After %d", path, wait, a.status, a.body, after)
		}
	}
	e.book.away.Store(false)
	e.do(get("/v1/credits")).is(t, 200, "with the ledger back")
}

// TestPanicIsAnInternalError: a panic is answered with 503, counted, and logged without its text.
func TestPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.create("1").String()
	e.book.panics.Store(true)
	a := e.do(get("/v1/verifications/" + id))
	effort.ErrorIf(t, a.status != 503 || a.code() != "internal_error" || a.header.Get("Retry-After") != "5",
		"got %d %s", a.status, a.body)
	if logs := e.logs.String(); strings.Contains(logs, "secret of the panic") || !strings.Contains(logs, "panicked") {
		t.Errorf("log: %s", logs)
	}
	effort.Is(t, nettest.Metric(t, e.registry, "rollcall_http_panics_total"), 1, "panics counted")
	e.book.panics.Store(false)
	effort.Is(t, e.do(get("/v1/verifications/"+id)).status, 200, "afterwards")
}

// TestStopDoesNotWaitForASilentConnection opens a connection in advance, as browsers and clients do, and sends
// nothing.
func TestStopDoesNotWaitForASilentConnection(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	silent := effort.Must(net.Dial("tcp", e.server.Addr().String()))(t)
	defer silent.Close()
	e.do(get("/v1/credits"))                                       // its connection was accepted after the silent one
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // less than the time for a request
	defer cancel()
	effort.OK(t, e.server.Stop(ctx))
	_, err := silent.Read(make([]byte, 1))
	effort.FatalIf(t, err == nil, "a server that has stopped speaks")
}

// TestSimultaneousCreates sends the same creation 32 times at once. One gets 201 and 31 get 200, all with the same id
// and URL. A creation with another length always gets 409.
func TestSimultaneousCreates(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	for round := range 10 {
		identity := uuid.NewString()
		answers := make([]answer, 32)
		errs := make([]error, len(answers))
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				answers[i], errs[i] = e.try(post("/v1/verifications", creation(identity, "7")))
			})
		}
		wg.Wait()
		created := 0
		bodies := map[string]bool{}
		for i, a := range answers {
			effort.FatalIf(t, errs[i] != nil || a.status != 200 && a.status != 201,
				"round %d: %d %s %v", round, a.status, a.body, errs[i])
			if a.status == 201 {
				created++
			}
			bodies[string(a.body)] = true
		}
		effort.MustBe(t, created, 1, "round", round)
		effort.MustBe(t, len(bodies), 1, "round", round)
		e.do(post("/v1/verifications", creation(identity, "8"))).must(t, 409, "round", round, "other length")
	}
}

// TestCreateInProgress: if the first of two creations does not end in time, the second has to come again. It is
// answered once the first has ended.
func TestCreateInProgress(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	e.server.SetCreateWait(100 * time.Millisecond)
	g := newGate()
	e.book.creating.Store(g)
	create := post("/v1/verifications", creation(uuid.NewString(), "7"))
	first := make(chan answer, 1)
	go func() {
		a, _ := e.try(create)
		first <- a
	}()
	<-g.entered
	a := e.do(create)
	effort.ErrorIf(t, a.status != 409 || a.code() != "request_in_progress" || a.header.Get("Retry-After") != "1",
		"second: %d %s", a.status, a.body)
	third := make(chan answer, 1)
	go func() {
		a, _ := e.try(create)
		for a.status == 409 { // on a slow machine the first one takes longer
			a, _ = e.try(create)
		}
		third <- a
	}()
	close(g.open)
	(<-first).is(t, 201, "first")
	(<-third).is(t, 200, "third")
}

// TestHistoryPages reads a growing history from new to old: each row comes once, and a cursor works only for its own
// workspace and filter.
func TestHistoryPages(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	_, otherKey, _ := e.customer("second")
	made := map[string]bool{}
	for range 7 {
		made[e.create("10").String()] = true
	}
	page := func(query string) (h api.History) {
		a := e.do(get("/v1/verifications" + query))
		effort.FatalIf(t, a.status != 200 || json.Unmarshal(a.body, &h) != nil, "%s: %d %s", query, a.status, a.body)
		return h
	}
	var want, got []string
	last := time.Now().Add(time.Hour)
	for _, v := range page("?limit=100").Verifications {
		want = append(want, v.ID)
		at := time.Time(v.CreatedAt)
		effort.ErrorIf(t, !made[v.ID] || at.After(last), "row %s of %v after one of %v", v.ID, at, last)
		last = time.Time(v.CreatedAt)
	}
	query, cursor := "?limit=3&kind=bulk", ""
	for pages := 1; ; pages++ {
		h := page(query + cursor)
		for _, v := range h.Verifications {
			got = append(got, v.ID)
		}
		if h.NextCursor == nil {
			effort.Is(t, pages, 3)
			break
		}
		if len(h.Verifications) != 3 || h.Limits != (api.Limits{MaxFileBytes: edgeFileBytes, MaxRows: 1000}) {
			t.Fatalf("page %d: %d rows, limits %+v", pages, len(h.Verifications), h.Limits)
		}
		cursor = "&cursor=" + *h.NextCursor
		e.create("10") // newer rows do not change older pages
	}
	effort.ErrorIf(t, len(want) != 7 || strings.Join(got, " ") != strings.Join(want, " "),
		"got\n%v, want\n%v", got, want)
	good := *page("?limit=1").NextCursor
	flipped := []byte(good)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]call{
		"other filter":    {path: "?kind=bulk&cursor=" + good},
		"altered":         {path: "?cursor=" + string(flipped)},
		"cut":             {path: "?cursor=" + good[:len(good)-2]},
		"other workspace": {path: "?cursor=" + good, headers: map[string]string{"X-API-Key": otherKey}},
	} {
		c.method, c.path = "GET", "/v1/verifications"+c.path
		e.do(c).says(t, 422, "invalid_cursor", name)
	}
	effort.Is(t, len(page("?limit=2&cursor="+good).Verifications), 2, "a cursor with another limit gives rows")
}

// TestNothingSecretIsLogged uses every operation once, with canaries as secrets, at debug level.
func TestNothingSecretIsLogged(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	address := "canary-address@example.com"
	rows := results(1)
	rows[0].Email = address
	headers := creation(uuid.NewString(), "1")
	headers["X-Upload-Filename"] = "canary-filename.csv"
	e.do(post("/v1/verifications", headers))
	id := e.verified(1, rows).String()
	for _, c := range []call{
		{method: "GET", path: "/v1/verifications/" + id},
		{method: "GET", path: "/v1/verifications/" + id + "/results?canary-query=1"},
		{method: "GET", path: "/v1/verifications?cursor=canary-query"},
		{method: "POST", path: "/v1/verifications/" + id + "/cancel", body: "canary-body"},
		{method: "GET", path: "/canary-path"},
		{method: "GET", path: "/v1/credits", headers: map[string]string{"X-API-Key": "canary-key"}},
	} {
		e.do(c)
	}
	exchange(t, e, "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: "+e.key+"\r\ncanary header\r\n\r\n")
	e.book.away.Store(true)
	e.do(get("/v1/credits"))
	logs := e.logs.String()
	for _, canary := range []string{e.key, e.key[16:], uploadCanary, address, "canary"} {
		effort.Lacks(t, logs, canary, "is in the log")
	}
	effort.Has(t, logs, `"route":"/v1/verifications/{id}"`,
		"the access line is not in the log, so this test proves nothing")
}

// TestOneWorkspaceLeavesOthersAPlace: workspaces share the places for requests. One that has used its share must come
// later.
func TestOneWorkspaceLeavesOthersAPlace(t *testing.T) {
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) { o.Limits.InFlightMax = 4 })
	_, other, _ := e.customer("second")
	g := newGate()
	e.book.creating.Store(g)
	done := make(chan answer, 2)
	for range 2 {
		go func() {
			a, _ := e.try(post("/v1/verifications", creation(uuid.NewString(), "7")))
			done <- a
		}()
		<-g.entered
	}
	a := e.do(get("/v1/credits"))
	after, _ := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 503 || a.code() != "overloaded" || after < 10 || after > 20 {
		t.Errorf("a third request of one workspace: %d %s, Retry-After %d", a.status, a.body, after)
	}
	for range 3 { // each request gives its place back
		e.do(get("/v1/credits", "X-API-Key", other)).is(t, 200, "one of another workspace")
	}
	close(g.open)
	for range 2 {
		(<-done).is(t, 201, "one in work")
	}
	for range 3 {
		e.do(get("/v1/verifications/"+uuid.NewString()+"/results")).is(t, 404, "after it")
	}
}

func withKey(key string) call {
	return get("/v1/credits", "X-API-Key", key)
}

// TestBadKeysHitNobodyElse: an address above its limit of bad keys gets 429 only for requests whose key is rejected.
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
	for range 2 { // uses up the remaining lookups
		unknown, _ := api.NewKey()
		want("an unknown key", unknown, 429, "3")
	}
	want("a good key that was never seen, without a lookup left", later, 429, "1")
	clk.advance(time.Second)
	want("the same after the time told", later, 200, "")
	clk.advance(time.Minute)
	for range 43 { // uses up the new tokens of both limits
		unknown, _ := api.NewKey()
		e.do(withKey(unknown))
	}
	unknown, _ := api.NewKey()
	asked := e.book.keyReads.Load()
	want("an unknown key", unknown, 429, "1")
	effort.ErrorIf(t, e.book.keyReads.Load() != asked, "the ledger was asked although no lookup was left")
	if want("a known key that has to be looked up again", e.key, 200, ""); e.book.keyReads.Load() != asked+1 {
		t.Error("the ledger was not asked again about a key after a minute")
	}
}

// TestGoodKeysCostNothing: good keys never use up the limit of bad ones, even if many are seen for the first time.
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
	for range 3 { // the ledger can't say whether the key is good
		if key, _ := api.NewKey(); e.do(withKey(key)).status != 503 {
			t.Fatal("a key about which the ledger could not be asked did not get 503")
		}
	}
	e.book.away.Store(false)
	effort.Is(t, e.do(withKey("bad")).status, 401, "the first bad key")
	effort.Is(t, e.do(withKey("bad")).status, 429, "the second bad key")
}

// TestSilentConnectionsToTheAPIEnd: after the time for a request silent connections get a 408 and end.
func TestSilentConnectionsToTheAPIEnd(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	e := newEdge(t, func(o *httpd.Options) { o.Limits.Read = time.Second })
	c := nettest.Dial(t, "127.0.0.1", e.server.Addr().String())
	r := bufio.NewReader(c)
	a, err := http.ReadResponse(r, nil)
	effort.FatalIf(t, err != nil || a.StatusCode != 408 || !a.Close, "got %v, %v, want 408", a, err)
	_, _ = io.Copy(io.Discard, a.Body)
	if n, err := io.Copy(io.Discard, r); n > 0 || listen.IsTimeout(err) {
		t.Errorf("%d bytes more, %v, want an end", n, err)
	}
}

// TestWhatAWorkspaceMayHave: a create above a limit is refused with the limit's own code and counted. Earlier
// creations can still be recovered, and another workspace can create.
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
			effort.Is(t, nettest.Metric(t, e.registry, "rollcall_http_limited_total", "limit="+c.limit), 1, "counted times")
			e.do(post("/v1/verifications", first)).is(t, 200, "first again")
			_, key, _ := e.customer("second")
			other := creation(uuid.NewString(), "10")
			other["X-API-Key"] = key
			e.do(post("/v1/verifications", other)).is(t, 201, "another workspace")
			// A limit that an operator sets takes precedence, and the same request is then accepted.
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
	effort.Is(t, nettest.Metric(t, e.registry, "rollcall_http_limited_total", "limit=disk"), 1, "counted times")
	e.do(get("/v1/credits")).is(t, 200, "credits")
}
