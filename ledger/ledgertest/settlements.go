package ledgertest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var settlements = []exercise{
	{"a file from creation to results", 10, func(d *Fixture) {
		v, l := d.Prepares(5)
		d.is(v, "verifying")
		d.has(10, 5, 5, 0)
		d.is(d.Settles(l, 1, 3, 4, smtp.Unknown), "verifying")
		d.has(10, 7, 3, 0)
		done := d.Settles(l, 2, 0, 2, smtp.Valid)
		d.is(done, "completed")
		d.has(10, 7, 0, 3)
		want := (ledger.Counts{Valid: 3, Unknown: 2})
		effort.ErrorIf(d.T, done.Counts != want || done.Held != 0 || done.Settlements != 2, "got %+v", done)
		effort.Is(d.T, done, d.Sees(v.ID), "stored")
	}},
	{"every outcome but unknown costs one credit", 5, func(d *Fixture) {
		_, l := d.Prepares(5)
		for i, o := range smtp.Outcomes {
			d.Settles(l, int64(i+1), int64(i), int64(i), o)
		}
		d.has(5, 1, 0, 4)
	}},
	{"an error makes completed_with_errors", 2, func(d *Fixture) {
		_, l := d.Prepares(2)
		d.Settles(l, 1, 0, 0, smtp.Error)
		d.is(d.Settles(l, 2, 1, 1, smtp.Valid), "completed_with_errors")
	}},
	{"a settlement repeated changes nothing", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		first := d.Settles(l, 1, 0, 0, smtp.Valid)
		effort.Is(d.T, d.Settles(l, 1, 0, 0, smtp.Valid), first, fmt.Sprintf("%+v, then", first))
		d.Settles(l, 2, 1, 2, smtp.Unknown)
		d.is(d.Settles(l, 2, 1, 2, smtp.Unknown), "completed") // also the last one, whose lease is gone
		d.Settles(l, 1, 0, 0, smtp.Valid)                      // and an old one
		d.has(5, 4, 0, 1)
		effort.Is(d.T, len(d.Reads(v.ID)), 3, "results")
	}},
	{"another content under a known number is stale", 5, func(d *Fixture) {
		_, l := d.Prepares(3)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		for name, s := range map[string]ledger.Settlement{
			"another outcome": Batch(l, 1, 0, 0, smtp.Invalid),
			"another ordinal": Batch(l, 1, 1, 1, smtp.Valid),
			"a gap":           Batch(l, 3, 1, 1, smtp.Valid),
			"number 0":        Batch(l, 0, 1, 1, smtp.Valid),
		} {
			denied(d.Settle(d.T.Context(), s))(d, ledger.ErrStaleEpoch, name)
		}
		d.has(5, 2, 2, 1)
	}},
	{"the old owner's settlement is refused after a takeover", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		d.ok(d.Release(d.T.Context(), l))
		next := uuid.New()
		taken := d.leased(next, 1, Hour, v.ID)
		denied(d.Settle(d.T.Context(), Batch(l, 2, 1, 1, smtp.Valid)))(d, ledger.ErrStaleEpoch)
		d.Settles(l, 1, 0, 0, smtp.Valid) // its earlier commits stay
		newer := ledger.Lease{Verification: v.ID, Node: next, Epoch: taken[0].Epoch}
		_, err := d.Settle(d.T.Context(), Batch(newer, 1, 0, 0, smtp.Valid)) // and not the new owner's
		d.refused(err, ledger.ErrStaleEpoch)
		effort.ErrorIf(d.T, taken[0].Settlements != 1 || taken[0].Held != 2, "taken over: %+v", taken[0])
		d.has(5, 2, 2, 1)
	}},
	{"an address is charged once", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 1, 2, smtp.Valid)
		d.Settles(l, 2, 4, 4, smtp.Unknown)
		twice(d, l, 3, 1, 2, 4)
		d.ok(d.Release(d.T.Context(), l)) // and whoever has it next
		twice(d, d.Takes(v.ID), 3, 1, 2, 4)
		d.has(9, 4, 3, 2)
		l = ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: l.Epoch + 1}
		d.Settles(l, 3, 0, 0, smtp.Valid) // a refused call has left nothing
		twice(d, l, 4, 0, 1, 2, 4)
		d.Settles(l, 4, 3, 3, smtp.Valid)
		d.is(d.Settles(l, 5, 5, 5, smtp.Valid), "completed")
		d.has(9, 4, 0, 5)
		effort.Is(d.T, len(d.Reads(v.ID)), 6, "results")
	}},
	{"addresses from all over the file are charged once", 9000, func(d *Fixture) {
		_, l := d.Prepares(9000)
		for number := range int64(3) {
			s := ledger.Settlement{Lease: l, Number: number + 1}
			for ordinal := number; ordinal < 9000; ordinal += 9 {
				s.Results = append(s.Results, OneResult(ordinal, smtp.Valid))
			}
			effort.Must(d.Settle(d.T.Context(), s))(d.T)
		}
		twice(d, l, 4, 0, 2, 8991, 4501, 4511)
		d.Settles(l, 4, 3, 8, smtp.Valid)
		d.has(9000, 0, 5994, 3006)
	}},
	{"an expired lease that nobody took still settles", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		effort.Must(d.Renew(d.T.Context(), d.Node, 0))(d.T)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		effort.Is(d.T, d.Sees(v.ID).Counts.Valid, 1, "valid")
	}},
	{"the settled ordinals are told to the next owner", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 4, 5, smtp.Valid)
		d.Settles(l, 2, 0, 1, smtp.Unknown)
		var got [][]int64
		d.ok(d.Settled(d.T.Context(), v.ID, func(ordinals []int64) error {
			got = append(got, append([]int64(nil), ordinals...))
			return nil
		}))
		want := [][]int64{{4, 5}, {0, 1}}
		effort.ErrorIf(d.T, !reflect.DeepEqual(got, want), "got %v, want %v", got, want)
	}},
}

