package mx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/ledger/quota"
)

// script answers instead of DNS servers, in a test bubble.
type script struct {
	mu      sync.Mutex // guards all below
	answers map[string]string
	takes   time.Duration
	asked   int
}

func (s *script) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	s.mu.Lock()
	s.asked++
	text, takes := s.answers[name+" "+dns.TypeToString[qtype]], s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, failure(TimedOut, name, qtype, context.Cause(ctx))
	}
	m := new(dns.Msg).SetQuestion(name, qtype)
	switch text {
	case "":
		m.Rcode = dns.RcodeNameError
	case "SERVFAIL":
		return nil, failure(ServFail, name, qtype, nil)
	default:
		rr, err := dns.NewRR(text)
		if err != nil {
			return nil, failure(Malformed, name, qtype, err)
		}
		m.Answer = []dns.RR{rr}
	}
	return m, nil
}

func (s *script) check(context.Context) error { return nil }
func (s *script) stats() Stats                { return Stats{} }
func (s *script) close() error                { return nil }

func (s *script) set(question, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[question] = answer
}

// count returns the questions since the last count.
func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asked
	s.asked = 0
	return n
}

// bubble runs a test with a resolver over a script, in false time.
func bubble(t *testing.T, change func(*Options), test func(t *testing.T, r *Resolver, s *script)) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: time.Second, answers: map[string]string{
			"clean.test. MX":   "clean.test. 600 MX 1 mx.clean.test.",
			"mx.clean.test. A": "mx.clean.test. 600 A 192.0.2.1",
		}}
		o := testOptions("192.0.2.53:53")
		change(&o)
		r := newResolver(o, s)
		test(t, r, s)
		effort.ErrIs(t, r.Close(), nil)
	})
}

func unchanged(*Options) {}

// wait lets false time go by.
func wait(d time.Duration) { <-time.After(d) }

func TestSimultaneousLookupsAskOnce(t *testing.T) {
	bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				effort.Is(t, lookup(t, r, "clean.test"), cleanRoute)
			})
		}
		all.Wait()
		effort.Is(t, s.count(), 2, "questions for 100 lookups")
	})
}

// TestWaiterThatLeaves: the others still get the answer; when all have left, the
// question is given up, and the next caller asks anew.
func TestWaiterThatLeaves(t *testing.T) {
	bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
		rateLimited, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		stayed := make(chan string)
		go func() { stayed <- lookup(t, r, "clean.test") }()
		synctest.Wait()
		effort.Denied(r.Lookup(rateLimited, "clean.test"))(t, context.DeadlineExceeded, "hasty caller")
		effort.Is(t, <-stayed, cleanRoute, "patient caller")
		s.count()

		alone, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		effort.Denied(r.Lookup(alone, "alone.test"))(t, context.DeadlineExceeded, "lone caller")
		if got := lookup(t, r, "alone.test"); got != "domain_not_found" || s.count() != 1+3 {
			t.Errorf("the next caller got %s, want domain_not_found of a new question", got)
		}
	})
}

// TestCacheExpiry: answers are believed as long as their TTL says, within bounds.
func TestCacheExpiry(t *testing.T) {
	for _, tc := range []struct {
		name     string
		mx, a    int // seconds
		believed time.Duration
	}{
		{"as told", 600, 600, 10 * time.Minute},
		{"the MX ends first", 600, 3000, 10 * time.Minute},
		{"the address ends first", 3000, 600, 10 * time.Minute},
		{"too short", 0, 0, time.Minute},
		{"too long", 1 << 30, 1 << 30, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
				s.set("clean.test. MX", fmt.Sprintf("clean.test. %d MX 1 mx.clean.test.", tc.mx))
				s.set("mx.clean.test. A", fmt.Sprintf("mx.clean.test. %d A 192.0.2.1", tc.a))
				route := effort.Must(r.Lookup(t.Context(), "clean.test"))(t)
				// The MX record came a second before the address.
				left := time.Until(route.Expires)
				effort.ErrorIf(t, left < tc.believed-time.Second || left > tc.believed,
					"expires in %s, want %s", left, tc.believed)
				s.count()
				wait(tc.believed - 2*time.Second)
				lookup(t, r, "clean.test")
				effort.ErrorIf(t, s.count() != 0, "asked again too early")
				wait(2 * time.Second)
				lookup(t, r, "clean.test")
				effort.ErrorIf(t, s.count() == 0, "not asked again")
			})
		})
	}
}

// TestFailuresAreAskedAgain: a failure is remembered for a second, no longer.
func TestFailuresAreAskedAgain(t *testing.T) {
	bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
		s.set("mx.clean.test. A", "SERVFAIL")
		for range 2 {
			effort.MustBe(t, lookup(t, r, "clean.test"), "error: server failure")
		}
		effort.Is(t, s.count(), 2, "questions for two lookups at once")
		s.set("mx.clean.test. A", "mx.clean.test. A 192.0.2.1")
		wait(time.Second)
		effort.Is(t, lookup(t, r, "clean.test"), cleanRoute, "a second later")
	})
}

