package simulation

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

var _ transitions.Tables = (*memory)(nil)

// errKey is the error for a second row with the same key.
var errKey = errors.New("simulation: duplicate key")

// errReadBefore is the error for a change of an account that the transaction has read before. A database would allow
// that, but rerun the transaction whenever a concurrent one does the same.
var errReadBefore = errors.New("simulation: the account was read before it was changed")

// accountTables are the accounts and the grants.
type accountTables struct {
	*transaction
	unowned []uuid.UUID // accounts that the transaction at hand read before it changed anything of them
}

// account is one workspace.
type account struct {
	id      uuid.UUID
	balance ledger.Balance
	sums    ledger.Sums // of its entries
}

// settlement is one row of that table.
type settlement struct {
	number, epoch int64
	counts        ledger.Counts
	digest        [32]byte
	batch         ledger.Batch
	evidence      string
}

// chunk is one row of the uploads.
type chunk struct {
	at   int64
	data []byte
}

// file is one verification with everything that hangs on it.
type file struct {
	row         transitions.Row
	parked      string // the state of its work
	entries     []transitions.Entry
	settlements []settlement
	chunks      []chunk
	made        int64 // number of the book in which it became as it is
}

// book is what the tables hold. A transaction changes a book of its own, which shares with the one before what it does
// not change: so that one is there still, and a book is undone by forgetting it.
type book struct {
	number   int64
	ran      int64   // when the transaction began; a late commit is checked after that
	files    []*file // by time of creation and id
	accounts []account
	grants   []transitions.Entry // by id
	cluster  *cluster
}

// nextBook is a book that may be changed. Whatever is appended to it goes to a place of its own.
func (b *book) nextBook() *book {
	return &book{number: b.number + 1, files: slices.Clone(b.files), accounts: slices.Clone(b.accounts),
		grants: slices.Clip(b.grants), cluster: b.cluster}
}

// fileByID returns a verification; nil: there is none.
func (b *book) fileByID(id uuid.UUID) *file {
	at := slices.IndexFunc(b.files, func(f *file) bool { return f.row.ID == id })
	if at < 0 {
		return nil
	}
	return b.files[at]
}

// fileByIdentity returns the verification of a workspace with an idempotency key; nil: there is none.
func (b *book) fileByIdentity(workspace, key uuid.UUID) *file {
	at := slices.IndexFunc(b.files, func(f *file) bool { return f.row.Workspace == workspace && f.row.Identity == key })
	if at < 0 {
		return nil
	}
	return b.files[at]
}

// accountByID returns a workspace; nil: there is none.
func (b *book) accountByID(id uuid.UUID) *account {
	at := slices.IndexFunc(b.accounts, func(a account) bool { return a.id == id })
	if at < 0 {
		return nil
	}
	return &b.accounts[at]
}

// grantByID returns the entry of a grant; nil: there is none.
func (b *book) grantByID(id uuid.UUID) *transitions.Entry {
	at, found := b.grantAt(id)
	if !found {
		return nil
	}
	return &b.grants[at]
}

func (b *book) grantAt(id uuid.UUID) (int, bool) {
	return slices.BinarySearchFunc(b.grants, id, func(e transitions.Entry, id uuid.UUID) int {
		return bytes.Compare(e.Subject[:], id[:])
	})
}

// transaction is what is common to all tables: their book and time, and how the transaction at hand is to end.
type transaction struct {
	transitions.Tables // nil: the statements about corrections, which no life makes

	*book
	was       *book // before the transaction
	late      *book // of a transaction that is not decided, for which all others are refused; nil: there is none
	now       int64 // milliseconds
	failAfter int   // how many statements; negative: never
	failWith  error // what that statement answers
	doubt     bool  // a run before may have been committed
	aborted   bool  // a statement failed: nothing more can be done but to roll back
}

// memory implements transitions.Tables in memory, for one transaction at a time.
type memory struct {
	*transaction
	clusterTables
	accountTables
	full bool               // the disk
	only map[uuid.UUID]bool // what leases may take; nil: all
}

// newBook is a book with some workspaces and nothing else.
func newBook(workspaces ...uuid.UUID) *book {
	b := &book{cluster: &cluster{nodes: map[uuid.UUID]ledger.NodeRow{}, facts: map[string]ledger.Fact{},
		overrides: map[uuid.UUID]overridden{}}}
	for _, id := range workspaces {
		b.accounts = append(b.accounts, account{id: id})
	}
	return b
}

