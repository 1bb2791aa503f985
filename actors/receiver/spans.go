package receiver

import (
	"errors"

	"rollcall/ledger/tracing"
	"rollcall/smtp"
)

// traced begins the span of a session that is about to be opened.
func (a *sessionActor) traced(host string) {
	_, a.span = a.spans.Begin(a.ctx, tracing.Session)
	a.span.Word(tracing.Receiver, a.socket.Key())
	a.span.Word(tracing.Source, a.source.Name())
	a.span.Word(tracing.Host, host)
}

// untraced ends the span of a session that has ended; a second call does nothing.
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
