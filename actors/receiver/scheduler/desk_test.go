package scheduler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// heard collects answers by domain and acknowledges them.
func (w *world) heard() map[string][]*wire.Answer {
	all := map[string][]*wire.Answer{}
	w.hear = func(_ Client, msg proto.Message) {
		if m, ok := msg.(*wire.Results); ok {
			d := m.GetTask().GetDomain()
			all[d] = append(all[d], m.GetAnswers()...)
			w.after(0, func() {
				w.scheduler.queues.takeAck(w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
			})
		}
	}
	return all
}

func (w *world) offer(m *wire.Offer) {
	w.scheduler.Offer(w.now, Client{Name: "owner"}, m)
	w.plan()
}

// TestVerdictsOfADomain: for rows of replies and broken hosts it checks the verdict about one address, and how many
// RCPTs and sessions it takes.
func TestVerdictsOfADomain(t *testing.T) {
	relay := smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"relay access denied"}}
	login := smtp.Reply{Code: 530, Lines: []string{"authentication required"}}
	startTLS := smtp.Reply{Code: 530, Enhanced: smtp.EnhancedCode{5, 7, 0},
		Lines: []string{"issue a starttls command first"}}
	split := smtp.Reply{Code: 452, Enhanced: smtp.EnhancedCode{4, 5, 3}, Lines: []string{"too many recipients"}}
	refused := errors.New("connection refused")
	noMail := &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 521, Lines: []string{"mx.test does not accept mail"}}}
	for _, tc := range []struct {
		name    string
		replies map[string]smtp.Reply // by host
		greets  map[string]error
		outcome smtp.Outcome
		reason  smtp.Reason
		rcpts   int
	}{
		{"accepted", nil, nil, smtp.Valid, smtp.MailboxExists, 1},
		{"second host when the first is down", nil, map[string]error{"mx1": refused}, smtp.Valid,
			smtp.MailboxExists, 1},
		{"both hosts down", nil, map[string]error{"mx1": refused, "mx2": refused}, smtp.Undecided,
			smtp.ConnectionFailed, 0},
		{"served by neither", map[string]smtp.Reply{"mx1": relay, "mx2": relay}, nil, smtp.Invalid,
			smtp.DomainNotHosted, 2},
		{"served by the second", map[string]smtp.Reply{"mx1": relay}, nil, smtp.Valid, smtp.MailboxExists, 2},
		{"not served by one, the other is down", map[string]smtp.Reply{"mx2": relay}, map[string]error{"mx1": refused},
			smtp.Undecided, smtp.ConnectionFailed, 1},
		{"not served by one, the other is no MX", map[string]smtp.Reply{"mx1": relay, "mx2": login}, nil,
			smtp.Undecided, smtp.Policy, 2},
		{"no mail at both", nil, map[string]error{"mx1": noMail, "mx2": noMail}, smtp.Invalid, smtp.NoMailService, 0},
		{"no mail at one, not served by the other", map[string]smtp.Reply{"mx1": relay},
			map[string]error{"mx2": noMail}, smtp.Invalid, smtp.NoMailService, 1},
		{"no mail at one, the other is down", nil, map[string]error{"mx1": noMail, "mx2": refused},
			smtp.Undecided, smtp.NoMailService, 0},
		{"the only RCPT is too many", map[string]smtp.Reply{"mx1": split}, nil, smtp.Undecided,
			smtp.ReceiverRateLimited, 2}, // it is looked at again once
		{"TLS demanded for ever", map[string]smtp.Reply{"mx1": startTLS}, nil, smtp.Undecided, smtp.TLSFailed, 2},
		{"lost again and again", map[string]smtp.Reply{"mx1": {}, "mx2": {}}, nil, smtp.Undecided,
			smtp.ConnectionFailed, 2}, // it is looked at again once
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, openedWide(), 1)
			w.reply = func(_ *Probe, s *simSession) smtp.Reply {
				if r, ok := tc.replies[s.host]; ok {
					return r
				}
				return smtp.Reply{Code: 250}
			}
			w.greet = func(host string) error { return tc.greets[host] }
			all := w.heard()
			w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1", "mx2")))
			w.run(begin.Add(3 * time.Minute)) // who waits for a host that is down is told after two
			effort.MustBe(t, len(all["d.example"]), 1, "answers")
			a := all["d.example"][0]
			o, r := smtp.Outcome(a.GetOutcome()), smtp.Reason(a.GetReason())
			if o != tc.outcome || r != tc.reason || len(w.rcpts) != tc.rcpts {
				t.Errorf("got %s %s after %d RCPTs, want %s %s after %d", o, r, len(w.rcpts), tc.outcome, tc.reason,
					tc.rcpts)
			}
			w.checkEmpty()
		})
	}
}

