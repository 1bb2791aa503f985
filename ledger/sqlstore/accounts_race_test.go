package sqlstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// TestWritersAtOneAccountAllGetThrough lets all writers of two nodes change one
// account and its verifications: conflicts are many, refusals are none.
func TestWritersAtOneAccountAllGetThrough(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	const nodes, writers, rounds = 2, 8, 10
	var all sync.WaitGroup
	for range nodes {
		node := effort.Must(Open(t.Context(), s.url, Options{}))(t)
		t.Cleanup(func() { _ = node.Close() })
		for range writers {
			all.Go(func() {
				for range rounds {
					_, granted := node.Grant(t.Context(), uuid.New(), s.a, 1, "")
					_, _, created := node.Create(t.Context(), ledger.NewVerification{ID: uuid.New(), Workspace: s.a,
						Identity: uuid.New(), Filename: "list.csv", Bytes: 1, BytesMax: 1,
						Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, UploadExpiry: time.Hour})
					effort.ErrIs(t, errors.Join(granted, created), nil)
				}
			})
		}
	}
	all.Wait()
	effort.Is(t, effort.Must(s.Balance(t.Context(), s.a))(t).Granted, nodes*writers*rounds)
	t.Logf("%d transactions", 2*nodes*writers*rounds)
}
