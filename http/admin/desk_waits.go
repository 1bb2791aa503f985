package admin

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"rollcall/actors/view"
)

// Waits says what the open addresses of a verification wait for, or, when no node works
// on it, why none does.
func (d *Desk) Waits(ctx context.Context, id uuid.UUID) (view.Verification, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return view.Verification{}, err
	}
	found, err := d.options.Survey.Verification(ctx, id.String())
	if errors.Is(err, view.ErrNotThere) {
		return d.waitsOfNobody(ctx, id, err)
	}
	if err != nil {
		return found, d.ofSurvey("ask what a verification waits for", err)
	}
	found.Waits = full(found.Waits)
	return found, nil
}
