package evidence

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
)

// Found is one settled address and the case behind its outcome.
type Found struct {
	Verification uuid.UUID
	Status       ledger.Status // of the verification, also with an error
	Settlement   int64
	SettledAt    time.Time
	Result       ledger.Result
	Case         *smtpevidence.Case // nil: none was stored
}

// ErrNotSettled means that a verification has no settled outcome for an address.
var ErrNotSettled = errors.New("no outcome of this address is settled")

var errFound = errors.New("found")

// Find looks up one address of a verification, in any spelling. ErrNotSettled; errors of the ledger.
func Find(ctx context.Context, book ledger.Book, id uuid.UUID, address string) (Found, error) {
	parsed, wrong := smtp.ParseAddress(address)
	wanted := spelling{text: address, parsed: parsed, whole: wrong == nil}
	var f Found
	v, err := book.Evidence(ctx, id, 0, func(k ledger.StoredSettlement) error {
		for i := range k.Results.Len() {
			if wanted.sameAs(k.Results.Email(i)) {
				return cmp.Or(f.readResult(k, i), errFound)
			}
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

// readResult reads result i of a settlement and its case.
func (f *Found) readResult(k ledger.StoredSettlement, i int) error {
	f.Settlement, f.SettledAt, f.Result = k.Number, k.At, k.Results.Result(i)
	return eachCase(k, func(e smtpevidence.Entry) error {
		if e.Ordinal == f.Result.Ordinal {
			f.Case = &e.Case
		}
		return nil
	})
}

// eachCase calls do for each case of a settlement, if its evidence was kept.
func eachCase(k ledger.StoredSettlement, do func(smtpevidence.Entry) error) error {
	if len(k.Evidence) == 0 {
		return nil
	}
	return ledger.Wrap(smtpevidence.Unpack(k.Evidence, do), "settlement %d", k.Number)
}

type spelling struct {
	text   string
	parsed smtp.Address
	whole  bool // text is an address
}

// sameAs reports whether an address of a file is the one to find.
func (s spelling) sameAs(email []byte) bool {
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
