package process

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"rollcall/config/effort"
)

func newGuard() (*PanicGuard, *effort.Log) {
	l := &effort.Log{}
	return NewPanicGuard(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(l, nil))), l
}

// counted is what the metric says of a place.
func counted(g *PanicGuard, where string) float64 {
	var m dto.Metric
	_ = g.panics.WithLabelValues(where).Write(&m)
	return m.GetCounter().GetValue()
}

// secretIsAsked panics with an address in the panic's text and in its own argument: neither may be logged.
func secretIsAsked(address string) { panic("cannot ask " + address) }

func TestAPanicIsLoggedCountedAndAFailure(t *testing.T) {
	g, log := newGuard()
	failed := make(chan struct{})
	g.Go("session", func() { secretIsAsked("ada@example.com") }, func() { close(failed) })
	<-failed
	text := log.String()
	effort.ErrorIf(t, !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "where=session") ||
		!strings.Contains(text, "secretIsAsked") || !strings.Contains(text, "what=string"),
		"the log does not say what happened where: %s", text)
	effort.Lacks(t, text, "ada@", "the log names an address")
	effort.Is(t, counted(g, "session"), 1, "panics are counted")
}

func TestARuntimeErrorIsNamed(t *testing.T) {
	g, log := newGuard()
	var none []int
	effort.ErrIs(t, g.Run("plan", func() { _ = none[len(none)] }), ErrPanicked, "the error")
	effort.Has(t, log.String(), "index out of range", "the log does not say so", log)
}

func TestAFailureThatPanicsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard()
		g.After(time.Second, "lookup", func() { panic(1) }, func() { panic(2) })
		<-time.After(2 * time.Second)
		synctest.Wait()
		effort.Is(t, counted(g, "lookup"), 2, "panics are counted")
	})
}

func TestManyPanicsOfOnePlaceAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newGuard()
		for range 500 {
			_ = g.Run("answer", func() { panic("again") })
		}
		_ = g.Run("route", func() { panic("another place") })
		effort.Is(t, strings.Count(log.String(), "msg=panic"), 2, "lines for two places")
		<-time.After(stacksEvery)
		_ = g.Run("answer", func() { panic("again") })
		effort.Has(t, log.String(), "unlogged=499", "the next line does not say how many were not logged", log)
	})
}

func TestWorkThatIsFineIsNoFailure(t *testing.T) {
	g, log := newGuard()
	done := make(chan struct{})
	g.Go("session", func() { close(done) }, func() { t.Error("it failed") })
	<-done
	err := g.Run("session", func() {})
	effort.ErrorIf(t, err != nil || log.String() != "", "%v %s", err, log)
}

func TestTheGuardOfASystem(t *testing.T) {
	system := actor.NewActorSystem()
	effort.ErrorIf(t, GuardOf(system) != nil, "a system has a guard that nobody gave it")
	g, _ := newGuard()
	g.Install(system)
	effort.Is(t, GuardOf(system), g, "the guard of the system is another one")
}

// TestTheProcessGoesOn lets a process panic in a goroutine: with a guard it goes on, and without one
// it does not, so that the first half can fail.
func TestTheProcessGoesOn(t *testing.T) {
	if kind := os.Getenv("ROLLCALL_GUARD_TEST"); kind != "" {
		var g *PanicGuard
		if kind == "guarded" {
			g, _ = newGuard()
		}
		failed := make(chan struct{})
		g.Go("session", func() { panic("here") }, func() { close(failed) })
		<-failed
		return
	}
	for kind, ends := range map[string]bool{"guarded": false, "bare": true} {
		c := exec.Command(os.Args[0], "-test.run=TestTheProcessGoesOn$")
		c.Env = append(os.Environ(), "ROLLCALL_GUARD_TEST="+kind)
		out, err := c.CombinedOutput()
		effort.Is(t, err != nil, ends, kind, "the process ended", out)
	}
}

func newWindow(least, most int) *Window { return NewWindow(prometheus.NewRegistry(), least, most) }

