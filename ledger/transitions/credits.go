package transitions

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Which outcomes cost a credit is said by ledger.Counts.Charged and smtp.Outcome.Free; what moves is said here. For
// outcomes, settle in settle.go calls moveHeld.

// creditsMax bounds all credits ever granted to a workspace: not every JSON reader is exact above 2^53.
const creditsMax = 1 << 53

// shortMessage tells how many credits a waiting verification needs, and how many are available now.
const shortMessage = "This file needs %d credits and %d are available. It goes on by itself when credits are added."

// Grant adds credits once per grant id. Run again with the same arguments it adds nothing. ErrIllegal: other
// arguments, the id of a verification, an amount below 1, or more than 2^53 credits in all.
func (e Engine) Grant(ctx context.Context, id, workspace uuid.UUID, n ledger.Credits, reason string) (
	ledger.Balance, error) {
	var after ledger.Balance
	g := Entry{Subject: id, Kind: ledger.EntryGrant, Workspace: workspace, Amount: n, Reason: reason, Author: ledger.Author(ctx)}
	taken, err := e.isVerification(ctx, id)
	if err == nil {
		err = e.db.Update(ctx, Scope{Workspace: workspace, Account: true}, func(t Tables) (err error) {
			if err = grant(t, g, taken); err != nil {
				return err
			}
			after, err = t.Account(workspace)
			return err
		})
	}
	if err != nil {
		return ledger.Balance{}, fmt.Errorf("grant %s to workspace %s: %w", id, workspace, err)
	}
	return after, nil
}

// isVerification reports whether an id is that of a verification. It is called before the transaction, because reading
// a missing row inside would conflict with every create. A verification made later has an id that nobody knows yet.
func (e Engine) isVerification(ctx context.Context, id uuid.UUID) (bool, error) {
	_, err := e.db.readRow(ctx, id)
	if errors.Is(err, ledger.ErrNoSuchVerification) {
		return false, nil
	}
	return err == nil, err
}

// grant adds credits; taken says that the id of the grant is that of a verification. It changes the account before
// it reads it, because a transaction that reads a row first loses against a concurrent one that does the same.
func grant(t Tables, e Entry, taken bool) error {
	known, err := t.Granted(e.Subject)
	if err != nil {
		return fmt.Errorf("look for the grant: %w", err)
	}
	if known != nil && known.Workspace == e.Workspace && known.Amount == e.Amount {
		return nil
	}
	if refused := refuseGrant(e, known != nil, taken); refused != nil {
		if _, err := t.Account(e.Workspace); err != nil {
			return err
		}
		return refused
	}
	n, err := t.Credit(e.Workspace, ledger.Balance{Granted: e.Amount, Available: e.Amount}, 0)
	if err != nil {
		return fmt.Errorf("credit workspace: %w", err)
	}
	account, err := t.Account(e.Workspace)
	if err != nil {
		return err
	}
	if err := one(n, nil, "credit workspace"); err != nil {
		return err
	}
	if account.Granted > creditsMax {
		return fmt.Errorf("amount %d: %w", e.Amount, ledger.ErrIllegal)
	}
	if err := t.Enter(e); err != nil {
		return err
	}
	if err := t.Log(ledger.LogLine{Action: "grant", Workspace: e.Workspace, Subject: e.Subject.String(),
		New: fmt.Sprintf("%d credits", e.Amount), Reason: e.Reason}); err != nil {
		return err
	}
	if err := fund(t, e.Workspace); err != nil {
		return err
	}
	return renewMessages(t, e.Workspace)
}

// refuseGrant returns why a grant is refused, independent of the account; found: its id was used.
func refuseGrant(e Entry, found, taken bool) error {
	switch {
	case found:
		return fmt.Errorf("the grant id was used for another grant: %w", ledger.ErrIllegal)
	case e.Amount < 1 || e.Amount > creditsMax:
		return fmt.Errorf("amount %d: %w", e.Amount, ledger.ErrIllegal)
	case taken: // its entry would look like one of the verification
		return fmt.Errorf("the grant id is that of a verification: %w", ledger.ErrIllegal)
	}
	return errors.Join(ledger.CheckText(e.Reason), ledger.CheckOperatorText("author", e.Author))
}

