package simulation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Second is another database that must answer each statement as the tables in memory do.
type Second interface {
	// Workspace makes a workspace without credits.
	Workspace(id uuid.UUID) error
	// Transaction runs do at a time in milliseconds, and commits when it says so.
	Transaction(now int64, do func(t transitions.Tables) (commit bool)) error
}

// RunBeside lives a life as Run does, on the tables in memory and on another
// database at the same time. A difference between the two is a violation.
func RunBeside(second Second, seed uint64, operations int) Life {
	w := newWorld(seed)
	w.beside(second)
	return w.live(operations)
}

// beside lets every transaction happen on another database too.
func (w *world) beside(second Second) {
	for i := range spaces {
		if err := second.Workspace(w.memory.accountAt(i)); err != nil {
			w.wrong("twin", "workspace: %v", err)
		}
	}
	w.db.chances.late = 0 // the other database has no transaction that waits for its commit
	w.db.inside = func(do func(t transitions.Tables) bool) {
		err := second.Transaction(w.memory.now, func(other transitions.Tables) bool {
			return do(&twin{first: w.memory, second: other, wrong: w.wrong})
		})
		if err != nil {
			w.wrong("twin", "transaction: %v", err)
		}
	}
}

// twin asks two databases the same.
type twin struct {
	first  *memory
	second transitions.Tables
	wrong  func(invariant, format string, args ...any)
}

var _ transitions.Tables = (*twin)(nil)

// sorts are the errors that both must answer alike; of the rest it is enough that both fail.
var sorts = []error{ledger.ErrNoSuchWorkspace, ledger.ErrNoSuchVerification, ledger.ErrStaleEpoch}

// same asks both and compares their answers. A statement that was made to fail is not asked of the second one.
func same[T any](t *twin, what string, ask func(transitions.Tables) (T, error)) (T, error) {
	got, err := ask(t.first)
	if errors.Is(err, errAgain) || errors.Is(err, errAborted) {
		return got, err
	}
	other, failed := ask(t.second)
	for _, sort := range sorts {
		if errors.Is(err, sort) != errors.Is(failed, sort) {
			t.wrong("twin", "%s: %v in memory, %v in the other", what, err, failed)
		}
	}
	switch {
	case (err == nil) != (failed == nil):
		t.wrong("twin", "%s: %v in memory, %v in the other", what, err, failed)
	case err == nil && !reflect.DeepEqual(got, other):
		t.wrong("twin", "%s: %+v in memory, %+v in the other", what, told(got), told(other))
	}
	return got, err
}

// told makes the rows behind pointers readable.
func told(answer any) any {
	switch v := answer.(type) {
	case *transitions.Row:
		if v == nil {
			return "no row"
		}
		return fmt.Sprintf("%+v issue %+v", *v, v.Issue)
	case []*transitions.Row:
		var list []any
		for _, r := range v {
			list = append(list, told(r))
		}
		return list
	}
	return answer
}

// done is same for statements that answer only whether they failed.
func done(t *twin, what string, ask func(transitions.Tables) error) error {
	_, err := same(t, what, func(x transitions.Tables) (struct{}, error) { return struct{}{}, ask(x) })
	return err
}

// list makes an empty list of none, since databases may answer either.
func list[T any](rows []T, err error) ([]T, error) { return append([]T{}, rows...), err }

// granted is the answer of Granted, settledAs that of Settled.
type granted struct {
	entry transitions.Entry
	found bool
}

type settledAs struct {
	epoch  int64
	digest string
}

// Doubt is not asked of the second one, which commits for sure or not at all.
func (t *twin) Doubt() bool { return t.first.Doubt() }

func (t *twin) Account(workspace uuid.UUID) (ledger.Balance, error) {
	return same(t, "account", func(x transitions.Tables) (ledger.Balance, error) { return x.Account(workspace) })
}

func (t *twin) Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error) {
	return same(t, "credit", func(x transitions.Tables) (int64, error) { return x.Credit(workspace, by, available) })
}

func (t *twin) Enter(entries ...transitions.Entry) error {
	return done(t, "enter", func(x transitions.Tables) error { return x.Enter(entries...) })
}

