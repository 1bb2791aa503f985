package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

const userColumns = `id, email, name, password, oidc, totp, created, disabled`

func scanUser(scan engine.Scan) (u ledger.User, err error) {
	err = scan(&u.ID, &u.Email, &u.Name, &u.Password, &u.OIDC, &u.TOTP, engine.At(&u.Created), engine.At(&u.Disabled))
	return u, err
}

// oneUser reads a user; nil when there is none.
func (t peopleRows) oneUser(query string, args ...any) (*ledger.User, error) {
	return engine.Find(t, "read user", scanUser, query, args...)
}

// The queries for users.
const (
	userByID    = `SELECT ` + userColumns + ` FROM users WHERE id = ?`
	userByEmail = `SELECT ` + userColumns + ` FROM users WHERE folded = ?`
	userByOIDC  = `SELECT ` + userColumns + ` FROM users WHERE oidc = ? AND oidc <> ''`
	pageOfUsers = `SELECT ` + userColumns + ` FROM users WHERE folded > ? ORDER BY folded LIMIT ?`
)

func (t peopleRows) readUser(id uuid.UUID) (*ledger.User, error) { return t.oneUser(userByID, id[:]) }

// userOf reads a user by email; nil when there is none. It skips the query for an invalid email.
func (t peopleRows) userOf(email string) (*ledger.User, error) {
	if ledger.CheckEmail(email) != nil {
		return nil, nil
	}
	return t.oneUser(userByEmail, []byte(ledger.FoldEmail(email)))
}

// userOfOIDC reads the user with an identity at a provider; nil when there is none.
func (t peopleRows) userOfOIDC(identity string) (*ledger.User, error) {
	if ledger.CheckIdentity(identity) != nil {
		return nil, nil
	}
	return t.oneUser(userByOIDC, identity)
}