// TestSmallBesideLarge: ten addresses of one verification at a receiver that has
// 100,000 of another are answered among the first.
func TestSmallBesideLarge(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	all := w.heard()
	for n := range 200 {
		w.offer(offerOf(1, fmt.Sprintf("d%d.example", n), 1, wire.AddressesMax, hosts("mx1")))
	}
	w.offer(offerOf(2, "small.example", 1, 10, hosts("mx1")))
	w.run(begin.Add(6 * time.Second))
	effort.Is(t, len(all["small.example"]), 10, "of 10 addresses after", len(w.rcpts), "RCPTs")
}

// TestTheDeferredTakeTheirTurns: while nothing passes, new addresses alternate with deferred ones, which can show
// greylisting, whatever waits that was asked before without being deferred.
func TestTheDeferredTakeTheirTurns(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	deferred := 0
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if p.recheck != nil {
			deferred++
		}
		return smtp.Reply{Code: 451}
	}
	w.heard()
	w.offer(offerOf(1, "new.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(20 * time.Second))
	before := deferred
	asked := offerOf(1, "new.example", 2, 50, hosts("mx1"))
	for _, p := range asked.GetProbes() {
		p.Asked = true
	}
	w.offer(asked)
	w.run(begin.Add(2 * time.Minute))
	effort.Is(t, deferred-before >= 5, true, "enough of them were asked again:", deferred-before)
}

// TestTheLongestDeferredIsNext: what has waited longest is asked in the turns of the deferred, before all new ones.
func TestTheLongestDeferredIsNext(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	returned := 0
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if p.retry {
			returned++
		}
		return smtp.Reply{Code: 451}
	}
	w.heard()
	for n := range 2 {
		w.offer(offerOf(byte(n+1), "new.example", 1, wire.AddressesMax, hosts("mx1")))
	}
	w.run(begin.Add(20 * time.Second))
	again := offerOf(1, "new.example", 2, 20, hosts("mx1"))
	for i, p := range again.GetProbes() {
		p.Retry, p.Asked, p.Ordinal = true, true, uint32(2000+i)
		p.Greylist(time.Minute, "")
	}
	w.offer(again)
	w.run(begin.Add(2 * time.Minute))
	effort.Is(t, returned >= 8, true, "most turns were theirs:", returned)
}

// TestDueRetriesComeFirst: a task has two chunks of 500 here, which take 100 s; what was deferred before
// and is due has room beside them, and is asked before what was never asked.
func TestDueRetriesComeFirst(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	all := w.heard()
	for n := range 2 {
		w.offer(offerOf(1, "d.example", uint64(n+1), wire.AddressesMax, hosts("mx1")))
	}
	w.run(begin.Add(5 * time.Second))
	before := len(all["d.example"])
	retries := offerOf(1, "d.example", 3, 20, hosts("mx1"))
	due := map[uint32]bool{}
	for i, p := range retries.GetProbes() {
		p.Retry, p.Ordinal = true, uint32(2000+i)
		due[p.GetOrdinal()] = true
	}
	w.offer(retries)
	w.run(begin.Add(8 * time.Second))
	for _, answer := range all["d.example"][before:] {
		delete(due, answer.GetOrdinal())
	}
	if len(due) > 0 {
		t.Errorf("%d of 20 due retries have no answer among %d", len(due), len(all["d.example"])-before)
	}
}

// TestHeldRefusals: a receiver holds each refusal back, for longer than a second or not for as long, and twice as long
// each time in a session, as Courier does, or not. As many sessions wait for that as are allowed; where nothing is held
// back, there is one.
func TestHeldRefusals(t *testing.T) {
	a := openedWide()
	a.Connections, a.RcptsPerTransaction = 8, 1
	for seed := range uint64(20) {
		w := newWorld(t, a, seed)
		w.turn, w.holds, w.grows = time.Millisecond, time.Duration(seed%4)*4*time.Second, seed%8 > 3
		missing := 0
		w.reply = func(p *Probe, _ *simSession) smtp.Reply {
			if w.rand.IntN(4) > 0 {
				return smtp.Reply{Code: 250}
			}
			missing++
			return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"user unknown"}}
		}
		all := w.heard()
		w.offer(offerOf(1, "d.example", 1, 400, hosts("mx1")))
		ideal := time.Duration(missing) * w.holds / time.Duration(a.Connections)
		for len(all["d.example"]) < 400 && w.now.Before(begin.Add(20*time.Minute)) {
			w.run(w.now.Add(time.Second))
			ideal = time.Duration(missing) * w.holds / time.Duration(a.Connections)
		}
		if took := w.now.Sub(begin); took > ideal*5/4+2*w.holds+5*time.Second {
			t.Errorf("%d refusals held back for %s, growing %v: %s, ideal %s, %d sessions", missing, w.holds, w.grows, took,
				ideal, len(w.dials))
		}
		if w.holds == 0 && len(w.dials) > 2 {
			t.Errorf("%d sessions, though nothing is held back", len(w.dials))
		}
	}
}

