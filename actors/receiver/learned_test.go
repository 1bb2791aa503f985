package receiver

import (
	"errors"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// TestLearned: which lessons change an allowance, how, and for how long.
func TestLearned(t *testing.T) {
	later := begin.Add(time.Minute)
	for _, tc := range []struct {
		name  string
		teach func(l *learned)
		at    time.Time
		want  func(a *throttle.Limits)
	}{
		{"nothing", func(*learned) {}, begin, func(*throttle.Limits) {}},
		{"one lost session", func(l *learned) { l.sessionEnded(37, 3, begin) }, later, func(*throttle.Limits) {}},
		{"two of one length", func(l *learned) { l.sessionEnded(37, 3, begin); l.sessionEnded(37, 9, begin) },
			later,
			func(*throttle.Limits) {}},
		{"three of one length", func(l *learned) {
			l.sessionEnded(37, 3, begin)
			l.sessionEnded(37, 9, begin)
			l.sessionEnded(37, 4, begin)
		}, later,
			func(a *throttle.Limits) { a.RcptsPerConnection = 37 }},
		{"three of one length, not in a row", func(l *learned) {
			l.sessionEnded(37, 3, begin)
			l.sessionEnded(37, 9, begin)
			l.sessionEnded(36, 4, begin)
			l.sessionEnded(37, 5, begin)
		}, later, func(*throttle.Limits) {}},
		{"three of one length, another went further", func(l *learned) {
			l.went(38, begin)
			l.sessionEnded(37, 3, begin)
			l.sessionEnded(37, 9, begin)
			l.sessionEnded(37, 4, begin)
		}, later, func(*throttle.Limits) {}},
		{"two of as many refusals", func(l *learned) {
			l.sessionEnded(37, 3, begin)
			l.sessionEnded(9, 3, begin)
		}, later,
			func(a *throttle.Limits) { a.RefusedPerSession = 3 }},
		{"two without refusals", func(l *learned) { l.sessionEnded(37, 0, begin); l.sessionEnded(9, 0, begin) },
			later,
			func(*throttle.Limits) {}},
		{"two that differ", func(l *learned) { l.sessionEnded(37, 3, begin); l.sessionEnded(9, 2, begin) }, later,
			func(*throttle.Limits) {}},
		{"never above the allowance", func(l *learned) { l.connections.tighten(1000, begin) }, later,
			func(*throttle.Limits) {}},
		{"never up", func(l *learned) { l.refused.tighten(2, begin); l.refused.tighten(3, begin) }, later,
			func(a *throttle.Limits) { a.RefusedPerSession = 2 }},
		{"never none", func(l *learned) { l.perTransaction.tighten(0, begin) }, later,
			func(a *throttle.Limits) { a.RcptsPerTransaction = 1 }},
		{"for a while", func(l *learned) { l.refused.tighten(2, begin) }, begin.Add(learnedFor),
			func(*throttle.Limits) {}},
		{"not revived", func(l *learned) {
			l.refused.tighten(1, begin)
			l.refused.tighten(3, begin.Add(2*learnedFor))
		},
			begin.Add(2*learnedFor + time.Minute), func(a *throttle.Limits) { a.RefusedPerSession = 3 }},
		{"one does not prolong another", func(l *learned) {
			l.perSession.tighten(5, begin)
			l.refused.tighten(5, begin.Add(learnedFor))
		}, begin.Add(learnedFor), func(a *throttle.Limits) { a.RefusedPerSession = 5 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l learned
			tc.teach(&l)
			want := openedWide()
			want.RcptsPerTransaction = 9
			got := l.apply(want, true, tc.at)
			if tc.want(&want); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestCapacity: how many sessions a receiver takes is tried again: one more, then two, four, as long
// as that goes well, and ever more rarely when it was too many.
func TestCapacity(t *testing.T) {
	type word struct {
		after time.Duration // since the beginning
		took  int           // sessions when one more was refused; 0: nothing was said
		want  int           // from then on, of ten
	}
	for _, tc := range []struct {
		name  string
		words []word
	}{
		{"nothing", []word{{0, 0, 10}}},
		{"holds", []word{{0, 4, 4}, {59 * time.Second, 0, 4}}},
		{"said by three at once", []word{{0, 4, 4}, {0, 5, 4}, {0, 6, 4}}},
		{"said again of fewer", []word{{0, 4, 4}, {time.Second, 2, 2}}},
		{"one more, then two, then four", []word{{0, 3, 3}, {59 * time.Second, 0, 3}, {time.Minute, 0, 4},
			{69 * time.Second, 0, 4}, {70 * time.Second, 0, 6}, {80 * time.Second, 0, 10}}},
		{"two more were too many", []word{{0, 3, 3}, {time.Minute, 0, 4}, {70 * time.Second, 0, 6},
			{71 * time.Second, 4, 4}, {3 * time.Minute, 0, 4}, {3*time.Minute + 11*time.Second, 0, 5}}},
		{"one more was too many", []word{{0, 4, 4}, {time.Minute, 0, 5}, {61 * time.Second, 4, 4},
			{2*time.Minute + 30*time.Second, 0, 4}, {3*time.Minute + 2*time.Second, 0, 5}}},
		{"nobody looked for long", []word{{0, 1, 1}, {5 * time.Hour, 0, 2}}},
		{"never none", []word{{0, -3, 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c capacity
			for i, w := range tc.words {
				now := begin.Add(w.after)
				if w.took != 0 {
					c.tighten(w.took, now)
				}
				if got := c.apply(10, true, now); got != w.want {
					t.Fatalf("word %d: %d sessions, want %d", i, got, w.want)
				}
			}
		})
	}
}

// TestSessionsThatFailTogether: two sessions that meet the same trouble teach it
// once. Both are opened before either speaks.
func TestSessionsThatFailTogether(t *testing.T) {
	demand := Judgement{Attempt: evidence.Attempt{Stage: smtp.StageMail},
		Verdict: verdict.Verdict{Reason: smtp.TLSFailed, Action: verdict.ActTLS}}
	broken := judged(smtp.Address{}, &smtp.Failure{Stage: smtp.StageTLS, Err: errors.New("bad record")})
	down := judged(smtp.Address{}, errors.New("connection refused"))
	for _, tc := range []struct {
		name     string
		told     Judgement
		tls      smtp.TLSMode
		failures int
	}{
		{"TLS is demanded", demand, smtp.TLSRequired, 0},
		{"TLS is broken", broken, smtp.TLSOff, 0},
		{"host is down", down, smtp.TLSOpportunistic, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := New("example", testOptions(openedWide()), begin)
			l := d.queues.hostQueue(begin, hosts("mx1"))
			c := l.candidates[0]
			for range 2 {
				d.outcomes.followTrouble(begin, &session{queue: l, host: c, path: d.paths.all[0]}, tc.told)
			}
			if l.tls != tc.tls || c.failures != tc.failures || begin.Before(c.until) != (tc.failures > 0) {
				t.Errorf("tls %d, %d failures, avoided until %s", l.tls, c.failures, c.until)
			}
		})
	}
}

// TestProbeThatEndsSessions: a probe under which sessions end again and again
// comes back later; whatever else was on the wire is asked again.
func TestProbeThatEndsSessions(t *testing.T) {
	d := New("example", testOptions(openedWide()), begin)
	d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 2, hosts("mx1")))
	l := d.queues.hostQueue(begin, hosts("mx1"))
	p := d.queues.popProbe(l)
	lost := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: errors.New("reset")})
	for n := range triesMax {
		waits := n < triesMax-1
		d.outcomes.retryProbe(l, Answered{Probe: p, Told: lost, At: begin})
		if (l.Queued() == 2) != waits || (p.chunk.open == 1) == waits {
			t.Fatalf("after %d sessions: %d wait, %d are open", n+1, l.Queued(), p.chunk.open)
		}
		if waits {
			_, p = d.queues.popProbe(l), d.queues.popProbe(l)
			d.queues.pushProbe(l, &Probe{chunk: p.chunk})
		}
	}
	if a := p.chunk.answers[0]; a.outcome.Final() || len(a.attempts) != 1 {
		t.Errorf("answered with %s after %d attempts", a.outcome, len(a.attempts))
	}
}

// TestFailuresAreForgotten: of a host that could not be reached as soon as a session can be opened, and
// of one that lets us in and takes no mail when it has answered about an address.
func TestFailuresAreForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		fails error
		opens bool // though it fails
	}{
		"cannot be reached": {errors.New("connection refused"), false},
		"hangs up at MAIL":  {&smtp.Failure{Stage: smtp.StageMail, Err: errors.New("reset")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := New("example", testOptions(openedWide()), begin)
			l := d.queues.hostQueue(begin, hosts("mx1"))
			c := l.candidates[0]
			begun := func() *session {
				s := &session{queue: l, host: c, path: d.paths.all[0], dialled: begin, socket: &socket{}}
				if tc.opens {
					d.opening.wasOpened(begin, s)
					s.ready = true
				}
				return s
			}
			for n := range 3 {
				c.until = begin
				d.outcomes.followTrouble(begin, begun(), judgedAt(begin, "mx1", smtp.Address{}, tc.fails))
				if c.failures != n+1 {
					t.Fatalf("%d failures after %d", c.failures, n+1)
				}
			}
			s := begun()
			if d.opening.wasOpened(begin, s); (c.failures == 0) == tc.opens {
				t.Errorf("%d failures of a host that can be opened", c.failures)
			}
			d.pool.sessions[s.id], s.ready, s.opened = s, true, begin
			told := judgedAt(begin, "mx1", smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt, Reply: smtp.Reply{Code: 250}})
			d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 1, hosts("mx1")))
			d.outcomes.settleReport(begin, s, Report{Answered: []Answered{{Probe: d.queues.popProbe(l), Told: told, Sent: begin, At: begin, Nth: 1}}})
			if c.failures != 0 {
				t.Errorf("%d failures of a host that answers", c.failures)
			}
		})
	}
}

