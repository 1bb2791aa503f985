package simulation

import (
	"errors"
	"fmt"
	"reflect"
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

// same compares two answers. A statement that was made to fail is not asked of the second one.
func same[T any](t *twin, what string, got T, err error, ask func() (T, error)) (T, error) {
	if errors.Is(err, errAgain) || errors.Is(err, errAborted) {
		return got, err
	}
	other, failed := ask()
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

// done compares statements that answer only whether they failed.
func done(t *twin, what string, err error, ask func() error) error {
	_, err = same(t, what, struct{}{}, err, func() (struct{}, error) { return struct{}{}, ask() })
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
	got, err := t.first.Account(workspace)
	return same(t, "account", got, err, func() (ledger.Balance, error) { return t.second.Account(workspace) })
}

func (t *twin) Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error) {
	got, err := t.first.Credit(workspace, by, available)
	return same(t, "credit", got, err, func() (int64, error) { return t.second.Credit(workspace, by, available) })
}

func (t *twin) Enter(entries ...transitions.Entry) error {
	return done(t, "enter", t.first.Enter(entries...), func() error { return t.second.Enter(entries...) })
}

func (t *twin) Granted(id uuid.UUID) (transitions.Entry, bool, error) {
	got := func(e transitions.Entry, found bool, err error) (granted, error) {
		e.Reason = ""
		return granted{e, found}, err
	}
	answer, err := got(t.first.Granted(id))
	answer, err = same(t, "granted", answer, err, func() (granted, error) { return got(t.second.Granted(id)) })
	return answer.entry, answer.found, err
}

func (t *twin) Log(l ledger.LogLine) error {
	return done(t, "log", t.first.Log(l), func() error { return t.second.Log(l) })
}

func (t *twin) Read(id uuid.UUID) (*transitions.Row, error) {
	got, err := t.first.Read(id)
	return same(t, "read", got, err, func() (*transitions.Row, error) { return t.second.Read(id) })
}

func (t *twin) Await(id uuid.UUID) (*transitions.Row, error) {
	got, err := t.first.Await(id)
	return same(t, "await", got, err, func() (*transitions.Row, error) { return t.second.Await(id) })
}

func (t *twin) ReadOf(workspace, id uuid.UUID) (*transitions.Row, error) {
	got, err := t.first.ReadOf(workspace, id)
	return same(t, "read of", got, err, func() (*transitions.Row, error) { return t.second.ReadOf(workspace, id) })
}

func (t *twin) ReadIdentity(workspace, key uuid.UUID) (*transitions.Row, error) {
	got, err := t.first.ReadIdentity(workspace, key)
	return same(t, "read identity", got, err,
		func() (*transitions.Row, error) { return t.second.ReadIdentity(workspace, key) })
}

func (t *twin) Open(workspace uuid.UUID) (int64, error) {
	got, err := t.first.Open(workspace)
	return same(t, "open", got, err, func() (int64, error) { return t.second.Open(workspace) })
}

func (t *twin) Unfunded(workspace uuid.UUID) (*transitions.Row, error) {
	got, err := t.first.Unfunded(workspace)
	return same(t, "unfunded", got, err, func() (*transitions.Row, error) { return t.second.Unfunded(workspace) })
}

func (t *twin) Short(workspace uuid.UUID) (map[uuid.UUID]int64, error) {
	got, err := t.first.Short(workspace)
	return same(t, "short", got, err, func() (map[uuid.UUID]int64, error) { return t.second.Short(workspace) })
}

func (t *twin) Tell(id uuid.UUID, message string) error {
	return done(t, "tell", t.first.Tell(id, message), func() error { return t.second.Tell(id, message) })
}

func (t *twin) Insert(n ledger.NewVerification, single string) error {
	return done(t, "insert", t.first.Insert(n, single), func() error { return t.second.Insert(n, single) })
}

func (t *twin) Move(s transitions.Step) (int64, error) {
	got, err := t.first.Move(s)
	return same(t, "move", got, err, func() (int64, error) { return t.second.Move(s) })
}

func (t *twin) Measure(s transitions.Step) (int64, error) {
	got, err := t.first.Measure(s)
	return same(t, "measure", got, err, func() (int64, error) { return t.second.Measure(s) })
}

func (t *twin) Fence(id uuid.UUID, from, to int64) (int64, error) {
	got, err := t.first.Fence(id, from, to)
	return same(t, "fence", got, err, func() (int64, error) { return t.second.Fence(id, from, to) })
}

func (t *twin) Chunk(id uuid.UUID, offset int64) ([]byte, error) {
	got, err := t.first.Chunk(id, offset)
	return same(t, "chunk", got, err, func() ([]byte, error) { return t.second.Chunk(id, offset) })
}

func (t *twin) Append(id uuid.UUID, offset int64, data []byte) error {
	return done(t, "append", t.first.Append(id, offset, data), func() error { return t.second.Append(id, offset, data) })
}

func (t *twin) Lengthen(id uuid.UUID, writer, from, to int64) (int64, error) {
	got, err := t.first.Lengthen(id, writer, from, to)
	return same(t, "lengthen", got, err, func() (int64, error) { return t.second.Lengthen(id, writer, from, to) })
}

func (t *twin) Free(limit int, except []uuid.UUID) ([]*transitions.Row, error) {
	got, err := list(t.first.Free(limit, except))
	return same(t, "free", got, err, func() ([]*transitions.Row, error) { return list(t.second.Free(limit, except)) })
}

func (t *twin) KeepParked(id uuid.UUID, state []byte) error {
	return done(t, "keep parked", t.first.KeepParked(id, state), func() error { return t.second.KeepParked(id, state) })
}

func (t *twin) ForgetParked(id uuid.UUID) error {
	return done(t, "forget parked", t.first.ForgetParked(id), func() error { return t.second.ForgetParked(id) })
}

func (t *twin) Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error) {
	got, err := t.first.Take(id, node, epoch, ttl)
	return same(t, "take", got, err, func() (int64, error) { return t.second.Take(id, node, epoch, ttl) })
}

