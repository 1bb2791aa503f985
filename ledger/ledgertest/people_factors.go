package ledgertest

import (
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger"
)

var peopleFactors = []exercise{
	{"an invitation makes a user of a provider", 0, acceptsByProvider},
	{"an invitation changes nothing about how a user signs in", 0, invitesTakeNothing},
	{"a user is bound to a provider", 0, bindsProviders},
	{"a user leaves a provider", 0, unbindsProviders},
	{"the invitations of an email", 0, findsInvitations},
	{"codes are asked for, used and ended", 0, asksForCodes},
	{"codes of one use are renewed", 0, renewsCodes},
	{"one code used by 8 at once", 0, raceCodes},
}

// byProvider is an acceptance by who signs in by a provider.
func byProvider(l ledger.Link, subject string) ledger.Accept {
	a := acceptance(l)
	a.Password, a.OIDC = "", ledger.Identity("https://login.test", subject)
	return a
}

func acceptsByProvider(d *Desk) {
	ctx := d.T.Context()
	subject := uuid.NewString()
	a := byProvider(d.links(d.invitation("Anna@acme.test", ledger.Member)), subject)
	for range 2 {
		in, err := d.AcceptLink(ctx, a)
		d.ok(err)
		if in.User.OIDC != a.OIDC || in.User.Password != "" || in.User.TOTP != "" || in.User.ID != a.User || len(in.Memberships) != 1 {
			d.T.Errorf("got %+v", in)
		}
	}
	for _, read := range []func() (ledger.User, error){
		func() (ledger.User, error) { return d.UserByOIDC(ctx, a.OIDC) },
		func() (ledger.User, error) { return d.UserByEmail(ctx, "anna@acme.test") },
	} {
		if u, err := read(); err != nil || u.ID != a.User || u.OIDC != a.OIDC {
			d.T.Errorf("found %+v, %v", u, err)
		}
	}
	for _, other := range []string{"", "https://login.test", "https://login.test ", a.OIDC + "1", "http" + a.OIDC[5:], strings.ToUpper(a.OIDC)} {
		_, err := d.UserByOIDC(ctx, other)
		d.refused(err, ledger.ErrNoSuchUser)
	}
	l := d.links(d.invitation("ben@acme.test", ledger.Member))
	_, err := d.AcceptLink(ctx, byProvider(l, subject))
	d.refused(err, ledger.ErrIdentityTaken)
	for _, bad := range []string{"x", "https://login.test ", " x", "https://login.test a\x00", "https://login.test " + strings.Repeat("x", ledger.IdentityMax)} {
		b := byProvider(l, subject)
		b.OIDC = bad
		_, err := d.AcceptLink(ctx, b)
		d.refused(err, ledger.ErrIllegal)
	}
	if _, err := d.UserByEmail(ctx, "ben@acme.test"); err == nil {
		d.T.Error("a refused acceptance made a user")
	}
}

func invitesTakeNothing(d *Desk) {
	ctx := d.T.Context()
	without, err := d.AcceptLink(ctx, byProvider(d.links(d.invitation("anna@acme.test", ledger.Member)), uuid.NewString()))
	d.ok(err)
	with := d.Joins("ben@acme.test", ledger.Member)
	for _, in := range []ledger.SignedIn{without, with} {
		l := d.links(d.invitation(in.User.Email, ledger.Owner))
		if _, known, err := d.LinkByID(ctx, l.ID); err != nil || !known {
			d.T.Errorf("%s: known %v, %v", in.User.Email, known, err)
		}
		for name, a := range map[string]ledger.Accept{"a password": acceptance(l), "another identity": byProvider(l, uuid.NewString())} {
			if _, err := d.AcceptLink(ctx, a); err == nil {
				d.T.Errorf("%s: with %s: accepted", in.User.Email, name)
			} else {
				d.refused(err, ledger.ErrIllegal)
			}
		}
		if u, err := d.UserByEmail(ctx, in.User.Email); err != nil || u != in.User {
			d.T.Errorf("changed to %+v, %v", u, err)
		}
		a := withoutPassword(l)
		a.OIDC = in.User.OIDC
		got, err := d.AcceptLink(ctx, a)
		d.ok(err)
		if got.User != in.User || got.Memberships[0].Role != ledger.Owner {
			d.T.Errorf("got %+v", got)
		}
	}
	// A link of an operator's for a password sets one, whoever the user is.
	a := acceptance(d.links(passwordLink("anna@acme.test")))
	got, err := d.AcceptLink(ctx, a)
	d.ok(err)
	if got.User.Password != a.Password || got.User.OIDC != without.User.OIDC {
		d.T.Errorf("got %+v", got.User)
	}
}

