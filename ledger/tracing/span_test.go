package tracing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"rollcall/config/effort"
)

// recording returns a Tracer whose spans are kept.
func recording(t *testing.T, sample float64) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	kept := tracetest.NewSpanRecorder()
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(kept),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(sample))))
	return New(p), kept
}

// work is what a traced part of the program does.
func work(ctx context.Context, tracer *Tracer, id uuid.UUID) {
	ctx, s := tracer.Begin(ctx, Settle)
	_, inner := Within(ctx, LedgerWrite)
	inner.Count(Attempts, 1)
	inner.End(false)
	_, inner = Within(s.Under(context.Background()), LedgerRead)
	inner.End(false)
	s.ID(Verification, id)
	s.Word(Route, "/v1/credits")
	s.End(false)
	past := tracer.Past(Lease, time.Time{})
	past.Count(Leases, 1)
	past.End(true)
}

func TestNothingIsDoneWhileTracingIsOff(t *testing.T) {
	id, ctx := uuid.New(), context.Background()
	effort.Is(t, testing.AllocsPerRun(100, func() { work(ctx, nil, id) }), 0)
}

func TestSpansStandBelowTheOneTheyBelongTo(t *testing.T) {
	tracer, kept := recording(t, 1)
	work(t.Context(), tracer, uuid.New())
	spans := map[string]sdk.ReadOnlySpan{}
	for _, s := range kept.Ended() {
		spans[s.Name()] = s
	}
	outer := spans[string(Settle)].SpanContext().SpanID()
	for _, name := range []Name{LedgerWrite, LedgerRead} {
		effort.Is(t, spans[string(name)].Parent().SpanID(), outer, fmt.Sprintf("%s stands below", name))
	}
	effort.ErrorIf(t, spans[string(Lease)].Parent().IsValid() || len(spans) != 4,
		"spans %v, want four, and the lease at the top", spans)
}

func TestOnlyThePartThatWasAskedForIsSampled(t *testing.T) {
	tracer, kept := recording(t, 0)
	work(t.Context(), tracer, uuid.New())
	effort.Is(t, len(kept.Ended()), 0, "spans of a sample of 0")
}

func TestNoAddressAndNoLongTextGetsIntoASpan(t *testing.T) {
	tracer, kept := recording(t, 1)
	_, s := tracer.Begin(t.Context(), Session)
	s.Word(Host, "anna@example.net")
	s.Word(Receiver, strings.Repeat("x", 1000))
	s.ID(Verification, uuid.Nil)
	s.End(true)
	got := kept.Ended()[0]
	for _, a := range got.Attributes() {
		v := a.Value.AsString()
		effort.ErrorIf(t, strings.Contains(v, "anna") || len(v) > wordBytesMax, "%s is %q", a.Key, v)
	}
	effort.ErrorIf(t, len(got.Attributes()) != 2 || got.Status().Description != "",
		"attributes %v, status %q", got.Attributes(), got.Status().Description)
}
