package sqlstore

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// linked makes a link in a desk's workspace, or for a password of somebody there.
func linked(d *ledgertest.Desk, purpose ledger.Purpose, email string) ledger.Accept {
	l := inviting(d, 1)
	if l.Email, l.Role = email, ledger.Owner; purpose == ledger.PasswordLink {
		l = ledger.Link{ID: l.ID, Purpose: purpose, Email: email}
	}
	if _, err := d.MakeLink(d.T.Context(), l); err != nil {
		d.T.Fatal(err)
	}
	return ledger.Accept{Link: l.ID, User: uuid.New(), Password: "$argon2id$2", Session: ledger.NewSession{ID: l.ID, Life: time.Hour}}
}

// accepting is a call that accepts a link; after its transaction it reads what the session may do.
func accepting(purpose ledger.Purpose, email, password string) func(d *ledgertest.Desk) func() error {
	return func(d *ledgertest.Desk) func() error {
		d.Joins("anna@acme.test", ledger.Viewer)
		a := linked(d, purpose, email)
		a.Password = password
		return func() error { _, err := d.AcceptLink(d.T.Context(), a); return err }
	}
}

// callsOfPeople are those about people who sign in.
var callsOfPeople = []callOf{
	{"make invitation", false, func(d *ledgertest.Desk) func() error {
		return func() error {
			_, err := d.MakeLink(ledger.WithActor(d.T.Context(), "operator"), inviting(d, 1))
			return err
		}
	}},
	{"make password link", false, func(d *ledgertest.Desk) func() error {
		d.Joins("anna@acme.test", ledger.Owner)
		l := ledger.Link{ID: ledger.Hash{1}, Purpose: ledger.PasswordLink, Email: "anna@acme.test"}
		return func() error { _, err := d.MakeLink(d.T.Context(), l); return err }
	}},
	{"accept invitation", true, accepting(ledger.InviteLink, "new@acme.test", "$argon2id$2")},
	{"accept another invitation", true, accepting(ledger.InviteLink, "anna@acme.test", "")},
	{"accept password link", true, accepting(ledger.PasswordLink, "anna@acme.test", "$argon2id$2")},
	{"end link", false, func(d *ledgertest.Desk) func() error {
		a := linked(d, ledger.InviteLink, "new@acme.test")
		return func() error { return d.EndLink(d.T.Context(), d.Workspace, a.Link) }
	}},
	{"begin session", true, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		for i := range byte(ledger.SessionsMax) {
			begins(d.T, d.Book.(*Store), user, ledger.Hash{1, i})
		}
		n := ledger.NewSession{ID: ledger.Hash{2}, User: user, Life: time.Hour}
		return func() error { _, err := d.BeginSession(d.T.Context(), n); return err }
	}},
	{"set password", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		return func() error { return d.SetPassword(d.T.Context(), user, "$argon2id$2", ledger.Hash{}) }
	}},
	{"bind to a provider", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		return func() error { return d.BindOIDC(d.T.Context(), user, "https://login.test 1") }
	}},
	{"leave a provider", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		if err := d.BindOIDC(d.T.Context(), user, "https://login.test 3"); err != nil {
			d.T.Fatal(err)
		}
		return func() error { return d.UnbindOIDC(d.T.Context(), user, ledger.Hash{}) }
	}},
	{"accept invitation by a provider", true, func(d *ledgertest.Desk) func() error {
		a := linked(d, ledger.InviteLink, "new@acme.test")
		a.Password, a.OIDC = "", "https://login.test 2"
		return func() error { _, err := d.AcceptLink(d.T.Context(), a); return err }
	}},
	{"ask for codes", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		return func() error { return d.SetTOTP(d.T.Context(), user, "sealed", ledger.Hash{}) }
	}},
	{"use a code", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		if err := d.SetTOTP(d.T.Context(), user, "first", ledger.Hash{}); err != nil {
			d.T.Fatal(err)
		}
		return func() error { return d.UseTOTP(d.T.Context(), user, "first", "second") }
	}},
	{"renew codes", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		if err := d.SetTOTP(d.T.Context(), user, "first", ledger.Hash{}); err != nil {
			d.T.Fatal(err)
		}
		return func() error { return d.RenewTOTP(d.T.Context(), user, "first", "second") }
	}},
	{"disable user", false, func(d *ledgertest.Desk) func() error {
		user := d.Joins("anna@acme.test", ledger.Owner).User.ID
		return func() error { _, err := d.DisableUser(d.T.Context(), user, true); return err }
	}},
	{"use sessions", false, func(d *ledgertest.Desk) func() error {
		in := d.Joins("anna@acme.test", ledger.Owner)
		run(d.T, d.Book.(*Store), `UPDATE user_sessions SET seen = 1`)
		run(d.T, d.Book.(*Store), `UPDATE users SET seen = 1`)
		return func() error { return d.UseSessions(d.T.Context(), []ledger.Hash{in.Session.ID}) }
	}},
	{"end a session", false, func(d *ledgertest.Desk) func() error {
		in := d.Joins("anna@acme.test", ledger.Owner)
		return func() error { return d.EndSession(d.T.Context(), in.User.ID, in.Session.ID) }
	}},
	{"end sessions", false, func(d *ledgertest.Desk) func() error {
		in := d.Joins("anna@acme.test", ledger.Owner)
		return func() error { _, err := d.EndSessions(d.T.Context(), in.User.ID, ledger.Hash{}); return err }
	}},
	{"set role", false, func(d *ledgertest.Desk) func() error {
		d.Joins("ben@acme.test", ledger.Owner)
		in := d.Joins("anna@acme.test", ledger.Owner)
		return func() error { return d.SetRole(d.T.Context(), d.Workspace, in.User.ID, ledger.Viewer) }
	}},
	{"end membership", false, func(d *ledgertest.Desk) func() error {
		in := d.Joins("anna@acme.test", ledger.Viewer)
		return func() error { return d.SetRole(d.T.Context(), d.Workspace, in.User.ID, "") }
	}},
	{"failed sign-in", false, func(d *ledgertest.Desk) func() error {
		r := ledger.AttemptRule{Free: 1, Window: time.Hour, First: time.Hour, Most: time.Hour}
		return func() error { _, err := d.FailedSignIn(d.T.Context(), []ledger.Hash{{1}, {2}}, r); return err }
	}},
	{"use keys", false, func(d *ledgertest.Desk) func() error {
		k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
		if _, err := d.CreateKey(d.T.Context(), k); err != nil {
			d.T.Fatal(err)
		}
		return func() error { return d.UseKeys(d.T.Context(), []string{k.ID}) }
	}},
	{"forget failures", false, func(d *ledgertest.Desk) func() error {
		return func() error { return d.ForgetFailures(d.T.Context(), ledger.Hash{1}) }
	}},
	{"log of a workspace", false, func(d *ledgertest.Desk) func() error {
		return func() error { return d.LogWorkspace(d.T.Context(), d.Workspace, ledger.WorkspaceLine{Action: "test"}) }
	}},
	{"readings of people", false, func(d *ledgertest.Desk) func() error {
		in, a := d.Joins("anna@acme.test", ledger.Owner), linked(d, ledger.InviteLink, "new@acme.test")
		return func() error {
			ctx := d.T.Context()
			_, _, link := d.LinkByID(ctx, a.Link)
			_, open := d.OpenLinks(ctx, d.Workspace)
			_, user := d.UserByEmail(ctx, "anna@acme.test")
			_, users := d.Users(ctx, "", 9)
			_, invited := d.Invitations(ctx, "new@acme.test")
			_, bound := d.UserByOIDC(ctx, "https://login.test 9")
			if errors.Is(bound, ledger.ErrNoSuchUser) {
				bound = nil
			}
			_, signed := d.SessionByID(ctx, in.Session.ID, time.Hour)
			_, sessions := d.Sessions(ctx, in.User.ID, time.Hour)
			_, members := d.Members(ctx, d.Workspace)
			_, waits := d.SignInWaits(ctx, []ledger.Hash{{1}})
			_, newest := d.WorkspaceLog(ctx, ledger.WorkspaceLogQuery{Workspace: d.Workspace, Limit: 9})
			_, older := d.WorkspaceLog(ctx, ledger.WorkspaceLogQuery{Workspace: d.Workspace, Limit: 9, After: &ledger.Position{}})
			return errors.Join(link, open, user, users, invited, bound, signed, sessions, members, waits, newest, older)
		}
	}},
}
