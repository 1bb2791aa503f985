package process

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Long is the shortest pause that Pauses counts. A domain that hears nothing from its receiver for five seconds
	// offers its addresses elsewhere, and the last message may have been a second old.
	Long = 4 * time.Second

	// watchEvery is the time between two looks at the clock.
	watchEvery = 250 * time.Millisecond

	// toldFrom is the shortest pause that is logged, and toldwatchEvery how long after a line a short pause isn't
	// logged again, as on a machine that is always slow. Guesses.
	toldFrom       = time.Second
	toldwatchEvery = 10 * time.Second
)

// Watchdog notices when nothing of the process ran. A process has one. Nil has seen no pause. Safe for concurrent
// use.
type Watchdog struct {
	log    *slog.Logger
	clock  func() time.Time
	cpu    func() time.Duration
	pauses prometheus.Counter
	paused prometheus.Counter

	ran  atomic.Pointer[time.Time] // when the process was last seen to run
	long atomic.Uint64

	mu   sync.Mutex // held while ran is set
	used time.Duration
	told time.Time
}

// NewWatchdog makes a watchdog and registers its metrics; Run lets it watch.
func NewWatchdog(r prometheus.Registerer, log *slog.Logger) *Watchdog {
	return newWatchdog(r, log, time.Now, processTime)
}

func newWatchdog(r prometheus.Registerer, log *slog.Logger, clock func() time.Time,
	cpu func() time.Duration) *Watchdog {
	w := &Watchdog{log: log, clock: clock, cpu: cpu,
		pauses: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_process_pauses_total",
			Help: "Pauses in which nothing of this process ran for a second or longer."}),
		paused: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_process_paused_seconds_total",
			Help: "Total seconds of pauses in which nothing of this process ran for a second or longer."})}
	now := clock()
	w.ran.Store(&now)
	w.used = cpu()
	r.MustRegister(w.pauses, w.paused)
	return w
}

// Run watches until ctx is done.
func (w *Watchdog) Run(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.checkClock(w.clock())
		}
	}
}

// Pauses returns how often nothing of this process ran for Long. The first caller after a pause already gets the new
// count: nobody has to wait for a timer.
func (w *Watchdog) Pauses() uint64 {
	if w == nil {
		return 0
	}
	if now := w.clock(); since(*w.ran.Load(), now) >= watchEvery {
		w.checkClock(now)
	}
	return w.long.Load()
}

// checkClock notes that the process runs, and the pause before, if there was one.
func (w *Watchdog) checkClock(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := since(*w.ran.Load(), now)
	used := w.cpu()
	ran := used - w.used
	w.used = used
	if took >= Long {
		w.long.Add(1)
	}
	w.ran.Store(&now)
	if took < toldFrom {
		return
	}
	w.pauses.Inc()
	w.paused.Add(took.Seconds())
	if took >= Long || w.told.IsZero() || now.Sub(w.told) >= toldwatchEvery {
		w.told = now
		w.log.Warn("process was paused", "took", took, "cpu", ran)
	}
}

// since returns the longer of the times that passed on the monotonic and on the wall clock: the monotonic clock sleeps
// with the machine, and the wall clock may be set.
func since(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Background runs functions until the returned stop is called, which waits for them to end. They have the values of ctx
// but don't end with it.
func Background(ctx context.Context, runs ...func(context.Context)) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	return func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	}
}
