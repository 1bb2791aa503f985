package receiver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

func wideLimits() throttle.Limits {
	a := openedWide()
	a.Connections = 20
	a.ConnectionRate = throttle.Rate{Events: 50, Per: time.Second}
	a.RcptRate = throttle.Rate{Events: 200, Per: time.Second}
	return a
}

func runProbe(t *testing.T, name string, a throttle.Limits, stated bool, s *unknownReceiver, n int, span time.Duration, from, to int, per float64) {
	start := time.Now()
	s.words = gibberish(rand.New(rand.NewPCG(1, 2)))
	tr := newTrial(t, a, stated, s, 1)
	tr.turn = 40 * time.Millisecond
	tr.jitter = 10 * time.Millisecond
	if s.odd.share == 0 {
		s.odd.tenant = -1
	}
	for d := range 20 {
		tr.add(d%2, fmt.Sprintf("d%d.example", d), n/20, hosts("mx1.example"))
	}
	tr.play(begin.Add(span))
	x := tr.between(from, to)
	secs := float64(to - from)
	if end := tr.now.Sub(begin).Seconds(); end < float64(to) {
		secs = end - float64(from)
	}
	open := 0
	for _, tk := range tr.tasks {
		open += len(tk.fresh)
	}
	fmt.Printf("%-34s end %6.1fs good/s %6.1f (%3.0f %%) limited %5.2f %% odd %d opens %d refused %d unasked %d all: lim %d down %d [%dms]\n",
		name, tr.now.Sub(begin).Seconds(), float64(x.good)/secs, 100*float64(x.good)/secs/per,
		100*float64(x.limited)/float64(max(1, x.asked)), x.odd, x.opens, x.refused, open, tr.counts[wasLimited], tr.counts[wasDown], time.Since(start).Milliseconds())
}

func TestProbe(t *testing.T) {
	sec := func(n int) throttle.Rate { return throttle.Rate{Events: n, Per: time.Second} }
	told := wideLimits()
	told.RcptRate = sec(30)
	odd := map[string]oddOf{
		"4.3.0":   {reply: smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Lines: []string{"Temporary lookup failure"}}},
		"421":     {reply: smtp.Reply{Code: 421, Enhanced: smtp.EnhancedCode{4, 3, 2}, Lines: []string{"closing"}}, cut: true},
		"fast":    {reply: smtp.Reply{Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"you are sending too quickly, slow down"}}},
		"blocked": {reply: smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"client host blocked"}}},
		"reset":   {cut: true},
	}
	runProbe(t, "none", told, true, &unknownReceiver{}, 3000, 20*time.Minute, 0, 1000, 30)
	for _, share := range []float64{.01, .05, .2} {
		for _, k := range []string{"4.3.0", "421", "fast", "blocked", "reset"} {
			o := odd[k]
			o.share, o.tenant = share, -1
			runProbe(t, fmt.Sprint("odd ", share, " ", k), told, true, &unknownReceiver{odd: o}, 3000, 20*time.Minute, 0, 1000, 30*(1-share))
		}
	}
	for way, name := range []string{"4xx", "421", "reset"} {
		for _, l := range []limitOf{{rcpts: sec(20)}, {rcpts: sec(20), fixed: true}, {rcpts: throttle.Rate{Events: 300, Per: time.Minute}, fixed: true},
			{rcpts: throttle.Rate{Events: 600, Per: time.Minute}}, {rcpts: sec(20), countsBad: true}, {rcpts: sec(20), penalty: 30 * time.Second}} {
			l.way = way
			runProbe(t, fmt.Sprintf("limit %s %s fixed %v bad %v pen %s", name, l.rcpts, l.fixed, l.countsBad, l.penalty), wideLimits(), true, &unknownReceiver{limit: l}, 16000, 10*time.Minute, 180, 600, l.rcpts.PerSecond())
		}
	}
	short := wideLimits()
	short.RcptsPerConnection = 4
	for way, name := range []string{"4xx", "421", "reset"} {
		runProbe(t, "opens 5/s "+name, short, true, &unknownReceiver{limit: limitOf{opens: sec(5), way: way}}, 16000, 10*time.Minute, 60, 600, 20)
		runProbe(t, "sessions 2 "+name, wideLimits(), true, &unknownReceiver{limit: limitOf{sessions: 2, way: way}}, 16000, 10*time.Minute, 60, 600, 2/.12)
		runProbe(t, "sessions 2 pen "+name, wideLimits(), true, &unknownReceiver{limit: limitOf{sessions: 2, way: way, penalty: 30 * time.Second}}, 16000, 10*time.Minute, 60, 600, 2/.12)
	}
	down := func(from, to int) *unknownReceiver {
		return &unknownReceiver{outages: []stretch{{begin.Add(time.Duration(from) * time.Second), begin.Add(time.Duration(to) * time.Second)}}}
	}
	told.RcptRate = sec(20)
	runProbe(t, "down 12s", told, true, down(60, 72), 4000, 20*time.Minute, 72, 172, 20)
	runProbe(t, "down 60s", told, true, down(60, 120), 4000, 20*time.Minute, 120, 200, 20)
	runProbe(t, "grey 60s", told, true, &unknownReceiver{grey: time.Minute}, 3000, 20*time.Minute, 0, 1000, 20)
	runProbe(t, "block 60s", told, true, &unknownReceiver{blocked: []stretch{{begin.Add(60 * time.Second), begin.Add(120 * time.Second)}}}, 4000, 20*time.Minute, 120, 1000, 20)
}
