package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

func (t operatorRows) Log(l ledger.LogLine) error {
	author, err := t.authorOf()
	if err != nil {
		return err
	}
	if err := ledger.CheckOperatorText("author", author); err != nil {
		return err
	}
	if l.ID == uuid.Nil {
		l.ID = newLine()
	}
	_, err = t.Exec(`INSERT INTO operator_log (id, created, action, author, workspace, subject, old, detail, reason)
		VALUES (?, {now}, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		l.ID[:], l.Action, author, l.Workspace[:], l.Subject, l.Old, l.New, l.Reason)
	return ledger.Wrap(err, "write operator log")
}

// authorOf returns the author of a change as the log names them: an operator, or the email of a user.
func (t operatorRows) authorOf() (string, error) {
	author := ledger.Author(t.Context())
	user, is := ledger.UserOf(ledger.Actor(t.Context()))
	if author != "" || !is {
		return author, nil
	}
	return engine.Value[string](t, "read who makes a change", `SELECT email FROM users WHERE id = ?`, user[:])
}

// newLine makes the id of a line. Ids grow, so that a node's lines of one millisecond stay in order.
func newLine() uuid.UUID { return uuid.Must(uuid.NewV7()) }

const overrideColumns = `id, name, fields, author, reason, created, expires`

func scanOverride(scan engine.Scan) (o ledger.ThrottleOverride, err error) {
	var fields []byte
	err = scan(&o.ID, &o.Key, &fields, &o.Author, &o.Reason, engine.At(&o.Created), engine.At(&o.Expires))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(fields, &o.Fields); err != nil {
		return o, fmt.Errorf("fields of override %s: %w", o.ID, err)
	}
	return o, nil
}

func (t operatorRows) Override(id uuid.UUID) (*ledger.ThrottleOverride, error) {
	const read = `SELECT ` + overrideColumns + ` FROM throttle_overrides WHERE id = ?`
	return engine.Find(t, "read override", scanOverride, read, id[:])
}

// The condition for active overrides, as in their index.
const (
	holding              = ` FROM throttle_overrides WHERE ends > {now}`
	countActiveOverrides = `SELECT count(*)` + holding
	activeOverrides      = `SELECT ` + overrideColumns + holding
)

func (t operatorRows) HowMany() (n int, err error) {
	return engine.Value[int](t, "count overrides", countActiveOverrides)
}

func (t operatorRows) ActiveOverrides(key string) (list []ledger.ThrottleOverride, err error) {
	query, args := activeOverrides, []any{}
	if key != "" {
		query, args = query+` AND name = ?`, append(args, key)
	}
	list, err = engine.List(t, "list overrides", scanOverride, query, args...)
	slices.SortFunc(list, func(a, b ledger.ThrottleOverride) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return list, err
}

func (t operatorRows) InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error {
	fields, err := json.Marshal(o.Fields)
	if err != nil {
		return fmt.Errorf("write fields of override: %w", err)
	}
	_, err = t.Exec(`INSERT INTO throttle_overrides (`+overrideColumns+`, ends)
		VALUES (?, ?, ?, ?, ?, {now}, {now} + ?, {now} + ?)`,
		o.ID[:], o.Key, string(fields), o.Author, o.Reason, holds.Milliseconds(), holds.Milliseconds())
	return ledger.Wrap(err, "write override")
}

func (t operatorRows) EndOverride(id uuid.UUID) (int64, error) {
	return t.Exec(`UPDATE throttle_overrides SET ends = {now} WHERE id = ? AND ends > {now}`, id[:])
}

func (t operatorRows) Lifted(id uuid.UUID) (lifted bool, err error) {
	// No row: it was never set, or a sweep has deleted it.
	const read = `SELECT ends < expires FROM throttle_overrides WHERE id = ? {lock}`
	return engine.Value[bool](t, "look whether an override was cleared", read, id[:])
}

const setWeights = `SELECT workspace, weight FROM workspace_weights WHERE weight <> 1`

// Settings reads the settings that every node follows.
func (s operators) Settings(ctx context.Context) (ledger.Settings, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (set ledger.Settings, err error) {
		if set.Now, err = t.Now(); err != nil {
			return set, err
		}
		if set.Overrides, err = t.ActiveOverrides(""); err != nil {
			return set, err
		}
		set.Weights, err = engine.Pairs[uuid.UUID, int](t, "list weights", setWeights)
		return set, err
	}, "read overrides and weights")
}

// SetWeight sets a workspace's share of turns relative to others.
func (s operators) SetWeight(ctx context.Context, workspace uuid.UUID, weight int) (ledger.Workspace, error) {
	return ledger.Run(ctx, s.update, func(t *tx) (w ledger.Workspace, err error) {
		if w, err = t.readWorkspace(workspace); err != nil {
			return w, err
		}
		if weight < 1 || weight > ledger.WeightMax {
			return w, fmt.Errorf("weight %d, 1 to %d are allowed: %w", weight, ledger.WeightMax, ledger.ErrIllegal)
		}
		before := w.Weight
		if before == weight {
			return w, nil
		}
		if err := t.weigh(workspace, weight); err != nil {
			return w, err
		}
		w.Weight = weight
		return w, t.Log(ledger.LogLine{Action: "workspace weight", Workspace: workspace, Subject: workspace.String(),
			Old: strconv.Itoa(before), New: strconv.Itoa(weight)})
	}, "set weight of workspace %s", workspace)
}

func (t tenantRows) weigh(workspace uuid.UUID, weight int) error {
	_, err := t.Exec(`INSERT INTO workspace_weights (workspace, weight) VALUES (?, ?)
		ON CONFLICT (workspace) DO UPDATE SET weight = excluded.weight`, workspace[:], weight)
	return ledger.Wrap(err, "write weight")
}

// Note writes a line of the operator log about an action outside the ledger.
func (s operators) Note(ctx context.Context, l ledger.LogLine) error {
	err := l.Check()
	if err == nil {
		if l.ID == uuid.Nil {
			l.ID = newLine() // before the transaction, which may run several times
		}
		err = s.update(ctx, func(t *tx) error { return t.Log(l) })
	}
	return ledger.Wrap(err, "note %q in the operator log", l.Action)
}

const (
	logColumns  = `id, created, action, author, workspace, subject, old, detail, reason`
	newestLines = `SELECT ` + logColumns + ` FROM operator_log` + newestFirst
	olderLines  = `SELECT ` + logColumns + ` FROM operator_log WHERE (created, id) < (?, ?)` + newestFirst
)

// OperatorLog returns one page, newest first, as one range read of an index.
func (s operators) OperatorLog(ctx context.Context, q ledger.LogQuery) ([]ledger.LogLine, error) {
	if q.Limit < 1 || q.Limit > ledger.LogLinesMax {
		return nil, fmt.Errorf("read operator log: %d lines, 1 to %d are allowed: %w", q.Limit,
			ledger.LogLinesMax, ledger.ErrIllegal)
	}
	query, args := newestLines, []any{q.Limit}
	if !q.Before.IsZero() {
		// Log times are whole milliseconds: a time within one comes after all its lines.
		before := q.Before.Add(time.Millisecond - 1).UnixMilli()
		query, args = olderLines, []any{before, q.After[:], q.Limit}
	}
	return ledger.Run(ctx, s.view, func(t *tx) ([]ledger.LogLine, error) {
		return engine.List(t, "list lines", func(scan engine.Scan) (l ledger.LogLine, err error) {
			err = scan(&l.ID, engine.At(&l.At), &l.Action, &l.Author, &l.Workspace, &l.Subject, &l.Old, &l.New, &l.Reason)
			return l, err
		}, query, args...)
	}, "read operator log")
}

func (t operatorRows) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	if l.ID == uuid.Nil {
		l.ID = newLine()
	}
	_, err := t.Exec(`INSERT INTO workspace_log (id, workspace, created, actor, action, subject, detail)
		VALUES (?, ?, {now}, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		l.ID[:], workspace[:], l.Actor, l.Action, l.Subject, l.Detail)
	return ledger.Wrap(err, "write the log of a workspace")
}

// actingRole finds the role of a valid session's user in a workspace.
const actingRole = `SELECT coalesce(m.role, '') FROM user_sessions s JOIN users u ON u.id = s.user_id
	LEFT JOIN memberships m ON m.user_id = u.id AND m.workspace = ?
	WHERE s.id = ? AND s.ends > {now} AND s.seen >= {now} - ? AND u.disabled = 0`

// userRole finds the role of a user with a valid session.
const userRole = `SELECT coalesce(m.role, '') FROM users u
	LEFT JOIN memberships m ON m.user_id = u.id AND m.workspace = ?
	WHERE u.id = ? AND u.disabled = 0
	AND EXISTS (SELECT 1 FROM user_sessions s WHERE s.user_id = u.id AND s.ends > {now})`

// mayAct refuses changes by an ended session, and by a user whose role is no longer sufficient.
func (t *tx) mayAct() error {
	a, is := ledger.ActingOf(t.Context())
	if !is {
		return nil
	}
	row := t.Row(userRole, a.Workspace[:], a.User[:])
	if a.User == uuid.Nil {
		row = t.Row(actingRole, a.Workspace[:], a.Session[:], a.Idle.Milliseconds())
	}
	var role ledger.Role
	err := row.Scan(&role)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ledger.ErrNoSuchSession
	case err != nil:
		return fmt.Errorf("read whose session acts: %w", err)
	case a.Role != "" && !role.Allows(a.Role):
		return ledger.ErrNotAllowed
	}
	return nil
}
