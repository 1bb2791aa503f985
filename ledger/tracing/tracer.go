package tracing

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Name is the subject of a span.
type Name string

// The names of spans.
const (
	Request      Name = "http.request"   // one request of the API
	Upload       Name = "upload.request" // one request of the storage URL
	Append       Name = "upload.append"  // a chunk of a file made durable
	Lease        Name = "lease"          // verifications taken from the ledger
	Intake       Name = "intake"         // a file read into memory
	Settle       Name = "settle"         // a settlement committed
	Session      Name = "smtp.session"   // from the dial to the end of an SMTP session
	LedgerWrite  Name = "ledger.write"   // a transaction, with all its runs
	LedgerRead   Name = "ledger.read"    // a reading
	wordBytesMax      = 100              // longer host names are cut; ours are shorter
	notAWordOurs      = "(not told)"     // replaces a word that looks like an address
)

// Key is the name of an attribute.
type Key string

// The attributes.
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

// Scope names the instrumentation, and the service.
const Scope = "rollcall"

// Tracer begins spans. A nil Tracer begins none, so tracing is off. Safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New makes a Tracer whose spans go where p sends them.
func New(p trace.TracerProvider) *Tracer { return &Tracer{p.Tracer(Scope)} }

// Span is one part of the work. The zero Span, from a nil Tracer, does nothing. It is for one goroutine at a time.
type Span struct{ span trace.Span }

// Begin begins a span, as a child of the one in ctx, if any.
func (t *Tracer) Begin(ctx context.Context, name Name) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(ctx, string(name))
	return ctx, Span{s}
}

// Past returns a span that began earlier, for work whose interest shows only afterwards.
func (t *Tracer) Past(name Name, began time.Time) Span {
	if t == nil {
		return Span{}
	}
	_, s := t.tracer.Start(context.Background(), string(name), trace.WithTimestamp(began))
	return Span{s}
}

// Under returns a context whose spans are children of s.
func (s Span) Under(ctx context.Context) context.Context {
	if !s.On() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Within begins a child of the span in ctx; without one it does nothing.
func Within(ctx context.Context, name Name) (context.Context, Span) {
	outer := trace.SpanFromContext(ctx)
	if !outer.IsRecording() {
		return ctx, Span{}
	}
	ctx, s := outer.TracerProvider().Tracer(Scope).Start(ctx, string(name))
	return ctx, Span{s}
}

// On reports whether the span is recorded, so that its attributes are worth computing.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// Word records one of our words: a route, a stage, a host. It leaves out a word with an @.
func (s Span) Word(key Key, word string) {
	if !s.On() {
		return
	}
	if strings.ContainsRune(word, '@') {
		word = notAWordOurs
	}
	s.span.SetAttributes(attribute.String(string(key), word[:min(len(word), wordBytesMax)]))
}

// Count records a number.
func (s Span) Count(key Key, n int64) {
	if s.On() {
		s.span.SetAttributes(attribute.Int64(string(key), n))
	}
}

// ID records a UUID, unless it is the nil UUID.
func (s Span) ID(key Key, id uuid.UUID) {
	if s.On() && id != uuid.Nil {
		s.span.SetAttributes(attribute.String(string(key), id.String()))
	}
}

// End ends the span. It records a failure without its text, which may quote others.
func (s Span) End(failed bool) {
	if s.span == nil {
		return
	}
	if failed {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
