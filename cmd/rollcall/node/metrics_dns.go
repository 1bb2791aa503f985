package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/smtp/mx"
)

// registerDNSMetrics shows what the node asks of its DNS servers; the counts are read at each scrape.
func registerDNSMetrics(r prometheus.Registerer, resolver *mx.Resolver) {
	for _, c := range []struct {
		name, help string
		count      func(mx.Stats) uint64
	}{
		{"queries", "Questions sent to DNS servers, repeated ones and those over TCP included.",
			func(s mx.Stats) uint64 { return s.Queries }},
		{"queries_repeated", "Questions sent again because no answer came.",
			func(s mx.Stats) uint64 { return s.Repeated }},
		{"queries_over_tcp", "Questions asked over TCP, because an answer was cut short.",
			func(s mx.Stats) uint64 { return s.OverTCP }},
		{"stray_packets", "Packets that came to a question and did not answer it.",
			func(s mx.Stats) uint64 { return s.Strays }},
		{"failures", "Questions that no DNS server answered.",
			func(s mx.Stats) uint64 { return s.Failures }},
	} {
		r.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "rollcall_dns_" + c.name + "_total", Help: c.help},
			func() float64 { return float64(c.count(resolver.Stats())) }))
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_dns_lookups_waiting",
		Help: "Lookups of domains that wait for their turn (dns.at_once)."},
		func() float64 { return float64(resolver.Waiting()) }))
}
