package ledgertest

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const (
	// workspaces share a book: more than one, so that a lease meets several.
	workspaces = 3
	// grantsMax bounds the grants of one history; then clients repeat a grant.
	grantsMax = 96
	// openMax is the number of files that a workspace may have open: low, so that creates meet it.
	openMax = 6
)

// book is the state of a ledger that does one thing at a time, every rule
// written out once more. A book is never changed: a step makes another one.
type book struct {
	accounts [workspaces]account
	files    []*file // by rank, in which they are served; nil: not there, or not any more
}

// limits are those of each workspace in a history.
var clientLimits = ledger.Limits{Open: openMax, Stored: 1 << 40, Unpaid: 1 << 20}

// account is the money of one workspace.
type account struct {
	ledger.Balance
	grants [grantsMax]uint8 // credits of each grant that was made
}

// file is one verification. Comparable, so that two books can be compared.
type file struct {
	seen
	workspace int
	identity  uuid.UUID
	writer    int64
	chunk     int64 // first byte of the newest chunk; -1: none
	node      int   // who has the lease; 0: nobody
	expired   bool  // the lease is past its time
	outcomes  string
	batches   string // each settlement as text, one after the other
}

func (b *book) equal(o *book) bool {
	if b == o {
		return true
	}
	if b.accounts != o.accounts || len(b.files) != len(o.files) {
		return false
	}
	for i, f := range b.files {
		g := o.files[i]
		if f != g && (f == nil || g == nil || *f != *g) {
			return false
		}
	}
	return true
}

// clone is a book that may be changed until it is handed on.
func (b *book) clone() *book {
	c := *b
	c.files = append([]*file(nil), b.files...)
	return &c
}

// edit makes the file at rank one that may be changed, in a clone.
func (b *book) edit(rank int) *file {
	f := *b.files[rank]
	b.files[rank] = &f
	return &f
}

// refused is the answer to a call that is not allowed.
func refused(err error) answer { return answer{refusal: err.Error()} }

// told is the answer that shows f.
func told(f *file) answer { return answer{file: f.seen} }

// apply returns the book after the call, and its answer.
func (b *book) apply(c call) (*book, answer) {
	switch c.kind {
	case create:
		return b.create(c)
	case lease:
		return b.lease(c)
	case grant:
		return b.grant(c)
	case renew:
		return b, b.renew(c)
	case balance:
		return b, answer{account: b.accounts[c.workspace].Balance}
	case readHistory:
		return b, b.history(c)
	}
	if c.rank < 0 || b.files[c.rank] == nil {
		return b, refused(ledger.ErrNoSuchVerification)
	}
	f := b.files[c.rank]
	switch c.kind {
	case openUpload, appendChunk, uploadState:
		return b.upload(c)
	case cancel, verification, results:
		if f.workspace != c.workspace {
			return b, refused(ledger.ErrNoSuchVerification)
		}
	}
	switch c.kind {
	case verification:
		return b, told(f)
	case results:
		return b, answer{list: f.outcomes}
	case cancel:
		return b.cancel(c)
	case release:
		return b.release(c)
	}
	return b.work(c)
}

func (b *book) create(c call) (*book, answer) {
	open := 0
	for rank, f := range b.files {
		if f == nil || f.workspace != c.workspace {
			continue
		}
		if f.identity == c.identity {
			if f.bytes != c.bytes {
				return b, refused(ledger.ErrIdentityReused)
			}
			// A run after one that was committed unknown finds its own work.
			return b, answer{created: rank == c.rank, rank: rank, file: f.seen}
		}
		if !f.status.Final() {
			open++
		}
	}
	if open >= openMax {
		return b, refused(ledger.ErrTooManyOpen)
	}
	if c.rank < 0 {
		return b, answer{rank: -1} // no such verification in the end: it was not made
	}
	f := &file{workspace: c.workspace, identity: c.identity, chunk: -1,
		seen: seen{status: ledger.Uploading, bytes: c.bytes, total: -1}}
	b = b.clone()
	b.files[c.rank] = f
	return b, answer{created: true, rank: c.rank, file: f.seen}
}

func (f *file) upload() answer {
	return answer{file: seen{status: f.status, issue: f.issue, bytes: f.bytes}, durable: f.durable, writer: f.writer}
}

// upload makes the calls about the bytes of a file.
func (b *book) upload(c call) (*book, answer) {
	f := b.files[c.rank]
	end := c.offset + c.bytes
	a := f.upload()
	switch {
	case c.kind == uploadState || c.kind == openUpload && f.status != ledger.Uploading:
		return b, a
	case c.kind == openUpload:
		b = b.clone()
		f = b.edit(c.rank)
		f.writer++
		return b, f.upload()
	case c.writer != f.writer:
		a.refusal = ledger.ErrFenced.Error()
	case f.durable == end && f.chunk == c.offset && !f.erased():
		// The newest chunk again.
	case f.status != ledger.Uploading:
		a.refusal = ledger.ErrUploadClosed.Error()
	case f.durable != c.offset:
		a.refusal = ledger.ErrGap.Error()
	case end > f.bytes:
		return b, refused(ledger.ErrIllegal)
	default:
		b = b.clone()
		f = b.edit(c.rank)
		f.durable, f.chunk = end, c.offset
		if end == f.bytes {
			f.status = ledger.Preparing
		}
		return b, f.upload()
	}
	return b, a
}

