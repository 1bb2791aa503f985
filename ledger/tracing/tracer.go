package tracing

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
)

const (
	// tracesPath is where OTLP over HTTP takes traces (OTLP specification 1.3).
	tracesPath = "/v1/traces"

	// sendWithin bounds one batch, queueMax what waits for a collector that is slow or
	// away: then spans are dropped. Some hundred bytes each. Guess.
	sendWithin = 5 * time.Second
	queueMax   = 2048

	// complainEvery keeps a collector that is away from filling the log.
	complainEvery = time.Minute
)

// Options say where spans go.
type Options struct {
	// Endpoint is host:port, for http://host:port/v1/traces, or a URL; "": tracing is off.
	Endpoint string
	Sample   float64 // the part of the traces that is sent, 0 to 1
	Node     uuid.UUID
	Version  string
	Log      *slog.Logger
}

// New makes a Tracer; nil when tracing is off. It does not wait for the collector.
// Headers that the collector wants, such as a token, are read from
// OTEL_EXPORTER_OTLP_HEADERS, as everywhere with OpenTelemetry.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	at, err := endpointURL(o.Endpoint)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(at),
		otlptracehttp.WithTimeout(sendWithin))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: o.Log})
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(queueMax), sdk.WithExportTimeout(sendWithin)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Sample))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", scopeName),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Node.String()))))
	return &Tracer{provider: provider, tracer: provider.Tracer(scopeName)}, nil
}

// endpointURL returns the URL that an endpoint means.
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

// Stop sends what is left, while ctx lasts. Spans that end later are lost. A nil Tracer
// has nothing to stop.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// complaints logs that spans could not be sent, now and then.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // Unix nanoseconds
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	now, last := time.Now().UnixNano(), c.last.Load()
	if now-last < int64(complainEvery) || !c.last.CompareAndSwap(last, now) {
		return
	}
	c.log.Warn("spans not sent", "err", err)
}
