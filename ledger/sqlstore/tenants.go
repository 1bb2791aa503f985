package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

const workspaceColumns = `id, name, created,
	coalesce((SELECT weight FROM workspace_weights WHERE workspace = workspaces.id), 1)`

func scanWorkspace(scan func(into ...any) error) (w ledger.Workspace, err error) {
	var created int64
	if err = scan(&w.ID, &w.Name, &created, &w.Weight); errors.Is(err, sql.ErrNoRows) {
		err = ledger.ErrNoSuchWorkspace
	}
	w.Created = ledger.Clock(created)
	return w, err
}

// CreateWorkspace makes a workspace, or answers the one that has the id.
func (s tenants) CreateWorkspace(ctx context.Context, id uuid.UUID, name string) (ledger.Workspace, error) {
	var w ledger.Workspace
	if err := ledger.CheckName(name); err != nil {
		return w, fmt.Errorf("create workspace %s: %w", id, err)
	}
	err := s.update(ctx, func(t *tx) error {
		n, err := t.Exec(`INSERT INTO workspaces (id, name, created) VALUES (?, ?, {now})
			ON CONFLICT DO NOTHING`, id[:], name)
		if err != nil {
			return err
		}
		if n == 1 {
			if err := t.Log(ledger.LogLine{Action: "workspace create", Workspace: id, Subject: id.String(),
				New: name}); err != nil {
				return err
			}
		}
		w, err = scanWorkspace(t.Row(`SELECT `+workspaceColumns+` FROM workspaces WHERE id = ?`, id[:]).Scan)
		return err
	})
	if err != nil {
		return ledger.Workspace{}, fmt.Errorf("create workspace %s: %w", id, err)
	}
	return w, nil
}

// Workspaces lists all, oldest first.
func (s tenants) Workspaces(ctx context.Context) ([]ledger.Workspace, error) {
	var list []ledger.Workspace
	err := s.view(ctx, func(t *tx) error {
		return t.Each(func(rows *sql.Rows) error {
			w, err := scanWorkspace(rows.Scan)
			list = append(list, w)
			return err
		}, `SELECT `+workspaceColumns+` FROM workspaces ORDER BY created, id`)
	})
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	return list, nil
}

const keyColumns = `id, workspace, label, secret, created, revoked, made_by, revoked_by, last_used`

func scanKey(scan func(into ...any) error) (k ledger.Key, err error) {
	var secret []byte
	var created, revoked, used int64
	err = scan(&k.ID, &k.Workspace, &k.Label, &secret, &created, &revoked, &k.MadeBy, &k.RevokedBy, &used)
	if errors.Is(err, sql.ErrNoRows) {
		err = ledger.ErrNoSuchKey
	}
	copy(k.SecretSHA256[:], secret)
	k.Created, k.Revoked, k.LastUsed = ledger.Clock(created), ledger.Clock(revoked), ledger.Clock(used)
	return k, err
}

// key reads one. An id that no database can keep is nobody's. ErrNoSuchKey.
func (t tenantRows) key(id string) (k ledger.Key, err error) {
	if ledger.CheckText(id) != nil {
		return k, ledger.ErrNoSuchKey
	}
	if k, err = scanKey(t.Row(`SELECT `+keyColumns+` FROM api_keys WHERE id = ?`, id).Scan); err == nil {
		k.Suspended, err = t.isSuspended(k)
	}
	return k, err
}

// isSuspended reports whether a key was made by a user who is disabled or no owner of its workspace now.
func (t tenantRows) isSuspended(k ledger.Key) (bool, error) {
	maker, is := ledger.UserOf(k.MadeBy)
	if !is {
		return false, nil
	}
	var owns int
	err := t.Row(`SELECT count(*) FROM memberships m JOIN users u ON u.id = m.user_id
		WHERE m.workspace = ? AND m.user_id = ? AND m.role = 'owner' AND u.disabled = 0`, k.Workspace[:], maker[:]).
		Scan(&owns)
	if err != nil {
		return false, fmt.Errorf("read who made the key: %w", err)
	}
	return owns == 0, nil
}