// fund holds the credits of each waiting verification that the available credits cover, oldest first. A verification
// that they don't cover does not stop later ones.
func fund(t Tables, workspace uuid.UUID) error {
	for {
		v, err := t.Unfunded(workspace)
		if err != nil || v == nil {
			return err
		}
		held, err := hold(t, v)
		if err == nil && !held {
			err = fmt.Errorf("%d available credits could not be held", v.Total)
		}
		if err != nil {
			return err
		}
		if err := step(t, v, move{to: ledger.Verifying, held: v.Held}); err != nil {
			return err
		}
	}
}

// hold moves the credits of all addresses of v from available to held, and reports whether enough were available.
func hold(t Tables, v *Row) (bool, error) {
	need := ledger.Credits(v.Total)
	n, err := t.Credit(v.Workspace, ledger.Balance{Available: -need, Held: need}, need)
	if err != nil {
		return false, fmt.Errorf("hold credits: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	v.Held = need
	v.Paid = true
	return true, t.Enter(Entry{Subject: v.ID, Kind: ledger.EntryHold, Workspace: v.Workspace, Amount: need})
}

// renewMessages updates the messages of the verifications that still wait for credits.
func renewMessages(t Tables, workspace uuid.UUID) error {
	account, err := t.Account(workspace)
	if err != nil {
		return err
	}
	needed, err := t.Short(workspace)
	if err != nil {
		return err
	}
	for id, total := range needed {
		if err := t.Tell(id, fmt.Sprintf(shortMessage, total, account.Available)); err != nil {
			return err
		}
	}
	return nil
}

// moveHeld moves credits out of held: charged to spent, free to available. It writes their entries, and funds waiting
// verifications from the free ones.
func moveHeld(t Tables, v *Row, number int64, charged, free ledger.Credits) error {
	var entries []Entry
	for _, e := range []Entry{
		{Subject: v.ID, Number: number, Kind: ledger.EntryCharge, Workspace: v.Workspace, Amount: charged},
		{Subject: v.ID, Number: number, Kind: ledger.EntryRelease, Workspace: v.Workspace, Amount: free},
	} {
		if e.Amount > 0 {
			entries = append(entries, e)
		}
	}
	n, err := t.Credit(v.Workspace, ledger.Balance{Available: free, Held: -charged - free, Spent: charged}, 0)
	if err := one(n, err, "move credits"); err != nil {
		return err
	}
	if err := t.Enter(entries...); err != nil || free == 0 {
		return err
	}
	return fund(t, v.Workspace)
}

// errCorrectedMeanwhile means that another correction came after the audit.
var errCorrectedMeanwhile = fmt.Errorf("it was corrected since this audit began, audit again: %w", ledger.ErrUncorrectable)

// EnterCorrection writes a correction from an audit, moves its credits and funds waiting verifications. Run again
// with the same id it returns the first correction.
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
		Old: findingsText(c), New: entriesText(c), Reason: c.Reason}); err != nil {
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
	// Later movements do not change the difference that the audit found, but may have spent the available credits.
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
	return renewMessages(t, c.Workspace)
}

// findingsText and entriesText describe a correction for the operator log.
func findingsText(c ledger.Correction) string {
	text := fmt.Sprintf("%s %s", c.Findings[0].Invariant, c.Findings[0].Detail)
	if more := len(c.Findings) - 1; more > 0 {
		text = fmt.Sprintf("%s; and %d more", text, more)
	}
	return text
}

func entriesText(c ledger.Correction) string {
	text := ""
	for _, e := range c.Entries {
		if e.Number == ledger.CorrectionMoved {
			text += fmt.Sprintf("%s %d, ", e.Kind, e.Amount)
		}
	}
	return text + "correction " + c.ID.String()
}
