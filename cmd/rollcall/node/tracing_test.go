package node

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"rollcall/config"
)

func TestTracingIsOffByDefault(t *testing.T) {
	n := &Node{}
	noError(t, n.startTracing(t.Context(), config.Default(), uuid.New(), slog.New(slog.DiscardHandler)))
	if n.tracer != nil || len(n.stops) != 0 {
		t.Error("something is traced")
	}
}
