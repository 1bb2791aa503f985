package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/verdict"
)

// Metrics counts what the schedulers of a node do.
type Metrics struct {
	answers *prometheus.CounterVec
	counted [smtp.Error + 1][256]atomic.Pointer[prometheus.Counter] // answers by outcome and reason
	pauses  prometheus.Counter
	moved   prometheus.Counter
	resent  prometheus.Counter
	stale   prometheus.Counter
	doubled prometheus.Counter
	silent  prometheus.Counter
	handed  prometheus.Counter
	unread  atomic.Int64 // replies that no rule matched

	intercepted atomic.Int64 // times that something else answered in place of a host

	sourcesSuspended, sourcesOut prometheus.Counter

	rcpts         prometheus.Counter
	waitingNow    [status.Causes]prometheus.Gauge
	waitedSeconds [status.Causes]prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_" + name, Help: help})
	}
	m := &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_probe_answers_total",
			Help: "Verdicts on probes, by outcome (undecided: asked again later) and reason."},
			[]string{"outcome", "reason"}),
		pauses: counter("receiver_pauses_total",
			"Times a whole receiver was paused because it asked for less."),
		moved: counter("receiver_moved_total", "Tasks that had to find their receiver on another node."),
		resent: counter("receiver_results_resent_total",
			"Messages with results that were sent again, because nobody acknowledged them."),
		stale: counter("receiver_offers_stale_total",
			"Offers that were refused because a later owner of their verification is known."),
		doubled: counter("receiver_offers_repeated_total", "Offers of addresses that had been offered before."),
		silent: counter("receiver_clients_silent_total",
			"Tasks whose waiting addresses were given up because their client did not answer."),
		handed: counter("receiver_answers_handed_over_total",
			"Answers handed over to the next owner of a verification."),
		sourcesSuspended: counter("receiver_sources_suspended_total",
			"Times a source address was suspended at a receiver that refuses it."),
		sourcesOut: counter("sources_suspended_total",
			"Times a source address was suspended at all receivers, because many refuse it."),
	}
	unread := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rollcall_replies_unread_total",
		Help: "Verdicts on probes by the code of a reply alone, because no rule knew its words."},
		func() float64 { return float64(m.unread.Load()) })
	intercepted := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rollcall_network_intercepted_total",
		Help: "Sessions and acceptances from which nothing was judged, because somebody else answered in place of " +
			"the receiver."}, func() float64 { return float64(m.intercepted.Load()) })
	m.rcpts = counter("rcpts_total", "RCPT commands sent.")
	waiting := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rollcall_receiver_waiting",
		Help: "Addresses that wait for receivers, handed over yet or not, by what keeps their receiver " +
			"from asking more."}, []string{"cause"})
	waited := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_receiver_delay_seconds_total",
		Help: "Seconds that addresses have waited at receivers, all added up, by what kept their receiver " +
			"from asking more."}, []string{"cause"})
	for i, cause := range inspect.Causes {
		m.waitingNow[i], m.waitedSeconds[i] = waiting.WithLabelValues(cause), waited.WithLabelValues(cause)
	}
	r.MustRegister(m.rcpts, waiting, waited, m.answers, m.pauses, m.moved, m.resent, m.stale, m.doubled, m.silent,
		m.handed, m.sourcesSuspended, m.sourcesOut, unread, intercepted)
	return m
}

// Unread returns how many replies no rule has matched since the node began.
func (m *Metrics) Unread() int64 { return m.unread.Load() }

// Intercepted returns how often something else answered in place of a receiver since the node began.
func (m *Metrics) Intercepted() int64 { return m.intercepted.Load() }

// CountIntercepted counts one session or acceptance of a server that isn't the receiver's.
func (m *Metrics) CountIntercepted() { m.intercepted.Add(1) }

// countAnswer counts a verdict. countAnswer finds a counter by its labels only once.
func (m *Metrics) countAnswer(v *verdict.Verdict) {
	if v.Unread() {
		m.unread.Add(1)
	}
	at := &m.counted[v.Outcome][v.Reason]
	counter := at.Load()
	if counter == nil {
		one := m.answers.WithLabelValues(v.Outcome.String(), v.Reason.String())
		counter = &one
		at.Store(counter)
	}
	(*counter).Inc()
}

// waiting moves a scheduler's addresses to the present cause in the gauges.
func (m *Metrics) waiting(st *record, cause wire.Cause, queued int) {
	if cause == st.cause {
		m.waitingNow[cause].Add(float64(queued - st.queued))
	} else {
		m.waitingNow[st.cause].Sub(float64(st.queued))
		m.waitingNow[cause].Add(float64(queued))
	}
	st.cause, st.queued = cause, queued
}

// waited adds the time that some addresses have waited.
func (m *Metrics) waited(cause wire.Cause, queued int, long time.Duration) {
	if queued > 0 && long > 0 {
		m.waitedSeconds[cause].Add(float64(queued) * long.Seconds())
	}
}

func (m *Metrics) removeWaiting(st *record) {
	m.waitingNow[st.cause].Sub(float64(st.queued))
	st.queued = 0
}
