package inspect

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// began is the beginning of the records of these tests.
var began = time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)

// table makes a table with one rule.
func table(t interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}, name string, fields map[string]string) *throttle.Table {
	set := effort.Must(throttle.ParseOverride(fields))(t)
	return effort.Must(throttle.NewTable([]throttle.Rule{{Name: name, Set: set}}))(t)
}

// recordOf makes a record of one receiver with a number of minutes.
func recordOf(minutes int, minute func(i int, m *Minute)) []Record {
	r := ReceiverRecord{Key: "example.net", Domain: "example.net"}
	for i := range minutes {
		m := Minute{At: began.Add(time.Duration(i) * time.Minute), Cause: "free"}
		minute(i, &m)
		r.Minutes = append(r.Minutes, m)
	}
	return []Record{{Node: "node-1", From: began.Unix(), Receivers: []ReceiverRecord{r}}}
}

// busy is a receiver that is asked as fast as 5/s allow for an hour, until nothing waits.
func busy(i int, m *Minute) {
	m.Asked, m.Accepted, m.Sessions, m.Opened, m.Allowed, m.Cause = 300, 300, 2, 6, 5, "allowance"
	m.Queued = 300 * (59 - i)
}

// stingy is a receiver whose budget of 20 refusals an hour lets 40 be asked.
func stingy(i int, m *Minute) {
	m.Queued, m.Allowed, m.Cause = 1000-40*(1+i/60), 5, "budget"
	if i%60 == 0 {
		m.Asked, m.Accepted, m.Refused, m.Sessions, m.Opened = 40, 20, 20, 1, 5
	}
}

func TestReplayTellsWhatOtherRulesWouldHaveDone(t *testing.T) {
	now := map[string]string{"rcpt_rate": "5/s", "refused_per_hour": "20", "connections": "2"}
	for _, c := range []struct {
		name         string
		minutes      int
		minute       func(i int, m *Minute)
		field, value string
		would        int
		delay        float64
		fired        map[string]int
		unknown      bool
	}{
		{"half the rate", 60, busy, "rcpt_rate", "150/min", 9000, 3600, map[string]int{"rcpt_rate": 60}, false},
		{"twice the rate", 60, busy, "rcpt_rate", "10/s", 18000, -1800, map[string]int{"rcpt_rate": 29}, true},
		{"half the sessions", 60, busy, "connections", "1", 9000, 3600, map[string]int{"connections": 60}, false},
		{"fewer connections", 60, busy, "connection_rate", "3/min", 9000, 3600, map[string]int{"connection_rate": 60}, false},
		{"shorter sessions", 60, busy, "rcpts_per_connection", "5", 9000, 3600,
			map[string]int{"rcpts_per_connection": 60}, false},
		{"a pause", 60, busy, "pause", "yes", 0, 7*86400 - 3600, map[string]int{"pause": 60}, false},
		{"half the refusals", 180, stingy, "refused_per_hour", "10", 60, 0, map[string]int{"refused_per_hour": 180}, false},
		{"what makes no difference to how much is asked", 60, busy, "idle_time", "1s", 18000, 0,
			map[string]int{"rcpt_rate": 59}, false},
		{"a penalty, whatever the rules", 60, func(_ int, m *Minute) { m.Queued, m.Cause = 40000, "penalty" },
			"rcpt_rate", "10/s", 0, 0, map[string]int{}, true},
		{"a limit that nobody comes near", 60, func(_ int, m *Minute) { m.Asked, m.Accepted, m.Allowed = 1, 1, 5 },
			"rcpt_rate", "1/s", 60, 0, map[string]int{}, false},
		{"a rate where the receiver was found to bear less", 60, func(i int, m *Minute) {
			busy(i, m)
			m.Allowed, m.Asked, m.Accepted = 1, 60, 60
		}, "rcpt_rate", "3/s", 3600, 0, map[string]int{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			candidate := map[string]string{}
			for k, v := range now {
				candidate[k] = v
			}
			candidate[c.field] = c.value
			// Sessions are said to end after 50 addresses, as they did.
			now["rcpts_per_connection"], now["connection_rate"] = "50", "30/min"
			for k, v := range now {
				if _, set := candidate[k]; !set {
					candidate[k] = v
				}
			}
			got := Replay(recordOf(c.minutes, c.minute), table(t, "example.net", now), table(t, "example.net", candidate))
			effort.FatalIf(t, len(got.Receivers) != 1 || got.Same != 0 || got.Hours != float64(c.minutes-1)/60,
				"%+v", got)
			r := got.Receivers[0]
			effort.ErrorIf(t, math.Abs(float64(r.Would-c.would)) > 0.02*float64(c.would),
				"%d of %d would have been asked, want %d", r.Would, r.Asked, c.would)
			effort.ErrorIf(t, c.name != "half the refusals" && math.Abs(r.Delay-c.delay) > 120,
				"the last one is %v s later, want %v", r.Delay, c.delay)
			for field, n := range c.fired {
				effort.ErrorIf(t, math.Abs(float64(r.Fired[field]-n)) > 2,
					"%s held back in %d minutes, want %d: %v", field, r.Fired[field], n, r.Fired)
			}
			effort.ErrorIf(t, len(c.fired) == 0 && len(r.Fired) > 0 || (r.Unknown != "") != c.unknown,
				"fired %v, unknown %q", r.Fired, r.Unknown)
			effort.ErrorIf(t, len(r.Changes) != 1 || r.Changes[0].Field != c.field ||
				r.Changes[0].Would == r.Changes[0].Now, "changes %+v", r.Changes)
		})
	}
}

