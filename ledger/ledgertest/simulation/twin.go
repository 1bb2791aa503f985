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
		if err := second.Workspace(accountAt(i)); err != nil {
			w.wrong("twin", "workspace: %v", err)
		}
	}
	w.db.chances.late = 0 // the other database has no transaction that waits for its commit
	w.db.inside = func(do func(t transitions.Tables) bool) {
		err := second.Transaction(w.memory.now, func(other transitions.Tables) bool {
			b := &both{first: w.memory, second: other, wrong: w.wrong}
			return do(&twin{b, clusterTwin{b}})
		})
		if err != nil {
			w.wrong("twin", "transaction: %v", err)
		}
	}
}

// twin asks two databases the same, clusterTwin what clusterTables answer.
type twin struct {
	*both
	clusterTwin
}

type clusterTwin struct{ *both }

type both struct {
	first  *memory
	second transitions.Tables
	wrong  func(invariant, format string, args ...any)
}

var _ transitions.Tables = (*twin)(nil)

// sorts are the errors that both must answer alike; of the rest it is enough that both fail.
var sorts = []error{ledger.ErrNoSuchWorkspace, ledger.ErrNoSuchVerification, ledger.ErrStaleEpoch}

// same asks both and compares their answers. A statement that was made to fail is not asked of the second one.
func same[T any](t *both, what string, ask func(transitions.Tables) (T, error)) (T, error) {
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
func done(t *both, what string, ask func(transitions.Tables) error) error {
	_, err := same(t, what, func(x transitions.Tables) (struct{}, error) { return struct{}{}, ask(x) })
	return err
}

// list makes an empty list of none, since databases may answer either.
func list[T any](rows []T, err error) ([]T, error) { return append([]T{}, rows...), err }

// two are the two answers of one statement.
type two[A, B any] struct {
	a A
	b B
}

// Doubt is not asked of the second one, which commits for sure or not at all.
func (t *twin) Doubt() bool { return t.first.Doubt() }

func (t *twin) Account(workspace uuid.UUID) (ledger.Balance, error) {
	return same(t.both, "account", func(x transitions.Tables) (ledger.Balance, error) { return x.Account(workspace) })
}

func (t *twin) Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error) {
	return same(t.both, "credit", func(x transitions.Tables) (int64, error) { return x.Credit(workspace, by, available) })
}

func (t *twin) Enter(entries ...transitions.Entry) error {
	return done(t.both, "enter", func(x transitions.Tables) error { return x.Enter(entries...) })
}

func (t *twin) Granted(id uuid.UUID) (*transitions.Entry, error) {
	return same(t.both, "granted", func(x transitions.Tables) (*transitions.Entry, error) { return x.Granted(id) })
}

func (t clusterTwin) Log(l ledger.LogLine) error {
	return done(t.both, "log", func(x transitions.Tables) error { return x.Log(l) })
}

func (t *twin) Read(id uuid.UUID) (*transitions.Row, error) {
	return same(t.both, "read", func(x transitions.Tables) (*transitions.Row, error) { return x.Read(id) })
}

func (t *twin) Await(id uuid.UUID) (*transitions.Row, error) {
	return same(t.both, "await", func(x transitions.Tables) (*transitions.Row, error) { return x.Await(id) })
}

func (t *twin) ReadOf(workspace, id uuid.UUID) (*transitions.Row, error) {
	return same(t.both, "read of", func(x transitions.Tables) (*transitions.Row, error) { return x.ReadOf(workspace, id) })
}

func (t *twin) ReadIdentity(workspace, key uuid.UUID) (*transitions.Row, error) {
	return same(t.both, "read identity", func(x transitions.Tables) (*transitions.Row, error) {
		return x.ReadIdentity(workspace, key)
	})
}

func (t *twin) Open(workspace uuid.UUID) (int64, error) {
	return same(t.both, "open", func(x transitions.Tables) (int64, error) { return x.Open(workspace) })
}

func (t *twin) Unfunded(workspace uuid.UUID) (*transitions.Row, error) {
	return same(t.both, "unfunded", func(x transitions.Tables) (*transitions.Row, error) { return x.Unfunded(workspace) })
}

func (t *twin) Short(workspace uuid.UUID) (map[uuid.UUID]int64, error) {
	return same(t.both, "short", func(x transitions.Tables) (map[uuid.UUID]int64, error) { return x.Short(workspace) })
}

func (t *twin) Tell(id uuid.UUID, message string) error {
	return done(t.both, "tell", func(x transitions.Tables) error { return x.Tell(id, message) })
}

func (t *twin) Insert(n ledger.NewVerification, single string) error {
	return done(t.both, "insert", func(x transitions.Tables) error { return x.Insert(n, single) })
}

func (t *twin) Move(s transitions.Step) (int64, error) {
	return same(t.both, "move", func(x transitions.Tables) (int64, error) { return x.Move(s) })
}

func (t *twin) Measure(s transitions.Step) (int64, error) {
	return same(t.both, "measure", func(x transitions.Tables) (int64, error) { return x.Measure(s) })
}

func (t *twin) Fence(id uuid.UUID, from, to int64) (int64, error) {
	return same(t.both, "fence", func(x transitions.Tables) (int64, error) { return x.Fence(id, from, to) })
}

