package receiver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/smtp/throttle"
)

// question is a question about an actor's scheduler. If the question changes something, the actor plans again.
type question struct {
	at      func(s *scheduler.Scheduler, now time.Time)
	changes bool
}

// CollectStatus returns the status of every receiver of this node. CollectStatus ends with ctx and returns the answers
// so far.
func (l *Registry) CollectStatus(ctx context.Context) []inspect.Receiver {
	return collect(ctx, l, func(string) bool { return true }, false, (*scheduler.Scheduler).Status)
}

// Detail returns everything about the receivers that a key, or a rule's name, stands for. Detail ends with ctx as
// CollectStatus does.
func (l *Registry) Detail(ctx context.Context, key string) []inspect.ReceiverDetail {
	return collect(ctx, l, standsFor(key), false, (*scheduler.Scheduler).Detail)
}

// Record returns the histories of receivers in the order of their keys, beginning after a key. Record stops at about
// most bytes of JSON, and reports whether these are all.
func (l *Registry) Record(now time.Time, after string, most int) (out inspect.Record, whole bool) {
	return l.Histories.Record(now, after, most)
}

// Close ends one session of a receiver after the command under way, and reports whether the session exists. Detail
// shows the numbers of sessions. If a name stands for several receivers, each ends its session with that number.
func (l *Registry) Close(ctx context.Context, key string, session int) bool {
	end := func(s *scheduler.Scheduler, _ time.Time) bool { return s.CloseSession(session) }
	return slices.Contains(collect(ctx, l, standsFor(key), true, end), true)
}

// CollectSources returns the state of this node's sources.
func (l *Registry) CollectSources(ctx context.Context, pool *egress.Pool) []inspect.Source {
	now := time.Now()
	sessions := map[string]int{}
	for _, r := range l.CollectStatus(ctx) {
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

func sourceOf(s egress.SourceState, sessions int, now time.Time) inspect.Source {
	out := inspect.Source{Source: s.Source, Hello: s.Hello, State: "used", Sessions: sessions, Today: s.Today,
		PerDay: s.PerDay, Spoken: s.Spoken, Blocked: s.Blocked}
	switch {
	case s.Pause == throttle.PauseYes:
		out.State = "paused"
	case s.Pause == throttle.PauseDrain:
		out.State = "draining"
	case now.Before(s.SuspendedUntil):
		out.State, out.Until, out.Reason = "suspended", s.SuspendedUntil, s.Reason.String()
	case s.PerDay > 0 && s.Today >= s.PerDay:
		out.State, out.Until = "spent", now.UTC().Truncate(24*time.Hour).Add(24*time.Hour) // the next midnight UTC
	case s.OnTrial:
		out.State, out.Reason = "on trial", s.Reason.String()
	}
	return out
}

// standsFor returns a function that reports whether a key or a rule's name stands for a receiver key.
func standsFor(name string) func(key string) bool {
	return func(key string) bool {
		return key == name || throttle.NameOf(key) == name
	}
}

// collect asks the actors of some receivers. collect returns the answers that come before ctx ends.
func collect[T any](
	ctx context.Context, l *Registry, which func(key string) bool, changes bool,
	of func(s *scheduler.Scheduler, now time.Time) T,
) []T {
	answers := map[*registry.Handle]chan T{}
	for h, tell := range l.Handles(which) {
		answer := make(chan T, 1) // the channel has room, so nobody blocks
		answers[h] = answer
		tell(question{func(s *scheduler.Scheduler, now time.Time) { answer <- of(s, now) }, changes})
	}
	out := make([]T, 0, len(answers))
	for h, answer := range answers {
		select {
		case one := <-answer:
			out = append(out, one)
			continue
		case <-h.Left():
		case <-ctx.Done():
		}
		select { // an actor answers before it leaves, or never
		case one := <-answer:
			out = append(out, one)
		default:
		}
	}
	return out
}

// Forget drops what this node learned of receivers, and what is stored of them. A key, or a rule's name, stands for the
// receivers; what names a part of the scheduler (ForgetPace and so on). Forget returns one answer for each receiver
// that lives here, and ends with ctx.
func (l *Registry) Forget(ctx context.Context, key, what string) []inspect.Forgotten {
	return collect(ctx, l, standsFor(key), true, func(s *scheduler.Scheduler, now time.Time) inspect.Forgotten {
		return inspect.Forgotten{Key: s.Key(), Dropped: s.Forget(now, what)}
	})
}

// ForgetKept is Forget for a receiver that lives on no node and has only a stored fact. ForgetKept tries the key, and
// then the key as a suffix.
func (l *Registry) ForgetKept(ctx context.Context, key, what string) ([]inspect.Forgotten, error) {
	l.mu.Lock()
	store := l.facts
	l.mu.Unlock()
	if store == nil {
		return nil, nil
	}
	known, err := store.Known(ctx, []string{key, throttle.SuffixKey(key)})
	if err != nil {
		return nil, fmt.Errorf("read what is known of %s: %w", key, err)
	}
	var out []inspect.Forgotten
	var less []facts.Fact
	for _, f := range known {
		m, err := facts.Decode(f.Data)
		if err != nil {
			continue
		}
		dropped := scheduler.ForgetSnapshot(&m, what)
		if len(dropped) > 0 {
			f.Data = m.Encode()
			less = append(less, f)
		}
		out = append(out, inspect.Forgotten{Key: f.Key, Dropped: dropped})
	}
	if len(less) == 0 {
		return out, nil
	}
	if err := store.Learn(ctx, less); err != nil {
		return nil, fmt.Errorf("keep what is left of %s: %w", key, err)
	}
	return out, nil
}
