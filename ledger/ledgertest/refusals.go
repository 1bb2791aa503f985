package ledgertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var refusals = []exercise{
	{"what does not exist", 0, func(d *Fixture) {
		ctx, none := d.T.Context(), uuid.New()
		_, balance := d.Balance(ctx, none)
		_, grant := d.Grant(ctx, uuid.New(), none, 1, "")
		_, makeKey := d.CreateKey(ctx, ledger.Key{ID: "abcdefghij12", Workspace: none})
		_, keys := d.Keys(ctx, none)
		_, key := d.KeyByID(ctx, "nobodyskey12")
		_, revoke := d.RevokeKey(ctx, "nobodyskey12")
		_, read := d.Verification(ctx, d.Workspace, none)
		_, cancel := d.Cancel(ctx, d.Workspace, none)
		_, state := d.UploadState(ctx, none)
		_, open := d.OpenUpload(ctx, none)
		_, chunk := d.AppendChunk(ctx, none, 1, 0, []byte("x"))
		_, file := d.OpenFile(ctx, none)
		_, prepare := d.Prepare(ctx, ledger.Lease{Verification: none}, 1, 0, 1)
		_, settle := d.Settle(ctx, Batch(ledger.Lease{Verification: none}, 1, 0, 0, smtp.Valid))
		settled := d.Settled(ctx, none, func([]int64) error { return nil })
		results := d.Results(ctx, d.Workspace, none, func(ledger.Result) error { return nil })
		release := d.Release(ctx, ledger.Lease{Verification: none})
		for err, want := range map[error]error{
			balance: ledger.ErrNoSuchWorkspace, grant: ledger.ErrNoSuchWorkspace,
			makeKey: ledger.ErrNoSuchWorkspace, keys: ledger.ErrNoSuchWorkspace, key: ledger.ErrNoSuchKey,
			revoke: ledger.ErrNoSuchKey,
			read:   ledger.ErrNoSuchVerification, cancel: ledger.ErrNoSuchVerification,
			state: ledger.ErrNoSuchVerification, open: ledger.ErrNoSuchVerification,
			chunk: ledger.ErrNoSuchVerification, file: ledger.ErrNoSuchVerification,
			prepare: ledger.ErrNoSuchVerification,
			settle:  ledger.ErrNoSuchVerification, settled: ledger.ErrNoSuchVerification,
			results: ledger.ErrNoSuchVerification, release: ledger.ErrNoSuchVerification,
		} {
			d.refused(err, want)
		}
	}},
	{"keys that no database can keep", 0, func(d *Fixture) {
		for _, id := range []string{"nul\x00", "cut \xe2\x82"} {
			_, read := d.KeyByID(d.T.Context(), id)
			d.refused(read, ledger.ErrNoSuchKey)
			_, revoke := d.RevokeKey(d.T.Context(), id)
			d.refused(revoke, ledger.ErrNoSuchKey)
		}
	}},
	{"creates, the first reason that applies", 0, refusedCreates},
	{"chunks, the first reason that applies", 0, refusedChunks},
	{"a grant with the id of a verification", 5, func(d *Fixture) {
		held, _ := d.Prepares(2)
		waits, _ := d.Prepares(9)
		for name, id := range map[string]uuid.UUID{"uploading": d.Creates(7).ID, "verifying": held.ID, "waiting": waits.ID} {
			denied(d.Grant(d.T.Context(), id, d.Workspace, 7, name))(d, ledger.ErrIllegal)
		}
		d.has(5, 3, 2, 0)
	}},
	{"a grant that is none", 5, func(d *Fixture) {
		id := uuid.New()
		effort.Must(d.Grant(d.T.Context(), id, d.Workspace, 5, ""))(d.T)
		o := d.other(d.T, 0)
		for name, c := range map[string]struct {
			id, workspace uuid.UUID
			n             ledger.Credits
		}{
			"nothing":           {uuid.New(), d.Workspace, 0},
			"less than nothing": {uuid.New(), d.Workspace, -3},
			"more than exact":   {uuid.New(), d.Workspace, 1 << 53},
			"another amount":    {id, d.Workspace, 6},
			"another workspace": {id, o.Workspace, 5},
		} {
			effort.Denied(d.Grant(d.T.Context(), c.id, c.workspace, c.n, ""))(d.T, ledger.ErrIllegal, name)
		}
		d.has(10, 10, 0, 0)
	}},
	{"a key id of somebody else", 0, func(d *Fixture) {
		k := ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}
		effort.Must(d.CreateKey(d.T.Context(), k))(d.T)
		k.Workspace = d.other(d.T, 0).Workspace
		denied(d.CreateKey(d.T.Context(), k))(d, ledger.ErrIllegal)
		k.Workspace, k.SecretSHA256[0] = d.Workspace, 1
		denied(d.CreateKey(d.T.Context(), k))(d, ledger.ErrIllegal)
	}},
	{"figures that do not add up", 9, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		for _, f := range [][3]int64{{0, 0, 0}, {3, 1, 3}, {3, 3, 0}, {2, -1, 3}} {
			effort.Denied(d.Prepare(d.T.Context(), l, f[0], f[1], f[2]))(d.T, ledger.ErrIllegal, "rows, duplicates, total", f)
		}
		denied(d.Refuse(d.T.Context(), l, ledger.Issue{}))(d, ledger.ErrIllegal)
	}},
	{"steps that the status does not allow", 9, refusedSteps},
	{"settlements that no file has", 9, refusedSettlements},
	{"a lease that is not the caller's, whatever the rest", 9, func(d *Fixture) {
		_, l := d.Prepares(2)
		for name, wrong := range map[string]ledger.Lease{
			"another node":  {Verification: l.Verification, Node: uuid.New(), Epoch: l.Epoch},
			"an old epoch":  {Verification: l.Verification, Node: l.Node, Epoch: l.Epoch - 1},
			"a later epoch": {Verification: l.Verification, Node: l.Node, Epoch: l.Epoch + 1},
			"nobody":        {Verification: l.Verification, Epoch: l.Epoch},
		} {
			for method, err := range leasedCalls(d, wrong) {
				effort.ErrIs(d.T, err, ledger.ErrStaleEpoch, fmt.Sprintf("%s as %s", method, name))
			}
		}
		d.has(9, 7, 2, 0)
	}},
	{"a context that is over changes nothing", 9, func(d *Fixture) {
		ctx, cancel := context.WithCancel(d.T.Context())
		cancel()
		denied(d.Grant(ctx, uuid.New(), d.Workspace, 1, ""))(d, context.Canceled)
		d.has(9, 9, 0, 0)
	}},
}

