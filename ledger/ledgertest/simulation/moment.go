package simulation

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Moment is what a ledger holds that does one thing at a time: the transitions over the tables in memory, without
// faults. It is never changed.
type Moment struct{ *book }

// Beginning is the moment in which there are some workspaces and nothing else.
func Beginning(workspaces ...uuid.UUID) Moment { return Moment{newBook(workspaces...)} }

// Equal reports whether two moments hold the same, but for what is said in logs.
func (m Moment) Equal(o Moment) bool {
	return m.book == o.book || slices.Equal(m.accounts, o.accounts) && slices.Equal(m.grants, o.grants) &&
		slices.EqualFunc(m.files, o.files, (*file).sameAs)
}

// sameAs reports whether a file is the same, whenever it became so.
func (f *file) sameAs(o *file) bool {
	if f == o {
		return true
	}
	a, b := f.row, o.row
	if (a.Issue == nil) != (b.Issue == nil) || a.Issue != nil && *a.Issue != *b.Issue {
		return false
	}
	a.Issue, b.Issue = nil, nil
	return a == b && f.parked == o.parked && slices.Equal(f.entries, o.entries) &&
		slices.EqualFunc(f.settlements, o.settlements, func(s, t settlement) bool {
			return s.number == t.number && s.epoch == t.epoch && s.digest == t.digest && s.evidence == t.evidence
		}) &&
		slices.EqualFunc(f.chunks, o.chunks, func(c, d chunk) bool { return c.at == d.at && bytes.Equal(c.data, d.data) })
}

// Do makes calls to a ledger in this moment, at a time, and returns the moment after them. Every run of a transaction
// believes that one before it may have been committed.
func (m Moment) Do(at time.Time, do func(b *Book)) Moment {
	t := newMemory(m.book, ledger.Millis(at))
	do(&Book{memory: t, Engine: transitions.New(alone{t})})
	return Moment{t.book}
}

// alone runs one transaction after the other, and commits each that is not refused.
type alone struct{ *memory }

// Update runs do. What changes nothing leaves the book as it was.
func (t alone) Update(_ context.Context, _ transitions.Scope, do func(t transitions.Tables) error) error {
	t.begin(-1, nil)
	t.doubt = true
	err := do(t.memory)
	if err != nil || !t.changes() {
		t.rollback()
	}
	return err
}

// View runs do for reading.
func (t alone) View(_ context.Context, do func(t transitions.Tables) error) error {
	return do(t.memory)
}

// Book is a ledger in a moment: the calls about files, their work and their credits.
type Book struct {
	unasked
	transitions.Engine
	memory *memory
}

// unasked are the other calls.
type unasked struct{ ledger.Book }

// Only has leases take no other verifications than these.
func (b *Book) Only(ids map[uuid.UUID]bool) { b.memory.only = ids }

// Balance reads a workspace's account.
func (b *Book) Balance(_ context.Context, workspace uuid.UUID) (ledger.Balance, error) {
	return b.memory.Account(workspace)
}

// Verification reads a verification of a workspace.
func (b *Book) Verification(_ context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	v, err := b.memory.ReadOf(workspace, id)
	if err != nil {
		return ledger.Verification{}, err
	}
	return v.Verification, nil
}

// UploadState reads the state of an upload.
func (b *Book) UploadState(_ context.Context, id uuid.UUID) (ledger.Upload, error) {
	v, err := b.memory.Read(id)
	if err != nil {
		return ledger.Upload{}, err
	}
	return v.Upload(), nil
}

// History returns the newest verifications of a workspace.
func (b *Book) History(_ context.Context, q ledger.HistoryQuery) (list []ledger.Verification, err error) {
	for _, f := range slices.Backward(b.memory.files) {
		if f.row.Workspace == q.Workspace && len(list) < q.Limit {
			list = append(list, f.row.Verification)
		}
	}
	return list, nil
}

// OpenVerifications returns the verifications that are not over, and whose lease each is.
func (b *Book) OpenVerifications(context.Context, int) (list []ledger.Verification, err error) {
	for _, f := range b.memory.files {
		if v := f.row.Verification; !v.Status.Final() {
			v.LeasedBy = f.row.Node
			list = append(list, v)
		}
	}
	return list, nil
}

// Results calls yield for each settled address in order.
func (b *Book) Results(_ context.Context, workspace, id uuid.UUID, yield func(ledger.Result) error) error {
	if _, err := b.memory.ReadOf(workspace, id); err != nil {
		return err
	}
	var all []ledger.Result
	for _, s := range b.memory.fileByID(id).settlements {
		for i := range s.batch.Len() {
			all = append(all, s.batch.Result(i))
		}
	}
	slices.SortFunc(all, func(a, b ledger.Result) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	for _, r := range all {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}