func bindsProviders(d *Desk) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	anna, ben := d.Joins("Anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	first := ledger.Identity("https://login.test", uuid.NewString())
	for _, identity := range []string{ledger.Identity("https://old.test", uuid.NewString()), first} {
		for range 2 {
			d.ok(d.BindOIDC(ctx, anna.User.ID, identity))
			if u, err := d.UserByOIDC(ctx, identity); err != nil || u.ID != anna.User.ID || u.Password != anna.User.Password {
				d.T.Errorf("found %+v, %v", u, err)
			}
		}
	}
	d.refused(d.BindOIDC(ctx, ben.User.ID, first), ledger.ErrIdentityTaken)
	for _, none := range []string{"", "x"} {
		d.refused(d.BindOIDC(ctx, ben.User.ID, none), ledger.ErrIllegal)
	}
	d.refused(d.BindOIDC(ctx, uuid.New(), first), ledger.ErrNoSuchUser)
	_, err := d.SessionByID(ctx, anna.Session.ID, Hour)
	d.ok(err)
	d.wrote("user provider on", ledger.LogLine{Subject: "Anna@acme.test"}, ledger.LogLine{Subject: "Anna@acme.test"})
}

func unbindsProviders(d *Desk) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	anna, ben := d.Joins("Anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	identity := ledger.Identity("https://login.test", uuid.NewString())
	second, err := d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: anna.User.ID, Life: Hour})
	d.ok(err)
	d.ok(d.UnbindOIDC(ctx, anna.User.ID, second.Session.ID)) // who is bound to none keeps their sessions
	d.ok(d.BindOIDC(ctx, anna.User.ID, identity))
	_, err = d.SessionByID(ctx, anna.Session.ID, Hour)
	d.ok(err)
	for range 2 {
		d.ok(d.UnbindOIDC(ctx, anna.User.ID, second.Session.ID))
		if u, err := d.UserByEmail(ctx, "anna@acme.test"); err != nil || u.OIDC != "" || u.Password != anna.User.Password {
			d.T.Errorf("got %+v, %v", u, err)
		}
	}
	_, err = d.UserByOIDC(ctx, identity)
	d.refused(err, ledger.ErrNoSuchUser)
	_, err = d.SessionByID(ctx, anna.Session.ID, Hour)
	d.refused(err, ledger.ErrNoSuchSession)
	for _, s := range []ledger.SignedIn{second, ben} {
		_, err = d.SessionByID(ctx, s.Session.ID, Hour)
		d.ok(err)
	}
	d.ok(d.BindOIDC(ctx, ben.User.ID, identity)) // it is free again
	d.ok(d.UnbindOIDC(ctx, ben.User.ID, ledger.Hash{}))
	_, err = d.SessionByID(ctx, ben.Session.ID, Hour)
	d.refused(err, ledger.ErrNoSuchSession)

	// Who has no password could not sign in any more.
	without, err := d.AcceptLink(ctx, byProvider(d.links(d.invitation("eve@acme.test", ledger.Member)), uuid.NewString()))
	d.ok(err)
	d.refused(d.UnbindOIDC(ctx, without.User.ID, ledger.Hash{}), ledger.ErrIllegal)
	if in, err := d.SessionByID(ctx, without.Session.ID, Hour); err != nil || in.User != without.User {
		d.T.Errorf("a refusal changed %+v, %v", in, err)
	}
	d.refused(d.UnbindOIDC(ctx, uuid.New(), ledger.Hash{}), ledger.ErrNoSuchUser)
	d.wrote("user provider off", ledger.LogLine{Subject: "ben@acme.test"}, ledger.LogLine{Subject: "Anna@acme.test"})
}

