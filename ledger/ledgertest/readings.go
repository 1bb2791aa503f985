package ledgertest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var readings = []exercise{
	{"results come in the order of the file, each address once", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		got := d.Reads(v.ID)
		effort.ErrorIf(d.T, len(got) != 0, "before any outcome: %+v", got)
		d.Settles(l, 1, 3, 4, smtp.Invalid)
		d.Settles(l, 2, 0, 1, smtp.CatchAll)
		want := []ledger.Result{OneResult(0, smtp.CatchAll), OneResult(1, smtp.CatchAll),
			OneResult(3, smtp.Invalid), OneResult(4, smtp.Invalid)}
		effort.Same(d.T, d.Reads(v.ID), want, "partial")
		d.Settles(l, 3, 2, 2, smtp.Unknown)
		d.Settles(l, 4, 5, 5, smtp.Error)
		for i, r := range d.Reads(v.ID) {
			effort.Is(d.T, r.Ordinal, int64(i), fmt.Sprintf("result %d has ordinal", i))
		}
	}},
	{"results of many settlements", 200, func(d *Fixture) {
		const n = 130 // the last outcome was first
		v, l := d.Prepares(n)
		for i := range int64(n) {
			d.Settles(l, i+1, n-1-i, n-1-i, smtp.Outcomes[i%3])
		}
		got := d.Reads(v.ID)
		for i, r := range got {
			want := OneResult(int64(i), smtp.Outcomes[(n-1-i)%3])
			effort.FatalIf(d.T, r != want, "result %d: got %+v, want %+v", i, r, want)
		}
		effort.Is(d.T, len(got), n, "results")
	}},
	{"a reader that gives up ends the results", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 0, 5, smtp.Valid)
		enough := errors.New("enough")
		n := 0
		d.refused(d.Results(d.T.Context(), d.Workspace, v.ID, func(ledger.Result) error { n++; return enough }), enough)
		effort.Is(d.T, n, 1, "yielded", n-1, "more")
	}},
	{"history pages survive new files", 0, history},
	{"history of one kind", 0, func(d *Fixture) {
		v := d.Creates(7)
		for kind, want := range map[ledger.Kind]int{ledger.Bulk: 1, ledger.Single: 0, "": 1} {
			q := ledger.HistoryQuery{Workspace: d.Workspace, Kind: kind, Limit: 9}
			list := effort.Must(d.History(d.T.Context(), q))(d.T)
			effort.ErrorIf(d.T, len(list) != want || want == 1 && list[0] != v,
				"kind %q: got %d, want %d", kind, len(list), want)
		}
	}},
	{"history of those that are open", 0, func(d *Fixture) {
		over, open := d.Creates(7), d.Creates(7)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, over.ID))(d.T)
		list := effort.Must(d.History(d.T.Context(), ledger.HistoryQuery{Workspace: d.Workspace, Open: true, Limit: 9}))(d.T)
		effort.ErrorIf(d.T, len(list) != 1 || list[0] != open, "open are %+v, want %+v", list, open)
	}},
	{"open ones are told with who has them", 4, func(d *Fixture) {
		v, l := d.Prepares(1)
		parked, p := d.Prepares(1)
		d.ok(d.Release(d.T.Context(), l))
		seen := func(id uuid.UUID) ledger.Verification {
			list := effort.Must(d.OpenVerifications(d.T.Context(), 100_000))(d.T)
			i := slices.IndexFunc(list, func(v ledger.Verification) bool { return v.ID == id })
			effort.FatalIf(d.T, i < 0, "%s is not among the %d open ones", id, len(list))
			return list[i]
		}
		if got := seen(v.ID); got.LeasedBy != uuid.Nil || !got.LeasedUntil.IsZero() || !got.ParkedUntil.IsZero() {
			d.T.Errorf("nobody has it: %+v", got)
		}
		if got := seen(parked.ID); got.LeasedBy != d.Node || !got.LeasedUntil.After(got.Created) {
			d.T.Errorf("%s has it: %+v", d.Node, got)
		}
		next := d.tunes().Now.Add(Hour)
		effort.Must(d.Park(d.T.Context(), p, ledger.Estimate{Next: next}, []byte("state")))(d.T)
		if got := seen(parked.ID); got.LeasedBy != uuid.Nil || got.ParkedUntil.Sub(next).Abs() > time.Second {
			d.T.Errorf("it rests until %v: %+v", next, got)
		}
	}},
	{"open ones of all workspaces, the oldest first", 0, func(d *Fixture) {
		ctx, first, o := d.T.Context(), d.Creates(7), d.other(d.T, 0)
		second := o.Creates(7)
		check := func(want ...ledger.Verification) {
			d.T.Helper()
			list := effort.Must(d.OpenVerifications(ctx, 100_000))(d.T)
			list = slices.DeleteFunc(list, func(v ledger.Verification) bool {
				return v.Workspace != d.Workspace && v.Workspace != o.Workspace
			})
			older := func(a, b ledger.Verification) int { // of one millisecond, by id
				return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
			}
			slices.SortFunc(want, older)
			if !slices.EqualFunc(list, want, func(a, b ledger.Verification) bool { return a.ID == b.ID }) {
				d.T.Errorf("%d are open, want %d, or in another order", len(list), len(want))
			}
		}
		check(first, second)
		effort.Must(d.Cancel(ctx, first.Workspace, first.ID))(d.T)
		check(second)
		list, err := d.OpenVerifications(ctx, 0)
		effort.ErrorIf(d.T, len(list) > 0 || err != nil, "at most none: %d, %v", len(list), err)
	}},
	{"a workspace does not see the files of others", 9, func(d *Fixture) {
		v, l := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		o := d.other(d.T, 0)
		ctx := d.T.Context()
		denied(d.Verification(ctx, o.Workspace, v.ID))(d, ledger.ErrNoSuchVerification)
		denied(d.Cancel(ctx, o.Workspace, v.ID))(d, ledger.ErrNoSuchVerification)
		err := d.Results(ctx, o.Workspace, v.ID, func(ledger.Result) error { return errors.New("a result of another") })
		d.refused(err, ledger.ErrNoSuchVerification)
		list := effort.Must(d.History(ctx, ledger.HistoryQuery{Workspace: o.Workspace, Limit: 9}))(d.T)
		effort.Is(d.T, len(list), 0, "history of another workspace", list)
		_, err = d.Entries(ctx, ledger.EntriesQuery{Workspace: o.Workspace, Verification: v.ID, Limit: 9})
		d.refused(err, ledger.ErrNoSuchVerification)
	}},
	{"entries of a verification come newest first and add up", 9, entries},
}

