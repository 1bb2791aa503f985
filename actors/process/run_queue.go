package process

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// measureEvery is the time between two looks at the run queue.
	measureEvery = 100 * time.Millisecond

	// The window shrinks while more than long goroutines wait for each processor on average, and grows while fewer than
	// short do. Why: docs/developers/decisions.md.
	long, short = 4, 2

	// shrink and grow are the factors of the window, and begin is its first size. With grow = 1.1 a file of 1,000
	// domains took a second longer; with begin = 1024 a million answers came faster than the ledger took them.
	shrink, grow = 0.8, 1.25
	begin        = 64
)

// Window bounds how many domains a file has at work; nil does not. Safe for concurrent use.
type Window struct {
	least, most float64
	processors  float64

	size   atomic.Uint64 // bits of a float64
	wanted atomic.Bool   // more was wanted since the last adjustment
	length atomic.Uint64 // bits of a float64: of the run queue
}

// NewWindow makes a window between least and most, and registers its metrics; Run keeps it right.
func NewWindow(r prometheus.Registerer, least, most int) *Window {
	w := &Window{least: float64(least), most: float64(most), processors: float64(runtime.GOMAXPROCS(0))}
	w.size.Store(math.Float64bits(min(max(begin, w.least), w.most)))
	NewGaugeFunc(r, "run_queue", "Mean number of goroutines that waited for a processor in the last 100 ms.",
		func() float64 { return math.Float64frombits(w.length.Load()) })
	NewGaugeFunc(r, "domains_window",
		"How many domains one file may have at work at a time. It shrinks while the run queue is long.",
		func() float64 { return float64(w.Size()) })
	return w
}

// Size is how much may be at work now.
func (w *Window) Size() int {
	if w == nil {
		return math.MaxInt
	}
	return int(math.Float64frombits(w.size.Load()))
}

// Busy reports whether the run queue is long.
func (w *Window) Busy() bool {
	return w != nil && math.Float64frombits(w.length.Load()) > long*w.processors
}

// Want notes that more than Size is wanted. Without it the window doesn't grow.
func (w *Window) Want() {
	if w != nil {
		w.wanted.Store(true)
	}
}

// Run looks at the run queue until ctx is done.
func (w *Window) Run(ctx context.Context) {
	ticker := time.Tick(measureEvery)
	waited := &waits{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	waited.sumSeconds()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker:
			if took := now.Sub(last); took > 0 {
				w.adaptSize(waited.sumSeconds() / took.Seconds())
			}
			last = now
		}
	}
}

// adaptSize fits the window to the length of the run queue.
func (w *Window) adaptSize(length float64) {
	w.length.Store(math.Float64bits(length))
	size, wanted := math.Float64frombits(w.size.Load()), w.wanted.Swap(false)
	switch {
	case length > long*w.processors:
		size = max(w.least, size*shrink)
	case length < short*w.processors && wanted:
		size = min(w.most, size*grow+1)
	}
	w.size.Store(math.Float64bits(size))
}

// waits reads from the runtime how long goroutines have waited for a processor.
type waits struct {
	sample []metrics.Sample
	before []uint64
}

// sumSeconds returns how many seconds all goroutines together have waited since it was called last. Seconds of
// waiting in a second are the mean length of the queue.
func (s *waits) sumSeconds() (seconds float64) {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0 // a runtime that does not count it
	}
	h := s.sample[0].Value.Float64Histogram()
	if s.before == nil {
		s.before = make([]uint64, len(h.Counts))
	}
	for i, n := range h.Counts {
		from, to := max(h.Buckets[i], 0), h.Buckets[i+1]
		if math.IsInf(to, 1) {
			to = from
		}
		seconds += float64(n-s.before[i]) * (from + to) / 2
		s.before[i] = n
	}
	return seconds
}

// idleMost is how many goroutines of a pool may wait for work. Each has some 8 KB of stack after an actor or a session,
// so 64 keep half a megabyte.
const idleMost = 64

// idleFor is how long one waits. A node at work has the next thing to do within microseconds.
const idleFor = time.Second

// pool runs work in goroutines that are used again. A new goroutine has a small stack and copies it a few times until
// it is large enough for an actor or a session, which was 8 % of the time of a list of small domains.
type pool struct {
	work chan func()
	idle atomic.Int32
}

func (p *pool) startWork(work func()) {
	select {
	case p.work <- work:
	default:
		go p.keepWorking(work)
	}
}

// keepWorking runs work, and then what comes within idleFor, unless idleMost others wait already.
func (p *pool) keepWorking(work func()) {
	work()
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for p.idle.Add(1) <= idleMost {
		timer.Reset(idleFor)
		select {
		case work = <-p.work:
			p.idle.Add(-1)
			work()
		case <-timer.C:
			p.idle.Add(-1)
			return
		}
	}
	p.idle.Add(-1)
}

// Dispatch runs an actor in the guard's pool of goroutines; a nil guard in the library's.
func (g *PanicGuard) Dispatch() actor.PropsOption {
	if g == nil {
		return func(*actor.Props) {}
	}
	return actor.WithDispatcher(&g.pool)
}

func (p *pool) Schedule(run func()) { p.startWork(run) }

// Throughput implements actor.Dispatcher: how many messages an actor handles in a turn. 300 is the library's default.
func (p *pool) Throughput() int { return 300 }

const (
	// Long is the shortest pause that Pauses counts. A domain that hears nothing from its receiver for five seconds
	// offers its addresses elsewhere, and the last message may have been a second old.
	Long = 4 * time.Second

	// watchEvery is the time between two looks at the clock.
	watchEvery = 250 * time.Millisecond

	// loggedFrom is the shortest pause that is logged. After a line, short pauses aren't logged for loggedEvery: a slow
	// machine has many. Guesses.
	loggedFrom  = time.Second
	loggedEvery = 10 * time.Second
)

// Watchdog notices when nothing of the process ran. A process has one. Nil has seen no pause. Safe for concurrent use.
type Watchdog struct {
	log    *slog.Logger
	clock  func() time.Time
	cpu    func() time.Duration
	pauses prometheus.Counter
	paused prometheus.Counter

	ran  atomic.Pointer[time.Time] // when the process was last seen to run
	long atomic.Uint64

	mu     sync.Mutex // held while ran is set
	used   time.Duration
	logged time.Time
}

// NewWatchdog makes a watchdog and registers its metrics; Run lets it watch.
func NewWatchdog(r prometheus.Registerer, log *slog.Logger) *Watchdog {
	return newWatchdog(r, log, time.Now, processTime)
}

func newWatchdog(r prometheus.Registerer, log *slog.Logger, clock func() time.Time,
	cpu func() time.Duration) *Watchdog {
	w := &Watchdog{log: log, clock: clock, cpu: cpu,
		pauses: NewCounter(r, "process_pauses_total",
			"Pauses in which nothing of this process ran for a second or longer."),
		paused: NewCounter(r, "process_paused_seconds_total",
			"Total seconds of pauses in which nothing of this process ran for a second or longer.")}
	now := clock()
	w.ran.Store(&now)
	w.used = cpu()
	return w
}

// Run watches until ctx is done.
func (w *Watchdog) Run(ctx context.Context) {
	ticker := time.Tick(watchEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
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
	if took < loggedFrom {
		return
	}
	w.pauses.Inc()
	w.paused.Add(took.Seconds())
	if took >= Long || w.logged.IsZero() || now.Sub(w.logged) >= loggedEvery {
		w.logged = now
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
