package simulation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

const (
	filesMax   = 60 // verifications of one life
	spaces     = 3  // workspaces
	nodesCount = 3
	totalMax   = 12 // addresses of a verification
	leaseTTL   = 20 * time.Second
	uploadLife = time.Minute
	fundLife   = 2 * time.Minute
	storedMax  = 250 // bytes of a workspace, and files that were never paid for: some are refused
	unpaidMax  = 14
	depthMax   = 2 // depth to which others run inside a transaction that is run again
)

// upload is a customer's file and what was answered about it.
type upload struct {
	workspace, identity uuid.UUID
	bytes               []byte
	single              string // the address of a check; "": it is a file
	rows, total         int64
	id                  uuid.UUID // once a create was answered
	creations           int       // answers that said "created"
	durable             int64     // the most that was answered as stored
}

// world is one life.
type world struct {
	random  *rand.Rand
	memory  *memory
	db      *database
	book    transitions.Engine
	uploads []*upload
	nodes   []*node
	late    []func() // messages that may come again
	epochs  map[uuid.UUID]int64
	grants  map[uuid.UUID]ledger.Credits // asked for, by id
	acked   map[uuid.UUID]bool           // grants that were answered

	ids       uint64
	depth     int
	commits   int64
	answers   int64
	leases    int64 // calls
	violation string
}

