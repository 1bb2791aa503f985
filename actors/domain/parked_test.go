package domain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// script is a receiver that treats each local part by a fixed plan: it defers it a number of times or for a
// time, and then answers.
type script struct {
	times  map[string]int           // how often it is deferred, with a code of its own
	grey   map[string]time.Duration // how long it is greylisted after its first probe
	wait   map[string]time.Duration // the wait named in the deferral; 0: none
	exists map[string]bool
	all    bool // it takes whatever it is asked about

	first map[string]time.Time
	asked map[string][]time.Duration // when, since the morning
}

// newScript draws one. Control probes are put off as their hash says, since their names differ.
func newScript(r *rand.Rand, addresses int) *script {
	s := &script{times: map[string]int{}, grey: map[string]time.Duration{}, wait: map[string]time.Duration{},
		exists: map[string]bool{}, all: r.IntN(3) == 0, first: map[string]time.Time{}, asked: map[string][]time.Duration{}}
	names := []string{"a nobody"}
	for i := range addresses {
		names = append(names, fmt.Sprintf("user%d", i))
	}
	for _, name := range names {
		s.exists[name] = s.all || name != "a nobody" && r.IntN(2) == 0
		switch r.IntN(4) {
		case 0:
			s.grey[name] = time.Duration(1+r.IntN(40)) * time.Minute
		case 1:
			s.times[name] = r.IntN(4)
		}
		if r.IntN(3) == 0 {
			s.wait[name] = time.Duration(1+r.IntN(20)) * time.Minute
		}
	}
	return s
}

// says answers a question about a local part.
func (s *script) says(local string, now time.Time) judgement {
	name := local
	if !strings.HasPrefix(local, "user") {
		name = "a nobody"
	}
	if s.first[local].IsZero() {
		s.first[local] = now
	}
	s.asked[name] = append(s.asked[name], now.Sub(morning))
	switch {
	case now.Sub(s.first[local]) < s.grey[name]:
		return judgement{reason: smtp.Greylisted, wait: s.wait[name]}
	case s.times[name] > 0:
		s.times[name]--
		return judgement{reason: smtp.MailboxFull, wait: s.wait[name], source: "192.0.2.78"}
	case s.exists[name]:
		return accepted
	}
	return refused
}

// runs asks the script about everything until all is final, and parks the planner whenever that can be done
// and a wait of a minute lies ahead.
func (s *script) runs(t *testing.T, addresses int, park bool) (done map[uint32]Final, parked int) {
	t.Helper()
	o := testOptions()
	o.Facts = NewFacts()
	b := newBench(t, o, addresses)
	for b.now.Sub(morning) < 24*time.Hour && len(b.done) < addresses {
		b.answerAll(s)
		if len(b.done) == addresses {
			break
		}
		if until := b.quietUntil(b.now); park && until.Sub(b.now) >= time.Minute {
			if left, ok := b.planner.park(b.now); ok {
				b = b.takenUp(o, left)
				parked++
				b.now = until
				b.look()
				continue
			}
		}
		b.lives(time.Second)
		if b.now.Before(b.wakes) && len(b.backlog.chunks) == 0 {
			b.now = b.wakes
			b.look()
		}
	}
	return b.done, parked
}

// answerAll answers all questions of the planner for as long as there are any.
func (b *bench) answerAll(s *script) {
	b.t.Helper()
	for range 1000 {
		found := false
		for _, one := range b.steps {
			switch one.(type) {
			case findRoute:
				b.takeRoute(b.now, testRoute, nil)
				found = true
			case findReceiver:
				b.foundReceiver(b.route.key, true)
				found = true
			}
		}
		offers := b.offers()
		if len(offers) == 0 && !found {
			return
		}
		for _, o := range offers {
			b.takeResults(b.now, results(o, 1, b.now, o.GetProbes(), func(p *wire.Probe) judgement {
				return s.says(p.GetLocal(), b.now)
			}))
		}
		b.look()
	}
	b.t.Fatal("the planner asks without end")
}

// takenUp is a bench with a new planner that continues from the stored state of another one.
func (b *bench) takenUp(o Options, left Parked) *bench {
	b.t.Helper()
	w := b.work
	w.Epoch++
	w.Ordinals = nil
	for i := range uint32(len(b.work.Ordinals)) {
		if _, final := b.done[i]; !final {
			w.Ordinals = append(w.Ordinals, i)
		}
	}
	text := effort.Must(json.Marshal(left))(b.t)
	var read Parked
	effort.OK(b.t, json.Unmarshal(text, &read))
	for i := range left.Addresses { // whose form is package evidence's
		read.Addresses[i].Case = left.Addresses[i].Case
	}
	if left.Control != nil {
		read.Control.Notes = left.Control.Notes
		if left.Control.Again != nil {
			read.Control.Again.Case = left.Control.Again.Case
		}
	}
	w.Left = &read
	all := make([]uint32, len(b.work.Ordinals))
	b.planner.endWork()
	next := &bench{t: b.t, now: b.now, done: b.done, planner: newPlanner(b.now, o, w, [32]byte{byte(w.Epoch)})}
	next.work.Ordinals = all // so that the next one counts them too
	return next
}

