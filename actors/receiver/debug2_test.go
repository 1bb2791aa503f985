package receiver

import (
	"fmt"
	"testing"
	"time"

	"rollcall/smtp/throttle"
)

func TestDebug2(t *testing.T) {
	word, per, lim, turn := tooMany, time.Second, 10, 30*time.Millisecond
	switch *which {
	case "untold":
	case "u421":
		word = hangsUp
	case "umin":
		word, per, lim = tryLate, time.Minute, 300
	default:
		return
	}
	a := openedWide()
	a.Connections, a.RcptRate = 20, throttle.Rate{Events: 4 * lim, Per: per}
	a.ConnectionRate = throttle.Rate{Events: 60, Per: time.Minute}
	w := newWorld(t, a, 1)
	w.turn, w.jitter = turn, 5*time.Millisecond
	u := &untold{w: w, limit: lim, per: per, word: word}
	w.reply, w.greet = u.reply, u.greet
	w.desk.options.Waits = []time.Duration{5 * time.Minute, 10 * time.Minute}
	w.feed(4)
	u.stretch(4 * time.Minute)
	for _, now := range []int{lim, lim / 2, lim * 3 / 2} {
		u.limit = now
		for k := range 30 {
			use, lost := u.stretch(20 * time.Second)
			e := w.desk.outlets[0].tempo.Explain(w.now)
			fmt.Printf("%d %3d use %.2f lost %.3f rate %.2f edge %.2f %s conn %d/%d open %.2f odd %.2f sus %d q %d | %s | %s\n", now, k, use, lost, e.Rate, e.Edge, e.Phase, len(w.desk.sessions), w.desk.learned.connections.most, w.desk.opening.rate.Explain(w.now).Rate, w.desk.outlets[0].causes.Odd(), len(w.desk.suspects), w.desk.tasks.queue.Queued(), e.Why, w.whyNoDial())
		}
	}
	for _, b := range w.desk.beliefs {
		fmt.Println(b.at.Sub(begin), b.Scope, b.Why)
	}
}

func (w *world) whyNoDial() string {
	d := w.desk
	out := ""
	for _, l := range d.lanes {
		c, o := d.next(w.now, l)
		out += fmt.Sprintf("[lane q %d sess %d aside %v worth %d next %v room %v caut %v", l.Queued(), l.Sessions(), l.Aside(), d.worth(l.Queued(), d.allowance), c != nil, d.roomToOpen(), d.outlets[0].cautious)
		for _, c := range l.candidates {
			out += fmt.Sprintf(" until %s fail %d", c.until.Sub(w.now), c.failures)
		}
		if o != nil {
			n, _ := d.dials.Ready(w.now)
			ok, _ := d.opening.may(w.now)
			out += fmt.Sprint(" dials ", n, " may ", ok, " slots ", d.options.Slots.free.Load(), " persess ", d.learned.perSession.most)
		}
	}
	return out
}
