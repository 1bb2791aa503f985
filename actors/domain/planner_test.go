package domain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
	"rollcall/smtp/verdict"
)

var (
	morning = time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)
	ladder  = []time.Duration{time.Minute, 5 * time.Minute}
	errDNS  = errors.New("no name server answers")

	testSeed = [32]byte{1, 2, 3}
)

// equalWeight gives every workspace one share.
func equalWeight(uuid.UUID) int { return 1 }

// testPauses are those between control probes.
var testPauses = []time.Duration{2 * time.Second, 15 * time.Second}

// always gives every receiver the same waits.
func always(waits ...time.Duration) func(key string) []time.Duration {
	return func(string) []time.Duration { return waits }
}

// testOptions is for planners, which resolve nothing themselves.
func testOptions() Options {
	return Options{
		Route:   func(context.Context, string) (mx.Route, error) { return mx.Route{}, errDNS },
		Match:   func(r mx.Route) string { return r.Receiver },
		Resolve: func(string) *actor.PID { return nil },
		Version: func() uint64 { return 0 },
		Facts:   NewFacts(), Load: NewLoad(equalWeight), Waits: always(ladder...), GiveUpAfter: time.Hour,
		ControlPauses: testPauses, Log: slog.New(slog.DiscardHandler),
	}
}

// bench drives one planner by hand and keeps what it says.
type bench struct {
	*planner
	t     *testing.T
	now   time.Time
	steps []step // of the last plan
	done  map[uint32]Final
	wakes time.Time

	barren time.Duration // as the receiver says in its results
}

func newBench(t *testing.T, o Options, addresses int) *bench {
	t.Helper()
	effort.OK(t, o.Validate())
	ordinals := make([]uint32, addresses)
	for i := range ordinals {
		ordinals[i] = uint32(i)
	}
	w := Work{Verification: uuid.UUID{7}, Workspace: uuid.UUID{3}, Epoch: 1, Domain: "example.test", Ordinals: ordinals,
		Local: func(ordinal uint32) string { return fmt.Sprintf("user%d", ordinal) }}
	b := &bench{t: t, now: morning, done: map[uint32]Final{},
		planner: newPlanner(morning, o, w, testSeed)}
	b.controls.early = false // no control probe before anything was accepted, which has tests of its own
	b.look()
	return b
}

// look asks the planner for what is to be done now.
func (b *bench) look() {
	b.t.Helper()
	var finals []Final
	b.steps, finals, b.wakes = b.plan(b.now)
	for _, f := range finals {
		if before, twice := b.done[f.Ordinal]; twice || f.Ordinal == controlOrdinal {
			b.t.Fatalf("ordinal %d became final again: %+v after %+v", f.Ordinal, f, before)
		}
		outcome, reason := verdict.Conclude(f.Case)
		effort.FatalIf(b.t, outcome != f.Outcome || reason != f.Reason,
			"ordinal %d is %v %v, its case says %v %v: %+v", f.Ordinal, f.Outcome, f.Reason, outcome, reason, f.Case)
		b.done[f.Ordinal] = f
	}
	checkWaits(b.t, b.planner, b.now)
	effort.MustBe(b.t, b.left, len(b.work.Ordinals)-len(b.done), "are left", len(b.done), len(b.work.Ordinals),
		"are final")
}

// finds answers the question for the receiver, and looks.
func (b *bench) finds(ok bool) {
	b.t.Helper()
	b.foundReceiver(b.route.key, ok)
	b.look()
}

func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(d)
	b.look()
}

// testBehaviour is the key of what is known of the host of testRoute.
var testBehaviour = behaviourKey("example.test", "mx.receiver.test")

var testRoute = mx.Route{Domain: "example.test", Receiver: "receiver.test",
	Expires: morning.Add(24 * time.Hour),
	Hosts:   []mx.Host{{Name: "mx.receiver.test", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}}

// reach answers the questions for route and receiver.
func (b *bench) reach() {
	b.t.Helper()
	b.takeRoute(b.now, testRoute, nil)
	b.look()
	if b.options.Facts.Shared() {
		b.wants(recall{[]string{testBehaviour}}, findReceiver{})
	} else {
		b.wants(findReceiver{})
	}
	b.finds(true)
}

// wants compares the steps but for offers and acknowledgements, which have tests of their own.
func (b *bench) wants(want ...step) {
	b.t.Helper()
	got := slices.DeleteFunc(slices.Clone(b.steps), func(s step) bool {
		_, sent := s.(tell)
		_, replied := s.(reply)
		return sent || replied
	})
	effort.FatalIf(b.t, len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want),
		"steps are %+v, want %+v", got, want)
}