// CreateKey stores a key; its times are the ledger's, and who made it is told by ledger.WithActor. Run again with the same
// key it changes nothing; another key with the same id is ErrIllegal.
func (s tenants) CreateKey(ctx context.Context, k ledger.Key) (made ledger.Key, err error) {
	err = s.update(ctx, func(t *tx) error {
		if _, err := t.Account(k.Workspace); err != nil {
			return err
		}
		actor := ledger.Actor(ctx)
		if err := errors.Join(ledger.CheckName(k.ID+k.Label), ledger.CheckOperatorText("actor", actor)); err != nil {
			return err
		}
		n, err := t.Exec(`INSERT INTO api_keys (id, workspace, label, secret, created, made_by)
			VALUES (?, ?, ?, ?, {now}, ?)
			ON CONFLICT DO NOTHING`, k.ID, k.Workspace[:], k.Label, k.SecretSHA256[:], actor)
		if err != nil {
			return err
		}
		if n == 1 {
			if err := t.logKey("key create", k); err != nil {
				return err
			}
		}
		made, err = t.key(k.ID)
		if err == nil && (made.Workspace != k.Workspace || made.SecretSHA256 != k.SecretSHA256) {
			return fmt.Errorf("the key id is taken: %w", ledger.ErrIllegal)
		}
		return err
	})
	if err != nil {
		return ledger.Key{}, fmt.Errorf("create key %s in workspace %s: %w", k.ID, k.Workspace, err)
	}
	return made, nil
}

// logKey writes a line about a key, in the operator log and in the log of its workspace.
func (t *tx) logKey(action string, k ledger.Key) error {
	l := ledger.WorkspaceLine{Actor: ledger.Actor(t.Context()), Action: action, Subject: k.ID, Detail: k.Label}
	if err := t.LogIn(k.Workspace, l); err != nil {
		return err
	}
	return t.Log(ledger.LogLine{Action: action, Workspace: k.Workspace, Subject: k.ID, New: k.Label})
}

// UseKeys notes that keys were used now. An id that no database can keep is nobody's.
func (s tenants) UseKeys(ctx context.Context, ids []string) error {
	if len(ids) > ledger.BatchMax {
		return fmt.Errorf("note the use of %d keys, %d are allowed: %w", len(ids), ledger.BatchMax, ledger.ErrIllegal)
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return ledger.CheckText(id) != nil })
	if len(ids) == 0 {
		return nil
	}
	err := s.update(ctx, func(t *tx) error {
		return engine.InHandfuls(ids, func(part []string) error {
			args := make([]any, 0, len(part))
			for _, id := range part {
				args = append(args, id)
			}
			_, err := t.Exec(`UPDATE api_keys SET last_used = {now} WHERE revoked = 0 AND last_used < {now} AND id IN (?`+
				strings.Repeat(`, ?`, len(part)-1)+`)`, args...)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("note the use of %d keys: %w", len(ids), err)
	}
	return nil
}

// Keys lists the keys of a workspace, revoked ones too, oldest first.
func (s tenants) Keys(ctx context.Context, workspace uuid.UUID) ([]ledger.Key, error) {
	var list []ledger.Key
	err := s.view(ctx, func(t *tx) error {
		if _, err := t.Account(workspace); err != nil {
			return err
		}
		err := t.Each(func(rows *sql.Rows) error {
			k, err := scanKey(rows.Scan)
			list = append(list, k)
			return err
		}, `SELECT `+keyColumns+` FROM api_keys WHERE workspace = ? ORDER BY created, id`, workspace[:])
		if err != nil {
			return err
		}
		by := map[string]bool{} // whether what they made is suspended
		for i, k := range list {
			is, known := by[k.MadeBy]
			if !known {
				if is, err = t.isSuspended(k); err != nil {
					return err
				}
				by[k.MadeBy] = is
			}
			list[i].Suspended = is
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list keys of workspace %s: %w", workspace, err)
	}
	return list, nil
}

// KeyByID reads one key, also a revoked one.
func (s tenants) KeyByID(ctx context.Context, id string) (ledger.Key, error) {
	var k ledger.Key
	err := s.view(ctx, func(t *tx) (err error) {
		k, err = t.key(id)
		return err
	})
	if err != nil {
		return ledger.Key{}, fmt.Errorf("read key: %w", err)
	}
	return k, nil
}

// RevokeKey ends a key; the time of the first revocation stays.
func (s tenants) RevokeKey(ctx context.Context, id string) (k ledger.Key, err error) {
	err = s.update(ctx, func(t *tx) error {
		if k, err = t.key(id); err != nil || !k.Revoked.IsZero() {
			return err
		}
		actor := ledger.Actor(ctx)
		if err = ledger.CheckOperatorText("actor", actor); err != nil {
			return err
		}
		if _, err = t.Exec(`UPDATE api_keys SET revoked = {now}, revoked_by = ? WHERE id = ?`, actor, id); err != nil {
			return err
		}
		if k, err = t.key(id); err != nil {
			return err
		}
		return t.logKey("key revoke", k)
	})
	if err != nil {
		return ledger.Key{}, fmt.Errorf("revoke key %s: %w", id, err)
	}
	return k, nil
}

// Secret returns the named random value, made once at first use.
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
			ON CONFLICT DO NOTHING`,
			name, fresh)
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