// TestParkedWorkGoesOnAsIfNothingHadHappened: in drawn worlds a planner that is parked whenever it only waits
// gives the same outcomes with the same attempts as one that never is.
func TestParkedWorkGoesOnAsIfNothingHadHappened(t *testing.T) {
	parks, addresses := 0, 0
	for seed := range uint64(300) {
		n := 1 + int(seed%9)
		draw := func() *script { return newScript(rand.New(rand.NewPCG(seed, 7)), n) }
		plain, parked := draw(), draw()
		want, _ := plain.runs(t, n, false)
		got, times := parked.runs(t, n, true)
		parks, addresses = parks+times, addresses+n
		effort.FatalIf(t, len(want) != n || len(got) != n,
			"seed %d: %d of %d are final, %d when parked", seed, len(want), n, len(got))
		for ordinal, w := range want {
			g := got[ordinal]
			// Where several are greylisted, the first that passes hurries the others, one by one.
			same := len(plain.grey) > 1 && len(g.Case.Attempts) <= len(w.Case.Attempts)+2 || sameAttempts(g.Case, w.Case)
			effort.FatalIf(t, g.Outcome != w.Outcome || g.Reason != w.Reason || !same,
				"seed %d, ordinal %d, parked %d times: %v %v %+v\nwant %v %v %+v", seed, ordinal, times, g.Outcome,
				g.Reason, g.Case.Attempts, w.Outcome, w.Reason, w.Case.Attempts)
		}
		for name, at := range plain.asked {
			if got := len(parked.asked[name]); got != len(at) && (len(plain.grey) < 2 || got > len(at)+2*n) {
				t.Fatalf("seed %d: %s was asked at %v, want %v", seed, name, parked.asked[name], at)
			}
		}
	}
	effort.ErrorIf(t, parks < addresses/10, "parked %d times in all", parks)
	t.Logf("300 worlds, %d addresses, parked %d times", addresses, parks)
}

// sameAttempts compares what was said and, within some seconds, when.
func sameAttempts(a, b evidence.Case) bool {
	if len(a.Attempts) != len(b.Attempts) || a.Omitted != b.Omitted {
		return false
	}
	for i := range a.Attempts {
		x, y := a.Attempts[i], b.Attempts[i]
		apart := x.At.Sub(y.At)
		x.At, y.At = time.Time{}, time.Time{}
		if x != y || apart.Abs() > 5*time.Second {
			return false
		}
	}
	return true
}

// TestWhatIsServedIsNotParked: a domain that leaves a receiver which is asking its addresses would lose its turn.
func TestWhatIsServedIsNotParked(t *testing.T) {
	for cause, want := range map[wire.Cause]bool{wire.Cause_BUDGET: false, wire.Cause_ALLOWANCE: false,
		wire.Cause_PENALTY: true, wire.Cause_UNREACHED: true} {
		b := newBench(t, testOptions(), 3)
		b.reach()
		o := b.offered()
		b.ack(o, 1, wire.Refusal_NONE)
		if _, ok := b.planner.park(b.now); ok {
			t.Errorf("%v: parked while it is asked", cause)
		}
		b.backlog.takePulse(b.now, &wire.Pulse{Task: o.GetTask(), Chunks: []uint64{o.GetChunk()}, Cause: cause,
			WaitingMs: (10 * time.Minute).Milliseconds(), Credit: 1})
		left, ok := b.planner.park(b.now)
		effort.ErrorIf(t, ok != want || len(left.Addresses) > 0,
			"%v: parked is %v with %+v, want %v with nothing that was answered", cause, ok, left, want)
		if ok {
			b.planner.held = false
			b.look()
			effort.Is(t, len(b.offered().GetProbes()), 3, cause, "not all is offered again")
		}
	}
}

func TestHoldTakesBackWhatIsNotAnswered(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	o := b.offered()
	b.ack(o, 1, wire.Refusal_NONE)
	b.holdWork(b.now, true)
	b.look()
	effort.MustBe(t, len(b.steps), 1, "steps", b.steps)
	if told, ok := b.steps[0].(tell); !ok || told.msg.(*wire.Cancel).GetTask() != o.GetTask() {
		t.Fatalf("told %+v, want a cancel", b.steps[0])
	}
	b.pass(time.Minute)
	effort.MustBe(t, len(b.offers()), 0, "offers while nothing may be asked")
	b.holdWork(b.now, false)
	b.look()
	if again := b.offered(); len(locals(again)) != 2 || again.GetChunk() == o.GetChunk() {
		t.Fatalf("offered %v as chunk %d, want both addresses in a new chunk", locals(again), again.GetChunk())
	}
}

func TestHoldKeepsTimes(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, judgement{reason: smtp.Greylisted, wait: 10 * time.Minute})
	b.holdWork(b.now, true)
	b.look()
	b.holdWork(b.now, false)
	b.pass(time.Minute)
	effort.MustBe(t, len(b.offers()), 0,
		"an address was offered before its time, because nothing could be settled for a while")
	b.pass(10 * time.Minute)
	b.offered()
}

// The time in which our ledger stalled does not count towards giving an address up. The scheduler is not told of it as
// a wait that the receiver wanted: other addresses would then wait as long.
func TestTimeHeldGivesNoAddressUpAndTeachesNothing(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, greylisted)
	b.holdWork(b.now, true)
	b.look()
	b.pass(2 * b.options.GiveUpAfter)
	b.holdWork(b.now, false)
	b.look()
	again := b.offered()
	ago, _, told := again.GetProbes()[0].Greylisted()
	effort.ErrorIf(t, told, "the receiver is told of a wait of %v", ago)
	b.answers(again, 1, greylisted)
	f, over := b.done[0]
	effort.FatalIf(t, over, "given up as %+v", f)
}
