package simulation

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// edges are the legal steps of a verification as the interface promises them,
// written a second time so that a mistake in package ledger is seen.
var edges = map[ledger.State][]ledger.State{
	"uploading":       {"preparing", "cancelled", "failed"},
	"preparing":       {"verifying", "waiting_credits", "failed", "cancelled"},
	"waiting_credits": {"verifying", "cancelled", "failed"},
	"verifying": {"waiting_receivers", "completed", "completed_with_errors", "cancelled", "cancelling",
		"failed"},
	"waiting_receivers": {"verifying", "completed", "completed_with_errors", "cancelled", "cancelling", "failed"},
	"cancelling":        {"cancelled"},
}

// wrong notes a broken promise; the life ends with the first.
func (w *world) wrong(invariant, format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf("%s: %s", invariant, fmt.Sprintf(format, args...))
	}
}

// checkCommit looks at everything that the transaction at hand touched.
func (w *world) checkCommit() {
	w.commits++
	m := w.memory
	touched := map[uuid.UUID]bool{}
	for _, f := range m.changedFiles() {
		was, is := f[0], f[1]
		w.checkFile(is)
		touched[is.row.Workspace] = true
		if was != nil {
			w.checkStep(&was.row, &is.row)
		} else if had := w.has(is.row.Workspace, m.ran); had.Stored > storedMax || had.Unpaid > unpaidMax || m.full {
			w.wrong("limits", "a file was let in with %+v, the disk full: %v", had, m.full)
		}
	}
	for i := range m.accounts {
		if a := &m.accounts[i]; touched[a.id] || *a != m.was.accounts[i] {
			w.checkAccount(a)
		}
	}
}

// checkStep compares a verification with what it was before the transaction.
func (w *world) checkStep(before, after *transitions.Row) {
	from, to := before.State(), after.State()
	if from != to && !slices.Contains(edges[from], to) {
		w.wrong("I19", "from %s to %s", from, to)
	}
	if before.Status.Final() && (before.Status != after.Status || before.Counts != after.Counts ||
		before.Completed != after.Completed || before.Settlements != after.Settlements) {
		w.wrong("I10", "%s changed after its end", before.Status)
	}
	b, a := before.Counts, after.Counts
	falls := a.Valid < b.Valid || a.Invalid < b.Invalid || a.CatchAll < b.CatchAll || a.Unknown < b.Unknown ||
		a.Error < b.Error || a.Cancelled < b.Cancelled
	if falls || after.Settlements < before.Settlements || after.Epoch < before.Epoch ||
		after.Durable < before.Durable || after.Writer < before.Writer {
		w.wrong("I8", "a counter fell: %+v, then %+v", *before, *after)
	}
	if before.Total >= 0 && before.Total != after.Total {
		w.wrong("I8", "total %d became %d", before.Total, after.Total)
	}
	if from == ledger.WaitingCredits && to == from && after.WaitingSince != before.WaitingSince {
		w.wrong("funding", "has waited for credits since %d, and since %d", before.WaitingSince, after.WaitingSince)
	}
	if from != to && to == ledger.WaitingCredits && after.WaitingSince != w.memory.ran {
		w.wrong("funding", "waits for credits since %d, and it is %d", after.WaitingSince, w.memory.ran)
	}
	if after.Settlements != before.Settlements && after.Epoch != before.Epoch {
		w.wrong("settlements", "settled and leased in one transaction")
	}
	parked := to == ledger.WaitingReceivers && after.Node == uuid.Nil
	if from != to && after.State().Funded() && before.Node != uuid.Nil && after.Node != before.Node && !parked {
		w.wrong("lease", "from %s to %s without the node that had it", from, to)
	}
	if after.Status.Final() && after.Node != uuid.Nil {
		w.wrong("lease", "%s with a lease", after.Status)
	}
	if expires := after.LeaseExpires; after.Node != uuid.Nil && expires != before.LeaseExpires &&
		expires != w.memory.ran+leaseTTL.Milliseconds() {
		w.wrong("lease", "of %d ms, asked for %v", expires-w.memory.ran, leaseTTL)
	}
	if from != to && to == "failed" {
		w.checkFailure(before, after.Issue)
	}
}

// checkFailure holds the issue that a verification fails with against what it was
// before: whose time is not over does not expire.
func (w *world) checkFailure(before *transitions.Row, issue *ledger.Issue) {
	code := ""
	if issue != nil {
		code = issue.Code
	}
	now := ledger.Clock(w.memory.ran)
	switch before.State() {
	case "uploading":
		if code != ledger.UploadExpired || before.UploadExpires.After(now) {
			w.wrong("expiry", "%q at %v, the upload may last until %v", code, now, before.UploadExpires)
		}
	case "waiting_credits":
		since := ledger.Clock(before.WaitingSince)
		if code != ledger.FundingExpired || since.Add(fundLife).After(now) {
			w.wrong("expiry", "%q at %v, has waited for credits since %v", code, now, since)
		}
	default:
		crashed := code == ledger.InternalError && before.Crashes == ledger.CrashesMax-1
		if !crashed && (code != defect.Code || before.State() != "preparing") {
			w.wrong("expiry", "%s failed with %q", before.State(), code)
		}
	}
}

