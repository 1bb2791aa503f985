package scheduler

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	seed, _ := strconv.Atoi(os.Getenv("SEED"))
	w := draw(rand.New(rand.NewPCG(uint64(seed), 7)))
	fmt.Println(w.what, "ideal", w.ideal())
	f, tr := zzrun(&w, t, uint64(seed))
	fmt.Printf("%.0f%% used %.2f%% putoff end %v\n", 100*f.used, 100*f.putOff, tr.now.Sub(begin))
}

func zzrun(w *drawn, t *testing.T, seed uint64) (figures, *trial) {
	zzhook = func(tr *trial) {
		e := tr.scheduler.paths.all[0].pace.Explain(tr.now)
		key := e.Why
		if key != zzlast {
			zzlast = key
			fmt.Printf("%8.2f %s rate %.3g edge %.3g: %s\n", tr.now.Sub(begin).Seconds(), e.Phase, e.Rate, e.Edge, e.Why)
		}
		if s := int64(tr.now.Sub(begin) / (10 * time.Second)); s != zzsec {
			x := tr.between(int(zzsec*10), int(zzsec*10+10))
			fmt.Printf("   [%d s] asked %d good %d odd %d limited %d down %d opens %d refused %d sessions %d open-rate %v conns %v\n", zzsec*10, x.asked, x.good, x.odd, x.limited, x.down, x.opens, x.refused, len(tr.scheduler.pool.sessions), func() any { r, _ := tr.scheduler.opening.rate.Permits(tr.now); return r }(), tr.scheduler.allowance.limits.Connections)
			zzsec = s
		}
	}
	return w.run(t, seed)
}

func TestZZMany(t *testing.T) {
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	to, _ := strconv.Atoi(os.Getenv("TO"))
	met, bad := 0, 0
	for seed := from; seed < to; seed++ {
		w := draw(rand.New(rand.NewPCG(uint64(seed), 7)))
		f, tr := w.run(t, uint64(seed))
		least := 0.85
		if w.far.limit.penalty > 0 {
			least = 0.5
		}
		if f.used >= least && f.putOff <= 0.01 {
			met++
		} else {
			bad++
			fmt.Printf("seed %d: %.0f%% used %.2f%% putoff; %s; %s\n", seed, 100*f.used, 100*f.putOff, w.what, tr.scheduler.paths.all[0].pace.Explain(tr.now).Why)
		}
	}
	fmt.Printf("met %d bad %d\n", met, bad)
}
