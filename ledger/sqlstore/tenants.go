package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

const workspaceColumns = `id, name, created,
	coalesce((SELECT weight FROM workspace_weights WHERE workspace = workspaces.id), 1)`

func scanWorkspace(scan engine.Scan) (w ledger.Workspace, err error) {
	if err = scan(&w.ID, &w.Name, engine.At(&w.Created), &w.Weight); errors.Is(err, sql.ErrNoRows) {
		err = ledger.ErrNoSuchWorkspace
	}
	return w, err
}

// readWorkspace reads a workspace. ErrNoSuchWorkspace.
func (t tenantRows) readWorkspace(id uuid.UUID) (ledger.Workspace, error) {
	return scanWorkspace(t.Row(`SELECT `+workspaceColumns+` FROM workspaces WHERE id = ?`, id[:]).Scan)
}

// CreateWorkspace makes a workspace, or returns the one with the id.
func (s tenants) CreateWorkspace(ctx context.Context, id uuid.UUID, name string) (ledger.Workspace, error) {
	return ledger.Run(ctx, s.update, func(t *tx) (w ledger.Workspace, err error) {
		if err := ledger.CheckName(name); err != nil {
			return w, err
		}
		n, err := t.Exec(`INSERT INTO workspaces (id, name, created) VALUES (?, ?, {now})
			ON CONFLICT DO NOTHING`, id[:], name)
		if err == nil && n == 1 {
			err = t.Log(ledger.LogLine{Action: "workspace create", Workspace: id, Subject: id.String(), New: name})
		}
		if err != nil {
			return w, err
		}
		return t.readWorkspace(id)
	}, "create workspace %s", id)
}

// Workspaces lists all workspaces, oldest first.
func (s tenants) Workspaces(ctx context.Context) ([]ledger.Workspace, error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]ledger.Workspace, error) {
		return engine.List(t, "read", scanWorkspace, `SELECT `+workspaceColumns+` FROM workspaces ORDER BY created, id`)
	}, "list workspaces")
}

const keyColumns = `id, workspace, label, secret, created, revoked, made_by, revoked_by, last_used`

func scanKey(scan engine.Scan) (k ledger.Key, err error) {
	var secret []byte
	err = scan(&k.ID, &k.Workspace, &k.Label, &secret, engine.At(&k.Created), engine.At(&k.Revoked), &k.MadeBy,
		&k.RevokedBy, engine.At(&k.LastUsed))
	if errors.Is(err, sql.ErrNoRows) {
		err = ledger.ErrNoSuchKey
	}
	copy(k.SecretSHA256[:], secret)
	return k, err
}

// key reads a key. An id that no database can store belongs to no key. ErrNoSuchKey.
func (t tenantRows) key(id string) (k ledger.Key, err error) {
	if ledger.CheckText(id) != nil {
		return k, ledger.ErrNoSuchKey
	}
	if k, err = scanKey(t.Row(`SELECT `+keyColumns+` FROM api_keys WHERE id = ?`, id).Scan); err == nil {
		k.Suspended, err = t.isSuspended(k)
	}
	return k, err
}

// isSuspended reports whether a key's maker is now disabled, or no longer an owner of its workspace.
func (t tenantRows) isSuspended(k ledger.Key) (bool, error) {
	maker, is := ledger.UserOf(k.MadeBy)
	if !is {
		return false, nil
	}
	owns, err := engine.Value[int](t, "read who made the key", `SELECT count(*) FROM memberships m
		JOIN users u ON u.id = m.user_id
		WHERE m.workspace = ? AND m.user_id = ? AND m.role = 'owner' AND u.disabled = 0`, k.Workspace[:], maker[:])
	return err == nil && owns == 0, err
}

