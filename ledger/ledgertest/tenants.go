package ledgertest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var tenants = []exercise{
	{"a workspace is made once", 0, func(d *Fixture) {
		again := effort.Must(d.CreateWorkspace(d.T.Context(), d.Workspace, "another name"))(d.T)
		list := effort.Must(d.Workspaces(d.T.Context()))(d.T)
		effort.ErrorIf(d.T, again.Name != "desk" || len(list) != 1 || list[0] != again || again.Created.IsZero(),
			"got %+v and the list %+v", again, list)
	}},
	{"a grant counts once", 0, func(d *Fixture) {
		id := uuid.New()
		for range 2 {
			b := effort.Must(d.Grant(d.T.Context(), id, d.Workspace, 7, "paid"))(d.T)
			want := (ledger.Balance{Granted: 7, Available: 7})
			effort.ErrorIf(d.T, b != want, "got %+v, want %+v", b, want)
		}
		d.Grants(3)
		d.has(10, 10, 0, 0)
	}},
	{"a key works until it is revoked", 0, keyLife},
	{"keys are listed oldest first", 0, manyKeys},
	{"who made, used and revoked a key", 0, keyActors},
	{"workspaces are listed oldest first", 0, manyWorkspaces},
	{"a secret is made once", 0, func(d *Fixture) {
		first := effort.Must(d.Secret(d.T.Context(), "urls", 32))(d.T)
		second := effort.Must(d.Secret(d.T.Context(), "urls", 32))(d.T)
		other := effort.Must(d.Secret(d.T.Context(), "cursors", 32))(d.T)
		effort.ErrorIf(d.T, len(first) != 32 || !bytes.Equal(first, second) || bytes.Equal(first, other),
			"secrets: want the same value for a name, another for another name, 32 bytes each")
	}},
	{"the book answers", 0, func(d *Fixture) { d.ok(d.Ping(d.T.Context())) }},
}

func keyLife(d *Fixture) {
	ctx := d.T.Context()
	k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace, Label: "mine", SecretSHA256: [32]byte{1, 31: 9}}
	made := effort.Must(d.CreateKey(ctx, k))(d.T)
	again := effort.Must(d.CreateKey(ctx, k))(d.T)
	read := effort.Must(d.KeyByID(ctx, k.ID))(d.T)
	effort.ErrorIf(d.T, made != again || made != read || made.SecretSHA256 != k.SecretSHA256 || made.Created.IsZero() ||
		!made.Revoked.IsZero(), "made %+v, again %+v, read %+v", made, again, read)
	revoked := effort.Must(d.RevokeKey(ctx, k.ID))(d.T)
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; { // the clock must have moved on
		twice := effort.Must(d.RevokeKey(ctx, k.ID))(d.T)
		effort.FatalIf(d.T, revoked.Revoked.IsZero() || twice != revoked, "revoked %+v, then %+v", revoked, twice)
	}
	list := effort.Must(d.Keys(ctx, d.Workspace))(d.T)
	effort.ErrorIf(d.T, len(list) != 1 || list[0] != revoked, "keys: got %+v, want the revoked one", list)
}