// twice fails the test unless every settlement is refused that has one of some ordinals, alone or
// beside one that is open, such as the one after it.
func twice(d *Fixture, l ledger.Lease, number int64, ordinals ...int64) {
	d.T.Helper()
	before := d.Account()
	for _, ordinal := range ordinals {
		for _, s := range []ledger.Settlement{Batch(l, number, ordinal, ordinal, smtp.Valid),
			Batch(l, number, ordinal, ordinal, smtp.Unknown), Batch(l, number, ordinal, ordinal+1, smtp.Valid)} {
			denied(d.Settle(d.T.Context(), s))(d, ledger.ErrIllegal, fmt.Sprintf("ordinal %d again", ordinal))
		}
	}
	effort.Is(d.T, d.Account(), before, fmt.Sprintf("balance: %+v, then", before))
}

var cancels = []exercise{
	{"uploading", 5, func(d *Fixture) { cancelsAtOnce(d, d.Creates(7).ID, 0) }},
	{"preparing, whoever reads it", 5, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		cancelsAtOnce(d, l.Verification, 0)
		denied(d.Prepare(d.T.Context(), l, 1, 0, 1))(d, ledger.ErrStaleEpoch)
	}},
	{"waiting for credits", 0, func(d *Fixture) {
		v, _ := d.Prepares(3)
		cancelsAtOnce(d, v.ID, 3)
		d.Grants(3)
		d.has(3, 3, 0, 0)
	}},
	{"verifying with no lease and a small rest", 5, func(d *Fixture) {
		v, l := d.Prepares(5)
		d.Settles(l, 1, 0, 1, smtp.Valid)
		d.ok(d.Release(d.T.Context(), l))
		cancelsAtOnce(d, v.ID, 3)
		d.has(5, 3, 0, 2)
	}},
	{"verifying with an expired lease", 5, func(d *Fixture) {
		v, l := d.Prepares(5)
		effort.Must(d.Renew(d.T.Context(), d.Node, 0))(d.T)
		cancelsAtOnce(d, v.ID, 5)
		denied(d.Settle(d.T.Context(), Batch(l, 1, 0, 0, smtp.Valid)))(d, ledger.ErrStaleEpoch)
	}},
	{"verifying under a lease", 5, func(d *Fixture) { cancelsUnderLease(d, 5) }},
	{"a large rest without a lease", ledger.SettlementMax + 1, func(d *Fixture) {
		v, l := d.Prepares(ledger.SettlementMax + 1)
		d.ok(d.Release(d.T.Context(), l))
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(v, "cancelling")
		v = effort.Must(d.FinishCancel(d.T.Context(), d.Takes(v.ID)))(d.T)
		d.is(v, "cancelled")
		d.has(ledger.SettlementMax+1, ledger.SettlementMax+1, 0, 0)
	}},
	{"cancelling ends in cancelled also when all got their outcome", 2, func(d *Fixture) {
		v, l := d.Prepares(2)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(d.Settles(l, 1, 0, 1, smtp.Valid), "cancelled")
		again := effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
		d.is(again, "cancelled")
		d.has(2, 0, 0, 2)
	}},
	{"a final file stays as it is", 2, func(d *Fixture) {
		v, l := d.Prepares(1)
		done := d.Settles(l, 1, 0, 0, smtp.Valid)
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		effort.Is(d.T, v, done, fmt.Sprintf("%+v, then", done))
	}},
}

// cancelsAtOnce fails the test unless the verification is cancelled in one step,
// with so many addresses that were never checked, however often it is asked.
func cancelsAtOnce(d *Fixture, id uuid.UUID, unchecked int64) {
	d.T.Helper()
	for range 2 {
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, id))(d.T)
		d.is(v, "cancelled")
		effort.ErrorIf(d.T, v.Counts.Cancelled != unchecked || v.Held != 0,
			"counts %+v holding %d, want %d cancelled", v.Counts, v.Held, unchecked)
	}
	d.leased(uuid.New(), 5, Hour)
}

// cancelsUnderLease cancels a file of total addresses in the middle of its work.
func cancelsUnderLease(d *Fixture, total int64) {
	v, l := d.Prepares(total)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	for range 2 {
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(v, "cancelling")
	}
	stays := effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{Next: v.Created.Add(time.Minute)}))(d.T)
	d.is(stays, "cancelling")
	d.is(d.Settles(l, 2, 1, 1, smtp.Invalid), "cancelling") // in flight: counts and is charged
	for range 2 {
		v := effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
		d.is(v, "cancelled")
		effort.Is(d.T, v.Counts.Cancelled, total-2, "counts", v.Counts)
	}
	d.has(5, 3, 0, 2)
	denied(d.Settle(d.T.Context(), Batch(l, 3, 2, 2, smtp.Valid)))(d, ledger.ErrStaleEpoch)
}