// leasedCalls makes each call that needs a lease, each wrong in other ways too.
func leasedCalls(d *Fixture, l ledger.Lease) map[string]error {
	ctx := d.T.Context()
	_, refuse := d.Refuse(ctx, l, ledger.Issue{})
	_, prepare := d.Prepare(ctx, l, 5, 5, 5)
	_, settle := d.Settle(ctx, ledger.Settlement{Lease: l, Number: 7})
	_, wait := d.Wait(ctx, l, ledger.Estimate{})
	_, finish := d.FinishCancel(ctx, l)
	return map[string]error{"refuse": refuse, "prepare": prepare, "settle": settle, "wait": wait,
		"finish": finish, "release": d.Release(ctx, l)}
}

func refusedCreates(d *Fixture) {
	known := d.Asks(7)
	effort.Must(effort.First(d.Create(d.T.Context(), known)))(d.T)
	for _, c := range []struct {
		name   string
		change func(n *ledger.NewVerification)
		want   error
	}{
		{"no workspace, and all else", func(n *ledger.NewVerification) {
			n.Workspace, n.Identity, n.Bytes, n.BytesMax, n.Limits.Open = uuid.New(), known.Identity, 8, 1, 1
		}, ledger.ErrNoSuchWorkspace},
		{"identity with another length, and too large, and too many", func(n *ledger.NewVerification) {
			n.Identity, n.Bytes, n.BytesMax, n.Limits.Open = known.Identity, 8, 1, 1
		}, ledger.ErrIdentityReused},
		{"too large and too many", func(n *ledger.NewVerification) { n.BytesMax, n.Limits.Open = 6, 1 },
			ledger.ErrFileTooLarge},
		{"too many", func(n *ledger.NewVerification) { n.Limits.Open = 1 }, ledger.ErrTooManyOpen},
		{"no bytes", func(n *ledger.NewVerification) { n.Bytes = 0 }, ledger.ErrIllegal},
		{"just as large as allowed", func(n *ledger.NewVerification) { n.BytesMax, n.Limits.Open = 7, 2 }, nil},
		{"one too many", func(n *ledger.NewVerification) { n.Limits.Open = 2 }, ledger.ErrTooManyOpen},
	} {
		n := d.Asks(7)
		c.change(&n)
		effort.Denied(effort.First(d.Create(d.T.Context(), n)))(d.T, c.want, c.name)
	}
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, known.ID))(d.T)
	n := d.Asks(7)
	n.Limits.Open = 2 // the cancelled one is not open
	effort.Must(effort.First(d.Create(d.T.Context(), n)))(d.T)
}

