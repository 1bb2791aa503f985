package term

import (
	"context"
	"fmt"
	"time"
)

// Pace is how fast something gets on, as far as this run has seen it. What was done before the
// first look was done by an earlier run, or before anybody looked, in a time that nobody knows.
type Pace struct {
	begun time.Time // of the first look
	at    int64     // how much was done then
}

// paceLeast is how long a pace is looked at before anything is said of it.
const paceLeast = time.Second

// Look notes how much is done at a moment; only the first look is kept, or one that falls behind it.
func (p *Pace) Look(now time.Time, done int64) {
	if p.begun.IsZero() || done < p.at {
		p.begun, p.at = now, done
	}
}

// PerSecond is how much is done in a second; 0: nobody can tell yet.
func (p *Pace) PerSecond(now time.Time, done int64) float64 {
	elapsed := now.Sub(p.begun)
	if p.begun.IsZero() || elapsed < paceLeast || done <= p.at {
		return 0
	}
	return float64(done-p.at) / elapsed.Seconds()
}

// LeftText is how long it takes at a pace to do so much more, as ", about 3 minutes left"; "" when nothing can be said.
func LeftText(perSecond float64, more int64) string {
	if perSecond <= 0 || more <= 0 {
		return ""
	}
	seconds := float64(more) / perSecond
	if seconds < 1 || seconds > leftMost.Seconds() {
		return ""
	}
	return fmt.Sprintf(", about %s left", Roughly(time.Duration(seconds*float64(time.Second))))
}

// Roughly writes how long something is as people say it: "40 seconds", "3 minutes", "5 hours", "3 days".
func Roughly(d time.Duration) string {
	in := func(unit time.Duration) int64 { return int64((d + unit/2) / unit) }
	switch {
	case d < 10*time.Second:
		return Counted(max(in(time.Second), 1), "second")
	case d < 90*time.Second:
		return Counted(10*in(10*time.Second), "second")
	case d < 90*time.Minute:
		return Counted(in(time.Minute), "minute")
	case d < 36*time.Hour:
		return Counted(in(time.Hour), "hour")
	}
	return Counted(in(24*time.Hour), "day")
}

// leftMost is the longest time left that is told: a year. Above it the pace says nothing.
const leftMost = 365 * 24 * time.Hour

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Repeat asks, and shows what came of it, once in every so long until ctx ends, which is no error. A first question
// that fails ends it. Later ones do not: who has answered once may go away and come back.
func Repeat[T any](ctx context.Context, every time.Duration, ask func(context.Context) (T, error),
	show func(found T, failed error) error) error {
	next := time.Now()
	for first := true; ; first = false {
		found, err := ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err := show(found, err); err != nil {
			return err
		}
		next = next.Add(every)
		if Sleep(ctx, max(time.Until(next), every/4)) != nil {
			return nil
		}
		if late := time.Now(); next.Before(late.Add(-every)) {
			next = late
		}
	}
}
