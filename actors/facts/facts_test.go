package facts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/receivertest"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// full is a snapshot with something of everything.
func full() facts.Snapshot {
	last := facts.AttemptOf(evidence.Attempt{At: begin, Cause: evidence.NewCause(evidence.ScopeSource, "3 got 550"),
		Stage: smtp.StageRcpt, Host: "mx1", Source: "192.0.2.1",
		Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Text: "slow down", Trouble: evidence.Trouble(1), TLS: true})
	return facts.Snapshot{V: facts.SnapshotVersion, At: begin.UnixMilli(), Pauses: 2, Paused: 1000, PauseCause: last,
		Limits:   []facts.Limit{{Which: 1, Most: 3, Left: 5000}},
		Capacity: facts.Capacity{Most: 4, Hold: 60_000, Left: 5000},
		Opening:  facts.RateOf(throttle.RateMemory{Rate: 0.5, Edge: 1}),
		Sources: []facts.Source{{Source: "192.0.2.1", Left: 5000, Suspensions: 1, Last: last, Enough: 1, Short: 1,
			Minutes: []facts.Minute{{Ago: 1, Accepted: 2, Refused: 3}},
			Rate:    facts.RateOf(throttle.RateMemory{Rate: 1.5, Edge: 2})}},
		HostSets: []facts.HostSet{{Key: "mx1", TLS: 1, Left: 5000,
			Suspensions: []facts.Suspension{{Source: "192.0.2.1", Left: 5000, Suspensions: 1, Last: last}}}},
		Hosts: []facts.Host{{Host: "mx1", At: "192.0.2.49", Left: 5000, Failures: 1, Last: last}}}
}

// TestNothingIsLostInTheText: what is decoded is what was encoded, and nothing is left empty by this test.
func TestNothingIsLostInTheText(t *testing.T) {
	want := full()
	got, err := facts.Decode(want.Encode())
	effort.ErrorIf(t, err != nil || !reflect.DeepEqual(got, want), "%v\n got %+v\nwant %+v", err, got, want)
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tried", v.Type().Field(i).Name)
		}
	}
}

// TestUnknownFieldsArePassedOver adds unknown fields at every place: this release can read what a later one with more
// fields wrote.
func TestUnknownFieldsArePassedOver(t *testing.T) {
	want := full()
	var text any
	effort.OK(t, json.Unmarshal(want.Encode(), &text))
	objects := 0
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, one := range v {
				add(one)
			}
			objects++
			v["later"], v["later_list"] = 7, []any{"x", map[string]any{"y": 1}}
		case []any:
			for _, one := range v {
				add(one)
			}
		}
	}
	add(text)
	effort.FatalIf(t, objects < 10, "only %d objects", objects)
	data := effort.Must(json.Marshal(text))(t)
	effort.Same(t, effort.Must(facts.Decode(data))(t), want)
}

// TestWhatCannotBeRead says why.
func TestWhatCannotBeRead(t *testing.T) {
	version := func(v int) string {
		s := full()
		s.V = v
		return string(s.Encode())
	}
	for name, data := range map[string]string{
		"nothing": "", "garbage": "\x00\xff{", "another shape": `{"v":4,"limits":"many"}`, "no version": "{}",
		"older": version(facts.SnapshotVersion - 1), "newer": version(facts.SnapshotVersion + 1),
		"too long": version(facts.SnapshotVersion) + strings.Repeat(" ", facts.BytesMax),
	} {
		_, err := facts.Decode([]byte(data))
		effort.ErrorIf(t, err == nil, "%s: no error", name)
	}
}

// TestTheTextFits: the stored form always fits, and keeps what matters most.
func TestTheTextFits(t *testing.T) {
	s := full()
	name := strings.Repeat("x", 200)
	for n := range 100 {
		s.Hosts = append(s.Hosts, facts.Host{Host: fmt.Sprint(name, n)})
		s.HostSets = append(s.HostSets, facts.HostSet{Key: fmt.Sprint(name, n)})
		s.Sources = append(s.Sources, facts.Source{Source: fmt.Sprint(name, n)})
		s.Sources[0].Minutes = append(s.Sources[0].Minutes, facts.Minute{Ago: int64(n), Refused: n})
	}
	text := s.Encode()
	got, err := facts.Decode(text)
	effort.FatalIf(t, err != nil || len(text) > facts.BytesMax, "%d bytes: %v", len(text), err)
	want := full()
	effort.ErrorIf(t, got.Paused != want.Paused || got.Capacity != want.Capacity || len(got.Limits) != 1 ||
		len(got.Sources) == 0 || len(got.Sources[0].Minutes) == 0, "left: %+v", got)
}

