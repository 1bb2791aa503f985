package ledger_test

import (
	"context"
	"errors"
	"testing"

	"rollcall/ledger"
)

func TestEachUseIsWrittenOnceInBoundedWrites(t *testing.T) {
	written, writes := map[int]int{}, 0
	n := ledger.NewUses(func(_ context.Context, ids []int) error {
		writes++
		for _, id := range ids {
			written[id]++
		}
		if len(ids) > 500 {
			t.Errorf("%d in one write", len(ids))
		}
		return errors.New("nobody minds")
	})
	for id := range 1001 {
		n.Note(id)
		n.Note(id)
	}
	n.Forget(7)
	n.Stop()
	n.Stop()
	if len(written) != 1000 || written[7] != 0 || written[8] != 1 || writes != 2 {
		t.Errorf("%d uses in %d writes", len(written), writes)
	}
}
