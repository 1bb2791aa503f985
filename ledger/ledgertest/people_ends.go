package ledgertest

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// endsInvitations: a lower role ends what its member made and what is for their email, in that workspace only.
func endsInvitations(d *Desk) {
	ctx := d.T.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	elsewhere := d.other(d.T, 0)
	for i, end := range []func(anna uuid.UUID) error{
		func(anna uuid.UUID) error { return d.SetRole(ctx, d.Workspace, anna, ledger.Member) },
		func(anna uuid.UUID) error { return d.SetRole(ctx, d.Workspace, anna, "") },
		func(anna uuid.UUID) error { _, err := d.DisableUser(ctx, anna, true); return err },
	} {
		email := fmt.Sprintf("anna%d@acme.test", i)
		anna := d.Joins(email, ledger.Member).User
		open := func(l ledger.Link, want bool) {
			d.T.Helper()
			if _, _, err := d.LinkByID(ctx, l.ID); (err == nil) != want {
				d.T.Errorf("%d: the invitation of %s by %s: %v", i, l.Email, l.MadeBy, err)
			}
		}
		self := d.links(d.invitation(email, ledger.Owner))
		d.ok(d.SetRole(ctx, d.Workspace, anna.ID, ledger.Owner))
		open(self, true) // a higher role ends none
		made := d.invitation(fmt.Sprintf("ben%d@acme.test", i), ledger.Owner)
		made.MadeBy = acts(anna.ID)
		made = d.links(made)
		others, there := d.links(d.invitation(fmt.Sprintf("cleo%d@acme.test", i), ledger.Member)), elsewhere.invitation(email, ledger.Member)
		there = elsewhere.links(there)
		d.ok(end(anna.ID))
		open(self, false)
		open(made, false)
		open(others, true)
		open(there, i < 2) // who is disabled has no link anywhere
		d.ok(d.EndLink(ctx, d.Workspace, others.ID))
	}
}

// ownersOnly: a node may believe for a moment that somebody is an owner still.
func ownersOnly(d *Desk) {
	ctx := d.T.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	anna, ben := d.Joins("anna@acme.test", ledger.Owner).User, d.Joins("ben@acme.test", ledger.Viewer).User
	by := ledger.WithActor(ctx, acts(anna.ID))
	l := d.invitation("cleo@acme.test", ledger.Member)
	l.MadeBy = acts(anna.ID)
	_, err := d.MakeLink(by, l)
	d.ok(err)
	d.ok(d.SetRole(by, d.Workspace, ben.ID, ledger.Member))
	d.ok(d.SetRole(by, d.Workspace, anna.ID, ledger.Member)) // their own, while they may
	for _, role := range []ledger.Role{ledger.Viewer, ledger.Owner, ""} {
		d.refused(d.SetRole(by, d.Workspace, ben.ID, role), ledger.ErrNotOwner)
	}
	d.refused(d.SetRole(by, d.Workspace, anna.ID, ledger.Owner), ledger.ErrNotOwner)
	l.ID = hash()
	_, err = d.MakeLink(by, l)
	d.refused(err, ledger.ErrNotOwner)
	elsewhere := d.other(d.T, 0)
	elsewhere.Joins("owner@elsewhere.test", ledger.Owner)
	l = elsewhere.invitation("cleo@acme.test", ledger.Member)
	l.MadeBy = acts(anna.ID)
	_, err = d.MakeLink(by, l)
	d.refused(err, ledger.ErrNotOwner)
}

// provesAnew: whoever was proved to be a user before the user changed how they sign in begins no session.
func provesAnew(d *Desk) {
	ctx := d.T.Context()
	anna := d.Joins("anna@acme.test", ledger.Owner).User
	for what, change := range map[string]func() error{
		"password": func() error { return d.SetPassword(ctx, anna.ID, "$argon2id$"+uuid.NewString(), ledger.Hash{}) },
		"codes":    func() error { return d.SetTOTP(ctx, anna.ID, "on", ledger.Hash{}) },
		"no codes": func() error { return d.SetTOTP(ctx, anna.ID, "", ledger.Hash{}) },
		"provider": func() error { return d.BindOIDC(ctx, anna.ID, ledger.Identity("https://login.test", uuid.NewString())) },
	} {
		if what == "no codes" {
			_ = d.SetTOTP(ctx, anna.ID, "on", ledger.Hash{})
		} else {
			_ = d.SetTOTP(ctx, anna.ID, "", ledger.Hash{})
		}
		was, err := d.UserByEmail(ctx, anna.Email)
		d.ok(err)
		n := ledger.NewSession{ID: hash(), User: anna.ID, Life: Hour, Proved: was.Factors()}
		_, err = d.BeginSession(ctx, n)
		d.ok(err)
		d.ok(change())
		n.ID = hash()
		if _, err = d.BeginSession(ctx, n); !errors.Is(err, ledger.ErrChanged) {
			d.T.Errorf("%s: got %v, want %v", what, err, ledger.ErrChanged)
		}
		a := ledger.Accept{Link: d.links(d.invitation(anna.Email, ledger.Owner)).ID, Session: n}
		if _, err = d.AcceptLink(ctx, a); !errors.Is(err, ledger.ErrChanged) {
			d.T.Errorf("%s, with a link: got %v, want %v", what, err, ledger.ErrChanged)
		}
		n.Proved = ledger.Hash{}
		_, err = d.BeginSession(ctx, n)
		d.ok(err)
	}
}
