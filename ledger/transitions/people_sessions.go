package transitions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// changeUser runs do on a user, in one transaction. ErrNoSuchUser.
func (e Engine) changeUser(ctx context.Context, id uuid.UUID, do func(t Tables, u *ledger.User, now time.Time) error) error {
	return e.db.Update(ctx, Scope{}, func(t Tables) error {
		u, err := t.User(id)
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

// SetPassword changes the password of a user and ends all their sessions but one.
func (e Engine) SetPassword(ctx context.Context, user uuid.UUID, password string, but ledger.Hash) error {
	err := e.changeUser(ctx, user, func(t Tables, u *ledger.User, now time.Time) error {
		if err := ledger.CheckPassword(password); err != nil {
			return err
		}
		u.Password = password
		n, err := t.ChangeUser(*u)
		if err := one(n, err, "set password"); err != nil {
			return err
		}
		_, err = endAll(t, user, but, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("set the password of user %s: %w", user, err)
	}
	return nil
}

// DisableUser lets nobody sign in as a user, or undoes that.
func (e Engine) DisableUser(ctx context.Context, user uuid.UUID, disabled bool) (after ledger.User, err error) {
	err = e.changeUser(ctx, user, func(t Tables, u *ledger.User, now time.Time) error {
		after = *u
		if disabled != u.Disabled.IsZero() {
			return nil // it is so
		}
		action := "user enable"
		after.Disabled = time.Time{}
		if disabled {
			action, after.Disabled = "user disable", now
			for _, of := range []Links{{Folded: ledger.FoldEmail(u.Email)}, {MadeBy: userActor + user.String()}} {
				if err := t.EndLinks(of, now); err != nil {
					return err
				}
			}
			if _, err := endAll(t, user, ledger.Hash{}, now); err != nil {
				return err
			}
		}
		n, err := t.ChangeUser(after)
		if err := one(n, err, action); err != nil {
			return err
		}
		return told(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: action, Subject: u.Email})
	})
	if err != nil {
		return ledger.User{}, fmt.Errorf("disable user %s: %w", user, err)
	}
	return after, nil
}

// endAll ends the sessions of a user but one, and gives those that held.
func endAll(t Tables, user uuid.UUID, but ledger.Hash, now time.Time) (ended []ledger.Hash, err error) {
	held, err := t.Holds(user, now)
	if err != nil {
		return nil, err
	}
	for _, s := range held {
		if s.ID == but {
			continue
		}
		n, err := t.EndSessionAt(s.ID, now)
		if err := one(n, err, "end session"); err != nil {
			return nil, err
		}
		ended = append(ended, s.ID)
	}
	return ended, nil
}

// BeginSession signs a user in.
func (e Engine) BeginSession(ctx context.Context, n ledger.NewSession) (ledger.SignedIn, error) {
	err := e.changeUser(ctx, n.User, func(t Tables, u *ledger.User, now time.Time) error {
		if !u.Disabled.IsZero() {
			return ledger.ErrNoSuchUser
		}
		if err := n.Check(); err != nil {
			return err
		}
		if err := stillProved(n, u); err != nil {
			return err
		}
		return begin(t, n, now)
	})
	var in *ledger.SignedIn
	if err == nil {
		in, err = e.signedIn(ctx, n.ID, forEver, ledger.ErrNoSuchUser)
	}
	if err != nil {
		return ledger.SignedIn{}, fmt.Errorf("begin a session of user %s: %w", n.User, err)
	}
	return *in, nil
}

// stillProved refuses a session of who was proved to be a user by what has changed since. ErrChanged.
func stillProved(n ledger.NewSession, u *ledger.User) error {
	if n.Proved != (ledger.Hash{}) && n.Proved != u.Factors() {
		return ledger.ErrChanged
	}
	return nil
}

// begin makes a session, or finds that it is made. One that would be too many ends the one that was used least lately.
func begin(t Tables, n ledger.NewSession, now time.Time) error {
	known, err := t.Session(n.ID)
	switch {
	case err != nil:
		return err
	case known != nil && known.User == n.User && now.Before(known.Ends):
		return nil
	case known != nil:
		return fmt.Errorf("the id of the session was used before: %w", ledger.ErrIllegal)
	}
	held, err := t.Holds(n.User, now)
	if err != nil {
		return err
	}
	slices.SortFunc(held, leastLately)
	for len(held) >= ledger.SessionsMax {
		changed, err := t.EndSessionAt(held[0].ID, now)
		if err := one(changed, err, "end session"); err != nil {
			return err
		}
		held = held[1:]
	}
	n = n.Kept()
	return t.AddSession(ledger.Session{ID: n.ID, User: n.User, Created: now, Seen: now,
		Ends: now.Add(n.Life).Truncate(time.Millisecond), Agent: n.Agent, Network: n.Network})
}

func leastLately(a, b ledger.Session) int {
	return cmp.Or(a.Seen.Compare(b.Seen), a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
}

// signedIn reads what a session may do now; none is the error when it holds no more.
func (e Engine) signedIn(ctx context.Context, id ledger.Hash, idle time.Duration, none error) (in *ledger.SignedIn, err error) {
	err = e.db.View(ctx, func(t Tables) (err error) {
		in, err = t.SignedIn(id, idle)
		return err
	})
	if err == nil && in == nil {
		err = none
	}
	return in, err
}

// SessionByID reads what a session may do now.
func (e Engine) SessionByID(ctx context.Context, id ledger.Hash, idle time.Duration) (ledger.SignedIn, error) {
	in, err := e.signedIn(ctx, id, idle, ledger.ErrNoSuchSession)
	if err != nil {
		return ledger.SignedIn{}, fmt.Errorf("read a session: %w", err)
	}
	return *in, nil
}

// Sessions lists those of a user that hold, the one used last first.
func (e Engine) Sessions(ctx context.Context, user uuid.UUID, idle time.Duration) (list []ledger.Session, err error) {
	err = e.db.View(ctx, func(t Tables) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		list, err = t.Holds(user, now)
		list = slices.DeleteFunc(list, func(s ledger.Session) bool { return now.Sub(s.Seen) > idle })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the sessions of user %s: %w", user, err)
	}
	slices.SortFunc(list, func(a, b ledger.Session) int { return leastLately(b, a) })
	return list, nil
}

// EndSession ends one, of this user only.
func (e Engine) EndSession(ctx context.Context, user uuid.UUID, id ledger.Hash) error {
	err := e.db.Update(ctx, Scope{}, func(t Tables) error {
		s, err := t.Session(id)
		if err != nil || s == nil || s.User != user {
			return err
		}
		now, err := t.Now()
		if err != nil {
			return err
		}
		_, err = t.EndSessionAt(id, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("end a session of user %s: %w", user, err)
	}
	return nil
}

// EndSessions ends all of a user but one, and counts those that held.
func (e Engine) EndSessions(ctx context.Context, user uuid.UUID, but ledger.Hash) (int, error) {
	// tried is what any run ended that came to its commit: those of a run that was committed without our knowing are not
	// found by the next one, and those of another are found again.
	tried := map[ledger.Hash]bool{}
	err := e.changeUser(ctx, user, func(t Tables, _ *ledger.User, now time.Time) error {
		ended, err := endAll(t, user, but, now)
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

// FailedSignIn counts a failed sign-in under some subjects.
func (e Engine) FailedSignIn(ctx context.Context, subjects []ledger.Hash, r ledger.AttemptRule) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	call := uuid.New()
	err := r.Check()
	if err == nil {
		err = checkBatch(subjects)
	}
	if err == nil && len(subjects) > 0 {
		err = e.db.Update(ctx, Scope{}, func(t Tables) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			until, err := fail(t, subjects, r, call, now.UnixMilli())
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

// fail counts a failure under each subject, and says until when each is refused.
func fail(t Tables, subjects []ledger.Hash, r ledger.AttemptRule, call uuid.UUID, now int64) (map[ledger.Hash]time.Time, error) {
	subjects = differing(subjects)
	known, err := t.Attempts(subjects)
	if err != nil {
		return nil, err
	}
	until := map[ledger.Hash]time.Time{}
	for _, subject := range subjects {
		a := Attempts{Subject: subject, Since: now}
		if at := slices.IndexFunc(known, func(a Attempts) bool { return a.Subject == subject }); at >= 0 && known[at].Ends > now {
			a = known[at]
		}
		if a.Call != call { // a run before this one may have counted
			a.Failures++
			a.Call, a.Refused = call, 0
			a.Ends = a.Since + r.Window.Milliseconds()
			if wait := r.Wait(a.Failures); wait > 0 {
				a.Refused = now + wait.Milliseconds()
				a.Ends = max(a.Ends, a.Refused+r.Window.Milliseconds())
			}
			if err := t.KeepAttempts(a); err != nil {
				return nil, err
			}
		}
		until[subject] = refused(a, now)
	}
	return until, nil
}

// refused is until when, if that is to come.
func refused(a Attempts, now int64) time.Time {
	if a.Refused <= now {
		return time.Time{}
	}
	return Clock(a.Refused)
}

// differing gives each subject once, in one order, so that two who count the same wait for each other.
func differing(subjects []ledger.Hash) []ledger.Hash {
	subjects = slices.SortedFunc(slices.Values(subjects), func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(subjects)
}

func checkBatch(list []ledger.Hash) error {
	if len(list) > ledger.BatchMax {
		return fmt.Errorf("%d at once, %d are allowed: %w", len(list), ledger.BatchMax, ledger.ErrIllegal)
	}
	return nil
}

// SignInWaits answers until when subjects are refused.
func (e Engine) SignInWaits(ctx context.Context, subjects []ledger.Hash) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	err := checkBatch(subjects)
	if err == nil && len(subjects) > 0 {
		err = e.db.View(ctx, func(t Tables) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			known, err := t.Attempts(differing(subjects))
			for i, s := range subjects {
				if at := slices.IndexFunc(known, func(a Attempts) bool { return a.Subject == s }); at >= 0 {
					waits[i] = refused(known[at], now.UnixMilli())
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