func (t *twin) Chunk(id uuid.UUID, offset int64) ([]byte, error) {
	return same(t.both, "chunk", func(x transitions.Tables) ([]byte, error) { return x.Chunk(id, offset) })
}

func (t *twin) Append(id uuid.UUID, offset int64, data []byte) error {
	return done(t.both, "append", func(x transitions.Tables) error { return x.Append(id, offset, data) })
}

func (t *twin) Lengthen(id uuid.UUID, writer, from, to int64) (int64, error) {
	return same(t.both, "lengthen", func(x transitions.Tables) (int64, error) { return x.Lengthen(id, writer, from, to) })
}

func (t *twin) Free(limit int, except []uuid.UUID) ([]*transitions.Row, error) {
	return same(t.both, "free", func(x transitions.Tables) ([]*transitions.Row, error) {
		return list(x.Free(limit, except))
	})
}

func (t *twin) KeepParked(id uuid.UUID, state []byte) error {
	return done(t.both, "keep parked", func(x transitions.Tables) error { return x.KeepParked(id, state) })
}

func (t *twin) ForgetParked(id uuid.UUID) error {
	return done(t.both, "forget parked", func(x transitions.Tables) error { return x.ForgetParked(id) })
}

func (t *twin) Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error) {
	return same(t.both, "take", func(x transitions.Tables) (int64, error) { return x.Take(id, node, epoch, ttl) })
}

func (t *twin) Renew(node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error) {
	return same(t.both, "renew", func(x transitions.Tables) ([]ledger.Lease, error) {
		leases, err := x.Renew(node, ttl)
		return inOrder(leases, func(l ledger.Lease) string { return l.Verification.String() }), err
	})
}

// inOrder sorts rows whose order is the database's.
func inOrder[T any](rows []T, by func(T) string) []T {
	return slices.SortedFunc(slices.Values(rows), func(a, b T) int { return strings.Compare(by(a), by(b)) })
}

func (t *twin) Drop(id uuid.UUID, epoch int64) (int64, error) {
	return same(t.both, "drop", func(x transitions.Tables) (int64, error) { return x.Drop(id, epoch) })
}

func (t *twin) Settle(n ledger.Settlement, p ledger.Payload) error {
	return done(t.both, "settle", func(x transitions.Tables) error { return x.Settle(n, p) })
}

func (t *twin) KeepEvidence(n ledger.Settlement) error {
	return done(t.both, "keep evidence", func(x transitions.Tables) error { return x.KeepEvidence(n) })
}

func (t *twin) Count(s transitions.Step) (int64, error) {
	return same(t.both, "count", func(x transitions.Tables) (int64, error) { return x.Count(s) })
}

func (t *twin) Settled(id uuid.UUID, number int64) (int64, []byte, error) {
	got, err := same(t.both, "settled", func(x transitions.Tables) (two[int64, string], error) {
		epoch, digest, err := x.Settled(id, number)
		return two[int64, string]{epoch, string(digest)}, err
	})
	return got.a, []byte(got.b), err
}

func (t *twin) Ordinals(id uuid.UUID, number int64) ([]int64, error) {
	return same(t.both, "ordinals", func(x transitions.Tables) ([]int64, error) { return x.Ordinals(id, number) })
}

func (t clusterTwin) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	return done(t.both, "log", func(x transitions.Tables) error { return x.LogIn(workspace, l) })
}

func (t clusterTwin) NextGeneration() (int64, error) {
	return same(t.both, "next turn", transitions.Tables.NextGeneration)
}

func (t clusterTwin) Refresh(b ledger.Heartbeat) (int64, error) {
	return same(t.both, "refresh", func(x transitions.Tables) (int64, error) { return x.Refresh(b) })
}

func (t clusterTwin) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	return same(t.both, "publish", func(x transitions.Tables) (int64, error) { return x.Publish(b, turn) })
}

func (t clusterTwin) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
	return same(t.both, "enrol", func(x transitions.Tables) (int64, error) { return x.Enrol(b, turn) })
}

func (t clusterTwin) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
	return same(t.both, "end", func(x transitions.Tables) (int64, error) { return x.End(before, e) })
}

func (t clusterTwin) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	return same(t.both, "ask drain", func(x transitions.Tables) (int64, error) { return x.AskDrain(session, asked) })
}

func (t clusterTwin) Remove(session uuid.UUID) (int64, error) {
	return same(t.both, "remove", func(x transitions.Tables) (int64, error) { return x.Remove(session) })
}

func (t clusterTwin) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
	got, err := same(t.both, "node", func(x transitions.Tables) (two[*ledger.NodeRow, int64], error) {
		row, now, err := x.Node(session)
		return two[*ledger.NodeRow, int64]{row, now}, err
	})
	return got.a, got.b, err
}

func (t clusterTwin) ReadNodes() (ledger.NodeSnapshot, error) {
	return same(t.both, "roll", transitions.Tables.ReadNodes)
}

func (t clusterTwin) Learn(facts []ledger.Fact) error {
	return done(t.both, "learn", func(x transitions.Tables) error { return x.Learn(facts) })
}

func (t clusterTwin) Known(keys []string) ([]ledger.Fact, error) {
	return same(t.both, "known", func(x transitions.Tables) ([]ledger.Fact, error) {
		facts, err := x.Known(keys)
		return inOrder(facts, func(f ledger.Fact) string { return f.Key }), err
	})
}