// newMemory is the tables with a book, at a time in milliseconds.
func newMemory(b *book, now int64) *memory {
	t := &transaction{book: b, was: b, now: now, failAfter: -1}
	return &memory{transaction: t, accountTables: accountTables{transaction: t}, clusterTables: clusterTables{t}}
}

// begin starts a transaction whose statement number after fails; negative: none does.
func (m *memory) begin(after int, fail error) {
	m.was, m.book = m.book, m.book.nextBook()
	m.failAfter, m.failWith, m.aborted = after, fail, false
	m.ran, m.unowned = m.now, m.unowned[:0] // of the new book
}

// reads notes that a statement reads an account. The check of a foreign key to the account counts as a read.
func (m *accountTables) reads(workspace uuid.UUID) {
	if was, is := m.was.accountByID(workspace), m.accountByID(workspace); was == nil || *was == *is {
		m.unowned = append(m.unowned, workspace)
	}
}

// byAge is the order in which verifications are served.
func byAge(a, b *file) int {
	return cmp.Or(a.row.Created.Compare(b.row.Created), bytes.Compare(a.row.ID[:], b.row.ID[:]))
}

// rollback makes everything as it was.
func (m *memory) rollback() { m.book = m.was }

// changedFiles lists the files that the transaction changed or made, each as it was (nil: it was not there) and as it
// is.
func (m *memory) changedFiles() (list [][2]*file) {
	for _, is := range m.files {
		if was := m.was.fileByID(is.row.ID); was != is {
			list = append(list, [2]*file{was, is})
		}
	}
	return list
}

// changes reports whether the transaction changed anything.
func (m *memory) changes() bool {
	return !slices.Equal(m.was.files, m.files) || !slices.Equal(m.was.accounts, m.accounts) ||
		len(m.was.grants) != len(m.grants) || m.was.cluster != m.cluster
}

// statement is the start of each one: it fails where the plan says so.
func (m *transaction) statement() error {
	if m.aborted {
		return errAborted
	}
	if m.failAfter == 0 {
		return m.abort(m.failWith)
	}
	m.failAfter--
	return nil
}

// change returns a file to write to.
func (m *memory) change(id uuid.UUID) *file {
	at := slices.IndexFunc(m.files, func(f *file) bool { return f.row.ID == id })
	if at < 0 {
		return nil
	}
	if f := m.files[at]; f.made != m.number {
		own := *f
		own.made, own.entries, own.settlements = m.number, slices.Clip(f.entries), slices.Clip(f.settlements)
		own.chunks = slices.Clip(f.chunks)
		m.files[at] = &own
	}
	return m.files[at]
}

// write returns the row of a file for a change, if it holds; 0 when it does not.
func (m *memory) write(id uuid.UUID, holds func(r *transitions.Row) bool, change func(r *transitions.Row)) (
	int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	f := m.fileByID(id)
	if f == nil || !holds(&f.row) {
		return 0, nil
	}
	change(&m.change(id).row)
	return 1, nil
}

// Doubt reports whether a run before this one may have been committed.
func (m *transaction) Doubt() bool { return m.doubt }

// Account reads a workspace's balance.
func (m *accountTables) Account(workspace uuid.UUID) (ledger.Balance, error) {
	if err := m.statement(); err != nil {
		return ledger.Balance{}, err
	}
	m.reads(workspace)
	a := m.accountByID(workspace)
	if a == nil {
		return ledger.Balance{}, ledger.ErrNoSuchWorkspace
	}
	return a.balance, nil
}

// Credit adds to an account, within the constraint of its table.
func (m *accountTables) Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	a := m.accountByID(workspace)
	if a == nil || a.balance.Available < available {
		return 0, nil
	}
	if slices.Contains(m.unowned, workspace) {
		return 0, m.abort(errReadBefore)
	}
	b := &a.balance
	b.Granted += by.Granted
	b.Available += by.Available
	b.Held += by.Held
	b.Spent += by.Spent
	return 1, nil
}

