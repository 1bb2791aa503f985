package throttle

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// hidden is a far side with a limit that it does not tell.
type hidden struct {
	kind  string // "sliding", "fixed" or "bucket"
	limit Rate
	all   bool // what it refuses counts too
	seen  []time.Time
	from  time.Time
	count int
	level float64
	at    time.Time
}

// takes says whether an event is taken that arrives at a time.
func (h *hidden) takes(now time.Time) bool {
	ok := false
	switch h.kind {
	case "sliding":
		for len(h.seen) > 0 && now.Sub(h.seen[0]) >= h.limit.Per {
			h.seen = h.seen[1:]
		}
		if ok = len(h.seen) < h.limit.Events; ok || h.all {
			h.seen = append(h.seen, now)
		}
		if len(h.seen) > h.limit.Events { // more would make no difference
			h.seen = h.seen[1:]
		}
	case "fixed":
		if began := now.Truncate(h.limit.Per); began != h.from {
			h.from, h.count = began, 0
		}
		h.count++
		ok = h.count <= h.limit.Events
	case "bucket": // a fifth of the events at once
		most := max(1, float64(h.limit.Events)/5)
		if h.at.IsZero() {
			h.level = most
		} else {
			h.level = min(most, h.level+now.Sub(h.at).Seconds()*h.limit.PerSecond())
		}
		h.at = now
		if ok = h.level >= 1; ok || h.all {
			h.level = max(0, h.level-1)
		}
	}
	return ok
}

// tally is what came of a span of a run.
type tally struct {
	taken, deferred int
}

func (a tally) use(limit Rate, span time.Duration) float64 {
	return float64(a.taken) / (limit.PerSecond() * span.Seconds())
}

func (a tally) share() float64 { return float64(a.deferred) / max(1, float64(a.taken+a.deferred)) }

// pilot is a caller that wants all it can get, behind an AdaptiveRate and its Window.
type pilot struct {
	now    time.Time
	tempo  *AdaptiveRate
	window *Window
	far    *hidden
	turn   time.Duration
	jitter time.Duration
	rand   *rand.Rand
	under  replies
}

func newPilot(ceiling Rate, stated bool, far *hidden) *pilot {
	p := &pilot{now: start, tempo: NewAdaptiveRate(RateBounds{Ceiling: ceiling, Stated: stated, Rest: time.Hour}, start), far: far, turn: 40 * time.Millisecond,
		jitter: 10 * time.Millisecond, rand: rand.New(rand.NewPCG(1, 2))}
	r, _ := p.tempo.Permits(start)
	p.window = NewWindow(r, start)
	return p
}

// run lets some time go by.
func (p *pilot) run(span time.Duration) (out tally) {
	end := p.now.Add(span)
	for p.now.Before(end) {
		for len(p.under) > 0 && !p.under[0].back.After(p.now) {
			r := heap.Pop(&p.under).(reply)
			p.window.Done(r.at, 1)
			sent := r.at
			if !r.lost {
				out.taken++
				p.tempo.OnSuccess(sent, p.now)
				continue
			}
			out.deferred++
			p.tempo.OnThrottled(sent, p.now, "450 4.7.1")
		}
		rate, until := p.tempo.Permits(p.now)
		p.window.Set(rate)
		granted, next := 0, until
		if !p.now.Before(until) {
			granted, next = p.window.Ready(p.now)
		}
		for range granted {
			p.window.Begin(p.now, 1)
			there := p.turn/2 + time.Duration(p.rand.Int64N(int64(p.jitter)+1))
			heap.Push(&p.under, reply{back: p.now.Add(there + p.turn/2), at: p.now,
				lost: !p.far.takes(p.now.Add(there))})
		}
		if granted > 0 {
			next = p.now.Add(time.Millisecond)
		}
		if other := p.tempo.Next(p.now); !other.IsZero() && (next.IsZero() || other.Before(next)) {
			next = other
		}
		if len(p.under) > 0 && (next.IsZero() || p.under[0].back.Before(next)) {
			next = p.under[0].back
		}
		if !next.After(p.now) {
			next = p.now.Add(time.Millisecond)
		}
		p.now = next
	}
	return out
}

