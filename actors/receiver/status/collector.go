package status

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
)

const (
	// collectedMax bounds the receivers with their own series (see labels). The others are summed as collectedRest,
	// which is no host name.
	collectedMax  = 50
	collectedRest = "(rest)"

	// collectWithin bounds how long a scrape waits for receivers.
	collectWithin = time.Second
)

// collector computes the gauges of single receivers at a scrape.
type collector struct {
	survey func(ctx context.Context) ([]inspect.Receiver, bool)
	labels *labels
}

// NewCollector makes the collector of the receivers that survey returns; false: there is no node yet. survey must end
// with its context.
func NewCollector(survey func(ctx context.Context) (all []inspect.Receiver, ok bool)) prometheus.Collector {
	return collector{survey, &labels{}}
}

// ofReceiver are the gauges of one receiver, and what they are.
var ofReceiver = [...]struct {
	desc *prometheus.Desc
	of   func(r *inspect.Receiver) float64
	mean bool // averaged over the rest, not summed
	most bool // of the rest
}{
	{desc: describe("sessions", "SMTP sessions open or opening."),
		of: func(r *inspect.Receiver) float64 { return float64(r.Sessions) }},
	{desc: describe("sessions_allowed", "SMTP sessions allowed at once."),
		of: func(r *inspect.Receiver) float64 { return float64(r.Most) }},
	{desc: describe("rcpts_per_second", "RCPT commands a second, over the last ten seconds."),
		of: func(r *inspect.Receiver) float64 { return r.Rcpts }},
	{desc: describe("permitted_rcpts_per_second",
		"RCPT commands a second that are permitted, by the limits and by the rate that was found."),
		of: func(r *inspect.Receiver) float64 { return r.Allowed }},
	{desc: describe("allowed_rcpts_per_second", "RCPT commands a second that the configured limits permit."),
		of: func(r *inspect.Receiver) float64 { return r.Ceiling }},
	{desc: describe("queued", "Addresses that could be asked now and have no answer, handed over yet or not, on the wire or not."),
		of: func(r *inspect.Receiver) float64 { return float64(r.Queued) }},
	{desc: describe("oldest_seconds",
		"How long the oldest address without an answer has waited, handed over yet or not."),
		of: func(r *inspect.Receiver) float64 { return r.Oldest }, most: true},
	{desc: describe("refused_ratio", "Fraction of replies in the last ten minutes that refused an address."),
		of: func(r *inspect.Receiver) float64 { return r.Refused }, mean: true},
	{desc: describe("deferred_ratio", "Fraction of replies in the last ten minutes that were deferrals (4xx)."),
		of: func(r *inspect.Receiver) float64 { return r.Deferred }, mean: true},
	{desc: describe("refusals_left", "Refusals that may still be caused within the hour."),
		of: func(r *inspect.Receiver) float64 { return float64(r.Budget) }},
}

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("rollcall_receiver_"+name, help+
		" Of the 50 receivers with the most queued; all others are \""+collectedRest+"\".",
		[]string{"receiver"}, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range ofReceiver {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	all, ok := c.survey(ctx)
	if !ok {
		return
	}
	top, rest := c.labels.busiest(time.Now(), all)
	for i := range top {
		for _, g := range ofReceiver {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(&top[i]), top[i].Key)
		}
	}
	for _, g := range ofReceiver {
		value := 0.0
		for i := range rest {
			if one := g.of(&rest[i]); g.most {
				value = max(value, one)
			} else {
				value += one
			}
		}
		if g.mean && len(rest) > 0 {
			value /= float64(len(rest))
		}
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, collectedRest)
	}
}
