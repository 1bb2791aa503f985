package simulation

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// cluster is the tables of processes, turns, facts and of what operators do. They
// are small: a transaction that changes one keeps a copy of all as it was.
type cluster struct {
	nodes     map[uuid.UUID]ledger.NodeRow
	turn      int64
	facts     map[string]ledger.Fact
	overrides map[uuid.UUID]overridden
	log       []ledger.LogLine // only grows
}

type clusterTables struct{ *transaction }

// copied returns a cluster that shares nothing that changes.
func (c *cluster) copied() *cluster {
	return &cluster{nodes: maps.Clone(c.nodes), turn: c.turn, facts: maps.Clone(c.facts),
		overrides: maps.Clone(c.overrides), log: slices.Clip(c.log)}
}

// alter returns the tables to write to.
func (m *clusterTables) alter() *cluster {
	if m.cluster == m.was.cluster {
		m.cluster = m.cluster.copied()
	}
	return m.cluster
}

// alterNode changes a row if it is there and the condition holds.
func (m *clusterTables) alterNode(session uuid.UUID, holds func(n *ledger.NodeRow) bool,
	change func(n *ledger.NodeRow)) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	n, found := m.cluster.nodes[session]
	if !found || !holds(&n) {
		return 0, nil
	}
	change(&n)
	m.alter().nodes[session] = n
	return 1, nil
}

// NextGeneration takes the next turn from the counter.
func (m *clusterTables) NextGeneration() (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	c := m.alter()
	c.turn++
	return c.turn, nil
}

// beat returns a heartbeat as its row stores it.
func beat(b ledger.Heartbeat) ledger.Heartbeat {
	b.Started = ledger.Clock(ledger.Millis(b.Started))
	b.View = append([]ledger.Incarnation{}, b.View...)
	b.Silent = append([]uint64(nil), b.Silent...)
	return b
}

// Refresh writes a heartbeat that publishes nothing.
func (m *clusterTables) Refresh(b ledger.Heartbeat) (int64, error) {
	return m.alterNode(b.Session, func(n *ledger.NodeRow) bool {
		return n.Status == ledger.NodeIn && slices.Equal(n.View, b.View) && n.Cluster == b.Cluster
	}, func(n *ledger.NodeRow) { n.Heartbeat, n.Seen = beat(b), ledger.Clock(m.now) })
}

// Publish writes a heartbeat with another view.
func (m *clusterTables) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	return m.alterNode(b.Session, func(n *ledger.NodeRow) bool { return n.Status == ledger.NodeIn },
		func(n *ledger.NodeRow) {
			n.Before = nil
			if len(n.View) > 0 {
				n.Before = n.View
			}
			n.Heartbeat, n.Generation, n.Seen = beat(b), turn, ledger.Clock(m.now)
		})
}

// Enrol writes a heartbeat in a new row, or replaces the row of its process.
func (m *clusterTables) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	now := ledger.Clock(m.now)
	asked := m.cluster.nodes[b.Session].DrainAsked
	m.alter().nodes[b.Session] = ledger.NodeRow{Heartbeat: beat(b), Since: now, Seen: now, Generation: turn,
		DrainAsked: asked}
	return 1, nil
}

// End writes the end of a row if it is as before.
func (m *clusterTables) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
	return m.alterNode(before.Session, func(n *ledger.NodeRow) bool {
		return n.Status == before.Status && n.Generation == before.Generation
	}, func(n *ledger.NodeRow) {
		if n.Read >= n.Generation {
			n.Before = nil
		}
		if n.Status != e.Status {
			n.Since = ledger.Clock(m.now)
		}
		n.Status, n.Generation, n.Dead = e.Status, e.Generation, e.Dead
		if e.Forgotten {
			n.Silent = nil
		}
	})
}

// AskDrain notes in a row whether an operator wants its process to drain.
func (m *clusterTables) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	return m.alterNode(session, func(*ledger.NodeRow) bool { return true },
		func(n *ledger.NodeRow) { n.DrainAsked = asked })
}

// Remove deletes a row.
func (m *clusterTables) Remove(session uuid.UUID) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	if _, found := m.cluster.nodes[session]; !found {
		return 0, nil
	}
	delete(m.alter().nodes, session)
	return 1, nil
}

// Node reads one row, nil when there is none, and the time.
func (m *clusterTables) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
	if err := m.statement(); err != nil {
		return nil, 0, err
	}
	n, found := m.cluster.nodes[session]
	if !found {
		return nil, 0, nil
	}
	return &n, m.now, nil
}

// ReadNodes reads all rows and the counter.
func (m *clusterTables) ReadNodes() (ledger.NodeSnapshot, error) {
	if err := m.statement(); err != nil || len(m.cluster.nodes) == 0 {
		return ledger.NodeSnapshot{}, err
	}
	return ledger.NodeSnapshot{Now: ledger.Clock(m.now), Generation: m.cluster.turn,
		Nodes: slices.SortedFunc(maps.Values(m.cluster.nodes), func(a, b ledger.NodeRow) int {
			return bytes.Compare(a.Session[:], b.Session[:])
		})}, nil
}

