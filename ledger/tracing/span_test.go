package tracing

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
	return &Tracer{provider: p, tracer: p.Tracer(scopeName)}, kept
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
	off, err := New(t.Context(), Options{})
	effort.FatalIf(t, off != nil || err != nil, "got %v and %v, want nothing", off, err)
	id, ctx := uuid.New(), context.Background()
	effort.Is(t, testing.AllocsPerRun(100, func() { work(ctx, off, id) }), 0)
	effort.OK(t, off.Stop(ctx))
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

func TestEndpointsAreURLs(t *testing.T) {
	for text, want := range map[string]string{
		"otel:4318":                        "http://otel:4318/v1/traces",
		"http://otel:4318/":                "http://otel:4318/v1/traces",
		"https://otel.example.com/in/here": "https://otel.example.com/in/here",
		"http://[::1":                      "",
	} {
		if got, err := endpointURL(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q and %v, want %q", text, got, err, want)
		}
	}
}

func TestACollectorThatIsAwayIsToldOfOnceInAWhile(t *testing.T) {
	var asked atomic.Int64
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer away.Close()
	var log lines
	tracer := effort.Must(New(t.Context(), Options{Endpoint: away.URL, Sample: 1, Node: uuid.New(),
		Log: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	for range 3 {
		work(t.Context(), tracer, uuid.New())
		effort.Not(t, tracer.provider.ForceFlush(t.Context()), nil, "the collector took spans that it refused")
	}
	_ = tracer.Stop(t.Context())
	c := complaints{log: slog.New(slog.NewTextHandler(&log, nil))}
	before := log.count.Load()
	for range 100 {
		c.Handle(io.ErrUnexpectedEOF)
	}
	if got := log.count.Load() - before; got != 1 || asked.Load() < 3 {
		t.Errorf("%d lines for 100 errors, and %d requests; want one line", got, asked.Load())
	}
}

// lines counts what is logged.
type lines struct{ count atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(1)
	return len(p), nil
}