func (t *twin) Renew(node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error) {
	// Their order is the database's: compared as a set.
	set := func(leases []ledger.Lease, err error) (map[ledger.Lease]bool, error) {
		m := map[ledger.Lease]bool{}
		for _, l := range leases {
			m[l] = true
		}
		return m, err
	}
	got, err := t.first.Renew(node, ttl)
	mine, err := set(got, err)
	_, err = same(t, "renew", mine, err, func() (map[ledger.Lease]bool, error) { return set(t.second.Renew(node, ttl)) })
	return got, err
}

func (t *twin) Drop(id uuid.UUID, epoch int64) (int64, error) {
	got, err := t.first.Drop(id, epoch)
	return same(t, "drop", got, err, func() (int64, error) { return t.second.Drop(id, epoch) })
}

func (t *twin) Settle(n ledger.Settlement, p ledger.Payload) error {
	return done(t, "settle", t.first.Settle(n, p), func() error { return t.second.Settle(n, p) })
}

func (t *twin) KeepEvidence(n ledger.Settlement) error {
	return done(t, "keep evidence", t.first.KeepEvidence(n), func() error { return t.second.KeepEvidence(n) })
}

func (t *twin) Count(s transitions.Step) (int64, error) {
	got, err := t.first.Count(s)
	return same(t, "count", got, err, func() (int64, error) { return t.second.Count(s) })
}

func (t *twin) Settled(id uuid.UUID, number int64) (int64, []byte, error) {
	as := func(epoch int64, digest []byte, err error) (settledAs, error) {
		return settledAs{epoch, string(digest)}, err
	}
	got, err := as(t.first.Settled(id, number))
	got, err = same(t, "settled", got, err, func() (settledAs, error) { return as(t.second.Settled(id, number)) })
	return got.epoch, []byte(got.digest), err
}

func (t *twin) Ordinals(id uuid.UUID, number int64) ([]int64, error) {
	got, err := t.first.Ordinals(id, number)
	return same(t, "ordinals", got, err, func() ([]int64, error) { return t.second.Ordinals(id, number) })
}

func (t *twin) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	return done(t, "log", t.first.LogIn(workspace, l), func() error { return t.second.LogIn(workspace, l) })
}

func (t *twin) NextGeneration() (int64, error) {
	got, err := t.first.NextGeneration()
	return same(t, "next turn", got, err, t.second.NextGeneration)
}

func (t *twin) Refresh(b ledger.Heartbeat) (int64, error) {
	got, err := t.first.Refresh(b)
	return same(t, "refresh", got, err, func() (int64, error) { return t.second.Refresh(b) })
}

func (t *twin) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	got, err := t.first.Publish(b, turn)
	return same(t, "publish", got, err, func() (int64, error) { return t.second.Publish(b, turn) })
}

func (t *twin) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
	got, err := t.first.Enrol(b, turn)
	return same(t, "enrol", got, err, func() (int64, error) { return t.second.Enrol(b, turn) })
}

func (t *twin) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
	got, err := t.first.End(before, e)
	return same(t, "end", got, err, func() (int64, error) { return t.second.End(before, e) })
}

func (t *twin) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	got, err := t.first.AskDrain(session, asked)
	return same(t, "ask drain", got, err, func() (int64, error) { return t.second.AskDrain(session, asked) })
}

func (t *twin) Remove(session uuid.UUID) (int64, error) {
	got, err := t.first.Remove(session)
	return same(t, "remove", got, err, func() (int64, error) { return t.second.Remove(session) })
}

func (t *twin) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
	as := func(row *ledger.NodeRow, now int64, err error) (rowAt, error) { return rowAt{row, now}, err }
	got, err := as(t.first.Node(session))
	got, err = same(t, "node", got, err, func() (rowAt, error) { return as(t.second.Node(session)) })
	return got.row, got.now, err
}

// rowAt is the answer of Node.
type rowAt struct {
	row *ledger.NodeRow
	now int64
}

func (t *twin) ReadNodes() (ledger.NodeSnapshot, error) {
	got, err := t.first.ReadNodes()
	return same(t, "roll", got, err, t.second.ReadNodes)
}

func (t *twin) Learn(facts []ledger.Fact) error {
	return done(t, "learn", t.first.Learn(facts), func() error { return t.second.Learn(facts) })
}

func (t *twin) Known(keys []string) ([]ledger.Fact, error) {
	// Their order is the database's: compared by key.
	byKey := func(facts []ledger.Fact, err error) (map[string]ledger.Fact, error) {
		m := map[string]ledger.Fact{}
		for _, f := range facts {
			m[f.Key] = f
		}
		return m, err
	}
	got, err := t.first.Known(keys)
	mine, err := byKey(got, err)
	_, err = same(t, "known", mine, err, func() (map[string]ledger.Fact, error) { return byKey(t.second.Known(keys)) })
	return got, err
}
