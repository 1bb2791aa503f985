package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Life is the result of one seed.
type Life struct {
	Answers, Transactions, Commits, Faults int64
	Verifications                          int
	Violation                              string // "": none
}

// Run lives one life with a number of operations and then lets everything come to its
// end without faults. The same seed gives the same life.
func Run(seed uint64, operations int) Life {
	return newWorld(seed).live(operations)
}

// live runs a number of operations, and the end.
func (w *world) live(operations int) Life {
	for range operations {
		if w.violation != "" {
			break
		}
		w.operation()
	}
	if w.violation == "" {
		w.heal()
	}
	if w.violation == "" {
		w.reconcile()
		w.checkGrants()
	}
	return Life{Answers: w.answers, Transactions: w.db.runs, Commits: w.commits, Faults: w.db.faults,
		Verifications: len(w.memory.files), Violation: w.violation}
}

// newWorld makes the beginning. Each seed has its own mix of faults; some have none of a kind.
func newWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 0))
	var workspaces []uuid.UUID
	for i := range spaces {
		workspaces = append(workspaces, accountAt(i))
	}
	m := newMemory(newBook(workspaces...), 1_700_000_000_000)
	w := &world{random: random, memory: m, epochs: map[uuid.UUID]int64{},
		grants: map[uuid.UUID]ledger.Credits{}, acked: map[uuid.UUID]bool{}}
	some := func(most int) int {
		if random.IntN(3) == 0 {
			return 0
		}
		return random.IntN(most)
	}
	w.db = &database{tables: m, random: random, check: w.checkCommit, between: w.others, passing: w.pass,
		chances: chances{statement: some(300), commit: some(200), lost: some(200), late: some(200), between: some(1000)}}
	w.db.inside = func(_ func(t transitions.Tables) error, run func() (error, bool)) { _, _ = run() }
	w.book = transitions.New(w.db)
	for range nodesCount {
		w.nodes = append(w.nodes, &node{id: w.id()})
	}
	return w
}

// pass lets time pass while a commit is waited for: the clock of another gateway may be behind.
func (w *world) pass() {
	if w.chance(500) {
		w.memory.now += w.random.Int64N(4000) - 500
	}
}