// erased reports whether its bytes went with the step that ended it.
func (f *file) erased() bool { return f.status.Final() && f.total < 0 }

// short reports whether f waits for credits.
func (f *file) short() bool { return f.status == ledger.Waiting && f.issue == ledger.CreditsRequired }

func (f *file) funded() bool {
	return f.status == ledger.Verifying || f.status == ledger.Cancelling || f.status == ledger.Waiting && !f.short()
}

func (f *file) left() int64 {
	if f.total < 0 {
		return 0
	}
	return f.total - f.counts.Sum()
}

func (b *book) lease(c call) (*book, answer) {
	var list strings.Builder
	next, n := b, 0
	for rank, f := range b.files {
		if !f.free() || c.lease.took != nil && !c.lease.took[rank] {
			continue
		}
		if n == c.limit {
			if c.lease.all {
				return b, answer{list: "nothing may be left"}
			}
			break
		}
		n++
		next = next.taken(rank, c)
		line(&list, rank, next.files[rank].epoch, f.status)
	}
	return next, answer{list: list.String()}
}

// free reports whether a lease may take f; nil is a file that is not there yet.
func (f *file) free() bool {
	return f != nil && (f.status == ledger.Preparing || f.funded()) && (f.node == 0 || f.expired)
}

// taken is the book after one file was leased.
func (b *book) taken(rank int, c call) *book {
	b = b.clone()
	f := b.edit(rank)
	f.node, f.expired = c.node, c.expired
	f.epoch++
	return b
}

// line adds one line to a list.
func line(list *strings.Builder, rank int, epoch int64, status ledger.Status) {
	fmt.Fprintf(list, "%d@%d %s;", rank, epoch, status)
}

func (b *book) renew(c call) answer {
	var list strings.Builder
	for rank, f := range b.files {
		if f != nil && f.node == c.node && !f.expired {
			line(&list, rank, f.epoch, "")
		}
	}
	return answer{list: list.String()}
}

func (b *book) history(c call) answer {
	var list strings.Builder
	n := 0
	for rank := len(b.files) - 1; rank >= 0 && n < c.limit; rank-- {
		if f := b.files[rank]; f != nil && f.workspace == c.workspace {
			line(&list, rank, f.epoch, f.status)
			n++
		}
	}
	return answer{list: list.String()}
}

func (b *book) release(c call) (*book, answer) {
	f := b.files[c.rank]
	switch {
	case f.epoch == c.epoch && f.node == 0:
		return b, answer{}
	case f.epoch != c.epoch || f.node != c.node:
		return b, refused(ledger.ErrStaleEpoch)
	}
	b = b.clone()
	f = b.edit(c.rank)
	f.node, f.expired = 0, false
	return b, answer{}
}

func (b *book) grant(c call) (*book, answer) {
	switch made := int64(b.accounts[c.workspace].grants[c.grant]); {
	case made == c.credits:
		return b, answer{account: b.accounts[c.workspace].Balance}
	case made != 0:
		return b, refused(ledger.ErrIllegal)
	}
	b = b.clone()
	a := &b.accounts[c.workspace]
	a.grants[c.grant] = uint8(c.credits)
	a.Granted += ledger.Credits(c.credits)
	a.Available += ledger.Credits(c.credits)
	b.fund(c.workspace)
	return b, answer{account: a.Balance}
}

// fund serves files that wait for credits, oldest first, in a clone.
func (b *book) fund(workspace int) {
	a := &b.accounts[workspace]
	for rank, f := range b.files {
		if f == nil || f.workspace != workspace || !f.short() || ledger.Credits(f.total) > a.Available {
			continue
		}
		b.hold(b.edit(rank))
	}
}

// hold moves the credits of all addresses of f, in a clone.
func (b *book) hold(f *file) {
	a := &b.accounts[f.workspace]
	f.held = ledger.Credits(f.total)
	a.Available -= f.held
	a.Held += f.held
	f.status, f.issue = ledger.Verifying, ""
}

// end makes f final, without a lease.
func (f *file) end(status ledger.Status, issue string) {
	f.status, f.issue, f.next, f.done = status, issue, false, true
	f.node, f.expired = 0, false
}

func (b *book) cancel(c call) (*book, answer) {
	f := b.files[c.rank]
	if f.status.Final() || f.status == ledger.Cancelling {
		return b, told(f)
	}
	b = b.clone()
	f = b.edit(c.rank)
	if f.funded() && f.node != 0 && !f.expired {
		f.status, f.issue, f.next = ledger.Cancelling, "", false
		return b, told(f)
	}
	return b.refund(c.rank)
}

// refund releases what was not checked and ends the cancelled file, in a clone.
func (b *book) refund(rank int) (*book, answer) {
	f := b.edit(rank)
	free := f.held
	a := &b.accounts[f.workspace]
	f.counts.Cancelled = f.left()
	f.held = 0
	a.Held -= free
	a.Available += free
	f.end(ledger.Cancelled, "")
	if free > 0 {
		b.fund(f.workspace)
	}
	return b, told(f)
}
