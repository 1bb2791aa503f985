package evidence

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

// Book is what the ledger keeps of how outcomes came about; ledger.Book is one.
type Book interface {
	Evidence(ctx context.Context, id uuid.UUID, after int64, yield func(ledger.StoredSettlement) error) (
		ledger.Verification, error)
}

// Verdict is an outcome and its reason.
type Verdict struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// Found is one settled address and what its outcome rests on.
type Found struct {
	Verification uuid.UUID
	Status       ledger.Status // of the verification, also beside an error
	Settlement   int64
	SettledAt    time.Time
	Result       ledger.Result
	Case         *evidence.Case // nil: none was kept
}

// ErrNotSettled means that a verification has no settled outcome for an address.
var ErrNotSettled = errors.New("no outcome of this address is settled")

// errFound ends a search.
var errFound = errors.New("found")

// Find looks for one address of a verification: as it is spelled in the
// file, or another spelling of the same. ErrNotSettled; errors of the ledger.
func Find(ctx context.Context, book Book, id uuid.UUID, address string) (Found, error) {
	wanted := newSpelling(address)
	var f Found
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

// take reads result i of a settlement and the case of it.
func (f *Found) take(k ledger.StoredSettlement, i int) error {
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

// spelling is an address that is looked for.
type spelling struct {
	text   string
	parsed smtp.Address
	whole  bool // text is an address
}

func newSpelling(text string) spelling {
	a, err := smtp.ParseAddress(text)
	return spelling{text: text, parsed: a, whole: err == nil}
}

// is reports whether an address of a file is the one that is looked for.
func (s spelling) is(email []byte) bool {
	if string(email) == s.text {
		return true
	}
	// The local part is never changed: what cannot fit is not parsed.
	if !s.whole || len(email) <= len(s.parsed.Local) || string(email[:len(s.parsed.Local)]) != s.parsed.Local {
		return false
	}
	a, err := smtp.ParseAddress(string(email))
	return err == nil && a == s.parsed
}

// RuleName names a rule as it was when it judged; "" for none.
func RuleName(id string, version uint32) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("%s@%08x", id, version)
}
