package ledgertest

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// model is the ledger as a child would keep it: one workspace, a list of files in
// memory, every rule written out again and no word shared with the real one.
// Whoever is asked for a forbidden thing answers false and changes nothing.
type model struct {
	granted, available, held, spent int64
	files                           []*modelFile // in the order in which they are served
}

// modelFile is one verification.
type modelFile struct {
	id, identity uuid.UUID
	created      time.Time
	bytes        int64
	expired      bool // its upload
	status       string
	issue        string
	why          string // what is told of its wait for receivers
	total        int64
	held         int64
	unchecked    int64
	outcomes     map[int64]smtp.Outcome // by ordinal
	node         uuid.UUID              // whose lease it is; the zero value: nobody's
	expires      bool                   // the lease is past its time
	asleep       bool                   // no node takes it
	crashes      int
	epoch        int64
	batches      []modelBatch
	paid         bool // credits were held for it
	stored       bool // its bytes count
	erased       bool // its results
}

// modelBatch is one settlement.
type modelBatch struct {
	epoch   int64
	results map[int64]smtp.Outcome
}

func (m *model) add(f *modelFile) {
	m.files = append(m.files, f)
	slices.SortFunc(m.files, func(a, b *modelFile) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.id.String(), b.id.String())
	})
}

func (f *modelFile) final() bool {
	return slices.Contains([]string{"completed", "completed_with_errors", "cancelled", "failed"}, f.status)
}

// working says whether its credits are held and addresses are asked.
func (f *modelFile) working() bool {
	return f.status == "verifying" || f.status == "cancelling" || f.status == "waiting" && f.issue != "credits_required"
}

func (f *modelFile) left() int64 {
	if f.total < 0 {
		return 0
	}
	return f.total - int64(len(f.outcomes)) - f.unchecked
}

func (f *modelFile) mine(l ledger.Lease) bool { return f.node == l.Node && f.epoch == l.Epoch }

// end makes f final; nobody has it any more, and nobody its bytes unless they were read.
func (f *modelFile) end(status, issue string) {
	f.stored = f.total >= 0
	f.status, f.issue, f.why, f.node, f.expires = status, issue, "", uuid.Nil, false
}

func (m *model) grant(n int64) {
	m.granted += n
	m.available += n
	m.fund()
}

// fund serves who waits for credits.
func (m *model) fund() {
	for _, f := range m.files {
		if f.status == "waiting" && f.issue == "credits_required" && f.total <= m.available {
			m.available -= f.total
			m.held += f.total
			f.held, f.status, f.issue, f.paid = f.total, "verifying", "", true
		}
	}
}

func (m *model) lease(node uuid.UUID, limit int, expires bool) []uuid.UUID {
	var ids []uuid.UUID
	for _, f := range m.files {
		if len(ids) < limit && (f.status == "preparing" || f.working()) && (f.node == uuid.Nil || f.expires) && !f.asleep {
			f.node, f.expires = node, expires
			f.epoch++
			ids = append(ids, f.id)
		}
	}
	return ids
}

func (m *model) renew(node uuid.UUID) (ids []uuid.UUID) {
	for _, f := range m.files {
		if f.node == node && !f.expires {
			ids = append(ids, f.id)
		}
	}
	return ids
}

func (m *model) prepare(f *modelFile, l ledger.Lease, total int64) bool {
	if !f.mine(l) || f.status != "preparing" {
		return false
	}
	f.total = total
	if total > m.available {
		f.status, f.issue, f.node, f.expires = "waiting", "credits_required", uuid.Nil, false
		return true
	}
	m.available -= total
	m.held += total
	f.held, f.status, f.paid = total, "verifying", true
	return true
}

func (m *model) settle(f *modelFile, s ledger.Settlement) bool {
	batch := modelBatch{epoch: s.Lease.Epoch, results: map[int64]smtp.Outcome{}}
	for _, r := range s.Results {
		batch.results[r.Ordinal] = r.Outcome
	}
	if n := int(s.Number); n >= 1 && n <= len(f.batches) && f.batches[n-1].same(batch) {
		return true
	}
	if !f.mine(s.Lease) || !f.working() || int(s.Number) != len(f.batches)+1 {
		return false
	}
	for ordinal := range batch.results {
		if _, twice := f.outcomes[ordinal]; twice {
			return false
		}
	}
	f.batches = append(f.batches, batch)
	free := int64(0)
	for ordinal, o := range batch.results {
		f.outcomes[ordinal] = o
		f.held--
		m.held--
		if o == smtp.Unknown {
			m.available++
			free++
		} else {
			m.spent++
		}
	}
	if f.left() == 0 {
		switch {
		case f.status == "cancelling":
			f.end("cancelled", "")
		case f.has(smtp.Error):
			f.end("completed_with_errors", "")
		default:
			f.end("completed", "")
		}
	}
	if free > 0 {
		m.fund()
	}
	return true
}

