package ledgertest

import (
	"testing"

	"rollcall/ledger"
)

// Exercise runs the whole suite; open gives a new, empty book each time and closes it with the test. Closing a
// book twice must be harmless.
func Exercise(t *testing.T, open func(t *testing.T) ledger.Book) {
	for _, group := range []struct {
		name  string
		tests []exercise
	}{
		{"tenants", tenants}, {"uploads", uploads}, {"leases", leases}, {"intake", intake},
		{"settlements", settlements}, {"evidence", evidences}, {"cancel", cancels}, {"reading", readings}, {"sweep", sweeps},
		{"refusals", refusals}, {"limits", limits}, {"quotas", quotas}, {"repeats", repeats}, {"races", races},
		{"processes", processes}, {"facts", facts}, {"operators", operators}, {"outlooks", outlooks},
		{"people", people}, {"people sessions", peopleSessions}, {"single checks", singles},
		{"recent results", recents}, {"statements", statements},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, e := range group.tests {
				t.Run(e.name, func(t *testing.T) {
					d := NewFixture(t, open(t), e.credits)
					e.run(d)
					d.Audits()
					if off := d.AddsUp(2); off != "" {
						t.Errorf("statement: %s", off)
					}
				})
			}
		})
	}
}

// exercise is one test on a fresh book with one workspace; the book is audited after it.
type exercise struct {
	name    string
	credits ledger.Credits
	run     func(d *Fixture)
}

// Audits fails the test for each violation.
func (d *Fixture) Audits() ledger.AuditReport {
	d.T.Helper()
	report, err := d.Audit(d.T.Context())
	if err != nil {
		d.T.Fatalf("audit: %v", err)
	}
	for _, v := range report.Violations {
		d.T.Errorf("audit: %s of %s: %s", v.Invariant, v.Subject, v.Detail)
	}
	return report
}

// has fails the test unless the account is as given.
func (d *Fixture) has(granted, available, held, spent ledger.Credits) {
	d.T.Helper()
	want := ledger.Balance{Granted: granted, Available: available, Held: held, Spent: spent}
	if got := d.Account(); got != want {
		d.T.Errorf("balance: got %+v, want %+v", got, want)
	}
}

// is fails the test unless v is in the given state.
func (d *Fixture) is(v ledger.Verification, want ledger.State) {
	d.T.Helper()
	if got := v.State(); got != want {
		d.T.Errorf("state: got %q, want %q", got, want)
	}
	if v.Status.Final() == v.Completed.IsZero() {
		d.T.Errorf("%s with completed at %v", v.Status, v.Completed)
	}
}

// ok ends the test on an error.
func (d *Fixture) ok(err error) {
	d.T.Helper()
	if err != nil {
		d.T.Fatal(err)
	}
}
