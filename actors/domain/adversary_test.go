package domain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
	"rollcall/smtp/verdict"
)

// adversary is a receiver with every vice that the protocol allows for: it loses, repeats, delays and reorders
// messages, refuses, forgets chunks and goes away. It never lies: an address that it answered keeps its answer.
type adversary struct {
	t     *rapid.T
	b     *planner
	now   time.Time
	open  map[uint64]*wire.Offer
	keys  map[uint64]string // of the receiver that was offered a chunk
	batch map[uint64]uint64
	mail  []delivery  // on its way to the planner
	truth []judgement // by ordinal
	kinds []int       // what each address gets before its truth: number of "again"
	all   bool        // the receiver accepts what nobody has; behind a guard, in silence
	// guard: it accepts everything behind guardAfter refusals in an hour. It has no
	// other vice then: from lost answers nobody learns what was refused.
	guard bool
	since []time.Time
	moves uint64 // how often another receiver became the right one

	final map[uint32]Final
	calm  bool // no vices any more
}

type delivery struct {
	at time.Time
	do func()
}

// chance is true in a number of 100 cases, never when calm.
func (a *adversary) chance(percent int) bool {
	return !a.calm && rapid.IntRange(1, 100).Draw(a.t, "chance") <= percent
}

// post sends a message to the planner: once, twice, late or never.
func (a *adversary) post(do func()) {
	if a.chance(10) {
		return
	}
	copies := 1
	if a.chance(10) {
		copies = 2
	}
	for range copies {
		wait := time.Duration(0)
		if a.chance(30) {
			wait = time.Duration(rapid.IntRange(0, 8000).Draw(a.t, "late")) * time.Millisecond
		}
		a.mail = append(a.mail, delivery{a.now.Add(wait), do})
	}
}

// do carries out one step of the planner.
func (a *adversary) do(s step) {
	switch s := s.(type) {
	case findRoute:
		a.mail = append(a.mail, delivery{a.now.Add(time.Millisecond), func() {
			if a.chance(20) {
				a.b.takeRoute(a.now, mx.Route{}, errDNS)
				return
			}
			r := testRoute
			r.Expires = a.now.Add(10 * time.Minute)
			if a.chance(20) {
				r.Receiver = "other.test"
			}
			a.b.takeRoute(a.now, r, nil)
		}})
	case findReceiver:
		key := a.b.route.key
		a.mail = append(a.mail, delivery{a.now.Add(s.after), func() { a.b.foundReceiver(key, !a.chance(20)) }})
	case recall:
		a.mail = append(a.mail, delivery{a.now.Add(time.Second), func() { a.b.controls.recallOver(a.now) }})
	case tell:
		switch m := s.msg.(type) {
		case *wire.Offer:
			if !a.chance(10) {
				a.offered(m)
			}
		case *wire.Cancel:
			clear(a.open)
		}
	}
}

// offered takes an offer, or does not.
func (a *adversary) offered(m *wire.Offer) {
	if !a.b.backlog.isMine(m.GetTask()) || a.b.backlog.chunkOf(m.GetChunk()) == nil {
		return // taken back in the same breath: Cancel comes behind
	}
	for _, p := range m.GetProbes() {
		f, done := a.final[p.GetOrdinal()]
		effort.FatalIf(a.t, done, "ordinal %d is offered after it became %v", p.GetOrdinal(), f.Outcome)
		want := fmt.Sprintf("user%d", p.GetOrdinal())
		effort.FatalIf(a.t, p.GetOrdinal() != controlOrdinal && p.GetLocal() != want,
			"ordinal %d is offered as %q", p.GetOrdinal(), p.GetLocal())
		effort.FatalIf(a.t, p.GetOrdinal() == controlOrdinal && len(a.b.controls.accepted) == 0 &&
			a.b.controls.knowsBehaviour(a.now), "a control probe that nobody needs")
	}
	ack := &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(),
		Credit: uint32(rapid.IntRange(0, 3).Draw(a.t, "credit"))}
	if a.chance(15) {
		ack.Refusal = wire.Refusal(rapid.IntRange(1, 3).Draw(a.t, "refusal"))
	} else {
		a.open[m.GetChunk()] = m
		a.keys[m.GetChunk()] = a.b.route.key
	}
	a.post(func() { a.b.backlog.takeAck(a.now, ack) })
}

// census checks that every address is in exactly one place.
func (a *adversary) census() {
	places := map[uint32]int{}
	s := &a.b.backlog
	for _, o := range s.chunks {
		for ordinal := range o.left {
			places[ordinal]++
		}
	}
	for _, ordinal := range slices.Concat(s.ready, s.ordinals[s.next:]) {
		places[ordinal]++
	}
	for _, d := range a.b.retries.deferred {
		places[d.ordinal]++
	}
	for _, f := range slices.Concat(a.b.controls.accepted, a.b.controls.proven) {
		places[f.ordinal]++
	}
	if control := places[controlOrdinal]; control > 1 || control == 1 != a.b.controls.asking {
		a.t.Fatalf("the control probe is in %d places", control)
	}
	delete(places, controlOrdinal)
	for ordinal := range a.final {
		places[ordinal]++
	}
	for ordinal := range a.truth {
		n := places[uint32(ordinal)]
		effort.FatalIf(a.t, n != 1, "ordinal %d is in %d places", ordinal, n)
	}
}

