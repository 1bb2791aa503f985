package smtp

import (
	"bytes"
	"context"
	"strings"
)

// Tracer gets what a session sends and reads, in order, in the goroutine of the session.
type Tracer interface {
	// On reports whether anybody follows the trace; otherwise nothing else is called. It is called for every line,
	// so it must be quick.
	On() bool
	// Said gets a command as it was sent, without the line end. In RCPT the local part is replaced by "…".
	Said(command string)
	// Heard gets a reply. of is the address of its RCPT, or zero for other commands.
	Heard(reply Reply, of Address)
}

type tracerKey struct{}

// WithTracer returns a context whose sessions are traced by t.
func WithTracer(ctx context.Context, t Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// tracerOf returns the tracer of a context, or nil.
func tracerOf(ctx context.Context) Tracer {
	t, _ := ctx.Value(tracerKey{}).(Tracer)
	return t
}

// traceSaid passes the commands that are being sent to the tracer.
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

func (s *Session) traceHeard(reply Reply, of Address) {
	if s.tracer != nil && s.tracer.On() {
		s.tracer.Heard(reply, of)
	}
}

// rcptTo is the start of a RCPT command.
const rcptTo = "RCPT TO:<"

// withoutLocal replaces the local part in RCPT. A quoted local part may hold an "@", a domain never does.
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
