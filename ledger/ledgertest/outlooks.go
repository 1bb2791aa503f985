package ledgertest

import (
	"time"

	"rollcall/ledger"
	"rollcall/smtp"
)

var outlooks = []exercise{
	{"what is expected is told until it is over", 9, expects},
	{"a settlement is the same whatever is expected", 9, expectsAgain},
	{"nothing is expected of what is cancelled", 9, expectsNothing},
}

// inMinutes is a time that the ledger keeps as it is.
func inMinutes(n int64) time.Time { return time.UnixMilli(1_700_000_000_007 + n*60_000).UTC() }

// expect fails the test unless a verification says when it is expected to be over.
func (d *Desk) expect(v ledger.Verification, want time.Time) {
	d.T.Helper()
	if v.Expected != want || d.Sees(v.ID).Expected != want {
		d.T.Errorf("%s: expected %v, read %v, want %v", v.State(), v.Expected, d.Sees(v.ID).Expected, want)
	}
}

func expects(d *Desk) {
	v, l := d.Prepares(4)
	d.expect(v, time.Time{})
	next := v.Created.Add(time.Minute)
	wait := func(o ledger.Outlook, want ledger.State) {
		d.T.Helper()
		v, err := d.Wait(d.T.Context(), l, o)
		d.ok(err)
		d.is(v, want)
		d.expect(v, o.Expected)
		if v.NextTry != o.Next {
			d.T.Errorf("next try %v, want %v", v.NextTry, o.Next)
		}
	}
	wait(ledger.Outlook{Expected: inMinutes(1)}, "verifying")
	wait(ledger.Outlook{Expected: inMinutes(2)}, "verifying")
	wait(ledger.Outlook{Next: next, Expected: inMinutes(2)}, ledger.WaitingReceivers)
	wait(ledger.Outlook{Next: next, Expected: inMinutes(3)}, ledger.WaitingReceivers)
	wait(ledger.Outlook{Next: next}, ledger.WaitingReceivers)
	wait(ledger.Outlook{Next: next, Expected: inMinutes(4)}, ledger.WaitingReceivers)

	s := Batch(l, 1, 0, 1, smtp.Valid)
	s.Expected = inMinutes(5).Add(time.Microsecond) // which no ledger keeps
	settled, err := d.Settle(d.T.Context(), s)
	d.ok(err)
	d.expect(settled, inMinutes(5))
	wait(ledger.Outlook{Expected: inMinutes(6)}, "verifying")
	d.expect(d.Settles(l, 2, 2, 2, smtp.Valid), time.Time{})

	last := Batch(l, 3, 3, 3, smtp.Valid)
	last.Expected = inMinutes(7)
	over, err := d.Settle(d.T.Context(), last)
	d.ok(err)
	d.is(over, "completed")
	d.expect(over, time.Time{})
}

func expectsAgain(d *Desk) {
	_, l := d.Prepares(3)
	s := Batch(l, 1, 0, 0, smtp.Valid)
	s.Expected = inMinutes(1)
	for _, expected := range []time.Time{inMinutes(1), inMinutes(2), {}} {
		again := s
		again.Expected = expected
		v, err := d.Settle(d.T.Context(), again)
		d.ok(err)
		d.expect(v, inMinutes(1)) // the first stays
		if v.Settlements != 1 || v.Counts.Valid != 1 {
			d.T.Errorf("got %+v", v)
		}
	}
	d.ok(d.Release(d.T.Context(), l))
	v, err := d.Settle(d.T.Context(), s)
	d.ok(err)
	d.expect(v, inMinutes(1))
}

func expectsNothing(d *Desk) {
	v, l := d.Prepares(3)
	expected := ledger.Outlook{Expected: inMinutes(1)}
	_, err := d.Wait(d.T.Context(), l, expected)
	d.ok(err)
	v, err = d.Cancel(d.T.Context(), d.Workspace, v.ID)
	d.ok(err)
	d.is(v, "cancelling")
	d.expect(v, time.Time{})
	v, err = d.Wait(d.T.Context(), l, expected)
	d.ok(err)
	d.expect(v, time.Time{})
	v, err = d.FinishCancel(d.T.Context(), l)
	d.ok(err)
	d.expect(v, time.Time{})
}
