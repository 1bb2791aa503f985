package ledgertest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// Hour is a lease that no test outlives.
const Hour = time.Hour

// Fixture is a book with one workspace and one node, and the few moves that most
// tests begin with. A failed move ends the test.
type Fixture struct {
	ledger.Book
	T         testing.TB
	Workspace uuid.UUID
	Node      uuid.UUID
}

// NewFixture makes a workspace with credits.
func NewFixture(t testing.TB, book ledger.Book, credits ledger.Credits) *Fixture {
	t.Helper()
	d := &Fixture{Book: book, T: t, Workspace: uuid.New(), Node: uuid.New()}
	if _, err := book.CreateWorkspace(t.Context(), d.Workspace, "desk"); err != nil {
		t.Fatalf("create workspace: %v", err)
	}
	if credits > 0 {
		d.Grants(credits)
	}
	return d
}

// Grants adds credits.
func (d *Fixture) Grants(n ledger.Credits) ledger.Balance {
	d.T.Helper()
	b, err := d.Grant(d.T.Context(), uuid.New(), d.Workspace, n, "test")
	if err != nil {
		d.T.Fatalf("grant %d: %v", n, err)
	}
	return b
}

// Asks is a create of a file of some bytes that is allowed.
func (d *Fixture) Asks(bytes int64) ledger.NewVerification {
	return ledger.NewVerification{ID: uuid.New(), Workspace: d.Workspace, Identity: uuid.New(),
		Filename: "list.csv", Bytes: bytes, BytesMax: 1 << 30, Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000},
		UploadExpiry: Hour}
}

// Creates makes a verification of some bytes.
func (d *Fixture) Creates(bytes int64) ledger.Verification {
	d.T.Helper()
	v, created, err := d.Create(d.T.Context(), d.Asks(bytes))
	if err != nil || !created {
		d.T.Fatalf("create: created %v, %v", created, err)
	}
	return v
}

// Uploads makes a verification whose bytes are all there.
func (d *Fixture) Uploads() ledger.Verification {
	d.T.Helper()
	v := d.Creates(7)
	d.Fills(v)
	return d.Sees(v.ID)
}

// Fills uploads all bytes of a fresh verification.
func (d *Fixture) Fills(v ledger.Verification) ledger.Upload {
	d.T.Helper()
	return d.FillsWith(v, bytes.Repeat([]byte("x"), int(v.Bytes)))
}

// FillsWith uploads a file in the largest chunks that there are.
func (d *Fixture) FillsWith(v ledger.Verification, file []byte) ledger.Upload {
	d.T.Helper()
	u, err := d.OpenUpload(d.T.Context(), v.ID)
	for len(file) > 0 && err == nil {
		n := min(len(file), ledger.ChunkBytesMax)
		u, err = d.AppendChunk(d.T.Context(), v.ID, u.Writer, u.Durable, file[:n])
		file = file[n:]
	}
	if err != nil {
		d.T.Fatalf("upload: %v", err)
	}
	return u
}

// Sees reads a verification.
func (d *Fixture) Sees(id uuid.UUID) ledger.Verification {
	d.T.Helper()
	v, err := d.Verification(d.T.Context(), d.Workspace, id)
	if err != nil {
		d.T.Fatalf("read verification: %v", err)
	}
	return v
}

// Takes leases everything there is and gives the lease of one verification.
func (d *Fixture) Takes(id uuid.UUID) ledger.Lease {
	d.T.Helper()
	list, err := d.Lease(d.T.Context(), d.Node, 1000, Hour)
	if err != nil {
		d.T.Fatalf("lease: %v", err)
	}
	for _, v := range list {
		if v.ID == id {
			return ledger.Lease{Verification: id, Node: d.Node, Epoch: v.Epoch}
		}
	}
	d.T.Fatalf("verification %s is not among the %d leased", id, len(list))
	return ledger.Lease{}
}

// Prepares makes a leased verification of total addresses, held if it is funded.
func (d *Fixture) Prepares(total int64) (ledger.Verification, ledger.Lease) {
	d.T.Helper()
	l := d.Takes(d.Uploads().ID)
	v, err := d.Prepare(d.T.Context(), l, total, 0, total)
	if err != nil {
		d.T.Fatalf("prepare: %v", err)
	}
	return v, l
}

// Settles commits the next settlement: o for each of the ordinals from first to last.
func (d *Fixture) Settles(l ledger.Lease, number, first, last int64, o smtp.Outcome) ledger.Verification {
	d.T.Helper()
	v, err := d.Settle(d.T.Context(), Batch(l, number, first, last, o))
	if err != nil {
		d.T.Fatalf("settle %d: %v", number, err)
	}
	return v
}

// Batch is a settlement of o for each of the ordinals from first to last.
func Batch(l ledger.Lease, number, first, last int64, o smtp.Outcome) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: number}
	for i := first; i <= last; i++ {
		s.Results = append(s.Results, OneResult(i, o))
	}
	return s
}

// OneResult is a result whose address and time follow from its ordinal.
func OneResult(ordinal int64, o smtp.Outcome) ledger.Result {
	return ledger.Result{Ordinal: ordinal, Email: fmt.Sprintf("user%d@example.test", ordinal), Outcome: o,
		Reason: smtp.MailboxExists, At: time.UnixMilli(1_700_000_000_000 + ordinal).UTC()}
}

// Account reads the balance.
func (d *Fixture) Account() ledger.Balance {
	d.T.Helper()
	b, err := d.Balance(d.T.Context(), d.Workspace)
	if err != nil {
		d.T.Fatalf("read balance: %v", err)
	}
	return b
}

// Reads returns the results of a verification.
func (d *Fixture) Reads(id uuid.UUID) []ledger.Result {
	d.T.Helper()
	var list []ledger.Result
	err := d.Results(d.T.Context(), d.Workspace, id, func(r ledger.Result) error {
		list = append(list, r)
		return nil
	})
	if err != nil {
		d.T.Fatalf("read results: %v", err)
	}
	return list
}
