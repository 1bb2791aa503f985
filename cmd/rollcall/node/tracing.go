package node

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"rollcall/config"
	"rollcall/ledger/tracing"
)

// lastSpansWithin bounds how long a node that stops waits for its collector. Guess: a
// healthy one takes milliseconds.
const lastSpansWithin = 2 * time.Second

// startTracing makes what sends spans; nothing when tracing is off.
func (n *Node) startTracing(ctx context.Context, c config.Config, id uuid.UUID, log *slog.Logger) (err error) {
	n.tracer, err = tracing.New(ctx, tracing.Options{Endpoint: c.Tracing.Endpoint, Sample: c.Tracing.Sample, Node: id,
		Version: VersionOf(debug.ReadBuildInfo()).Version, Log: log})
	if n.tracer == nil {
		return err
	}
	n.add("tracing", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpansWithin)
		defer cancel()
		if err := n.tracer.Stop(ctx); err != nil { // no reason to end with a failure
			log.Warn("last spans not sent", "err", err)
		}
		return nil
	})
	return nil
}
