package gossip

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// What goes over the network, and where to, as labels of metrics.
const (
	unitPacket   = "packet"
	unitStream   = "stream"
	directionIn  = "in"
	directionOut = "out"
)

// meters counts what the gossip of a node does.
type meters struct {
	bytes   *prometheus.CounterVec
	units   *prometheus.CounterVec
	drops   *prometheus.CounterVec
	refused *prometheus.CounterVec
	all     []prometheus.Collector
}

// newMeters registers the metrics; t is where the members are counted.
func newMeters(r prometheus.Registerer, t *table) (*meters, error) {
	m := &meters{
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_bytes_total",
			Help: "Bytes of gossip, by direction and unit (packet, stream)."}, []string{"direction", "unit"}),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_units_total",
			Help: "Packets and streams of gossip, by direction."}, []string{"direction", "unit"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_dropped_total",
			Help: "Packets and streams that the guard dropped, by reason."}, []string{"unit", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_refused_total",
			Help: "Times a node was refused as a member, by what differs."}, []string{"reason"}),
	}
	m.all = []prometheus.Collector{m.bytes, m.units, m.drops, m.refused}
	for _, state := range []string{stateAlive, stateSuspect, stateDraining} {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_gossip_members",
			Help:        "Members that this node sees, itself included: alive, suspect (no answer), or draining.",
			ConstLabels: prometheus.Labels{"state": state}},
			func() float64 { return float64(t.count(state)) }))
	}
	var err error
	for _, c := range m.all {
		err = errors.Join(err, r.Register(c))
	}
	return m, err
}

// unregister takes the metrics of a gossip that has stopped away.
func (m *meters) unregister(r prometheus.Registerer) {
	for _, c := range m.all {
		r.Unregister(c)
	}
}

func (m *meters) received(unit string, n int) {
	m.bytes.WithLabelValues(directionIn, unit).Add(float64(n))
	if unit == unitPacket {
		m.units.WithLabelValues(directionIn, unit).Inc()
	}
}

func (m *meters) sent(unit string, n int) {
	m.bytes.WithLabelValues(directionOut, unit).Add(float64(n))
	if unit == unitPacket {
		m.units.WithLabelValues(directionOut, unit).Inc()
	}
}

func (m *meters) stream(direction string) { m.units.WithLabelValues(direction, unitStream).Inc() }

func (m *meters) drop(unit string, why reason) { m.drops.WithLabelValues(unit, string(why)).Inc() }

func (m *meters) refuse(what string) { m.refused.WithLabelValues(what).Inc() }
