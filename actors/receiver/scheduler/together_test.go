package scheduler

import (
	"slices"
	"testing"
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// dialogue plays one host's sessions against a scheduler, a second each step, and keeps what they were given.
type dialogue struct {
	shown throttle.Shown
	reply func(session, place, nth int) smtp.Reply // code 0: what came was no reply
	given []AskProbes
	rcpts map[int]int // by session
	nth   map[int]int // the same in its transaction

	answers int
}

// play offers n addresses and goes on until nothing is done any more.
func (g *dialogue) play(t *testing.T, a throttle.Limits, n int) *Scheduler {
	t.Helper()
	d := begunAlone("example", testOptions(a), begin)
	g.rcpts, g.nth = map[int]int{}, map[int]int{}
	d.Offer(begin, Client{}, offerOf(1, "d.example", 1, n, hosts("mx1")))
	slots := map[int]OpenSession{}
	for now := begin; now.Before(begin.Add(10 * time.Minute)); now = now.Add(time.Second) {
		steps, _ := d.Plan(now)
		for _, s := range steps {
			switch s := s.(type) {
			case Send:
				if m, ok := s.Msg.(*wire.Results); ok {
					g.answers += len(m.GetAnswers())
					d.Acked(now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
				}
			case OpenSession:
				slots[s.ID] = s
				s.Slot.Begin(s.Version, nil)
				s.Slot.MarkIdle()
				d.SessionOpened(now, s.ID, g.shown, nil)
			case AskProbes:
				g.given = append(g.given, s)
				d.SessionWorked(now, g.ask(now, s))
			case QuitSession:
				d.SessionClosed(now, s.ID)
			case DropSession:
				slots[s.ID].Slot.Close()
			}
		}
	}
	return d
}

// ask answers what a session was given, one after the other.
func (g *dialogue) ask(now time.Time, m AskProbes) Report {
	r := Report{ID: m.ID, Unanswered: m.Probes}
	for i, p := range m.Probes {
		if n := g.nth[m.ID]; n == 0 || n >= m.Transaction.Now() {
			r.Transactions++
			g.nth[m.ID] = 0
		}
		g.rcpts[m.ID]++
		g.nth[m.ID]++
		nth := g.nth[m.ID]
		reply := g.reply(m.ID, g.rcpts[m.ID], nth)
		if reply.Code == 0 {
			judgement := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: smtp.ErrOutOfStep})
			r.Failure, r.OnWire, r.Cut, r.Answered, r.Unanswered = &judgement, i+1, true, nil, m.Probes
			return r
		}
		judgement := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: reply})
		r.Answered = append(r.Answered, Answered{Probe: p, Judgement: judgement, Sent: now, At: now, Nth: nth})
		r.Unanswered = m.Probes[i+1:]
		if EndsBatch(&judgement) {
			break
		}
	}
	return r
}

// wide is an allowance in which RCPTs may go together.
func wide(perTransaction int) throttle.Limits {
	a := openedWide()
	a.Connections, a.RcptsPerTransaction, a.Pipelining = 1, perTransaction, true
	return a
}

func accepts(int, int, int) smtp.Reply { return smtp.Reply{Code: 250} }

// TestRCPTsGoTogetherAsTheyAreBorne: one at first, then twice as many, in a transaction and in a group.
func TestRCPTsGoTogetherAsTheyAreBorne(t *testing.T) {
	g := &dialogue{shown: throttle.Shown{Groups: true}, reply: accepts}
	d := g.play(t, wide(20), 300)
	for i, m := range g.given {
		if m.Group.Now() > 64 || m.Transaction.Now() > 20 || !m.Pipelining || i > 0 && m.Group.Now() < g.given[i-1].Group.Now() {
			t.Errorf("given %d: %d in a group, %d in a transaction, pipelining %v", i, m.Group.Now(), m.Transaction.Now(), m.Pipelining)
		}
	}
	first, last := g.given[0], g.given[len(g.given)-1]
	if first.Group.Now() != 1 || first.Transaction.Now() != 1 || last.Group.Now() != 64 || last.Transaction.Now() != 20 {
		t.Errorf("first %d and %d, last %d and %d", first.Group.Now(), first.Transaction.Now(), last.Group.Now(), last.Transaction.Now())
	}
	d.Forget(begin.Add(time.Hour), ForgetSessions)
	effort.Is(t, d.takeAllowance(begin.Add(time.Hour)).PipeliningDepth, 1, "in a group after it was forgotten")
}

// TestWhoIsOutOfStepGetsNoGroups: not for an hour, and not where they aren't offered.
func TestWhoIsOutOfStepGetsNoGroups(t *testing.T) {
	for _, offered := range []bool{true, false} {
		g := &dialogue{shown: throttle.Shown{Groups: offered}}
		g.reply = func(session, place, _ int) smtp.Reply {
			if session == 1 && place == 3 {
				return smtp.Reply{}
			}
			return smtp.Reply{Code: 250}
		}
		g.play(t, wide(1), 30)
		broken := slices.IndexFunc(g.given, func(m AskProbes) bool { return m.ID > 1 })
		if broken < 1 {
			t.Fatalf("%d sessions were given something", len(g.rcpts))
		}
		for i, m := range g.given {
			if m.Pipelining != (offered && i < broken) {
				t.Errorf("offered %v: given %d of session %d in groups: %v", offered, i, m.ID, m.Pipelining)
			}
		}
	}
}

