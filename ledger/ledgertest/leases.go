package ledgertest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// refused fails the test unless err is the refusal.
func (d *Fixture) refused(err, want error) {
	d.T.Helper()
	effort.ErrIs(d.T, err, want)
}

// denied fails the test unless a call ends with the refusal: denied(f())(d, want). What names the call.
func denied[T any](_ T, err error) func(d *Fixture, want error, what ...any) {
	return func(d *Fixture, want error, what ...any) {
		d.T.Helper()
		effort.ErrIs(d.T, err, want, what...)
	}
}

// leased fails the test unless a node is handed exactly these, in this order.
func (d *Fixture) leased(node uuid.UUID, limit int, ttl time.Duration, want ...uuid.UUID) []ledger.Verification {
	d.T.Helper()
	list := effort.Must(d.Lease(d.T.Context(), node, limit, ttl))(d.T)
	same := len(list) == len(want)
	for i := range list {
		same = same && list[i].ID == want[i]
	}
	effort.ErrorIf(d.T, !same, "leased %d verifications, want %d, or in another order", len(list), len(want))
	return list
}

// older returns verifications by creation, then id: the order in which they are served.
func older(list ...ledger.Verification) []uuid.UUID {
	slices.SortFunc(list, func(a, b ledger.Verification) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	var ids []uuid.UUID
	for _, v := range list {
		ids = append(ids, v.ID)
	}
	return ids
}

var leases = []exercise{
	{"the oldest is handed out first, and once", 0, func(d *Fixture) {
		d.Creates(7) // still uploading: nothing to do
		order := older(d.Uploads(), d.Uploads(), d.Uploads())
		d.leased(d.Node, 2, Hour, order[0], order[1])
		d.leased(uuid.New(), 5, Hour, order[2])
		d.leased(d.Node, 5, Hour)
		d.leased(d.Node, 0, Hour)
	}},
	{"nobody leases nothing", 0, func(d *Fixture) {
		d.Uploads()
		denied(d.Lease(d.T.Context(), uuid.Nil, 1, Hour))(d, ledger.ErrIllegal)
		l := d.Takes(d.Uploads().ID)
		d.ok(d.Release(d.T.Context(), l))
		l.Node = uuid.Nil
		denied(d.Prepare(d.T.Context(), l, 1, 0, 1))(d, ledger.ErrStaleEpoch)
	}},
	{"a lease is as long as asked for", 0, func(d *Fixture) {
		v := d.Uploads()
		until := func() time.Time {
			seen := effort.Must(d.Evidence(d.T.Context(), v.ID, 0, func(ledger.StoredSettlement) error { return nil }))(d.T)
			return seen.LeasedUntil
		}
		before := v.Created
		d.leased(d.Node, 1, Hour, v.ID)
		got := until().Sub(before)
		effort.ErrorIf(d.T, got < Hour || got > Hour+Hour/2, "leased for %v, want an hour", got)
		_, err := d.Renew(d.T.Context(), d.Node, Hour/4) // a shorter one counts too
		if d.ok(err); until().Sub(before) < Hour/4 || until().Sub(before) > Hour/2 {
			d.T.Errorf("renewed for %v, want a quarter of an hour", until().Sub(before))
		}
		l := ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: 1}
		held := until()
		effort.Denied(d.Prepare(d.T.Context(), l, 1, 0, 1))(d.T, nil)
		if got := until(); got.After(held) {
			d.T.Errorf("work made the lease longer: until %v, and then until %v", held, got)
		}
	}},
	{"an expired lease goes to another at the next epoch", 0, func(d *Fixture) {
		v := d.Uploads()
		first := d.leased(d.Node, 1, 0, v.ID)
		second := d.leased(uuid.New(), 1, Hour, v.ID)
		effort.Is(d.T, second[0].Epoch, first[0].Epoch+1, "epoch after", first[0].Epoch)
		old := ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: first[0].Epoch}
		denied(d.Prepare(d.T.Context(), old, 1, 0, 1))(d, ledger.ErrStaleEpoch)
	}},
	{"renewing prolongs what has not expired and names it", 0, func(d *Fixture) {
		kept, lost := d.Uploads(), d.Uploads()
		order := older(kept, lost)
		d.leased(d.Node, 1, Hour, order[0])
		d.leased(d.Node, 1, 0, order[1])
		leases := effort.Must(d.Renew(d.T.Context(), d.Node, Hour))(d.T)
		effort.ErrorIf(d.T, len(leases) != 1 ||
			leases[0] != (ledger.Lease{Verification: order[0], Node: d.Node, Epoch: 1}), "renewed: %+v", leases)
		effort.Must(d.Renew(d.T.Context(), d.Node, 0))(d.T)
		d.leased(uuid.New(), 5, Hour, order...) // prolonged by nothing is expired
	}},
	{"a lease given back may be taken at once", 0, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		d.ok(d.Release(d.T.Context(), l))
		d.ok(d.Release(d.T.Context(), l))
		denied(d.Prepare(d.T.Context(), l, 1, 0, 1))(d, ledger.ErrStaleEpoch)
		next := d.Takes(l.Verification)
		d.refused(d.Release(d.T.Context(), l), ledger.ErrStaleEpoch)
		effort.Is(d.T, next.Epoch, l.Epoch+1, "epoch after", l.Epoch)
	}},
	{"some workspaces are passed over", 0, func(d *Fixture) {
		first, other := d.Uploads(), uuid.New()
		list := effort.Must(d.Lease(d.T.Context(), d.Node, 5, Hour, d.Workspace, other))(d.T)
		effort.ErrorIf(d.T, len(list) != 0, "leased %d of a workspace that has its share", len(list))
		denied(d.Lease(d.T.Context(), d.Node, 5, Hour, make([]uuid.UUID, ledger.ExceptMax+1)...))(d, ledger.ErrIllegal)
		for _, n := range []int{1, 9, 65, ledger.ExceptMax} {
			list = effort.Must(d.Lease(d.T.Context(), d.Node, 5, 0, make([]uuid.UUID, n)...))(d.T)
			effort.Is(d.T, len(list), 1, "leased besides", n, "others")
		}
		d.leased(d.Node, 5, Hour, first.ID)
	}},
	{"what is parked comes back when its time has come", 5, func(d *Fixture) {
		v, l := d.Prepares(2)
		far := ledger.Estimate{Next: v.Created.Add(Hour), Expected: v.Created.Add(2 * Hour)}
		denied(d.Park(d.T.Context(), l, far, make([]byte, ledger.ParkedMax+1)))(d, ledger.ErrIllegal)
		for range 2 {
			parked := effort.Must(d.Park(d.T.Context(), l, far, []byte("state")))(d.T)
			d.is(parked, ledger.WaitingReceivers)
			effort.ErrorIf(d.T, parked != d.Sees(v.ID) || !parked.NextTry.Equal(far.Next) ||
				!parked.Expected.Equal(far.Expected), "parked: %+v", parked)
		}
		d.leased(uuid.New(), 5, Hour) // it is not its time
		denied(d.Settle(d.T.Context(), ledger.Settlement{Lease: l, Number: 1, Results: []ledger.Result{
			OneResult(0, smtp.Valid)}}))(d, ledger.ErrStaleEpoch)
		effort.Is(d.T, string(effort.Must(d.Parked(d.T.Context(), v.ID))(d.T)), "state", "parked work")

		w, m := d.Prepares(2)
		effort.Must(d.Park(d.T.Context(), m, ledger.Estimate{Next: w.Created.Add(-time.Second)}, []byte("old")))(d.T)
		list := d.leased(d.Node, 5, Hour, w.ID)
		m.Epoch = list[0].Epoch
		d.is(effort.Must(d.Park(d.T.Context(), m, ledger.Estimate{}, []byte("new")))(d.T), ledger.WaitingReceivers)
		effort.Is(d.T, string(effort.Must(d.Parked(d.T.Context(), w.ID))(d.T)), "new", "parked work")
		m.Epoch = d.leased(d.Node, 5, Hour, w.ID)[0].Epoch
		d.is(d.Settles(m, 1, 0, 1, smtp.Valid), "completed")
		state, err := d.Parked(d.T.Context(), w.ID)
		effort.ErrorIf(d.T, err != nil || state != nil, "a finished verification has parked work: %q, %v", state, err)
	}},
	{"what is parked is cancelled at once", 5000, func(d *Fixture) {
		small, l := d.Prepares(2)
		next := ledger.Estimate{Next: small.Created.Add(Hour)}
		effort.Must(d.Park(d.T.Context(), l, next, []byte("state")))(d.T)
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, small.ID))(d.T)
		d.is(v, "cancelled")
		if state, err := d.Parked(d.T.Context(), small.ID); err != nil || state != nil {
			d.T.Errorf("a cancelled verification has parked work: %q, %v", state, err)
		}
		large, l := d.Prepares(ledger.SettlementMax + 1)
		effort.Must(d.Park(d.T.Context(), l, next, []byte("state")))(d.T)
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, large.ID))(d.T)
		d.is(v, "cancelling")
		l = d.Takes(large.ID)
		v = effort.Must(d.Park(d.T.Context(), l, next, []byte("state")))(d.T)
		d.is(v, "cancelling")
		_, err := d.FinishCancel(d.T.Context(), l) // the lease stayed
		d.ok(err)
		d.has(5000, 5000, 0, 0)
	}},
	{"what crashed rests, and its crash is counted once", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		for range 2 {
			crashed := effort.Must(d.Crashed(d.T.Context(), l))(d.T)
			d.is(crashed, "verifying")
		}
		d.leased(uuid.New(), 5, Hour) // it rests
		d.refused(d.Release(d.T.Context(), ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: l.Epoch + 1}),
			ledger.ErrStaleEpoch)
		denied(d.Crashed(d.T.Context(), ledger.Lease{Verification: v.ID, Node: uuid.New(), Epoch: l.Epoch + 1}))(d,
			ledger.ErrStaleEpoch)
	}},
	{"what crashes while it is cancelled ends as it should", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		cancelled := effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(cancelled, "cancelling")
		crashed := effort.Must(d.Crashed(d.T.Context(), l))(d.T)
		d.is(crashed, "cancelling")
		d.has(5, 2, 3, 0)
	}},
	{"waiting for receivers, and back", 5, func(d *Fixture) {
		v, l := d.Prepares(2)
		next := v.Created.Add(90 * time.Second)
		for range 2 {
			waiting := effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{Next: next}))(d.T)
			d.is(waiting, ledger.WaitingReceivers)
			effort.ErrorIf(d.T, waiting != d.Sees(v.ID) || !waiting.NextTry.Equal(next), "got %+v", waiting)
		}
		d.Settles(l, 1, 0, 0, smtp.Valid)
		d.is(d.Sees(v.ID), ledger.WaitingReceivers)
		back := effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{}))(d.T)
		d.is(back, "verifying")
		effort.ErrorIf(d.T, !back.NextTry.IsZero(), "next try: %v", back.NextTry)
		effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{Next: next}))(d.T)
		d.is(d.Settles(l, 2, 1, 1, smtp.Valid), "completed")
	}},
}