// TestPoisonedSession: the receiver rests, and later sessions end before that
// many refusals.
func TestPoisonedSession(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.reply = func(_ *Probe, s *simSession) smtp.Reply {
		if s.refused >= 4 {
			return smtp.Reply{Code: 550, Lines: []string{"too many invalid recipients"}}
		}
		return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}
	}
	w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1")))
	w.run(begin.Add(30 * time.Second))
	if a := w.desk.takeAllowance(w.now); a.RefusedPerSession != 4 || w.desk.penalties.pauses != 1 {
		t.Errorf("%d refusals in a session from now on, after %d pauses", a.RefusedPerSession, w.desk.penalties.pauses)
	}
}

// TestBlockedInRow: refusals of us rest the source only when nothing else is said
// between them.
func TestBlockedInRow(t *testing.T) {
	blocked := smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1},
		Lines: []string{"blocked using some list"}}
	for _, tc := range []struct {
		name  string
		every int // which RCPT is answered with a refusal of us
		rests bool
	}{{"each", 1, true}, {"every other", 2, false}} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			a.Connections = 1
			w := newWorld(t, a, 1)
			w.reply = func(*Probe, *simSession) smtp.Reply {
				if len(w.rcpts)%tc.every == 0 {
					return blocked
				}
				return smtp.Reply{Code: 250}
			}
			w.offer(offerOf(1, "d.example", 1, 20, hosts("mx1")))
			w.run(begin.Add(500 * time.Millisecond))
			w.run(begin.Add(3 * time.Second))
			if rests := w.away("mx1", 0) > 0; rests != tc.rests {
				t.Errorf("the source rests: %v, after %d RCPTs", rests, len(w.rcpts))
			}
		})
	}
}