// work answers a part of what is open, and misbehaves.
func (a *adversary) work() {
	s := &a.b.backlog
	effort.FatalIf(a.t, s.countOut(false) > chunksMax || s.countOut(true) > chunksMax,
		"%d chunks are open, and %d of due retries", s.countOut(false), s.countOut(true))
	switch {
	case !s.receiver.reached:
	case a.chance(1):
		a.b.backlog.loseReceiver(a.now, rapid.IntRange(0, lostSure).Draw(a.t, "suspicion"))
	case a.chance(1):
		a.b.backlog.takeMoved(a.now)
	}
	if a.chance(5) {
		clear(a.open) // forgotten
	}
	if a.chance(2) {
		a.moves++
	}
	pulses := map[string]*wire.Pulse{}
	for _, number := range a.numbers() {
		if pulses[a.keys[number]] == nil {
			pulses[a.keys[number]] = &wire.Pulse{Task: a.open[number].GetTask(), Credit: 1}
		}
		pulse := pulses[a.keys[number]]
		pulse.Chunks = append(pulse.Chunks, number)
		if a.chance(50) {
			continue // slow
		}
		m := a.open[number]
		delete(a.open, number)
		for len(m.GetProbes()) > 0 {
			n := len(m.GetProbes())
			if !a.calm {
				n = rapid.IntRange(1, n).Draw(a.t, "batch size")
			}
			a.answer(m, m.GetProbes()[:n])
			m = &wire.Offer{Task: m.GetTask(), Chunk: m.GetChunk(), Probes: m.GetProbes()[n:]}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pulses)) {
		a.post(func() {
			if a.b.backlog.isMine(pulses[key].GetTask()) && a.b.route.key == key {
				a.b.backlog.takePulse(a.now, pulses[key]) // the shell lets no others through
			}
		})
	}
}

func (a *adversary) numbers() (list []uint64) {
	for number := range a.open {
		list = append(list, number)
	}
	slices.Sort(list) // maps have no order, and runs must repeat
	return list
}

// answer sends results until they arrive once, as a receiver does.
func (a *adversary) answer(m *wire.Offer, probes []*wire.Probe) {
	a.batch[m.GetChunk()]++
	r := results(m, a.batch[m.GetChunk()], a.now, probes, func(p *wire.Probe) judgement { return a.says(p.GetOrdinal()) })
	a.post(func() { a.b.takeResults(a.now, r) })
}

// guardAfter is the number of refusals behind which the adversary's guard accepts all.
const guardAfter = 20

// says returns the answer about an ordinal.
func (a *adversary) says(n uint32) judgement {
	say := refused
	switch {
	case n != controlOrdinal && a.kinds[n] > 0:
		a.kinds[n]--
		return judgement{reason: smtp.Greylisted, source: rapid.SampledFrom([]string{"", sourceA, sourceB}).Draw(a.t,
			"source"), void: a.chance(10)}
	case n != controlOrdinal && a.truth[n].outcome == smtp.Valid, n == controlOrdinal && a.all:
		return accepted
	case n == controlOrdinal && a.chance(50):
		return rapid.SampledFrom([]judgement{greylisted, {outcome: smtp.Unknown, reason: smtp.Policy},
			{outcome: smtp.Valid, reason: smtp.MailboxExists, void: true}}).Draw(a.t, "control")
	}
	a.since = slices.DeleteFunc(a.since, func(at time.Time) bool { return a.now.Sub(at) > suspectWithin })
	if a.guard && len(a.since) >= guardAfter {
		return accepted
	}
	a.since = append(a.since, a.now)
	return say
}

// deliver hands over the mail that is due, in any order.
func (a *adversary) deliver() {
	if a.chance(20) && len(a.mail) > 1 {
		i := rapid.IntRange(0, len(a.mail)-1).Draw(a.t, "first")
		a.mail[0], a.mail[i] = a.mail[i], a.mail[0]
	}
	var later []delivery
	due := a.mail
	a.mail = nil
	for _, d := range due {
		if d.at.After(a.now) {
			later = append(later, d)
			continue
		}
		d.do()
		a.plan()
	}
	a.mail = append(a.mail, later...)
}