// TestLife is as long as anything that is said, and never above a day.
func TestLife(t *testing.T) {
	hours := func(n int) int64 { return (time.Duration(n) * time.Hour).Milliseconds() }
	for _, c := range []struct {
		name string
		s    facts.Snapshot
		want time.Duration
	}{
		{"pauses in a row", facts.Snapshot{Pauses: 1}, time.Hour},
		{"a pause", facts.Snapshot{Paused: hours(3)}, 3 * time.Hour},
		{"a pause of a year", facts.Snapshot{Paused: hours(9000)}, 24 * time.Hour},
		{"a limit", facts.Snapshot{Limits: []facts.Limit{{Left: hours(2)}}}, 2 * time.Hour},
		{"a host", facts.Snapshot{Hosts: []facts.Host{{Left: hours(2)}}}, 3 * time.Hour},
		{"a host set", facts.Snapshot{HostSets: []facts.HostSet{{Suspensions: []facts.Suspension{{Left: hours(2)}}}}},
			3 * time.Hour},
		{"a source", facts.Snapshot{Sources: []facts.Source{{Left: hours(2)}}}, 3 * time.Hour},
		{"greylisting", facts.Snapshot{Sources: []facts.Source{{Enough: 1}}}, 24 * time.Hour},
		{"a rate", facts.Snapshot{Sources: []facts.Source{{Rate: facts.Rate{Rate: 1}}}}, 4 * time.Hour},
	} {
		effort.Is(t, c.s.Life(), c.want, c.name)
		effort.ErrorIf(t, c.s.Empty(), "%s is taken for nothing", c.name)
	}
	s := (facts.Snapshot{V: facts.SnapshotVersion, At: 1})
	effort.ErrorIf(t, !s.Empty(), "nothing is taken for something")
}

// TestWhatNoAttemptCanHaveIsLeftOut: impossible values of a stored fact are ignored.
func TestWhatNoAttemptCanHaveIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	got := facts.Attempt{Stage: 200, Host: long, Source: long, Code: 999, Enhanced: smtp.EnhancedCode{9, 9, 9},
		Text: []byte(long), Trouble: 255}.Evidence()
	effort.ErrorIf(t, got.Code != 0 || got.Enhanced != (smtp.EnhancedCode{}) || got.Stage != 0 || got.Trouble != 0 ||
		len(got.Host) != evidence.NameMax || len(got.Source) != evidence.NameMax || len(got.Text) != evidence.TextMax,
		"%+v", got)
	effort.Same(t, facts.AttemptOf(evidence.Attempt{}), facts.Attempt{}, "no attempt is kept as")
}

// TestNumbersAreBounded: stored numbers out of range are brought into range when they are read.
func TestNumbersAreBounded(t *testing.T) {
	for ms, want := range map[int64]time.Duration{-5: 0, 1500: 1500 * time.Millisecond, 1 << 62: time.Hour} {
		effort.Is(t, facts.Millis(ms, time.Hour), want, fmt.Sprintf("%d ms", ms))
	}
	for n, want := range map[int]int{-3: 0, 7: 7, 1 << 40: facts.CountMax} {
		effort.Is(t, facts.Count(n), want, n)
	}
}

