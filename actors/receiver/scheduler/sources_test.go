package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"rollcall/actors/facts"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// blockedAtRcpt and blockedAtGreeting are refusals of us.
var (
	blockedAtRcpt = smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1},
		Lines: []string{"blocked using some list"}}
	blockedAtGreeting = &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 554,
		Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"blocked using some list"}}}
)

const (
	sourceA, sourceB, sourceSix = "192.0.2.201", "192.0.2.202", "2001:db8::201"
)

// newWorldFrom makes a world whose node has some sources.
func newWorldFrom(t tester, sources ...string) *world {
	w := newWorld(t, openedWide(), 1)
	o := testOptions(openedWide())
	o.Sources = sourcesOf(noSession, sources...)
	w.scheduler, w.living = begun("example", o, begin)
	return w
}

// TestSourceIsTheSame: the order of the sources depends on the receiver only, and each is first for some receivers.
func TestSourceIsTheSame(t *testing.T) {
	first := map[string]int{}
	for n := range 1000 {
		key := fmt.Sprintf("r%d.example", n)
		a := orderSources(key, sourcesOf(noSession, sourceA, sourceB), openedWide())
		b := orderSources(key, sourcesOf(noSession, sourceB, sourceA), openedWide())
		effort.MustBe(t, a[0].name, b[0].name, key, "comes first")
		first[a[0].name]++
	}
	if first[sourceA] < 400 || first[sourceB] < 400 {
		t.Errorf("first: %v", first)
	}
}

// TestAnotherSourceTakesOver: a source is refused at RCPT or before, and another one takes over with its own refusal
// budget. If no source is left, addresses wait for the end of a first, short suspension. In a longer one they are
// deferred as source_blocked. All are answered when a source is accepted again.
func TestAnotherSourceTakesOver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		greet error
		reply smtp.Reply
		odd   int // addresses that were refused as if it were about us before that was believed
	}{{"at the greeting", blockedAtGreeting, smtp.Reply{}, 0}, {"at RCPT", nil, blockedAtRcpt, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorldFrom(t, sourceA, sourceB)
			w.scheduler.options.Waits = unhurried
			refusedAt := map[string]bool{w.scheduler.paths.all[0].name: true}
			w.greet = func(string) error {
				if refusedAt[w.from] {
					return tc.greet
				}
				return nil
			}
			w.reply = func(_ *Probe, s *simSession) smtp.Reply {
				if refusedAt[s.source] && tc.greet == nil {
					return tc.reply
				}
				return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}
			}
			outcomes, blocked := map[smtp.Outcome]int{}, 0
			var wait time.Duration
			w.collect(1, func(_ string, a heard) {
				a.agrees(t)
				outcomes[a.outcome]++
				if a.reason == smtp.SourceBlocked {
					blocked, wait = blocked+1, a.wait
				}
			})
			w.offer(offerOf(1, "d.example", 1, 30, hosts("mx1")))
			w.run(begin.Add(14 * time.Second))
			effort.Is(t, outcomes[smtp.Invalid], 30, "outcomes", outcomes)
			for _, st := range w.scheduler.options.Sources.State(w.now) {
				effort.Is(t, st.Source == w.scheduler.paths.all[0].name, st.Blocked == 1, "state", st)
			}
			if a, b := w.away("mx1", 0), w.away("mx1", 1); a <= 0 || a > suspendFirst || b != 0 {
				t.Errorf("suspended for %s and %s", a, b)
			}
			harm := func(o *egressPath) int { return o.refusals.RefusedAt(w.now) }
			if a, b := harm(w.scheduler.paths.all[0]), harm(w.scheduler.paths.all[1]); a < tc.odd || a > tc.odd+2 || b != 30 {
				t.Errorf("harm: %d and %d", a, b)
			}
			refusedAt[w.scheduler.paths.all[1].name] = true
			w.offer(offerOf(1, "d.example", 2, 10, hosts("mx1")))
			w.run(w.now.Add(10 * time.Second))
			if blocked > 0 {
				t.Errorf("%d of 10 are told of a short rest", blocked)
			}
			w.run(w.now.Add(3 * time.Minute))
			if blocked != 10 || wait <= 0 || wait > 8*suspendFirst {
				t.Errorf("%d of 10 are told that we are blocked, the last to wait %s", blocked, wait)
			}
			refusedAt[w.scheduler.paths.all[0].name] = false // forgotten there
			w.run(w.now.Add(wait))
			before := outcomes[smtp.Invalid]
			w.offer(offerOf(1, "d.example", 3, 10, hosts("mx1")))
			w.run(w.now.Add(time.Minute))
			effort.Is(t, outcomes[smtp.Invalid]-before, 10, "of 10 answered when the rest is over")
		})
	}
}

