package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// actingRole is the role of the user of a session that holds, in a workspace.
const actingRole = `SELECT coalesce(m.role, '') FROM user_sessions s JOIN users u ON u.id = s.user_id
	LEFT JOIN memberships m ON m.user_id = u.id AND m.workspace = ?
	WHERE s.id = ? AND s.ends > {now} AND s.seen >= {now} - ? AND u.disabled = 0`

// userRole is the same of a user who has a session that holds.
const userRole = `SELECT coalesce(m.role, '') FROM users u
	LEFT JOIN memberships m ON m.user_id = u.id AND m.workspace = ?
	WHERE u.id = ? AND u.disabled = 0
	AND EXISTS (SELECT 1 FROM user_sessions s WHERE s.user_id = u.id AND s.ends > {now})`

// mayAct refuses the changes of a session that is over, and of a user whose role does not suffice any more.
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
