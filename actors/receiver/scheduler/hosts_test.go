package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// illWorld is a receiver of two or three hosts of which one is ill, drawn at random.
func illWorld(r *rand.Rand) (far *unknownReceiver, names []string, domains int) {
	names = []string{"mx1.example", "mx2.example", "mx3.example"}[:2+r.IntN(2)]
	replies := []smtp.Reply{{Code: 451, Lines: []string{gibberish(r)}}, {Code: 421, Lines: []string{gibberish(r)}}, {},
		{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"client host blocked"}},
		{Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Lines: []string{"temporary lookup failure"}}}
	from := begin.Add(time.Duration(r.IntN(2)*90) * time.Second)
	far = &unknownReceiver{words: gibberish(r), odd: []oddOf{{share: []float64{0, 0.02}[r.IntN(2)],
		reply: smtp.Reply{Code: 450, Lines: []string{gibberish(r)}}}},
		ill: illHost{name: names[0], when: stretch{from, begin.Add(time.Hour)}, share: []float64{1, 1, 0.7}[r.IntN(3)],
			reply: replies[r.IntN(len(replies))]}}
	return far, names, 1 + r.IntN(8)
}

// TestAnIllHostIsFound: of a receiver's hosts the first one answers everybody badly, or most, in any words,
// from the beginning or after a while. The other hosts are asked instead, at the full pace, our source isn't
// rested and the pace isn't lowered, and the ill one is asked less and less.
func TestAnIllHostIsFound(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	for seed := range effort.Seeds(t, 40) {
		r := rand.New(rand.NewPCG(seed, 11))
		far, names, domains := illWorld(r)
		told := openedWide()
		told.Connections, told.ConnectionRate, told.RcptRate = 10, rate(20, time.Second), rate(20, time.Second)
		tr := newTrial(t, told, true, far, seed)
		tr.turn, tr.jitter = 30*time.Millisecond, 10*time.Millisecond
		for d := range domains {
			tr.add(d%2, fmt.Sprintf("d%d.example", d), 20*400/domains, hosts(names...))
		}
		tr.play(begin.Add(5 * time.Minute))
		x := tr.between(120, 300)
		o := tr.scheduler.paths.all[0]
		if used := float64(x.good) / (180 * 20 * (1 - far.odd[0].share)); used < 0.85 || o.until.After(tr.now) || x.ill > 90 {
			t.Errorf("seed %d: %.0f %% used, %d asked at the ill host; %d domains, %d hosts, share %.1f from %s, %+v; %s; %v", seed, 100*used,
				x.ill, domains, len(names), far.ill.share, far.ill.when.from.Sub(begin), far.ill.reply, o.pace.Explain(tr.now).Why,
				tr.scheduler.rechecks.notes)
		}
	}
}