func (a *adversary) plan() {
	steps, finals, _ := a.b.plan(a.now)
	checkWaits(a.t, a.b, a.now)
	for _, f := range finals {
		if _, twice := a.final[f.Ordinal]; twice || int(f.Ordinal) >= len(a.truth) {
			a.t.Fatalf("ordinal %d became final again as %v", f.Ordinal, f.Outcome)
		}
		want := a.truth[f.Ordinal].outcome
		if a.all && want == smtp.Valid {
			want = smtp.CatchAll
		}
		effort.FatalIf(a.t, f.Outcome != want && f.Outcome != smtp.Unknown,
			"ordinal %d is %v, the truth is %v: %+v", f.Ordinal, f.Outcome, want, f.Case)
		if outcome, reason := verdict.Conclude(f.Case); outcome != f.Outcome || reason != f.Reason {
			a.t.Fatalf("ordinal %d is %v %v, its case says %v %v", f.Ordinal, f.Outcome, f.Reason, outcome, reason)
		}
		effort.FatalIf(a.t, f.Outcome != smtp.Unknown && len(f.Case.Attempts) == 0,
			"ordinal %d is %v without an attempt", f.Ordinal, f.Outcome)
		a.final[f.Ordinal] = f
	}
	for _, s := range steps {
		a.do(s)
	}
}

// Every address becomes final exactly once and truly in bounded time, whatever a receiver does that does not lie. Where
// no guard makes the domain rest, that is the time to give up; where one does, it is the deadline of the verification.
func TestAdversary(t *testing.T) {
	effort.Unraced(t, "plain calls with values")
	effort.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1200).Draw(t, "addresses")
		a := &adversary{t: t, now: morning, open: map[uint64]*wire.Offer{}, keys: map[uint64]string{},
			batch: map[uint64]uint64{}, final: map[uint32]Final{}}
		o := testOptions()
		o.Version = func() uint64 { return a.moves }
		o.Match = func(r mx.Route) string { return fmt.Sprintf("%s/%d", r.Receiver, a.moves%3) }
		if rapid.Bool().Draw(t, "shared facts") {
			o.Facts = sharing(&receivertest.Shelf{})
		}
		w := Work{Epoch: 1, Domain: "example.test", Deadline: morning.Add(10 * time.Hour),
			Local: func(o uint32) string { return fmt.Sprintf("user%d", o) }}
		kind := rapid.IntRange(1, 7).Draw(t, "kind")
		a.all = rapid.IntRange(0, 4).Draw(t, "all") == 0
		a.guard = !a.all && rapid.IntRange(0, 2).Draw(t, "guard") == 0
		for i := range n {
			w.Ordinals = append(w.Ordinals, uint32(i))
			say := refused
			if i%kind == 0 {
				say = accepted
			}
			a.truth, a.kinds = append(a.truth, say), append(a.kinds, i%3)
		}
		a.b = newPlanner(morning, o, w, testSeed)
		a.plan()
		vicious := rapid.IntRange(5, 300).Draw(t, "seconds of vice")
		rested := false
		for seconds := 0; len(a.final) < n; seconds++ {
			a.calm = seconds > vicious || a.guard
			step := time.Second
			if len(a.b.backlog.chunks) == 0 && len(a.mail) == 0 {
				step = time.Minute
			}
			a.now = a.now.Add(step)
			a.deliver()
			a.work()
			a.plan()
			a.census()
			rested = rested || a.b.route.isPaused(a.now)
			most := 9 * time.Hour // more than the time to give up, from the last lost chunk on
			if rested {
				most = w.Deadline.Sub(morning) + 10*time.Minute // what is out then comes back
			}
			if took := a.now.Sub(morning); took > most {
				t.Fatalf("%d of %d are final after %s, a guard made it rest: %v", len(a.final), n, took, rested)
			}
		}
		deferred, history := len(a.b.retries.deferred), len(a.b.retries.again)
		effort.FatalIf(t, a.b.left != 0 || deferred > 1 || history > 1,
			"at the end %d are left, %d deferred, %d in the history", a.b.left, deferred, history)
	})
}

// TestControlProbesLookLikePeople: each of another shape than the one before, never
// the same twice, too long for a mailbox that somebody has by chance.
func TestControlProbesLookLikePeople(t *testing.T) {
	looks := []*regexp.Regexp{
		regexp.MustCompile(`^[a-z]+\.[a-z]+$`), regexp.MustCompile(`^[a-z]+[1-9][0-9]$`),
		regexp.MustCompile(`^[a-z]+[1-9][0-9]{3}$`), regexp.MustCompile(`^[a-z]+_[a-z]+$`),
	}
	n := newRandomLocals(testSeed)
	seen, shapes, before := map[string]bool{}, map[int]int{}, -1
	for range 2000 {
		local := n.next()
		shape := -1
		for i, look := range looks {
			if look.MatchString(local) {
				shape = i
			}
		}
		effort.FatalIf(t, shape < 0 || shape == before || seen[local] || len(local) < controlBytesMin ||
			len(local) > controlBytesMax, "%q: shape %d after %d, seen before: %v", local, shape, before, seen[local])
		seen[local], before = true, shape
		shapes[shape]++
		_, err := smtp.ParseAddress(local + "@example.test")
		effort.FatalIf(t, err != nil, "%q is not well-formed: %v", local, err)
	}
	effort.Is(t, len(shapes), len(looks), "shapes", shapes, "all")
	again, other := newRandomLocals(testSeed), newRandomLocals([32]byte{9})
	if first := again.next(); !seen[first] || seen[other.next()] {
		t.Error("the same seed must give the same names, and another one others")
	}
}
