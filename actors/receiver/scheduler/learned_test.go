package scheduler

import (
	"errors"
	"testing"
	"time"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// TestSessionsThatFailTogether: two sessions that meet the same trouble teach it
// once. Both are opened before either speaks.
func TestSessionsThatFailTogether(t *testing.T) {
	demand := Judgement{Attempt: evidence.Attempt{Stage: smtp.StageMail},
		Verdict: verdict.Verdict{Reason: smtp.TLSFailed, Action: verdict.ActTLS}}
	broken := judged(smtp.Address{}, &smtp.Failure{Stage: smtp.StageTLS, Err: errors.New("bad record")})
	down := judged(smtp.Address{}, errors.New("connection refused"))
	for _, tc := range []struct {
		name      string
		judgement Judgement
		tls       smtp.TLSMode
		failures  int
	}{
		{"TLS is demanded", demand, smtp.TLSRequired, 0},
		{"TLS is broken", broken, smtp.TLSOff, 0},
		{"host is down", down, smtp.TLSOpportunistic, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := begunAlone("example", testOptions(openedWide()), begin)
			l := d.queues.hostQueue(begin, hosts("mx1"))
			c := l.candidates[0]
			for range 2 {
				d.takeTrouble(begin, &session{queue: l, host: c, path: d.paths.all[0]}, tc.judgement)
			}
			if l.tls != tc.tls || c.failures != tc.failures || begin.Before(c.until) != (tc.failures > 0) {
				t.Errorf("tls %d, %d failures, avoided until %s", l.tls, c.failures, c.until)
			}
		})
	}
}

// TestProbeThatEndsSessions: if sessions end at the same probe again and again, it is asked later; other addresses on
// the wire are asked again.
func TestProbeThatEndsSessions(t *testing.T) {
	d := begunAlone("example", testOptions(openedWide()), begin)
	d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 2, hosts("mx1")))
	l := d.queues.hostQueue(begin, hosts("mx1"))
	p := d.queues.popProbe(l)
	lost := judged(p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: errors.New("reset")})
	for n := range triesMax {
		waits := n < triesMax-1
		d.queues.retryProbe(l, Answered{Probe: p, Judgement: lost, At: begin})
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
			d := begunAlone("example", testOptions(openedWide()), begin)
			l := d.queues.hostQueue(begin, hosts("mx1"))
			c := l.candidates[0]
			begun := func() *session {
				s := &session{queue: l, host: c, path: d.paths.all[0], dialled: begin, slot: &registry.ConnSlot{}}
				if tc.opens {
					d.opening.wasOpened(begin, s, 0, 0)
					s.ready = true
				}
				return s
			}
			for n := range 3 {
				c.until = begin
				d.takeTrouble(begin, begun(), judgedAt(begin, "mx1", smtp.Address{}, tc.fails))
				effort.MustBe(t, c.failures, n+1, "failures after")
			}
			s := begun()
			if d.opening.wasOpened(begin, s, 0, 0); (c.failures == 0) == tc.opens {
				t.Errorf("%d failures of a host that can be opened", c.failures)
			}
			d.sessions.all[s.id], s.ready, s.opened = s, true, begin
			judgement := judgedAt(begin, "mx1", smtp.Address{},
				&smtp.Failure{Stage: smtp.StageRcpt, Reply: smtp.Reply{Code: 250}})
			d.Offer(begin, Client{}, offerOf(1, "d.example", 1, 1, hosts("mx1")))
			d.takeReport(begin, s, &Report{Answered: []Answered{
				{Probe: d.queues.popProbe(l), Judgement: judgement, Sent: begin, At: begin, Nth: 1}}})
			effort.Is(t, c.failures, 0, "failures of a host that answers")
		})
	}
}

// TestPoisonedSession: the receiver rests, and later sessions end before that many refusals.
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
	if a := w.scheduler.takeAllowance(w.now); a.RefusedPerSession != 4 || w.scheduler.paths.receiver.inRow != 1 {
		t.Errorf("%d refusals in a session from now on, after %d pauses", a.RefusedPerSession, w.scheduler.paths.receiver.inRow)
	}
}

// TestBlockedInRow: refusals of us rest the source only when nothing else is said between them.
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
			w.run(begin.Add(1500 * time.Millisecond))
			if rests := w.away("mx1", 0) > 0; rests != tc.rests {
				t.Errorf("the source is suspended: %v, after %d RCPTs", rests, len(w.rcpts))
			}
		})
	}
}

// TestCancelEmptiesTheQueue: it does so even while nothing may be asked for a long time.
func TestCancelEmptiesTheQueue(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 1, Per: time.Hour}
	w := newWorld(t, a, 1)
	m := offerOf(1, "d.example", 1, 300, hosts("mx1"))
	w.offer(m)
	w.offer(offerOf(2, "kept.example", 1, 3, hosts("mx1")))
	w.run(begin.Add(time.Second))
	w.scheduler.queues.cancelTask(w.now, &wire.Cancel{Task: m.GetTask()})
	w.plan()
	w.run(w.now.Add(2 * heartbeatEvery))
	effort.Is(t, w.scheduler.fair.Queued(), 3, "probes wait, 3 are wanted")
}

// TestSlowAcknowledgements: results are given up only when nothing at all is heard.
func TestSlowAcknowledgements(t *testing.T) {
	d := begunAlone("example", testOptions(openedWide()), begin)
	task := &task{key: (&wire.Task{Domain: "d.example"}).Key()}
	c := &chunk{task: task, number: 1, open: 1, heard: begin, sentAt: begin}
	for n := range uint64(5) {
		c.sent = append(c.sent, &wire.Results{Batch: n + 1})
	}
	task.chunks = []*chunk{c}
	d.queues.tasks.all[task.key], d.queues.tasks.busy[task] = task, struct{}{}
	at := begin
	for n := range uint64(4) {
		at = at.Add(resendFor - time.Second)
		d.queues.takeAck(at, &wire.ResultsAck{Task: &wire.Task{Domain: "d.example"}, Chunk: 1, Batch: n + 1})
		d.queues.resendAnswers(at, c)
		for _, r := range c.sent[len(c.sent):cap(c.sent)] {
			if r != nil {
				t.Fatal("what was acknowledged stays in memory")
			}
		}
		effort.MustBe(t, len(c.sent), 4-int(n), "results kept after", n+1, "acknowledgements")
	}
	if d.queues.resendAnswers(at.Add(resendFor), c); len(c.sent) != 0 {
		t.Errorf("%d results kept though nobody listens", len(c.sent))
	}
}
