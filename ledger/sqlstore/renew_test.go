package sqlstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

// TestALedgerIsRenewedOnlyWhenNoNodeWorksOnIt, and by its owner only.
func TestALedgerIsRenewedOnlyWhenNoNodeWorksOnIt(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { renews(t, openStore(t)) })
	t.Run("postgresql", func(t *testing.T) {
		owner := rightful(t)
		book := openAt(t, as(t, owner, nodeUser))
		if _, _, err := book.RenewIdentity(t.Context(), 0, "a node"); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("as a node: %v", err)
		}
		renews(t, openAt(t, owner))
	})
}

func renews(t *testing.T, book *sqlstore.Store) {
	ctx := t.Context()
	beat := func() ledger.Incarnation {
		p := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
		if _, err := book.WriteHeartbeat(ctx, ledger.Heartbeat{Incarnation: p, Cluster: "here", Name: "node-1",
			Actors: "h:1", Started: time.Unix(1, 0),
			View: []ledger.Incarnation{p}, Silent: []uint64{7}}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	before, err := book.Identity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lost, left := beat(), beat()
	beat() // it is in
	if err := errors.Join(book.Retire(ctx, lost.Session, 0, false), book.Leave(ctx, left.Session)); err != nil {
		t.Fatal(err)
	}
	turn := rowsOf(t, book, 3)
	if _, _, err := book.RenewIdentity(ctx, ledgertest.Hour, "too early"); !errors.Is(err, ledger.ErrNodeAlive) ||
		!strings.Contains(err.Error(), `"node-1" at h:1`) {
		t.Errorf("while a node works: %v", err)
	}
	if _, _, err := book.RenewIdentity(ctx, 0, "\x00"); !errors.Is(err, ledger.ErrIllegal) {
		t.Errorf("a reason that is no text: %v", err)
	}
	rowsOf(t, book, 3)
	if now, err := book.Identity(ctx); err != nil || now != before {
		t.Errorf("refused, and the identity is %s, %v, was %s", now, err, before)
	}
	was, is, err := book.RenewIdentity(ledger.WithAuthor(ctx, "ada"), 0, "a copy")
	if err != nil || was != before || is == before || is.Version() != 4 {
		t.Fatalf("renewed from %s to %s, %v", was, is, err)
	}
	if now, err := book.Identity(ctx); err != nil || now != is {
		t.Errorf("the identity is %s, %v, want %s", now, err, is)
	}
	rowsOf(t, book, 0)
	lines, err := book.OperatorLog(ctx, ledger.LogQuery{Limit: 1})
	if err != nil || len(lines) != 1 || lines[0].Action != "ledger renew" || lines[0].Author != "ada" ||
		lines[0].Reason != "a copy" || lines[0].Old != was.String() || lines[0].New != is.String() {
		t.Errorf("the operator log has %+v, %v", lines, err)
	}
	beat()
	if now := rowsOf(t, book, 1); now != turn+1 {
		t.Errorf("the first row after it is of turn %d, want %d: turns go on", now, turn+1)
	}
}

// rowsOf wants so many rows of processes and gives the turn.
func rowsOf(t *testing.T, book *sqlstore.Store, want int) int64 {
	t.Helper()
	roll, err := book.ReadNodes(t.Context())
	if err != nil || len(roll.Nodes) != want {
		t.Errorf("%d processes, %v, want %d", len(roll.Nodes), err, want)
	}
	return roll.Generation
}