// TestAdaptiveRateFinds: a hidden limit of any kind is found, used for nine tenths and rarely
// exceeded. Where a limit cannot be kept to as well, least and most say how well.
func TestAdaptiveRateFinds(t *testing.T) {
	for _, tc := range []struct {
		limit        string
		settle, span time.Duration
		least, most  map[string]float64 // by kind; 0.9 and 0.01 for others
	}{
		{"1/s", 10 * time.Minute, 20 * time.Minute, nil, nil},
		{"5/s", 10 * time.Minute, 20 * time.Minute, map[string]float64{"bucket": 0.88}, nil},
		{"20/s", 5 * time.Minute, 10 * time.Minute, nil, nil},
		{"200/s", 3 * time.Minute, 3 * time.Minute, nil, nil},
		{"2000/s", time.Minute, time.Minute, nil, nil},
		{"30/min", 10 * time.Minute, time.Hour, nil, map[string]float64{"bucket": 0.015}},
		{"300/min", 10 * time.Minute, 30 * time.Minute, nil, nil},
		{"3600/h", 6 * time.Hour, 12 * time.Hour, map[string]float64{"sliding": 0.8}, nil},
		{"100/h", 6 * time.Hour, 24 * time.Hour, nil,
			map[string]float64{"sliding": 0.02, "fixed": 0.015, "bucket": 0.1}},
	} {
		for _, kind := range []string{"sliding", "fixed", "bucket"} {
			t.Run(tc.limit+" "+kind, func(t *testing.T) {
				limit := mustRate(t, tc.limit)
				p := newPilot(Rate{Events: 4 * limit.Events, Per: limit.Per}, true,
					&hidden{kind: kind, limit: limit, all: true})
				first := p.run(tc.settle)
				then := p.run(tc.span)
				use, deferred := then.use(limit, tc.span), then.share()
				t.Logf("first %s: %5.1f %% used, %5.2f %% deferred; then %5.1f %%, %5.2f %%; %s", tc.settle,
					100*first.use(limit, tc.settle), 100*first.share(), 100*use, 100*deferred,
					p.tempo.Explain(p.now).Why)
				if use < cmp.Or(tc.least[kind], 0.9) || deferred > cmp.Or(tc.most[kind], 0.01) {
					t.Errorf("%.1f %% used, %.2f %% deferred", 100*use, 100*deferred)
				}
			})
		}
	}
}

// TestAdaptiveRateFollows: a limit that is halved, and one that is tripled, is found again.
func TestAdaptiveRateFollows(t *testing.T) {
	for _, limit := range []string{"10/s", "100/s", "300/min"} {
		t.Run(limit, func(t *testing.T) {
			r := mustRate(t, limit)
			p := newPilot(Rate{Events: 4 * r.Events, Per: r.Per}, true, &hidden{kind: "sliding", limit: r, all: true})
			p.run(5 * time.Minute)
			for _, events := range []int{r.Events / 2, r.Events * 3 / 2} {
				now := Rate{Events: events, Per: r.Per}
				p.far.limit, p.far.seen = now, nil
				began, found := p.now, time.Duration(0)
				for found == 0 && p.now.Sub(began) < 30*time.Minute {
					if p.run(time.Minute).use(now, time.Minute) >= 0.9 {
						found = p.now.Sub(began)
					}
				}
				then := p.run(10 * time.Minute)
				t.Logf("%s: found within %s; then %.1f %% used, %.2f %% deferred", now, found.Round(time.Second),
					100*then.use(now, 10*time.Minute), 100*then.share())
				if found == 0 || found > 16*time.Minute || then.share() > 0.01 {
					t.Errorf("%s: found after %s, then %.2f %% deferred", now, found, 100*then.share())
				}
			}
		})
	}
}

// TestAdaptiveRateStaysInBounds whatever it hears, and whenever.
func TestAdaptiveRateStaysInBounds(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		now, ceiling := start, drawRate(t)
		stated := rapid.Bool().Draw(t, "stated")
		p := NewAdaptiveRate(RateBounds{Ceiling: ceiling, Stated: stated, Rest: time.Hour}, now)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "passed")))
			sent := now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took")))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if before := p.Explain(now); p.OnThrottled(sent, now, "450") && !p.Explain(now).Until.After(now) {
					t.Fatalf("no rest after a complaint: %+v", before)
				}
			case 1:
				ceiling = drawRate(t)
				share := rapid.Float64Range(0, 1).Draw(t, "share")
				p.Set(RateBounds{Ceiling: ceiling, Stated: stated, Share: share, Rest: time.Hour}, now)
			case 2:
				p.Rested(now.Add(time.Hour), now)
			case 3:
				p.OnLatency(now.Sub(sent), now)
			case 4:
				m := RateMemory{Rate: rapid.Float64Range(0, 1e6).Draw(t, "rate"), Edge: 1, Proof: time.Hour}
				p.Recall(m, now)
			default:
				p.OnSuccess(sent, now)
			}
			e := p.Explain(now)
			if r, until := p.Permits(now); r.Validate() != nil || e.Rate > e.Ceiling || e.Rate > 0 && e.Rate < e.Floor {
				t.Fatalf("%s until %s: %+v", r, until, e)
			}
			if next := p.Next(now); !next.IsZero() && !next.After(now) {
				t.Fatalf("next is %s before now", now.Sub(next))
			}
			if e.Rate == e.Ceiling && p.Limits(now) {
				t.Fatalf("it limits at the ceiling: %+v", e)
			}
		}
	})
}

