package simulation

import (
	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

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
	_, err = same(t, "known", mine, err,
		func() (map[string]ledger.Fact, error) { return byKey(t.second.Known(keys)) })
	return got, err
}