func refusedChunks(d *Fixture) {
	v := d.Creates(ledger.ChunkBytesMax + 9)
	u := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
	for _, c := range []struct {
		name   string
		writer int64
		at     int64
		data   string
		want   error
	}{
		{"older writer and a gap", u.Writer - 1, 3, "abc", ledger.ErrFenced},
		{"writer of the future", u.Writer + 1, 0, "abc", ledger.ErrFenced},
		{"a gap", u.Writer, 1, "abc", ledger.ErrGap},
		{"before the start", u.Writer, -1, "abc", ledger.ErrGap},
		{"larger than a chunk", u.Writer, 0, strings.Repeat("x", ledger.ChunkBytesMax+1), ledger.ErrIllegal},
		{"nothing", u.Writer, 0, "", nil},
		{"good", u.Writer, 0, strings.Repeat("x", ledger.ChunkBytesMax), nil},
		{"overlap", u.Writer, 0, "x", ledger.ErrGap},
		{"beyond the declared length", u.Writer, ledger.ChunkBytesMax, "0123456789", ledger.ErrIllegal},
		{"the last", u.Writer, ledger.ChunkBytesMax, "012345678", nil},
		{"after the end", u.Writer, ledger.ChunkBytesMax + 9, "x", ledger.ErrUploadClosed},
		{"older writer after the end", u.Writer - 1, 0, "x", ledger.ErrFenced},
	} {
		effort.Denied(d.AppendChunk(d.T.Context(), v.ID, c.writer, c.at, []byte(c.data)))(d.T, c.want, c.name)
	}
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	denied(d.AppendChunk(d.T.Context(), v.ID, u.Writer, 0, []byte("x")))(d, ledger.ErrUploadClosed)
}

func refusedSteps(d *Fixture) {
	ctx := d.T.Context()
	denied(d.OpenFile(ctx, d.Creates(7).ID))(d, ledger.ErrIllegal)

	l := d.Takes(d.Uploads().ID)
	_, settle := d.Settle(ctx, Batch(l, 1, 0, 0, smtp.Valid))
	_, wait := d.Wait(ctx, l, ledger.Estimate{Next: time.Now()})
	_, finish := d.FinishCancel(ctx, l)
	for method, err := range map[string]error{"settle": settle, "wait": wait, "finish": finish} {
		effort.ErrIs(d.T, err, ledger.ErrIllegal, fmt.Sprintf("%s while preparing", method))
	}

	_, l = d.Prepares(2)
	_, refuse := d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed"})
	_, prepare := d.Prepare(ctx, l, 3, 0, 3)
	_, finish = d.FinishCancel(ctx, l)
	for method, err := range map[string]error{"refuse": refuse, "prepare": prepare, "finish": finish} {
		effort.ErrIs(d.T, err, ledger.ErrIllegal, fmt.Sprintf("%s while verifying", method))
	}
}

func refusedSettlements(d *Fixture) {
	_, l := d.Prepares(3)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	spoiled := func(change func(r *ledger.Result)) ledger.Settlement {
		s := Batch(l, 2, 1, 2, smtp.Valid)
		change(&s.Results[1])
		return s
	}
	for name, s := range map[string]ledger.Settlement{
		"no outcome":         {Lease: l, Number: 2},
		"more than are left": Batch(l, 2, 0, 2, smtp.Valid),
		"beyond the file":    Batch(l, 2, 3, 3, smtp.Valid),
		"an ordinal twice":   spoiled(func(r *ledger.Result) { r.Ordinal = 1 }),
		"undecided":          spoiled(func(r *ledger.Result) { r.Outcome = smtp.Undecided }),
		"without an address": spoiled(func(r *ledger.Result) { r.Email = "" }),
		"without a reason":   spoiled(func(r *ledger.Result) { r.Reason = smtp.ReasonNone }),
		"with a bad ordinal": spoiled(func(r *ledger.Result) { r.Ordinal = -2 }),
		"with a long address": spoiled(func(r *ledger.Result) {
			r.Email = strings.Repeat("x", ledger.EmailBytesMax+1)
		}),
	} {
		effort.Denied(d.Settle(d.T.Context(), s))(d.T, ledger.ErrIllegal, name)
	}
	d.has(9, 6, 2, 1)
}
