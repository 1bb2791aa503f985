package people

import (
	"context"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// freeIdentity refuses an identity that is none, and one of another user. ErrIllegal, ErrIdentityTaken.
func freeIdentity(t rows, user uuid.UUID, identity string) error {
	if err := ledger.CheckIdentity(identity); err != nil {
		return err
	}
	has, err := t.userOfOIDC(identity)
	if err == nil && has != nil && has.ID != user {
		err = ledger.ErrIdentityTaken
	}
	return err
}

// BindOIDC lets a user sign in by a provider.
func (b *Book) BindOIDC(ctx context.Context, user uuid.UUID, identity string) error {
	return ledger.Wrap(b.changeUser(ctx, user, func(t rows, u *ledger.User, now time.Time) error {
		if u.OIDC == identity && identity != "" {
			return nil // it is so
		}
		if err := freeIdentity(t, user, identity); err != nil {
			return err
		}
		u.OIDC = identity
		return t.writeUser(ctx, u, now, change{action: "user provider on"})
	}), "bind user %s to a provider", user)
}

// UnbindOIDC ends that a user signs in by a provider.
func (b *Book) UnbindOIDC(ctx context.Context, user uuid.UUID, but ledger.Hash) error {
	return ledger.Wrap(b.changeUser(ctx, user, func(t rows, u *ledger.User, now time.Time) error {
		if u.OIDC == "" {
			return nil // this call, or the same before it, has done it
		}
		if u.Password == "" {
			return ledger.ErrIllegal // they could not sign in any more
		}
		u.OIDC = ""
		return t.writeUser(ctx, u, now, change{action: "user provider off", ends: true, but: but})
	}), "unbind user %s from a provider", user)
}

// SetTOTP begins to ask a user for codes, or ends that.
func (b *Book) SetTOTP(ctx context.Context, user uuid.UUID, state string, but ledger.Hash) error {
	return ledger.Wrap(b.changeUser(ctx, user, func(t rows, u *ledger.User, now time.Time) error {
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
		return t.writeUser(ctx, u, now, change{action: action, ends: true, but: but})
	}), "set the codes of user %s", user)
}

// UseTOTP replaces the state of the codes of a user by the next one.
func (b *Book) UseTOTP(ctx context.Context, user uuid.UUID, was, state string) error {
	return ledger.Wrap(b.replaceTOTP(ctx, user, was, state, ""), "use a code of user %s", user)
}

// RenewTOTP replaces the state of the codes of a user by one with new codes of one use.
func (b *Book) RenewTOTP(ctx context.Context, user uuid.UUID, was, state string) error {
	return ledger.Wrap(b.replaceTOTP(ctx, user, was, state, "user codes renewed"), "renew the codes of user %s", user)
}

// replaceTOTP replaces the state that was read. An action is written into the logs; "" is not.
func (b *Book) replaceTOTP(ctx context.Context, user uuid.UUID, was, state, action string) error {
	return b.changeUser(ctx, user, func(t rows, u *ledger.User, now time.Time) error {
		if u.TOTP == state && state != "" {
			return nil // a run before this one has done it: each state is sealed anew, so no other call has
		}
		return t.replaceTOTP(ctx, u, was, state, change{action: action}, now)
	})
}

func (t rows) replaceTOTP(ctx context.Context, u *ledger.User, was, state string, c change, now time.Time) error {
	if u.TOTP != was || was == "" || state == "" {
		return ledger.ErrChanged
	}
	if err := ledger.CheckOperatorText("state of codes", state); err != nil {
		return err
	}
	u.TOTP = state
	return t.writeUser(ctx, u, now, c)
}