// offers returns the offers of the last plan.
func (b *bench) offers() (list []*wire.Offer) {
	for _, s := range b.steps {
		if t, ok := s.(tell); ok {
			if o, ok := t.msg.(*wire.Offer); ok {
				list = append(list, o)
			}
		}
	}
	return list
}

// offered returns the only offer of the last plan.
func (b *bench) offered() *wire.Offer {
	b.t.Helper()
	list := b.offers()
	effort.FatalIf(b.t, len(list) != 1, "%d offers at %v, want 1", len(list), b.now.Sub(morning))
	return list[0]
}

func locals(o *wire.Offer) (list []string) {
	for _, p := range o.GetProbes() {
		list = append(list, p.GetLocal())
	}
	return list
}

func (b *bench) ack(o *wire.Offer, credit uint32, why wire.Refusal) {
	b.t.Helper()
	b.backlog.takeAck(b.now, &wire.OfferAck{Task: o.GetTask(), Chunk: o.GetChunk(), Refusal: why, Credit: credit})
	b.look()
}

// judgement is what a receiver says about one address.
type judgement struct {
	outcome smtp.Outcome // Undecided: again
	reason  smtp.Reason
	wait    time.Duration
	code    int // 0: the usual one
	source  string
	host    string
	void    bool
	bare    bool
	silent  bool       // without an attempt
	others  bool       // the attempt is another address's
	stage   smtp.Stage // its zero value: RCPT
	text    string     // empty: the usual one
	rule    string     // empty: the usual one
}

// attempts is the evidence for a judgement.
func (say judgement) attempts(at time.Time) []evidence.Attempt {
	if say.silent {
		return nil
	}
	code := map[smtp.Outcome]int{smtp.Undecided: 451, smtp.Valid: 250, smtp.Invalid: 550,
		smtp.CatchAll: 252, smtp.Unknown: 554, smtp.Error: 554}[say.outcome]
	if say.code != 0 {
		code = say.code
	}
	a := evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx.receiver.test", Source: say.source,
		Code: code, Outcome: say.outcome, Reason: say.reason, Text: "as the receiver said", Rule: "a-rule",
		Void: say.void, Bare: say.bare, Others: say.others}
	if say.host != "" {
		a.Host = say.host
	}
	if say.stage != 0 {
		a.Stage = say.stage
	}
	if say.text != "" {
		a.Text = say.text
	}
	if say.rule != "" {
		a.Rule = say.rule
	}
	if a.Source == "" {
		a.Source = "192.0.2.77"
	}
	return []evidence.Attempt{a}
}

// toAll answers each probe in the same way.
func (say judgement) toAll(*wire.Probe) judgement { return say }

// results is one batch of answers about some probes of an offer.
func results(
	o *wire.Offer, batch uint64, at time.Time, probes []*wire.Probe, says func(p *wire.Probe) judgement,
) *wire.Results {
	m := &wire.Results{Task: o.GetTask(), Chunk: o.GetChunk(), Batch: batch, Credit: 1}
	var texts wire.Texts
	for _, p := range probes {
		say := says(p)
		m.Answers = append(m.Answers, &wire.Answer{Ordinal: p.GetOrdinal(), Outcome: uint32(say.outcome),
			Reason: uint32(say.reason), WaitMs: say.wait.Milliseconds(), Attempts: texts.Attempts(say.attempts(at))})
	}
	m.Texts = texts.List()
	return m
}

var (
	accepted   = judgement{outcome: smtp.Valid, reason: smtp.MailboxExists}
	refused    = judgement{outcome: smtp.Invalid, reason: smtp.MailboxNotFound}
	greylisted = judgement{reason: smtp.Greylisted}
)

