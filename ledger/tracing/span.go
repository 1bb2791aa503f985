package tracing

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

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
