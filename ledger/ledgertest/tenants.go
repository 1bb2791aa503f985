package ledgertest

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

var tenants = []exercise{
	{"a workspace is made once", 0, func(d *Fixture) {
		again, err := d.CreateWorkspace(d.T.Context(), d.Workspace, "another name")
		d.ok(err)
		list, err := d.Workspaces(d.T.Context())
		d.ok(err)
		if again.Name != "desk" || len(list) != 1 || list[0] != again || again.Created.IsZero() {
			d.T.Errorf("got %+v and the list %+v", again, list)
		}
	}},
	{"a grant counts once", 0, func(d *Fixture) {
		id := uuid.New()
		for range 2 {
			b, err := d.Grant(d.T.Context(), id, d.Workspace, 7, "paid")
			d.ok(err)
			if want := (ledger.Balance{Granted: 7, Available: 7}); b != want {
				d.T.Errorf("got %+v, want %+v", b, want)
			}
		}
		d.Grants(3)
		d.has(10, 10, 0, 0)
	}},
	{"a key works until it is revoked", 0, keyLife},
	{"keys are listed oldest first", 0, manyKeys},
	{"who made, used and revoked a key", 0, keyActors},
	{"workspaces are listed oldest first", 0, manyWorkspaces},
	{"a secret is made once", 0, func(d *Fixture) {
		first, err := d.Secret(d.T.Context(), "urls", 32)
		d.ok(err)
		second, err := d.Secret(d.T.Context(), "urls", 32)
		d.ok(err)
		other, err := d.Secret(d.T.Context(), "cursors", 32)
		d.ok(err)
		if len(first) != 32 || !bytes.Equal(first, second) || bytes.Equal(first, other) {
			d.T.Error("secrets: want the same value for a name, another for another name, 32 bytes each")
		}
	}},
	{"the book answers", 0, func(d *Fixture) { d.ok(d.Ping(d.T.Context())) }},
}

func keyLife(d *Fixture) {
	ctx := d.T.Context()
	k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace, Label: "mine",
		SecretSHA256: [32]byte{1, 31: 9}}
	made, err := d.CreateKey(ctx, k)
	d.ok(err)
	again, err := d.CreateKey(ctx, k)
	d.ok(err)
	read, err := d.KeyByID(ctx, k.ID)
	d.ok(err)
	if made != again || made != read || made.SecretSHA256 != k.SecretSHA256 || made.Created.IsZero() ||
		!made.Revoked.IsZero() {
		d.T.Errorf("made %+v, again %+v, read %+v", made, again, read)
	}
	revoked, err := d.RevokeKey(ctx, k.ID)
	d.ok(err)
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; { // the clock must have moved on
		twice, err := d.RevokeKey(ctx, k.ID)
		d.ok(err)
		if revoked.Revoked.IsZero() || twice != revoked {
			d.T.Fatalf("revoked %+v, then %+v", revoked, twice)
		}
	}
	list, err := d.Keys(ctx, d.Workspace)
	d.ok(err)
	if len(list) != 1 || list[0] != revoked {
		d.T.Errorf("keys: got %+v, want the revoked one", list)
	}
}

func keyActors(d *Fixture) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	ctx := ledger.WithActor(d.T.Context(), acts(in.User.ID))
	k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace, Label: "laptop", MadeBy: "is filled in", RevokedBy: "too"}
	made, err := d.CreateKey(ctx, k)
	d.ok(err)
	again, err := d.CreateKey(d.T.Context(), k)
	d.ok(err)
	if made.MadeBy != acts(in.User.ID) || made.RevokedBy != "" || !made.LastUsed.IsZero() || again != made {
		d.T.Errorf("made %+v, again %+v", made, again)
	}
	other, err := d.CreateKey(d.T.Context(), ledger.Key{ID: "bbbbbbbbbb12", Workspace: d.Workspace})
	d.ok(err)
	d.ok(d.UseKeys(ctx, nil))
	d.ok(d.UseKeys(ctx, []string{"nobody", k.ID, k.ID, "a\x00", "\xff"}))
	used, err := d.KeyByID(ctx, k.ID)
	d.ok(err)
	if used.LastUsed.Before(made.Created) || used.LastUsed.After(d.tunes().Now) {
		d.T.Errorf("used: %+v", used)
	}
	d.nextMillisecond(used.LastUsed)
	d.ok(d.UseKeys(ctx, []string{k.ID}))
	later, err := d.KeyByID(ctx, k.ID)
	d.ok(err)
	if !later.LastUsed.After(used.LastUsed) {
		d.T.Errorf("used at %v, then at %v", used.LastUsed, later.LastUsed)
	}
	revoked, err := d.RevokeKey(ledger.WithActor(ctx, "operator"), k.ID)
	d.ok(err)
	want := later
	want.Revoked, want.RevokedBy = revoked.Revoked, "operator"
	if revoked != want {
		d.T.Errorf("revoked: got %+v, want %+v", revoked, want)
	}
	d.nextMillisecond(later.LastUsed)
	d.ok(d.UseKeys(ctx, []string{k.ID}))
	if twice, err := d.RevokeKey(ctx, k.ID); err != nil || twice != revoked {
		d.T.Errorf("used and revoked again: %+v, %v", twice, err)
	}
	if still, err := d.KeyByID(ctx, other.ID); err != nil || still != other || other.MadeBy != "" {
		d.T.Errorf("another key: %+v, %v", still, err)
	}
	many := make([]string, ledger.BatchMax+1)
	d.refused(d.UseKeys(ctx, many), ledger.ErrIllegal)
	d.ok(d.UseKeys(ctx, many[1:]))
	_, err = d.CreateKey(ledger.WithActor(ctx, "a\x00"), ledger.Key{ID: "cccccccccc12", Workspace: d.Workspace})
	d.refused(err, ledger.ErrIllegal)
	_, err = d.RevokeKey(ledger.WithActor(ctx, "a\x00"), other.ID)
	d.refused(err, ledger.ErrIllegal)
	by := acts(in.User.ID) + "|anna@acme.test|"
	d.tells("||link create|anna@acme.test|owner", by+"member join|anna@acme.test|owner", by+"key create|abcdefghij12|laptop",
		"||key create|bbbbbbbbbb12|", "operator||key revoke|abcdefghij12|laptop")
}

// other is a second workspace in the same book.
func (d *Fixture) other(t testing.TB, credits ledger.Credits) *Fixture {
	return NewFixture(t, d.Book, credits)
}
