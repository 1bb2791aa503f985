package node

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"rollcall/config"
	"rollcall/config/effort"
)

func TestTracingIsOffByDefault(t *testing.T) {
	n := &Node{}
	effort.OK(t, n.startTracing(t.Context(), config.Default(), uuid.New(), slog.New(slog.DiscardHandler)))
	effort.ErrorIf(t, n.tracer != nil || len(n.stops) != 0, "something is traced")
}
