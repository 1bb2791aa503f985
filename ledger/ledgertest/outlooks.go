package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

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

// expect fails the test unless a verification says when it is expected to be over.
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
