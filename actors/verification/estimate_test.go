package verification

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// TestFinish has each thing that an estimate rests on alone.
func TestFinish(t *testing.T) {
	at := func(q queue) map[string]*queue { return map[string]*queue{"r.test": &q} }
	const unknown = -1
	for _, c := range []struct {
		name string
		o    eta
		want time.Duration // from noon, without the settlement; unknown: nobody can say
		why  string
	}{
		{"nothing is left", eta{}, 0, ""},
		{"a known rate", eta{queues: at(queue{addresses: 30, perHour: 3600})}, 30 * time.Second, ""},
		{"half are put off for a minute", eta{queues: at(queue{addresses: 100, perHour: 3600, again: 50,
			wait: time.Minute})}, 160 * time.Second, ""},
		{"a rate that was seen", eta{queues: at(queue{addresses: 30, asked: 2})}, 15 * time.Second, ""},
		{"less than an hour's, and faster", eta{queues: at(queue{addresses: 30, perHour: 360, asked: 2})},
			15 * time.Second, ""},
		{"more than an hour's", eta{queues: at(queue{addresses: 720, perHour: 360, asked: 2})}, 2 * time.Hour, ""},
		{"the budget is used up", eta{queues: at(queue{addresses: 30, perHour: 360, asked: 2,
			cause: "budget"})}, 5 * time.Minute, ""},
		{"nothing seen yet", eta{queues: at(queue{addresses: 30, cause: "free"})}, domainTakes, ""},
		{"a rest, then a rate", eta{queues: at(queue{addresses: 30, perHour: 3600, cause: "penalty",
			until: noon.Add(time.Minute)})}, 90 * time.Second, ""},
		{"paused without end", eta{queues: at(queue{addresses: 30, cause: "paused",
			until: noon.Add(time.Minute)})}, unknown, "30 addresses wait for receiver r.test"},
		{"paused for a minute", eta{queues: at(queue{addresses: 30, perHour: 3600, cause: "paused",
			until: noon.Add(time.Minute)})}, 90 * time.Second, ""},
		{"unreached", eta{queues: at(queue{addresses: 1, cause: "unreached"})}, unknown, "unreached"},
		{"paused until tomorrow", eta{queues: at(queue{addresses: 3600, perHour: 3600, cause: "paused",
			until: noon.Add(24 * time.Hour)})}, 25 * time.Hour, ""},
		{"retries", eta{ends: noon.Add(20 * time.Minute),
			queues: at(queue{addresses: 1, perHour: 3600})}, 20 * time.Minute, ""},
		{"just begun", eta{begun: noon.Add(-time.Second), domains: 5}, unknown, "only begun"},
		{"domains to come", eta{begun: noon.Add(-time.Minute), domains: 60, addresses: 60, domainRate: 2,
			finalRate: 2}, 30*time.Second + domainTakes, ""},
		{"nothing is done", eta{begun: noon.Add(-time.Minute), domains: 60}, unknown, "60 domains"},
		{"as those at work", eta{begun: noon.Add(-time.Minute), domains: 60, addresses: 100, began: 100,
			ends: noon.Add(time.Minute)}, 3*time.Minute + domainTakes, ""},
		{"no later than it is given up", eta{deadline: noon.Add(time.Hour), ends: noon.Add(2 * time.Hour)},
			time.Hour - settleEvery, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.now = noon
			got, why := c.o.finish()
			if c.want == unknown {
				effort.ErrorIf(t, !got.IsZero() || !strings.Contains(why, c.why),
					"expected at %v (%s), want unknown (%s)", got, why, c.why)
				return
			}
			if want := noon.Add(c.want + settleEvery); !got.Equal(want) || why != "" {
				t.Errorf("expected after %v (%s), want %v", got.Sub(noon), why, c.want+settleEvery)
			}
		})
	}
}

// TestFinishIsNeverOver: an estimate is not in the past, and more work makes it no sooner.
func TestFinishIsNeverOver(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1_000_000)
		q := queue{addresses: n.Draw(t, "addresses"), perHour: n.Draw(t, "per hour"), asked: 1, cause: "allowance"}
		o := eta{now: noon, begun: noon.Add(-time.Minute), queues: map[string]*queue{"r": &q},
			domains: n.Draw(t, "domains"), addresses: n.Draw(t, "to come"), domainRate: 3, finalRate: 5}
		first, why := o.finish()
		effort.FatalIf(t, why != "" || first.Before(noon), "expected at %v (%s)", first, why)
		q.addresses++
		o.domains++
		if more, _ := o.finish(); more.Before(first) {
			t.Errorf("expected after %v, and with more work after %v", first.Sub(noon), more.Sub(noon))
		}
	})
}

// TestPace: a run that goes evenly has one pace, however long it goes on, and the memory for it is bounded.
func TestPace(t *testing.T) {
	var p throughput
	for i := range 40_000 {
		now := noon.Add(time.Duration(i) * tickEvery)
		p.note(now, 5*i, i)
		effort.FatalIf(t, len(p.samples) > samplesMax, "%d samples", len(p.samples))
		finals, done := p.rates(now, 5*i, i)
		effort.FatalIf(t, i > 0 && (math.Abs(finals-20) > 0.01 || math.Abs(done-4) > 0.01),
			"after %v: %.3f addresses and %.3f domains in a second, want 20 and 4", now.Sub(noon), finals, done)
	}
}

func TestLongest(t *testing.T) {
	var l lasted
	_, known := l.longest(1)
	effort.ErrorIf(t, known, "something is known of nothing")
	for range 90 {
		l.add(time.Second)
	}
	for range 10 {
		l.add(5 * time.Minute)
	}
	for _, c := range []struct {
		more int
		want time.Duration
	}{{1, time.Second}, {5, time.Second}, {20, 5 * time.Minute}, {1_000_000, 5 * time.Minute}} {
		if got, _ := l.longest(c.more); got < c.want || got > c.want*6/5 {
			t.Errorf("of %d more the longest takes %v, want %v", c.more, got, c.want)
		}
	}
}
