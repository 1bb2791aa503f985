package receiver

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/smtp"
)

var which = flag.String("which", "", "")
var until = flag.Int("until", 60, "")
var every = flag.Int("every", 1, "")

func showTrial(tr *trial, from, to int, every int) {
	for k := from; k < to; k += every {
		tr.play(begin.Add(time.Duration(k) * time.Second))
		x := tr.between(k-every, k)
		o := tr.desk.outlets[0]
		e := o.tempo.Explain(tr.now)
		up := ""
		if now := tr.now; now.Before(o.until) {
			up = "REST"
		}
		fmt.Printf("%3d good %3d lim %3d odd %3d dn %d op %d/%d | rate %.1f %s odd %.2f exp %v c %v q %d sus %d conn %d/%d open %.1f %s | %s %s\n", k, x.good, x.limited, x.odd, x.down, x.opens, x.refused, e.Rate, e.Phase, o.causes.Odd(), o.experiment.Open(), o.cautious,
			tr.desk.tasks.queue.Queued(), len(tr.desk.suspects), len(tr.desk.sessions), tr.desk.learned.connections.most, tr.desk.opening.rate.Explain(tr.now).Rate, tr.desk.opening.rate.Explain(tr.now).Phase, up, e.Why)
	}
	for _, b := range tr.desk.beliefs {
		fmt.Println(b.at.Sub(begin), b.Scope, b.Why)
	}
}

func TestDebug(t *testing.T) {
	if *which == "" {
		return
	}
	s := &unknownReceiver{}
	a := wideLimits()
	tt := 1000
	switch *which {
	case "odd":
		s.odd = oddOf{share: .2, tenant: -1, reply: smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Lines: []string{"Temporary lookup failure"}}}
		a.RcptRate = rate(30, time.Second)
		tt = 150
	case "min":
		s.limit = limitOf{rcpts: rate(300, time.Minute), fixed: true}
	case "min2":
		s.limit = limitOf{rcpts: rate(600, time.Minute), way: byReset}
	case "bad":
		s.limit = limitOf{rcpts: rate(20, time.Second), countsBad: true}
	case "pen":
		s.limit = limitOf{rcpts: rate(20, time.Second), penalty: 30 * time.Second}
	case "pen421":
		s.limit = limitOf{rcpts: rate(20, time.Second), penalty: 30 * time.Second, way: byReset}
	case "sess":
		s.limit = limitOf{sessions: 2, penalty: 30 * time.Second, way: byReset}
	case "opens":
		s.limit = limitOf{opens: rate(5, time.Second), way: byReset}
		a.RcptsPerConnection = 4
	case "down":
		s.outages = []stretch{{begin.Add(20 * time.Second), begin.Add(32 * time.Second)}}
		a.RcptRate = rate(20, time.Second)
	case "grey":
		s.grey = time.Minute
		a.RcptRate = rate(20, time.Second)
		tt = 150
	}
	if s.odd.share == 0 {
		s.odd.tenant = -1
	}
	s.words = gibberish(rand.New(rand.NewPCG(1, 2)))
	tr := newTrial(t, a, true, s, 1)
	tr.turn = 40 * time.Millisecond
	tr.jitter = 10 * time.Millisecond
	for d := range 20 {
		tr.add(d%2, fmt.Sprintf("d%d.example", d), tt, hosts("mx1.example"))
	}
	showTrial(tr, *every, *until, *every)
}
