package ledgertest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// actsWhileItMay: every change of a session reads the session and the role in its own transaction.
func actsWhileItMay(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("first@acme.test", ledger.Owner)
	list := d.Creates(7)
	for _, c := range []struct {
		name string
		ends func(in ledger.SignedIn) error
		own  error // of a change that is in no workspace
		in   error
		file error // of the last bytes of an upload that they began
	}{
		{"nothing", func(ledger.SignedIn) error { return nil }, nil, nil, nil},
		{"disabled", func(in ledger.SignedIn) error { _, err := d.DisableUser(ctx, in.User.ID, true); return err },
			ledger.ErrNoSuchSession, ledger.ErrNoSuchSession, ledger.ErrNoSuchSession},
		{"signed out", func(in ledger.SignedIn) error { return d.EndSession(ctx, in.User.ID, in.Session.ID) },
			ledger.ErrNoSuchSession, ledger.ErrNoSuchSession, ledger.ErrNoSuchSession},
		{"a lower role", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, ledger.Member) },
			nil, ledger.ErrNotAllowed, nil},
		{"the lowest role", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, ledger.Viewer) },
			nil, ledger.ErrNotAllowed, ledger.ErrNotAllowed},
		{"no member", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, "") },
			nil, ledger.ErrNotAllowed, ledger.ErrNotAllowed},
	} {
		in := d.Joins(uuid.NewString()+"@acme.test", ledger.Owner)
		as := ledger.WithActor(ctx, acts(in.User.ID))
		acting := ledger.Acting{Session: in.Session.ID, Idle: time.Hour}
		own := ledger.WithActing(as, acting)
		acting.Workspace, acting.Role = d.Workspace, ledger.Owner
		inside := ledger.WithActing(as, acting)
		file, _, err := d.Create(as, d.Asks(7))
		d.ok(err)
		d.ok(c.ends(in))
		u, err := d.OpenUpload(ctx, file.ID)
		d.ok(err)
		by, _ := ledger.UserOf(u.MadeBy)
		uploads := ledger.WithActing(ctx, ledger.Acting{User: by, Workspace: d.Workspace, Role: ledger.Member})
		u, err = d.AppendChunk(uploads, file.ID, u.Writer, 0, []byte("a@b.tst"))
		if !errors.Is(err, c.file) || (u.Durable == 7) != (c.file == nil) {
			d.T.Errorf("%s: an upload: %+v, %v; want %v", c.name, u, err, c.file)
		}
		invitation := d.invitation(uuid.NewString()+"@acme.test", ledger.Owner)
		invitation.MadeBy = acts(in.User.ID)
		for what, change := range map[string]func(ctx context.Context) error{
			"key": func(ctx context.Context) error {
				_, err := d.CreateKey(ctx, ledger.Key{ID: uuid.NewString()[:12], Workspace: d.Workspace})
				return err
			},
			"invitation": func(ctx context.Context) error { _, err := d.MakeLink(ctx, invitation); return err },
			"role":       func(ctx context.Context) error { return d.SetRole(ctx, d.Workspace, uuid.New(), "") },
			"cancel":     func(ctx context.Context) error { _, err := d.Cancel(ctx, d.Workspace, list.ID); return err },
			"file":       func(ctx context.Context) error { _, _, err := d.Create(ctx, d.Asks(7)); return err },
			"log": func(ctx context.Context) error {
				return d.LogWorkspace(ctx, d.Workspace, ledger.WorkspaceLine{Action: "x"})
			},
		} {
			if err := change(inside); !errors.Is(err, c.in) {
				d.T.Errorf("%s: %s: got %v, want %v", c.name, what, err, c.in)
			}
		}
		d.refused(d.SetPassword(own, in.User.ID, "$argon2id$2", in.Session.ID), c.own)
	}
	in := d.Joins("idle@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	d.nextMillisecond(in.Session.Seen.Add(time.Millisecond))
	late := ledger.WithActing(ctx, ledger.Acting{Session: in.Session.ID, Idle: time.Millisecond})
	d.refused(d.EndSession(late, in.User.ID, in.Session.ID), ledger.ErrNoSuchSession)
}

// keysOfOwners: a key made by a user is suspended while they are disabled or no owner of its workspace.
func keysOfOwners(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("first@acme.test", ledger.Owner)
	anna := d.Joins("anna@acme.test", ledger.Owner).User.ID
	by := ledger.WithActor(ctx, acts(anna))
	_, err := d.CreateKey(by, ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace})
	d.ok(err)
	_, err = d.CreateKey(ledger.WithActor(ctx, "operator"), ledger.Key{ID: "operator1234", Workspace: d.Workspace})
	d.ok(err)
	works := func(when string, want bool) {
		d.T.Helper()
		k, err := d.KeyByID(ctx, "abcdefghij12")
		d.ok(err)
		all, err := d.Keys(ctx, d.Workspace)
		d.ok(err)
		for _, l := range all {
			if l.Works() != (want || l.ID != k.ID) || k.Works() != want {
				d.T.Errorf("%s: %s works: %v, %v; want %v", when, l.ID, l.Works(), k.Works(), want)
			}
		}
	}
	disable := func(yes bool) { _, err := d.DisableUser(ctx, anna, yes); d.ok(err) }
	works("made", true)
	disable(true)
	works("disabled", false)
	disable(false)
	works("enabled", true)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ledger.Member))
	works("a member", false)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ledger.Owner))
	works("an owner again", true)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ""))
	works("gone", false)
}

// invitedAgain: of two invitations of one person to one workspace the newer one can be used.
func invitedAgain(d *Fixture) {
	ctx := d.T.Context()
	elsewhere := d.other(d.T, 0)
	there := elsewhere.links(elsewhere.invitation("anna@acme.test", ledger.Member))
	first := d.links(d.invitation("anna@acme.test", ledger.Owner))
	second := d.links(d.invitation("Anna@acme.test", ledger.Viewer))
	_, _, err := d.LinkByID(ctx, first.ID)
	d.refused(err, ledger.ErrNoSuchLink)
	for _, l := range []ledger.Link{second, there} {
		_, _, err = d.LinkByID(ctx, l.ID)
		d.ok(err)
	}
}
