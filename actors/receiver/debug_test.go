package receiver

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	seedFlag = flag.Int("one", -1, "")
	untilF   = flag.Int("until", 60, "")
	everyF   = flag.Int("every", 1, "")
)

func TestDebug(t *testing.T) {
	if *seedFlag < 0 {
		return
	}
	w := draw(rand.New(rand.NewPCG(uint64(*seedFlag), 7)))
	fmt.Println(w.what, "ideal", w.ideal())
	tr := newTrial(t, w.told, w.stated, w.far, uint64(*seedFlag))
	tr.turn, tr.jitter = w.turn, w.jitter
	for d := range w.domains {
		for tenant := range w.tenants {
			tr.add(tenant, fmt.Sprintf("d%d.example", d), w.addresses/w.domains/w.tenants, hosts("mx1.example"))
		}
	}
	for k := *everyF; k < *untilF; k += *everyF {
		tr.play(begin.Add(time.Duration(k) * time.Second))
		x := tr.between(k-*everyF, k)
		o := tr.desk.outlets[0]
		e := o.tempo.Explain(tr.now)
		fmt.Printf("%3d good %3d lim %3d odd %3d dn %d op %d/%d | rate %.1f %s odd %.2f exp %v c %v q %d sus %d conn %d/%d open %.1f %s | %s | %s\n", k, x.good, x.limited, x.odd, x.down, x.opens, x.refused, e.Rate, e.Phase, o.causes.Odd(), o.experiment.Open(), o.cautious,
			tr.desk.tasks.queue.Queued(), len(tr.desk.suspects), len(tr.desk.sessions), tr.desk.learned.connections.most, tr.desk.opening.rate.Explain(tr.now).Rate, tr.desk.opening.rate.Explain(tr.now).Phase, e.Why, tr.desk.hold(tr.now).Why)
		for _, b := range tr.desk.beliefs {
			if b.at.After(tr.now.Add(-time.Duration(*everyF) * time.Second)) {
				fmt.Println("    ", b.at.Sub(begin), b.Scope, b.Why)
			}
		}
	}
}
