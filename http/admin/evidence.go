package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// EvidenceBook is the evidence in the ledger; ledger.Book is one.
type EvidenceBook interface {
	Evidence(ctx context.Context, id uuid.UUID, after int64, yield func(ledger.StoredSettlement) error) (
		ledger.Verification, error)
}

// Verdict is an outcome and its reason.
type Verdict struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// FoundEvidence is one settled address and the case behind its outcome.
type FoundEvidence struct {
	Verification uuid.UUID
	Status       ledger.Status // of the verification, also with an error
	Settlement   int64
	SettledAt    time.Time
	Result       ledger.Result
	Case         *evidence.Case // nil: none was stored
}

// ErrNotSettled means that a verification has no settled outcome for an address.
var ErrNotSettled = errors.New("no outcome of this address is settled")

var errFound = errors.New("found")

// FindEvidence looks up one address of a verification, in any spelling. ErrNotSettled; errors of the ledger.
func FindEvidence(ctx context.Context, book EvidenceBook, id uuid.UUID, address string) (FoundEvidence, error) {
	parsed, wrong := smtp.ParseAddress(address)
	wanted := spelling{text: address, parsed: parsed, whole: wrong == nil}
	var f FoundEvidence
	v, err := book.Evidence(ctx, id, 0, func(k ledger.StoredSettlement) error {
		for i := range k.Results.Len() {
			if !wanted.is(k.Results.Email(i)) {
				continue
			}
			if err := f.take(k, i); err != nil {
				return err
			}
			return errFound
		}
		return nil
	})
	f.Verification, f.Status = id, v.Status
	if errors.Is(err, errFound) {
		return f, nil
	}
	if err == nil {
		err = ErrNotSettled
	}
	return f, err
}

// take reads result i of a settlement and its case.
func (f *FoundEvidence) take(k ledger.StoredSettlement, i int) error {
	f.Settlement, f.SettledAt, f.Result = k.Number, k.At, k.Results.Result(i)
	if len(k.Evidence) == 0 {
		return nil
	}
	err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
		if e.Ordinal == f.Result.Ordinal {
			f.Case = &e.Case
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settlement %d: %w", k.Number, err)
	}
	return nil
}

type spelling struct {
	text   string
	parsed smtp.Address
	whole  bool // text is an address
}

// is reports whether an address of a file is the one to find.
func (s spelling) is(email []byte) bool {
	if string(email) == s.text {
		return true
	}
	// Parsing never changes the local part, so skip addresses that cannot match.
	if !s.whole || len(email) <= len(s.parsed.Local) || string(email[:len(s.parsed.Local)]) != s.parsed.Local {
		return false
	}
	a, err := smtp.ParseAddress(string(email))
	return err == nil && a == s.parsed
}
