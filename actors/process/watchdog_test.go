package process

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/config/effort"
)

// rig is a watchdog on a clock that the test sets.
type rig struct {
	*Watchdog
	log bytes.Buffer
	now time.Time
	cpu time.Duration
}

func newRig() *rig {
	r := &rig{now: time.Now()}
	r.Watchdog = newWatchdog(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&r.log, nil)),
		func() time.Time { return r.now }, func() time.Duration { return r.cpu })
	return r
}

// later moves the clock on by several steps and looks after each.
func (r *rig) later(steps ...time.Duration) {
	for _, d := range steps {
		r.now = r.now.Add(d)
		r.checkClock(r.now)
	}
}

func (r *rig) lines() int { return strings.Count(r.log.String(), "process was paused") }

func TestAPauseIsOneLineAndCountsOnce(t *testing.T) {
	r := newRig()
	r.later(watchEvery, watchEvery, 6*time.Second, watchEvery, watchEvery)
	effort.ErrorIf(t, r.Pauses() != 1 || r.lines() != 1 || !strings.Contains(r.log.String(), "took=6s"),
		"%d pauses; the log: %s", r.Pauses(), &r.log)
	var m dto.Metric
	_ = r.paused.Write(&m)
	effort.Is(t, m.GetCounter().GetValue(), 6, "seconds that are counted")
}

func TestWhoRunsFirstLearnsOfThePause(t *testing.T) {
	r := newRig()
	r.now = r.now.Add(Long)
	effort.Is(t, r.Pauses(), 1, "pauses before the timer rang")
	r.later(watchEvery)
	n := r.Pauses()
	effort.ErrorIf(t, n != 1 || r.lines() != 1, "%d pauses and %d lines after it rang", n, r.lines())
}

func TestASlowMachineIsNoPause(t *testing.T) {
	r := newRig()
	for range 60 { // each timer is 1 to 4 s late
		r.later(time.Second+watchEvery, 2*time.Second, Long-time.Millisecond)
	}
	effort.Is(t, r.Pauses(), 0, "pauses")
	most := 1 + int(60*(7*time.Second+watchEvery)/loggedEvery)
	effort.ErrorIf(t, r.lines() > most, "%d lines, at most %d are wanted", r.lines(), most)
}

func TestWhoAsksProvesThatSomethingRuns(t *testing.T) {
	r := newRig()
	for range 20 { // the timer itself does not get to run
		r.now = r.now.Add(time.Second / 2)
		effort.MustBe(t, r.Pauses(), 0, "a pause, though somebody ran all the time")
	}
	effort.Is(t, r.lines(), 0, "lines", &r.log)
}

func TestAMachineThatSlept(t *testing.T) {
	r := newRig()
	r.now = r.now.Add(10 * time.Millisecond).Round(0).Add(time.Hour) // the wall clock alone goes on
	effort.Is(t, r.Pauses(), 1, "the pause was not seen")
}

func TestNilKnowsOfNoPause(t *testing.T) {
	var none *Watchdog
	effort.Is(t, none.Pauses(), 0, "it knows of one")
}

func TestRunLooksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := NewWatchdog(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { w.Run(ctx) })
		<-time.After(time.Hour)
		cancel()
		all.Wait()
		effort.ErrorIf(t, w.Pauses() != 0 || log.Len() > 0, "%d pauses in an hour without any: %s", w.Pauses(), &log)
	})
}
