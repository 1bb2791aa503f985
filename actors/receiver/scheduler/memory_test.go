package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// nowhere stands for the Facts of a scheduler that only checks for nil.
type nowhere struct{ facts.Store }

// rememberer makes a scheduler whose ledger's clock is ahead of the node's.
func rememberer(now time.Time, ahead time.Duration) *Scheduler {
	o := testOptions(openedWide())
	o.Allow = func(string) throttle.Limits {
		a := openedWide()
		a.RefusedPerHour = 20
		return a
	}
	o.Facts, o.Clock = nowhere{}, func() time.Time { return now.Add(ahead) }
	return begunAlone("example", o, now)
}

// taught makes a scheduler that has learned everything there is to learn.
func taught(now time.Time) *Scheduler {
	d := rememberer(now, 0)
	l := d.queues.hostQueue(now, hosts("mx1", "mx2"))
	d.allowance.learned.Connections.Tighten(3, now)
	d.paths.all[0].pace.Recall(throttle.RateMemory{Rate: 700_000, Edge: 1_000_000}, now)
	l.setMode(smtp.TLSRequired, now)
	down := judged(smtp.Address{}, errors.New("connection refused"))
	l.candidates[0].avoid(now.Add(-time.Hour), down, time.Second)
	l.candidates[0].avoid(now, down, 10*time.Minute)
	for n := range 6 {
		d.paths.all[0].refusals.Begin(1)
		d.paths.all[0].refusals.Refused(now.Add(time.Duration(n-6) * 5 * time.Minute))
	}
	d.paths.pauseReceiver(now, judgedAt(now, "mx1", smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt,
		Reply: smtp.Reply{Code: 451, Lines: []string{"greylisted, come back"}}}))
	return d
}

// TestMemorySurvivesAMove: the next scheduler knows what the last one learned, for as
// long as that would have held, whatever the clocks of their nodes say.
func TestMemorySurvivesAMove(t *testing.T) {
	fact, worth := taught(begin).snapshot(begin)
	if !worth || fact.Key != "example" || len(fact.Data) > facts.BytesMax {
		t.Fatalf("fact of %d bytes for %q", len(fact.Data), fact.Key)
	}
	t.Logf("%d bytes: %s", len(fact.Data), fact.Data)
	if life := fact.Expires.Sub(begin); life < facts.RateFor || life > 2*facts.RateFor {
		t.Errorf("it expires after %s", life)
	}
	there := begin.Add(-17 * time.Minute) // what the next node's own clock says
	d := rememberer(there, 17*time.Minute+500*time.Millisecond)
	d.Recall(there, fact.Data)
	a := d.takeAllowance(there)
	effort.Is(t, a.Connections, 3, "permitted", a)
	if e := d.paths.all[0].pace.Explain(); e.Rate != 700_000 || e.Edge != 1_000_000 {
		t.Errorf("tempo %+v", e)
	}
	if n, _ := d.paths.all[0].refusals.Ready(there); n != 14 {
		t.Errorf("%d refusals left, want 14", n)
	}
	if left := d.paths.receiver.until.Sub(there); left != 500*time.Millisecond || d.paths.receiver.inRow != 1 {
		t.Errorf("paused for %s, %d pauses", left, d.paths.receiver.inRow)
	}
	if v := d.paths.receiver.judgement; v.Verdict.Reason != smtp.Greylisted || v.Attempt.Code != 451 ||
		v.Attempt.Text != "greylisted, come back" || v.Attempt.Stage != smtp.StageRcpt || v.Attempt.Host != "mx1" ||
		!v.Attempt.At.Equal(begin) {
		t.Errorf("excuse %+v", v)
	}
	l := d.queues.hostQueue(there, hosts("mx1", "mx2"))
	c := l.candidates[0]
	if l.tlsModeNow(there) != smtp.TLSRequired || c.failures != 2 || c.last.Verdict.Reason != smtp.ConnectionFailed {
		t.Errorf("tls %d, %d failures, %+v", l.tls, c.failures, c.last)
	}
	if left := c.until.Sub(there); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("host is avoided for %s", left)
	}
	effort.Is(t, l.candidates[1].failures, 0, "a host that is fine is avoided")
	effort.Is(t, d.takeAllowance(there.Add(2*throttle.CapacityHold)).Connections, 4, "sessions later")
}