// TestControlProbeWhileNothingPasses: a control probe that is deferred while nothing passes is asked again soon, as
// addresses are.
func TestControlProbeWhileNothingPasses(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.reply = func(*Probe, *simSession) smtp.Reply {
		return smtp.Reply{Code: 450, Enhanced: smtp.EnhancedCode{4, 1, 1}, Lines: []string{"user unknown"}}
	}
	all := w.heard()
	w.offer(offerOf(1, "d.example", 1, 30, hosts("mx1")))
	w.run(begin.Add(time.Minute))
	m := offerOf(1, "d.example", 2, 1, hosts("mx1"))
	m.Probes[0].Ordinal = wire.ControlOrdinal
	w.offer(m)
	w.run(begin.Add(5 * time.Minute))
	for _, answer := range all["d.example"] {
		if answer.GetOrdinal() == wire.ControlOrdinal && answer.Wait() <= 5*time.Minute {
			return
		}
	}
	t.Errorf("the control probe isn't asked again soon: %v", all["d.example"])
}

// TestQueueShares: a verification fills no more than it leaves free.
func TestQueueShares(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	accepted := map[byte]int{}
	var verification byte
	w.hear = func(_ Client, msg proto.Message) {
		if m, ok := msg.(*wire.OfferAck); ok && m.GetRefusal() == wire.Refusal_NONE {
			accepted[verification] += wire.AddressesMax
		}
	}
	w.greet = func(string) error { return errors.New("never mind") }
	for verification = 1; verification <= 2; verification++ {
		for n := range 500 {
			w.scheduler.Offer(w.now, Client{}, offerOf(verification, fmt.Sprintf("d%d.example", n), 1, wire.AddressesMax,
				hosts("mx1")))
		}
		for _, s := range w.scheduler.steps {
			w.do(s)
		}
		w.scheduler.steps = nil
	}
	if accepted[1] != queueMax/4 || accepted[2] != queueMax/8 {
		t.Errorf("accepted %v of %d", accepted, queueMax)
	}
}

// TestLanesTakeTurns: with one connection and twenty queues that have work for
// hours, each is served within a few turns.
func TestLanesTakeTurns(t *testing.T) {
	a := openedWide()
	a.Connections = 1
	w := newWorld(t, a, 1)
	served := map[string]bool{}
	w.asked = func(p *Probe) { served[p.Address.Domain] = true }
	for n := range 20 {
		w.offer(offerOf(1, fmt.Sprintf("d%d.example", n), 1, wire.AddressesMax, hosts(fmt.Sprintf("mx%c", 'a'+n))))
	}
	w.run(begin.Add(20 * (turnFor + 2*time.Second)))
	effort.Is(t, len(served), 20, "20 lanes were served")
}

