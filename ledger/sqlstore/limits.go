package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// bit is how a truth is stored.
func bit(truth bool) int64 {
	if truth {
		return 1
	}
	return 0
}

// Limits reads what was set for a workspace; 0 is the default.
func (t tenantRows) Limits(workspace uuid.UUID) (l ledger.Limits, err error) {
	err = t.Row(`SELECT coalesce(open, 0), coalesce(stored, 0), coalesce(unpaid, 0) FROM workspace_limits
		WHERE workspace = ?`, workspace[:]).Scan(&l.Open, &l.Stored, &l.Unpaid)
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Limits{}, nil
	}
	return l, err
}

const sumStored = `SELECT coalesce(CAST(sum(bytes) AS BIGINT), 0) FROM verifications
	WHERE workspace = ? AND upload_deleted = 0`

// Stored adds up the declared bytes of the verifications whose upload is not erased.
func (t verificationRows) Stored(workspace uuid.UUID) (sum int64, err error) {
	err = t.Row(sumStored, workspace[:]).Scan(&sum)
	return sum, err
}

const countUnpaid = `SELECT count(*), coalesce(min(created), 0), {now} FROM verifications
	WHERE workspace = ? AND paid = 0 AND created > {now} - ?`

// Unpaid counts the verifications of late that never held a credit.
func (t verificationRows) Unpaid(workspace uuid.UUID) (u transitions.Unpaid, err error) {
	err = t.Row(countUnpaid, workspace[:], ledger.UnpaidWithin.Milliseconds()).Scan(&u.Count, &u.Oldest, &u.Now)
	return u, err
}

// usage reads what a workspace may have and what it has. ErrNoSuchWorkspace.
func (t *tx) usage(workspace uuid.UUID) (u ledger.Usage, err error) {
	u.Workspace, err = scanWorkspace(t.Row(`SELECT `+workspaceColumns+` FROM workspaces WHERE id = ?`, workspace[:]).Scan)
	if err != nil {
		return u, err
	}
	if u.Own, err = t.Limits(workspace); err != nil {
		return u, err
	}
	if u.Used.Open, err = t.Open(workspace); err != nil {
		return u, err
	}
	if u.Used.Stored, err = t.Stored(workspace); err != nil {
		return u, err
	}
	unpaid, err := t.Unpaid(workspace)
	u.Used.Unpaid = unpaid.Count
	return u, err
}

// Usage reads what a workspace may have and what it has.
func (s tenants) Usage(ctx context.Context, workspace uuid.UUID) (u ledger.Usage, err error) {
	err = s.view(ctx, func(t *tx) error {
		u, err = t.usage(workspace)
		return err
	})
	if err != nil {
		return ledger.Usage{}, fmt.Errorf("read limits of workspace %s: %w", workspace, err)
	}
	return u, nil
}

// SetLimits changes the limits of a workspace.
func (s tenants) SetLimits(ctx context.Context, c ledger.LimitsChange) (u ledger.Usage, err error) {
	err = s.update(ctx, func(t *tx) error {
		if u, err = t.usage(c.Workspace); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return err
		}
		before := u.Own
		if u.Own = c.Apply(before); u.Own == before {
			return nil
		}
		if err := t.limit(c.Workspace, u.Own); err != nil {
			return err
		}
		return t.Log(ledger.LogLine{Action: "workspace limits", Workspace: c.Workspace,
			Subject: c.Workspace.String(), Old: before.String(), New: u.Own.String(), Reason: c.Reason})
	})
	if err != nil {
		return ledger.Usage{}, fmt.Errorf("set limits of workspace %s: %w", c.Workspace, err)
	}
	return u, nil
}

// limit writes the limits of a workspace.
func (t tenantRows) limit(workspace uuid.UUID, l ledger.Limits) error {
	_, err := t.Exec(`INSERT INTO workspace_limits (workspace, open, stored, unpaid)
		VALUES (?, nullif(?, 0), nullif(?, 0), nullif(?, 0)) ON CONFLICT (workspace) DO UPDATE
		SET open = excluded.open, stored = excluded.stored, unpaid = excluded.unpaid`,
		workspace[:], l.Open, l.Stored, l.Unpaid)
	if err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}
