package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

const sessionColumns = `id, user_id, created, seen, ends, agent, network`

func scanSession(scan engine.Scan) (s ledger.Session, err error) {
	err = scan(hashed{&s.ID}, &s.User, engine.At(&s.Created), engine.At(&s.Seen), engine.At(&s.Ends), &s.Agent, &s.Network)
	return s, err
}

// readSession reads a session, even an ended one; nil when there is none.
func (t peopleRows) readSession(id ledger.Hash) (*ledger.Session, error) {
	const read = `SELECT ` + sessionColumns + ` FROM user_sessions WHERE id = ?`
	return engine.Find(t, "read session", scanSession, read, id[:])
}

const heldSessions = `SELECT ` + sessionColumns + ` FROM user_sessions WHERE user_id = ? AND ends > ?`

// addSession writes a new session, and records that its user was seen.
func (t peopleRows) addSession(s ledger.Session) error {
	_, err := t.Exec(`INSERT INTO user_sessions (`+sessionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?)`, s.ID[:], s.User[:],
		ledger.Millis(s.Created), ledger.Millis(s.Seen), ledger.Millis(s.Ends), s.Agent, s.Network)
	if err == nil {
		_, err = t.Exec(`UPDATE users SET seen = ? WHERE id = ? AND seen < ?`, ledger.Millis(s.Seen), s.User[:],
			ledger.Millis(s.Seen))
	}
	return ledger.Wrap(err, "write session")
}

// mayDo finds the rights of a session: a row for each membership of its user, or one row without.
const mayDo = `SELECT s.id, s.user_id, s.created, s.seen, s.ends, s.agent, s.network,
	u.id, u.email, u.name, u.password, u.oidc, u.totp, u.created, u.disabled, u.seen,
	m.workspace, w.name, m.role, m.created
	FROM user_sessions s JOIN users u ON u.id = s.user_id
	LEFT JOIN memberships m ON m.user_id = u.id LEFT JOIN workspaces w ON w.id = m.workspace
	WHERE s.id = ? AND s.ends > {now} AND s.seen >= {now} - ? AND u.disabled = 0`

// signedIn reads the rights of a session in one statement; nil when it is not valid.
func (t peopleRows) signedIn(id ledger.Hash, idle time.Duration) (in *ledger.SignedIn, err error) {
	err = t.Each(func(rows *sql.Rows) error {
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

// scanMayDo reads a row of mayDo; nil without a membership.
func scanMayDo(scan engine.Scan, in *ledger.SignedIn) (m *ledger.Membership, err error) {
	var seen time.Time
	var workspace uuid.NullUUID
	var name, role sql.NullString
	var created sql.NullInt64
	in.Session, err = scanSession(func(session ...any) (err error) {
		in.User, err = scanUser(func(user ...any) error {
			return scan(slices.Concat(session, user, []any{engine.At(&seen), &workspace, &name, &role, &created})...)
		})
		return err
	})
	if err != nil || !workspace.Valid {
		return nil, err
	}
	return &ledger.Membership{Workspace: workspace.UUID, WorkspaceName: name.String, User: in.User.ID,
		Email: in.User.Email, Name: in.User.Name, Role: ledger.Role(role.String), Created: ledger.Clock(created.Int64),
		Seen: seen}, nil
}

// forEver is longer than any session's life.
const forEver = 1 << 62 * time.Nanosecond

// BeginSession signs a user in.
func (s people) BeginSession(ctx context.Context, n ledger.NewSession) (ledger.SignedIn, error) {
	err := s.changeUser(ctx, n.User, func(t *tx, u *ledger.User, now time.Time) error {
		if !u.Disabled.IsZero() {
			return ledger.ErrNoSuchUser
		}
		if err := n.Check(); err != nil {
			return err
		}
		if err := stillProved(n, u); err != nil {
			return err
		}
		return beginSession(ctx, t, n, u, now)
	})
	if err != nil {
		return ledger.SignedIn{}, ledger.Wrap(err, "begin a session of user %s", n.User)
	}
	return s.signedIn(ctx, n.ID, forEver, ledger.ErrNoSuchUser, "begin a session")
}

// stillProved refuses a session if the user's factors have changed since the proof. ErrChanged.
func stillProved(n ledger.NewSession, u *ledger.User) error {
	if n.Proved != (ledger.Hash{}) && n.Proved != u.Factors() {
		return ledger.ErrChanged
	}
	return nil
}

// beginSession makes a session, or finds the one already made. Above the limit it ends the least recently used one.
func beginSession(ctx context.Context, t *tx, n ledger.NewSession, u *ledger.User, now time.Time) error {
	known, err := t.readSession(n.ID)
	switch {
	case err != nil:
		return err
	case known != nil && known.User == n.User && now.Before(known.Ends):
		return nil
	case known != nil:
		return fmt.Errorf("the id of the session was used before: %w", ledger.ErrIllegal)
	}
	if n.TOTP != "" {
		if err := t.replaceTOTP(ctx, u, n.TOTPWas, n.TOTP, signInChange{}, now); err != nil {
			return err
		}
	}
	if _, err := t.Exec(endLeastUsed, now.UnixMilli(), n.User[:], now.UnixMilli(), ledger.SessionsMax-1); err != nil {
		return fmt.Errorf("end what is used least lately: %w", err)
	}
	n = n.Storable()
	return t.addSession(ledger.Session{ID: n.ID, User: n.User, Created: now, Seen: now,
		Ends: now.Add(n.Life).Truncate(time.Millisecond), Agent: n.Agent, Network: n.Network})
}

// endLeastUsed ends the sessions of a user except a number of the most recently used.
const endLeastUsed = `UPDATE user_sessions SET ends = ? WHERE id IN (SELECT id FROM user_sessions
	WHERE user_id = ? AND ends > ? ORDER BY seen DESC, created DESC, id DESC LIMIT 1000000 OFFSET ?)`

// signedIn reads the rights of a session; none is the error for an invalid session, and what begins each error.
func (s people) signedIn(ctx context.Context, id ledger.Hash, idle time.Duration, none error, what string) (
	ledger.SignedIn, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.SignedIn, error) {
		in, err := t.signedIn(id, idle)
		return orNone(in, err, none)
	}, "%s", what)
}

// SessionByID returns a session with its current rights.
func (s people) SessionByID(ctx context.Context, id ledger.Hash, idle time.Duration) (ledger.SignedIn, error) {
	return s.signedIn(ctx, id, idle, ledger.ErrNoSuchSession, "read a session")
}

// Sessions lists the valid sessions of a user, the most recently used first.
func (s people) Sessions(ctx context.Context, user uuid.UUID, idle time.Duration) ([]ledger.Session, error) {
	list, err := ledger.Run(ctx, s.view, func(t *tx) ([]ledger.Session, error) {
		now, err := t.Now()
		if err != nil {
			return nil, err
		}
		list, err := engine.List(t, "list sessions", scanSession, heldSessions, user[:], now.UnixMilli())
		return slices.DeleteFunc(list, func(s ledger.Session) bool { return now.Sub(s.Seen) > idle }), err
	}, "list the sessions of user %s", user)
	slices.SortFunc(list, func(a, b ledger.Session) int {
		return cmp.Or(b.Seen.Compare(a.Seen), b.Created.Compare(a.Created), bytes.Compare(b.ID[:], a.ID[:]))
	})
	return list, err
}

// endSessions ends the sessions of a user except one, and returns those that were valid.
func (t peopleRows) endSessions(user uuid.UUID, but ledger.Hash, now time.Time) ([]ledger.Hash, error) {
	return engine.List(t, "end sessions", func(scan engine.Scan) (id ledger.Hash, err error) {
		err = scan(hashed{&id})
		return id, err
	}, `UPDATE user_sessions SET ends = ? WHERE user_id = ? AND ends > ? AND id <> ? RETURNING id`,
		now.UnixMilli(), user[:], now.UnixMilli(), but[:])
}

// EndSession ends a session of this user.
func (s people) EndSession(ctx context.Context, user uuid.UUID, id ledger.Hash) error {
	return ledger.Wrap(s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`UPDATE user_sessions SET ends = {now} WHERE id = ? AND user_id = ? AND ends > {now}`,
			id[:], user[:])
		return err
	}), "end a session of user %s", user)
}

// EndSessions ends all sessions of a user except one, and returns how many were valid.
func (s people) EndSessions(ctx context.Context, user uuid.UUID, but ledger.Hash) (int, error) {
	// tried collects the sessions that any run of the transaction ended. If the answer to a commit was lost, the next
	// run does not find them any more; after any other failure it finds them again.
	tried := map[ledger.Hash]bool{}
	err := s.changeUser(ctx, user, func(t *tx, _ *ledger.User, now time.Time) error {
		ended, err := t.endSessions(user, but, now)
		for _, id := range ended {
			tried[id] = true
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("end the sessions of user %s: %w", user, err)
	}
	return len(tried), nil
}

// UseSessions records that sessions were used now and their users seen.
func (s people) UseSessions(ctx context.Context, ids []ledger.Hash) error {
	if len(ids) > ledger.BatchMax {
		return fmt.Errorf("note the use of %d sessions, %d are allowed: %w", len(ids), ledger.BatchMax, ledger.ErrIllegal)
	}
	if len(ids) == 0 {
		return nil
	}
	return ledger.Wrap(s.update(ctx, func(t *tx) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		return engine.In(ids, hashArg, func(in string, hashes []any) error { return t.noteUse(in, hashes, now) })
	}), "note the use of %d sessions", len(ids))
}

func (t peopleRows) noteUse(in string, ids []any, now time.Time) error {
	args := append([]any{now.UnixMilli(), now.UnixMilli(), now.UnixMilli()}, ids...)
	if _, err := t.Exec(`UPDATE user_sessions SET seen = ? WHERE ends > ? AND seen < ? AND id`+in, args...); err != nil {
		return err
	}
	_, err := t.Exec(`UPDATE users SET seen = ? WHERE seen < ? AND id IN
		(SELECT user_id FROM user_sessions WHERE ends > ? AND id`+in+`)`, args...)
	return err
}

type attempts struct {
	subject  ledger.Hash
	failures int
	since    int64     // milliseconds
	refused  int64     // end of the refusal, milliseconds; 0: none
	ends     int64     // when they are forgotten, milliseconds
	call     uuid.UUID // the call that last counted
}

func (t peopleRows) readAttempts(subjects []ledger.Hash) (list []attempts, err error) {
	err = engine.In(subjects, hashArg, func(in string, hashes []any) error {
		more, err := engine.List(t, "read failed sign-ins", func(scan engine.Scan) (a attempts, err error) {
			err = scan(hashed{&a.subject}, &a.failures, &a.since, &a.refused, &a.ends, &a.call)
			return a, err
		}, `SELECT subject, failures, since, refused, ends, last_call FROM sign_in_attempts WHERE subject`+in, hashes...)
		list = append(list, more...)
		return err
	})
	return list, err
}

// keepAttempts writes the attempts of a subject and replaces earlier ones.
func (t peopleRows) keepAttempts(a attempts) error {
	_, err := t.Exec(`INSERT INTO sign_in_attempts (subject, failures, since, refused, ends, last_call)
		VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures,
		since = excluded.since, refused = excluded.refused, ends = excluded.ends, last_call = excluded.last_call`,
		a.subject[:], a.failures, a.since, a.refused, a.ends, a.call[:])
	return ledger.Wrap(err, "write failed sign-ins")
}

// FailedSignIn counts a failed sign-in under some subjects.
func (s people) FailedSignIn(ctx context.Context, subjects []ledger.Hash, r ledger.AttemptRule) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	call := uuid.New()
	err := r.Check()
	if err == nil {
		err = checkBatch(subjects)
	}
	if err == nil && len(subjects) > 0 {
		err = s.update(ctx, func(t *tx) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			until, err := countFailure(t, subjects, r, call, now.UnixMilli())
			for i, s := range subjects {
				waits[i] = until[s]
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("count a failed sign-in: %w", err)
	}
	return waits, nil
}

// countFailure counts a failure under each subject, and returns until when each is refused.
func countFailure(t *tx, subjects []ledger.Hash, r ledger.AttemptRule, call uuid.UUID, now int64) (
	map[ledger.Hash]time.Time, error) {
	subjects = differing(subjects)
	known, err := t.readAttempts(subjects)
	if err != nil {
		return nil, err
	}
	until := map[ledger.Hash]time.Time{}
	for _, subject := range subjects {
		a := attempts{subject: subject, since: now}
		at := slices.IndexFunc(known, func(a attempts) bool { return a.subject == subject })
		if at >= 0 && known[at].ends > now {
			a = known[at]
		}
		if a.call != call { // an earlier run may have counted
			a.failures++
			a.call, a.refused = call, 0
			a.ends = a.since + r.Window.Milliseconds()
			if wait := r.Wait(a.failures); wait > 0 {
				a.refused = now + wait.Milliseconds()
				a.ends = max(a.ends, a.refused+r.Window.Milliseconds())
			}
			if err := t.keepAttempts(a); err != nil {
				return nil, err
			}
		}
		until[subject] = a.refusedUntil(now)
	}
	return until, nil
}

// refusedUntil returns the end of a refusal if it is in the future.
func (a attempts) refusedUntil(now int64) time.Time {
	if a.refused <= now {
		return time.Time{}
	}
	return ledger.Clock(a.refused)
}

// differing returns each subject once, sorted, so that two calls with the same subjects lock them in the same order.
func differing(subjects []ledger.Hash) []ledger.Hash {
	subjects = slices.SortedFunc(slices.Values(subjects), func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(subjects)
}

// SignInWaits returns until when subjects are refused.
func (s people) SignInWaits(ctx context.Context, subjects []ledger.Hash) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	err := checkBatch(subjects)
	if err == nil && len(subjects) > 0 {
		err = s.view(ctx, func(t *tx) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			known, err := t.readAttempts(differing(subjects))
			for i, s := range subjects {
				if at := slices.IndexFunc(known, func(a attempts) bool { return a.subject == s }); at >= 0 {
					waits[i] = known[at].refusedUntil(now.UnixMilli())
				}
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read how long sign-ins wait: %w", err)
	}
	return waits, nil
}

// ForgetFailures deletes the failures of a subject.
func (s people) ForgetFailures(ctx context.Context, subject ledger.Hash) error {
	return ledger.Wrap(s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`DELETE FROM sign_in_attempts WHERE subject = ?`, subject[:])
		return err
	}), "forget failed sign-ins")
}
