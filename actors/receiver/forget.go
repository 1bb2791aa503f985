package receiver

import (
	"context"
	"fmt"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver/scheduler"
	"rollcall/smtp/throttle"
)

// Forget drops what this node learned of the receivers that a key or the name of a rule stands for, and what is stored
// of it. What is one of the scheduler's parts (ForgetPace and so on). It returns one answer for each receiver that
// lives here, and ends with ctx.
func (l *Registry) Forget(ctx context.Context, key, what string) []inspect.Forgotten {
	return inquire(ctx, l, standsFor(key), true, func(s *scheduler.Scheduler, now time.Time) inspect.Forgotten {
		return inspect.Forgotten{Key: s.Key(), Dropped: s.Forget(now, what)}
	})
}

// ForgetKept does the same for a receiver that lives on no node, of which only the stored fact exists. It tries the
// key, then the key as that of a suffix.
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