// answers sends one batch of results with the same answer to some probes of an offer, or to all.
func (b *bench) answers(o *wire.Offer, batch uint64, say judgement, which ...uint32) {
	b.t.Helper()
	m := results(o, batch, b.now, slices.DeleteFunc(slices.Clone(o.GetProbes()), func(p *wire.Probe) bool {
		return len(which) > 0 && !slices.Contains(which, p.GetOrdinal())
	}), say.toAll)
	m.BarrenMs, m.BarrenReason = b.barren.Milliseconds(), uint32(smtp.Protocol)
	b.takeResults(b.now, m)
	b.look()
}

// is checks the final outcome of an ordinal.
func (b *bench) is(ordinal uint32, outcome smtp.Outcome, reason smtp.Reason) {
	b.t.Helper()
	if f, ok := b.done[ordinal]; !ok || f.Outcome != outcome || f.Reason != reason {
		b.t.Errorf("ordinal %d: got %v %v (final: %v), want %v %v", ordinal, f.Outcome, f.Reason, ok, outcome, reason)
	}
}

func TestRouteAnswers(t *testing.T) {
	bare := testRoute
	bare.Hosts = []mx.Host{{Name: "mx.receiver.test"}}
	for _, c := range []struct {
		name  string
		route mx.Route
		err   error
		want  []step
		final smtp.Reason   // of all addresses; none: they are open
		wake  time.Duration // 0: none
	}{
		{"no such domain", mx.Route{NoMail: smtp.DomainNotFound}, nil, nil, smtp.DomainNotFound, 0},
		{"no mail service", mx.Route{NoMail: smtp.NoMailService}, nil, nil, smtp.NoMailService, 0},
		{"name servers silent", mx.Route{}, errDNS, nil, smtp.ReasonNone, time.Minute},
		{"hosts without an address", bare, nil, nil, smtp.ReasonNone, time.Minute},
		{"hosts", testRoute, nil, []step{findReceiver{}}, smtp.ReasonNone, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 3)
			b.wants(findRoute{})
			b.takeRoute(b.now, c.route, c.err)
			b.look()
			b.wants(c.want...)
			if c.final != smtp.ReasonNone {
				for i := range uint32(3) {
					b.is(i, smtp.Invalid, c.final)
					effort.Is(t, b.done[i].Case.NoRoute, c.final, "why there is no route")
				}
			} else if len(b.done) != 0 {
				t.Errorf("%d are final, want none", len(b.done))
			}
			if c.wake != 0 && !b.wakes.Equal(morning.Add(c.wake)) || c.wake == 0 && !b.wakes.IsZero() {
				t.Errorf("woken at %v, want %v", b.wakes.Sub(morning), c.wake)
			}
		})
	}
}

func TestSilentNameServersAreAskedAlongTheLadderUntilTheTimeIsUp(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	var asked []time.Duration
	for len(b.done) < 2 {
		b.wants(findRoute{})
		asked = append(asked, b.now.Sub(morning))
		b.takeRoute(b.now, mx.Route{}, errDNS)
		b.look()
		b.wants()
		if len(b.done) == 0 {
			b.pass(b.wakes.Sub(b.now) - time.Millisecond)
			b.wants() // not a moment before
			b.pass(time.Millisecond)
		}
	}
	b.is(0, smtp.Unknown, smtp.DNSFailed)
	b.is(1, smtp.Unknown, smtp.DNSFailed)
	if last := asked[len(asked)-1]; len(asked) != 14 || asked[1] != time.Minute || asked[2] != 6*time.Minute ||
		last != time.Hour { // the last wait is shortened to the end
		t.Errorf("asked %d times at %v", len(asked), asked)
	}
}