// Learn writes facts, in place of those with the same keys.
func (m *clusterTables) Learn(facts []ledger.Fact) error {
	if err := m.statement(); err != nil {
		return err
	}
	for _, f := range facts {
		f.Data, f.Expires = append([]byte{}, f.Data...), ledger.Clock(ledger.Millis(f.Expires))
		m.alter().facts[f.Key] = f
	}
	return nil
}

// Known reads the facts of some keys that have not expired.
func (m *clusterTables) Known(keys []string) (facts []ledger.Fact, err error) {
	for _, key := range keys {
		if f, found := m.cluster.facts[key]; found && ledger.Millis(f.Expires) > m.now {
			facts = append(facts, f)
		}
	}
	return facts, m.statement()
}

// overridden is one row of the overrides.
type overridden struct {
	ledger.ThrottleOverride
	cleared bool
}

// Override reads an override, active or not.
func (m *clusterTables) Override(id uuid.UUID) (*ledger.ThrottleOverride, error) {
	o, found := m.cluster.overrides[id]
	if err := m.statement(); err != nil || !found {
		return nil, err
	}
	return &o.ThrottleOverride, nil
}

// HowMany counts the overrides that hold.
func (m *clusterTables) HowMany() (n int, err error) {
	for _, o := range m.cluster.overrides {
		if o.holds(m.now) {
			n++
		}
	}
	return n, m.statement()
}

func (o overridden) holds(now int64) bool { return !o.cleared && ledger.Millis(o.Expires) > now }

// ActiveOverrides lists the overrides that hold, of a key or of all, oldest first.
func (m *clusterTables) ActiveOverrides(key string) (list []ledger.ThrottleOverride, err error) {
	for _, o := range m.cluster.overrides {
		if o.holds(m.now) && (key == "" || o.Key == key) {
			list = append(list, o.ThrottleOverride)
		}
	}
	slices.SortFunc(list, func(a, b ledger.ThrottleOverride) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return list, m.statement()
}

// InsertOverride writes an override that is active from now on, for a time.
func (m *clusterTables) InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error {
	if err := m.statement(); err != nil {
		return err
	}
	if _, found := m.cluster.overrides[o.ID]; found {
		return m.abort(errKey)
	}
	o.Created, o.Expires = ledger.Clock(m.now), ledger.Clock(m.now+holds.Milliseconds())
	m.alter().overrides[o.ID] = overridden{ThrottleOverride: o}
	return nil
}

// EndOverride ends an override that holds.
func (m *clusterTables) EndOverride(id uuid.UUID) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	o, found := m.cluster.overrides[id]
	if !found || !o.holds(m.now) {
		return 0, nil
	}
	o.cleared = true
	m.alter().overrides[id] = o
	return 1, nil
}

// Lifted reports whether an override was ended before its time.
func (m *clusterTables) Lifted(id uuid.UUID) (bool, error) {
	if m.late != nil && m.late.cluster != m.cluster {
		return false, m.abort(errAgain)
	}
	return m.cluster.overrides[id].cleared, m.statement()
}

// LogIn writes a line of the log of a workspace, which nobody reads here.
func (m *clusterTables) LogIn(uuid.UUID, ledger.WorkspaceLine) error { return m.statement() }

// Limits reads what was set for a workspace: here nobody sets anything.
func (m *memory) Limits(uuid.UUID) (ledger.Limits, error) { return ledger.Limits{}, m.statement() }

// Stored adds up the declared bytes of the verifications whose upload is not erased.
func (m *memory) Stored(workspace uuid.UUID) (sum int64, err error) {
	for _, f := range m.files {
		if f.row.Workspace == workspace && !f.row.UploadDeleted {
			sum += f.row.Bytes
		}
	}
	return sum, m.statement()
}

// Unpaid counts the verifications of late that never held a credit.
func (m *memory) Unpaid(workspace uuid.UUID) (transitions.Unpaid, error) {
	u := transitions.Unpaid{Now: m.now}
	for _, f := range m.files { // oldest first
		created := ledger.Millis(f.row.Created)
		if f.row.Workspace != workspace || f.row.Paid || created <= m.now-ledger.UnpaidWithin.Milliseconds() {
			continue
		}
		if u.Count++; u.Count == 1 {
			u.Oldest = created
		}
	}
	return u, m.statement()
}

// Room is ledger.ErrNoRoom while the disk is full.
func (m *memory) Room() error {
	if err := m.statement(); err != nil {
		return err
	}
	if m.full {
		return ledger.ErrNoRoom
	}
	return nil
}

// EraseUpload deletes at most most chunks.
func (m *memory) EraseUpload(id uuid.UUID, most int64) (left bool, err error) {
	if err := m.statement(); err != nil {
		return false, err
	}
	f := m.change(id)
	left = int64(len(f.chunks)) >= most
	f.chunks = f.chunks[min(most, int64(len(f.chunks))):]
	return left, nil
}