// TestCancelEmptiesTheQueue, also when nothing may be asked for a long time.
func TestCancelEmptiesTheQueue(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 1, Per: time.Hour}
	w := newWorld(t, a, 1)
	m := offerOf(1, "d.example", 1, 300, hosts("mx1"))
	w.offer(m)
	w.offer(offerOf(2, "kept.example", 1, 3, hosts("mx1")))
	w.run(begin.Add(time.Second))
	w.desk.inbox.cancelTask(w.now, &wire.Cancel{Task: m.GetTask()})
	w.plan()
	w.run(w.now.Add(2 * heartbeatEvery))
	if n := w.desk.inbox.tasks.queue.Queued(); n != 3 {
		t.Errorf("%d probes wait, 3 are wanted", n)
	}
}

// TestSlowAcknowledgements: results are given up only when nothing at all is heard.
func TestSlowAcknowledgements(t *testing.T) {
	d := New("example", testOptions(openedWide()), begin)
	task := &task{key: (&wire.Task{Domain: "d.example"}).Key()}
	c := &chunk{task: task, number: 1, open: 1, heard: begin, sentAt: begin}
	for n := range uint64(5) {
		c.sent = append(c.sent, &wire.Results{Batch: n + 1})
	}
	task.chunks = []*chunk{c}
	d.inbox.tasks.all[task.key], d.inbox.tasks.busy[task] = task, struct{}{}
	at := begin
	for n := range uint64(4) {
		at = at.Add(resendFor - time.Second)
		d.inbox.takeAck(at, &wire.ResultsAck{Task: &wire.Task{Domain: "d.example"}, Chunk: 1, Batch: n + 1})
		d.inbox.resendAnswers(at, c)
		if len(c.sent) != 4-int(n) {
			t.Fatalf("%d results kept after %d acknowledgements", len(c.sent), n+1)
		}
	}
	if d.inbox.resendAnswers(at.Add(resendFor), c); len(c.sent) != 0 {
		t.Errorf("%d results kept though nobody listens", len(c.sent))
	}
}