// Enter writes entries, each key once.
func (m *memory) Enter(entries ...transitions.Entry) error {
	if err := m.statement(); err != nil {
		return err
	}
	for _, e := range entries {
		m.reads(e.Workspace)
		if f := m.change(e.Subject); f != nil {
			for _, old := range f.entries {
				if old.Number == e.Number && old.Kind == e.Kind {
					return m.abort(errKey)
				}
			}
			f.entries = append(f.entries, e)
		} else {
			at, found := m.grantAt(e.Subject)
			if found {
				return m.abort(errKey)
			}
			m.grants = slices.Insert(m.grants, at, e)
		}
		m.accountByID(e.Workspace).sums.Add(e.Kind, e.Amount)
	}
	return nil
}

// Granted reads the entry of a grant.
func (m *accountTables) Granted(id uuid.UUID) (*transitions.Entry, error) {
	if err := m.statement(); err != nil || m.grantByID(id) == nil {
		return nil, err
	}
	e := *m.grantByID(id)
	e.Reason = "" // which nobody reads
	return &e, nil
}

// Log keeps the line.
func (m *clusterTables) Log(l ledger.LogLine) error {
	if err := m.statement(); err != nil {
		return err
	}
	m.alter().log = append(m.cluster.log, l)
	return nil
}

// read copies a row out.
func (m *memory) read(f *file) (*transitions.Row, error) {
	if err := m.statement(); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, ledger.ErrNoSuchVerification
	}
	row := f.row
	row.Now = m.now
	return &row, nil
}

// Read reads one verification by its id.
func (m *memory) Read(id uuid.UUID) (*transitions.Row, error) { return m.read(m.fileByID(id)) }

// Await reads one, unless a transaction that is not decided has changed it: then the wait is too long.
func (m *memory) Await(id uuid.UUID) (*transitions.Row, error) {
	if m.late != nil && m.late.fileByID(id) != m.fileByID(id) {
		return nil, m.abort(errAgain)
	}
	return m.Read(id)
}

// abort is the end of a transaction by its statement.
func (m *transaction) abort(with error) error {
	m.aborted = true
	return with
}

// ReadOf reads one of a workspace.
func (m *memory) ReadOf(workspace, id uuid.UUID) (*transitions.Row, error) {
	if f := m.fileByID(id); f != nil && f.row.Workspace == workspace {
		return m.read(f)
	}
	return m.read(nil)
}

// ReadIdentity reads the one with an idempotency key.
func (m *memory) ReadIdentity(workspace, key uuid.UUID) (*transitions.Row, error) {
	return m.read(m.fileByIdentity(workspace, key))
}

// Open counts the verifications of a workspace that are not final.
func (m *memory) Open(workspace uuid.UUID) (n int64, err error) {
	for _, f := range m.files {
		if f.row.Workspace == workspace && f.row.Completed.IsZero() {
			n++
		}
	}
	return n, m.statement()
}

// unfunded reports whether a row waits for credits, in the words of the index.
func unfunded(r *transitions.Row, workspace uuid.UUID) bool {
	return r.Workspace == workspace && r.Issue != nil && r.Issue.Code == ledger.CreditsRequired
}

// Unfunded returns the oldest verification that waits for credits and is covered.
func (m *memory) Unfunded(workspace uuid.UUID) (*transitions.Row, error) {
	m.reads(workspace)
	available := m.accountByID(workspace).balance.Available
	for _, f := range m.files {
		if unfunded(&f.row, workspace) && f.row.Total <= int64(available) {
			return m.read(f)
		}
	}
	return nil, m.statement()
}

// Short lists how much each verification of a workspace waits for.
func (m *memory) Short(workspace uuid.UUID) (map[uuid.UUID]int64, error) {
	needed := map[uuid.UUID]int64{}
	for _, f := range m.files {
		if unfunded(&f.row, workspace) {
			needed[f.row.ID] = f.row.Total
		}
	}
	return needed, m.statement()
}

// Tell renews the message of a verification that waits for credits.
func (m *memory) Tell(id uuid.UUID, message string) error {
	_, err := m.write(id, func(*transitions.Row) bool { return true }, func(r *transitions.Row) {
		issue := *r.Issue
		issue.Message = message
		r.Issue = &issue
	})
	return err
}