func (t *twin) Granted(id uuid.UUID) (transitions.Entry, bool, error) {
	answer, err := same(t, "granted", func(x transitions.Tables) (granted, error) {
		e, found, err := x.Granted(id)
		e.Reason = ""
		return granted{e, found}, err
	})
	return answer.entry, answer.found, err
}

func (t *twin) Log(l ledger.LogLine) error {
	return done(t, "log", func(x transitions.Tables) error { return x.Log(l) })
}

func (t *twin) Read(id uuid.UUID) (*transitions.Row, error) {
	return same(t, "read", func(x transitions.Tables) (*transitions.Row, error) { return x.Read(id) })
}

func (t *twin) Await(id uuid.UUID) (*transitions.Row, error) {
	return same(t, "await", func(x transitions.Tables) (*transitions.Row, error) { return x.Await(id) })
}

func (t *twin) ReadOf(workspace, id uuid.UUID) (*transitions.Row, error) {
	return same(t, "read of", func(x transitions.Tables) (*transitions.Row, error) { return x.ReadOf(workspace, id) })
}

func (t *twin) ReadIdentity(workspace, key uuid.UUID) (*transitions.Row, error) {
	return same(t, "read identity", func(x transitions.Tables) (*transitions.Row, error) {
		return x.ReadIdentity(workspace, key)
	})
}

func (t *twin) Open(workspace uuid.UUID) (int64, error) {
	return same(t, "open", func(x transitions.Tables) (int64, error) { return x.Open(workspace) })
}

func (t *twin) Unfunded(workspace uuid.UUID) (*transitions.Row, error) {
	return same(t, "unfunded", func(x transitions.Tables) (*transitions.Row, error) { return x.Unfunded(workspace) })
}

func (t *twin) Short(workspace uuid.UUID) (map[uuid.UUID]int64, error) {
	return same(t, "short", func(x transitions.Tables) (map[uuid.UUID]int64, error) { return x.Short(workspace) })
}

func (t *twin) Tell(id uuid.UUID, message string) error {
	return done(t, "tell", func(x transitions.Tables) error { return x.Tell(id, message) })
}

func (t *twin) Insert(n ledger.NewVerification, single string) error {
	return done(t, "insert", func(x transitions.Tables) error { return x.Insert(n, single) })
}

func (t *twin) Move(s transitions.Step) (int64, error) {
	return same(t, "move", func(x transitions.Tables) (int64, error) { return x.Move(s) })
}

func (t *twin) Measure(s transitions.Step) (int64, error) {
	return same(t, "measure", func(x transitions.Tables) (int64, error) { return x.Measure(s) })
}

func (t *twin) Fence(id uuid.UUID, from, to int64) (int64, error) {
	return same(t, "fence", func(x transitions.Tables) (int64, error) { return x.Fence(id, from, to) })
}

func (t *twin) Chunk(id uuid.UUID, offset int64) ([]byte, error) {
	return same(t, "chunk", func(x transitions.Tables) ([]byte, error) { return x.Chunk(id, offset) })
}

func (t *twin) Append(id uuid.UUID, offset int64, data []byte) error {
	return done(t, "append", func(x transitions.Tables) error { return x.Append(id, offset, data) })
}

func (t *twin) Lengthen(id uuid.UUID, writer, from, to int64) (int64, error) {
	return same(t, "lengthen", func(x transitions.Tables) (int64, error) { return x.Lengthen(id, writer, from, to) })
}

func (t *twin) Free(limit int, except []uuid.UUID) ([]*transitions.Row, error) {
	return same(t, "free", func(x transitions.Tables) ([]*transitions.Row, error) { return list(x.Free(limit, except)) })
}

func (t *twin) KeepParked(id uuid.UUID, state []byte) error {
	return done(t, "keep parked", func(x transitions.Tables) error { return x.KeepParked(id, state) })
}

func (t *twin) ForgetParked(id uuid.UUID) error {
	return done(t, "forget parked", func(x transitions.Tables) error { return x.ForgetParked(id) })
}

