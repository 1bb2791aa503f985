package receiver

import (
	"context"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/smtp/throttle"
)

// look is a question about the scheduler of an actor, or a change, after which it plans anew.
type look struct {
	at      func(s *scheduler.Scheduler, now time.Time)
	changes bool
}

// Survey says what every receiver does that lives here. It ends with ctx, and gives
// those that have answered until then.
func (l *Registry) Survey(ctx context.Context) []inspect.Receiver {
	return inquire(ctx, l, func(string) bool { return true }, false, (*scheduler.Scheduler).Status)
}

// Detail says everything about the receivers that a key, or the name of a rule, stands
// for. It ends with ctx, as Survey does.
func (l *Registry) Detail(ctx context.Context, key string) []inspect.ReceiverDetail {
	return inquire(ctx, l, standsFor(key), false, (*scheduler.Scheduler).Detail)
}

// Record gives what this node kept of the receivers whose keys come after a key, in
// their order, and whether that is all: it ends when most bytes of JSON are about full.
func (l *Registry) Record(now time.Time, after string, most int) (out inspect.Record, whole bool) {
	return l.Histories.Record(now, after, most)
}

// Close ends one session of a receiver, after the command that is on the wire, and says
// whether there was one. The numbers are those of Detail; of a name that stands
// for several receivers, each of them ends the session of that number.
func (l *Registry) Close(ctx context.Context, key string, session int) bool {
	end := func(s *scheduler.Scheduler, _ time.Time) bool { return s.CloseSession(session) }
	return slices.Contains(inquire(ctx, l, standsFor(key), true, end), true)
}

// SurveySources says how the sources of this node do.
func (l *Registry) SurveySources(ctx context.Context, pool *egress.Pool) []inspect.Source {
	now := time.Now()
	sessions := map[string]int{}
	for _, r := range l.Survey(ctx) {
		for _, s := range r.Sources {
			sessions[s.Source] += s.Sessions
		}
	}
	out := []inspect.Source{}
	for _, s := range pool.State(now) {
		out = append(out, sourceOf(s, sessions[s.Source], now))
	}
	return out
}

// sourceOf is a source's state as people are shown it.
func sourceOf(s egress.SourceState, sessions int, now time.Time) inspect.Source {
	out := inspect.Source{Source: s.Source, Hello: s.Hello, State: "used", Sessions: sessions, Today: s.Today,
		PerDay: s.PerDay, Spoken: s.Spoken, Blocked: s.Blocked}
	switch {
	case s.Pause == throttle.PauseYes:
		out.State = "paused"
	case s.Pause == throttle.PauseDrain:
		out.State = "draining"
	case now.Before(s.SuspendedUntil):
		out.State, out.Until, out.Reason = "resting", s.SuspendedUntil, s.Reason.String()
	case s.PerDay > 0 && s.Today >= s.PerDay:
		out.State, out.Until = "spent", now.UTC().Truncate(24*time.Hour).Add(24*time.Hour) // midnight UTC
	case s.OnTrial:
		out.State, out.Reason = "on trial", s.Reason.String()
	}
	return out
}

// standsFor says which receiver keys a key or the name of a rule stands for.
func standsFor(name string) func(key string) bool {
	return func(key string) bool {
		return key == name || throttle.NameOf(key) == name
	}
}

// inquire asks the actors of some receivers and gives their answers as far as they have
// come until ctx is done.
func inquire[T any](
	ctx context.Context, l *Registry, which func(key string) bool, changes bool,
	of func(s *scheduler.Scheduler, now time.Time) T,
) []T {
	asked := l.Handles(which)
	type answer struct {
		from *registry.Handle
		is   T
	}
	answers := make(chan answer, len(asked)) // nobody blocks
	for h, tell := range asked {
		tell(look{func(s *scheduler.Scheduler, now time.Time) { answers <- answer{h, of(s, now)} }, changes})
	}
	quiet := time.NewTicker(quietFor)
	defer quiet.Stop()
	out := make([]T, 0, len(asked))
	for len(asked) > 0 {
		select {
		case one := <-answers:
			out = append(out, one.is)
			delete(asked, one.from)
			quiet.Reset(quietFor)
		case <-quiet.C:
			if gone := l.Left(asked); len(answers) == 0 { // they answer before they leave, or not at all
				for _, s := range gone {
					delete(asked, s)
				}
			}
		case <-ctx.Done():
			return out
		}
	}
	return out
}

// quietFor is how long no answer comes before it is looked whether those that are missing
// still live: an actor that is stopped reads no message any more.
const quietFor = 50 * time.Millisecond