// id makes the next identity of this life.
func (w *world) id() (id uuid.UUID) {
	w.ids++
	// Mixed, so that the order of ids is not the order of creation.
	binary.BigEndian.PutUint64(id[:], w.ids*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) chance(of int) bool { return w.random.IntN(1000) < of }

// passing reports whether an error is only temporary.
func passing(err error) bool { return errors.Is(err, errAgain) || errors.Is(err, errUnknown) }

// answered notes an answer, and one that is neither success, nor passing, nor one of the refusals that may be given.
func (w *world) answered(what string, err error, may ...error) bool {
	w.answers++
	if err == nil || passing(err) {
		return err == nil
	}
	for _, m := range may {
		if errors.Is(err, m) {
			return false
		}
	}
	w.wrong("answer", "%s: %v", what, err)
	return false
}

// again keeps a call, with some chance, so that it comes a second time later.
func (w *world) again(call func()) {
	if w.chance(150) && len(w.late) < 32 {
		w.late = append(w.late, call)
	}
}

// deliver delivers a late message.
func (w *world) deliver() {
	if len(w.late) == 0 {
		return
	}
	i := w.random.IntN(len(w.late))
	call := w.late[i]
	w.late[i] = w.late[len(w.late)-1]
	w.late = w.late[:len(w.late)-1]
	call()
}

// newUpload is a customer with another file. Some are used by two at once.
func (w *world) newUpload() {
	if len(w.uploads) == filesMax {
		return
	}
	u := &upload{workspace: w.workspace(), identity: w.id(), bytes: make([]byte, 1+w.random.IntN(40)),
		total: int64(1 + w.random.IntN(totalMax))}
	for i := range u.bytes {
		u.bytes[i] = byte(w.random.IntN(256))
	}
	u.rows = u.total + int64(w.random.IntN(3))
	if w.chance(200) {
		u.single = emails[w.random.IntN(totalMax)]
		u.bytes, u.rows, u.total = []byte(`"`+u.single+"\"\n"), 1, 1
	}
	w.uploads = append(w.uploads, u)
	u.create(w)
}

func (w *world) workspace() uuid.UUID { return accountAt(w.random.IntN(spaces)) }

// accountAt returns a workspace by its number.
func accountAt(i int) uuid.UUID {
	var id uuid.UUID
	id[15] = byte(i + 1)
	return id
}

func (w *world) anUpload() *upload {
	if len(w.uploads) == 0 {
		return nil
	}
	return w.uploads[w.random.IntN(len(w.uploads))]
}

// fresh is an upload of late, more likely to be unfinished.
func (w *world) fresh() *upload {
	if n := len(w.uploads); n > 8 && w.chance(700) {
		return w.uploads[n-8+w.random.IntN(8)]
	}
	return w.anUpload()
}

// create asks for the verification of an upload, the first time or again.
func (u *upload) create(w *world) {
	n := ledger.NewVerification{ID: w.id(), Workspace: u.workspace, Identity: u.identity,
		Bytes: int64(len(u.bytes)), BytesMax: 1 << 20,
		Limits: ledger.Limits{Open: filesMax, Stored: storedMax, Unpaid: unpaidMax}, UploadExpiry: uploadLife}
	call := func() {
		runs, may := w.db.runs, w.mayRefuse(n)
		v, created, err := u.asks(w, n)
		if err != nil && w.db.runs == runs+1 && !passing(err) && !errors.Is(err, may) {
			w.wrong("limits", "refused with %v, %v is due", err, may)
		}
		if !w.answered("create", err, ledger.ErrTooManyOpen, ledger.ErrTooManyBytes, ledger.ErrTooManyUnpaid,
			ledger.ErrNoRoom) {
			return
		}
		if u.id != uuid.Nil && v.ID != u.id {
			w.wrong("I11", "one idempotency key, two verifications")
		}
		u.id = v.ID
		if created && v.ID == n.ID {
			u.creations++
		}
		if u.creations > 1 {
			w.wrong("I11", "created %d times", u.creations)
		}
		if v.Workspace != u.workspace || v.Identity != u.identity || v.Bytes != n.Bytes {
			w.wrong("I11", "created another verification than was asked for")
		}
	}
	call()
	w.again(func() { u.create(w) })
	if u.id != uuid.Nil && w.chance(30) {
		n.ID, n.Bytes = w.id(), n.Bytes+1
		if _, _, err := w.book.Create(context.Background(), n); err == nil {
			w.wrong("I11", "the key was accepted with another length")
		}
		u.asksOther(w, n)
	}
}

// asks makes the call of a create. That of a check does not say whether it made one.
func (u *upload) asks(w *world, n ledger.NewVerification) (v ledger.Verification, created bool, err error) {
	if u.single == "" {
		v, created, err = w.book.Create(context.Background(), n)
	} else {
		v, err = w.book.CreateSingle(context.Background(),
			ledger.CreateSingle{ID: n.ID, Workspace: n.Workspace, Identity: n.Identity, Address: u.single, Limits: n.Limits})
	}
	if err == nil && (v.Kind == ledger.Single) != (u.single != "") || err == nil && v.SingleEmail != u.single {
		w.wrong("I11", "asked for %q, got %s %q", u.single, v.Kind, v.SingleEmail)
	}
	return v, created, err
}

// asksOther uses the key of an upload for a check of another address.
func (u *upload) asksOther(w *world, n ledger.NewVerification) {
	other := ledger.CreateSingle{ID: w.id(), Workspace: n.Workspace, Identity: n.Identity, Address: "x" + u.single, Limits: n.Limits}
	if u.single == "" {
		other.Address = emails[0]
	}
	if _, err := w.book.CreateSingle(context.Background(), other); err == nil {
		w.wrong("I11", "the key was accepted with another address")
	}
}

// mayRefuse returns the limit that a create meets, counted a second time; nil: none.
func (w *world) mayRefuse(n ledger.NewVerification) error {
	if w.memory.fileByIdentity(n.Workspace, n.Identity) != nil {
		return nil
	}
	had := w.has(n.Workspace, w.memory.now)
	switch {
	case had.Stored+n.Bytes > storedMax:
		return ledger.ErrTooManyBytes
	case had.Unpaid >= unpaidMax:
		return ledger.ErrTooManyUnpaid
	case w.memory.full:
		return ledger.ErrNoRoom
	}
	return nil
}

// has counts what a workspace has at a time, by what can be seen of its files.
func (w *world) has(workspace uuid.UUID, now int64) (had ledger.Limits) {
	for _, f := range w.memory.files {
		if f.row.Workspace != workspace {
			continue
		}
		if !f.row.Status.Final() || f.row.Total >= 0 { // nothing is ever swept here
			had.Stored += f.row.Bytes
		}
		if len(f.entries) == 0 && now-f.row.Created.UnixMilli() < ledger.UnpaidWithin.Milliseconds() {
			had.Unpaid++
		}
	}
	return had
}

// send uploads the next bytes, or an overlap, a gap, or what was sent before.
func (u *upload) send(w *world) {
	if u == nil || u.id == uuid.Nil {
		return
	}
	session, err := w.book.OpenUpload(context.Background(), u.id)
	if !w.answered("open upload", err) {
		return
	}
	u.sees(w, session)
	for range 1 + w.random.IntN(3) {
		at := session.Durable
		if w.chance(50) {
			at = int64(w.random.IntN(len(u.bytes)))
		}
		left := int64(len(u.bytes)) - at
		if left <= 0 {
			return
		}
		data := u.bytes[at : at+1+w.random.Int64N(left)]
		writer := session.Writer
		part := func() bool {
			after, err := w.book.AppendChunk(context.Background(), u.id, writer, at, data)
			ok := w.answered("append", err, ledger.ErrFenced, ledger.ErrUploadClosed, ledger.ErrGap, ledger.ErrNoRoom)
			if !ok {
				if !passing(err) && w.memory.fileByID(u.id).newest(writer, at, data) {
					w.wrong("answer", "the chunk at byte %d is stored and was refused: %v", at, err)
				}
				return false
			}
			if after.Durable < at+int64(len(data)) {
				w.wrong("I14", "%d bytes answered after %d were sent", after.Durable, at+int64(len(data)))
			}
			u.sees(w, after)
			session = after
			return true
		}
		w.again(func() { part() })
		if !part() {
			return
		}
	}
}

// newest reports whether data at a byte is the newest chunk, of this writer.
func (f *file) newest(writer, at int64, data []byte) bool {
	if len(f.chunks) == 0 || f.row.Writer != writer {
		return false
	}
	last := f.chunks[len(f.chunks)-1]
	return last.at == at && bytes.Equal(last.data, data)
}

// sees checks and notes what an answer tells a customer about an upload.
func (u *upload) sees(w *world, now ledger.Upload) {
	if now.Durable < u.durable {
		w.wrong("I14", "durable bytes fell from %d to %d", u.durable, now.Durable)
	}
	u.durable = now.Durable
	at := int64(0)
	for _, c := range w.memory.fileByID(u.id).chunks {
		if !bytes.Equal(c.data, u.bytes[at:at+int64(len(c.data))]) {
			w.wrong("I13", "other bytes are stored than were sent")
		}
		at += int64(len(c.data))
	}
}

// cancel asks for the end of a verification.
func (u *upload) cancel(w *world) {
	if u == nil || u.id == uuid.Nil {
		return
	}
	call := func() {
		v, err := w.book.Cancel(context.Background(), u.workspace, u.id)
		if w.answered("cancel", err) && v.Status != ledger.Cancelling && !v.Status.Final() {
			w.wrong("answer", "cancelled and %s", v.Status)
		}
	}
	call()
	w.again(call)
	other := w.workspace()
	if _, err := w.book.Cancel(context.Background(), other, u.id); err == nil && other != u.workspace {
		w.wrong("I20", "cancelled from another workspace")
	}
}

// grant is an operator who adds credits, and may do so twice with one id.
func (w *world) grant(n ledger.Credits) {
	id, workspace := w.id(), w.workspace()
	w.grants[id] = n
	call := func() {
		b, err := w.book.Grant(context.Background(), id, workspace, n, "")
		if !w.answered("grant", err) {
			return
		}
		w.acked[id] = true
		if b.Granted < n || b.Granted != b.Available+b.Held+b.Spent {
			w.wrong("I1", "the grant of %d was answered with %+v", n, b)
		}
	}
	call()
	w.again(call)
	if w.acked[id] && w.chance(100) {
		if _, err := w.book.Grant(context.Background(), id, workspace, n+1, ""); err == nil {
			w.wrong("grant", "one id, two amounts")
		}
	}
}

// sweep runs the timed steps of one verification.
func (w *world) sweep(i int) {
	if len(w.memory.files) == 0 {
		return
	}
	id := w.memory.files[i%len(w.memory.files)].row.ID
	w.answered("expire upload", w.book.ExpireUpload(context.Background(), id))
	w.answered("expire funding", w.book.ExpireFunding(context.Background(), id, fundLife))
}

// tick moves the database's clock, sometimes far, sometimes back.
func (w *world) tick() {
	by := w.random.Int64N(4000)
	switch {
	case w.chance(20):
		by = -w.random.Int64N(5000)
	case w.chance(30):
		by = w.random.Int64N(3 * leaseTTL.Milliseconds())
	}
	w.memory.now += by
	if w.chance(20) {
		w.memory.full = !w.memory.full && w.chance(300)
	}
}

// checkGrants reports whether the credits are those that were granted: each that was
// answered, once, and none that nobody asked for.
func (w *world) checkGrants() {
	for id, n := range w.grants {
		e := w.memory.grantByID(id)
		if e != nil && e.Amount != n || w.acked[id] && e == nil {
			w.wrong("grant", "%d credits were asked for, answered: %v, in the book: %+v", n, w.acked[id], e)
		}
	}
	if len(w.memory.grants) > len(w.grants) {
		w.wrong("grant", "%d grants in the book, %d were asked for", len(w.memory.grants), len(w.grants))
	}
}

// Moment is a state, never changed, of a ledger that does one thing at a time: the transitions over tables in memory,
// without faults.
type Moment struct{ *book }

// Beginning returns the moment with some workspaces and nothing else.
func Beginning(workspaces ...uuid.UUID) Moment { return Moment{newBook(workspaces...)} }

// Equal reports whether two moments are equal, except for their logs.
func (m Moment) Equal(o Moment) bool {
	return m.book == o.book || slices.Equal(m.accounts, o.accounts) && slices.Equal(m.grants, o.grants) &&
		slices.EqualFunc(m.files, o.files, (*file).sameAs)
}

// sameAs reports whether two files have the same contents.
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

// Book is the ledger of a moment. It has the calls about files, their work and their credits.
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

// OpenVerifications returns the verifications that are not final, with the holder of each lease.
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
