package mx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// slow is a resolver with a bound, whose servers take 5 s for each question.
func slow(t *testing.T, atOnce int, test func(t *testing.T, r *Resolver, s *script)) {
	bubble(t, func(o *Options) { o.AtOnce = atOnce }, func(t *testing.T, r *Resolver, s *script) {
		s.takes = 5 * time.Second
		test(t, r, s)
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
	slow(t, 100, func(t *testing.T, r *Resolver, s *script) {
		end := crowd(t, r, "greedy", 20_000)
		defer end()
		wait(7 * time.Second)
		began := time.Now()
		if _, err := r.Lookup(For(t.Context(), "other"), "clean.test"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*s.takes { // MX and A
			t.Errorf("another tenant waited for %s", took)
		}
		if n := r.Waiting(); n < 10_000 {
			t.Errorf("only %d wait: the test shows nothing", n)
		}
	})
}

// TestWaitingUsesUpNoTime: the last of 300 begins after 10 others, long after the time that one
// lookup may take.
func TestWaitingUsesUpNoTime(t *testing.T) {
	slow(t, 20, func(t *testing.T, r *Resolver, s *script) {
		began := time.Now()
		end := crowd(t, r, "one", 300)
		wait(10 * time.Minute)
		end()
		if n := s.count(); n < 300 || time.Since(began) < 2*nameBudget {
			t.Errorf("%d questions for 300 domains", n)
		}
		if r.Waiting() != 0 || r.routes.turns.Used() != 0 {
			t.Errorf("%d wait and %d are used in the end", r.Waiting(), r.routes.turns.Used())
		}
	})
}

// TestADomainThatTwoWantBeginsInTheSoonerTurn: a lookup that is behind many of one tenant is not so
// for another who wants the same.
func TestADomainThatTwoWantBeginsInTheSoonerTurn(t *testing.T) {
	slow(t, 20, func(t *testing.T, r *Resolver, s *script) {
		defer crowd(t, r, "greedy", 2_000)()
		wait(time.Second)
		began := time.Now()
		if _, err := r.Lookup(For(t.Context(), "other"), "slow1999.test"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*s.takes { // MX, A and AAAA
			t.Errorf("it waited for %s", took)
		}
	})
}