// unhurried are waits too long to shorten a suspension of a source.
var unhurried = []time.Duration{time.Minute, 5 * time.Minute}

// TestRestsGrow: each suspension in a row lasts a quarter of the time since the first refusal, from 15 s to four hours.
func TestRestsGrow(t *testing.T) {
	w := newWorldFrom(t, sourceA)
	w.scheduler.options.Waits = unhurried
	w.greet = func(string) error { return blockedAtGreeting }
	dials, lasted := 0, time.Duration(0)
	for n := 0; lasted < 24*time.Hour; n++ {
		want := min(max(15*time.Second, lasted/4), 4*time.Hour)
		lasted += want
		w.offer(offerOf(1, "d.example", uint64(n+1), 1, hosts("mx1")))
		w.run(w.now.Add(900 * time.Millisecond))
		left := w.away("mx1", 0)
		if left > want || left < want-time.Second || len(w.dials) != dials+1 {
			t.Errorf("rest %d: %s after %d sessions", n+1, left, len(w.dials)-dials)
		}
		dials = len(w.dials)
		w.run(w.now.Add(left - time.Millisecond))
	}
}

// TestRestsAreAsShortAsTheWaits: if an address is asked again before the first suspension would end, or the wait for
// a host that is down, neither delays it.
func TestRestsAreAsShortAsTheWaits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		greet   error
		waits   []time.Duration
		toldBy  time.Duration // not before, and two seconds later they are
		resting time.Duration // of the first rest, as long as the source does
	}{
		{"refused, usual waits", blockedAtGreeting, unhurried, 15 * time.Second, 15 * time.Second},
		{"refused, short waits", blockedAtGreeting, []time.Duration{2 * time.Second, time.Minute}, 2 * time.Second,
			2 * time.Second},
		{"down, usual waits", errors.New("connection refused"), unhurried, 63 * time.Second, 0},
		{"down, a wait of 10 s", errors.New("connection refused"), []time.Duration{10 * time.Second}, 15 * time.Second, 0},
		{"down, a wait of 500 ms", errors.New("connection refused"), []time.Duration{500 * time.Millisecond},
			time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorldFrom(t, sourceA)
			w.scheduler.options.Waits = tc.waits
			w.greet = func(string) error { return tc.greet }
			var first time.Time
			w.collect(1, func(_ string, a heard) {
				if first.IsZero() {
					first = w.now
				}
			})
			w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1")))
			w.run(begin.Add(200 * time.Millisecond))
			if rests := w.away("mx1", 0); rests > tc.resting || rests < tc.resting-200*time.Millisecond {
				t.Errorf("the source is suspended for %s, want %s", rests, tc.resting)
			}
			w.run(begin.Add(3 * time.Minute))
			if after := first.Sub(begin); first.IsZero() || after < tc.toldBy || after > tc.toldBy*11/10+2*time.Second {
				t.Errorf("told after %s, want %s", after, tc.toldBy)
			}
		})
	}
}

// TestOneHostRefusesUs: when another host of the route takes the source, it is not suspended.
func TestOneHostRefusesUs(t *testing.T) {
	w := newWorldFrom(t, sourceA, sourceB)
	w.greet = func(host string) error {
		if host == "mx1" {
			return blockedAtGreeting
		}
		return nil
	}
	valid := 0
	w.collect(2, func(_ string, a heard) {
		if a.agrees(t); a.outcome == smtp.Valid {
			valid++
		}
	})
	w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1", "mx2")))
	w.run(begin.Add(time.Minute))
	if rested := w.away("mx1,mx2,", 0); valid != 10 || rested != 0 {
		t.Errorf("%d of 10 valid, suspended for %s", valid, rested)
	}
}

// away is how long a queue is not spoken to from the nth source.
func (w *world) away(lane string, n int) time.Duration {
	l := w.scheduler.queues.all[lane]
	if l == nil {
		return 0
	}
	r := l.suspensionOf(w.now, w.scheduler.paths.all[n])
	if r == nil {
		return 0
	}
	return r.until.Sub(w.now)
}

