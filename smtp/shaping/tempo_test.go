package shaping

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
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

// pilot is a caller that wants all it can get, behind a Tempo and its Window.
type pilot struct {
	now     time.Time
	tempo   *Tempo
	window  *Window
	far     *hidden
	turn    time.Duration
	jitter  time.Duration
	rand    *rand.Rand
	under   replies
	kinds   []bool // of the replies under way, by number
	trace   func(format string, args ...any)
	lessons int
}

func newPilot(ceiling Rate, stated bool, far *hidden) *pilot {
	p := &pilot{now: start, tempo: NewTempo(TempoBounds{Ceiling: ceiling, Stated: stated, Rest: time.Hour}, start), far: far, turn: 40 * time.Millisecond,
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
				p.tempo.Heard(sent, p.now)
				continue
			}
			out.deferred++
			if p.tempo.Complained(sent, p.now, "450 4.7.1") {
				p.lessons++
				if p.trace != nil {
					p.trace("%s %+v", p.now.Sub(start).Round(time.Millisecond), p.tempo.Explain(p.now))
				}
			}
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

// TestTempoFinds: hidden limits of every kind.
func TestTempoFinds(t *testing.T) {
	for _, limit := range []string{"1/s", "5/s", "20/s", "200/s", "2000/s", "30/min", "300/min", "3000/min", "100/h", "3600/h", "36000/h"} {
		for _, kind := range []string{"sliding", "fixed", "bucket"} {
			for _, all := range []bool{false, true} {
				r := mustRate(t, limit)
				ceiling := Rate{Events: r.Events * 4, Per: r.Per}
				p := newPilot(ceiling, true, &hidden{kind: kind, limit: r, all: all})
				settle, span := 10*time.Minute, 20*time.Minute
				if r.Per == time.Hour {
					settle, span = 6*time.Hour, 12*time.Hour
				}
				first := p.run(settle)
				l := p.lessons
				then := p.run(span)
				t.Log(fmt.Sprintf("%-9s %-8s all=%-5v settling: %5.1f %% used %5.2f %% deferred %3d lessons; then %5.1f %% used %5.2f %% deferred %3d lessons %s",
					limit, kind, all, 100*first.use(r, settle), 100*first.share(), l, 100*then.use(r, span), 100*then.share(), p.lessons-l, p.tempo.Explain(p.now).Why))
			}
		}
	}
}