// others run while a transaction waits to be run again.
func (w *world) others() {
	if w.depth == depthMax {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	for range 1 + w.random.IntN(3) {
		w.operation()
	}
}

// operation is one action of a customer, a node or an operator.
func (w *world) operation() {
	n := w.nodes[w.random.IntN(nodesCount)]
	switch at := w.random.IntN(100); {
	case at < 3:
		w.newUpload()
	case at < 5:
		if u := w.anUpload(); u != nil {
			u.create(w)
		}
	case at < 20:
		w.fresh().send(w)
	case at < 21:
		w.fresh().cancel(w)
	case at < 24:
		w.grant(ledger.Credits(1 + w.random.IntN(2*totalMax)))
	case at < 33:
		n.lease(w)
	case at < 40:
		n.renew(w)
	case at < 41:
		n.jobs = nil // a crash: it forgets all that it believes
	case at < 46:
		w.sweep(w.random.IntN(filesMax))
	case at < 54:
		w.deliver()
	case at < 62:
		w.tick()
	default:
		n.work(w)
	}
}

// heal ends the faults: everything that was started must come to its end.
func (w *world) heal() {
	w.db.chances = chances{}
	for i := range spaces {
		id := w.id()
		w.grants[id] = filesMax * totalMax
		if _, err := w.book.Grant(context.Background(), id, accountAt(i), w.grants[id], ""); err != nil {
			w.wrong("liveness", "grant: %v", err)
		}
	}
	for len(w.late) > 0 && w.violation == "" {
		w.deliver()
	}
	for round := 0; w.violation == "" && !w.over(); round++ {
		if round == 1000*filesMax {
			w.wrong("liveness", "not over after %d rounds: %s", round, w.open())
			return
		}
		w.memory.now += leaseTTL.Milliseconds() / 4
		n := w.nodes[round%nodesCount]
		n.renew(w)
		n.lease(w)
		for range 2 * len(n.jobs) {
			n.work(w)
		}
		w.sweep(round)
	}
	for _, a := range w.memory.accounts {
		if w.violation == "" && a.balance.Held != 0 {
			w.wrong("I5", "workspace %s holds %d when all is over", a.id, a.balance.Held)
		}
	}
}

// over reports whether every verification is final.
func (w *world) over() bool {
	for _, f := range w.memory.files {
		if !f.row.Status.Final() {
			return false
		}
	}
	return true
}

// open names the unfinished verifications.
func (w *world) open() error {
	var list []error
	for _, f := range w.memory.files {
		if !f.row.Status.Final() {
			list = append(list, fmt.Errorf("%s at epoch %d", f.row.State(), f.row.Epoch))
		}
	}
	return errors.Join(list...)
}

// The ends of a transaction, besides its own refusals. The caller can tell only that nothing was changed, or that it
// does not know.
var (
	errAgain   = errors.New("simulation: serialization failure") // surely rolled back
	errUnknown = errors.New("simulation: the answer to the commit was lost")
	errAborted = errors.New("simulation: the transaction is aborted already")
)

// fate is the outcome of a commit.
type fate int

const (
	committed fate = iota
	again          // surely rolled back
	never          // rolled back, but the caller cannot tell
	lost           // committed, but the caller cannot tell
	// late is a commit that the caller cannot tell of and that is decided, either way, only when a later
	// run has begun. Until then all runs see nothing of it, and none can commit a change: its rows are locked.
	late
)

// attemptsMax bounds the runs of one transaction, as a database does.
const attemptsMax = 5

// chances are how often, of 1,000 transactions, each fault happens.
type chances struct {
	statement int // one statement fails, and the transaction with it
	commit    int // the commit fails and nothing was changed
	lost      int // the commit was executed, its answer is lost
	late      int // the commit is decided while a later run is at work
	between   int // of 1,000 re-runs: others get their turn before it
}

// database runs transactions on the tables, one at a time, with faults.
type database struct {
	tables  *memory
	random  *rand.Rand
	chances chances
	check   func() // called after each commit
	between func() // lets others run before a transaction is run again
	fates   []fate // of the next commits, before any is drawn
	doubt   bool   // of the run at hand: one before it may have been committed
	passing func() // lets time pass while one is waited for
	// inside calls run, which runs do on the tables and tells whether it refused and whether it is committed.
	inside func(do func(t transitions.Tables) error, run func() (refusal error, commit bool))
	runs   int64 // transactions begun
	faults int64 // of them with a fault
}

var _ transitions.Database = (*database)(nil)

func (d *database) chance(of int) bool { return of > 0 && d.random.IntN(1000) < of }

// Update runs do until it is committed or refused, or has failed too often.
func (d *database) Update(_ context.Context, _ transitions.Scope, do func(t transitions.Tables) error) error {
	unknown := false
	for attempt := 1; ; attempt++ {
		d.doubt = unknown
		began := d.tables.late != nil
		err := d.attempt(do)
		again := errors.Is(err, errAgain) || errors.Is(err, errUnknown)
		unknown = unknown || errors.Is(err, errUnknown)
		over := !again || attempt == attemptsMax
		if d.tables.late != nil && (over || began && d.random.IntN(2) == 0) {
			d.decide()
		}
		switch {
		case !over && d.tables.late != nil: // its rows are locked: others would wait too
			d.passing()
		case !over && d.chance(d.chances.between):
			d.between()
		case !again:
			return err
		case over && unknown:
			return errUnknown
		case over:
			return errAgain
		}
	}
}

// decide ends a late commit: mostly it is executed.
func (d *database) decide() {
	if d.random.IntN(3) > 0 {
		d.tables.was, d.tables.book = d.tables.book, d.tables.late
		d.check()
	}
	d.tables.late = nil
}

// attempt is one run of a transaction.
func (d *database) attempt(do func(t transitions.Tables) error) (err error) {
	d.runs++
	doubt := d.doubt
	at := -1
	if d.tables.late != nil || d.chance(d.chances.statement) {
		at = d.random.IntN(12) // a transaction has a dozen statements at most, mostly
	}
	became := again
	err = errAborted // if there is no transaction at all
	d.inside(do, func() (refusal error, commit bool) {
		d.tables.begin(at, errAgain)
		d.tables.doubt = doubt
		err = do(d.tables)
		if err == nil && d.tables.aborted {
			err = errAborted // a failed statement was overlooked: the database commits nothing
		}
		if err != nil {
			return err, false
		}
		switch {
		case d.tables.late == nil:
			became = d.fate()
		case d.tables.changes():
			became = again
		default:
			became = committed // it has only read
		}
		err = became.answer()
		return nil, became == committed || became == lost
	})
	switch {
	case err == nil || became == lost:
		d.check()
	case became == late:
		d.tables.late, d.tables.book = d.tables.book, d.tables.was
	default:
		d.tables.rollback()
	}
	if errors.Is(err, errAgain) || errors.Is(err, errUnknown) {
		d.faults++
	}
	return err
}

// fate draws the outcome of a commit.
func (d *database) fate() (f fate) {
	switch {
	case len(d.fates) > 0:
		f, d.fates = d.fates[0], d.fates[1:]
	case d.chance(d.chances.commit) && d.random.IntN(2) == 0:
		f = again
	case d.chance(d.chances.commit):
		f = never
	case d.chance(d.chances.lost):
		f = lost
	case d.chance(d.chances.late):
		f = late
	}
	return f
}

// answer is what the caller learns.
func (f fate) answer() error {
	switch f {
	case committed:
		return nil
	case again:
		return errAgain
	}
	return errUnknown
}

// View runs do once; reads do not fail here.
func (d *database) View(_ context.Context, do func(t transitions.Tables) error) error {
	d.tables.begin(-1, nil)
	return do(d.tables)
}

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

// wrong notes a broken invariant; the life ends with the first.
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