func TestWaitsBetweenAttempts(t *testing.T) {
	for _, c := range []struct {
		name   string
		say    judgement
		first  time.Duration // when it is asked again; 0: never
		second time.Duration // the same, after the same answer
	}{
		{"no time named", greylisted, time.Minute, 6 * time.Minute},
		{"the receiver's time is kept and a little more", judgement{reason: smtp.Greylisted,
			wait: 10 * time.Minute}, 10*time.Minute + time.Second, 20*time.Minute + 2*time.Second},
		{"a short time too", judgement{reason: smtp.Greylisted, wait: time.Second},
			time.Second + 100*time.Millisecond, 2*time.Second + 200*time.Millisecond},
		{"longer than we wait", judgement{reason: smtp.Greylisted, wait: 2 * time.Hour}, 0, 0},
		{"an absurd time", judgement{reason: smtp.Greylisted, wait: 1<<63 - 1}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.reach()
			b.answers(b.offered(), 1, c.say)
			for _, at := range []time.Duration{c.first, c.second} {
				if at == 0 {
					b.is(0, smtp.Unknown, smtp.Greylisted)
					return
				}
				effort.Is(t, len(b.retries.again), 0, "a deferred address is kept twice")
				if until := b.quietUntil(b.now); !until.Equal(morning.Add(at)) || !b.wakes.Equal(until) {
					t.Fatalf("quiet until %v, woken at %v, want %v", until.Sub(morning), b.wakes.Sub(morning), at)
				}
				b.pass(b.wakes.Sub(b.now) - time.Millisecond)
				effort.MustBe(t, len(b.offers()), 0, "asked before its time")
				b.pass(time.Millisecond)
				b.answers(b.offered(), 1, c.say)
			}
		})
	}
}

func TestAnswersNobodyKnowsAreAskedAgain(t *testing.T) {
	for _, c := range []judgement{
		{outcome: smtp.Valid}, {outcome: 9, reason: smtp.MailboxExists}, {outcome: smtp.Valid, reason: 200},
	} {
		b := newBench(t, testOptions(), 1)
		b.reach()
		b.answers(b.offered(), 1, c)
		effort.ErrorIf(t, len(b.done) != 0 || len(b.retries.deferred) != 1,
			"%+v: %d final, %d deferred; want it asked again", c, len(b.done), len(b.retries.deferred))
	}
}

// A domain that vanishes between an acceptance and the control probe is still answered.
func TestNoMailAfterAnAcceptance(t *testing.T) {
	b := newBench(t, testOptions(), 3)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, accepted, 0)
	b.answers(b.offered(), 1, greylisted) // the control probe
	b.answers(offer, 2, greylisted, 1)
	b.answers(offer, 3, judgement{reason: smtp.Greylisted, wait: 50 * time.Minute}, 2)
	b.route.Expires = b.now
	b.pass(time.Minute)
	b.wants(findRoute{})
	b.takeRoute(b.now, mx.Route{NoMail: smtp.NoMailService}, nil)
	b.look()
	for i := range uint32(3) {
		b.is(i, smtp.Invalid, smtp.NoMailService)
	}
}

func TestCredit(t *testing.T) {
	b := newBench(t, testOptions(), 50*wire.AddressesMax)
	b.reach()
	first := b.offered()
	effort.MustBe(t, len(first.GetProbes()), wire.AddressesMax, "probes in an offer")
	b.ack(first, 0, wire.Refusal_NONE)
	effort.MustBe(t, len(b.offers()), 0, "offered without credit")
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{1}, Credit: 7})
	b.look()
	second := b.offered()
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{1, 2}, Credit: 7})
	b.look()
	effort.MustBe(t, len(b.offers()), 0, "more than two chunks are open")
	b.answers(first, 1, refused)
	b.answers(second, 1, refused)
	b.offered()
	effort.ErrorIf(t, len(b.done) != 2*wire.AddressesMax, "%d are final", len(b.done))
}

func TestChunksGrowWithTheReceiversSpeed(t *testing.T) {
	b := newBench(t, testOptions(), 4000)
	b.reach()
	var sizes []int
	for _, took := range slices.Concat([]time.Duration{0, chunkSoon, chunkSoon + 1},
		slices.Repeat([]time.Duration{time.Minute}, 5), []time.Duration{0}) {
		offer := b.offers()[0]
		sizes = append(sizes, len(offer.GetProbes()))
		b.ack(offer, 0, wire.Refusal_NONE)
		for step := time.Second; took > step; took -= step { // it lives
			b.now = b.now.Add(step)
			b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{offer.GetChunk()}})
			b.look()
		}
		b.now = b.now.Add(took)
		b.answers(offer, 1, refused)
	}
	want := []int{500, 500, 500, 250, 125, 62, 31, 25, 25}
	effort.Equal(t, sizes, want, "chunks")
}