// Insert makes a verification that is uploading.
func (m *memory) Insert(n ledger.NewVerification, single string) error {
	if err := m.statement(); err != nil {
		return err
	}
	m.reads(n.Workspace)
	if m.fileByID(n.ID) != nil || m.fileByIdentity(n.Workspace, n.Identity) != nil {
		return m.abort(errKey)
	}
	kind := ledger.Bulk
	if single != "" {
		kind = ledger.Single
	}
	f := &file{made: m.number, row: transitions.Row{Verification: ledger.Verification{
		ID: n.ID, Workspace: n.Workspace, Identity: n.Identity, Kind: kind, Filename: n.Filename, SingleEmail: single,
		Bytes: n.Bytes, UploadExpires: ledger.Clock(m.now + n.UploadExpiry.Milliseconds()),
		Status: ledger.Uploading, Created: ledger.Clock(m.now), Total: -1, MadeBy: n.MadeBy}, WakeAt: m.now}}
	at, _ := slices.BinarySearchFunc(m.files, f, byAge)
	m.files = slices.Insert(m.files, at, f)
	return nil
}

// as reports whether a row is still as it was read.
func as(before *transitions.Row) func(r *transitions.Row) bool {
	return func(r *transitions.Row) bool {
		return r.Status == before.Status && r.Epoch == before.Epoch && r.Settlements == before.Settlements
	}
}

// Move writes where a verification is.
func (m *memory) Move(s transitions.Step) (int64, error) {
	return m.write(s.After.ID, as(s.Before), func(r *transitions.Row) {
		v := s.After
		r.Status, r.Issue, r.NextTry, r.Held = v.Status, v.Issue, v.NextTry, v.Held
		r.Expected = v.Expected
		r.Counts.Cancelled, r.Completed, r.WaitingSince = v.Counts.Cancelled, v.Completed, v.WaitingSince
		r.Node, r.LeaseExpires, r.WakeAt, r.Crashes = v.Node, v.LeaseExpires, v.WakeAt, v.Crashes
		r.Paid, r.UploadDeleted = v.Paid, r.UploadDeleted || v.UploadDeleted
	})
}

// Measure writes what intake found.
func (m *memory) Measure(s transitions.Step) (int64, error) {
	return m.write(s.After.ID, as(s.Before), func(r *transitions.Row) {
		r.Rows, r.Duplicates, r.Total = s.After.Rows, s.After.Duplicates, s.After.Total
	})
}

// Fence makes a newer writer of an upload.
func (m *memory) Fence(id uuid.UUID, from, to int64) (int64, error) {
	return m.write(id, func(r *transitions.Row) bool { return r.Writer == from },
		func(r *transitions.Row) { r.Writer = to })
}

// Chunk reads the stored bytes that begin at offset.
func (m *memory) Chunk(id uuid.UUID, offset int64) ([]byte, error) {
	if err := m.statement(); err != nil {
		return nil, err
	}
	for _, c := range m.fileByID(id).chunks {
		if c.at == offset {
			return c.data, nil
		}
	}
	return nil, nil
}

// Append stores a chunk.
func (m *memory) Append(id uuid.UUID, offset int64, data []byte) error {
	if err := m.statement(); err != nil {
		return err
	}
	f := m.change(id)
	if slices.ContainsFunc(f.chunks, func(c chunk) bool { return c.at == offset }) {
		return m.abort(errKey)
	}
	f.chunks = append(f.chunks, chunk{at: offset, data: bytes.Clone(data)})
	return nil
}

// Lengthen counts stored bytes.
func (m *memory) Lengthen(id uuid.UUID, writer, from, to int64) (int64, error) {
	return m.write(id, func(r *transitions.Row) bool { return r.Writer == writer && r.Durable == from },
		func(r *transitions.Row) { r.Durable = to })
}

