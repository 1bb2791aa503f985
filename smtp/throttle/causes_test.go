package throttle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
)

// trialsOf makes trials one after the other, 50 ms apart.
type trialsOf struct {
	c    *Causes
	now  time.Time
	soon bool // too soon for a second look
	host string
}

func newTrials() *trialsOf {
	return &trialsOf{c: NewCauses(), now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// next notes one and gives what it led to; with everybody waiting beside.
func (s *trialsOf) next(domain, tenant string, r Result, said string) Belief {
	s.now = s.now.Add(50 * time.Millisecond)
	t := Trial{Sent: s.now, At: s.now.Add(20 * time.Millisecond), Domain: domain, Tenant: tenant, Host: s.host, Result: r,
		Said: said}
	b := s.c.Note(t, Waiting{OtherDomain: true, OtherTenant: true, OtherHost: s.host != ""})
	if r == Answered {
		s.c.Fine(t)
	} else if b.Scope != ScopeReceiver && !s.soon {
		s.c.Settle(t, true) // a second look fails: it is odd itself
	}
	return b
}

// TestOddMailboxesAreNoCause: whatever share of mailboxes is odd, up to a fifth, in whatever words,
// the receiver is believed to be the cause for fewer than one in 500 of them; without learning what
// is usual it would be far more often.
func TestOddMailboxesAreNoCause(t *testing.T) {
	for seed := range effort.Seeds(t, 50) {
		r := rand.New(rand.NewPCG(seed, 1))
		share, kind := []float64{0.01, 0.05, 0.2}[r.IntN(3)], Result(1+r.IntN(3))
		s, odd, believed := newTrials(), 0, 0
		for range 20_000 {
			result := Answered
			if r.Float64() < share {
				result = kind
				odd++
			}
			if b := s.next(fmt.Sprint("d", r.IntN(8)), fmt.Sprint("t", r.IntN(2)), result, "450"); b.Scope == ScopeReceiver {
				believed++
			}
		}
		if most := 2 + odd/500; believed > most {
			t.Errorf("seed %d: %.0f %% odd, result %d: believed %d times in %d", seed, 100*share, kind, believed, odd)
		}
	}
}

// TestALimitIsBelieved within three dozen trials, however odd the mailboxes are, when everybody is put off.
func TestALimitIsBelieved(t *testing.T) {
	for seed := range effort.Seeds(t, 200) {
		r := rand.New(rand.NewPCG(seed, 2))
		share, domains, tenants := []float64{0, 0.01, 0.05, 0.2}[r.IntN(4)], 2+r.IntN(8), 2+r.IntN(3)
		s := newTrials()
		one := func(result Result) Belief {
			return s.next(fmt.Sprint("d", r.IntN(domains)), fmt.Sprint("t", r.IntN(tenants)), result, "qwe rty")
		}
		for range 300 {
			if r.Float64() < share {
				one(PutOff)
			} else {
				one(Answered)
			}
		}
		s.c.Clear()
		s.soon = true
		took := 1
		for b := one(PutOff); b.Scope != ScopeReceiver && took < 100; b = one(PutOff) {
			took++
		}
		if took > 36 {
			t.Errorf("seed %d: %.0f %% odd, %d domains, %d tenants: believed after %d", seed, 100*share, domains, tenants, took)
		}
	}
}

// TestANarrowScopeIsNoCauseForOthers: one domain, one customer's list, or one host, of which everything or half
// is put off while others are answered, is never taken for the receiver's doing.
func TestANarrowScopeIsNoCauseForOthers(t *testing.T) {
	for _, scope := range []Scope{ScopeDomain, ScopeTenant, ScopeHost} {
		tried, said := 0, 0
		for seed := range effort.Seeds(t, 100) {
			r := rand.New(rand.NewPCG(seed, 3))
			s, share, told := newTrials(), []float64{0.5, 1}[r.IntN(2)], false
			for n := range 2000 {
				domain, tenant, host := r.IntN(6), r.IntN(2), r.IntN(2)
				bad := [...]bool{ScopeDomain: domain == 0, ScopeTenant: tenant == 0, ScopeHost: host == 0}[scope]
				s.host = fmt.Sprint("mx", host)
				result := Answered
				if bad && r.Float64() < share {
					result = PutOff
				}
				b := s.next(fmt.Sprint("d", domain), fmt.Sprint("t", tenant), result, "450")
				told = told || b.Scope == scope
				if b.Scope == ScopeReceiver {
					t.Errorf("seed %d: %s of which %.0f %% are put off: the receiver is believed at trial %d: %s", seed, scope,
						100*share, n, b.Why)
					break
				}
			}
			if tried++; told {
				said++
			}
		}
		if scope != ScopeDomain && float64(said+1) < 0.9*float64(tried) { // a domain only when no other is answered
			t.Errorf("one %s is believed to be the cause in %d of %d worlds", scope, said, tried)
		}
	}
}

// TestTheSameTrialsGiveTheSameBeliefs: what is believed can be had again from the trials alone.
func TestTheSameTrialsGiveTheSameBeliefs(t *testing.T) {
	play := func() (out []string) {
		r, s := rand.New(rand.NewPCG(7, 4)), newTrials()
		for n := range 3000 {
			result := Answered
			if n%500 > 480 || r.IntN(20) == 0 {
				result = Result(1 + r.IntN(3))
			}
			if b := s.next(fmt.Sprint("d", r.IntN(5)), fmt.Sprint("t", r.IntN(2)), result, fmt.Sprint(r.IntN(3))); b.Scope > 0 {
				out = append(out, fmt.Sprint(n, b))
			}
		}
		return out
	}
	a, b := play(), play()
	if len(a) == 0 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%d and %d beliefs", len(a), len(b))
	}
}

// TestExperiment: it is our pace when fewer are put off since we go slower, or those that were put off
// pass; it isn't when as many are, or when nobody was ever answered.
func TestExperiment(t *testing.T) {
	limit := Rate{Events: 10, Per: time.Second}
	for name, c := range map[string]struct {
		before  []bool // newest trials before, true is bad
		steps   int
		after   []bool
		passed  int
		failed  int
		finding Finding
	}{
		"fewer":          {pattern(20, 2), 1, pattern(20, 0), 0, 0, OurPace},
		"they pass":      {pattern(20, 2), 1, pattern(4, 0), 2, 0, OurPace},
		"as many":        {pattern(20, 4), 1, pattern(20, 4), 0, 0, NotOurPace},
		"they are odd":   {pattern(20, 5), 1, pattern(6, 3), 0, 3, NotOurPace},
		"nobody ever":    {pattern(6, 1), 3, pattern(2, 1), 0, 0, NotOurPace},
		"not long after": {pattern(20, 4), 1, pattern(5, 4), 0, 0, NotKnown},
		"in one go":      {pattern(20, 4), 1, append(pattern(15, 0), pattern(8, 1)...), 0, 0, NotKnown},
	} {
		s := newTrials()
		rate := NewAdaptiveRate(RateBounds{Ceiling: limit, Stated: true, Share: 1, Rest: time.Minute}, s.now)
		for n, bad := range c.before {
			result := Answered
			if bad {
				result = PutOff
			}
			if s.next(fmt.Sprint("d", n%3), fmt.Sprint("t", n%2), result, "450"); !bad {
				rate.OnSuccess(s.now, s.now)
			}
		}
		var e Experiment
		for range c.steps {
			e.Begin(rate, s.c, false, s.now)
		}
		rate.OnThrottled(s.now, s.now, "450")
		for _, bad := range c.after {
			e.Trial(bad, 4)
		}
		for range c.passed {
			e.Looked(true, 4)
		}
		for range c.failed {
			e.Looked(false, 4)
		}
		f, _ := e.Finding()
		if f != c.finding {
			t.Errorf("%s: finding %d, want %d", name, f, c.finding)
		}
		e.End(f, rate, s.now)
		if full := !rate.Limits(s.now.Add(time.Hour)); e.Open() || full != (f == NotOurPace) {
			t.Errorf("%s: open %v, at the full rate %v", name, e.Open(), full)
		}
	}
}

// pattern is n trials of which each nth is bad; 0: none.
func pattern(n, each int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = each > 0 && i%each == each-1
	}
	return out
}