func findsInvitations(d *Desk) {
	ctx := d.T.Context()
	elsewhere := d.other(d.T, 0)
	email := uuid.NewString() + "@acme.test"
	first := d.links(d.invitation(email, ledger.Viewer))
	d.nextMillisecond(first.Created)
	second := elsewhere.links(elsewhere.invitation(strings.ToUpper(email), ledger.Owner))
	ended := d.links(d.invitation(email, ledger.Owner))
	d.ok(d.EndLink(ctx, d.Workspace, ended.ID))
	d.links(d.invitation("not"+email, ledger.Owner))
	found := func(want ...ledger.Link) {
		d.T.Helper()
		got, err := d.Invitations(ctx, email)
		if err != nil || len(got) != len(want) {
			d.T.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		for i := range want {
			if got[i] != want[i] {
				d.T.Errorf("got %+v, want %+v", got[i], want[i])
			}
		}
	}
	found(second, first)
	a, b := byProvider(second, uuid.NewString()), byProvider(first, "")
	b.User, b.OIDC, b.Session = a.User, a.OIDC, a.Session
	for _, accept := range []ledger.Accept{a, b} { // both with one session
		_, err := d.AcceptLink(ctx, accept)
		d.ok(err)
	}
	if in, err := d.SessionByID(ctx, a.Session.ID, Hour); err != nil || len(in.Memberships) != 2 {
		d.T.Errorf("got %+v, %v", in, err)
	}
	found()
	d.links(passwordLink(email))
	found()
	if got, err := d.Invitations(ctx, "no email"); err != nil || len(got) != 0 {
		d.T.Errorf("got %+v, %v", got, err)
	}
}

func asksForCodes(d *Desk) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	id := in.User.ID
	second, err := d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: id, Life: Hour})
	d.ok(err)
	state := func(want string) {
		d.T.Helper()
		if u, err := d.UserByEmail(ctx, "anna@acme.test"); err != nil || u.TOTP != want || u.Password != in.User.Password {
			d.T.Errorf("got %+v, %v, want state %q", u, err, want)
		}
	}
	d.refused(d.UseTOTP(ctx, id, "", "x"), ledger.ErrChanged)
	longest := strings.Repeat("s", ledger.OperatorTextMax)
	d.refused(d.SetTOTP(ctx, id, longest+"s", ledger.Hash{}), ledger.ErrIllegal)
	for range 2 {
		d.ok(d.SetTOTP(ctx, id, longest, second.Session.ID))
		state(longest)
	}
	_, err = d.SessionByID(ctx, in.Session.ID, Hour)
	d.refused(err, ledger.ErrNoSuchSession)
	for _, s := range []ledger.SignedIn{second, other} {
		_, err = d.SessionByID(ctx, s.Session.ID, Hour)
		d.ok(err)
	}
	d.refused(d.SetTOTP(ctx, id, "another", ledger.Hash{}), ledger.ErrChanged)
	for range 2 {
		d.ok(d.UseTOTP(ctx, id, longest, "second"))
		state("second")
	}
	for _, c := range [][2]string{{longest, "third"}, {"second", ""}, {"", "third"}} {
		d.refused(d.UseTOTP(ctx, id, c[0], c[1]), ledger.ErrChanged)
	}
	d.refused(d.UseTOTP(ctx, id, "second", longest+"s"), ledger.ErrIllegal)
	state("second")
	if s, err := d.SessionByID(ctx, second.Session.ID, Hour); err != nil || s.User.TOTP != "second" {
		d.T.Errorf("a used code ends a session: %+v, %v", s, err)
	}
	for range 2 {
		d.ok(d.SetTOTP(ctx, id, "", ledger.Hash{}))
		state("")
	}
	_, err = d.SessionByID(ctx, second.Session.ID, Hour)
	d.refused(err, ledger.ErrNoSuchSession)
	d.refused(d.SetTOTP(ctx, uuid.New(), "x", ledger.Hash{}), ledger.ErrNoSuchUser)
	d.refused(d.UseTOTP(ctx, uuid.New(), "x", "y"), ledger.ErrNoSuchUser)
	d.wrote("user codes on", ledger.LogLine{Subject: "anna@acme.test"})
	d.wrote("user codes off", ledger.LogLine{Subject: "anna@acme.test"})
}

func renewsCodes(d *Desk) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in := d.Joins("anna@acme.test", ledger.Owner)
	id := in.User.ID
	d.refused(d.RenewTOTP(ctx, id, "", "x"), ledger.ErrChanged)
	d.ok(d.SetTOTP(ctx, id, "first", in.Session.ID))
	d.ok(d.UseTOTP(ctx, id, "first", "second"))
	for range 2 {
		d.ok(d.RenewTOTP(ctx, id, "second", "third"))
	}
	for _, c := range [][2]string{{"first", "fourth"}, {"second", "fourth"}, {"third", ""}, {"", "fourth"}} {
		d.refused(d.RenewTOTP(ctx, id, c[0], c[1]), ledger.ErrChanged)
	}
	d.refused(d.RenewTOTP(ctx, id, "third", strings.Repeat("s", ledger.OperatorTextMax+1)), ledger.ErrIllegal)
	d.refused(d.RenewTOTP(ctx, uuid.New(), "third", "fourth"), ledger.ErrNoSuchUser)
	if s, err := d.SessionByID(ctx, in.Session.ID, Hour); err != nil || s.User.TOTP != "third" {
		d.T.Errorf("after the codes were renewed: %+v, %v", s, err)
	}
	d.wrote("user codes renewed", ledger.LogLine{Subject: "anna@acme.test"})
}

func raceCodes(d *Desk) {
	ctx := d.T.Context()
	id := d.Joins("anna@acme.test", ledger.Owner).User.ID
	d.ok(d.SetTOTP(ctx, id, "first", ledger.Hash{}))
	var used atomic.Int64
	racing(8, func(int) {
		switch err := d.UseTOTP(ctx, id, "first", uuid.NewString()); {
		case err == nil:
			used.Add(1)
		default:
			d.refused(err, ledger.ErrChanged)
		}
	})
	if used.Load() != 1 {
		d.T.Errorf("%d of 8 have used one code", used.Load())
	}
}