// Free lists verifications that can be worked on now and that nobody has.
func (m *memory) Free(limit int, except []uuid.UUID) (free []*transitions.Row, err error) {
	for _, f := range m.files {
		r := f.row
		r.Now = m.now
		if r.State().Runnable() && !r.Leased() && r.WakeAt <= m.now && !slices.Contains(except, r.Workspace) &&
			(m.only == nil || m.only[r.ID]) {
			free = append(free, &r)
		}
	}
	slices.SortFunc(free, func(a, b *transitions.Row) int {
		return cmp.Or(cmp.Compare(a.WakeAt, b.WakeAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return free[:min(limit, len(free))], m.statement()
}

// KeepParked writes the state of a verification's work.
func (m *memory) KeepParked(id uuid.UUID, state []byte) error {
	if err := m.statement(); err != nil {
		return err
	}
	m.change(id).parked = string(state)
	return nil
}

// ForgetParked deletes it.
func (m *memory) ForgetParked(id uuid.UUID) error { return m.KeepParked(id, nil) }

// Take returns a verification to a node at the next epoch.
func (m *memory) Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error) {
	return m.write(id, func(r *transitions.Row) bool { return r.Epoch == epoch }, func(r *transitions.Row) {
		r.Node, r.LeaseExpires, r.Epoch = node, m.now+ttl.Milliseconds(), epoch+1
	})
}

// Renew prolongs all leases of a node that have not expired and names them.
func (m *memory) Renew(node uuid.UUID, ttl time.Duration) (leases []ledger.Lease, err error) {
	if err := m.statement(); err != nil {
		return nil, err
	}
	for _, f := range m.files {
		if f.row.Node == node && f.row.LeaseExpires > m.now {
			m.change(f.row.ID).row.LeaseExpires = m.now + ttl.Milliseconds()
			leases = append(leases, ledger.Lease{Verification: f.row.ID, Node: node, Epoch: f.row.Epoch})
		}
	}
	return leases, nil
}

// Drop ends a lease.
func (m *memory) Drop(id uuid.UUID, epoch int64) (int64, error) {
	return m.write(id, func(r *transitions.Row) bool { return r.Epoch == epoch },
		func(r *transitions.Row) { r.Node, r.LeaseExpires = uuid.Nil, 0 })
}

// Settle appends the results of one settlement.
func (m *memory) Settle(n ledger.Settlement, p ledger.Payload) error {
	if err := m.statement(); err != nil {
		return err
	}
	f := m.change(n.Lease.Verification)
	if slices.ContainsFunc(f.settlements, func(s settlement) bool { return s.number == n.Number }) {
		return m.abort(errKey)
	}
	s := settlement{number: n.Number, epoch: n.Lease.Epoch, counts: p.Counts, digest: p.Digest}
	if err := s.batch.Decode(p.Bytes); err != nil {
		return err
	}
	f.settlements = append(f.settlements, s)
	return nil
}

// KeepEvidence appends the evidence of a settlement that stands.
func (m *memory) KeepEvidence(n ledger.Settlement) error {
	if err := m.statement(); err != nil {
		return err
	}
	f := m.change(n.Lease.Verification)
	for i := range f.settlements {
		// A settlement is appended before its evidence, in the same transaction: what
		// is rolled back takes this with it.
		if s := &f.settlements[i]; s.number == n.Number && s.evidence == "" {
			s.evidence = string(n.Evidence)
			return nil
		}
	}
	return m.abort(errKey)
}

// Count writes what a settlement changes in its verification.
func (m *memory) Count(s transitions.Step) (int64, error) {
	return m.write(s.After.ID, as(s.Before), func(r *transitions.Row) {
		cancelled := r.Counts.Cancelled
		r.Settlements, r.Held, r.Counts = s.After.Settlements, s.After.Held, s.After.Counts
		r.SingleOutcome, r.Counts.Cancelled, r.Expected = s.After.SingleOutcome, cancelled, s.After.Expected
		r.Issue = s.After.Issue
	})
}

// Settled reads epoch and digest of a settlement.
func (m *memory) Settled(id uuid.UUID, number int64) (int64, []byte, error) {
	if err := m.statement(); err != nil {
		return 0, nil, err
	}
	f := m.fileByID(id)
	if f == nil {
		return 0, nil, ledger.ErrStaleEpoch
	}
	for i := range f.settlements {
		if s := &f.settlements[i]; s.number == number {
			return s.epoch, s.digest[:], nil
		}
	}
	return 0, nil, ledger.ErrStaleEpoch
}

// Ordinals reads those of a settlement.
func (m *memory) Ordinals(id uuid.UUID, number int64) ([]int64, error) {
	if err := m.statement(); err != nil {
		return nil, err
	}
	f := m.fileByID(id)
	if f == nil || number < 1 || number > int64(len(f.settlements)) {
		return nil, ledger.ErrStaleEpoch
	}
	return f.settlements[number-1].batch.Ordinals, nil
}