// entries settles until five entries stand, cancels the rest, and reads them in pages of every size.
func entries(d *Fixture) {
	v, l := d.Prepares(8)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	batch := Batch(l, 2, 2, 3, smtp.Unknown)
	batch.Results[0].Outcome = smtp.Invalid
	effort.Must(d.Settle(d.T.Context(), batch))(d.T)
	d.ok(d.Release(d.T.Context(), l))
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	want := map[string]ledger.Credits{"hold 0": 8, "charge 1": 2, "charge 2": 1, "release 2": 1, "release 0": 4}
	for limit := 1; limit <= len(want)+1; limit++ {
		got := map[string]ledger.Credits{}
		var before ledger.Entry
		q := ledger.EntriesQuery{Workspace: d.Workspace, Verification: v.ID, Limit: limit}
		for more := true; more; {
			s := effort.Must(d.Entries(d.T.Context(), q))(d.T)
			sums := ledger.Sums{Held: 8, Charged: 3, Released: 5}
			effort.FatalIf(d.T, s.Count != 5 || s.Sums != sums || s.Verification.ID != v.ID,
				"got %+v of %d entries, want %+v of 5", s.Sums, s.Count, sums)
			for _, e := range s.Entries {
				got[fmt.Sprintf("%s %d", e.Kind, e.Number)] += e.Amount
				effort.ErrorIf(d.T, len(got) > 1 && e.At.After(before.At) || e.At.IsZero(),
					"%+v comes after %+v", e, before)
				before = e
				q.After = &before
			}
			more = len(s.Entries) == limit
		}
		effort.Same(d.T, got, want, "pages", limit)
	}
}

func history(d *Fixture) {
	var made []ledger.Verification
	for range 7 {
		made = append(made, d.Creates(7))
	}
	want := older(made...)
	slices.Reverse(want)
	var got []uuid.UUID
	q := ledger.HistoryQuery{Workspace: d.Workspace, Limit: 3}
	for {
		page := effort.Must(d.History(d.T.Context(), q))(d.T)
		for _, v := range page {
			got = append(got, v.ID)
			q.After = &ledger.Position{Created: v.Created, ID: v.ID}
		}
		if len(page) < q.Limit {
			break
		}
		d.other(d.T, 0).Creates(7)
		d.Creates(7)
	}
	// A file that was made in the millisecond of a page's end may stand behind it.
	got = slices.DeleteFunc(got, func(id uuid.UUID) bool { return !slices.Contains(want, id) })
	effort.Equal(d.T, got, want)
}
