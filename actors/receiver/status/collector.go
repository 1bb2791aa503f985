package status

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
)

const (
	// collectedMax bounds the receivers that have their own series (see labels). All others are summed as collectedRest,
	// which is no host name.
	collectedMax  = 50
	collectedRest = "(rest)"

	// collectWithin bounds how long a scrape waits for receivers.
	collectWithin = time.Second
)

// collector computes the gauges of single receivers when they are scraped.
type collector struct {
	collect func(ctx context.Context) ([]inspect.Receiver, bool)
	labels  *labels
}

// NewCollector makes the collector of the receivers that collect returns. False: there is no node yet. collect must end
// with its context.
func NewCollector(collect func(ctx context.Context) (all []inspect.Receiver, ok bool)) prometheus.Collector {
	return collector{collect, &labels{}}
}

var ofReceiver = [...]struct {
	desc *prometheus.Desc
	of   func(r *inspect.Receiver) float64
	mean bool // averaged over all other receivers, not summed
	most bool // the highest of all other receivers
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
	{desc: describe("oldest_seconds", "How long the oldest address without an answer has waited, handed over yet or not."),
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
		" Of the 50 receivers with the most queued; all others are \""+collectedRest+"\".", []string{"receiver"}, nil)
}

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range ofReceiver {
		out <- g.desc
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	all, ok := c.collect(ctx)
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

const (
	// labelsNew bounds the receivers that get a new label in any hour. Each label makes some ten series, which Prometheus
	// keeps for weeks.
	labelsNew = 99
	labelsPer = time.Hour
)

// labels decides which receivers have their own series. Safe for concurrent use.
type labels struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu; when a key last had a label
	came []time.Time          // guarded by mu; when keys got a new label, within labelsPer
}

// busiest splits receivers into receivers with a label, most queued first, and all others. A key may live here twice
// during a move; then the busier one counts.
func (l *labels) busiest(now time.Time, all []inspect.Receiver) (top, rest []inspect.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	inspect.SortReceivers(all)
	shown := map[string]bool{}
	for _, r := range all {
		if len(top) < collectedMax && !shown[r.Key] && l.give(now, r.Key) {
			shown[r.Key] = true
			top = append(top, r)
		} else {
			rest = append(rest, r)
		}
	}
	return top, rest
}

// expire forgets what is older than an hour.
func (l *labels) expire(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) >= labelsPer }
	maps.DeleteFunc(l.last, func(_ string, at time.Time) bool { return old(at) })
	l.came = slices.DeleteFunc(l.came, old)
}

// give gives a key a label if it had one within the hour, or if labelsNew permits.
func (l *labels) give(now time.Time, key string) bool {
	if _, known := l.last[key]; !known {
		if len(l.came) >= labelsNew {
			return false
		}
		l.came = append(l.came, now)
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	l.last[key] = now
	return true
}