func (b modelBatch) same(o modelBatch) bool {
	if b.epoch != o.epoch || len(b.results) != len(o.results) {
		return false
	}
	for ordinal, outcome := range b.results {
		if o.results[ordinal] != outcome {
			return false
		}
	}
	return true
}

func (f *modelFile) has(o smtp.Outcome) bool {
	for _, outcome := range f.outcomes {
		if outcome == o {
			return true
		}
	}
	return false
}

func (m *model) cancel(f *modelFile) {
	switch {
	case f.final() || f.status == "cancelling":
	case f.working() && f.node != uuid.Nil && !f.expires:
		f.status, f.issue, f.why, f.asleep = "cancelling", "", "", false
	default:
		m.refund(f)
	}
}

// refund gives back what was not checked and makes f cancelled.
func (m *model) refund(f *modelFile) {
	f.unchecked = f.left()
	back := f.held
	m.held -= back
	m.available += back
	f.held = 0
	f.end("cancelled", "")
	if back > 0 {
		m.fund()
	}
}

func (m *model) finish(f *modelFile, l ledger.Lease) bool {
	if f.status == "cancelled" && f.epoch == l.Epoch {
		return true
	}
	if !f.mine(l) || f.status != "cancelling" {
		return false
	}
	m.refund(f)
	return true
}

// wait marks f as waiting for receivers, or as verifying again.
func (m *model) wait(f *modelFile, l ledger.Lease, on bool, why string) bool {
	if !f.mine(l) || !f.working() {
		return false
	}
	if f.status == "cancelling" {
		return true
	}
	if !on && why != "" {
		return false
	}
	f.status = "verifying"
	if on {
		f.status = "waiting"
	}
	f.tell(why)
	return true
}

// tell gives f the issue of a wait for receivers, or takes it.
func (f *modelFile) tell(why string) {
	f.issue, f.why = "", why
	if why != "" {
		f.issue = "receivers_wait"
	}
}

// park gives f back for a long time, or until now.
func (m *model) park(f *modelFile, l ledger.Lease, long bool, why string) bool {
	if !f.mine(l) || !f.working() {
		return false
	}
	if f.status != "cancelling" {
		f.status, f.node, f.expires, f.asleep = "waiting", uuid.Nil, false, long
		f.tell(why)
	}
	return true
}

// crashed gives f back for a long time, or, the second time, ends it.
func (m *model) crashed(f *modelFile, l ledger.Lease) bool {
	if f.node == uuid.Nil && f.epoch == l.Epoch && f.crashes > 0 {
		return true
	}
	if !f.mine(l) {
		return false
	}
	f.crashes++
	if f.crashes < 2 || f.status == "cancelling" {
		f.node, f.expires, f.asleep = uuid.Nil, false, true
		return true
	}
	m.refund(f)
	f.end("failed", "internal_error")
	return true
}

func (m *model) refuse(f *modelFile, l ledger.Lease) bool {
	if f.status == "failed" && f.issue == "csv_malformed" && f.epoch == l.Epoch {
		return true
	}
	if !f.mine(l) || f.status != "preparing" {
		return false
	}
	f.end("failed", "csv_malformed")
	return true
}

func (m *model) release(f *modelFile, l ledger.Lease) bool {
	if f.epoch != l.Epoch || f.node != uuid.Nil && f.node != l.Node {
		return false
	}
	f.node, f.expires = uuid.Nil, false
	return true
}

// allows says whether a new file keeps to what may be stored and unpaid.
func (m *model) allows(bytes, stored, unpaid int64) bool {
	had, free := m.uses()
	return had+bytes <= stored && free < unpaid
}

// uses counts what is stored and what was never paid.
func (m *model) uses() (stored, unpaid int64) {
	for _, f := range m.files {
		if f.stored {
			stored += f.bytes
		}
		if !f.paid {
			unpaid++
		}
	}
	return stored, unpaid
}

// forget deletes what is final and was never paid, and erases the results of the rest.
func (m *model) forget() (n int) {
	m.files = slices.DeleteFunc(m.files, func(f *modelFile) bool {
		if f.final() && !f.erased {
			f.erased = true
			n++
		}
		return f.final() && !f.paid
	})
	return n
}

// sweep ends uploads past their time and, when funding is over too, what waits for credits.
func (m *model) sweep(funding bool) int {
	n := 0
	for _, f := range m.files {
		switch {
		case f.status == "uploading" && f.expired:
			f.end("failed", "upload_expired")
			n++
		case funding && f.status == "waiting" && f.issue == "credits_required":
			f.unchecked = f.left()
			f.end("failed", "funding_expired")
			n++
		}
	}
	return n
}
