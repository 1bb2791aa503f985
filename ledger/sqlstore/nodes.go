package sqlstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// The statements for the rows of the cluster's processes.

// identitySecret is the name of the secret that gives the ledger's id.
const identitySecret = "ledger identity"

// Identity returns the ledger's own id, made once. A restored backup has the same id until RenewIdentity.
func (s secrets) Identity(ctx context.Context) (uuid.UUID, error) {
	value, err := s.Secret(ctx, identitySecret, len(uuid.UUID{}))
	if err != nil {
		return uuid.Nil, fmt.Errorf("ledger's identity: %w", err)
	}
	return identityOf(value)
}

// identityOf returns the id that a secret gives.
func identityOf(value []byte) (uuid.UUID, error) {
	id, err := uuid.NewRandomFromReader(bytes.NewReader(value))
	return id, ledger.Wrap(err, "ledger's identity")
}

// RenewIdentity gives the ledger a new id, removes the rows of all processes, and returns both ids. It changes
// nothing and returns ledger.ErrNodeAlive when a joined process was seen within the time; ledger.ErrIllegal for a
// reason that cannot be stored. Only the owner of the tables may do it, nodes may not (deploy/rights.sql).
func (s secrets) RenewIdentity(ctx context.Context, within time.Duration, reason string) (was, is uuid.UUID, err error) {
	if err := ledger.CheckOperatorText("reason", reason); err != nil {
		return was, is, err
	}
	if was, err = s.Identity(ctx); err != nil {
		return was, is, err
	}
	value := make([]byte, len(uuid.UUID{}))
	if _, err := rand.Read(value); err != nil {
		return was, is, fmt.Errorf("ledger's identity: %w", err)
	}
	if is, err = identityOf(value); err != nil {
		return was, is, err
	}
	err = s.update(ctx, func(t *tx) error {
		var stands []byte
		err := t.Row(`SELECT value FROM secrets WHERE name = ?`, identitySecret).Scan(&stands)
		if err != nil || bytes.Equal(stands, value) { // an earlier run was committed without our knowledge
			return err
		}
		if err := transitions.Clear(t, within); err != nil {
			return err
		}
		if _, err := t.Exec(`UPDATE secrets SET value = ?, created = {now} WHERE name = ?`, value, identitySecret); err != nil {
			return err
		}
		return t.Log(ledger.LogLine{Action: "ledger renew", Old: was.String(), New: is.String(), Reason: reason})
	})
	return was, is, ledger.Wrap(err, "renew the ledger's identity")
}

// NextGeneration returns the next generation. The transaction locks the counter until its end, so that generations
// are committed in order.
func (t processRows) NextGeneration() (turn int64, err error) {
	return engine.Value[int64](t, "take a turn", `UPDATE cluster_turn SET turn = turn + 1 WHERE one = 1 RETURNING turn`)
}

// sets are the columns that every heartbeat writes, and written their values.
const sets = `node = ?, cluster = ?, name = ?, version = ?, actors = ?, draining = ?, started = ?,
	read_turn = ?, silent = ?, leases = ?, addresses = ?, receivers = ?, seen = {now}`

func written(b ledger.Heartbeat) []any {
	return []any{b.Node[:], b.Cluster, b.Name, b.Version, b.Actors, stored(b.Draining), ledger.Millis(b.Started),
		b.Read, packedHashes(b.Silent), b.Leases, b.Addresses, b.Receivers}
}

