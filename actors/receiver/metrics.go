package receiver

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
)

// Metrics counts what the receiver actors of a node do.
type Metrics struct {
	answers  *prometheus.CounterVec
	sessions prometheus.Gauge
	opened   prometheus.Counter
	pauses   prometheus.Counter
	living   prometheus.Gauge
	barred   prometheus.Gauge
	moved    prometheus.Counter
	resent   prometheus.Counter
	stale    prometheus.Counter
	doubled  prometheus.Counter
	silent   prometheus.Counter
	handed   prometheus.Counter

	sourcesRested, sourcesOut prometheus.Counter

	factsKept, factsLost, factsRead prometheus.Counter

	rcpts         prometheus.Counter
	waitingNow    [status.Causes]prometheus.Gauge
	waitedSeconds [status.Causes]prometheus.Counter
	collected     atomic.Pointer[Living] // whose receivers are collected; nil: none yet
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_" + name, Help: help})
	}
	m := &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_probe_answers_total",
			Help: "Verdicts on probes, by outcome (undecided: asked again later) and reason."},
			[]string{"outcome", "reason"}),
		sessions: gauge("smtp_sessions", "SMTP sessions open or opening."),
		opened:   counter("smtp_sessions_opened_total", "SMTP sessions begun."),
		pauses: counter("receiver_pauses_total",
			"Times a whole receiver was rested because it wanted less of us."),
		living: gauge("receivers", "Receiver actors that live on this node."),
		barred: gauge("receivers_without_share",
			"Receiver actors that live on this node and may use nothing of their allowance."),
		moved: counter("receiver_moved_total", "Tasks that were told that their receiver goes away."),
		resent: counter("receiver_results_resent_total",
			"Messages with results that were sent again, because nobody acknowledged them."),
		stale: counter("receiver_offers_stale_total",
			"Offers that were refused because a later owner of their verification is known."),
		doubled: counter("receiver_offers_repeated_total", "Offers of chunks that were here already."),
		silent: counter("receiver_clients_silent_total",
			"Times what a task had waiting was given up, because its client did not answer."),
		handed: counter("receiver_answers_handed_over_total",
			"Answers that an earlier owner of a verification had not taken and the next one got."),
		sourcesRested: counter("receiver_sources_rested_total",
			"Times a source address was rested at a receiver that refuses it."),
		sourcesOut: counter("sources_rested_total",
			"Times a source address was rested altogether, because many receivers refuse it."),
		factsKept: counter("receiver_facts_kept_total", "Facts about receivers that were written to the ledger."),
		factsLost: counter("receiver_facts_lost_total", "Facts about receivers that found no room to wait in."),
		factsRead: counter("receiver_facts_read_total", "Facts about receivers that were read from the ledger."),
	}
	m.rcpts = counter("rcpts_total", "RCPT commands sent.")
	waiting := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rollcall_receiver_waiting",
		Help: "Addresses that wait for receivers, handed over yet or not, by what keeps their receiver " +
			"from asking more."}, []string{"cause"})
	waited := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_receiver_delay_seconds_total",
		Help: "Seconds that addresses have waited at receivers, all added up, by what kept their receiver " +
			"from asking more."}, []string{"cause"})
	for i, cause := range view.Causes {
		m.waitingNow[i], m.waitedSeconds[i] = waiting.WithLabelValues(cause), waited.WithLabelValues(cause)
	}
	r.MustRegister(m.rcpts, waiting, waited, status.NewCollector(m.survey))
	r.MustRegister(m.answers, m.sessions, m.opened, m.pauses, m.living, m.barred, m.moved, m.resent, m.stale,
		m.doubled, m.silent, m.handed, m.sourcesRested, m.sourcesOut, m.factsKept, m.factsLost, m.factsRead)
	return m
}

// survey asks the receivers of the node; false: there is none yet.
func (m *Metrics) survey(ctx context.Context) ([]view.Receiver, bool) {
	living := m.collected.Load()
	if living == nil {
		return nil, false
	}
	return living.Survey(ctx), true
}

// waiting moves a scheduler's addresses in the gauges from what held it back to what does.
func (m *Metrics) waiting(st *record, cause wire.Cause, queued int) {
	if cause == st.cause {
		m.waitingNow[cause].Add(float64(queued - st.queued))
	} else {
		m.waitingNow[st.cause].Sub(float64(st.queued))
		m.waitingNow[cause].Add(float64(queued))
	}
	st.cause, st.queued = cause, queued
}

// waited counts that so many addresses have waited for so long.
func (m *Metrics) waited(cause wire.Cause, queued int, long time.Duration) {
	if queued > 0 && long > 0 {
		m.waitedSeconds[cause].Add(float64(queued) * long.Seconds())
	}
}

// gone takes a scheduler out of the gauges.
func (m *Metrics) gone(st *record) {
	m.waitingNow[st.cause].Sub(float64(st.queued))
	st.queued = 0
}
