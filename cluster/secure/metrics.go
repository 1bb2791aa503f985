package secure

import "github.com/prometheus/client_golang/prometheus"

// Reasons for which a connection, a call or a stream was refused or ended, and a message dropped.
const (
	refusedUnfinished  = "unfinished"  // ended or fell silent before its handshake was over: a scan of ports, a cut
	refusedPlaintext   = "plaintext"   // no TLS
	refusedCertificate = "certificate" // none, or not one of this CA, or it does not take ours
	refusedHandshake   = "handshake"   // failed otherwise, as with an older TLS

	refusedCall      = "call"      // not a stream
	refusedName      = "name"      // no member, or not at this address
	refusedMalformed = "malformed" // would have crashed the library

	droppedUnknown   = "unknown_type"
	droppedForbidden = "forbidden_type"
	droppedAddress   = "address" // not to an actor here, or in another's name
)

// Metrics counts what was kept out.
type Metrics struct {
	refused *prometheus.CounterVec
	dropped *prometheus.CounterVec
	panics  prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_cluster_peers_refused_total",
			Help: "Connections, calls and streams of actor traffic that were refused or ended, by reason."}, []string{"reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_cluster_envelopes_dropped_total",
			Help: "Messages from members that were dropped before an actor saw them, by reason."}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_cluster_stream_panics_total",
			Help: "Streams of actor traffic that ended in a panic of the actor library."}),
	}
	for _, reason := range []string{refusedUnfinished, refusedPlaintext, refusedCertificate, refusedHandshake,
		refusedCall, refusedName, refusedMalformed} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{droppedUnknown, droppedForbidden, droppedAddress} {
		m.dropped.WithLabelValues(reason)
	}
	r.MustRegister(m.refused, m.dropped, m.panics)
	return m
}
