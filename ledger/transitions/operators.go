package transitions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rollcall/ledger"
)

// SetOverride keeps an override for a time.
func (e Engine) SetOverride(ctx context.Context, o ledger.ThrottleOverride, holds time.Duration) (
	ledger.ThrottleOverride, error) {
	o.Author = ledger.Author(ctx)
	err := o.Check(holds)
	var kept *ledger.ThrottleOverride
	if err == nil {
		err = e.db.writeFree(ctx, func(t Tables) error {
			now, err := override(t, o, holds)
			if errors.Is(err, errOver) && kept != nil {
				// A run before set it, was committed without our knowing, and somebody cleared it
				// at once: this call did what it was asked for.
				err = nil
			}
			if err == nil {
				kept = now
			}
			return err
		})
	}
	if err != nil {
		return ledger.ThrottleOverride{}, fmt.Errorf("set override %s of %q: %w", o.ID, o.Key, err)
	}
	return *kept, nil
}

// errOver refuses the id of an override that does not hold any more: the answer would
// else say that it was set.
var errOver = fmt.Errorf("the id is of an override that was cleared or is over: %w", ledger.ErrIllegal)

// override sets one, or answers what is kept of its id, also with errOver.
func override(t Tables, o ledger.ThrottleOverride, holds time.Duration) (*ledger.ThrottleOverride, error) {
	kept, err := t.Override(o.ID)
	switch {
	case err != nil:
		return nil, err
	case kept != nil && kept.Key == o.Key && maps.Equal(kept.Fields, o.Fields):
		return kept, stillHolds(t, *kept)
	case kept != nil:
		return nil, fmt.Errorf("the override's id was used for another: %w", ledger.ErrIllegal)
	}
	n, err := t.HowMany()
	if err != nil {
		return nil, err
	}
	if n >= ledger.OverridesMax {
		return nil, ledger.ErrTooManyOverrides
	}
	older, err := t.ActiveOverrides(o.Key)
	if err != nil {
		return nil, err
	}
	if err := t.InsertOverride(o, holds); err != nil {
		return nil, err
	}
	if kept, err = t.Override(o.ID); err != nil {
		return nil, err
	}
	return kept, t.Log(ledger.LogLine{Action: "throttle set", Subject: o.Key, Old: written(said(older, o.Fields)),
		New: written(o.Fields) + until(kept.Expires), Reason: o.Reason})
}

// stillHolds returns errOver unless an override holds.
func stillHolds(t Tables, o ledger.ThrottleOverride) error {
	holding, err := t.ActiveOverrides(o.Key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(holding, func(h ledger.ThrottleOverride) bool { return h.ID == o.ID }) {
		return errOver
	}
	return nil
}

// said returns what overrides, oldest first, say about some fields: the newest that
// says something counts.
func said(older []ledger.ThrottleOverride, fields map[string]string) map[string]string {
	before := map[string]string{}
	for _, o := range older {
		for field, value := range o.Fields {
			if _, asked := fields[field]; asked {
				before[field] = value
			}
		}
	}
	return before
}

// written are fields as a line of the operator log has them.
func written(fields map[string]string) string {
	var words []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		words = append(words, field+"="+fields[field])
	}
	return strings.Join(words, " ")
}

// until is how such a line says when fields end.
func until(expires time.Time) string { return " until " + expires.Format(time.RFC3339) }

// ClearOverrides ends those that hold and answers them.
func (e Engine) ClearOverrides(ctx context.Context, c ledger.Clearing) ([]ledger.ThrottleOverride, error) {
	// tried is what any run ended that came to its commit: any of them may have been
	// committed without our knowing, also while the next run was at work.
	var tried, ended []ledger.ThrottleOverride
	err := c.Check()
	if err == nil {
		err = e.db.writeFree(ctx, func(t Tables) error {
			before, err := cleared(t, tried)
			if err != nil {
				return err
			}
			now, err := endOverride(t, c)
			if err != nil {
				return err
			}
			tried, ended = append(tried, now...), append(before, now...)
			slices.SortStableFunc(ended, func(a, b ledger.ThrottleOverride) int { return a.Created.Compare(b.Created) })
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("clear overrides of %q: %w", c.Key, err)
	}
	return ended, nil
}

// cleared returns those overrides that were ended before their time, each once. One
// that is over by its time was not cleared, whatever a run tried; none of these is at work any more.
func cleared(t Tables, list []ledger.ThrottleOverride) (ended []ledger.ThrottleOverride, err error) {
	for _, o := range list {
		if slices.ContainsFunc(ended, func(e ledger.ThrottleOverride) bool { return e.ID == o.ID }) {
			continue
		}
		is, err := t.Lifted(o.ID)
		if err != nil {
			return nil, err
		}
		if is {
			ended = append(ended, o)
		}
	}
	return ended, nil
}

// endOverride ends the overrides that c is about.
func endOverride(t Tables, c ledger.Clearing) (ended []ledger.ThrottleOverride, err error) {
	holding, err := t.ActiveOverrides(c.Key)
	if err != nil {
		return nil, err
	}
	for _, o := range holding {
		if !c.Covers(o) {
			continue
		}
		n, err := t.EndOverride(o.ID)
		if err := one(n, err, "end override"); err != nil {
			return nil, err
		}
		if err := t.Log(ledger.LogLine{Action: "throttle clear", Subject: o.Key,
			Old: written(o.Fields) + until(o.Expires), Reason: c.Reason}); err != nil {
			return nil, err
		}
		ended = append(ended, o)
	}
	return ended, nil
}

// Unpaid are the verifications of a workspace that count against ledger.Limits.Unpaid.
type Unpaid struct {
	Count  int64
	Oldest int64 // when the oldest was created, milliseconds; 0: there is none
	Now    int64 // milliseconds, by the database's clock
}

// admit refuses a new verification when its workspace has as much as it may, or the ledger
// has no room. The first refusal of the list in package ledger is given.
func admit(t Tables, n ledger.NewVerification) error {
	own, err := t.Limits(n.Workspace)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	limits := own.Or(n.Limits)
	open, err := t.Open(n.Workspace)
	if err != nil {
		return fmt.Errorf("count open ones: %w", err)
	}
	if open >= limits.Open {
		return ledger.ErrTooManyOpen
	}
	stored, err := t.Stored(n.Workspace)
	if err != nil {
		return fmt.Errorf("add up stored bytes: %w", err)
	}
	if n.Bytes > limits.Stored-stored {
		return ledger.ErrTooManyBytes
	}
	unpaid, err := t.Unpaid(n.Workspace)
	if err != nil {
		return fmt.Errorf("count unpaid ones: %w", err)
	}
	if unpaid.Count >= limits.Unpaid {
		return &ledger.Later{Err: ledger.ErrTooManyUnpaid, After: unpaid.after()}
	}
	return t.Room()
}

// after is when the oldest does not count any more.
func (u Unpaid) after() time.Duration {
	if u.Oldest == 0 {
		return ledger.UnpaidWithin // the limit lets none in
	}
	return time.Duration(u.Oldest-u.Now)*time.Millisecond + ledger.UnpaidWithin
}