// TestRestOfAnOperator: hosts that refuse a source are left alone by it; others of
// the same operator are asked, until one after the other refuses it.
func TestRestOfAnOperator(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refuses []bool // queue after queue
		whole   bool
	}{
		{"one", []bool{true}, false},
		{"two", []bool{true, true}, false},
		{"three", []bool{true, true, true}, true},
		{"one takes us", []bool{true, true, false, true}, false},
		{"three after that", []bool{true, false, true, true, true}, true},
	} {
		w := newWorldFrom(t, sourceA)
		w.scheduler.options.Waits = unhurried
		w.scheduler.options.Sources.Hour = throttle.Hour(5 * time.Hour) // the first rest outlasts each queue's minute
		w.greet = func(host string) error {
			if tc.refuses[host[2]-'0'] {
				return blockedAtGreeting
			}
			return nil
		}
		for n, refuses := range tc.refuses {
			w.offer(offerOf(1, "d.example", uint64(n+1), 2, hosts(fmt.Sprintf("mx%d", n))))
			w.run(w.now.Add(time.Minute))
			effort.Is(t, w.away(fmt.Sprintf("mx%d", n), 0) > 0, refuses, tc.name, "suspended at queue", n)
		}
		if whole := w.now.Before(w.scheduler.paths.all[0].until); whole != tc.whole {
			t.Errorf("%s: suspended at the whole receiver: %v", tc.name, whole)
		}
		o, l := w.scheduler.paths.all[0], w.scheduler.queues.all["mx0"]
		w.scheduler.paths.noteTaken(w.now, l.route, o)
		if o.count != 0 || l.refusalOf(o).count != 0 || len(o.refusing) != 0 {
			t.Errorf("%s: an answer about an address leaves %+v", tc.name, o.suspension)
		}
	}
}

// TestAddressFamilies: each host address is dialled from a source of its family. If no source of ours can reach it,
// the probe stays undecided.
func TestAddressFamilies(t *testing.T) {
	six := hosts("mx6")
	six[0].Addrs = [][]byte{{0x20, 1, 0xd, 0xb8, 15: 1}}
	for _, tc := range []struct {
		name    string
		sources []string
		from    string
		want    smtp.Outcome
	}{
		{"both", []string{sourceA, sourceSix}, sourceSix, smtp.Valid},
		{"the system chooses", nil, "", smtp.Valid},
		{"only IPv4", []string{sourceA}, "", smtp.Undecided},
	} {
		w := newWorldFrom(t, tc.sources...)
		var got []heard
		w.collect(1, func(_ string, a heard) {
			a.agrees(t)
			got = append(got, a)
		})
		w.offer(offerOf(1, "d.example", 1, 1, six))
		w.run(begin.Add(time.Minute))
		if len(got) != 1 || got[0].outcome != tc.want || w.from != tc.from ||
			tc.want == smtp.Undecided && (got[0].reason != smtp.ConnectionFailed || len(w.dials) > 0) {
			t.Errorf("%s: %+v from %q", tc.name, got, w.from)
		}
	}
}

// TestRestedEverywhere: a node whose only source is suspended everywhere asks nothing and keeps the offers; on trial,
// it asks one receiver at a time.
func TestRestedEverywhere(t *testing.T) {
	w := newWorldFrom(t, sourceA)
	answers := 0
	w.collect(1, func(string, heard) { answers++ })
	sources := w.scheduler.options.Sources
	for n := range 10 {
		sources.NoteBlocked(0, fmt.Sprint(n), begin, smtp.SourceBlocked)
	}
	w.offer(offerOf(1, "d.example", 1, 5, hosts("mx1")))
	w.run(begin.Add(suspendedFor - time.Second))
	if answers > 0 || len(w.dials) > 0 || w.scheduler.fair.Queued() != 5 {
		t.Fatalf("%d answers, %d dials, %d wait", answers, len(w.dials), w.scheduler.fair.Queued())
	}
	sources.Use(0, "another", begin.Add(suspendedFor)) // was faster
	w.run(begin.Add(suspendedFor + trialFor - time.Second))
	if len(w.dials) > 0 {
		t.Fatalf("%d dials while another receiver is asked", len(w.dials))
	}
	w.run(begin.Add(suspendedFor + trialFor + time.Minute))
	if answers != 5 || sources.State(w.now)[0].OnTrial {
		t.Errorf("%d answers, %+v", answers, sources.State(w.now)[0])
	}
	w.checkEmpty()
}