// checkRow looks at what a row says about its own state.
func (w *world) checkRow(r *transitions.Row) {
	state := r.State()
	if (r.WaitingSince != 0) != (state == ledger.WaitingCredits) {
		w.wrong("row", "%s, and waits for credits since %d", state, r.WaitingSince)
	}
	if !r.NextTry.IsZero() != (state == ledger.WaitingReceivers) {
		w.wrong("row", "%s, and tries again at %v", state, r.NextTry)
	}
	if (r.Issue != nil) != (r.Status == ledger.Waiting || state == "failed") {
		w.wrong("row", "%s with issue %+v", state, r.Issue)
	}
	if (r.Issue != nil && r.Issue.Code == ledger.ReceiversWait) != (state == ledger.WaitingReceivers) {
		w.wrong("row", "%s with issue %+v", state, r.Issue)
	}
	if (r.Node == uuid.Nil) != (r.LeaseExpires == 0) {
		w.wrong("row", "the lease of node %s expires at %d", r.Node, r.LeaseExpires)
	}
	if r.Status.Final() && r.Completed.Before(r.Created) {
		w.wrong("row", "completed %v, created %v", r.Completed, r.Created)
	}
	if r.Crashes >= ledger.CrashesMax && !r.Status.Final() && r.Status != ledger.Cancelling {
		w.wrong("row", "%s after %d crashes", state, r.Crashes)
	}
	if r.Kind == ledger.Single && (r.Status == ledger.Uploading || r.SingleEmail == "") {
		w.wrong("row", "a check of %q is %s", r.SingleEmail, r.Status)
	}
}

// checkFile recomputes one verification from its entries and settlements.
func (w *world) checkFile(f *file) {
	w.checkRow(&f.row)
	check := ledger.NewFileCheck(f.row.Verification)
	for _, e := range f.entries {
		check.Entry(e.Workspace, e.Kind, e.Number, e.Amount)
	}
	for i := range f.settlements {
		s := &f.settlements[i]
		check.Settlement(s.number, s.epoch, s.counts, &s.batch)
	}
	for _, v := range check.Finish() {
		w.wrong(v.Invariant, "%s", v.Detail)
	}
	durable := int64(0)
	for _, c := range f.chunks {
		if c.at != durable {
			w.wrong("I13", "a chunk at byte %d after %d", c.at, durable)
		}
		durable += int64(len(c.data))
	}
	if durable != f.row.Durable && !f.row.UploadDeleted {
		w.wrong("I13", "%d bytes stored, %d answered", durable, f.row.Durable)
	}
	if unread := f.row.Status.Final() && f.row.Total < 0; unread != f.row.UploadDeleted || unread && durable > 0 {
		w.wrong("erased", "%s with a total of %d: erased %v, %d bytes stored", f.row.Status, f.row.Total,
			f.row.UploadDeleted, durable)
	}
	if f.row.Paid != (len(f.entries) > 0) {
		w.wrong("paid", "%v with %d entries", f.row.Paid, len(f.entries))
	}
	whole := f.row.Durable == f.row.Bytes
	if s := f.row.Status; s == ledger.Uploading && whole || s == ledger.Preparing && !whole {
		w.wrong("I13", "%s with %d of %d bytes", s, f.row.Durable, f.row.Bytes)
	}
}

// checkAccount recomputes one workspace, and looks for a verification that waits for credits which are there.
func (w *world) checkAccount(a *account) {
	held := ledger.Credits(0)
	for _, f := range w.memory.files {
		if f.row.Workspace != a.id {
			continue
		}
		held += f.row.Held
		if f.row.State() == ledger.WaitingCredits && f.row.Total <= int64(a.balance.Available) {
			w.wrong("funding", "waits for %d credits, %d are available", f.row.Total, a.balance.Available)
		}
	}
	for _, v := range ledger.CheckBalance(a.id, a.balance, a.sums, held) {
		w.wrong(v.Invariant, "%s", v.Detail)
	}
}

// reconcile makes every account anew from the entries alone.
func (w *world) reconcile() {
	sums := map[uuid.UUID]*ledger.Sums{}
	add := func(e transitions.Entry) {
		if sums[e.Workspace] == nil {
			sums[e.Workspace] = &ledger.Sums{}
		}
		sums[e.Workspace].Add(e.Kind, e.Amount)
	}
	for _, e := range w.memory.grants {
		add(e)
	}
	for _, f := range w.memory.files {
		w.checkFile(f)
		for _, e := range f.entries {
			add(e)
		}
	}
	for _, a := range w.memory.accounts {
		got := ledger.Sums{}
		if sums[a.id] != nil {
			got = *sums[a.id]
		}
		if a.balance != got.Balance() {
			w.wrong("I3", "the account is %+v, its entries make %+v", a.balance, got.Balance())
		}
	}
}
