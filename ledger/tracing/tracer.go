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
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
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

// Name is what a span is about.
type Name string

// The spans there are.
const (
	Request      Name = "http.request"   // one request of the API
	Upload       Name = "upload.request" // one request of the storage URL
	Append       Name = "upload.append"  // a chunk of a file made durable
	Lease        Name = "lease"          // verifications taken from the ledger
	Intake       Name = "intake"         // a file read into memory
	Settle       Name = "settle"         // outcomes and what they cost, committed
	Session      Name = "smtp.session"   // from the dial to the end of an SMTP session
	LedgerWrite  Name = "ledger.write"   // a transaction, with the times it was run again
	LedgerRead   Name = "ledger.read"    // a reading
	scopeName         = "rollcall"       // of the instrumentation
	wordBytesMax      = 100              // a host name that is longer is cut; ours are shorter
	notAWordOurs      = "(not told)"     // stands for a word that looks like an address
)

// Key is what an attribute is called.
type Key string

// The attributes there are.
const (
	Verification Key = "rollcall.verification" // UUID
	Settlement   Key = "rollcall.settlement"   // its number within the verification
	Addresses    Key = "rollcall.addresses"    // a number of them
	Bytes        Key = "rollcall.bytes"
	Attempts     Key = "rollcall.attempts" // at one transaction
	Leases       Key = "rollcall.leases"
	Receiver     Key = "rollcall.receiver" // key: of hosts, a suffix or a mail domain
	Source       Key = "rollcall.source"   // IP address of ours
	Stage        Key = "rollcall.stage"    // how far an SMTP session came
	Rcpts        Key = "rollcall.rcpts"
	Refused      Key = "rollcall.refused"
	Host         Key = "server.address"
	Route        Key = "http.route" // a template, never a path
	Method       Key = "http.request.method"
	Status       Key = "http.response.status_code"
)

// Tracer begins spans. A nil Tracer begins none: that is how tracing is off. Safe for
// concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Span is one part of the work. The zero Span is that of a nil Tracer: nothing happens.
// One goroutine uses it at a time.
type Span struct{ span trace.Span }

// Begin begins a span, below that of ctx when there is one.
func (t *Tracer) Begin(ctx context.Context, name Name) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(ctx, string(name))
	return ctx, Span{s}
}

// Past returns a span that began a while ago, for what is only worth one in hindsight.
func (t *Tracer) Past(name Name, began time.Time) Span {
	if t == nil {
		return Span{}
	}
	_, s := t.tracer.Start(context.Background(), string(name), trace.WithTimestamp(began))
	return Span{s}
}

// Under returns a context whose spans stand below s.
func (s Span) Under(ctx context.Context) context.Context {
	if !s.On() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Within begins a span below that of ctx; without one there is nothing to begin.
func Within(ctx context.Context, name Name) (context.Context, Span) {
	outer := trace.SpanFromContext(ctx)
	if !outer.IsRecording() {
		return ctx, Span{}
	}
	ctx, s := outer.TracerProvider().Tracer(scopeName).Start(ctx, string(name))
	return ctx, Span{s}
}

// On reports whether it is worth finding out what to note.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// Word notes a word of ours: a route, a stage, a host. A word with an @ is left out.
func (s Span) Word(key Key, word string) {
	if !s.On() {
		return
	}
	if strings.ContainsRune(word, '@') {
		word = notAWordOurs
	}
	s.span.SetAttributes(attribute.String(string(key), word[:min(len(word), wordBytesMax)]))
}

// Count notes a number.
func (s Span) Count(key Key, n int64) {
	if s.On() {
		s.span.SetAttributes(attribute.Int64(string(key), n))
	}
}

// ID notes a UUID, unless it is the nil UUID.
func (s Span) ID(key Key, id uuid.UUID) {
	if s.On() && id != uuid.Nil {
		s.span.SetAttributes(attribute.String(string(key), id.String()))
	}
}

// End ends the span. A failure is noted without its text, which may hold what others said.
func (s Span) End(failed bool) {
	if s.span == nil {
		return
	}
	if failed {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