var intake = []exercise{
	{"all credits of a file are held, or none", 5, func(d *Fixture) {
		first, l := d.Prepares(3)
		d.is(first, "verifying")
		d.has(5, 2, 3, 0)
		again := effort.Must(d.Prepare(d.T.Context(), l, 3, 0, 3))(d.T)
		effort.Is(d.T, again, first, fmt.Sprintf("run again: %+v, then", first))
		second, l := d.Prepares(3)
		d.is(second, ledger.WaitingCredits)
		d.has(5, 2, 3, 0)
		effort.Denied(d.Prepare(d.T.Context(), l, 3, 0, 3))(d.T, nil, "run again without credits")
		d.leased(uuid.New(), 5, Hour) // nobody can work on it
		d.Grants(1)
		v := d.Sees(second.ID)
		d.is(v, "verifying")
		effort.ErrorIf(d.T, v.Issue != nil || v.Held != 3, "funded: %+v", v)
		d.leased(uuid.New(), 5, Hour, second.ID)
	}},
	{"a grant funds the oldest first and skips what does not fit", 0, func(d *Fixture) {
		large, _ := d.Prepares(6)
		a, _ := d.Prepares(2)
		b, _ := d.Prepares(2)
		order := older(a, b)
		d.Grants(3)
		d.is(d.Sees(large.ID), ledger.WaitingCredits)
		d.is(d.Sees(order[0]), "verifying")
		d.is(d.Sees(order[1]), ledger.WaitingCredits)
		want := "This file needs 6 credits and 1 are available. It goes on by itself when credits are added."
		effort.Is(d.T, d.Sees(large.ID).Issue.Message, want, "message")
		d.has(3, 1, 2, 0)
	}},
	{"a released credit funds what waits", 4, func(d *Fixture) {
		_, l := d.Prepares(4)
		second, _ := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		d.is(d.Sees(second.ID), ledger.WaitingCredits)
		d.Settles(l, 2, 1, 1, smtp.Unknown)
		d.is(d.Sees(second.ID), "verifying")
		d.has(4, 0, 3, 1)
	}},
	{"a cancelled file funds what waits", 4, func(d *Fixture) {
		first, l := d.Prepares(4)
		second, _ := d.Prepares(4)
		d.ok(d.Release(d.T.Context(), l))
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, first.ID))(d.T)
		d.is(v, "cancelled")
		d.is(d.Sees(second.ID), "verifying")
		d.has(4, 0, 4, 0)
	}},
	{"a refused file costs nothing and says why", 5, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		issue := ledger.Issue{Code: "csv_extra_column", Message: "Row 3 has a second column.", Row: 3, Text: "anna@x.test,ü"}
		for range 2 {
			v := effort.Must(d.Refuse(d.T.Context(), l, issue))(d.T)
			d.is(v, "failed")
			effort.ErrorIf(d.T, v.Issue == nil || *v.Issue != issue || v.Total != -1, "refused: %+v", v)
		}
		d.has(5, 5, 0, 0)
	}},
}

