package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// ReadWorkspace gives a workspace with what it has.
func (d *Desk) ReadWorkspace(ctx context.Context, id uuid.UUID) (WorkspaceLine, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	u, err := d.options.Book.Usage(ctx, id)
	if err != nil {
		return WorkspaceLine{}, d.ofLedger("read a workspace", err)
	}
	b, err := d.options.Book.Balance(ctx, id)
	if err != nil {
		return WorkspaceLine{}, d.ofLedger("read a balance", err)
	}
	return WorkspaceLine{u.Workspace, b}, nil
}

// SetWeight says how many turns a workspace has at a receiver for one of another: 1 to ledger.WeightMax.
func (d *Desk) SetWeight(ctx context.Context, id uuid.UUID, weight int) (ledger.Workspace, error) {
	if weight < 1 || weight > ledger.WeightMax {
		return ledger.Workspace{}, refusal(http.StatusBadRequest, "invalid_request",
			fmt.Sprintf("weight must be a whole number from 1 to %d", ledger.WeightMax))
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	changed, err := d.options.Book.SetWeight(ctx, id, weight)
	if err != nil {
		return changed, d.ofLedger("set weight", err)
	}
	d.options.Log.Info("weight set", "workspace", id, "weight", weight)
	d.tuned()
	return changed, nil
}

// ReadLimits gives what a workspace may have and what it has.
func (d *Desk) ReadLimits(ctx context.Context, id uuid.UUID) (WorkspaceLimits, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	u, err := d.options.Book.Usage(ctx, id)
	if err != nil {
		return WorkspaceLimits{}, d.ofLedger("read limits", err)
	}
	return d.limitsOf(u), nil
}

// SetLimits changes what a workspace may have, from its next create on.
func (d *Desk) SetLimits(ctx context.Context, id uuid.UUID, in LimitsCall) (WorkspaceLimits, error) {
	if err := named("reason", in.Reason, 0); err != nil {
		return WorkspaceLimits{}, err
	}
	for _, n := range []*int64{in.Open, in.Stored, in.Unpaid} {
		if n != nil && (*n < 0 || *n > limitMax) {
			return WorkspaceLimits{}, refusal(http.StatusBadRequest, "invalid_request",
				"open, stored and unpaid must be whole numbers from 1 to 2^53, or 0 for the default")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	u, err := d.options.Book.SetLimits(ctx, ledger.LimitsChange{Workspace: id, Open: in.Open, Stored: in.Stored,
		Unpaid: in.Unpaid, Reason: in.Reason})
	if err != nil {
		return WorkspaceLimits{}, d.ofLedger("set limits", err)
	}
	d.options.Log.Info("limits set", "workspace", id, "limits", u.Own)
	return d.limitsOf(u), nil
}

// limitsOf fills in the defaults of this node.
func (d *Desk) limitsOf(u ledger.Usage) WorkspaceLimits {
	is := u.Own.Or(d.options.Limits)
	return WorkspaceLimits{ID: u.ID.String(), Name: u.Name, Weight: u.Weight,
		Open:   Limit{is.Open, u.Own.Open == 0, u.Used.Open},
		Stored: Limit{is.Stored, u.Own.Stored == 0, u.Used.Stored},
		Unpaid: Limit{is.Unpaid, u.Own.Unpaid == 0, u.Used.Unpaid}}
}

// ListKeys gives the API keys of a workspace, revoked ones too, oldest first.
func (d *Desk) ListKeys(ctx context.Context, workspace uuid.UUID) ([]ledger.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.Keys(ctx, workspace)
	if err != nil {
		return nil, d.ofLedger("list keys", err)
	}
	return found, nil
}

// RevokeKey ends an API key by its public part. One that is revoked already stays as it is.
func (d *Desk) RevokeKey(ctx context.Context, id string) (ledger.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	k, err := d.options.Book.RevokeKey(ctx, id)
	if err != nil {
		return k, d.ofLedger("revoke key", err)
	}
	d.options.Log.Info("key revoked", "workspace", k.Workspace, "key", k.ID)
	return k, nil
}

// ListOpen gives the verifications of a workspace that are not done, newest first, at most limit.
func (d *Desk) ListOpen(ctx context.Context, workspace uuid.UUID, limit int) ([]ledger.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.History(ctx, ledger.HistoryQuery{Workspace: workspace, Open: true, Limit: limit})
	if err != nil {
		return nil, d.ofLedger("list open verifications", err)
	}
	return found, nil
}

// ListGrants gives the grants of a workspace, newest first, at most limit, and says whether there are older ones.
func (d *Desk) ListGrants(ctx context.Context, workspace uuid.UUID, limit int) (grants []ledger.Move, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.Statement(ctx, ledger.StatementQuery{Workspace: workspace, Only: ledger.MoveGrant, Limit: limit})
	if err != nil {
		return nil, false, d.ofLedger("list grants", err)
	}
	return found.Moves, found.More, nil
}