func stored(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Refresh writes a heartbeat that changes no share.
func (t processRows) Refresh(b ledger.Heartbeat) (int64, error) {
	return t.Exec(`UPDATE nodes SET `+sets+`
		WHERE session = ? AND standing = 0 AND current_view = ? AND cluster = ?`,
		append(written(b), b.Session[:], packed(b.View), b.Cluster)...)
}

func (t processRows) Publish(b ledger.Heartbeat, turn int64) (int64, error) {
	return t.Exec(`UPDATE nodes SET `+sets+`, before_view = current_view, current_view = ?, turn = ?
		WHERE session = ? AND standing = 0`, append(written(b), packed(b.View), turn, b.Session[:])...)
}

func (t processRows) Enrol(b ledger.Heartbeat, turn int64) (int64, error) {
	return t.Exec(`INSERT INTO nodes (node, cluster, name, version, actors, draining, started,
		read_turn, silent, leases, addresses, receivers, current_view, turn, session, standing, since, seen)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, {now}, {now})
		ON CONFLICT (session) DO UPDATE SET node = excluded.node, cluster = excluded.cluster,
		name = excluded.name, version = excluded.version, actors = excluded.actors,
		draining = excluded.draining, started = excluded.started, read_turn = excluded.read_turn,
		silent = excluded.silent,
		leases = excluded.leases, addresses = excluded.addresses, receivers = excluded.receivers,
		current_view = excluded.current_view, before_view = NULL, turn = excluded.turn,
		standing = 0, since = excluded.since, seen = excluded.seen, dead = 0`,
		append(written(b), packed(b.View), turn, b.Session[:])...)
}

func (t processRows) End(before *ledger.NodeRow, e transitions.Ending) (int64, error) {
	return t.Exec(`UPDATE nodes SET standing = ?, turn = ?, dead = ?,
		since = CASE WHEN standing = ? THEN since ELSE {now} END,
		before_view = CASE WHEN read_turn >= turn THEN NULL ELSE before_view END,
		silent = CASE WHEN ? = 1 THEN NULL ELSE silent END
		WHERE session = ? AND standing = ? AND turn = ?`,
		e.Status, e.Generation, stored(e.Dead), e.Status, stored(e.Forgotten), before.Session[:], before.Status,
		before.Generation)
}

func (t processRows) AskDrain(session uuid.UUID, asked bool) (int64, error) {
	return t.Exec(`UPDATE nodes SET drain_asked = ? WHERE session = ?`, stored(asked), session[:])
}

func (t processRows) Remove(session uuid.UUID) (int64, error) {
	return t.Exec(`DELETE FROM nodes WHERE session = ?`, session[:])
}

const nodeColumns = `session, node, cluster, name, version, actors, draining, started, current_view,
	before_view, read_turn, leases, addresses, receivers, silent, standing, since, seen, turn, dead, drain_asked`

// scanNode reads nodeColumns into a row, and further columns into more.
func scanNode(scan engine.Scan, more ...any) (ledger.NodeRow, error) {
	var n ledger.NodeRow
	var view, before, silent []byte
	err := scan(append([]any{&n.Session, &n.Node, &n.Cluster, &n.Name, &n.Version, &n.Actors, &n.Draining,
		engine.At(&n.Started), &view, &before, &n.Read, &n.Leases, &n.Addresses, &n.Receivers, &silent, &n.Status,
		engine.At(&n.Since), engine.At(&n.Seen), &n.Generation, &n.Dead, &n.DrainAsked}, more...)...)
	if err != nil {
		return n, err
	}
	n.View, n.Silent = unpacked(view), unpackedHashes(silent)
	if len(before) > 0 { // an empty one may be read as nil
		n.Before = unpacked(before)
	}
	return n, nil
}

func (t processRows) Node(session uuid.UUID) (*ledger.NodeRow, int64, error) {
	var now int64
	n, err := engine.Find(t, "read node's row", func(scan engine.Scan) (ledger.NodeRow, error) {
		return scanNode(scan, &now)
	}, `SELECT `+nodeColumns+`, {now} FROM nodes WHERE session = ?`, session[:])
	return n, now, err
}

// ReadNodes reads all rows and the counter in one statement, so at one moment.
func (t processRows) ReadNodes() (ledger.NodeSnapshot, error) {
	var snapshot ledger.NodeSnapshot
	var err error
	snapshot.Nodes, err = engine.List(t, "read nodes", func(scan engine.Scan) (ledger.NodeRow, error) {
		return scanNode(scan, &snapshot.Generation, engine.At(&snapshot.Now))
	}, `SELECT `+nodeColumns+`, (SELECT turn FROM cluster_turn WHERE one = 1), {now} FROM nodes ORDER BY session`)
	return snapshot, err
}

// packed returns the stored form of a view: 32 bytes for each process.
func packed(view []ledger.Incarnation) []byte {
	b := make([]byte, 0, 2*len(uuid.UUID{})*len(view))
	for _, p := range view {
		b = append(append(b, p.Session[:]...), p.Node[:]...)
	}
	return b
}

func unpacked(b []byte) []ledger.Incarnation {
	const size = len(uuid.UUID{})
	view := make([]ledger.Incarnation, 0, len(b)/(2*size))
	for ; len(b) >= 2*size; b = b[2*size:] {
		view = append(view, ledger.Incarnation{Session: uuid.UUID(b[:size]), Node: uuid.UUID(b[size : 2*size])})
	}
	return view
}

// packedHashes returns the stored form of silent receivers: 8 bytes for each; nil for none.
func packedHashes(list []uint64) (b []byte) {
	for _, h := range list {
		b = binary.BigEndian.AppendUint64(b, h)
	}
	return b
}

func unpackedHashes(b []byte) (list []uint64) {
	const size = 8
	for ; len(b) >= size; b = b[size:] {
		list = append(list, binary.BigEndian.Uint64(b))
	}
	return list
}

func textArg(text string) any { return text }

func (t processRows) Learn(facts []ledger.Fact) error {
	return engine.InHandfuls(facts, func(part []ledger.Fact) error {
		args := make([]any, 0, 3*len(part))
		for _, f := range part {
			args = append(args, f.Key, append([]byte{}, f.Data...), ledger.Millis(f.Expires))
		}
		_, err := t.Exec(`INSERT INTO receiver_facts (receiver, data, expires, updated) VALUES (?, ?, ?, {now})`+
			strings.Repeat(`, (?, ?, ?, {now})`, len(part)-1)+`
			ON CONFLICT (receiver) DO UPDATE SET data = excluded.data, expires = excluded.expires,
			updated = excluded.updated`, args...)
		return err
	})
}

// Known reads the unexpired facts of some keys.
func (t processRows) Known(keys []string) (facts []ledger.Fact, err error) {
	err = engine.In(keys, textArg, func(in string, args []any) error {
		more, err := engine.List(t, "read facts", func(scan engine.Scan) (ledger.Fact, error) {
			f := ledger.Fact{Data: []byte{}}
			var data []byte
			err := scan(&f.Key, &data, engine.At(&f.Expires))
			f.Data = append(f.Data, data...) // an empty one may be read as nil
			return f, err
		}, `SELECT receiver, data, expires FROM receiver_facts WHERE receiver`+in+` AND expires > {now}`, args...)
		facts = append(facts, more...)
		return err
	})
	return facts, err
}
