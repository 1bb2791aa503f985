package node

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/smtp/throttle"
)

// throttleMetrics shows what operators and their file have made of allowances.
type throttleMetrics struct {
	fileUsed prometheus.Gauge
	loaded   prometheus.Gauge
	says     prometheus.Gauge
	table    *throttle.Table
}

// newThrottleMetrics registers them; the table is read at each scrape.
func newThrottleMetrics(r prometheus.Registerer, table *throttle.Table) *throttleMetrics {
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: "rollcall_throttle_" + name, Help: help}
	}
	m := &throttleMetrics{table: table,
		fileUsed: prometheus.NewGauge(gauge("file_used",
			"1: the throttle file is in force as it is, or there is none. 0: it has a fault, and the rules before "+
				"it are in force.")),
		loaded: prometheus.NewGauge(gauge("file_loaded_timestamp_seconds",
			"When the throttle rules in force were read; at first the start of the node.")),
		says: prometheus.NewGauge(gauge("rules_fingerprint",
			"A hash of the rules: nodes with different rules have different values.")),
	}
	r.MustRegister(m.fileUsed, m.loaded, m.says,
		prometheus.NewGaugeFunc(gauge("rules", "Rules of the configuration and the throttle file that are in force."),
			func() float64 { return float64(len(table.Rules(throttle.LayerFile))) }),
		prometheus.NewGaugeFunc(gauge("overrides", "Overrides of operators that are in force."),
			func() float64 { return float64(len(table.Rules(throttle.LayerOverride))) }),
		prometheus.NewGaugeFunc(gauge("override_ends_timestamp_seconds",
			"When the first of the overrides in force ends; 0 when there is none."),
			func() float64 { return firstEnd(table.Rules(throttle.LayerOverride)) }))
	m.file(nil)
	return m
}

// file notes that the throttle file was read, or why it is not used.
func (m *throttleMetrics) file(err error) {
	if err != nil {
		m.fileUsed.Set(0)
		return
	}
	m.fileUsed.Set(1)
	m.says.Set(fingerprint(m.table.Rules(throttle.LayerFile)))
	m.loaded.SetToCurrentTime()
}

// fingerprint is throttle.Fingerprint as a number that a float64 bears exactly.
func fingerprint(rules []throttle.Rule) float64 {
	n, err := strconv.ParseUint(throttle.Fingerprint(rules)[:fingerprintDigits], 16, 64)
	if err != nil {
		panic(err) // it has hexadecimal digits only
	}
	return float64(n)
}

// fingerprintDigits are 48 bits: two other files have the same ones once in 2^48 times.
const fingerprintDigits = 12

// firstEnd is when the first of some overrides ends, in Unix seconds.
func firstEnd(overrides []throttle.Rule) float64 {
	var first time.Time
	for _, o := range overrides {
		if first.IsZero() || o.Until.Before(first) {
			first = o.Until
		}
	}
	if first.IsZero() {
		return 0
	}
	return float64(first.UnixMilli()) / 1e3
}