// FuzzDecode: no bytes that a ledger may hold break it.
func FuzzDecode(f *testing.F) {
	s := full()
	f.Add(s.Encode())
	f.Add([]byte(`{"v":4,"sources":[{"minutes":[{"ago_ms":-5,"refused":1000000000},{"ago_ms":99999999999}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := facts.Decode(data)
		if err != nil {
			return
		}
		a := s.PauseCause.Evidence()
		effort.ErrorIf(t, a.Code != 0 && (a.Code < 200 || a.Code > 599) || !a.Trouble.Known() && a.Trouble != 0,
			"%+v", a)
	})
}

const (
	writeEvery = 2 * time.Second // at most
	factsMax   = 1_000           // of one write or question
	waitingMax = 20_000          // facts
)

// writerOf makes a writer.
func writerOf(s *receivertest.Shelf) *facts.Writer {
	return facts.NewWriter(facts.Options{Store: s, Of: "receivers", Log: slog.New(slog.DiscardHandler)})
}

func aFact(key, data string) facts.Fact {
	return facts.Fact{Key: key, Data: []byte(data), Expires: time.Now().Add(time.Hour)}
}

// TestWritesInBatches: all that changed, every two seconds at most, newest only.
func TestWritesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		w := writerOf(s)
		for n := range 100 { // for ten seconds
			w.Keep(aFact(fmt.Sprint(n%20), fmt.Sprint(n)), nil)
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(writeEvery + time.Second)
		synctest.Wait()
		_, learns, _ := s.Calls()
		n := len(learns)
		effort.ErrorIf(t, n < 5 || n > 7, "%d writes in ten seconds", n)
		effort.ErrorIf(t, s.Len() != 20 || string(s.Fact("3").Data) != "83",
			"%d facts, the newest of 3 is %s", s.Len(), s.Fact("3").Data)
	})
}

// TestWritesSoonForWhoLeaves: facts of leaving actors are written soon, a thousand at a time, and each actor is told.
func TestWritesSoonForWhoLeaves(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &receivertest.Shelf{}
			s.Fail(fails)
			s.Take(10 * time.Millisecond)
			w := writerOf(s)
			var told sync.WaitGroup
			w.Keep(aFact("first", ""), nil)
			<-time.After(time.Second)
			begun := time.Now()
			told.Add(2500)
			for n := range 2500 {
				w.Keep(aFact(fmt.Sprint(n), ""), told.Done)
			}
			told.Wait()
			took := time.Since(begun)
			effort.ErrorIf(t, took > 200*time.Millisecond, "told after %s", took)
			effort.OK(t, w.Flush(t.Context()))
			if _, learns, _ := s.Calls(); s.Len() != 2501 || slices.Max(learns) > factsMax {
				t.Errorf("%d facts, writes of %v", s.Len(), learns)
			}
		})
	}
}

// TestFlushEnds: Flush returns when its context ends, even if the ledger does not answer.
func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Take(time.Hour)
		w := writerOf(s)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		effort.ErrIs(t, w.Flush(ctx), nil, "nothing to write")
		w.Keep(aFact("a", ""), nil)
		effort.ErrIs(t, w.Flush(ctx), context.DeadlineExceeded, "error")
		s.Take(0)
		err := w.Flush(t.Context())
		effort.ErrorIf(t, err != nil || s.Len() != 1, "%v, %d facts", err, s.Len())
	})
}

// TestAsksInBatches: facts are read in batches, and a failed read is repeated a few times.
func TestAsksInBatches(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails int
		told  int
	}{{"at once", 0, 1500}, {"a failure", 2, 1500}, {"no ledger", 1000, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := receivertest.Holding(aFact("7", "seven"))
			s.Fail(tc.fails)
			w := writerOf(s)
			var mu sync.Mutex
			told := map[int]string{}
			for n := range 1500 {
				w.Know(fmt.Sprint(n), func(f facts.Fact) {
					mu.Lock()
					defer mu.Unlock()
					told[n] = string(f.Data)
				})
			}
			<-time.After(facts.KnowWithin + 5*time.Second)
			synctest.Wait()
			effort.ErrorIf(t, len(told) != tc.told || tc.told > 0 && (told[7] != "seven" || told[8] != ""),
				"%s: %d told, of 7: %q", tc.name, len(told), told[7])
			calls, _, knowns := s.Calls()
			effort.ErrorIf(t, tc.told > 0 && (len(knowns) != 2 || slices.Max(knowns) != factsMax),
				"%s: questions of %v keys", tc.name, knowns)
			<-time.After(time.Minute)
			later, _, _ := s.Calls()
			effort.ErrorIf(t, later > calls, "%s: asks for ever", tc.name)
		})
	}
}

// TestWriterIsBounded: facts that wait for an unreachable ledger are bounded. They are written when it is back.
func TestWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Fail(1 << 30)
		w := writerOf(s)
		for n := range waitingMax + 500 {
			w.Keep(aFact(fmt.Sprint(n), ""), nil)
		}
		<-time.After(time.Minute)
		s.Fail(0)
		err := w.Flush(t.Context())
		effort.ErrorIf(t, err != nil || s.Len() != waitingMax, "%d facts are written: %v", s.Len(), err)
		calls, _, _ := s.Calls()
		<-time.After(time.Minute)
		synctest.Wait()
		later, _, _ := s.Calls()
		effort.ErrorIf(t, later > calls, "it goes on")
	})
}

// TestALongOutageFillsNoLog: it says less the longer it lasts.
func TestALongOutageFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Fail(40)
		var log bytes.Buffer
		w := facts.NewWriter(facts.Options{Store: s, Of: "domains", Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.Keep(aFact("a", ""), nil)
		<-time.After(50 * writeEvery)
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines < 3 || lines > 8 || s.Len() != 1 {
			t.Errorf("%d lines about 40 failures, %d facts", lines, s.Len())
		}
	})
}

// TestQuestionsAreBounded: those beyond the bound get no answer.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := writerOf(&receivertest.Shelf{})
		var told atomic.Int64
		for n := range waitingMax + 10 {
			w.Know(fmt.Sprint(n), func(facts.Fact) { told.Add(1) })
		}
		<-time.After(time.Minute)
		effort.Is(t, told.Load(), waitingMax, "are told")
	})
}