// TestMemoryOfSources: the next scheduler knows where a source is suspended, what harm it did
// and how long greylisting takes; what it read of other nodes' sources it hands on.
func TestMemoryOfSources(t *testing.T) {
	schedulerOf := func(source string) *Scheduler {
		o := testOptions(openedWide())
		allow := openedWide()
		allow.RefusedPerHour = 20
		o.Allow = func(string) throttle.Limits { return allow }
		o.Facts, o.Sources = nowhere{}, sourcesOf(noSession, source)
		return begunAlone("example", o, begin)
	}
	first := schedulerOf(sourceA)
	first.paths.all[0].grey = throttle.Greylist{Enough: 6 * time.Minute, Short: time.Minute}
	for range 6 {
		first.paths.all[0].refusals.Begin(1)
		first.paths.all[0].refusals.Refused(begin)
	}
	const rest = 4 * time.Hour // as the receiver names it
	for n := range queuesInRow {
		name := fmt.Sprintf("mx%d", n)
		judgement := judgedAt(begin, name, smtp.Address{}, blockedAtGreeting)
		judgement.Verdict.Wait = rest
		first.paths.suspendSource(begin, first.queues.hostQueue(begin, hosts(name)).route, first.paths.all[0],
			judgement)
	}
	fact, worth := first.snapshot(begin)
	if !worth {
		t.Fatal("nothing noted")
	}
	if life := fact.Expires.Sub(begin); life < rest {
		t.Errorf("it expires after %s", life)
	}
	other := schedulerOf(sourceB)
	other.Recall(begin, fact.Data)
	o := other.paths.all[0]
	if other.queues.hostQueue(begin, hosts("mx1")).suspensionOf(begin, o) != nil || o.refusals.RefusedAt(begin) != 0 {
		t.Errorf("the source of another node is taken for ours: %+v", o)
	}
	other.options.Clock = func() time.Time { return begin.Add(time.Hour) }
	handed, worth := other.snapshot(begin.Add(time.Hour))
	if !worth {
		t.Fatal("nothing handed on")
	}
	for _, tc := range []struct {
		data    []byte
		refused int // two minutes later
		rested  time.Duration
	}{{fact.Data, 6, rest}, {handed.Data, 0, rest - time.Hour}} {
		d := schedulerOf(sourceA)
		d.options.Clock = func() time.Time { return begin.Add(rest - tc.rested) }
		d.Recall(begin, tc.data)
		o := d.paths.all[0]
		if o.until.Sub(begin) != tc.rested || o.count != 1 || o.grey.Enough != 6*time.Minute ||
			o.grey.Short != time.Minute || o.last.Verdict.Reason != smtp.SourceBlocked ||
			o.last.Attempt.Host != "mx2" || o.last.Attempt == (evidence.Attempt{}) {
			t.Errorf("recalled %+v", o)
		}
		effort.Is(t, o.refusals.RefusedAt(begin.Add(2*time.Minute)), tc.refused, "refusals recalled")
		r := d.queues.hostQueue(begin, hosts("mx1")).refusals[o]
		if tc.refused > 0 && (r == nil || r.until.Sub(begin) != rest || r.count != 1 || r.last.Attempt.Host != "mx1") {
			t.Errorf("lane recalled %+v", r)
		}
		effort.Is(t, len(d.paths.noteSources(begin)), 1, "sources noted")
	}
}

// TestAnotherSourceBeginsAsTheLast: a node with another source begins as the last node's stood, but not as one before.
func TestAnotherSourceBeginsAsTheLast(t *testing.T) {
	for _, handedOn := range []bool{false, true} {
		o := testOptions(openedWide())
		o.Facts, o.Sources = nowhere{}, sourcesOf(noSession, sourceB)
		d := begunAlone("example", o, begin)
		m := facts.Snapshot{V: facts.SnapshotVersion, At: begin.UnixMilli(), Sources: []facts.Source{{Source: sourceA,
			Enough: 60_000, Rate: facts.Rate{Rate: 5_000, Grey: true}, HandedOn: handedOn}}}
		d.Recall(begin, m.Encode())
		if one := d.paths.all[0]; one.pace.Greylisting() == handedOn || (one.grey.Enough > 0) == handedOn {
			t.Errorf("handed on %v: greylisting %v for %v", handedOn, one.pace.Greylisting(), one.grey.Enough)
		}
	}
}