func keyActors(d *Fixture) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	ctx := ledger.WithActor(d.T.Context(), acts(in.User.ID))
	k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace, Label: "laptop", MadeBy: "is filled in", RevokedBy: "too"}
	made := effort.Must(d.CreateKey(ctx, k))(d.T)
	again := effort.Must(d.CreateKey(d.T.Context(), k))(d.T)
	effort.ErrorIf(d.T, made.MadeBy != acts(in.User.ID) || made.RevokedBy != "" || !made.LastUsed.IsZero() ||
		again != made, "made %+v, again %+v", made, again)
	other := effort.Must(d.CreateKey(d.T.Context(), ledger.Key{ID: "bbbbbbbbbb12", Workspace: d.Workspace}))(d.T)
	d.ok(d.UseKeys(ctx, nil))
	d.ok(d.UseKeys(ctx, []string{"nobody", k.ID, k.ID, "a\x00", "\xff"}))
	used := effort.Must(d.KeyByID(ctx, k.ID))(d.T)
	effort.ErrorIf(d.T, used.LastUsed.Before(made.Created) || used.LastUsed.After(d.tunes().Now), "used: %+v", used)
	d.nextMillisecond(used.LastUsed)
	d.ok(d.UseKeys(ctx, []string{k.ID}))
	later := effort.Must(d.KeyByID(ctx, k.ID))(d.T)
	effort.ErrorIf(d.T, !later.LastUsed.After(used.LastUsed), "used at %v, then at %v", used.LastUsed, later.LastUsed)
	revoked := effort.Must(d.RevokeKey(ledger.WithActor(ctx, "operator"), k.ID))(d.T)
	want := later
	want.Revoked, want.RevokedBy = revoked.Revoked, "operator"
	effort.Is(d.T, revoked, want, "revoked")
	d.nextMillisecond(later.LastUsed)
	d.ok(d.UseKeys(ctx, []string{k.ID}))
	effort.Is(d.T, effort.Must(d.RevokeKey(ctx, k.ID))(d.T), revoked, "used and revoked again")
	if still, err := d.KeyByID(ctx, other.ID); err != nil || still != other || other.MadeBy != "" {
		d.T.Errorf("another key: %+v, %v", still, err)
	}
	many := make([]string, ledger.BatchMax+1)
	d.refused(d.UseKeys(ctx, many), ledger.ErrIllegal)
	d.ok(d.UseKeys(ctx, many[1:]))
	denied(d.CreateKey(ledger.WithActor(ctx, "a\x00"), ledger.Key{ID: "cccccccccc12", Workspace: d.Workspace}))(d,
		ledger.ErrIllegal)
	denied(d.RevokeKey(ledger.WithActor(ctx, "a\x00"), other.ID))(d, ledger.ErrIllegal)
	by := acts(in.User.ID) + "|anna@acme.test|"
	d.tells("||link create|anna@acme.test|owner", by+"member join|anna@acme.test|owner", by+"key create|abcdefghij12|laptop",
		"||key create|bbbbbbbbbb12|", "operator||key revoke|abcdefghij12|laptop")
}

// other is a second workspace in the same book.
func (d *Fixture) other(t testing.TB, credits ledger.Credits) *Fixture {
	return NewFixture(t, d.Book, credits)
}

// limits are exercises with values just within a bound and just beyond it.
var limits = []exercise{
	{"credits stay exact in JSON", 0, func(d *Fixture) {
		d.Grants(1<<53 - 3)
		denied(d.Grant(d.T.Context(), uuid.New(), d.Workspace, 4, "one too many"))(d, ledger.ErrIllegal)
		d.Grants(3)
		denied(d.Grant(d.T.Context(), uuid.New(), d.Workspace, 1, "one too many"))(d, ledger.ErrIllegal)
		d.has(1<<53, 1<<53, 0, 0)
	}},
	{"text that not every database can keep", 5, unkeptTexts},
	{"a list of no length", 5, func(d *Fixture) {
		v, _ := d.Prepares(1)
		d.Uploads()
		for _, limit := range []int{0, -1} {
			d.leased(d.Node, limit, Hour)
			list := effort.Must(d.History(d.T.Context(), ledger.HistoryQuery{Workspace: d.Workspace, Limit: limit}))(d.T)
			s := effort.Must(d.Entries(d.T.Context(), ledger.EntriesQuery{Workspace: d.Workspace, Verification: v.ID,
				Limit: limit}))(d.T)
			effort.ErrorIf(d.T, len(list) != 0 || len(s.Entries) != 0 || s.Count != 1,
				"limit %d: %d verifications and %d entries of %d", limit, len(list), len(s.Entries), s.Count)
		}
	}},
	{"the largest rest that is cancelled at once", ledger.SettlementMax, func(d *Fixture) {
		v, l := d.Prepares(ledger.SettlementMax)
		d.ok(d.Release(d.T.Context(), l))
		cancelsAtOnce(d, v.ID, ledger.SettlementMax)
		d.has(ledger.SettlementMax, ledger.SettlementMax, 0, 0)
	}},
	{"the largest settlement", ledger.SettlementMax + 1, func(d *Fixture) {
		_, l := d.Prepares(ledger.SettlementMax + 1)
		denied(d.Settle(d.T.Context(), Batch(l, 1, 0, ledger.SettlementMax, smtp.Valid)))(d, ledger.ErrIllegal)
		d.is(d.Settles(l, 1, 0, ledger.SettlementMax-1, smtp.Valid), "verifying")
		d.is(d.Settles(l, 2, ledger.SettlementMax, ledger.SettlementMax, smtp.Valid), "completed")
	}},
	{"a file that needs all there is", 3, func(d *Fixture) {
		waits, _ := d.Prepares(4)
		d.is(waits, ledger.WaitingCredits)
		all, _ := d.Prepares(3)
		d.is(all, "verifying")
		d.has(3, 0, 3, 0)
		d.Grants(3)
		d.is(d.Sees(waits.ID), ledger.WaitingCredits)
		d.Grants(1)
		d.is(d.Sees(waits.ID), "verifying")
		d.has(7, 0, 7, 0)
	}},
}