// CreateKey stores a key with the ledger's times; ledger.WithActor names its maker. Run again with the same key it
// changes nothing; another key with the same id is ErrIllegal.
func (s tenants) CreateKey(ctx context.Context, k ledger.Key) (ledger.Key, error) {
	return ledger.Run(ctx, s.update, func(t *tx) (made ledger.Key, err error) {
		if _, err := t.Account(k.Workspace); err != nil {
			return made, err
		}
		actor := ledger.Actor(ctx)
		if err := errors.Join(ledger.CheckName(k.ID+k.Label), ledger.CheckOperatorText("actor", actor)); err != nil {
			return made, err
		}
		n, err := t.Exec(`INSERT INTO api_keys (id, workspace, label, secret, created, made_by)
			VALUES (?, ?, ?, ?, {now}, ?)
			ON CONFLICT DO NOTHING`, k.ID, k.Workspace[:], k.Label, k.SecretSHA256[:], actor)
		if err == nil && n == 1 {
			err = t.logKey("key create", k)
		}
		if err == nil {
			made, err = t.key(k.ID)
		}
		if err == nil && (made.Workspace != k.Workspace || made.SecretSHA256 != k.SecretSHA256) {
			err = fmt.Errorf("the key id is taken: %w", ledger.ErrIllegal)
		}
		return made, err
	}, "create key %s in workspace %s", k.ID, k.Workspace)
}

// logKey writes a line about a key to the operator log and to its workspace's log.
func (t *tx) logKey(action string, k ledger.Key) error {
	l := ledger.WorkspaceLine{Actor: ledger.Actor(t.Context()), Action: action, Subject: k.ID, Detail: k.Label}
	if err := t.LogIn(k.Workspace, l); err != nil {
		return err
	}
	return t.Log(ledger.LogLine{Action: action, Workspace: k.Workspace, Subject: k.ID, New: k.Label})
}

// UseKeys records that keys were used now. An id that no database can store belongs to no key.
func (s tenants) UseKeys(ctx context.Context, ids []string) error {
	if len(ids) > ledger.BatchMax {
		return fmt.Errorf("note the use of %d keys, %d are allowed: %w", len(ids), ledger.BatchMax, ledger.ErrIllegal)
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return ledger.CheckText(id) != nil })
	if len(ids) == 0 {
		return nil
	}
	return ledger.Wrap(s.update(ctx, func(t *tx) error {
		return engine.In(ids, textArg, func(in string, args []any) error {
			_, err := t.Exec(`UPDATE api_keys SET last_used = {now} WHERE revoked = 0 AND last_used < {now} AND id`+in, args...)
			return err
		})
	}), "note the use of %d keys", len(ids))
}

// Keys lists the keys of a workspace, with revoked ones, oldest first.
func (s tenants) Keys(ctx context.Context, workspace uuid.UUID) ([]ledger.Key, error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]ledger.Key, error) {
		if _, err := t.Account(workspace); err != nil {
			return nil, err
		}
		list, err := engine.List(t, "read", scanKey,
			`SELECT `+keyColumns+` FROM api_keys WHERE workspace = ? ORDER BY created, id`, workspace[:])
		by := map[string]bool{} // by maker: whether their keys are suspended
		for i, k := range list {
			is, known := by[k.MadeBy]
			if !known {
				if is, err = t.isSuspended(k); err != nil {
					return nil, err
				}
				by[k.MadeBy] = is
			}
			list[i].Suspended = is
		}
		return list, err
	}, "list keys of workspace %s", workspace)
}

// KeyByID reads one key, even a revoked one.
func (s tenants) KeyByID(ctx context.Context, id string) (ledger.Key, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.Key, error) { return t.key(id) }, "read key")
}

