package sqlstore

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const oneKept = `SELECT s.epoch, s.created, s.payload, e.data FROM settlements s
	LEFT JOIN evidence e ON e.verification = s.verification AND e.number = s.number
	WHERE s.verification = ? AND s.number = ?`

// Evidence calls yield for each settlement above after. Each is a question of its
// own, so that no session waits for a slow yield and memory holds one settlement:
// its results and EvidenceMax bytes.
func (s files) Evidence(ctx context.Context, id uuid.UUID, after int64,
	yield func(ledger.StoredSettlement) error) (ledger.Verification, error) {
	v, err := s.verification(ctx, id)
	if err != nil {
		return ledger.Verification{}, fmt.Errorf("read evidence of verification %s: %w", id, err)
	}
	v.Verification = withLease(v)
	if v.ResultsDeleted {
		return v.Verification, fmt.Errorf("read evidence of verification %s: %w", id, ledger.ErrResultsExpired)
	}
	var batch ledger.Batch
	for number := min(max(after, 0), v.Settlements) + 1; number <= v.Settlements; number++ {
		kept := ledger.StoredSettlement{Number: number, Results: &batch}
		if err := s.kept(ctx, id, &kept); err != nil {
			return v.Verification, fmt.Errorf("read evidence of settlement %d of verification %s: %w",
				number, id, err)
		}
		if err := yield(kept); err != nil {
			return v.Verification, err
		}
	}
	return v.Verification, nil
}

// kept reads one settlement by its number.
func (s files) kept(ctx context.Context, id uuid.UUID, k *ledger.StoredSettlement) error {
	var created int64
	var payload []byte
	err := s.view(ctx, func(t *tx) error {
		return t.Row(oneKept, id[:], k.Number).Scan(&k.Epoch, &created, &payload, &k.Evidence)
	})
	if err != nil {
		return err
	}
	if len(payload) == 0 {
		return ledger.ErrResultsExpired // erased since the start
	}
	k.At = ledger.Clock(created)
	return k.Results.Decode(payload)
}
