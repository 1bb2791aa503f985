package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"rollcall/config"
	"rollcall/ledger/tracing"
)

const (
	// tracesPath is the path of OTLP over HTTP for traces (OTLP specification 1.3).
	tracesPath = "/v1/traces"

	// sendWithin bounds the sending of one batch, queueMax the spans that wait for a slow or dead collector; further
	// spans are dropped. Some hundred bytes each. Guess.
	sendWithin = 5 * time.Second
	queueMax   = 2048

	// lastSpansWithin bounds how long a stopping node waits for its collector. Guess: a healthy collector takes
	// milliseconds, or over two seconds on a busy machine.
	lastSpansWithin = 10 * time.Second

	// complainEvery keeps a dead collector from filling the log.
	complainEvery = time.Minute
)

// startTracing makes the exporter of spans, and doesn't wait for the collector. It does nothing if tracing is disabled.
// OTEL_EXPORTER_OTLP_HEADERS has headers for the collector, such as a token, as usual with OpenTelemetry.
func (n *Node) startTracing(ctx context.Context, c config.Tracing, id uuid.UUID, log *slog.Logger) error {
	if c.Endpoint == "" {
		return nil
	}
	provider, err := spansTo(ctx, c, id, log)
	if err != nil {
		return err
	}
	n.tracer = tracing.New(provider)
	n.add("tracing", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpansWithin)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil { // lost spans don't make the stop a failure
			log.Warn("last spans not sent", "err", err)
		}
		return nil
	})
	return nil
}

func spansTo(ctx context.Context, c config.Tracing, id uuid.UUID, log *slog.Logger) (*sdk.TracerProvider, error) {
	at, err := endpointURL(c.Endpoint)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(at), otlptracehttp.WithTimeout(sendWithin))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log})
	return sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(queueMax), sdk.WithExportTimeout(sendWithin)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(c.Sample))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", tracing.Scope),
			attribute.String("service.version", ThisVersion().Version),
			attribute.String("service.instance.id", id.String())))), nil
}

func endpointURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("tracing.endpoint is neither host:port nor a URL")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// complaints logs at intervals that spans could not be sent.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // Unix nanoseconds
}

func (c *complaints) Handle(err error) {
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last < int64(complainEvery) || !c.last.CompareAndSwap(last, now) {
		return
	}
	c.log.Warn("spans not sent", "err", err)
}