// TestMemoryOfNothing: a receiver that taught nothing takes no place.
func TestMemoryOfNothing(t *testing.T) {
	d := rememberer(begin, 0)
	d.queues.hostQueue(begin, hosts("mx1"))
	for range 4 {
		d.paths.all[0].refusals.Begin(1)
		d.paths.all[0].refusals.Refused(begin)
	}
	if fact, worth := d.snapshot(begin); worth {
		t.Errorf("noted %s", fact.Data)
	}
}

// TestMemoryThatCannotBeRead is as none, and never blocks a receiver for ever.
func TestMemoryThatCannotBeRead(t *testing.T) {
	text := func(m facts.Snapshot) string {
		data := effort.Must(json.Marshal(m))(t)
		return string(data)
	}
	year := (366 * 24 * time.Hour).Milliseconds()
	for _, tc := range []struct {
		name, data string
		rests      time.Duration // at most
		untouched  bool
	}{
		{"nothing", "", 0, true},
		{"garbage", "\x00\xff{", 0, true},
		{"another shape", `{"v":2,"limits":"many"}`, 0, true},
		{"a newer version", text(aSnapshot(facts.SnapshotVersion+1, begin, year)), 0, true},
		{"an older version", text(aSnapshot(facts.SnapshotVersion-1, begin, year)), 0, true},
		{"no version", text(aSnapshot(0, begin, year)), 0, true},
		{"too long", text(aSnapshot(facts.SnapshotVersion, begin, year)) + strings.Repeat(" ", facts.BytesMax), 0, true},
		{"a pause of a year", text(aSnapshot(facts.SnapshotVersion, begin, year)), facts.HoldMost, false},
		{"written next year", text(aSnapshot(facts.SnapshotVersion, begin.AddDate(1, 0, 0), year)), facts.HoldMost, false},
		{"written last year", text(aSnapshot(facts.SnapshotVersion, begin.AddDate(-1, 0, 0), 1000)), 0, false},
	} {
		d := rememberer(begin, 0)
		before := d.takeAllowance(begin)
		d.Recall(begin, []byte(tc.data))
		if rests := d.paths.receiver.until.Sub(begin); !d.memory.ready || rests > tc.rests {
			t.Errorf("%s: known %v, paused for %s", tc.name, d.memory.ready, rests)
		}
		if same := d.takeAllowance(begin) == before; tc.untouched && (!same || d.paths.restored != nil) {
			t.Errorf("%s: something was read", tc.name)
		}
	}
}

// aSnapshot is a snapshot with an example of most fields, some of them out of range.
func aSnapshot(version int, at time.Time, left int64) facts.Snapshot {
	return facts.Snapshot{V: version, At: at.UnixMilli(), Paused: left, Pauses: 1 << 40,
		Limits: []facts.Limit{{Which: 0, Most: -5, Left: left}, {Which: -1}, {Which: 99, Left: left}},
		Hosts:  []facts.Host{{Host: "mx1", At: "192.0.2.49", Failures: -3, Left: left}}}
}

// TestMemoryIsBounded: the stored form of a scheduler's memory fits, however much it has learned.
func TestMemoryIsBounded(t *testing.T) {
	d := taught(begin)
	down := judged(smtp.Address{}, errors.New("connection refused"))
	for n := range 100 {
		name := fmt.Sprintf("mx%d.%s.example", n, strings.Repeat("x", 200))
		l := d.queues.hostQueue(begin, []*wire.Host{{Name: name, Addrs: [][]byte{{10, 0, 0, byte(n)}}}})
		l.setMode(smtp.TLSOff, begin)
		l.candidates[0].avoid(begin, down, time.Minute)
	}
	for n := range 60 {
		d.paths.all[0].refusals.Refused(begin.Add(time.Duration(n-60) * time.Minute))
	}
	fact, worth := d.snapshot(begin)
	if !worth || len(fact.Data) > facts.BytesMax {
		t.Fatalf("%d bytes", len(fact.Data))
	}
	next := rememberer(begin, 0)
	if next.Recall(begin, fact.Data); next.takeAllowance(begin).Connections != 3 {
		t.Error("what matters most was left out")
	}
}