// RevokeKey ends a key; the time of the first revocation stays.
func (s tenants) RevokeKey(ctx context.Context, id string) (ledger.Key, error) {
	return ledger.Run(ctx, s.update, func(t *tx) (k ledger.Key, err error) {
		if k, err = t.key(id); err != nil || !k.Revoked.IsZero() {
			return k, err
		}
		actor := ledger.Actor(ctx)
		if err = ledger.CheckOperatorText("actor", actor); err != nil {
			return k, err
		}
		if _, err = t.Exec(`UPDATE api_keys SET revoked = {now}, revoked_by = ? WHERE id = ?`, actor, id); err != nil {
			return k, err
		}
		if k, err = t.key(id); err != nil {
			return k, err
		}
		return k, t.logKey("key revoke", k)
	}, "revoke key %s", id)
}

func (s secrets) Secret(ctx context.Context, name string, size int) (value []byte, err error) {
	const read = `SELECT value FROM secrets WHERE name = ?`
	err = s.view(ctx, func(t *tx) error { return t.Row(read, name).Scan(&value) })
	if err == nil {
		return value, nil
	}
	fresh := make([]byte, size)
	if _, err := rand.Read(fresh); err != nil {
		return nil, fmt.Errorf("make secret %s: %w", name, err)
	}
	err = s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`INSERT INTO secrets (name, value, created) VALUES (?, ?, {now})
			ON CONFLICT DO NOTHING`, name, fresh)
		if err != nil {
			return err
		}
		return t.Row(read, name).Scan(&value)
	})
	if err != nil {
		return nil, fmt.Errorf("make secret %s: %w", name, err)
	}
	return value, nil
}

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

func (t verificationRows) Stored(workspace uuid.UUID) (sum int64, err error) {
	err = t.Row(sumStored, workspace[:]).Scan(&sum)
	return sum, err
}

const countUnpaid = `SELECT count(*), coalesce(min(created), 0), {now} FROM verifications
	WHERE workspace = ? AND paid = 0 AND created > {now} - ?`

func (t verificationRows) Unpaid(workspace uuid.UUID) (u transitions.Unpaid, err error) {
	err = t.Row(countUnpaid, workspace[:], ledger.UnpaidWithin.Milliseconds()).Scan(&u.Count, &u.Oldest, &u.Now)
	return u, err
}

// usage reads the limits and usage of a workspace. ErrNoSuchWorkspace.
func (t *tx) usage(workspace uuid.UUID) (u ledger.Usage, err error) {
	if u.Workspace, err = t.readWorkspace(workspace); err != nil {
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

// Usage reads the limits and usage of a workspace.
func (s tenants) Usage(ctx context.Context, workspace uuid.UUID) (ledger.Usage, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.Usage, error) { return t.usage(workspace) },
		"read limits of workspace %s", workspace)
}

// SetLimits changes the limits of a workspace.
func (s tenants) SetLimits(ctx context.Context, c ledger.LimitsChange) (ledger.Usage, error) {
	return ledger.Run(ctx, s.update, func(t *tx) (u ledger.Usage, err error) {
		if u, err = t.usage(c.Workspace); err != nil {
			return u, err
		}
		if err := c.Check(); err != nil {
			return u, err
		}
		before := u.Own
		if u.Own = c.Apply(before); u.Own == before {
			return u, nil
		}
		if err := t.limit(c.Workspace, u.Own); err != nil {
			return u, err
		}
		return u, t.Log(ledger.LogLine{Action: "workspace limits", Workspace: c.Workspace,
			Subject: c.Workspace.String(), Old: before.String(), New: u.Own.String(), Reason: c.Reason})
	}, "set limits of workspace %s", c.Workspace)
}

func (t tenantRows) limit(workspace uuid.UUID, l ledger.Limits) error {
	_, err := t.Exec(`INSERT INTO workspace_limits (workspace, open, stored, unpaid)
		VALUES (?, nullif(?, 0), nullif(?, 0), nullif(?, 0)) ON CONFLICT (workspace) DO UPDATE
		SET open = excluded.open, stored = excluded.stored, unpaid = excluded.unpaid`,
		workspace[:], l.Open, l.Stored, l.Unpaid)
	return ledger.Wrap(err, "write limits")
}