var outlooks = []exercise{
	{"what is expected is told until it is over", 9, expects},
	{"a settlement is the same whatever is expected", 9, expectsAgain},
	{"nothing is expected of what is cancelled", 9, expectsNothing},
	{"the issue of a wait for receivers ends with it", 99, tellsWhy},
	{"the issue of a wait is refused where there is none", 99, refusesWhy},
	{"what waits for receivers with an issue can be worked on", 9, worksWithIssue},
}

// inMinutes is a time that the ledger keeps as it is.
func inMinutes(n int64) time.Time { return time.UnixMilli(1_700_000_000_007 + n*60_000).UTC() }

// expect fails the test unless a verification has this expected end, also when it is read again.
func expect(d *Fixture, v ledger.Verification, want time.Time) {
	d.T.Helper()
	if v.Expected != want || d.Sees(v.ID).Expected != want {
		d.T.Errorf("%s: expected %v, read %v, want %v", v.State(), v.Expected, d.Sees(v.ID).Expected, want)
	}
}

func expects(d *Fixture) {
	v, l := d.Prepares(4)
	expect(d, v, time.Time{})
	next := v.Created.Add(time.Minute)
	wait := func(o ledger.Estimate, want ledger.State) {
		d.T.Helper()
		v := effort.Must(d.Wait(d.T.Context(), l, o))(d.T)
		d.is(v, want)
		expect(d, v, o.Expected)
		effort.Is(d.T, v.NextTry, o.Next, "next try")
	}
	wait(ledger.Estimate{Expected: inMinutes(1)}, "verifying")
	wait(ledger.Estimate{Expected: inMinutes(2)}, "verifying")
	wait(ledger.Estimate{Next: next, Expected: inMinutes(2)}, ledger.WaitingReceivers)
	wait(ledger.Estimate{Next: next, Expected: inMinutes(3)}, ledger.WaitingReceivers)
	wait(ledger.Estimate{Next: next}, ledger.WaitingReceivers)
	wait(ledger.Estimate{Next: next, Expected: inMinutes(4)}, ledger.WaitingReceivers)

	s := Batch(l, 1, 0, 1, smtp.Valid)
	s.Expected = inMinutes(5).Add(time.Microsecond) // which no ledger keeps
	settled := effort.Must(d.Settle(d.T.Context(), s))(d.T)
	expect(d, settled, inMinutes(5))
	wait(ledger.Estimate{Expected: inMinutes(6)}, "verifying")
	expect(d, d.Settles(l, 2, 2, 2, smtp.Valid), time.Time{})

	last := Batch(l, 3, 3, 3, smtp.Valid)
	last.Expected = inMinutes(7)
	over := effort.Must(d.Settle(d.T.Context(), last))(d.T)
	d.is(over, "completed")
	expect(d, over, time.Time{})
}