// TestMemoryOfTwo: an actor adds the refusals that another actor of the same hour stored to its own.
func TestMemoryOfTwo(t *testing.T) {
	d := rememberer(begin, 0)
	for range 6 {
		d.paths.all[0].refusals.Begin(1)
		d.paths.all[0].refusals.Refused(begin)
	}
	d.paths.all[0].refusals.Inherit([]throttle.RefusalMinute{{Began: begin.Add(-10 * time.Minute), Accepted: 2, Refused: 8},
		{Began: begin.Add(5 * time.Second), Refused: 4}})
	if n, _ := d.paths.all[0].refusals.Ready(begin); n != 20-8-6 {
		t.Errorf("%d refusals left", n)
	}
	if n, _ := d.paths.all[0].refusals.Ready(begin.Add(51*time.Minute + time.Hour)); n != 20 {
		t.Errorf("%d refusals left when all is long over", n)
	}
}

// TestAsksNothingBeforeItKnows: it waits a while for the facts that others learned. Without them it asks carefully.
func TestAsksNothingBeforeItKnows(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers bool
	}{{"it is known", true}, {"nobody knows", false}} {
		a := openedWide()
		a.RefusedPerHour = 20
		w := newWorld(t, a, 1)
		w.scheduler.options.Facts = nowhere{}
		w.offer(offerOf(1, "d.example", 1, 3, hosts("mx1")))
		w.run(begin.Add(knowWithin - time.Millisecond))
		if len(w.dials) > 0 || w.knows != 1 {
			t.Fatalf("%s: %d dials, asked %d times what is known", tc.name, len(w.dials), w.knows)
		}
		if tc.answers {
			w.scheduler.Recall(w.now, nil)
		}
		w.run(w.now.Add(2 * time.Second))
		n, _ := w.scheduler.paths.all[0].refusals.Ready(w.now)
		if len(w.rcpts) != 3 || tc.answers != (n >= 20) {
			t.Errorf("%s: %d RCPTs, %d refusals left", tc.name, len(w.rcpts), n)
		}
	}
}

// TestLooksAgainWhenItsShareComesBack: others may have been at the receiver.
func TestLooksAgainWhenItsShareComesBack(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.scheduler.options.Facts = nowhere{}
	w.plan()
	w.scheduler.Recall(w.now, nil)
	w.scheduler.paths.pauseReceiver(w.now, Judgement{Verdict: again(smtp.ReceiverRateLimited, "test")})
	w.scheduler.dirty = true
	living := w.living
	for _, k := range []int{1, 0, 1} {
		inForce(living, of(k, 2))
		w.plan()
	}
	if w.knows != 2 || w.keeps != 1 {
		t.Errorf("asked %d times what is known, noted %d times", w.knows, w.keeps)
	}
}

// FuzzRecall: no bytes that a ledger may hold break a scheduler.
func FuzzRecall(f *testing.F) {
	fact, _ := taught(begin).snapshot(begin)
	f.Add(fact.Data)
	f.Add([]byte(`{"v":2,"minutes":[{"ago_ms":-5,"refused":1000000000},{"ago_ms":99999999999}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := rememberer(begin, 0)
		d.Recall(begin, data)
		l := d.queues.hostQueue(begin, hosts("mx1"))
		l.tlsModeNow(begin)
		_ = d.paths.receiver.judgement.Attempt.Stage.String() + l.candidates[0].last.Attempt.Stage.String()
		if rests := d.paths.receiver.until.Sub(begin); rests > facts.HoldMost || l.candidates[0].until.Sub(begin) > facts.HoldMost {
			t.Errorf("paused for %s", rests)
		}
		if a := d.takeAllowance(begin); a.Connections < 1 || a.RcptRate.Events < 1 {
			t.Errorf("permits %+v", a)
		}
	})
}

// TestWhatIsOverIsNotedOnce: when nothing learned is left, the stored facts are replaced once.
func TestWhatIsOverIsNotedOnce(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.scheduler.options.Facts = nowhere{}
	w.scheduler.memory.ready = true
	for i, inRow := range []int{0, 2, 0, 0} {
		w.scheduler.paths.receiver.inRow, w.scheduler.dirty = inRow, true
		w.run(w.now.Add(time.Minute))
		if want := []int{0, 1, 2, 2}[i]; w.keeps != want {
			t.Errorf("%d pauses in a row: noted %d times, want %d", inRow, w.keeps, want)
		}
	}
}
