package smtp

import (
	"bytes"
	"context"
	"strings"
)

// Tracer receives what a session sends and reads, in the goroutine that uses the session and in the order in which
// it happens.
type Tracer interface {
	// On reports whether anybody looks; nothing else is called while nobody does. It is
	// asked for every line, so it must be quick.
	On() bool
	// Said is a command as it was sent, without its end. Of RCPT the local part is
	// replaced by "…".
	Said(command string)
	// Heard is a reply as it came. Of is what RCPT asked for; of other commands it is
	// the zero value.
	Heard(reply Reply, of Address)
}

type tracerKey struct{}

// WithTracer returns a context with which Open makes sessions that tell t.
func WithTracer(ctx context.Context, t Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// tracerOf returns the tracer of a context; nil: it has none.
func tracerOf(ctx context.Context) Tracer {
	t, _ := ctx.Value(tracerKey{}).(Tracer)
	return t
}

// traceSaid tells of the commands that are being sent.
func (s *Session) traceSaid(commands []byte) {
	if s.tracer == nil || !s.tracer.On() {
		return
	}
	for line := range bytes.SplitSeq(commands, []byte("\r\n")) {
		if len(line) > 0 {
			s.tracer.Said(withoutLocal(string(line)))
		}
	}
}

// traceHeard tells of a reply.
func (s *Session) traceHeard(reply Reply, of Address) {
	if s.tracer != nil && s.tracer.On() {
		s.tracer.Heard(reply, of)
	}
}

// rcptTo is how RCPT begins.
const rcptTo = "RCPT TO:<"

// withoutLocal takes the local part out of RCPT. A quoted one may hold an "@", a domain
// never does.
func withoutLocal(command string) string {
	rest, isRcpt := strings.CutPrefix(command, rcptTo)
	if !isRcpt {
		return command
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return rcptTo + "…>"
	}
	return rcptTo + "…" + rest[at:]
}
