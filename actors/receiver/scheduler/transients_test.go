package scheduler

import (
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
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

// TestTransientsKeepNoReceiverSlow: a receiver that counted over ten seconds, and does no more, is asked fast again though it
// goes on putting a few in a hundred off at random. Worlds are drawn; the second hour is looked at.
func TestTransientsKeepNoReceiverSlow(t *testing.T) {
	worlds, all := 0, 0.0
	for seed := range effort.Seeds(t, 4) {
		r := rand.New(rand.NewPCG(seed, 11))
		a := openedWide()
		a.RcptRate = throttle.Rate{Events: 4 + r.IntN(9), Per: time.Second}
		limited, perMille := 1+r.IntN(4), 20+r.IntN(30)
		w := newWorld(t, a, seed)
		var counted []time.Time
		w.reply = func(*Probe, *simSession) smtp.Reply {
			for len(counted) > 0 && w.now.Sub(counted[0]) > 10*time.Second {
				counted = counted[1:]
			}
			if w.now.Before(begin.Add(10*time.Minute)) && len(counted) >= limited {
				return smtp.Reply{Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"slow down"}}
			}
			counted = append(counted, w.now)
			if w.rand.IntN(1000) < perMille {
				return smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Lines: []string{"lookup failure"}}
			}
			return smtp.Reply{Code: 250}
		}
		w.feed(4)
		w.run(begin.Add(time.Hour))
		before := len(w.rcpts)
		w.run(begin.Add(2 * time.Hour))
		used := float64(len(w.rcpts)-before) / (3600 * a.RcptRate.PerSecond())
		t.Logf("seed %d: %d in 10 s at first, %d in a thousand put off: %.1f %% of %s used; %s", seed, limited, perMille, 100*used,
			a.RcptRate, w.scheduler.paths.all[0].rate.Explain(w.now).Why)
		worlds, all = worlds+1, all+used
	}
	if mean := all / float64(worlds); mean < 0.5 {
		t.Errorf("%.1f %% of the rate is used on average", 100*mean)
	}
}
