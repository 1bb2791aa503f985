package cluster

import (
	"context"
	"log/slog"
)

// quiet is the logger that the actor library gets: warnings and errors only, and
// never a message's content, because messages hold addresses.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(redacted{log.Handler()})
}

// redacted is a slog.Handler that drops what the library logs of messages.
type redacted struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h redacted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler. Of the library's attributes only those that
// are known to hold no message pass.
func (h redacted) Handle(ctx context.Context, r slog.Record) error {
	// What the library calls an error, such as a member that cannot be dialled, this
	// package handles; it says itself when somebody has to know.
	out := slog.NewRecord(r.Time, slog.LevelWarn, "actor library", r.PC)
	out.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "address", "err", "error", "kind", "reason":
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler; the library's fixed attributes say nothing we need.
func (h redacted) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h redacted) WithGroup(string) slog.Handler { return h }