// TestLaneGivesUpASecondSession: without waiting for its turn to be over.
func TestLaneGivesUpASecondSession(t *testing.T) {
	a := openedWide()
	a.Connections = 2
	w := newWorld(t, a, 1)
	all := w.heard()
	w.offer(offerOf(1, "large.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(2 * time.Second))
	effort.MustBe(t, len(w.open), 2, "sessions")
	w.offer(offerOf(2, "other.example", 1, 5, hosts("mx2")))
	w.run(w.now.Add(2500 * time.Millisecond))
	effort.Is(t, len(all["other.example"]), 5, "5 addresses of the lane that waits")
}

// TestSlowRateKeepsItsSession: a session with work waits for the rate.
func TestSlowRateKeepsItsSession(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Minute}
	w := newWorld(t, a, 1)
	w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1")))
	w.run(begin.Add(2 * time.Minute))
	if len(w.rcpts) != 10 || len(w.dials) != 1 {
		t.Errorf("%d RCPTs in %d sessions", len(w.rcpts), len(w.dials))
	}
}

// TestFurtherSessionFails: the queue goes on with those that it has, also when one more is refused for good.
func TestFurtherSessionFails(t *testing.T) {
	for _, reply := range []smtp.Reply{{Code: 421, Lines: []string{"too many sessions"}},
		{Code: 554, Lines: []string{"too many concurrent connections"}}} {
		w := newWorld(t, openedWide(), 1)
		all := w.heard()
		w.greet = func(string) error {
			if len(w.dials) == 1 {
				return nil
			}
			return &smtp.Failure{Stage: smtp.StageGreeting, Reply: reply}
		}
		w.offer(offerOf(1, "d.example", 1, 300, hosts("mx1")))
		w.run(begin.Add(time.Minute))
		if final := countFinal(all["d.example"]); final != 300 || len(w.dials) > openedWide().Connections {
			t.Errorf("%d: %d of 300 answered, %d sessions begun", reply.Code, final, len(w.dials))
		}
	}
}

// TestNextSessionFails: a receiver that serves one session at a time refuses the next for good while it ends the one
// before.
func TestNextSessionFails(t *testing.T) {
	a := openedWide()
	a.Connections, a.RcptsPerConnection = 1, 50
	w := newWorld(t, a, 1)
	w.greet = func(string) error {
		if n := len(w.dials); n == 1 || n > 3 {
			return nil
		}
		return &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 554,
			Lines: []string{"too many concurrent connections"}}}
	}
	all := w.heard()
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(time.Minute))
	if n := countFinal(all["d.example"]); n < 100 {
		t.Errorf("%d of 100 answered, %d sessions begun", n, len(w.dials))
	}
}

// countFinal counts the outcomes among answers.
func countFinal(answers []*wire.Answer) (n int) {
	for _, a := range answers {
		if smtp.Outcome(a.GetOutcome()).Final() {
			n++
		}
	}
	return n
}

// TestFurtherSessionsBesideBadAnswers: a receiver takes two sessions a minute, and refuses every fourth address for a
// policy. That its words about sessions come beside bad answers is no reason to knock again and again.
func TestFurtherSessionsBesideBadAnswers(t *testing.T) {
	a := openedWide()
	a.Connections, a.ConnectionRate = 8, throttle.Rate{Events: 100, Per: time.Second}
	a.RcptRate = throttle.Rate{Events: 50, Per: time.Second}
	w := newWorld(t, a, 1)
	w.turn = 5 * time.Millisecond
	var opened []time.Time
	w.greet = func(string) error {
		opened = slices.DeleteFunc(opened, func(at time.Time) bool { return w.now.Sub(at) >= time.Minute })
		if len(opened) >= 2 {
			return &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 421,
				Enhanced: smtp.EnhancedCode{4, 7, 0}, Lines: []string{"connection rate exceeded"}}}
		}
		opened = append(opened, w.now)
		return nil
	}
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if p.ordinal%4 > 0 {
			return smtp.Reply{Code: 250}
		}
		return smtp.Reply{Code: 550, Lines: []string{"access denied"}}
	}
	all := w.heard()
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(2 * time.Minute))
	if len(all["d.example"]) < 100 || len(w.dials) > 12 {
		t.Errorf("%d of 100 answered, %d sessions begun", len(all["d.example"]), len(w.dials))
	}
}

// TestPause: if a receiver complains about three addresses in a row, it is left alone for the longest time that it
// named, and clients that wait for it are told. One complaint is about its address.
func TestPause(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	var answers []heard
	w.collect(1, func(_ string, a heard) { answers = append(answers, a) })
	w.reply = func(*Probe, *simSession) smtp.Reply {
		return smtp.Reply{Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1},
			Lines: []string{"slow down, try again in 300 seconds"}}
	}
	w.offer(offerOf(1, "d.example", 1, 50, hosts("mx1")))
	w.run(begin.Add(4 * time.Minute))
	if len(answers) != 50 || len(w.rcpts) > 2*badInRow || len(w.open) != 0 {
		t.Fatalf("%d answers, %d RCPTs, %d sessions", len(answers), len(w.rcpts), len(w.open))
	}
	others := 0
	for _, a := range answers {
		if a.wait < 299*time.Second || a.wait > 300*time.Second {
			t.Fatalf("told to wait %s", a.wait)
		}
		if a.attempts[len(a.attempts)-1].Others {
			others++
		}
	}
	effort.Is(t, others, 50-len(w.rcpts), "of 50 are told what others were told", len(w.rcpts), "were asked")
	judgement := Judgement{Verdict: again(smtp.ReceiverBusy, "test")}
	until := w.scheduler.paths.receiver.until
	w.scheduler.paths.pauseReceiver(w.now, judgement) // said by a session beside: within the pause
	if judgement.Verdict.Wait = time.Hour; !w.scheduler.paths.receiver.until.Equal(until) {
		t.Error("a pause was changed by one that names no time")
	}
	w.scheduler.paths.pauseReceiver(w.now, judgement)
	if !w.scheduler.paths.receiver.until.Equal(w.now.Add(time.Hour)) {
		t.Error("a longer pause was not kept")
	}
}

