package node

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"rollcall/config"
)

func TestTracingIsOffByDefault(t *testing.T) {
	n := &Node{}
	if err := n.startTracing(t.Context(), config.Default(), uuid.New(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if n.tracer != nil || len(n.stops) != 0 {
		t.Error("something is traced")
	}
}