// unkeptTexts returns each text that comes from outside with NUL and as no UTF-8: PostgreSQL has no place for either.
func unkeptTexts(d *Fixture) {
	ctx := d.T.Context()
	l := d.Takes(d.Uploads().ID)
	_, long := d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed", Text: strings.Repeat("x", ledger.IssueTextMax+1)})
	d.refused(long, ledger.ErrIllegal)
	for _, text := range []string{"nul\x00", "cut \xe2\x82"} {
		n := d.Asks(7)
		n.Filename = text
		_, _, create := d.Create(ctx, n)
		_, grant := d.Grant(ctx, uuid.New(), d.Workspace, 1, text)
		_, workspace := d.CreateWorkspace(ctx, uuid.New(), text)
		_, id := d.CreateKey(ctx, ledger.Key{ID: text, Workspace: d.Workspace})
		_, label := d.CreateKey(ctx, ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace, Label: text})
		_, code := d.Refuse(ctx, l, ledger.Issue{Code: text})
		_, message := d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed", Message: text})
		_, row := d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed", Text: text})
		for what, err := range map[string]error{"file name": create, "reason of a grant": grant,
			"name of a workspace": workspace, "key id": id, "label of a key": label,
			"code of an issue": code, "message of an issue": message, "row of an issue": row} {
			effort.ErrIs(d.T, err, ledger.ErrIllegal, fmt.Sprintf("%q as %s", text, what))
		}
	}
	d.has(5, 5, 0, 0)
	spaces := effort.Must(d.Workspaces(ctx))(d.T)
	keys := effort.Must(d.Keys(ctx, d.Workspace))(d.T)
	effort.ErrorIf(d.T, len(spaces) != 1 || len(keys) != 0, "made %d workspaces and %d keys", len(spaces)-1, len(keys))
}