// TestRestartKeepsTheRate: a new scheduler begins as if something had just happened,
// so that the receiver sees its limits kept over a restart.
func TestRestartKeepsTheRate(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 5, Per: time.Second}
	a.ConnectionRate = throttle.Rate{Events: 2, Per: time.Second}
	a.RcptsPerConnection = 3
	w := newWorld(t, a, 1)
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(10 * time.Second))
	w.queue, w.open, w.due = nil, map[int]*simSession{}, time.Time{}
	w.now = w.now.Add(100 * time.Millisecond)
	w.scheduler = begunAlone("example", testOptions(a), w.now)
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(w.now.Add(10 * time.Second))
	slices.SortFunc(w.rcpts, time.Time.Compare)
	checkRate(t, "rcpts", w.rcpts, a.RcptRate)
	checkRate(t, "dials", w.dials, a.ConnectionRate)
	if len(w.rcpts) < 80 {
		t.Errorf("%d RCPTs in 20 s", len(w.rcpts))
	}
}

// TestResultsThatReachNobodyEnd: a client that is gone without a word costs a minute.
func TestResultsThatReachNobodyEnd(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	copies := 0
	w.hear = func(_ Client, msg proto.Message) {
		if _, ok := msg.(*wire.Results); ok {
			copies++
		}
	}
	w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1")))
	w.run(begin.Add(resendFor + 10*time.Second))
	if _, idle := w.scheduler.IdleSince(); !idle || copies < 20 || copies > 40 {
		t.Errorf("idle: %v, results sent %d times", idle, copies)
	}
	w.checkEmpty()
}

// TestTasksAreBounded: however many there were, and for however long. What is left after a minute is the
// epoch, which keeps an earlier owner away.
func TestTasksAreBounded(t *testing.T) {
	d := begunAlone("example", testOptions(openedWide()), begin)
	offer := func(now time.Time, n int, epoch int64) {
		m := offerOf(1, "d.example", 1, 0, nil) // refused: nothing in it
		m.Task.Epoch = epoch
		binary.BigEndian.PutUint32(m.Task.Verification[12:], uint32(n))
		d.Offer(now, Client{}, m)
		d.steps = nil
	}
	known := func() (tasks, epochs int) {
		e := &d.queues.tasks.epochs
		return len(d.queues.tasks.all), len(e.young) + len(e.old)
	}
	for n := range retiredMax + 100 {
		offer(begin, n, 2)
	}
	at := begin.Add(heartbeatEvery)
	d.Plan(at)
	if tasks, epochs := known(); tasks != retiredMax || epochs != 100 {
		t.Errorf("%d tasks and %d epochs are remembered", tasks, epochs)
	}
	_, wake := d.Plan(at)
	if wake.After(begin.Add(rememberFor + 2*heartbeatEvery)) {
		t.Errorf("the next look is at %v", wake)
	}
	at = wake.Add(heartbeatEvery)
	d.Plan(at)
	if tasks, epochs := known(); tasks != 0 || epochs != retiredMax+100 {
		t.Errorf("after a minute %d tasks and %d epochs are remembered", tasks, epochs)
	}
	offer(at, 7, 1)
	if tasks, _ := known(); tasks != 0 {
		t.Error("an earlier owner was let in")
	}
	offer(at, 7, 3)
	if tasks, _ := known(); tasks != 1 {
		t.Error("a later owner was not let in")
	}
	for n := range epochsMax + 100 {
		d.queues.tasks.epochs.remember(at, uuid.UUID{1, byte(n >> 16), byte(n >> 8), byte(n)}, 1)
	}
	if _, epochs := known(); epochs > epochsMax {
		t.Errorf("%d epochs are remembered", epochs)
	}
	d.Plan(at.Add(taskMemory))
	d.Plan(at.Add(2*taskMemory + heartbeatEvery))
	if tasks, epochs := known(); tasks != 0 || epochs > 1 {
		t.Errorf("%d tasks and %d epochs are remembered for ever", tasks, epochs)
	}
}
