package effort

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sum adds up the series of a counter or a gauge that have these labels ("reason=ledger"); 0 if there is none.
func Sum(t failer, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	sum, _ := series(t, from, name, labels)
	return sum
}

// Metric is Sum for series that must be there.
func Metric(t failer, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	sum, found := series(t, from, name, labels)
	if !found {
		t.Fatal("there is no ", name, labels)
	}
	return sum
}

func series(t failer, from prometheus.Gatherer, name string, labels []string) (sum float64, found bool) {
	t.Helper()
	for _, f := range Must(from.Gather())(t) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && !slices.ContainsFunc(labels, func(l string) bool { return !labelled(m, l) }) {
				sum, found = sum+m.GetCounter().GetValue()+m.GetGauge().GetValue(), true
			}
		}
	}
	return sum, found
}

func labelled(m *dto.Metric, label string) bool {
	return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == label })
}
