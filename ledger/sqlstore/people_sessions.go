package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

const sessionColumns = `id, user_id, created, seen, ends, agent, network`

func scanSession(scan func(into ...any) error) (s ledger.Session, err error) {
	var created, seen, ends int64
	err = scan(hashed{&s.ID}, &s.User, &created, &seen, &ends, &s.Agent, &s.Network)
	s.Created, s.Seen, s.Ends = transitions.Clock(created), transitions.Clock(seen), transitions.Clock(ends)
	return s, err
}

// Session reads one, whether it is over or not; nil when there is none.
func (t *tx) Session(id ledger.Hash) (*ledger.Session, error) {
	s, err := scanSession(t.row(`SELECT `+sessionColumns+` FROM user_sessions WHERE id = ?`, id[:]).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return &s, nil
}

// heldSessions are the sessions of a user whose end has not come.
const heldSessions = `SELECT ` + sessionColumns + ` FROM user_sessions WHERE user_id = ? AND ends > ?`

// Holds lists those of a user whose end has not come.
func (t *tx) Holds(user uuid.UUID, now time.Time) (list []ledger.Session, err error) {
	err = t.each(func(rows *sql.Rows) error {
		s, err := scanSession(rows.Scan)
		list = append(list, s)
		return err
	}, heldSessions, user[:], now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	slices.SortFunc(list, func(a, b ledger.Session) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list, nil
}

// AddSession writes a new one, and notes that its user was seen.
func (t *tx) AddSession(s ledger.Session) error {
	_, err := t.exec(`INSERT INTO user_sessions (`+sessionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?)`, s.ID[:], s.User[:],
		transitions.Millis(s.Created), transitions.Millis(s.Seen), transitions.Millis(s.Ends), s.Agent, s.Network)
	if err == nil {
		_, err = t.exec(`UPDATE users SET seen = ? WHERE id = ? AND seen < ?`, transitions.Millis(s.Seen), s.User[:],
			transitions.Millis(s.Seen))
	}
	if err != nil {
		return fmt.Errorf("write session: %w", err)
	}
	return nil
}

// EndSessionAt ends one whose end has not come.
func (t *tx) EndSessionAt(id ledger.Hash, now time.Time) (int64, error) {
	return t.exec(`UPDATE user_sessions SET ends = ? WHERE id = ? AND ends > ?`, now.UnixMilli(), id[:], now.UnixMilli())
}

// mayDo is what a session may do now: a line for each membership of its user, or one without.
const mayDo = `SELECT s.id, s.user_id, s.created, s.seen, s.ends, s.agent, s.network,
	u.id, u.email, u.name, u.password, u.oidc, u.totp, u.created, u.disabled, u.seen, m.workspace, w.name, m.role, m.created
	FROM user_sessions s JOIN users u ON u.id = s.user_id
	LEFT JOIN memberships m ON m.user_id = u.id LEFT JOIN workspaces w ON w.id = m.workspace
	WHERE s.id = ? AND s.ends > {now} AND s.seen >= {now} - ? AND u.disabled = 0`

// SignedIn reads what a session may do now, in one statement; nil when it may do nothing.
func (t *tx) SignedIn(id ledger.Hash, idle time.Duration) (in *ledger.SignedIn, err error) {
	err = t.each(func(rows *sql.Rows) error {
		if in == nil {
			in = &ledger.SignedIn{}
		}
		m, err := scanMayDo(rows.Scan, in)
		if err == nil && m != nil {
			in.Memberships = append(in.Memberships, *m)
		}
		return err
	}, mayDo, id[:], idle.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("read what a session may do: %w", err)
	}
	if in != nil {
		slices.SortFunc(in.Memberships, func(a, b ledger.Membership) int {
			return cmp.Or(cmp.Compare(a.WorkspaceName, b.WorkspaceName), bytes.Compare(a.Workspace[:], b.Workspace[:]))
		})
	}
	return in, nil
}

// scanMayDo reads a line of mayDo; nil without a membership.
func scanMayDo(scan func(into ...any) error, in *ledger.SignedIn) (m *ledger.Membership, err error) {
	var seen int64
	var workspace uuid.NullUUID
	var name, role sql.NullString
	var created sql.NullInt64
	in.Session, err = scanSession(func(session ...any) (err error) {
		in.User, err = scanUser(func(user ...any) error {
			return scan(slices.Concat(session, user, []any{&seen, &workspace, &name, &role, &created})...)
		})
		return err
	})
	if err != nil || !workspace.Valid {
		return nil, err
	}
	return &ledger.Membership{Workspace: workspace.UUID, WorkspaceName: name.String, User: in.User.ID, Email: in.User.Email,
		Name: in.User.Name, Role: ledger.Role(role.String), Created: transitions.Clock(created.Int64), Seen: transitions.Clock(seen)}, nil
}

// UseSessions notes that sessions were used now, and that their users were seen.
func (s *Store) UseSessions(ctx context.Context, ids []ledger.Hash) error {
	if len(ids) > ledger.BatchMax {
		return fmt.Errorf("note the use of %d sessions, %d are allowed: %w", len(ids), ledger.BatchMax, ledger.ErrIllegal)
	}
	if len(ids) == 0 {
		return nil
	}
	err := s.update(ctx, func(t *tx) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		return inHandfuls(ids, func(part []ledger.Hash) error { return t.used(part, now) })
	})
	if err != nil {
		return fmt.Errorf("note the use of %d sessions: %w", len(ids), err)
	}
	return nil
}

// used notes the use of some sessions.
func (t *tx) used(ids []ledger.Hash, now time.Time) error {
	in := ` IN (?` + strings.Repeat(`, ?`, len(ids)-1) + `)`
	args := []any{now.UnixMilli(), now.UnixMilli(), now.UnixMilli()}
	for i := range ids {
		args = append(args, ids[i][:])
	}
	if _, err := t.exec(`UPDATE user_sessions SET seen = ? WHERE ends > ? AND seen < ? AND id`+in, args...); err != nil {
		return err
	}
	_, err := t.exec(`UPDATE users SET seen = ? WHERE seen < ? AND id IN
		(SELECT user_id FROM user_sessions WHERE ends > ? AND id`+in+`)`, args...)
	return err
}

// Attempts reads those of some subjects.
func (t *tx) Attempts(subjects []ledger.Hash) (list []transitions.Attempts, err error) {
	err = inHandfuls(subjects, func(part []ledger.Hash) error {
		args := make([]any, 0, len(part))
		for i := range part {
			args = append(args, part[i][:])
		}
		return t.each(func(rows *sql.Rows) error {
			var a transitions.Attempts
			err := rows.Scan(hashed{&a.Subject}, &a.Failures, &a.Since, &a.Refused, &a.Ends, &a.Call)
			list = append(list, a)
			return err
		}, `SELECT subject, failures, since, refused, ends, last_call FROM sign_in_attempts WHERE subject IN (?`+
			strings.Repeat(`, ?`, len(part)-1)+`)`, args...)
	})
	if err != nil {
		return nil, fmt.Errorf("read failed sign-ins: %w", err)
	}
	return list, nil
}

// KeepAttempts writes those of a subject, in place of what was.
func (t *tx) KeepAttempts(a transitions.Attempts) error {
	_, err := t.exec(`INSERT INTO sign_in_attempts (subject, failures, since, refused, ends, last_call)
		VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures,
		since = excluded.since, refused = excluded.refused, ends = excluded.ends, last_call = excluded.last_call`,
		a.Subject[:], a.Failures, a.Since, a.Refused, a.Ends, a.Call[:])
	if err != nil {
		return fmt.Errorf("write failed sign-ins: %w", err)
	}
	return nil
}

// ForgetFailures forgets those of a subject.
func (s *Store) ForgetFailures(ctx context.Context, subject ledger.Hash) error {
	err := s.update(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM sign_in_attempts WHERE subject = ?`, subject[:])
		return err
	})
	if err != nil {
		return fmt.Errorf("forget failed sign-ins: %w", err)
	}
	return nil
}