func TestLittleIsOfferedWhileMuchIsOut(t *testing.T) {
	o := testOptions()
	b := newBench(t, o, 400)
	b.backlog.size = 200
	another := uuid.UUID{9}
	for range loadMax / 2 { // two others have it
		o.Load.takeAddress(another)
		o.Load.takeAddress(uuid.UUID{8})
	}
	o.Load.takeAddress(another)
	b.reach()
	first := b.offered()
	effort.Is(t, len(first.GetProbes()), chunkLeast, "probes in an offer")
	b.ack(first, 1, wire.Refusal_NONE)
	effort.Is(t, len(b.offers()), 0, "a second chunk is out")
	o.Load.giveAddresses(another, loadMax)
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{1}, Credit: 1})
	b.look()
	second := b.offered()
	effort.Is(t, len(second.GetProbes()), 200, "probes in an offer")
	b.answers(first, 1, refused)
	b.answers(second, 1, refused)
	b.backlog.loseReceiver(b.now, lostSure)
	effort.Is(t, o.Load.Addresses(), loadMax/2, "addresses count as out when only another's")
}

// TestNothingIsOfferedAboveTheShareOfAWorkspace: the rest is offered when there is room.
func TestNothingIsOfferedAboveTheShareOfAWorkspace(t *testing.T) {
	o := testOptions()
	b := newBench(t, o, 3)
	taken := 0
	for ; o.Load.takeAddress(b.work.Workspace); taken++ {
	}
	effort.Is(t, taken, outMax/2, "one workspace has addresses out")
	b.reach()
	effort.ErrorIf(t, len(b.offers()) != 0 || b.wakes.Sub(b.now) != crowdedPause,
		"%d offers above the share, looked at again in %v", len(b.offers()), b.wakes.Sub(b.now))
	o.Load.giveAddresses(b.work.Workspace, 2)
	b.pass(crowdedPause)
	effort.Is(t, len(b.offered().GetProbes()), 2, "probes in an offer with room for 2")
	another := testOptions()
	another.Load = o.Load
	other := newBench(t, another, 3)
	other.work.Workspace = uuid.UUID{5}
	other.reach()
	effort.Is(t, len(other.offered().GetProbes()), 3, "another workspace offers")
}

// TestRefusedOffersPause: the pause grows with each refused offer, and an answer resets it.
func TestRefusedOffersPause(t *testing.T) {
	for _, why := range []wire.Refusal{wire.Refusal_FULL, wire.Refusal_STALE_EPOCH, wire.Refusal_DRAINING} {
		b := newBench(t, testOptions(), 2)
		b.reach()
		var pauses []time.Duration
		for range 7 {
			b.ack(b.offered(), 2, why) // whatever credit it names
			b.wants(leave{}, b.steps[len(b.steps)-1])
			pauses = append(pauses, b.steps[len(b.steps)-1].(findReceiver).after)
			b.finds(true)
		}
		ms := time.Millisecond
		want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms}
		effort.Equal(t, pauses, want, why, "pauses")
		b.answers(b.offered(), 1, refused, 0)
		b.is(0, smtp.Invalid, smtp.MailboxNotFound)
		b.backlog.loseReceiver(b.now, 0)
		b.look()
		effort.Equal(t, b.receivers(true), []time.Duration{resolvePause}, "pauses")
	}
}

func TestRefusedOfferBehindAnotherWaitsForCredit(t *testing.T) {
	b := newBench(t, testOptions(), 2*wire.AddressesMax)
	b.reach()
	first := b.offered()
	b.ack(first, 1, wire.Refusal_NONE)
	b.ack(b.offered(), 1, wire.Refusal_FULL)
	effort.MustBe(t, len(b.steps), 0, "steps after the refusal", b.steps)
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{1}, Credit: 1})
	b.look()
	got := b.offered().GetProbes()[0].GetOrdinal()
	effort.ErrorIf(t, got != 2*wire.AddressesMax-1, "ordinal %d is offered, want the last of what was refused", got)
}

func TestSilence(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	first := b.offered()
	b.pass(2 * time.Second)
	again := b.offered()
	effort.FatalIf(t, again.GetChunk() != first.GetChunk() || !slices.Equal(locals(again), locals(first)),
		"an offer that nobody answered is not sent again")
	for _, o := range []*wire.Offer{first, again} {
		effort.Is(t, uuid.UUID(o.GetWorkspace()), b.work.Workspace, "offered for")
	}
	b.ack(first, 1, wire.Refusal_NONE)
	b.answers(first, 1, refused, 0)
	b.pass(4900 * time.Millisecond)
	b.wants()
	b.pass(100 * time.Millisecond)
	b.wants(leave{}, findReceiver{after: resolvePause})
	b.finds(true)
	effort.Equal(t, locals(b.offered()), []string{"user1"}, "offered again")
}

