package transitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Settle commits the outcomes of one batch and moves their credits: held falls
// by their number, spent grows by the charged and available by the free. With
// the last ones it writes the final status and the time of completion.
//
// It is guarded by node, epoch and number. Run again with the same arguments it
// changes nothing and answers the state as it is now, also when the lease is
// gone; the same number with other results is ErrStaleEpoch. Evidence decides
// nothing of this: a repeat may bring another, and what was committed stays.
// An address that another settlement has an outcome for is ErrIllegal.
func (e Engine) Settle(ctx context.Context, n ledger.Settlement) (ledger.Verification, error) {
	// Packed outside the transaction; what is wrong with it is told after what
	// is wrong with the lease.
	payload, refused := ledger.EncodeResults(n.Results)
	if refused == nil && len(n.Evidence) > ledger.EvidenceMax {
		refused = fmt.Errorf("%d bytes of evidence: %w", len(n.Evidence), ledger.ErrIllegal)
	}
	if refused == nil {
		refused = ledger.CheckWhy(n.Why)
	}
	if refused == nil && n.Number > 1 && !e.settled.knows(n.Lease, n.Number-1) {
		_ = e.remember(ctx, n.Lease.Verification) // what fails here, the transaction tells
	}
	v, err := e.settleOnce(ctx, n, payload, refused)
	for range readsMax {
		if !errors.Is(err, errBehind) {
			break
		}
		if err = e.remember(ctx, n.Lease.Verification); err == nil {
			v, err = e.settleOnce(ctx, n, payload, refused)
		}
	}
	if errors.Is(err, ledger.ErrStaleEpoch) && refused == nil {
		var before *Row
		err = e.db.View(ctx, func(t Tables) (err error) {
			before, err = repeated(t, n, payload)
			return err
		})
		if err == nil {
			return before.Verification, nil
		}
	}
	if err != nil {
		return v, fmt.Errorf("settle verification %s number %d: %w", n.Lease.Verification, n.Number, err)
	}
	return v, nil
}

// readsMax is how often one call reads the settlements before its own anew, because a call
// beside it settled meanwhile, or the first reading failed.
const readsMax = 2

// settleOnce makes one transaction. errBehind when the settlements before must be read first.
func (e Engine) settleOnce(ctx context.Context, n ledger.Settlement, p ledger.Payload, refused error) (
	ledger.Verification, error) {
	var after *Row
	again := func(*Row) bool { return false }
	v, err := e.paid(ctx, n.Lease, again, func(t Tables, v *Row) error {
		if refused != nil {
			return refused
		}
		if err := settleable(v, n, p); err != nil {
			return err
		}
		ordinal, twice, err := e.settled.first(v, p.Ordinals)
		switch {
		case err != nil:
			return err
		case twice:
			return fmt.Errorf("ordinal %d has an outcome already: %w", ordinal, ledger.ErrIllegal)
		}
		after = v
		return settle(t, v, n, p)
	})
	if err == nil {
		e.settled.settled(after, n.Number, p.Ordinals)
	}
	return v, err
}

// repeated answers the verification of a settlement that is in the book
// already. ErrStaleEpoch when it is not, or not this one.
func repeated(t Tables, n ledger.Settlement, payload ledger.Payload) (*Row, error) {
	epoch, digest, err := t.Settled(n.Lease.Verification, n.Number)
	if err != nil {
		return nil, err
	}
	if epoch != n.Lease.Epoch || !bytes.Equal(digest, payload.Digest[:]) {
		return nil, ledger.ErrStaleEpoch
	}
	return t.Read(n.Lease.Verification)
}

// settleable refuses a settlement that is not the next one, or that does not fit its file.
func settleable(v *Row, n ledger.Settlement, p ledger.Payload) error {
	switch {
	case n.Number != v.Settlements+1:
		return ledger.ErrStaleEpoch
	case !v.State().Funded() || p.Last >= v.Total || p.Counts.Sum() > v.Left():
		return ledger.ErrIllegal
	}
	return nil
}

// settle writes the next settlement of a leased verification.
func settle(t Tables, v *Row, n ledger.Settlement, p ledger.Payload) error {
	count := ledger.Credits(p.Counts.Sum())
	if err := t.Settle(n, p); err != nil {
		return fmt.Errorf("insert settlement: %w", err)
	}
	if len(n.Evidence) > 0 {
		if err := t.KeepEvidence(n); err != nil {
			return fmt.Errorf("insert evidence: %w", err)
		}
	}
	before := *v
	if v.Kind == ledger.Single {
		v.SingleOutcome = n.Results[0].Outcome
	}
	v.Settlements, v.Held, v.Counts = n.Number, v.Held-count, v.Counts.Plus(p.Counts)
	v.Expected = ledger.Clock(ledger.Millis(n.Expected))
	if n.Why != "" && v.State() == ledger.WaitingReceivers {
		v.Issue = &ledger.Issue{Code: ledger.ReceiversWait, Message: n.Why}
	}
	changed, err := t.Count(Step{Before: &before, After: v})
	if err := one(changed, err, "count outcomes"); err != nil {
		return err
	}
	if v.Left() == 0 {
		if err := step(t, v, move{to: v.Last()}); err != nil {
			return err
		}
	}
	return settled(t, v, n.Number, ledger.Credits(p.Counts.Charged()), ledger.Credits(p.Counts.Unknown))
}

// Cancel asks for the end of a verification.
func (e Engine) Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	var v *Row
	err := e.db.Update(ctx, Scope{Workspace: workspace, Account: true}, func(t Tables) (err error) {
		if v, err = t.ReadOf(workspace, id); err != nil {
			return err
		}
		return cancel(t, v, ledger.Actor(ctx))
	})
	if err != nil {
		return ledger.Verification{}, fmt.Errorf("cancel verification %s: %w", id, err)
	}
	return v.Verification, nil
}

// cancel asks for the end of v, and tells the log of its workspace the first time.
func cancel(t Tables, v *Row, by string) error {
	if v.Status.Final() || v.Status == ledger.Cancelling {
		return nil
	}
	if err := ledger.CheckOperatorText("actor", by); err != nil {
		return err
	}
	err := t.LogIn(v.Workspace, ledger.WorkspaceLine{Actor: by, Action: actionCancel, Subject: v.ID.String(),
		Detail: ledger.Shortened(v.Filename)})
	switch {
	case err != nil:
		return err
	case v.State().Funded() && (v.Leased() || v.Left() > ledger.SettlementMax):
		return step(t, v, move{to: ledger.Cancelling, held: v.Held, lease: true, wake: ledger.Millis(v.Created)})
	}
	return finishCancel(t, v)
}

// finishCancel makes v Cancelled and releases what it holds.
func finishCancel(t Tables, v *Row) error {
	free := v.Held
	if err := step(t, v, move{to: ledger.Cancelled, more: v.Left()}); err != nil {
		return err
	}
	if free == 0 {
		return nil
	}
	return settled(t, v, 0, 0, free)
}

// FinishCancel releases what is still held and makes the verification Cancelled.
func (e Engine) FinishCancel(ctx context.Context, l ledger.Lease) (ledger.Verification, error) {
	again := func(v *Row) bool { return v.Status == ledger.Cancelled }
	v, err := e.paid(ctx, l, again, func(t Tables, v *Row) error {
		if v.Status != ledger.Cancelling {
			return ledger.ErrIllegal
		}
		return finishCancel(t, v)
	})
	if err != nil {
		return v, fmt.Errorf("finish cancelling verification %s: %w", l.Verification, err)
	}
	return v, nil
}
