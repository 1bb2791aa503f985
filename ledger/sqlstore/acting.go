package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"

	"rollcall/ledger"
)

// actingRole is the role of the user of a session that holds, in a workspace.
const actingRole = `SELECT coalesce(m.role, '') FROM user_sessions s JOIN users u ON u.id = s.user_id
	LEFT JOIN memberships m ON m.user_id = u.id AND m.workspace = ?
	WHERE s.id = ? AND s.ends > {now} AND s.seen >= {now} - ? AND u.disabled = 0`

// mayAct refuses the changes of a session that is over, and of a user whose role does not suffice any more.
func (t *tx) mayAct() error {
	a, is := ledger.ActingOf(t.Context())
	if !is {
		return nil
	}
	var role ledger.Role
	err := t.Row(actingRole, a.Workspace[:], a.Session[:], a.Idle.Milliseconds()).Scan(&role)
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