func (t peopleRows) addUser(u ledger.User) error {
	_, err := t.Exec(`INSERT INTO users (`+userColumns+`, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		u.ID[:], u.Email, u.Name,
		u.Password, u.OIDC, u.TOTP, ledger.Millis(u.Created), ledger.Millis(u.Disabled), []byte(ledger.FoldEmail(u.Email)))
	return ledger.Wrap(err, "write user")
}

// signInChange is a change of how a user signs in.
type signInChange struct {
	action string      // for the logs; "": not logged
	ends   bool        // it ends the user's sessions
	but    ledger.Hash // the session that stays
}

// writeUser writes password, OIDC, TOTP and disabled of an existing user.
func (t *tx) writeUser(ctx context.Context, u *ledger.User, now time.Time, c signInChange) error {
	_, err := t.Exec(`UPDATE users SET password = ?, oidc = ?, totp = ?, disabled = ? WHERE id = ?`,
		u.Password, u.OIDC, u.TOTP, ledger.Millis(u.Disabled), u.ID[:])
	if err == nil && c.ends {
		_, err = t.endSessions(u.ID, c.but, now)
	}
	if err == nil && c.action != "" {
		err = logChange(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: c.action, Subject: u.Email})
	}
	return ledger.Wrap(err, "change user")
}

// changeUser runs do on a user, in one transaction. ErrNoSuchUser.
func (s people) changeUser(ctx context.Context, id uuid.UUID,
	do func(t *tx, u *ledger.User, now time.Time) error) error {
	return s.update(ctx, func(t *tx) error {
		u, err := t.readUser(id)
		if err != nil {
			return err
		}
		if u == nil {
			return ledger.ErrNoSuchUser
		}
		now, err := t.Now()
		if err != nil {
			return err
		}
		return do(t, u, now)
	})
}

// UserByEmail returns the user with an email.
func (s people) UserByEmail(ctx context.Context, email string) (ledger.User, error) {
	return s.findUser(ctx, "email", func(t *tx) (*ledger.User, error) { return t.userOf(email) })
}

// UserByOIDC returns the user with an identity at a provider.
func (s people) UserByOIDC(ctx context.Context, identity string) (ledger.User, error) {
	return s.findUser(ctx, "identity", func(t *tx) (*ledger.User, error) { return t.userOfOIDC(identity) })
}

// findUser returns the user that read finds. ErrNoSuchUser.
func (s people) findUser(ctx context.Context, by string, read func(t *tx) (*ledger.User, error)) (ledger.User, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.User, error) {
		u, err := read(t)
		return orNone(u, err, ledger.ErrNoSuchUser)
	}, "read a user by %s", by)
}

// orNone returns what was found; none is the error for nil.
func orNone[T any](found *T, err, none error) (value T, _ error) {
	if err == nil && found == nil {
		err = none
	}
	if err == nil {
		value = *found
	}
	return value, err
}

// Users lists all users by email.
func (s people) Users(ctx context.Context, after string, limit int) ([]ledger.User, error) {
	if limit < 1 || limit > ledger.UsersMax {
		return nil, fmt.Errorf("list %d users, 1 to %d are allowed: %w", limit, ledger.UsersMax, ledger.ErrIllegal)
	}
	return ledger.Run(ctx, s.view, func(t *tx) ([]ledger.User, error) {
		return engine.List(t, "read", scanUser, pageOfUsers, []byte(ledger.FoldEmail(after)), limit)
	}, "list users")
}

// SetPassword changes the password of a user and ends all the user's sessions except one.
func (s people) SetPassword(ctx context.Context, user uuid.UUID, password string, but ledger.Hash) error {
	return ledger.Wrap(s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		if err := ledger.CheckPassword(password); err != nil {
			return err
		}
		u.Password = password
		return t.writeUser(ctx, u, now, signInChange{ends: true, but: but})
	}), "set the password of user %s", user)
}

// DisableUser prevents sign-in as a user, or allows it again.
func (s people) DisableUser(ctx context.Context, user uuid.UUID, disabled bool) (after ledger.User, err error) {
	err = s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		after = *u
		if disabled != u.Disabled.IsZero() {
			return nil // nothing to change
		}
		c := signInChange{action: "user enable"}
		after.Disabled = time.Time{}
		if disabled {
			c, after.Disabled = signInChange{action: "user disable", ends: true}, now
			for _, of := range []links{{folded: ledger.FoldEmail(u.Email)}, {madeBy: userActor + user.String()}} {
				if err := t.endLinks(of, now); err != nil {
					return err
				}
			}
		}
		return t.writeUser(ctx, &after, now, c)
	})
	if err != nil {
		return ledger.User{}, fmt.Errorf("disable user %s: %w", user, err)
	}
	return after, nil
}

// freeIdentity refuses an invalid identity, and one of another user. ErrIllegal, ErrIdentityTaken.
func freeIdentity(t *tx, user uuid.UUID, identity string) error {
	if err := ledger.CheckIdentity(identity); err != nil {
		return err
	}
	has, err := t.userOfOIDC(identity)
	if err == nil && has != nil && has.ID != user {
		err = ledger.ErrIdentityTaken
	}
	return err
}

// BindOIDC sets a user's identity at a provider.
func (s people) BindOIDC(ctx context.Context, user uuid.UUID, identity string) error {
	return ledger.Wrap(s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		if u.OIDC == identity && identity != "" {
			return nil // nothing to change
		}
		if err := freeIdentity(t, user, identity); err != nil {
			return err
		}
		u.OIDC = identity
		return t.writeUser(ctx, u, now, signInChange{action: "user provider on"})
	}), "bind user %s to a provider", user)
}

// UnbindOIDC removes a user's identity at a provider.
func (s people) UnbindOIDC(ctx context.Context, user uuid.UUID, but ledger.Hash) error {
	return ledger.Wrap(s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		if u.OIDC == "" {
			return nil // this call, or an earlier run of it, has done it
		}
		if u.Password == "" {
			return ledger.ErrIllegal // the user could no longer sign in
		}
		u.OIDC = ""
		return t.writeUser(ctx, u, now, signInChange{action: "user provider off", ends: true, but: but})
	}), "unbind user %s from a provider", user)
}

// SetTOTP turns codes on for a user, or off.
func (s people) SetTOTP(ctx context.Context, user uuid.UUID, state string, but ledger.Hash) error {
	return ledger.Wrap(s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		if u.TOTP == state {
			return nil // this call, or an earlier run of it, has done it
		}
		action := "user codes off"
		if state != "" {
			action = "user codes on"
			if u.TOTP != "" {
				return ledger.ErrChanged
			}
			if err := ledger.CheckOperatorText("state of codes", state); err != nil {
				return err
			}
		}
		u.TOTP = state
		return t.writeUser(ctx, u, now, signInChange{action: action, ends: true, but: but})
	}), "set the codes of user %s", user)
}

// UseTOTP replaces the state of a user's codes by the next one.
func (s people) UseTOTP(ctx context.Context, user uuid.UUID, was, state string) error {
	return ledger.Wrap(s.replaceTOTP(ctx, user, was, state, ""), "use a code of user %s", user)
}

// RenewTOTP replaces the state of a user's codes by one with new one-time codes.
func (s people) RenewTOTP(ctx context.Context, user uuid.UUID, was, state string) error {
	return ledger.Wrap(s.replaceTOTP(ctx, user, was, state, "user codes renewed"), "renew the codes of user %s", user)
}

// replaceTOTP replaces the state that was read, and logs an action unless it is "".
func (s people) replaceTOTP(ctx context.Context, user uuid.UUID, was, state, action string) error {
	return s.changeUser(ctx, user, func(t *tx, u *ledger.User, now time.Time) error {
		if u.TOTP == state && state != "" {
			return nil // an earlier run has done it: each state is encrypted anew, so no other call has
		}
		return t.replaceTOTP(ctx, u, was, state, signInChange{action: action}, now)
	})
}

func (t *tx) replaceTOTP(ctx context.Context, u *ledger.User, was, state string, c signInChange, now time.Time) error {
	if u.TOTP != was || was == "" || state == "" {
		return ledger.ErrChanged
	}
	if err := ledger.CheckOperatorText("state of codes", state); err != nil {
		return err
	}
	u.TOTP = state
	return t.writeUser(ctx, u, now, c)
}
