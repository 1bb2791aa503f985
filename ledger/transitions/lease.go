package transitions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Lease leases free verifications, each at a new epoch. How long a lease lasts is leaseTTL in
// actors/dispatcher/leases.go.
func (e Engine) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	if node == uuid.Nil {
		return nil, fmt.Errorf("lease to nobody: %w", ledger.ErrIllegal)
	}
	if len(except) > ledger.ExceptMax {
		return nil, fmt.Errorf("lease to node %s: pass over %d workspaces: %w", node, len(except), ledger.ErrIllegal)
	}
	// taken collects from all runs that reached their commit: any of them may have been committed without our
	// knowledge, even while the next run was at work.
	var taken, leased []ledger.Verification
	err := e.db.writeFree(ctx, func(t Tables) (err error) {
		leased, err = stillLeased(t, node, taken)
		if err != nil || len(leased) > 0 {
			return err
		}
		if leased, err = lease(t, node, limit, ttl, except); err != nil {
			return err
		}
		taken = append(taken, leased...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lease to node %s: %w", node, err)
	}
	return leased, nil
}

// stillLeased returns those verifications that a node has leased, each once, with its current epoch and state. Another
// run than the first may have taken one, even a run that is not over yet.
func stillLeased(t Tables, node uuid.UUID, list []ledger.Verification) ([]ledger.Verification, error) {
	var mine []ledger.Verification
	for _, v := range list {
		if slices.ContainsFunc(mine, func(m ledger.Verification) bool { return m.ID == v.ID }) {
			continue
		}
		now, err := t.Await(v.ID)
		if err != nil {
			return nil, fmt.Errorf("look for a lease: %w", err)
		}
		if now.HeldBy(ledger.Lease{Verification: v.ID, Node: node, Epoch: v.Epoch}) {
			mine = append(mine, now.Verification)
		}
	}
	return mine, nil
}

func lease(t Tables, node uuid.UUID, limit int, ttl time.Duration, except []uuid.UUID) ([]ledger.Verification, error) {
	free, err := t.Free(max(limit, 0), except)
	if err != nil {
		return nil, fmt.Errorf("list what is free: %w", err)
	}
	leased := make([]ledger.Verification, 0, len(free))
	for _, v := range free {
		n, err := t.Take(v.ID, node, v.Epoch, ttl)
		if err := one(n, err, "lease verification"); err != nil {
			return nil, err
		}
		v.Epoch++
		leased = append(leased, v.Verification)
	}
	return leased, nil
}

// Renew extends all unexpired leases of a node and returns them.
func (e Engine) Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error) {
	return ledger.Run(ctx, e.db.writeFree, func(t Tables) ([]ledger.Lease, error) { return t.Renew(node, ttl) },
		"renew leases of node %s", node)
}

// Release gives a lease back. ErrStaleEpoch if it is no longer the caller's.
func (e Engine) Release(ctx context.Context, l ledger.Lease) error {
	return ledger.Wrap(e.db.writeFree(ctx, func(t Tables) error {
		v, err := t.Read(l.Verification)
		if err != nil {
			return err
		}
		if v.Epoch == l.Epoch && v.Node == uuid.Nil {
			return nil // returned earlier, or ended with its verification
		}
		if !v.HeldBy(l) {
			return ledger.ErrStaleEpoch
		}
		n, err := t.Drop(l.Verification, l.Epoch)
		return one(n, err, "release lease")
	}), "release lease of verification %s epoch %d", l.Verification, l.Epoch)
}

// Refuse ends a verification in Preparing because of a defect in its file.
func (e Engine) Refuse(ctx context.Context, l ledger.Lease, issue ledger.Issue) (ledger.Verification, error) {
	again := func(v *Row) bool {
		return v.Status == ledger.Failed && v.Issue != nil && *v.Issue == issue
	}
	v, err := e.worked(ctx, Scope{}, l, again, func(t Tables, v *Row) error {
		if v.Status != ledger.Preparing || issue.Code == "" || issue.Code == ledger.CreditsRequired ||
			len(issue.Text) > ledger.IssueTextMax {
			return ledger.ErrIllegal
		}
		if err := ledger.CheckText(issue.Code + issue.Message + issue.Text); err != nil {
			return err
		}
		return step(t, v, move{to: ledger.Failed, issue: &issue})
	})
	return v, ledger.Wrap(err, "refuse verification %s", l.Verification)
}

// Prepare ends intake and holds the credits of all addresses, or none. ErrIllegal when total is not rows less
// duplicates, or below 1.
func (e Engine) Prepare(ctx context.Context, l ledger.Lease, rows, duplicates, total int64) (
	ledger.Verification, error) {
	again := func(v *Row) bool {
		same := v.Rows == rows && v.Duplicates == duplicates && v.Total == total
		return same && (v.State() == ledger.WaitingCredits || v.State().Funded() && v.HeldBy(l))
	}
	v, err := e.paid(ctx, l, again, func(t Tables, v *Row) error {
		if v.Status != ledger.Preparing || total < 1 || duplicates < 0 || total != rows-duplicates {
			return ledger.ErrIllegal
		}
		before := *v
		v.Rows, v.Duplicates, v.Total = rows, duplicates, total
		n, err := t.Measure(Step{Before: &before, After: v})
		if err := one(n, err, "write figures"); err != nil {
			return err
		}
		return prepare(t, v)
	})
	return v, ledger.Wrap(err, "prepare verification %s", l.Verification)
}

