package admin

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp/evidence"
)

// ReadVerification gives a verification, whatever its workspace, with who has it.
func (d *Desk) ReadVerification(ctx context.Context, id uuid.UUID) (ledger.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	v, err := d.options.Book.Evidence(ctx, id, math.MaxInt64, func(ledger.Kept) error { return nil })
	if err != nil && !errors.Is(err, ledger.ErrResultsExpired) {
		return v, d.ofEvidence("read a verification", v.Status, err)
	}
	return v, nil
}

// EntriesCall asks for one page of what moved the credits of a verification, newest first.
type EntriesCall struct {
	Workspace, Verification uuid.UUID
	After                   string // the Next of the page before; "": from the newest
	Limit                   int    // 1 to ledger.EntriesMax
}

// EntriesPage is one page of what moved the credits of a verification, with the sums of all.
type EntriesPage struct {
	ledger.Statement
	Next string // After of the next page; "" at the end
}

// ReadEntries gives one page of what moved the credits of a verification.
func (d *Desk) ReadEntries(ctx context.Context, in EntriesCall) (EntriesPage, error) {
	q := ledger.EntriesQuery{Workspace: in.Workspace, Verification: in.Verification, Limit: in.Limit}
	if in.After != "" {
		var err error
		if q.After, err = parsePlace(in.After); err != nil {
			return EntriesPage{}, refusal(http.StatusBadRequest, "invalid_request", "after must be the next of an answer, as it is")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.Entries(ctx, q)
	if err != nil {
		return EntriesPage{}, d.ofLedger("list entries", err)
	}
	page := EntriesPage{Statement: found}
	if n := len(found.Entries); n > 0 && n == in.Limit {
		page.Next = place(found.Entries[n-1])
	}
	return page, nil
}

// ReadEvidence tells how the outcome of one address of a verification came about. It reads the verification from its
// beginning, so it takes as long as the file is large; ctx bounds it.
func (d *Desk) ReadEvidence(ctx context.Context, id uuid.UUID, address string) (Explanation, error) {
	if address == "" {
		return Explanation{}, refusal(http.StatusBadRequest, "invalid_request", "address must be an address of the file")
	}
	found, err := FindEvidence(ctx, d.options.Book, id, address)
	if err != nil {
		return found, d.ofEvidence("read evidence", found.Status, err)
	}
	return found, nil
}

// ofEvidence is the refusal for an error of the ledger, or of what is in it. The status is that of the verification.
func (d *Desk) ofEvidence(step string, status ledger.Status, err error) error {
	switch {
	case errors.Is(err, ErrNotSettled), errors.Is(err, ledger.ErrNoSuchVerification), errors.Is(err, ledger.ErrResultsExpired):
		code := http.StatusNotFound
		if errors.Is(err, ledger.ErrResultsExpired) {
			code = http.StatusGone
		}
		name, message := WhyNoEvidence(err, status)
		return refusal(code, name, message)
	case errors.Is(err, evidence.ErrPacked), errors.Is(err, ledger.ErrPayload):
		d.options.Log.Error("stored evidence cannot be read", "stage", step, "err", err)
		return refusal(http.StatusInternalServerError, "damaged",
			"what is stored cannot be read: run `rollcall audit`, and report this when it finds nothing")
	}
	return d.ofLedger(step, err)
}
