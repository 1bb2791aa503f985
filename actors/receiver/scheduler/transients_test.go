package scheduler

import (
	"testing"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestTransients: a few addresses in a hundred that are put off at random, at any pace, and pass a
// moment later are no word about pace: the rate is given back when lowering it changed nothing.
func TestTransients(t *testing.T) {
	for _, perMille := range []int{30, 50} {
		a := openedWide()
		a.RcptRate = throttle.Rate{Events: 20, Per: time.Second}
		w := newWorld(t, a, 1)
		w.reply = func(*Probe, *simSession) smtp.Reply {
			if w.rand.IntN(1000) < perMille {
				return smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Lines: []string{"lookup failure"}}
			}
			return smtp.Reply{Code: 250}
		}
		w.feed(4)
		w.run(begin.Add(5 * time.Minute))
		before := len(w.rcpts)
		w.run(begin.Add(15 * time.Minute))
		used := float64(len(w.rcpts)-before) / (20 * 600)
		if t.Logf("%d in a thousand: %.1f %% used", perMille, 100*used); used < 0.85 {
			t.Errorf("%d in a thousand: %.1f %% of the rate is used: %s", perMille, 100*used,
				w.scheduler.paths.all[0].rate.Explain(w.now).Why)
		}
	}
}
