package ledgertest

import (
	"bytes"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// life makes a process of a node; the zero node stands for a new one.
func life(node uuid.UUID) ledger.Incarnation {
	if node == uuid.Nil {
		node = uuid.New()
	}
	return ledger.Incarnation{Session: uuid.New(), Node: node}
}

// heartbeatOf is the heartbeat of a process that sees itself and others.
func heartbeatOf(p ledger.Incarnation, others ...ledger.Incarnation) ledger.Heartbeat {
	view := append([]ledger.Incarnation{p}, others...)
	slices.SortFunc(view, func(a, b ledger.Incarnation) int { return bytes.Compare(a.Session[:], b.Session[:]) })
	return ledger.Heartbeat{Incarnation: p, Cluster: "here", Name: "node.test", Version: "1", Actors: "192.0.2.1:7000",
		Started: time.UnixMilli(1_700_000_000_001).UTC(), View: view}
}

// Heartbeats writes a heartbeat and gives the process's row after it, and the roll.
func (d *Fixture) Beats(b ledger.Heartbeat) (ledger.NodeRow, ledger.NodeSnapshot) {
	d.T.Helper()
	roll, err := d.WriteHeartbeat(d.T.Context(), b)
	d.ok(err)
	return d.rowIn(roll, b.Session), roll
}

// rowIn returns the row of a session.
func (d *Fixture) rowIn(roll ledger.NodeSnapshot, session uuid.UUID) ledger.NodeRow {
	d.T.Helper()
	n := rowOf(roll, session)
	if n == nil {
		d.T.Fatalf("process %s is not among the %d rows", session, len(roll.Nodes))
	}
	return *n
}

// row reads the row of a session.
func (d *Fixture) row(session uuid.UUID) ledger.NodeRow {
	d.T.Helper()
	roll, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	return d.rowIn(roll, session)
}