// TestAdaptiveRateAndLatency: answers that take ever longer lower the rate, to a half at most, and
// it comes back when they are quick again.
func TestAdaptiveRateAndLatency(t *testing.T) {
	now, ceiling := start, Rate{Events: 10, Per: time.Second}
	p := NewAdaptiveRate(RateBounds{Ceiling: ceiling, Stated: true, Rest: time.Hour}, now)
	hear := func(n int, took time.Duration) float64 {
		for range n {
			now = now.Add(time.Duration(float64(time.Second) / max(0.1, p.Explain(now).Rate)))
			p.OnSuccess(now.Add(-took), now)
			p.OnLatency(took, now)
		}
		return p.Explain(now).Rate
	}
	if r := hear(100, 50*time.Millisecond); r != 10 {
		t.Errorf("%g/s to a quick receiver", r)
	}
	if r := hear(100, 150*time.Millisecond); r != 10 {
		t.Errorf("%g/s to one that is a little slower", r)
	}
	if r := hear(2000, 3*time.Second); r < 5 || r > 6 {
		t.Errorf("%g/s to one that is sixty times slower", r)
	}
	if r := hear(2000, 50*time.Millisecond); r != 10 {
		t.Errorf("%g/s to one that is quick again; %+v", r, p.Explain(now))
	}
}

// TestAdaptiveRateOutlivesNothing: a ceiling of nothing for a while, before the first event or later,
// leaves no trace in what is found afterwards.
func TestAdaptiveRateOutlivesNothing(t *testing.T) {
	full, none := RateBounds{Ceiling: Rate{20, time.Second}, Rest: time.Minute}, RateBounds{Rest: time.Minute}
	for _, tc := range []struct {
		name          string
		stated, first bool
		rested, until bool
	}{
		{"made under it", false, true, false, false}, {"made under it, stated", true, true, false, false},
		{"made under it, stated until then", false, true, false, true},
		{"made under it, then rested", false, true, true, false},
		{"made under it, stated, rested", true, true, true, false},
		{"later", false, false, false, false}, {"later, stated", true, false, false, false},
		{"later, rested", false, false, true, false},
	} {
		was, none := full, none
		was.Stated, none.Stated = tc.stated, tc.stated || tc.until
		p := newPilot(was.Ceiling, tc.stated, &hidden{kind: "sliding", limit: Rate{1000, time.Second}})
		now := p.now
		if tc.first {
			p.tempo = NewAdaptiveRate(none, now)
		} else {
			p.run(time.Minute)
			now = p.now
			p.tempo.Set(none, now)
		}
		if tc.rested {
			p.tempo.Rested(now.Add(10*time.Second), now)
		}
		p.tempo.Set(none, now)
		p.tempo.Set(was, now)
		least := 20.0 // as before
		if tc.first && !tc.stated {
			least = 20.0 / startShare
		}
		if e := p.tempo.Explain(now); e.Ceiling != 20 || !tc.rested && e.Rate != least {
			t.Errorf("%s: %+v", tc.name, e)
		}
		p.run(5 * time.Minute)
		if e := p.tempo.Explain(p.now); e.Rate != 20 {
			t.Errorf("%s: five minutes later %+v", tc.name, e)
		}
	}
}

// TestAdaptiveRateRemembers: the next one goes on at what went well, little by little.
func TestAdaptiveRateRemembers(t *testing.T) {
	limit := Rate{Events: 10, Per: time.Second}
	p := newPilot(Rate{Events: 40, Per: time.Second}, true, &hidden{kind: "sliding", limit: limit, all: true})
	if _, worth := p.tempo.Remember(); worth {
		t.Error("one that knows nothing wants to be remembered")
	}
	p.run(5 * time.Minute)
	m, worth := p.tempo.Remember()
	if !worth || m.Rate < 9 || m.Rate > 10.2 {
		t.Fatalf("remembers %+v", m)
	}
	p.tempo = NewAdaptiveRate(RateBounds{Ceiling: Rate{Events: 40, Per: time.Second}, Stated: true, Rest: time.Hour}, p.now)
	p.tempo.Recall(m, p.now)
	if r := p.tempo.Explain(p.now).Rate; r > m.Rate/2 {
		t.Errorf("it begins at %g/s", r)
	}
	if then := p.run(2 * time.Minute); then.use(limit, 2*time.Minute) < 0.85 || then.share() > 0.01 {
		t.Errorf("%+v", then)
	}
}
