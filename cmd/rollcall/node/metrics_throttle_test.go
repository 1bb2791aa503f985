package node

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

func TestThrottleMetricsFollowTheTable(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	registry, began := prometheus.NewRegistry(), time.Now()
	m := newThrottleMetrics(registry, table)
	read := func() map[string]float64 {
		values := map[string]float64{}
		gathered := effort.Must(registry.Gather())(t)
		for _, g := range gathered {
			values[g.GetName()] = g.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
	const prefix = "rollcall_throttle_"
	at := read()
	effort.ErrorIf(t, at[prefix+"file_used"] != 1 || at[prefix+"overrides"] != 0 ||
		at[prefix+"override_ends_timestamp_seconds"] != 0, "at first: %v", at)
	loaded := at[prefix+"file_loaded_timestamp_seconds"]
	effort.ErrorIf(t, loaded < float64(began.Unix()), "loaded at %v, want now", loaded)
	var set throttle.Override
	effort.OK(t, set.Set(throttle.Fields()[0], throttle.DefaultLimits().Text(throttle.Fields()[0])))
	later, soon := time.Unix(2_000_000_000, 0), time.Unix(1_900_000_000, 0)
	err := table.Replace(throttle.LayerOverride, []throttle.Rule{{Name: "a.test", Set: set, Until: later},
		{Name: "b.test", Set: set, Until: soon}})
	if err == nil {
		err = table.Replace(throttle.LayerFile, []throttle.Rule{{Name: "c.test", Set: set}})
	}
	effort.OK(t, err)
	if m.file(nil); read()[prefix+"rules_fingerprint"] == at[prefix+"rules_fingerprint"] {
		t.Error("a rule more, and the fingerprint is the same")
	}
	one := read()[prefix+"rules_fingerprint"]
	var other throttle.Override // as many rules that say something else
	effort.OK(t, errors.Join(other.Set(throttle.FieldConnections, "7"),
		table.Replace(throttle.LayerFile, []throttle.Rule{{Name: "c.test", Set: other}})))
	if m.file(nil); read()[prefix+"rules_fingerprint"] == one {
		t.Error("another rule of the same name, and the fingerprint is the same")
	}
	m.file(errors.New("line 3"))
	at = read()
	effort.ErrorIf(t, at[prefix+"file_used"] != 0 || at[prefix+"overrides"] != 2 || at[prefix+"rules"] != 1 ||
		at[prefix+"override_ends_timestamp_seconds"] != 1_900_000_000, "with a fault, a rule and two overrides: %v", at)
	m.file(nil)
	effort.ErrorIf(t, read()[prefix+"file_used"] != 1, "the file is used again, and the metric does not say so")
}
