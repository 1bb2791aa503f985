package admin

import (
	"context"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/smtp/throttle"
)

// SourceCall pauses or drains one of our addresses on all nodes that have it.
type SourceCall struct {
	ID      uuid.UUID      // of the override; sent again while it holds it is the same override
	Source  string         // as Desk.Sources gives it
	Pause   throttle.Pause // throttle.PauseYes or throttle.PauseDrain
	Seconds int64          // how long it holds, from ledger.OverrideMin to ledger.OverrideMax
	Reason  string         // for those who see it, and for the operator log; not ""
}

// SourceRule is the name of the rules of a source, as Desk.Sources gives it.
func SourceRule(source string) string {
	if source == inspect.DefaultSource {
		source = ""
	}
	return throttle.SourcePrefix + source
}

// PauseSource pauses or drains a source for a time, by an override of its field pause. The newest override of a source
// holds.
func (d throttleOps) PauseSource(ctx context.Context, in SourceCall) (ThrottleRule, error) {
	if in.Pause != throttle.PauseYes && in.Pause != throttle.PauseDrain {
		return ThrottleRule{}, invalid("a source can be paused or drained: choose one of them")
	}
	return d.SetOverride(ctx, OverrideCall{ID: in.ID, Key: SourceRule(in.Source),
		Fields: map[string]string{throttle.FieldPause.String(): string(in.Pause)}, Seconds: in.Seconds, Reason: in.Reason})
}

// ResumeSource ends the overrides that pause or drain a source and set nothing else. It gives the rules that still
// pause or drain it: overrides that set other fields, too, and the throttle file. Resuming a source that works is no
// fault.
func (d throttleOps) ResumeSource(ctx context.Context, source, reason string) (still []ThrottleRule, err error) {
	if err := named("reason", reason, 1); err != nil {
		return nil, err
	}
	name := SourceRule(source)
	only := throttle.FieldPause.String()
	if _, err = d.ClearOverrides(ctx, ClearCall{Key: name, Only: only, Reason: reason}); err != nil {
		return nil, err
	}
	found, err := d.Throttle(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, rule := range found.Rules {
		for _, f := range rule.Fields {
			if rule.Name == name && f.Field == only && f.Value != string(throttle.PauseNo) && f.Beaten == "" {
				still = append(still, rule)
			}
		}
	}
	return still, nil
}
