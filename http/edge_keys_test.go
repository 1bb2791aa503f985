package http_test

import (
	"fmt"
	"testing"
	"time"

	httpd "rollcall/http"
	"rollcall/http/apikey"
)

// withKey reads the credits with a key.
func withKey(key string) call {
	return call{method: "GET", path: "/v1/credits", headers: map[string]string{"X-API-Key": key}}
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
	revoked, _ := apikey.New()
	want := func(what, key string, status int, after string) {
		t.Helper()
		if a := e.do(withKey(key)); a.status != status || a.header.Get("Retry-After") != after {
			t.Errorf("%s: %d %s, Retry-After %q, want %d %q", what, a.status, a.body, a.header.Get("Retry-After"),
				status, after)
		}
	}
	want("a good key before", e.key, 200, "")
	for i := range 20 {
		if key := []string{"bad", revoked}[i%2]; e.do(withKey(key)).status != 401 {
			t.Fatalf("rejected key %d is not answered 401", i+1)
		}
	}
	want("a malformed key", "bad", 429, "3")
	want("no key", "-", 401, "") // no guess
	want("an unknown key that was asked about", revoked, 429, "3")
	want("a known key", e.key, 200, "")
	want("a good key that was never seen", fresh, 200, "")
	for range 2 { // the lookups that are left
		unknown, _ := apikey.New()
		want("an unknown key", unknown, 429, "3")
	}
	want("a good key that was never seen, without a lookup left", later, 429, "1")
	clk.advance(time.Second)
	want("the same after the time told", later, 200, "")
	clk.advance(time.Minute)
	for range 43 { // spends what came back of both limits
		unknown, _ := apikey.New()
		e.do(withKey(unknown))
	}
	unknown, _ := apikey.New()
	asked := e.book.keyReads.Load()
	if want("an unknown key", unknown, 429, "1"); e.book.keyReads.Load() != asked {
		t.Error("the ledger was asked although no lookup was left")
	}
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
		if a := e.do(withKey(key)); a.status != 200 {
			t.Fatalf("key %d: %d %s", i, a.status, a.body)
		}
	}
	e.book.away.Store(true)
	for range 3 { // nobody knows whether it is good
		if key, _ := apikey.New(); e.do(withKey(key)).status != 503 {
			t.Fatal("a key that nobody could be asked about is not answered 503")
		}
	}
	e.book.away.Store(false)
	if a := e.do(withKey("bad")); a.status != 401 {
		t.Errorf("the first bad key: %d", a.status)
	}
	if a := e.do(withKey("bad")); a.status != 429 {
		t.Errorf("the second bad key: %d", a.status)
	}
}

// TestGuessesAreLookedUpAtABoundedRate sends many well-formed guesses within no time.
func TestGuessesAreLookedUpAtABoundedRate(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) {
		o.Limits = httpd.DefaultLimits()
		o.Now = clk.now
	})
	asked := e.book.keyReads.Load()
	for range 500 {
		key, _ := apikey.New()
		e.do(withKey(key))
	}
	if n := e.book.keyReads.Load() - asked; n != 120 {
		t.Errorf("the ledger was asked about %d of 500 guesses, want 20 and 100", n)
	}
}