func TestHeldUntilIsQuiet(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.ack(b.offered(), 0, wire.Refusal_NONE)
	until := morning.Add(10 * time.Minute)
	b.backlog.takePulse(b.now, &wire.Pulse{Task: b.backlog.task, Chunks: []uint64{1}, WaitingMs: wire.Left(b.now, until)})
	b.look()
	got := b.quietUntil(b.now)
	effort.ErrorIf(t, !got.Equal(until), "quiet until %v, want %v", got, until)
	got = b.quietUntil(until)
	effort.ErrorIf(t, !got.IsZero(), "quiet until %v when the time has come", got)
}

func TestWhatIsNotOursIsIgnored(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	offer := b.offered()
	for name, task := range map[string]*wire.Task{
		"no task":          nil,
		"another epoch":    {Verification: b.backlog.task.GetVerification(), Epoch: 2, Domain: "example.test"},
		"another domain":   {Verification: b.backlog.task.GetVerification(), Epoch: 1, Domain: "example.com"},
		"another customer": {Verification: make([]byte, 16), Epoch: 1, Domain: "example.test"},
	} {
		b.backlog.takeAck(b.now, &wire.OfferAck{Task: task, Chunk: 1, Refusal: wire.Refusal_FULL})
		if b.backlog.isMine(task) { // which the shell asks of a Pulse and of Moved
			t.Errorf("%s: is mine", name)
		}
		b.takeResults(b.now, &wire.Results{Task: task, Chunk: 1, Batch: 1, Answers: []*wire.Answer{{
			Outcome: uint32(smtp.Invalid), Reason: uint32(smtp.MailboxNotFound)}}})
		b.look()
		effort.ErrorIf(t, len(b.steps) != 0 || len(b.done) != 0,
			"%s: %d steps, %d final; want nothing", name, len(b.steps), len(b.done))
	}
	b.answers(offer, 1, refused)
	b.is(0, smtp.Invalid, smtp.MailboxNotFound)
}

func TestRepeatedResultsAreAcknowledgedAndCountedOnce(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	offer := b.offered()
	for range 2 {
		b.answers(offer, 1, greylisted, 0)
		want := reply{&wire.ResultsAck{Task: b.backlog.task, Chunk: 1, Batch: 1}}
		effort.FatalIf(t, len(b.steps) != 1 || !reflect.DeepEqual(b.steps[0], want),
			"steps are %+v, want %+v", b.steps, want)
	}
	b.answers(offer, 2, refused) // also for the one that was answered before
	effort.ErrorIf(t, len(b.done) != 1 || len(b.retries.deferred) != 1,
		"%d final, %d deferred, want 1 and 1", len(b.done), len(b.retries.deferred))
}

// An actor that is begun anew must not use the chunk numbers of the one that crashed.
func TestTriesHaveChunkNumbersOfTheirOwn(t *testing.T) {
	w := Work{Ordinals: []uint32{1}, Tries: 2}
	a := newPlanner(morning, testOptions(), w, testSeed)
	effort.ErrorIf(t, a.backlog.chunk != 2<<32, "the first chunk is behind %d, want %d", a.backlog.chunk, uint64(2)<<32)
}

func TestWhatNobodyFoundOutByTheDeadlineIsUnknown(t *testing.T) {
	b := newBench(t, testOptions(), 600)
	b.work.Deadline = morning.Add(30 * time.Minute)
	b.reach()
	offers := b.offered()
	got := wire.Until(b.now, offers.GetExpiresInMs())
	effort.ErrorIf(t, !got.Equal(b.work.Deadline), "offered until %v, want %v", got, b.work.Deadline)
	b.answers(offers, 0, greylisted)
	b.pass(30*time.Minute - time.Millisecond)
	effort.FatalIf(t, len(b.done) > 0, "%d are final before the deadline", len(b.done))
	b.pass(time.Millisecond)
	for ordinal := range uint32(600) { // put off and due, given back by a silent receiver, never offered
		b.is(ordinal, smtp.Unknown, smtp.ReceiverRateLimited)
	}
}
