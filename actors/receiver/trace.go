package receiver

import (
	"errors"
	"fmt"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/scheduler"
	"rollcall/actors/receiver/status"
	"rollcall/ledger/tracing"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Trace returns the newest lines of a receiver's sessions: from one source or all ("*"), with numbers above after. The
// first call starts the trace. The trace ends ten seconds after the last call. The key may be a rule's name. Errors:
// status.ErrTraces.
func (l *Registry) Trace(now time.Time, key, source string, after uint64) ([]inspect.TraceLine, error) {
	return l.Traces.Read(now, key, standsFor(key), source, after)
}

type tracer struct {
	traces  *status.Traces
	key     string // key of the receiver
	session int
	source  *egress.Source
	host    string
}

// trace makes the tracer of a session that is about to open.
func (a *sessionActor) trace(m scheduler.OpenSession) {
	a.tracer = &tracer{traces: a.socket.Traces(), key: a.socket.Key(), session: m.ID, source: m.Source, host: m.Host}
	if a.tracer.On() {
		a.tracer.line("* dialling " + m.At.String())
	}
}

func (t *tracer) On() bool { return t.traces.On() }

func (t *tracer) Said(command string) { t.line("> " + command) }

func (t *tracer) Heard(reply smtp.Reply, of smtp.Address) {
	text := status.Redact(evidence.Clean(evidence.Raw{Reply: reply, Address: of, Hello: t.source.Hello,
		ReturnPath: t.source.ReturnPath, Source: t.source.Name()}), of.Local)
	if reply.Enhanced != (smtp.EnhancedCode{}) {
		text = reply.Enhanced.String() + " " + text
	}
	t.line(fmt.Sprintf("< %d %s", reply.Code, text))
}

func (t *tracer) opened(s *smtp.Session) {
	if !t.On() {
		return
	}
	if s.TLS() {
		t.line("* ready, encrypted")
	} else {
		t.line("* ready, in clear text")
	}
}

func (t *tracer) ended(err error) {
	if t == nil || !t.On() {
		return
	}
	f := &smtp.Failure{Err: err}
	errors.As(err, &f)
	if f.Reply.Code != 0 {
		t.line(fmt.Sprintf("* over: the receiver ended it with %d at %s", f.Reply.Code, f.Stage))
		return
	}
	t.line(fmt.Sprintf("* over: %s at %s", evidence.Note(evidence.Raw{Err: f.Err}).Trouble, f.Stage))
}

func (t *tracer) line(text string) {
	now := time.Now()
	t.traces.Add(now, t.key, inspect.TraceLine{At: now, Session: t.session, Source: t.source.Name(), Host: t.host,
		Line: text})
}

// traced begins the span of a session that is about to open.
func (a *sessionActor) traced(host string) {
	_, a.span = a.spans.Begin(a.ctx, tracing.Session)
	a.span.Word(tracing.Receiver, a.socket.Key())
	a.span.Word(tracing.Source, a.source.Name())
	a.span.Word(tracing.Host, host)
}

// untraced ends the span of a session that has ended. A second call does nothing.
func (a *sessionActor) untraced() {
	if a.span.On() && a.smtp != nil {
		a.span.Count(tracing.Rcpts, int64(a.smtp.Counts().Rcpts))
		a.span.Count(tracing.Refused, int64(a.smtp.Counts().Refused))
	}
	a.span.End(a.broken)
	a.span = tracing.Span{}
}

// tracedFailure notes how far a failed session came.
func (a *sessionActor) tracedFailure(err error) {
	a.broken = true
	if f := (*smtp.Failure)(nil); errors.As(err, &f) {
		a.span.Word(tracing.Stage, f.Stage.String())
	}
}
