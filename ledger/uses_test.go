package ledger_test

import (
	"context"
	"errors"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger"
)

func TestEachUseIsWrittenOnceInBoundedWrites(t *testing.T) {
	written, writes := map[int]int{}, 0
	n := ledger.NewUses(func(_ context.Context, ids []int) error {
		writes++
		for _, id := range ids {
			written[id]++
		}
		effort.ErrorIf(t, len(ids) > 500, "%d in one write", len(ids))
		return errors.New("nobody minds")
	})
	for id := range 1001 {
		n.Note(id)
		n.Note(id)
	}
	n.Forget(7)
	n.Stop()
	n.Stop()
	effort.ErrorIf(t, len(written) != 1000 || written[7] != 0 || written[8] != 1 || writes != 2,
		"%d uses in %d writes", len(written), writes)
}
