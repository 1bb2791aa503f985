package simulation

import (
	"bytes"
	"maps"
	"slices"

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
	log       []ledger.LogLine // it only grows

	corrections []ledger.Correction // it only grows

	lines []ledger.WorkspaceLine // of the logs of workspaces; it only grows
}

// copied returns a cluster that shares nothing that changes.
func (c *cluster) copied() *cluster {
	return &cluster{nodes: maps.Clone(c.nodes), turn: c.turn, facts: maps.Clone(c.facts),
		overrides: maps.Clone(c.overrides), log: c.log, corrections: c.corrections, lines: c.lines}
}

// alter returns the tables to write to.
func (m *memory) alter() *cluster {
	if m.clusterWas == nil {
		m.clusterWas = m.cluster.copied()
	}
	return m.cluster
}

// alterNode changes a row if it is there and the condition holds.
func (m *memory) alterNode(session uuid.UUID, holds func(n *ledger.NodeRow) bool,
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
func (m *memory) NextGeneration() (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	c := m.alter()
	c.turn++
	return c.turn, nil
}

// heartbeat is a heartbeat as its row keeps it.
func beat(b ledger.Heartbeat) ledger.Heartbeat {
	b.Started = ledger.Clock(ledger.Millis(b.Started))
	b.View = append([]ledger.Incarnation{}, b.View...)
	b.Silent = append([]uint64(nil), b.Silent...)
	return b
}

// Refresh writes a heartbeat that publishes nothing.
func (m *memory) Refresh(b ledger.Heartbeat) (int64, error) {
	return m.alterNode(b.Session, func(n *ledger.NodeRow) bool {
		return n.Status == ledger.NodeIn && slices.Equal(n.View, b.View) && n.Cluster == b.Cluster
	}, func(n *ledger.NodeRow) { n.Heartbeat, n.Seen = beat(b), ledger.Clock(m.now) })
}

// Publish writes a heartbeat with another view.
func (m *memory) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	return m.alterNode(b.Session, func(n *ledger.NodeRow) bool { return n.Status == ledger.NodeIn },
		func(n *ledger.NodeRow) {
			n.Before = nil
			if len(n.View) > 0 {
				n.Before = n.View
			}
			n.Heartbeat, n.Generation, n.Seen = beat(b), turn, ledger.Clock(m.now)
		})
}

// Enrol writes a heartbeat in a new row, or in place of the one that stood.
func (m *memory) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
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
func (m *memory) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
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
func (m *memory) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	return m.alterNode(session, func(*ledger.NodeRow) bool { return true },
		func(n *ledger.NodeRow) { n.DrainAsked = asked })
}

// Remove deletes a row.
func (m *memory) Remove(session uuid.UUID) (int64, error) {
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
func (m *memory) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
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
func (m *memory) ReadNodes() (ledger.NodeSnapshot, error) {
	if err := m.statement(); err != nil || len(m.cluster.nodes) == 0 {
		return ledger.NodeSnapshot{}, err
	}
	return ledger.NodeSnapshot{Now: ledger.Clock(m.now), Generation: m.cluster.turn,
		Nodes: slices.SortedFunc(maps.Values(m.cluster.nodes), func(a, b ledger.NodeRow) int {
			return bytes.Compare(a.Session[:], b.Session[:])
		})}, nil
}

// Learn writes facts, in place of those with the same keys.
func (m *memory) Learn(facts []ledger.Fact) error {
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
func (m *memory) Known(keys []string) (facts []ledger.Fact, err error) {
	for _, key := range keys {
		if f, found := m.cluster.facts[key]; found && ledger.Millis(f.Expires) > m.now {
			facts = append(facts, f)
		}
	}
	return facts, m.statement()
}
