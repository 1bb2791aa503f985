package scheduler

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// waitingNow adds up the gauges of what waits at receivers.
func waitingNow(t *testing.T, m *Metrics) (sum float64) {
	t.Helper()
	for i := range inspect.Causes {
		sum += valueOf(t, m.waitingNow[i])
	}
	return sum
}

// behindOffer is an offer of two addresses with more behind them for some time.
func behindOffer(chunk uint64, behind uint32, waiting time.Duration) *wire.Offer {
	m := offerOf(1, "domain.example", chunk, 2, hosts("mx1.example"))
	m.Behind, m.WaitingMs = behind, waiting.Milliseconds()
	return m
}

func TestASchedulerTellsWhatIsBehindItsChunks(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 1, Per: time.Hour}
	w := newWorld(t, a, 1)
	metrics := NewMetrics(prometheus.NewPedanticRegistry())
	w.scheduler.options.Metrics = metrics
	check := func(when string, here, behind int, oldest time.Duration) {
		t.Helper()
		w.plan()
		all := w.scheduler.Detail(w.now)
		queued := w.scheduler.fair.Queued()
		if all.Queued != here+behind || all.Behind != behind || all.Oldest != oldest.Seconds() {
			t.Errorf("%s: %d queued, %d behind, the oldest for %v s; want %d, %d, %v", when, all.Queued, all.Behind,
				all.Oldest, here+behind, behind, oldest)
		}
		if n := len(all.Minutes); n == 0 || all.Minutes[n-1].Queued != queued+behind {
			t.Errorf("%s: minutes %+v, want %d queued", when, all.Minutes, queued+behind)
		}
		effort.Is(t, waitingNow(t, metrics), float64(queued+behind), when, "the gauge has", queued+behind)
		if behind > 0 && (len(all.Queues) != 1 || all.Queues[0].Queued != here+behind ||
			all.Queues[0].Oldest != oldest.Seconds()) {
			t.Errorf("%s: queues %+v", when, all.Queues)
		}
	}
	w.offer(behindOffer(1, 1000, time.Minute))
	check("after one chunk", 2, 1000, time.Minute)
	w.offer(behindOffer(2, 900, 2*time.Minute))
	check("after the second", 4, 900, 2*time.Minute)
	w.offer(behindOffer(3, 700, 2*time.Minute)) // one too many
	check("after one that is refused", 4, 702, 2*time.Minute)
	w.scheduler.queues.cancelTask(w.now, &wire.Cancel{Task: behindOffer(1, 0, 0).GetTask()})
	w.scheduler.queues.tasks.sweep(w.now)
	check("when it is cancelled", 0, 0, 0)
}

func TestWhatIsBehindIsForgottenWithItsClient(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.offer(behindOffer(1, 1000, 0))
	task := w.scheduler.queues.tasks.all[behindOffer(1, 0, 0).GetTask().Key()]
	w.scheduler.queues.tasks.forgetChunk(w.now, task.chunks[0])
	w.scheduler.queues.tasks.sweep(w.now.Add(behindFor - 1))
	effort.Is(t, w.scheduler.queues.tasks.behind, 1000, "behind between two chunks")
	w.scheduler.queues.tasks.sweep(w.now.Add(behindFor))
	if n := w.scheduler.queues.tasks.behind; n != 0 || len(w.scheduler.queues.tasks.waiters) != 0 {
		t.Errorf("%d are behind a task that offers nothing", n)
	}
	w.offer(behindOffer(2, 1000, 0))
	w.scheduler.queues.shedLost(task.client.Address)
	effort.Is(t, w.scheduler.queues.tasks.behind, 0, "behind a client that is lost")
}
