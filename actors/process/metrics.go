package process

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// NewCounter registers a counter; rollcall_ comes before its name.
func NewCounter(r prometheus.Registerer, name, help string) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: "rollcall_" + name, Help: help})
}

// NewGauge registers a gauge as NewCounter does.
func NewGauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: "rollcall_" + name, Help: help})
}

// NewGaugeFunc registers a gauge that is read at each scrape.
func NewGaugeFunc(r prometheus.Registerer, name, help string, value func() float64) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_" + name, Help: help}, value)
}
