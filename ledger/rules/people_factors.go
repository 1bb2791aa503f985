package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// freeIdentity refuses an identity that is none, and one of another user. ErrIllegal, ErrIdentityTaken.
func freeIdentity(t Tables, user uuid.UUID, identity string) error {
	if err := ledger.CheckIdentity(identity); err != nil {
		return err
	}
	has, err := t.UserOfOIDC(identity)
	if err == nil && has != nil && has.ID != user {
		err = ledger.ErrIdentityTaken
	}
	return err
}

// BindOIDC lets a user sign in by a provider.
func (b Book) BindOIDC(ctx context.Context, user uuid.UUID, identity string) error {
	err := b.changeUser(ctx, user, func(t Tables, u *ledger.User, _ time.Time) error {
		if u.OIDC == identity {
			return nil // it is so
		}
		action := "user provider off"
		if identity != "" {
			action = "user provider on"
			if err := freeIdentity(t, user, identity); err != nil {
				return err
			}
		}
		u.OIDC = identity
		n, err := t.ChangeUser(*u)
		if err := one(n, err, action); err != nil {
			return err
		}
		return told(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: action, Subject: u.Email})
	})
	if err != nil {
		return fmt.Errorf("bind user %s to a provider: %w", user, err)
	}
	return nil
}

// SetTOTP begins to ask a user for codes, or ends that.
func (b Book) SetTOTP(ctx context.Context, user uuid.UUID, state string, but ledger.Hash) error {
	err := b.changeUser(ctx, user, func(t Tables, u *ledger.User, now time.Time) error {
		if u.TOTP == state {
			return nil // this call, or the same before it, has done it
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
		n, err := t.ChangeUser(*u)
		if err := one(n, err, action); err != nil {
			return err
		}
		if _, err := endAll(t, user, but, now); err != nil {
			return err
		}
		return told(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: action, Subject: u.Email})
	})
	if err != nil {
		return fmt.Errorf("set the codes of user %s: %w", user, err)
	}
	return nil
}

// UseTOTP replaces the state of the codes of a user by the next one.
func (b Book) UseTOTP(ctx context.Context, user uuid.UUID, was, state string) error {
	err := b.changeUser(ctx, user, func(t Tables, u *ledger.User, _ time.Time) error {
		switch {
		case u.TOTP == state && state != "":
			return nil // a run before this one has done it: each state is sealed anew, so no other call has
		case u.TOTP != was || was == "" || state == "":
			return ledger.ErrChanged
		}
		if err := ledger.CheckOperatorText("state of codes", state); err != nil {
			return err
		}
		u.TOTP = state
		n, err := t.ChangeUser(*u)
		return one(n, err, "use a code")
	})
	if err != nil {
		return fmt.Errorf("use a code of user %s: %w", user, err)
	}
	return nil
}