// TestAllOfAGroupTooMany: where none was taken, it isn't the transaction.
func TestAllOfAGroupTooMany(t *testing.T) {
	d := begunAlone("example", testOptions(wide(20)), begin)
	d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 4, hosts("mx1")))
	l := d.queues.hostQueue(begin, hosts("mx1"))
	s := &session{queue: l, host: l.candidates[0], path: d.paths.all[0], ready: true, slot: &registry.ConnSlot{}}
	var r Report
	for i := range 4 {
		p := d.queues.popProbe(l)
		judgement := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt,
			Reply: smtp.Reply{Code: 450, Lines: []string{"4.7.1 Error: too many recipients from 192.0.2.1"}}})
		r.Answered = append(r.Answered, Answered{Probe: p, Judgement: judgement, Sent: begin, Nth: i + 1, At: begin})
	}
	d.takeReport(begin, s, &r)
	effort.Is(t, d.allowance.learned.PerTransaction.Apply(20, begin), 20, "in a transaction")
}

// TestALargeGroupIsNoWarning: the last answer of a group comes long after it was sent, each soon after the one before.
func TestALargeGroupIsNoWarning(t *testing.T) {
	d := begunAlone("example", testOptions(openedWide()), begin)
	d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 64, hosts("mx1")))
	l := d.queues.hostQueue(begin, hosts("mx1"))
	s := &session{queue: l, host: l.candidates[0], path: d.paths.all[0], ready: true, slot: &registry.ConnSlot{}}
	var r Report
	for i := range 64 {
		p := d.queues.popProbe(l)
		judgement := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: noSuchUser})
		r.Answered = append(r.Answered, Answered{Probe: p, Judgement: judgement, Sent: begin, Nth: 1,
			At: begin.Add(time.Duration(i+1) * 50 * time.Millisecond)})
	}
	d.takeReport(begin.Add(4*time.Second), s, &r)
	if most := d.allowance.learned.Refused.Apply(1000, begin); most != 1000 || s.doomed {
		t.Errorf("%d refusals in a session from now on", most)
	}
}

// TestTooManyRecipients: of a transaction, as its number says, or of a session, whatever its transactions are.
func TestTooManyRecipients(t *testing.T) {
	tooMany := func(code int, text string) smtp.Reply { return smtp.Reply{Code: code, Lines: []string{text}} }
	for _, tc := range []struct {
		name                    string
		reply                   func(session, place, nth int) smtp.Reply
		perTransaction, session int // that are learned; 0: nothing
	}{
		{"three in a transaction", func(_, _, nth int) smtp.Reply {
			if nth > 3 {
				return tooMany(452, "too many recipients")
			}
			return smtp.Reply{Code: 250}
		}, 3, 0},
		{"ten in a session, as Haraka counts attempts", func(_, place, _ int) smtp.Reply {
			if place > 10 {
				return tooMany(450, "too many recipient attempts")
			}
			return smtp.Reply{Code: 250}
		}, 0, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &dialogue{reply: tc.reply}
			d := g.play(t, wide(20), 100)
			now := begin.Add(10 * time.Minute)
			learned := &d.allowance.learned
			effort.Is(t, learned.PerTransaction.Apply(0x100, now)%0x100, tc.perTransaction, "in a transaction")
			effort.Is(t, learned.PerSession.Apply(0x100, now)%0x100, tc.session, "in a session")
			asked := 0
			for _, n := range g.rcpts {
				asked += n
			}
			if g.answers != 100 || asked > 110 {
				t.Errorf("%d RCPTs for 100 addresses, %d answers", asked, g.answers)
			}
		})
	}
}

// TestEximGetsTenTransactionsASession: it logs the eleventh RSET of a session without a message.
func TestEximGetsTenTransactionsASession(t *testing.T) {
	for greeting, bounded := range map[string]bool{
		"mx1.example ESMTP Exim 4.98 Wed, 25 Nov 2026":                                           true,
		"mx1.example ESMTP Exim 4.98 We do not authorize the use of this system to transport it": true,
		"mx1.example ESMTP Postfix":                                                              false,
	} {
		g := &dialogue{shown: throttle.Shown{Greeting: greeting, Groups: true}, reply: accepts}
		g.play(t, wide(1), 100)
		most, transactions := 0, map[int]int{}
		for _, m := range g.given {
			transactions[m.ID] += len(m.Probes)
			most = max(most, transactions[m.ID])
		}
		if (most == 10) != bounded || (most == 100) == bounded || g.answers != 100 {
			t.Errorf("%s: %d transactions in a session of %d", greeting, most, len(transactions))
		}
	}
}
