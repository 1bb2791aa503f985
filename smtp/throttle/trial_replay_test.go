package throttle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// overJSON gives lines as a program reads them that got them as JSON.
func overJSON(t testing.TB, log []TrialLine) (out []TrialLine) {
	t.Helper()
	for _, l := range log {
		text, err := json.Marshal(l)
		var back TrialLine
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, back)
	}
	return out
}

// drawnTrials calls a Causes and its Experiment as whoever asks a receiver does, in a world drawn at
// random, and gives what was believed.
func drawnTrials(r *rand.Rand, c *Causes, n int) (believed []Decision) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	rate := NewAdaptiveRate(RateBounds{Ceiling: Rate{Events: 100, Per: time.Second}, Stated: true, Share: 1, Rest: time.Minute}, now)
	var e Experiment
	pace := func() float64 { return 10 * r.Float64() }
	domains, tenants, hosts, odd := 1+r.IntN(40), 1+r.IntN(4), 1+r.IntN(3), []float64{0, 0.02, 0.2, 0.5}[r.IntN(4)]
	if r.IntN(8) == 0 {
		domains = 3 * scopesMax
	}
	storm, said := 0, []string{"450", "421", "550 5.7.1", "connection"}
	for range n {
		now = now.Add(time.Duration(1+r.IntN(300)) * time.Millisecond)
		if storm--; storm < -200 && r.IntN(150) == 0 {
			storm = 5 + r.IntN(60)
		}
		t := Trial{Sent: now, At: now.Add(time.Duration(r.IntN(50)) * time.Millisecond), Domain: fmt.Sprintf("d%d.example", r.IntN(domains)),
			Tenant: fmt.Sprintf("secret-%d", r.IntN(tenants)), Host: fmt.Sprintf("mx%d.example", r.IntN(hosts)),
			Said: said[r.IntN(len(said))], Again: r.IntN(50) == 0}
		if storm > 0 || r.Float64() < odd {
			t.Result, t.OfUs, t.OfItself = Result(1+r.IntN(3)), r.IntN(4) == 0, r.IntN(9) == 0
			if e.Open() {
				e.Trial(true, pace())
			}
		}
		b := c.Note(t, Waiting{r.IntN(3) > 0, r.IntN(3) > 0, r.IntN(3) > 0})
		if b.Why != "" {
			believed = append(believed, Decision{t.At, b.Scope.String(), b.Refused, b.Why})
		}
		switch {
		case t.Result == Answered && !t.Again:
			c.Fine(t)
			if e.Open() {
				e.Trial(false, pace())
			}
		case b.Scope == ScopeReceiver && !b.Refused:
			e.Begin(rate, c, r.IntN(5) == 0, now)
		case t.Result != Answered && c.LookAgain(t.Said):
			passed := r.Float64() > odd
			if c.Settle(t, !passed); e.Open() {
				e.Looked(passed, pace())
			}
		case t.Result != Answered:
			c.Assume(t)
		}
		if f, share := e.Finding(); f != NotKnown {
			before := e
			e.End(f, rate, t.At)
			x := before.close(f)
			believed = append(believed, Decision{t.At, x.Scope.String(), false, x.Why})
			if f == NotOurPace {
				c.Usual(share)
			} else {
				c.Clear()
			}
		} else if e.Open() && r.IntN(300) == 0 {
			e.End(NotOurPace, rate, now) // an outage
			c.Clear()
		}
	}
	return believed
}