// TestAWindowFollowsTheRunQueue: the window stays within its bounds. It shrinks only while the run queue is long. It
// grows only while the run queue is short and somebody waits for room in the window.
func TestAWindowFollowsTheRunQueue(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 50).Draw(t, "least")
		most := least + rapid.IntRange(0, 2000).Draw(t, "more")
		w := newWindow(least, most)
		for range rapid.IntRange(1, 100).Draw(t, "looks") {
			before := w.Size()
			length := w.processors * rapid.Float64Range(0, 3*long).Draw(t, "length")
			wanted := rapid.Bool().Draw(t, "wanted")
			if wanted {
				w.Want()
			}
			w.adaptSize(length)
			now := w.Size()
			switch {
			case now < least || now > most:
				t.Fatalf("%d is not between %d and %d", now, least, most)
			case now < before && length <= long*w.processors:
				t.Fatalf("shrank from %d to %d with %.1f in the queue", before, now, length)
			case now > before && (length >= short*w.processors || !wanted):
				t.Fatalf("grew from %d to %d with %.1f in the queue, wanted: %v", before, now, length, wanted)
			case now == before && length > long*w.processors && now > least+1:
				t.Fatalf("stayed at %d with %.1f in the queue", now, length)
			}
		}
	})
}

// TestAWindowComesBack: from its least to its most in some seconds of a short queue, and back sooner.
func TestAWindowComesBack(t *testing.T) {
	w := newWindow(16, 1024)
	looks := func(length float64, until int) (n int) {
		for w.Size() != until && n < 1000 {
			w.Want()
			w.adaptSize(length)
			n++
		}
		return n
	}
	looks(math.Inf(1), 16)
	up := looks(0, 1024)
	effort.ErrorIf(t, up > int(5*time.Second/measureEvery), "%d looks from the least to the most", up)
	down := looks(math.Inf(1), 16)
	effort.ErrorIf(t, down > int(2*time.Second/measureEvery), "%d looks from the most to the least", down)
}

func TestNoWindowHasNoBound(t *testing.T) {
	var w *Window
	w.Want()
	effort.Is(t, w.Size(), math.MaxInt)
}

// TestTheRuntimeTellsHowLongGoroutinesWait: of more that run than there are processors some wait, and a window
// that looks shrinks to its least.
func TestTheRuntimeTellsHowLongGoroutinesWait(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	w := newWindow(3, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 50 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
		})
	}
	running.Go(func() { w.Run(ctx) })
	within, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	tick := time.Tick(measureEvery)
	for w.Size() > 3 && within.Err() == nil {
		<-tick
	}
	cancel()
	running.Wait()
	if w.Size() != 3 {
		t.Errorf("the window is %d, the run queue %.1f", w.Size(), math.Float64frombits(w.length.Load()))
	}
}

// sleeper sets its timer as it is told and notes when it rang.
type sleeper struct {
	timer Timer
	rang  chan time.Duration // since the start
	start time.Time
}

func (s *sleeper) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case time.Duration:
		s.timer.Set(c, time.Now(), s.start.Add(m))
	case WakeUp:
		if late, ok := s.timer.Rang(m, time.Now()); ok {
			s.rang <- time.Since(s.start) - late
		}
	case string:
		s.timer.Stop()
	}
}

func TestTimerMovesForwardOnlyAndRangOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		say  []any
		want []time.Duration
	}{
		{"set once", []any{time.Minute}, []time.Duration{time.Minute}},
		{"moved forward", []any{time.Hour, time.Minute}, []time.Duration{time.Minute}},
		{"not moved back", []any{time.Minute, time.Hour}, []time.Duration{time.Minute}},
		{"stopped", []any{time.Minute, "stop"}, nil},
		{"set again after a stop", []any{time.Minute, "stop", time.Hour}, []time.Duration{time.Hour}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				system := actor.NewActorSystem()
				s := &sleeper{rang: make(chan time.Duration, 9), start: time.Now()}
				pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return s }))
				for _, m := range c.say {
					system.Root.Send(pid, m)
				}
				synctest.Wait()
				<-time.After(2 * time.Hour)
				_ = system.Root.StopFuture(pid).Wait()
				system.Shutdown()
				close(s.rang)
				var got []time.Duration
				for at := range s.rang {
					got = append(got, at)
				}
				effort.ErrorIf(t, len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0],
					"rang at %v, want %v", got, c.want)
			})
		})
	}
}

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