func (t *twin) Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error) {
	return same(t, "take", func(x transitions.Tables) (int64, error) { return x.Take(id, node, epoch, ttl) })
}

func (t *twin) Renew(node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error) {
	return same(t, "renew", func(x transitions.Tables) ([]ledger.Lease, error) {
		leases, err := x.Renew(node, ttl)
		return inOrder(leases, func(l ledger.Lease) string { return l.Verification.String() }), err
	})
}

// inOrder sorts rows whose order is the database's.
func inOrder[T any](rows []T, by func(T) string) []T {
	return slices.SortedFunc(slices.Values(rows), func(a, b T) int { return strings.Compare(by(a), by(b)) })
}

func (t *twin) Drop(id uuid.UUID, epoch int64) (int64, error) {
	return same(t, "drop", func(x transitions.Tables) (int64, error) { return x.Drop(id, epoch) })
}

func (t *twin) Settle(n ledger.Settlement, p ledger.Payload) error {
	return done(t, "settle", func(x transitions.Tables) error { return x.Settle(n, p) })
}

func (t *twin) KeepEvidence(n ledger.Settlement) error {
	return done(t, "keep evidence", func(x transitions.Tables) error { return x.KeepEvidence(n) })
}

func (t *twin) Count(s transitions.Step) (int64, error) {
	return same(t, "count", func(x transitions.Tables) (int64, error) { return x.Count(s) })
}

func (t *twin) Settled(id uuid.UUID, number int64) (int64, []byte, error) {
	got, err := same(t, "settled", func(x transitions.Tables) (settledAs, error) {
		epoch, digest, err := x.Settled(id, number)
		return settledAs{epoch, string(digest)}, err
	})
	return got.epoch, []byte(got.digest), err
}

func (t *twin) Ordinals(id uuid.UUID, number int64) ([]int64, error) {
	return same(t, "ordinals", func(x transitions.Tables) ([]int64, error) { return x.Ordinals(id, number) })
}

func (t *twin) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	return done(t, "log", func(x transitions.Tables) error { return x.LogIn(workspace, l) })
}

func (t *twin) NextGeneration() (int64, error) {
	return same(t, "next turn", transitions.Tables.NextGeneration)
}

func (t *twin) Refresh(b ledger.Heartbeat) (int64, error) {
	return same(t, "refresh", func(x transitions.Tables) (int64, error) { return x.Refresh(b) })
}

func (t *twin) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	return same(t, "publish", func(x transitions.Tables) (int64, error) { return x.Publish(b, turn) })
}

func (t *twin) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
	return same(t, "enrol", func(x transitions.Tables) (int64, error) { return x.Enrol(b, turn) })
}

func (t *twin) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
	return same(t, "end", func(x transitions.Tables) (int64, error) { return x.End(before, e) })
}

func (t *twin) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	return same(t, "ask drain", func(x transitions.Tables) (int64, error) { return x.AskDrain(session, asked) })
}

func (t *twin) Remove(session uuid.UUID) (int64, error) {
	return same(t, "remove", func(x transitions.Tables) (int64, error) { return x.Remove(session) })
}

func (t *twin) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
	got, err := same(t, "node", func(x transitions.Tables) (rowAt, error) {
		row, now, err := x.Node(session)
		return rowAt{row, now}, err
	})
	return got.row, got.now, err
}

// rowAt is the answer of Node.
type rowAt struct {
	row *ledger.NodeRow
	now int64
}

func (t *twin) ReadNodes() (ledger.NodeSnapshot, error) {
	return same(t, "roll", transitions.Tables.ReadNodes)
}

func (t *twin) Learn(facts []ledger.Fact) error {
	return done(t, "learn", func(x transitions.Tables) error { return x.Learn(facts) })
}

func (t *twin) Known(keys []string) ([]ledger.Fact, error) {
	return same(t, "known", func(x transitions.Tables) ([]ledger.Fact, error) {
		facts, err := x.Known(keys)
		return inOrder(facts, func(f ledger.Fact) string { return f.Key }), err
	})
}
