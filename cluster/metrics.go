package cluster

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/secure"
	"rollcall/ledger"
)

type metrics struct {
	secure           *secure.Metrics
	views            prometheus.Counter
	heartbeatsFailed prometheus.Counter
	activations      prometheus.Counter
	handedOver       prometheus.Counter
	notOurs          prometheus.Counter
}

func newMetrics(r prometheus.Registerer, n *Node) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_cluster_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		secure:           secure.NewMetrics(r),
		views:            counter("views_total", "Changes of the members that this node counts on."),
		heartbeatsFailed: counter("heartbeats_failed_total", "Heartbeats that the ledger did not take."),
		activations:      counter("activations_total", "Virtual actors that started on this node."),
		handedOver:       counter("handed_over_total", "Virtual actors that ended because another node owns them."),
		notOurs:          counter("not_ours_total", "Requests for virtual actors that another node owns."),
	}
	gauge := func(name, help string, value func() float64) {
		o := prometheus.GaugeOpts{Name: "rollcall_cluster_" + name, Help: help}
		r.MustRegister(prometheus.NewGaugeFunc(o, value))
	}
	gauge("view_members", "Members that this node counts on, itself included.", func() float64 {
		return float64(len(n.lookup.view.Load().members))
	})
	gauge("voters", "Processes that share the limits of receivers, by the ledger.", func() float64 {
		return float64(n.shares.Load().Voters())
	})
	gauge("settled", "1 when every process has read the newest change of members.", func() float64 {
		return truth(n.peers == nil || n.shares.Load().Settled())
	})
	gauge("fence_up", "1 while this node uses nothing, because the ledger did not take its heartbeats.",
		func() float64 { return truth(n.Fenced()) })
	gauge("clock_offset_seconds", "The ledger's clock minus this node's.", func() float64 {
		return float64(n.offset.Load()) / 1e9
	})
	gauge("nodes_lost", "Lost processes that may still have SMTP sessions.", func() float64 {
		return float64(n.lostCount())
	})
	return m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (n *Node) lostCount() int {
	roll, count := n.snapshot.Load(), 0
	if roll == nil {
		return 0
	}
	for _, row := range roll.Nodes {
		if row.Status == ledger.NodeLost && !row.Dead && roll.Now.Sub(row.Seen) < n.times.Rest {
			count++
		}
	}
	return count
}

// quiet is the logger of the actor library: warnings and errors only, and never a message's content, because messages
// hold addresses.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(redacted{log.Handler()})
}

// redacted is a slog.Handler that drops the content of messages from the library's log.
type redacted struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h redacted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler. Only attributes of the library that never hold a message pass.
func (h redacted) Handle(ctx context.Context, r slog.Record) error {
	// This package handles what the library calls errors, such as a member that can't be dialled, and logs itself what
	// operators must know.
	out := slog.NewRecord(r.Time, slog.LevelWarn, "actor library", r.PC)
	out.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "address", "err", "error", "kind", "reason":
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler; the library's fixed attributes are not needed.
func (h redacted) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h redacted) WithGroup(string) slog.Handler { return h }