// burst is a list of 1,500 that is asked at 5/s, as receivers that know the whole backlog record it.
func burst(i int, m *Minute) {
	busy(i, m)
	m.Queued = 300 * (4 - i)
}

// TestReplayOfABacklog: what waits is asked sooner when more is allowed, to the last of it,
// also when the record ends before; where the record does not have it that is said.
func TestReplayOfABacklog(t *testing.T) {
	rules := func(rate string) *throttle.Table {
		return table(t, "example.net", map[string]string{"rcpt_rate": rate, "connections": "20",
			"connection_rate": "10/s", "rcpts_per_connection": "50"})
	}
	chunks := func(queued int) func(i int, m *Minute) { // only what was offered is known
		return func(i int, m *Minute) {
			burst(i, m)
			m.Queued = queued
		}
	}
	for _, c := range []struct {
		name    string
		minutes int
		minute  func(i int, m *Minute)
		rate    string
		would   int
		delay   float64
		atLeast bool
	}{
		{"to the end", 5, burst, "50/s", 1500, 30 - 300, false},
		{"cut off in the middle", 2, burst, "50/s", 1500, 30 - 300, false},
		{"cut off, too slow for the time", 2, burst, "10/s", 1200, 150 - 300, false},
		{"only chunks are known", 5, chunks(50), "50/s", 1550, 241 - 310, true},
		{"only chunks are known, and less is allowed", 5, chunks(50), "1/s", 300, 1550 - 310, false},
		{"slow at a steady demand", 5, func(i int, m *Minute) {
			burst(i, m)
			m.Cause, m.Queued = "free", 50
		}, "50/s", 1550, 241 - 310, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Replay(recordOf(c.minutes, c.minute), rules("5/s"), rules(c.rate))
			effort.MustBe(t, len(got.Receivers), 1, got)
			r := got.Receivers[0]
			effort.ErrorIf(t, r.Would != c.would || math.Abs(r.Delay-c.delay) > 5 || r.AtLeast != c.atLeast,
				"%d of %d would have been asked, the last %v s later, at least is %v; want %d, %v, %v", r.Would,
				r.Asked, r.Delay, r.AtLeast, c.would, c.delay, c.atLeast)
		})
	}
}

func TestReplayOfTheSameRulesFindsNoDifference(t *testing.T) {
	rules := table(t, "example.net", map[string]string{"rcpt_rate": "1/s"})
	got := Replay(recordOf(60, busy), rules, rules)
	effort.ErrorIf(t, len(got.Receivers) != 0 || got.Same != 1 || got.Asked != 18000, "%+v", got)
	if got := Replay(nil, rules, rules); got.Hours != 0 || got.Asked != 0 || got.Same != 0 {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestReplayTakesNodesTogether(t *testing.T) {
	one, two := recordOf(60, busy), recordOf(60, busy)
	now := table(t, "example.net", map[string]string{"rcpt_rate": "10/s"})
	half := table(t, "example.net", map[string]string{"rcpt_rate": "5/s"})
	got := Replay(append(one, two...), now, half)
	effort.ErrorIf(t, len(got.Receivers) != 1 || got.Receivers[0].Asked != 36000 ||
		math.Abs(float64(got.Receivers[0].Would-18000)) > 360, "%+v", got)
}

func TestReplayWarnsOfRulesThatTakeAPartOfAReceiver(t *testing.T) {
	now := table(t, "example.net", map[string]string{"rcpt_rate": "5/s"})
	set, _ := throttle.ParseOverride(map[string]string{"rcpt_rate": "1/s"})
	candidate := effort.Must(throttle.NewTable([]throttle.Rule{{Name: "mx.example.net", Set: set}}))(t)
	got := Replay(recordOf(10, busy), now, candidate)
	effort.Is(t, len(got.Warnings), 1, "warnings", got.Warnings)
}

func TestLessIsNeverMore(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 120).Draw(t, "minutes")
		rate := rapid.IntRange(2, 100).Draw(t, "rate")
		less := rapid.IntRange(1, rate-1).Draw(t, "less")
		records := recordOf(n, func(_ int, m *Minute) {
			m.Asked = rapid.IntRange(0, rate).Draw(t, "asked")
			m.Accepted = m.Asked
			m.Queued = rapid.IntRange(0, 500).Draw(t, "queued")
			m.Sessions, m.Opened = rapid.IntRange(0, 2).Draw(t, "sessions"), rapid.IntRange(0, 3).Draw(t, "opened")
			m.Allowed = float64(rate) / 60
			m.Cause = rapid.SampledFrom(Causes[:]).Draw(t, "cause")
		})
		now := table(t, "example.net", map[string]string{"rcpt_rate": fmt.Sprintf("%d/min", rate)})
		candidate := table(t, "example.net", map[string]string{"rcpt_rate": fmt.Sprintf("%d/min", less)})
		r := Replay(records, now, candidate).Receivers[0]
		effort.FatalIf(t, r.Would > r.Asked || r.Delay < 0 || r.Unknown != "",
			"less lets %d of %d be asked, %v s later, %q", r.Would, r.Asked, r.Delay, r.Unknown)
	})
}