// TestReplayedTrialsLeadToTheSameBeliefs: whatever the world, what was believed in the time of the log is
// what its trials lead to again, at the same times and in the same words, from JSON too; no customer is
// named in it, and it holds no more than it may.
func TestReplayedTrialsLeadToTheSameBeliefs(t *testing.T) {
	beliefs, cut, tried := 0, 0, 0
	for seed := range effort.Seeds(t, 60) {
		tried++
		r := rand.New(rand.NewPCG(seed, 9))
		c := NewCauses()
		c.KeepTrials(&TrialRoom{}, func(time.Time) float64 { return 3 })
		live := drawnTrials(r, c, 200+r.IntN(6000))
		log := overJSON(t, c.Trials())
		if len(log) == 0 {
			continue
		}
		if len(log) > 2*trialsHalf+1 {
			t.Errorf("seed %d: %d lines", seed, len(log))
		}
		recorded := RecordedDecisions(log)
		got, err := ReplayTrials(log)
		if err != nil || !reflect.DeepEqual(got, recorded) {
			t.Fatalf("seed %d: %v\nreplayed %v\nrecorded %v", seed, err, got, recorded)
		}
		if len(live) < len(recorded) || !reflect.DeepEqual(live[len(live)-len(recorded):], recorded) && len(recorded) > 0 {
			t.Fatalf("seed %d: recorded %v\nbelieved %v", seed, recorded, live)
		}
		beliefs += len(got)
		if len(live) > len(got) {
			cut++
		}
		if text, err := json.Marshal(log); err != nil || strings.Contains(string(text), "secret") {
			t.Errorf("seed %d: %v, or a customer is named", seed, err)
		}
	}
	if tried >= 20 && (beliefs == 0 || cut == 0) { // fewer are tried where the machine is busy
		t.Errorf("%d beliefs, %d logs whose beginning is gone: too little was tried", beliefs, cut)
	}
}

// TestAReplayNoticesAnotherTrial: a log in which one answer is changed leads to other beliefs.
func TestAReplayNoticesAnotherTrial(t *testing.T) {
	c := NewCauses()
	c.KeepTrials(&TrialRoom{}, nil)
	drawnTrials(rand.New(rand.NewPCG(3, 9)), c, 900)
	log := c.Trials()
	want, err := ReplayTrials(log)
	if err != nil || len(want) == 0 {
		t.Fatal(err, len(want))
	}
	differ := 0
	for i := range log {
		if log[i].Result != "put_off" || log[i].Kind != trialKindNames[kindNote] {
			continue
		}
		changed := append([]TrialLine(nil), log...)
		changed[i].Result = "answered"
		if got, err := ReplayTrials(changed); err != nil || !reflect.DeepEqual(got, want) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("no change is noticed")
	}
	for _, bad := range [][]TrialLine{nil, log[1:], {log[0], {Kind: "x"}}} {
		if _, err := ReplayTrials(bad); !errors.Is(err, ErrTrials) {
			t.Errorf("%d lines: %v, want ErrTrials", len(bad), err)
		}
	}
}

// TestNothingBadIsNoLog, and there are no more logs than there is room for.
func TestNothingBadIsNoLog(t *testing.T) {
	room, trial := &TrialRoom{}, Trial{Sent: time.Unix(1, 0), At: time.Unix(2, 0), Domain: "d", Tenant: "t"}
	bad := trial
	bad.Result = PutOff
	var all []*Causes
	for range TrialLogsMost + 1 {
		c := NewCauses()
		c.KeepTrials(room, nil)
		c.Note(trial, Waiting{})
		if c.Fine(trial); c.Trials() != nil {
			t.Fatal("a log of good trials")
		}
		c.Note(bad, Waiting{})
		all = append(all, c)
	}
	last := all[TrialLogsMost]
	if all[0].Trials() == nil || last.Trials() != nil {
		t.Error("the room is not kept to")
	}
	all[0].DropTrials()
	if last.Note(bad, Waiting{}); all[0].Trials() != nil || last.Trials() == nil {
		t.Error("the room is not given back")
	}
}

// BenchmarkNote is one good answer, without a log and with one.
func BenchmarkNote(b *testing.B) {
	for _, logged := range []bool{false, true} {
		b.Run(fmt.Sprint("logged ", logged), func(b *testing.B) {
			c := NewCauses()
			t := Trial{Sent: time.Unix(1, 0), At: time.Unix(2, 0), Domain: "d", Tenant: "t", Said: "450"}
			if logged {
				c.KeepTrials(&TrialRoom{}, nil)
				t.Result = PutOff
				c.Note(t, Waiting{})
				t.Result = Answered
			}
			b.ReportAllocs()
			for b.Loop() {
				t.Sent = t.Sent.Add(time.Millisecond)
				c.Note(t, Waiting{})
				c.Fine(t)
			}
		})
	}
}