func expectsAgain(d *Fixture) {
	_, l := d.Prepares(3)
	s := Batch(l, 1, 0, 0, smtp.Valid)
	s.Expected = inMinutes(1)
	for _, expected := range []time.Time{inMinutes(1), inMinutes(2), {}} {
		again := s
		again.Expected = expected
		v := effort.Must(d.Settle(d.T.Context(), again))(d.T)
		expect(d, v, inMinutes(1)) // the first stays
		effort.ErrorIf(d.T, v.Settlements != 1 || v.Counts.Valid != 1, "got %+v", v)
	}
	d.ok(d.Release(d.T.Context(), l))
	v := effort.Must(d.Settle(d.T.Context(), s))(d.T)
	expect(d, v, inMinutes(1))
}

func expectsNothing(d *Fixture) {
	v, l := d.Prepares(3)
	expected := ledger.Estimate{Expected: inMinutes(1)}
	effort.Must(d.Wait(d.T.Context(), l, expected))(d.T)
	v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	d.is(v, "cancelling")
	expect(d, v, time.Time{})
	v = effort.Must(d.Wait(d.T.Context(), l, expected))(d.T)
	expect(d, v, time.Time{})
	v = effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
	expect(d, v, time.Time{})
}

// why fails the test unless a verification tells its customer this of its wait; "": it has no issue.
func why(d *Fixture, v ledger.Verification, want string) {
	d.T.Helper()
	for _, got := range []*ledger.Issue{v.Issue, d.Sees(v.ID).Issue} {
		switch {
		case want == "" && got == nil:
		case got == nil || *got != ledger.Issue{Code: ledger.ReceiversWait, Message: want}:
			d.T.Errorf("%s: issue %+v, want %q", v.State(), got, want)
		}
	}
}

