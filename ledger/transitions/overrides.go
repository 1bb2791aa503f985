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

// SetOverride stores an override for a time.
func (e Engine) SetOverride(ctx context.Context, o ledger.ThrottleOverride, holds time.Duration) (
	ledger.ThrottleOverride, error) {
	o.Author = ledger.Author(ctx)
	err := o.Check(holds)
	var stored *ledger.ThrottleOverride
	if err == nil {
		err = e.db.writeFree(ctx, func(t Tables) error {
			now, err := override(t, o, holds)
			if errors.Is(err, errOver) && stored != nil {
				// An earlier run set it and was committed without our knowledge, then somebody cleared it: this call has succeeded.
				err = nil
			}
			if err == nil {
				stored = now
			}
			return err
		})
	}
	if err != nil {
		return ledger.ThrottleOverride{}, fmt.Errorf("set override %s of %q: %w", o.ID, o.Key, err)
	}
	return *stored, nil
}

// errOver refuses the id of an override that is no longer active, because success would mean that it was set.
var errOver = fmt.Errorf("the id belongs to an override that was cleared or has ended: %w", ledger.ErrIllegal)

// override sets an override, or returns the stored one with its id, also with errOver.
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
	return kept, t.Log(ledger.LogLine{Action: "throttle set", Subject: o.Key, Reason: o.Reason,
		Old: fieldsText(valuesBefore(older, o.Fields)), New: fieldsText(o.Fields) + untilText(kept.Expires)})
}

// stillHolds returns errOver unless an override is active.
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

// valuesBefore returns the values of some fields in overrides sorted oldest first: the newest value counts.
func valuesBefore(older []ledger.ThrottleOverride, fields map[string]string) map[string]string {
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

func fieldsText(fields map[string]string) string {
	var words []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		words = append(words, field+"="+fields[field])
	}
	return strings.Join(words, " ")
}

// untilText returns the end of fields as text for the operator log.
func untilText(expires time.Time) string { return " until " + expires.Format(time.RFC3339) }

// ClearOverrides ends active overrides and returns them.
func (e Engine) ClearOverrides(ctx context.Context, c ledger.Clearing) ([]ledger.ThrottleOverride, error) {
	// tried holds what each run that reached its commit has ended: the commit may have succeeded without our
	// knowledge, even while the next run was at work.
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

// cleared returns the overrides that were ended before their time, each once, when no run is at work. An override
// that ran out was not cleared, even if a run tried.
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
			Old: fieldsText(o.Fields) + untilText(o.Expires), Reason: c.Reason}); err != nil {
			return nil, err
		}
		ended = append(ended, o)
	}
	return ended, nil
}
