package process

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"rollcall/config/effort"
)

func newWindow(least, most int) *Window { return NewWindow(prometheus.NewRegistry(), least, most) }

// TestAWindowFollowsTheRunQueue: over any run of lengths it stays between its bounds, shrinks only while the run
// queue is long, and grows only while it is short and somebody would have more.
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
