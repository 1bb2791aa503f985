package transitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// WriteHeartbeat writes the row of a process and then reads all rows. A usual heartbeat is one statement that reads
// only its own row, so that nodes do not conflict.
func (e Engine) WriteHeartbeat(ctx context.Context, beat ledger.Heartbeat) (ledger.NodeSnapshot, error) {
	if err := beat.Check(); err != nil {
		return ledger.NodeSnapshot{}, fmt.Errorf("heartbeat of node %s: %w", beat.Node, err)
	}
	err := e.db.writeFree(ctx, func(t Tables) error {
		n, err := t.Refresh(beat)
		if err != nil || n == 1 {
			return err
		}
		row, _, err := t.Node(beat.Session)
		if err != nil {
			return err
		}
		if row == nil || row.Status != ledger.NodeIn || row.Cluster != beat.Cluster {
			return enrol(t, beat)
		}
		turn, err := t.NextGeneration()
		if err != nil {
			return err
		}
		n, err = t.Publish(beat, turn)
		return one(n, err, "publish view")
	})
	if err != nil {
		return ledger.NodeSnapshot{}, fmt.Errorf("heartbeat of node %s: %w", beat.Node, err)
	}
	return e.ReadNodes(ctx)
}

// enrol begins a row. It refuses a row of another cluster.
func enrol(t Tables, beat ledger.Heartbeat) error {
	roll, err := t.ReadNodes()
	if err != nil {
		return err
	}
	for _, other := range roll.Nodes {
		if other.Status == ledger.NodeIn && other.Session != beat.Session && other.Cluster != beat.Cluster {
			return fmt.Errorf("cluster %q, not %q: %w", other.Cluster, beat.Cluster, ledger.ErrOtherCluster)
		}
	}
	turn, err := t.NextGeneration()
	if err != nil {
		return err
	}
	n, err := t.Enrol(beat, turn)
	return one(n, err, "begin row")
}

// ReadNodes reads all rows at one moment.
func (e Engine) ReadNodes(ctx context.Context) (ledger.NodeSnapshot, error) {
	return ledger.Run(ctx, e.db.View, Tables.ReadNodes, "read the roll of nodes")
}

// Leave ends a process's row at its own wish.
func (e Engine) Leave(ctx context.Context, session uuid.UUID) error {
	return ledger.Wrap(e.db.writeFree(ctx, func(t Tables) error {
		row, _, err := t.Node(session)
		switch {
		case err != nil || row == nil || row.Status == ledger.NodeLeft:
			return err
		case row.Status == ledger.NodeLost: // its end already has a generation
			return end(t, row, Ending{Status: ledger.NodeLeft, Generation: row.Generation})
		}
		return endWithGeneration(t, row, Ending{Status: ledger.NodeLeft})
	}), "leave of process %s", session)
}

// Retire ends a row whose last heartbeat is older than after. The leases of a dead process end with it, unless its node
// runs again.
func (e Engine) Retire(ctx context.Context, session uuid.UUID, after time.Duration, dead bool) error {
	return ledger.Wrap(e.db.writeFree(ctx, func(t Tables) error {
		row, now, err := t.Node(session)
		if err != nil || row == nil || fresh(ledger.Clock(now), row, after) {
			return err
		}
		if err := retire(t, row, dead); err != nil || !dead {
			return err
		}
		roll, err := t.ReadNodes()
		if err != nil || slices.ContainsFunc(roll.Nodes, func(other ledger.NodeRow) bool {
			return other.Node == row.Node && other.Session != session && other.Status == ledger.NodeIn
		}) {
			return err
		}
		_, err = t.Renew(row.Node, 0)
		return err
	}), "retire process %s", session)
}

// fresh reports whether a process is in and was seen within the time.
func fresh(now time.Time, row *ledger.NodeRow, within time.Duration) bool {
	return row.Status == ledger.NodeIn && now.Sub(row.Seen) < within
}

// retire marks the row of a member as lost, in a new generation. If dead is set, it marks a lost row as dead.
func retire(t Tables, row *ledger.NodeRow, dead bool) error {
	switch {
	case row.Status == ledger.NodeIn:
		return endWithGeneration(t, row, Ending{Status: ledger.NodeLost, Dead: dead})
	case row.Status == ledger.NodeLost && dead && !row.Dead:
		return end(t, row, Ending{Status: ledger.NodeLost, Dead: true, Generation: row.Generation})
	}
	return nil
}

func endWithGeneration(t Tables, row *ledger.NodeRow, e Ending) (err error) {
	if e.Generation, err = t.NextGeneration(); err != nil {
		return err
	}
	return end(t, row, e)
}

// end writes the end of a row, if it is unchanged since it was read.
func end(t Tables, row *ledger.NodeRow, e Ending) error {
	n, err := t.End(row, e)
	return one(n, err, "end row")
}

// AskDrain stores an operator's request to drain in the rows of a node.
func (e Engine) AskDrain(ctx context.Context, node uuid.UUID) error {
	return ledger.Wrap(e.wantDrain(ctx, node, true, "node drain"), "ask node %s to drain", node)
}

// Undrain withdraws an operator's request to drain.
func (e Engine) Undrain(ctx context.Context, node uuid.UUID) error {
	return ledger.Wrap(e.wantDrain(ctx, node, false, "node undrain"), "take back that node %s drains", node)
}