func tellsWhy(d *Fixture) {
	ctx := d.T.Context()
	v, l := d.Prepares(5)
	wait := func(o ledger.Estimate, want string) {
		d.T.Helper()
		v := effort.Must(d.Wait(ctx, l, o))(d.T)
		why(d, v, want)
	}
	told := ledger.Estimate{Next: v.Created.Add(time.Minute), Expected: inMinutes(1), Why: "5 wait."}
	silent := told
	silent.Why = ""
	wait(told, "5 wait.")
	wait(told, "5 wait.")
	wait(silent, "")
	other := told
	other.Why = "They wait for something else."
	wait(told, "5 wait.")
	wait(other, "They wait for something else.")
	why(d, d.Settles(l, 1, 0, 0, smtp.Valid), "They wait for something else.")
	s := Batch(l, 2, 1, 1, smtp.Valid)
	s.Why = "3 wait."
	v = effort.Must(d.Settle(ctx, s))(d.T)
	why(d, v, "3 wait.")
	wait(ledger.Estimate{}, "")

	s = Batch(l, 3, 2, 2, smtp.Valid)
	s.Why = "2 wait." // it does not any more
	v = effort.Must(d.Settle(ctx, s))(d.T)
	why(d, v, "")
	wait(told, "5 wait.")
	last := Batch(l, 4, 3, 4, smtp.Valid)
	last.Why = "0 wait."
	v = effort.Must(d.Settle(ctx, last))(d.T)
	d.is(v, "completed")
	why(d, v, "")

	for _, total := range []int64{1, 2} {
		v, l = d.Prepares(total)
		wait(told, "5 wait.")
		if total == 2 { // without its lease it is cancelled at once
			v = effort.Must(d.Park(ctx, l, told, []byte("state")))(d.T)
			why(d, v, "5 wait.")
		}
		v = effort.Must(d.Cancel(ctx, d.Workspace, v.ID))(d.T)
		why(d, v, "")
		if total == 1 {
			v = effort.Must(d.Wait(ctx, l, told))(d.T)
			d.is(v, "cancelling")
			why(d, v, "")
		}
	}
}

func refusesWhy(d *Fixture) {
	ctx := d.T.Context()
	v, l := d.Prepares(2)
	next := v.Created.Add(Hour)
	denied(d.Wait(ctx, l, ledger.Estimate{Why: "It waits."}))(d, ledger.ErrIllegal)
	for _, why := range []string{strings.Repeat("x", ledger.WhyMax+1), "nul\x00", "cut \xe2\x82"} {
		_, wait := d.Wait(ctx, l, ledger.Estimate{Next: next, Why: why})
		_, park := d.Park(ctx, l, ledger.Estimate{Next: next, Why: why}, nil)
		s := Batch(l, 1, 0, 0, smtp.Valid)
		s.Why = why
		_, settle := d.Settle(ctx, s)
		for method, err := range map[string]error{"wait": wait, "park": park, "settle": settle} {
			effort.ErrIs(d.T, err, ledger.ErrIllegal, fmt.Sprintf("%s with %q", method, why))
		}
	}
	longest := strings.Repeat("x", ledger.WhyMax)
	v = effort.Must(d.Wait(ctx, l, ledger.Estimate{Next: next, Why: longest}))(d.T)
	why(d, v, longest)

	l = d.Takes(d.Uploads().ID)
	denied(d.Refuse(ctx, l, ledger.Issue{Code: ledger.ReceiversWait, Message: "It waits."}))(d, ledger.ErrIllegal)
}

// worksWithIssue checks that a file with a wait's issue is leased like any other.
func worksWithIssue(d *Fixture) {
	ctx := d.T.Context()
	v, l := d.Prepares(2)
	now := ledger.Estimate{Next: v.Created.Add(-time.Second), Why: "It waits."}
	effort.Must(d.Park(ctx, l, now, []byte("state")))(d.T)
	l.Epoch = d.leased(d.Node, 5, Hour, v.ID)[0].Epoch
	why(d, d.Sees(v.ID), "It waits.")
	v = effort.Must(d.Crashed(ctx, l))(d.T)
	d.is(v, ledger.WaitingReceivers)
	why(d, v, "It waits.")
	d.has(9, 7, 2, 0)
}
