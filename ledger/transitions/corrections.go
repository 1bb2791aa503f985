package transitions

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// errCorrectedMeanwhile ends a correction of what another one set right since the audit.
var errCorrectedMeanwhile = fmt.Errorf("it was corrected since this audit began, audit again: %w", ledger.ErrUncorrectable)

// EnterCorrection writes a correction that follows from an audit, moves its credits and lets them fund
// what waits. Run again with the same id it answers what was done.
func (e Engine) EnterCorrection(ctx context.Context, c ledger.Correction, by ledger.Balance) (ledger.Correction, error) {
	c.Author = ledger.Author(ctx)
	var done *ledger.Correction
	err := e.db.Update(ctx, Scope{Workspace: c.Workspace, Account: true}, func(t Tables) (err error) {
		if done, err = t.Correction(c.ID); err != nil || done != nil {
			return err
		}
		if err := correct(t, c, by); err != nil {
			return err
		}
		done, err = t.Correction(c.ID)
		return err
	})
	if err != nil {
		return ledger.Correction{}, fmt.Errorf("correct %s: %w", c.Subject, err)
	}
	return *done, nil
}

func correct(t Tables, c ledger.Correction, by ledger.Balance) error {
	n, err := t.Corrected(c.Subject)
	if err != nil {
		return fmt.Errorf("count corrections: %w", err)
	}
	if n != c.Number-1 {
		return errCorrectedMeanwhile
	}
	if err := t.Correct(c); err != nil {
		return fmt.Errorf("write correction: %w", err)
	}
	if err := t.Log(ledger.LogLine{Action: "audit correct", Workspace: c.Workspace, Subject: c.Subject,
		Old: found(c), New: moved(c), Reason: c.Reason}); err != nil {
		return err
	}
	if c.Workspace == uuid.Nil {
		return nil
	}
	entries := make([]Entry, len(c.Entries))
	for i, e := range c.Entries {
		entries[i] = Entry{Subject: c.ID, Number: e.Number, Kind: e.Kind, Workspace: c.Workspace, Amount: e.Amount,
			Reason: c.Reason}
	}
	if by == (ledger.Balance{}) {
		return t.Enter(entries...)
	}
	// The difference that the audit found is the same whatever moved since, but what is
	// available may have been spent.
	n, err = t.Credit(c.Workspace, by, max(-by.Available, 0))
	if err == nil && n == 0 {
		return fmt.Errorf("%d credits are not available any more: %w", -by.Available, ledger.ErrUncorrectable)
	}
	if err := one(n, err, "move credits"); err != nil {
		return err
	}
	if err := t.Enter(entries...); err != nil {
		return err
	}
	if err := fund(t, c.Workspace); err != nil {
		return err
	}
	return tellShort(t, c.Workspace)
}

// found and moved are a correction in the words of the operator log.
func found(c ledger.Correction) string {
	text := fmt.Sprintf("%s %s", c.Findings[0].Invariant, c.Findings[0].Detail)
	if more := len(c.Findings) - 1; more > 0 {
		text = fmt.Sprintf("%s; and %d more", text, more)
	}
	return text
}

func moved(c ledger.Correction) string {
	text := ""
	for _, e := range c.Entries {
		if e.Number == ledger.CorrectionMoved {
			text += fmt.Sprintf("%s %d, ", e.Kind, e.Amount)
		}
	}
	return text + "correction " + c.ID.String()
}