// wantDrain stores whether an operator wants a node to drain, and logs each row that changes.
func (e Engine) wantDrain(ctx context.Context, node uuid.UUID, asked bool, action string) error {
	found := false // by any run: after a committed run, the node may be removed
	return e.db.writeFree(ctx, func(t Tables) error {
		roll, err := t.ReadNodes()
		if err != nil {
			return err
		}
		for _, row := range roll.Nodes {
			if row.Node != node || row.Status == ledger.NodeLeft || row.Dead {
				continue
			}
			if found = true; row.DrainAsked == asked {
				continue
			}
			n, err := t.AskDrain(row.Session, asked)
			if err := one(n, err, action); err != nil {
				return err
			}
			if err := t.Log(ledger.LogLine{Action: action, Subject: node.String(), New: row.Session.String()}); err != nil {
				return err
			}
		}
		if !found {
			return ledger.ErrNoSuchNode
		}
		return nil
	})
}

// Forget ends a node that an operator declares dead.
func (e Engine) Forget(ctx context.Context, node uuid.UUID, after time.Duration) error {
	// An earlier run may have been committed without our knowledge: the id keeps the log to one line.
	done, line := false, uuid.Must(uuid.NewV7())
	return ledger.Wrap(e.db.writeFree(ctx, func(t Tables) error {
		roll, err := t.ReadNodes()
		if err != nil {
			return err
		}
		var rows []*ledger.NodeRow
		for i := range roll.Nodes {
			if row := &roll.Nodes[i]; row.Node == node {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 && done {
			return nil // by an earlier run
		}
		err = forget(t, roll, rows, after, line)
		done = done || err == nil // a failed run says nothing about earlier ones
		return err
	}), "forget node %s", node)
}

// forget removes the rows with an end that every process has read, and ends the others; line is the id of its log line.
func forget(t Tables, roll ledger.NodeSnapshot, rows []*ledger.NodeRow, after time.Duration, line uuid.UUID) error {
	if len(rows) == 0 {
		return ledger.ErrNoSuchNode
	}
	for _, row := range rows {
		if fresh(roll.Now, row, after) {
			return ledger.ErrNodeAlive
		}
	}
	changed := false
	for _, row := range rows {
		var err error
		switch {
		case row.Status != ledger.NodeIn && readByAll(roll, row):
			err = remove(t, row)
		case row.Status == ledger.NodeIn:
			err = endWithGeneration(t, row, Ending{Status: ledger.NodeLost, Dead: true, Forgotten: true})
		case row.Status == ledger.NodeLost && !row.Dead || len(row.Silent) > 0:
			err = end(t, row, Ending{Status: row.Status, Generation: row.Generation, Forgotten: true,
				Dead: row.Status == ledger.NodeLost})
		default:
			continue // its end is written, but not yet read by all
		}
		if err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return t.Log(ledger.LogLine{ID: line, Action: "node forget", Subject: rows[0].Node.String()})
}

// Clear removes the rows of all processes. Error: ledger.ErrNodeAlive if a joined one was seen within the time.
func Clear(t Tables, within time.Duration) error {
	roll, err := t.ReadNodes()
	if err != nil {
		return err
	}
	for _, row := range roll.Nodes {
		if fresh(roll.Now, &row, within) {
			return fmt.Errorf("node %q at %s works on it, seen %s ago: %w", row.Name, row.Actors,
				roll.Now.Sub(row.Seen).Round(time.Second), ledger.ErrNodeAlive)
		}
	}
	for _, row := range roll.Nodes {
		if err := remove(t, &row); err != nil {
			return err
		}
	}
	return nil
}

func remove(t Tables, row *ledger.NodeRow) error {
	n, err := t.Remove(row.Session)
	return one(n, err, "remove row")
}

// readByAll reports whether every joined process has read a row's generation.
func readByAll(roll ledger.NodeSnapshot, row *ledger.NodeRow) bool {
	return !slices.ContainsFunc(roll.Nodes, func(other ledger.NodeRow) bool {
		return other.Status == ledger.NodeIn && other.Session != row.Session && other.Read < row.Generation
	})
}

// Learn stores facts about receivers.
func (e Engine) Learn(ctx context.Context, facts []ledger.Fact) error {
	if err := ledger.CheckFacts(facts); err != nil {
		return fmt.Errorf("learn: %w", err)
	}
	if len(facts) == 0 {
		return nil
	}
	facts = lastByKey(facts)
	return ledger.Wrap(e.db.writeFree(ctx, func(t Tables) error { return t.Learn(facts) }), "learn %d facts", len(facts))
}

// lastByKey returns the last fact of each key, sorted by key, so that two nodes that learn the same facts lock them
// in the same order.
func lastByKey(facts []ledger.Fact) []ledger.Fact {
	sorted := slices.Clone(facts)
	slices.Reverse(sorted)
	slices.SortStableFunc(sorted, func(a, b ledger.Fact) int { return cmp.Compare(a.Key, b.Key) })
	return slices.CompactFunc(sorted, func(a, b ledger.Fact) bool { return a.Key == b.Key })
}

// Known returns the unexpired facts of some keys.
func (e Engine) Known(ctx context.Context, keys []string) ([]ledger.Fact, error) {
	if len(keys) > ledger.FactsMax {
		return nil, fmt.Errorf("read facts of %d keys, %d are allowed: %w", len(keys), ledger.FactsMax, ledger.ErrIllegal)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	// Skip the lookup for keys that cannot exist.
	keys = slices.DeleteFunc(keys, func(key string) bool { return ledger.CheckText(key) != nil })
	return ledger.Run(ctx, e.db.View, func(t Tables) ([]ledger.Fact, error) { return t.Known(keys) },
		"read facts of %d keys", len(keys))
}
