package term

import (
	"context"
	"fmt"
	"time"
)

// Pace is the speed of some work since this run's first look. How long the work before it took is unknown: an earlier
// run may have done it.
type Pace struct {
	begun time.Time // of the first look
	at    int64     // how much was done then
}

// paceLeast is how long a pace is measured before it is used.
const paceLeast = time.Second

// Look notes how much is done at a moment. It keeps only the first look, or a later one with less done.
func (p *Pace) Look(now time.Time, done int64) {
	if p.begun.IsZero() || done < p.at {
		p.begun, p.at = now, done
	}
}

// PerSecond is how much is done in a second; 0: not known yet.
func (p *Pace) PerSecond(now time.Time, done int64) float64 {
	elapsed := now.Sub(p.begun)
	if p.begun.IsZero() || elapsed < paceLeast || done <= p.at {
		return 0
	}
	return float64(done-p.at) / elapsed.Seconds()
}

// LeftText is how long the remaining work takes at this pace, as ", about 3 minutes left"; "" when unknown.
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

// Roughly writes a length of time as people say it: "40 seconds", "3 minutes", "5 hours", "3 days".
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

// leftMost is the longest time left that is shown: a year. A longer one means nothing.
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

// Repeat asks and shows the answer at an interval until ctx ends, which is no error. Only a failure of the first
// question ends it: later a node may become unreachable and come back.
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