// prepare makes a measured verification Verifying, or Waiting for credits.
func prepare(t Tables, v *Row) error {
	held, err := hold(t, v)
	if err != nil {
		return err
	}
	if held {
		return step(t, v, move{to: ledger.Verifying, held: v.Held, lease: true})
	}
	account, err := t.Account(v.Workspace)
	if err != nil {
		return err
	}
	return step(t, v, move{to: ledger.Waiting, issue: &ledger.Issue{Code: ledger.CreditsRequired,
		Message: fmt.Sprintf(shortMessage, v.Total, account.Available)}})
}

// Wait marks a leased verification as Waiting for receivers until o.Next, or as Verifying with a zero time, and
// stores the expected end. Cancelling stays as it is.
func (e Engine) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	never := func(*Row) bool { return false }
	v, err := e.worked(ctx, Scope{}, l, never, func(t Tables, v *Row) error {
		to := ledger.Verifying
		if !o.Next.IsZero() {
			to = ledger.Waiting
		}
		switch {
		case v.Status == ledger.Cancelling:
			return nil
		case !v.State().Funded():
			return ledger.ErrIllegal
		}
		issue, err := waitIssue(o.Why)
		if err != nil {
			return err
		}
		if v.Status == to && ledger.Millis(v.NextTry) == ledger.Millis(o.Next) && ledger.Millis(v.Expected) == ledger.Millis(o.Expected) &&
			sameIssue(v.Issue, issue) {
			return nil
		}
		return step(t, v, move{to: to, issue: issue, next: ledger.Millis(o.Next), expected: ledger.Millis(o.Expected), held: v.Held,
			lease: true})
	})
	return v, ledger.Wrap(err, "mark verification %s as waiting", l.Verification)
}

// waitIssue returns the issue of a verification that waits for receivers; nil without a reason.
func waitIssue(why string) (*ledger.Issue, error) {
	if why == "" {
		return nil, nil
	}
	return &ledger.Issue{Code: ledger.ReceiversWait, Message: why}, ledger.CheckWhy(why)
}

// sameIssue reports whether two issues, or none, are the same.
func sameIssue(a, b *ledger.Issue) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Park stores the state of a leased verification's work and gives the lease back, until o.Next. With a zero time it
// doesn't wait: its status stays.
func (e Engine) Park(
	ctx context.Context, l ledger.Lease, o ledger.Estimate, state []byte,
) (ledger.Verification, error) {
	again := func(v *Row) bool { // nobody else returns this epoch
		return v.Node == uuid.Nil && v.State() == ledger.WaitingReceivers && v.WakeAt >= ledger.Millis(o.Next) && v.NextTry.Equal(ledger.Clock(ledger.Millis(o.Next)))
	}
	v, err := e.worked(ctx, Scope{}, l, again, func(t Tables, v *Row) error {
		switch {
		case v.Status == ledger.Cancelling:
			return nil
		case !v.State().Funded() || len(state) > ledger.ParkedMax:
			return ledger.ErrIllegal
		}
		issue, err := waitIssue(o.Why)
		if err != nil {
			return err
		}
		if err := t.KeepParked(v.ID, state); err != nil {
			return fmt.Errorf("keep the state of its work: %w", err)
		}
		m := move{to: ledger.Waiting, issue: issue, next: ledger.Millis(o.Next), expected: ledger.Millis(o.Expected),
			held: v.Held, wake: ledger.Millis(o.Next)}
		if o.Next.IsZero() {
			m.to, m.issue, m.next = v.Status, v.Issue, ledger.Millis(v.NextTry)
		}
		return step(t, v, m)
	})
	return v, ledger.Wrap(err, "park verification %s", l.Verification)
}

// Crashed returns a lease after a program fault, or sets the verification aside.
func (e Engine) Crashed(ctx context.Context, l ledger.Lease) (ledger.Verification, error) {
	again := func(v *Row) bool { return v.Node == uuid.Nil && v.Crashes > 0 }
	v, err := e.paid(ctx, l, again, func(t Tables, v *Row) error {
		v.Crashes++
		if v.Crashes < ledger.CrashesMax || v.Status == ledger.Cancelling {
			return step(t, v, move{to: v.Status, issue: v.Issue, next: ledger.Millis(v.NextTry), expected: ledger.Millis(v.Expected),
				held: v.Held, wake: v.Now + ledger.CrashPause.Milliseconds()})
		}
		free := v.Held
		err := step(t, v, move{to: ledger.Failed, more: v.Left(), issue: &ledger.Issue{Code: ledger.InternalError,
			Message: "This service failed over the file, and has been told. What was not checked costs nothing."}})
		if err != nil || free == 0 {
			return err
		}
		return moveHeld(t, v, 0, 0, free)
	})
	return v, ledger.Wrap(err, "note a crash over verification %s", l.Verification)
}
