package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// TestClientsHearForHowLongNobodyIsAnswered: while no host greets, and not after one address is answered.
func TestClientsHearForHowLongNobodyIsAnswered(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	var lasting time.Duration
	var reason smtp.Reason
	w.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(interface {
			GetBarrenMs() int64
			GetBarrenReason() uint32
		}); ok {
			lasting, reason = time.Duration(m.GetBarrenMs())*time.Millisecond, smtp.Reason(m.GetBarrenReason())
		}
		w.acknowledge(to, msg)
	}
	down := true
	w.greet = func(string) error {
		if down {
			return errors.New("connection refused")
		}
		return nil
	}
	for n := range 10 {
		w.offer(offerOf(1, "d.example", uint64(n+1), 20, hosts("mx1")))
		w.run(w.now.Add(time.Minute))
	}
	if lasting < 8*time.Minute || lasting > 10*time.Minute || reason != smtp.ConnectionFailed {
		t.Errorf("nobody is answered for 10 min, and clients hear of %v, %v", lasting, reason)
	}
	lasting = 0
	w.offer(offerOf(1, "other.example", 30, 20, hosts("mx2")))
	if w.run(w.now.Add(10 * time.Second)); lasting < 8*time.Minute {
		t.Errorf("who waits for other hosts of a receiver that answers nobody hears of %v", lasting)
	}
	down = false
	w.run(w.now.Add(2 * time.Minute))
	w.offer(offerOf(1, "d.example", 20, 20, hosts("mx1")))
	w.run(w.now.Add(2 * time.Minute))
	if lasting > 0 {
		t.Errorf("all are answered, and clients hear of %v", lasting)
	}
}

// TestOurOwnTimeIsNotBarren: a pause by an operator, and what we ended ourselves, say nothing about a receiver.
func TestOurOwnTimeIsNotBarren(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1")))
	l := w.scheduler.queues.hostQueue(begin, hosts("mx1"))
	failed := judgedAt(begin, "mx1", smtp.Address{}, errors.New("connection refused"))
	l.barren.note(begin, begin, &failed)
	ours := judgedAt(begin, "mx1", smtp.Address{}, smtp.ErrClosed)
	effort.MustBe(t, ours.Attempt.Trouble, evidence.TroubleOurs, "the trouble")
	l.barren.note(begin, begin.Add(time.Hour), &ours)
	w.scheduler.queues.passBarren(begin.Add(2*time.Hour), wire.Cause_PAUSED, 2*time.Hour, false, false)
	if got, _ := l.barren.lasting(); got != 0 {
		t.Errorf("barren for %v", got)
	}
	l.barren.note(begin.Add(3*time.Hour), begin.Add(3*time.Hour), &failed)
	if got, _ := l.barren.lasting(); got != time.Hour {
		t.Errorf("barren for %v, want the hour without a pause", got)
	}
	now := begin.Add(3 * time.Hour)
	for n := range 10 {
		w.scheduler.options.Sources.NoteBlocked(0, fmt.Sprint("other", n), now, smtp.SourceBlocked)
	}
	now = now.Add(time.Minute)
	w.scheduler.queues.passBarren(now, wire.Cause_NO_SOURCE, time.Minute, true, false)
	if got, _ := l.barren.lasting(); got != time.Hour+time.Minute {
		t.Errorf("barren for %v, want a minute more in which many receivers refused our source", got)
	}
	for _, want := range []time.Duration{9 * time.Minute, 12 * time.Minute} {
		for range 8 {
			now = now.Add(time.Minute)
			w.scheduler.queues.passBarren(now, wire.Cause_CONNECTIONS, time.Minute, true, true)
		}
		if got, _ := l.barren.lasting(); got != time.Hour+want {
			t.Errorf("barren for %v, want an hour and %v: 8 of 8 minutes of silent sessions, then 3 of 8", got, want)
		}
		l.barren.good, w.scheduler.queues.barren.good = begin, begin // from now on it has answered before
	}
	if !l.knowsSomething(begin.Add(3*time.Hour)) || l.barren.worthKeeping(begin.Add(4*time.Hour+throttle.LearnedFor)) {
		t.Error("kept for too short or too long")
	}
}

// TestWhatIsGivenBackIsAnswered: probes not begun come back at once, probes on the wire with their answer.
func TestWhatIsGivenBackIsAnswered(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	all := w.heard()
	m := offerOf(1, "d.example", 1, 100, hosts("mx1"))
	w.offer(m)
	w.run(begin.Add(3 * time.Second))
	w.scheduler.Cancel(w.now, &wire.Cancel{Task: m.GetTask(), GiveBack: true})
	w.run(w.now.Add(3 * time.Second))
	asked := 0
	for _, answer := range all["d.example"] {
		if len(answer.GetAttempts()) > 0 {
			asked++
		}
	}
	if len(all["d.example"]) != 100 || asked != len(w.rcpts) || asked > 50 {
		t.Errorf("%d of 100 are answered, %d of them with evidence, %d were asked", len(all["d.example"]), asked, len(w.rcpts))
	}
	w.checkEmpty()
}
