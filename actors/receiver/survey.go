package receiver

import (
	"context"
	"slices"
	"time"

	"rollcall/actors/view"
	"rollcall/smtp/shaping"
)

// look is a question about the desk of an actor.
type look struct {
	at func(d *desk, now time.Time)
}

// Survey says what every receiver does that lives here. It ends with ctx, and gives
// those that have answered until then.
func (l *Living) Survey(ctx context.Context) []view.Receiver {
	return inquire(ctx, l, func(string) bool { return true }, (*desk).tell)
}

// Detail says everything about the receivers that a key, or the name of a rule, stands
// for: each shard is one. It ends with ctx, as Survey does.
func (l *Living) Detail(ctx context.Context, key string) []view.ReceiverDetail {
	return inquire(ctx, l, standsFor(key), (*desk).tellAllOf)
}

// Close ends one session of a receiver, after the command that is on the wire, and says
// whether there was one. The numbers are those of Detail; of a name that stands
// for several receivers, each of them ends the session of that number.
func (l *Living) Close(ctx context.Context, key string, session int) bool {
	end := func(d *desk, _ time.Time) bool { return d.closeSession(session) }
	return slices.Contains(inquire(ctx, l, standsFor(key), end), true)
}

// standsFor says which receiver keys a key or the name of a rule stands for.
func standsFor(name string) func(key string) bool {
	return func(key string) bool {
		return key == name || shaping.NameOf(key) == name || shaping.Unsharded(key) == name
	}
}

// inquire asks the actors of some receivers and gives their answers as far as they have
// come until ctx is done.
func inquire[T any](
	ctx context.Context, l *Living, which func(key string) bool, of func(d *desk, now time.Time) T,
) []T {
	tells := l.tells(which)
	answers := make(chan T, len(tells)) // nobody blocks
	for _, tell := range tells {
		tell(look{at: func(d *desk, now time.Time) { answers <- of(d, now) }})
	}
	out := make([]T, 0, len(tells))
	for range tells {
		select {
		case one := <-answers:
			out = append(out, one)
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// tells gives how to tell something to the actors of some receivers.
func (l *Living) tells(which func(key string) bool) (out []func(msg any)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, p := range l.places {
		if !which(key) {
			continue
		}
		for s := range p.seats {
			if s.tell != nil {
				out = append(out, s.tell)
			}
		}
	}
	return out
}
