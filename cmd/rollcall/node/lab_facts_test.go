package node

import (
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// TestTheLabIsNotTakenForAnEarlierOne: what is known of its receivers is what they taught since they began.
func TestTheLabIsNotTakenForAnEarlierOne(t *testing.T) {
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	t.Cleanup(func() { _ = book.Close() })
	fact := func(key string) ledger.Fact {
		return ledger.Fact{Key: key, Data: []byte("x"), Expires: time.Now().Add(time.Hour)}
	}
	effort.OK(t, book.Learn(t.Context(), []ledger.Fact{fact("a.test"), fact("b.test")}))
	fresh := factsOf(book, true)
	knows := func(facts ledger.Facts, want int) {
		t.Helper()
		effort.Is(t, len(effort.Must(facts.Known(t.Context(), []string{"a.test", "b.test"}))(t)), want, "it knows")
	}
	knows(factsOf(book, false), 2)
	knows(fresh, 0)
	effort.OK(t, fresh.Learn(t.Context(), []ledger.Fact{fact("b.test")}))
	knows(fresh, 1)
	knows(book, 2)
}