// TestOneFamilyFails: the other one will do, and the failed one is asked again soon.
func TestOneFamilyFails(t *testing.T) {
	both := func(o *Options) { o.IPv6 = true }
	bubble(t, both, func(t *testing.T, r *Resolver, s *script) {
		s.set("mx.clean.test. AAAA", "SERVFAIL")
		effort.Is(t, lookup(t, r, "clean.test"), cleanRoute)
		s.set("mx.clean.test. AAAA", "mx.clean.test. AAAA 2001:db8::1")
		wait(time.Minute)
		got, want := lookup(t, r, "clean.test"), cleanRoute+" 2001:db8::1"
		effort.ErrorIf(t, got != want, "a minute later got %s, want %s", got, want)
	})
}

// TestRouteWithoutItsBestHost: is looked up again soon.
func TestRouteWithoutItsBestHost(t *testing.T) {
	bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
		hosts := []mxRecord{{host: "best.test"}, {host: "next.test", preference: 1}}
		answers := []hostAnswer{
			{err: &Error{Kind: ServFail}},
			{addrs: testAddrs(1), expires: time.Now().Add(time.Hour)},
		}
		route, err := planRoute("d.test", hosts, answers, r.seed)
		effort.ErrorIf(t, err != nil || len(route.Hosts) != 1 || !route.Expires.IsZero(),
			"%+v, %v, want the other host and no time to believe it", route, err)
	})
}

// TestNameBudget: a name takes 20 s at most, whatever the servers do.
func TestNameBudget(t *testing.T) {
	bubble(t, unchanged, func(t *testing.T, r *Resolver, s *script) {
		s.takes = time.Hour
		begin := time.Now()
		effort.Is(t, lookup(t, r, "clean.test"), "error: no answer in time")
		effort.Is(t, time.Since(begin), nameBudget, "took")
	})
}

// TestCacheBound: never more than CacheMax, and what was used last stays.
func TestCacheBound(t *testing.T) {
	small := func(o *Options) { o.CacheMax = 3 }
	bubble(t, small, func(t *testing.T, r *Resolver, s *script) {
		for i := range 10 {
			lookup(t, r, numbered(i))
			lookup(t, r, "clean.test")
			n := r.routes.entries.Len()
			effort.FatalIf(t, n > 3, "%d routes kept", n)
		}
		effort.Is(t, s.count(), 3*10+2, "questions, want 32: what was used all the time was forgotten")
		// Its route is gone, and what was said of its addresses.
		lookup(t, r, numbered(0))
		effort.ErrorIf(t, s.count() != 3, "what was not used is still there")
	})
}

func numbered(i int) string { return fmt.Sprintf("d%d.test", i) }

// slow is a resolver with a bound, whose servers take 5 s for each question.
func slow(t *testing.T, atOnce int64, test func(t *testing.T, r *Resolver, s *script, turns *quota.Slots[string])) {
	turns := quota.NewSlots[string](atOnce, nil)
	bubble(t, func(o *Options) { o.Turn = turns.Enter }, func(t *testing.T, r *Resolver, s *script) {
		s.takes = 5 * time.Second
		test(t, r, s, turns)
	})
}

// crowd lets a tenant ask for many domains at once, until the test ends.
func crowd(t *testing.T, r *Resolver, tenant string, n int) (end func()) {
	ctx, cancel := context.WithCancel(For(t.Context(), tenant))
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := r.Lookup(ctx, fmt.Sprintf("slow%d.test", i)); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("slow%d.test: %v: it waited for its turn, and that is no failure", i, err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// TestSlowDomainsOfOneTenantDelayNobodyElse: not even by one question.
func TestSlowDomainsOfOneTenantDelayNobodyElse(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	slow(t, 100, func(t *testing.T, r *Resolver, s *script, turns *quota.Slots[string]) {
		end := crowd(t, r, "greedy", 20_000)
		defer end()
		wait(7 * time.Second)
		began := time.Now()
		effort.Must(r.Lookup(For(t.Context(), "other"), "clean.test"))(t)
		if took := time.Since(began); took > 2*s.takes { // MX and A
			t.Errorf("another tenant waited for %s", took)
		}
		n := turns.Waiting()
		effort.ErrorIf(t, n < 10_000, "only %d wait: the test shows nothing", n)
	})
}

// TestWaitingUsesUpNoTime: a lookup may wait in the queue for longer than it may take, and still succeed.
func TestWaitingUsesUpNoTime(t *testing.T) {
	slow(t, 20, func(t *testing.T, r *Resolver, s *script, turns *quota.Slots[string]) {
		began := time.Now()
		end := crowd(t, r, "one", 300)
		wait(10 * time.Minute)
		end()
		n := s.count()
		effort.ErrorIf(t, n < 300 || time.Since(began) < 2*nameBudget, "%d questions for 300 domains", n)
		effort.Is(t, turns.Waiting(), 0)
		effort.Is(t, turns.Used(), 0)
	})
}

// TestADomainThatTwoWantBeginsInTheSoonerTurn: a lookup that is behind many of one tenant is not so
// for another who wants the same.
func TestADomainThatTwoWantBeginsInTheSoonerTurn(t *testing.T) {
	slow(t, 20, func(t *testing.T, r *Resolver, s *script, turns *quota.Slots[string]) {
		defer crowd(t, r, "greedy", 2_000)()
		wait(time.Second)
		began := time.Now()
		effort.Must(r.Lookup(For(t.Context(), "other"), "slow1999.test"))(t)
		if took := time.Since(began); took > 3*s.takes { // MX, A and AAAA
			t.Errorf("it waited for %s", took)
		}
	})
}
