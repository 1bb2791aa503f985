package simulation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Second is another database that must become, in each transaction, what the tables in memory become.
type Second interface {
	// Workspace makes a workspace without credits.
	Workspace(id uuid.UUID) error
	// Transaction runs do at a time in milliseconds, and commits when it says so.
	Transaction(now int64, do func(t transitions.Tables) (commit bool)) error
}

// RunBeside lives a life as Run does, on the tables in memory and on another database at the same time. A difference
// between the two is a violation.
func RunBeside(second Second, seed uint64, operations int) Life {
	w := newWorld(seed)
	w.beside(second)
	return w.live(operations)
}

// beside lets every change happen on another database too.
func (w *world) beside(second Second) {
	for i := range spaces {
		if err := second.Workspace(accountAt(i)); err != nil {
			w.wrong("twin", "workspace: %v", err)
		}
	}
	w.db.chances.late = 0 // the other database has no transaction that waits for its commit
	w.db.inside = func(do func(t transitions.Tables) error, run func() (refusal error, commit bool)) {
		err := second.Transaction(w.memory.now, func(other transitions.Tables) bool {
			failed := do(other) // first: the caller is to learn what the tables in memory answer
			refusal, commit := run()
			if w.memory.aborted && !errors.Is(refusal, errKey) || errors.Is(refusal, ledger.ErrNoRoom) {
				return false // a statement was made to fail, or the disk is full; that of the other database is not
			}
			(&twin{w, other}).compareAll(refusal, failed)
			return commit
		})
		if err != nil {
			w.wrong("twin", "transaction: %v", err)
		}
	}
}

// twin compares the tables in memory with another database that has run the same transaction.
type twin struct {
	*world
	other transitions.Tables
}

// compareAll asks both whether they refused the transaction alike, and then for all that it may have changed.
func (t *twin) compareAll(refusal, failed error) {
	switch {
	case errors.Is(refusal, errKey) && failed != nil: // each database has its own words
	case fmt.Sprint(refusal) != fmt.Sprint(failed):
		t.wrong("twin", "the transaction: %v in memory, %v in the other", refusal, failed)
	}
	if refusal != nil || t.violation != "" {
		return
	}
	t.memory.failAfter = -1
	m := t.memory
	touched := map[uuid.UUID]bool{}
	for _, f := range m.changedFiles() {
		t.compareFile(f[1])
		touched[f[1].row.Workspace] = true
	}
	for i, a := range m.accounts {
		if touched[a.id] || a != m.was.accounts[i] {
			t.compareWorkspace(a.id)
		}
	}
	for _, e := range m.grants {
		if m.was.grantByID(e.Subject) == nil {
			t.askBoth("granted", func(x transitions.Tables) (any, error) { return x.Granted(e.Subject) })
		}
	}
	for _, except := range [][]uuid.UUID{nil, {accountAt(0)}} {
		t.askBoth("free", func(x transitions.Tables) (any, error) { return x.Free(3, except) })
	}
	if m.was.cluster != m.cluster {
		t.compareCluster(m.was.cluster, m.cluster)
	}
}

// askBoth asks both one question. An error must be the same refusal.
func (t *twin) askBoth(what string, ask func(x transitions.Tables) (any, error)) {
	got, err := ask(t.memory)
	other, failed := ask(t.other)
	if !errors.Is(failed, err) || text(got) != text(other) {
		t.wrong("twin", "%s: %s, %v in memory, %s, %v in the other", what, text(got), err, text(other), failed)
	}
}

// text makes an answer comparable. An empty list and nil are the same: databases may give either.
func text(answer any) string {
	b, err := json.Marshal(answer)
	switch {
	case err != nil:
		return err.Error()
	case string(b) == "[]":
		return "null"
	}
	return string(b)
}

// compareFile asks for a verification in each way, some of its bytes, its last settlement, and one that is not there.
func (t *twin) compareFile(f *file) {
	v := &f.row
	t.askBoth("read", func(x transitions.Tables) (any, error) { return x.Read(v.ID) })
	t.askBoth("await", func(x transitions.Tables) (any, error) { return x.Await(v.ID) })
	t.askBoth("read of", func(x transitions.Tables) (any, error) { return x.ReadOf(v.Workspace, v.ID) })
	t.askBoth("read of another", func(x transitions.Tables) (any, error) { return x.ReadOf(uuid.Nil, v.ID) })
	t.askBoth("read by identity", func(x transitions.Tables) (any, error) {
		return x.ReadIdentity(v.Workspace, v.Identity)
	})
	offsets := []int64{0, v.Durable} // which may have been erased, and was never stored
	if n := len(f.chunks); n > 0 {
		offsets = append(offsets, f.chunks[n-1].at)
	}
	for _, at := range offsets {
		t.askBoth("chunk", func(x transitions.Tables) (any, error) { return x.Chunk(v.ID, at) })
	}
	for number := v.Settlements; number <= v.Settlements+1; number++ {
		t.askBoth("settled", func(x transitions.Tables) (any, error) {
			epoch, digest, err := x.Settled(v.ID, number)
			return fmt.Sprintf("%d %x", epoch, digest), err
		})
		t.askBoth("ordinals", func(x transitions.Tables) (any, error) { return x.Ordinals(v.ID, number) })
	}
}

func (t *twin) compareWorkspace(id uuid.UUID) {
	t.askBoth("account", func(x transitions.Tables) (any, error) { return x.Account(id) })
	t.askBoth("limits", func(x transitions.Tables) (any, error) { return x.Limits(id) })
	t.askBoth("open", func(x transitions.Tables) (any, error) { return x.Open(id) })
	t.askBoth("stored", func(x transitions.Tables) (any, error) { return x.Stored(id) })
	t.askBoth("unpaid", func(x transitions.Tables) (any, error) { return x.Unpaid(id) })
	t.askBoth("unfunded", func(x transitions.Tables) (any, error) { return x.Unfunded(id) })
	t.askBoth("short", func(x transitions.Tables) (any, error) { return x.Short(id) })
}

// compareCluster asks for the rows of processes, for all facts, and for the overrides that hold or changed.
func (t *twin) compareCluster(was, is *cluster) {
	t.askBoth("nodes", func(x transitions.Tables) (any, error) { return x.ReadNodes() })
	for session := range is.nodes {
		t.askBoth("node", func(x transitions.Tables) (any, error) {
			row, now, err := x.Node(session)
			return []any{row, now}, err
		})
	}
	t.askBoth("facts", func(x transitions.Tables) (any, error) {
		facts, err := x.Known(slices.Collect(maps.Keys(is.facts)))
		slices.SortFunc(facts, func(a, b ledger.Fact) int { return cmp.Compare(a.Key, b.Key) })
		return facts, err
	})
	t.askBoth("overrides", func(x transitions.Tables) (any, error) { return x.HowMany() })
	for _, key := range append(keys[:], "") {
		t.askBoth("active overrides", func(x transitions.Tables) (any, error) { return x.ActiveOverrides(key) })
	}
	for id, o := range is.overrides {
		if before, known := was.overrides[id]; !known || before.cleared != o.cleared {
			t.askBoth("override", func(x transitions.Tables) (any, error) { return x.Override(id) })
			t.askBoth("lifted", func(x transitions.Tables) (any, error) { return x.Lifted(id) })
		}
	}
}