// repeats are calls that look like one that was executed, and are not it.
var repeats = []exercise{
	{"figures of another file", 9, func(d *Fixture) {
		_, l := d.Prepares(2)
		for _, f := range [][3]int64{{3, 1, 2}, {2, 1, 2}, {3, 0, 2}, {2, 0, 3}, {3, 0, 3}} {
			effort.Denied(d.Prepare(d.T.Context(), l, f[0], f[1], f[2]))(d.T, ledger.ErrIllegal, "rows, duplicates, total", f)
		}
		d.has(9, 7, 2, 0)
	}},
	{"figures that were held by another node", 9, func(d *Fixture) {
		v, l := d.Prepares(2)
		d.ok(d.Release(d.T.Context(), l))
		denied(d.Prepare(d.T.Context(), l, 2, 0, 2))(d, ledger.ErrStaleEpoch)
		d.leased(uuid.New(), 1, Hour, v.ID)
		denied(d.Prepare(d.T.Context(), l, 2, 0, 2))(d, ledger.ErrStaleEpoch)
	}},
	{"another defect of a refused file", 0, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		denied(d.Refuse(d.T.Context(), l, ledger.Issue{Code: ledger.CreditsRequired}))(d, ledger.ErrIllegal)
		first := ledger.Issue{Code: "csv_malformed", Row: 3}
		effort.Must(d.Refuse(d.T.Context(), l, first))(d.T)
		for _, issue := range []ledger.Issue{{Code: "csv_malformed", Row: 4}, {Code: "csv_encoding", Row: 3}} {
			denied(d.Refuse(d.T.Context(), l, issue))(d, ledger.ErrStaleEpoch)
		}
		got := d.Sees(l.Verification).Issue
		effort.ErrorIf(d.T, got == nil || *got != first, "issue: %+v", got)
	}},
	{"a chunk that is not the newest, or not the writer's", 0, func(d *Fixture) {
		ctx := d.T.Context()
		v := d.Creates(7)
		u := effort.Must(d.OpenUpload(ctx, v.ID))(d.T)
		for at, data := range []string{"a", "b"} {
			effort.Must(d.AppendChunk(ctx, v.ID, u.Writer, int64(at), []byte(data)))(d.T)
		}
		denied(d.AppendChunk(ctx, v.ID, u.Writer, 0, []byte("a")))(d, ledger.ErrGap)
		effort.Must(d.OpenUpload(ctx, v.ID))(d.T)
		denied(d.AppendChunk(ctx, v.ID, u.Writer, 1, []byte("b")))(d, ledger.ErrFenced)
	}},
	{"an expired upload opened twice", 0, func(d *Fixture) {
		n := d.Asks(7)
		n.UploadExpiry = 0
		v := effort.Must(effort.First(d.Create(d.T.Context(), n)))(d.T)
		first := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		second := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		effort.Is(d.T, first, second, "then")
	}},
	{"waiting until another time", 5, func(d *Fixture) {
		v, l := d.Prepares(2)
		for _, after := range []time.Duration{time.Minute, 2 * time.Minute, time.Second} {
			next := v.Created.Add(after)
			effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{Next: next}))(d.T)
			got := d.Sees(v.ID).NextTry
			effort.ErrorIf(d.T, !got.Equal(next), "next try %v, want %v", got, next)
		}
	}},
}

// manyKeys and manyWorkspaces: lists are oldest first, of one workspace.
func manyKeys(d *Fixture) {
	other := d.other(d.T, 0)
	var want []ledger.Key
	for _, id := range []string{"cccccccccc12", "aaaaaaaaaa12", "bbbbbbbbbb12"} {
		k := effort.Must(d.CreateKey(d.T.Context(), ledger.Key{ID: id, Workspace: d.Workspace, Label: "of " + id}))(d.T)
		want = append(want, k)
		effort.Must(d.CreateKey(d.T.Context(), ledger.Key{ID: "of other" + id[:4], Workspace: other.Workspace}))(d.T)
		d.nextMillisecond(k.Created)
	}
	got := effort.Must(d.Keys(d.T.Context(), d.Workspace))(d.T)
	effort.Equal(d.T, got, want)
}

func manyWorkspaces(d *Fixture) {
	var want []ledger.Workspace
	first := effort.Must(d.CreateWorkspace(d.T.Context(), d.Workspace, ""))(d.T)
	want = append(want, first)
	for _, id := range []uuid.UUID{uuid.Max, {15: 1}, {1}} {
		d.nextMillisecond(want[len(want)-1].Created)
		w := effort.Must(d.CreateWorkspace(d.T.Context(), id, id.String()))(d.T)
		want = append(want, w)
	}
	got := effort.Must(d.Workspaces(d.T.Context()))(d.T)
	effort.Equal(d.T, got, want)
}

// nextMillisecond makes verifications until the ledger's clock is past a time.
func (d *Fixture) nextMillisecond(than time.Time) {
	d.T.Helper()
	for !d.Creates(1).Created.After(than) {
		continue
	}
}
