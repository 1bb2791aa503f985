package facts_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"rollcall/actors/facts"
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

// TestUnknownFieldsArePassedOver at every place, so that a later release may add some and this
// one still reads what that wrote.
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
		"nothing": "", "garbage": "\x00\xff{", "another shape": `{"v":3,"limits":"many"}`, "no version": "{}",
		"older": version(facts.SnapshotVersion - 1), "newer": version(facts.SnapshotVersion + 1),
		"too long": version(facts.SnapshotVersion) + strings.Repeat(" ", facts.BytesMax),
	} {
		_, err := facts.Decode([]byte(data))
		effort.ErrorIf(t, err == nil, "%s: no error", name)
	}
}

// TestTheTextFits whatever there is to say, and what matters most is kept.
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

// TestWhatNoAttemptCanHaveIsLeftOut of what is read.
func TestWhatNoAttemptCanHaveIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	got := facts.Attempt{Stage: 200, Host: long, Source: long, Code: 999, Enhanced: smtp.EnhancedCode{9, 9, 9},
		Text: []byte(long), Trouble: 255}.Evidence()
	effort.ErrorIf(t, got.Code != 0 || got.Enhanced != (smtp.EnhancedCode{}) || got.Stage != 0 || got.Trouble != 0 ||
		len(got.Host) != evidence.NameMax || len(got.Source) != evidence.NameMax || len(got.Text) != evidence.TextMax,
		"%+v", got)
	effort.Same(t, facts.AttemptOf(evidence.Attempt{}), facts.Attempt{}, "no attempt is kept as")
}

// TestNumbersAreBounded as they are read.
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
	f.Add([]byte(`{"v":3,"sources":[{"minutes":[{"ago_ms":-5,"refused":1000000000},{"ago_ms":99999999999}]}]}`))
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
