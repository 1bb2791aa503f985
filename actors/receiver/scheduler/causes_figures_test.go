package scheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// figured is a world of the table.
type figured struct {
	name     string
	told     throttle.Limits
	far      unknownReceiver
	n        int           // addresses
	span     time.Duration // that is looked at, at most
	from, to int           // the seconds that are counted
	ideal    float64       // good answers a second of who knows all limits
}

// TestFiguresOfCauses prints a table of how worlds went; with -long.
func TestFiguresOfCauses(t *testing.T) {
	if !effort.Long() {
		t.Skip("prints a table: -long")
	}
	for _, f := range figuredWorlds() {
		f.far.words = gibberish(rand.New(rand.NewPCG(1, 2)))
		if f.far.odd.share == 0 {
			f.far.odd.tenant = -1
		}
		tr := newTrial(t, f.told, true, &f.far, 1)
		tr.turn, tr.jitter = 40*time.Millisecond, 10*time.Millisecond
		for d := range 20 {
			tr.add(d%2, fmt.Sprintf("d%d.example", d), f.n/20, f.far.route())
		}
		tr.play(begin.Add(f.span))
		x, secs := tr.between(f.from, f.to), float64(f.to-f.from)
		if end := tr.now.Sub(begin).Seconds(); end < float64(f.to) {
			secs = end - float64(f.from)
		}
		if f.far.limit.penalty == 0 && float64(x.good) < 0.7*secs*f.ideal {
			t.Errorf("%s: %d good answers in %.0f s", f.name, x.good, secs)
		}
		fmt.Printf("| %s | %.0f %% used, %.2f %% put off |\n", f.name, 100*float64(x.good)/secs/f.ideal,
			100*float64(x.limited)/float64(max(1, x.asked)))
	}
}

// figuredWorlds are the rows of the table.
func figuredWorlds() (out []figured) {
	wide := openedWide()
	wide.Connections, wide.ConnectionRate, wide.RcptRate = 20, rate(50, time.Second), rate(200, time.Second)
	told, short := wide, wide
	told.RcptRate, short.RcptsPerConnection = rate(30, time.Second), 4
	words := func(code int, e smtp.EnhancedCode, text string) smtp.Reply {
		return smtp.Reply{Code: code, Enhanced: e, Lines: []string{text}}
	}
	kinds := map[string]oddOf{
		"451 4.3.0 for ever":  {reply: words(451, smtp.EnhancedCode{4, 3, 0}, "Temporary lookup failure")},
		"421 and close":       {reply: words(421, smtp.EnhancedCode{4, 3, 2}, "closing"), cut: true},
		"slow down":           {reply: words(450, smtp.EnhancedCode{4, 7, 1}, "you are sending too quickly, slow down")},
		"client host blocked": {reply: words(550, smtp.EnhancedCode{5, 7, 1}, "client host blocked")},
		"a reset":             {cut: true},
	}
	for _, share := range []float64{0, 0.01, 0.05, 0.2} {
		for _, name := range slices.Sorted(maps.Keys(kinds)) {
			o := kinds[name]
			o.share, o.tenant = share, -1
			out = append(out, figured{fmt.Sprintf("%.0f %% of the mailboxes: %s", 100*share, name), told, unknownReceiver{odd: o},
				3000, 20 * time.Minute, 0, 1000, 30 * (1 - share)})
		}
	}
	for way, said := range []string{"4xx", "421", "reset"} {
		for name, l := range map[string]limitOf{"20/s": {rcpts: rate(20, time.Second)},
			"20/s, refused ones count": {rcpts: rate(20, time.Second), countsBad: true},
			"300/min":                  {rcpts: rate(300, time.Minute), fixed: true},
			"20/s, penalty of 30 s":    {rcpts: rate(20, time.Second), penalty: 30 * time.Second}} {
			l.way = way
			out = append(out, figured{name + " hidden, " + said, wide, unknownReceiver{limit: l}, 16_000, 10 * time.Minute, 180,
				600, l.rcpts.PerSecond()})
		}
		hidden := func(l limitOf) unknownReceiver { l.way = way; return unknownReceiver{limit: l} }
		out = append(out,
			figured{"5 openings a second hidden, " + said, short, hidden(limitOf{opens: rate(5, time.Second)}), 16_000,
				10 * time.Minute, 60, 600, 20},
			figured{"2 sessions hidden, penalty of 30 s, " + said, wide, hidden(limitOf{sessions: 2, penalty: 30 * time.Second}),
				16_000, 10 * time.Minute, 60, 600, 2 / 0.12})
	}
	told.RcptRate = rate(20, time.Second)
	minute := []stretch{{begin.Add(time.Minute), begin.Add(2 * time.Minute)}}
	ill := func(reply smtp.Reply) unknownReceiver {
		return unknownReceiver{ill: illHost{"mx1.example", stretch{begin, begin.Add(time.Hour)}, 1, reply}}
	}
	return append(out,
		figured{"the first of two hosts says 451 4.3.0 to everybody", told, ill(kinds["451 4.3.0 for ever"].reply), 4000,
			20 * time.Minute, 0, 200, 20},
		figured{"the first of two hosts says client host blocked to everybody", told, ill(kinds["client host blocked"].reply), 4000,
			20 * time.Minute, 0, 200, 20},
		figured{"down for 12 s, the 100 s after it", told,
			unknownReceiver{outages: []stretch{{begin.Add(time.Minute), begin.Add(72 * time.Second)}}}, 4000, 20 * time.Minute, 72, 172, 20},
		figured{"down for a minute, the 80 s after it", told, unknownReceiver{outages: minute}, 4000, 20 * time.Minute, 120, 200, 20},
		figured{"every RCPT refused for a minute, after it", told, unknownReceiver{blocked: minute}, 4000, 20 * time.Minute, 120,
			1000, 20})
}
