package ledgertest

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var processes = []exercise{
	{"the ledger has one identity", 0, oneIdentity},
	{"a row is kept as it was said", 0, rowAsSaid},
	{"a beat that says nothing new takes no turn", 0, refreshes},
	{"a view is published in a turn", 0, publishes},
	{"the longest view, and one too long", 0, longViews},
	{"beats that no row can keep", 0, badHeartbeats},
	{"a cluster of another name is refused", 0, otherCluster},
	{"who leaves has left", 0, leaves},
	{"nobody is retired before its time", 0, retiresInTime},
	{"who is lost may be known to be dead later", 0, deadLater},
	{"the leases of the dead end", 5, deadLeases},
	{"the view before goes with a process that had read its last", 0, endsOfViews},
	{"who was retired begins anew", 0, beginsAnew},
	{"silent receivers outlive their process", 0, silentReceivers},
	{"a wish to drain stays", 0, drains},
	{"a wish to drain is taken back", 0, undrains},
	{"a node that was seen is not forgotten", 0, forgetsNoneAlive},
	{"a node is forgotten when all have read its end", 0, forgetsWhenRead},
	{"who left is forgotten", 0, forgetsLeft},
}

func oneIdentity(d *Fixture) {
	first := effort.Must(d.Identity(d.T.Context()))(d.T)
	second := effort.Must(d.Identity(d.T.Context()))(d.T)
	effort.ErrorIf(d.T, first != second || first.Version() != 4 || first.Variant() != uuid.RFC4122,
		"got %s, then %s", first, second)
}

func rowAsSaid(d *Fixture) {
	empty := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	effort.Same(d.T, empty, ledger.NodeSnapshot{}, "before the first beat")
	a, b := heartbeatOf(life(d.Node), life(uuid.Nil)), heartbeatOf(life(uuid.Nil))
	a.Draining, a.Read, a.Leases, a.Addresses, a.Receivers = true, 3, 4, 5, 6
	b.View, b.Cluster, b.Name, b.Version, b.Actors = nil, a.Cluster, "", "", ""
	for _, said := range []ledger.Heartbeat{a, b} {
		row, snapshot := d.Beats(said)
		if said.View == nil {
			said.View = []ledger.Incarnation{}
		}
		want := ledger.NodeRow{Heartbeat: said, Since: row.Since, Seen: row.Seen, Generation: snapshot.Generation}
		effort.ErrorIf(d.T, !reflect.DeepEqual(row, want) || row.Since.IsZero() || row.Seen.Before(row.Since) ||
			snapshot.Now.Before(row.Seen) ||
			snapshot.Generation == 0, "got %+v at turn %d, %v, want %+v", row, snapshot.Generation, snapshot.Now, want)
	}
	snapshot := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	sorted := slices.IsSortedFunc(snapshot.Nodes, func(a, b ledger.NodeRow) int {
		return strings.Compare(string(a.Session[:]), string(b.Session[:]))
	})
	effort.ErrorIf(d.T, len(snapshot.Nodes) != 2 || !sorted,
		"got %d rows, by session: %v, want two", len(snapshot.Nodes), sorted)
}

func refreshes(d *Fixture) {
	b := heartbeatOf(life(d.Node), life(uuid.Nil))
	first, before := d.Beats(b)
	b.Draining, b.Read, b.Leases, b.Addresses, b.Receivers = true, before.Generation, 1, 2, 3
	b.Silent = []uint64{0, 1 << 63, 1<<64 - 1}
	b.Name, b.Version, b.Actors = "other.test", "2", "192.0.2.9:1"
	b.Started = b.Started.Add(time.Second)
	row, snapshot := d.Beats(b)
	for row.Seen == first.Seen && snapshot.Now.Sub(first.Seen) < time.Second { // until the ledger's clock has gone on
		row, snapshot = d.Beats(b)
	}
	want := first
	want.Heartbeat, want.Seen = b, row.Seen
	if !reflect.DeepEqual(row, want) || snapshot.Generation != before.Generation || !row.Seen.After(first.Seen) {
		d.T.Errorf("got %+v at turn %d, want %+v at turn %d", row, snapshot.Generation, want, before.Generation)
	}
}

func publishes(d *Fixture) {
	a, b := life(d.Node), life(uuid.Nil)
	views := [][]ledger.Incarnation{heartbeatOf(a).View, heartbeatOf(a, b).View, {}, heartbeatOf(a).View}
	turn := int64(0)
	for i, view := range views {
		said := heartbeatOf(a)
		said.View = view
		for range 2 { // the second says nothing new
			row, snapshot := d.Beats(said)
			if row.Generation != snapshot.Generation || snapshot.Generation != turn+1 || !slices.Equal(row.View, view) {
				d.T.Errorf("view %d: got %+v at turn %d after %d", i, row, snapshot.Generation, turn)
			}
			effort.ErrorIf(d.T, (i == 0 || len(views[i-1]) == 0) && row.Before != nil,
				"view %d: before it there was none, not %+v", i, row.Before)
			if i > 0 && !slices.Equal(row.Before, views[i-1]) {
				d.T.Errorf("view before view %d: got %+v, want %+v", i, row.Before, views[i-1])
			}
		}
		turn++
	}
}

func longViews(d *Fixture) {
	others := make([]ledger.Incarnation, ledger.ViewMax)
	for i := range others {
		others[i] = life(uuid.Nil)
	}
	self := life(d.Node)
	denied(d.WriteHeartbeat(d.T.Context(), heartbeatOf(self, others...)))(d, ledger.ErrIllegal)
	b := heartbeatOf(self, others[1:]...)
	row, _ := d.Beats(b)
	effort.ErrorIf(d.T, !slices.Equal(row.View, b.View), "a view of %d came back with %d", len(b.View), len(row.View))
}

func badHeartbeats(d *Fixture) {
	long := strings.Repeat("x", ledger.NodeTextBytesMax+1)
	for name, spoil := range map[string]func(b *ledger.Heartbeat){
		"no session":         func(b *ledger.Heartbeat) { b.Session = uuid.Nil },
		"no node":            func(b *ledger.Heartbeat) { b.Node = uuid.Nil },
		"a descending view":  func(b *ledger.Heartbeat) { slices.Reverse(b.View) },
		"one seen twice":     func(b *ledger.Heartbeat) { b.View[1].Session = b.View[0].Session },
		"descending silence": func(b *ledger.Heartbeat) { b.Silent = []uint64{2, 1} },
		"silent twice":       func(b *ledger.Heartbeat) { b.Silent = []uint64{1, 1} },
		"a turn below 0":     func(b *ledger.Heartbeat) { b.Read = -1 },
		"leases below 0":     func(b *ledger.Heartbeat) { b.Leases = -1 },
		"addresses below 0":  func(b *ledger.Heartbeat) { b.Addresses = -1 },
		"receivers below 0":  func(b *ledger.Heartbeat) { b.Receivers = -1 },
		"NUL in the cluster": func(b *ledger.Heartbeat) { b.Cluster = "a\x00" },
		"NUL in the name":    func(b *ledger.Heartbeat) { b.Name = "a\x00" },
		"NUL in the version": func(b *ledger.Heartbeat) { b.Version = "a\x00" },
		"NUL in the address": func(b *ledger.Heartbeat) { b.Actors = "a\x00" },
		"a long cluster":     func(b *ledger.Heartbeat) { b.Cluster = long },
		"a long name":        func(b *ledger.Heartbeat) { b.Name = long },
		"a long version":     func(b *ledger.Heartbeat) { b.Version = long },
		"a long address":     func(b *ledger.Heartbeat) { b.Actors = long },
	} {
		b := heartbeatOf(life(d.Node), life(uuid.Nil))
		spoil(&b)
		denied(d.WriteHeartbeat(d.T.Context(), b))(d, ledger.ErrIllegal, name)
	}
	longest := heartbeatOf(life(d.Node))
	longest.Name = long[1:]
	_, snapshot := d.Beats(longest)
	effort.ErrorIf(d.T, len(snapshot.Nodes) != 1 || snapshot.Generation != 1, "refused beats left %+v", snapshot)
}

func otherCluster(d *Fixture) {
	ours, theirs := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	theirs.Cluster = "there"
	d.Beats(ours)
	before := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	denied(d.WriteHeartbeat(d.T.Context(), theirs))(d, ledger.ErrOtherCluster)
	after := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	effort.ErrorIf(d.T, len(after.Nodes) != 1 || after.Generation != before.Generation,
		"the refused beat left %+v", after)
	d.ok(d.Leave(d.T.Context(), ours.Session))
	row, _ := d.Beats(theirs)
	effort.Is(d.T, row.Cluster, "there", row)
	denied(d.WriteHeartbeat(d.T.Context(), ours))(d, ledger.ErrOtherCluster)
	// Alone it may take another name, as one that begins.
	theirs.Cluster, theirs.View = "elsewhere", nil
	if row, _ := d.Beats(theirs); row.Cluster != "elsewhere" || row.Before != nil {
		d.T.Errorf("got %+v", row)
	}
}

func leaves(d *Fixture) {
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(a)
	_, before := d.Beats(b)
	d.ok(d.Leave(d.T.Context(), uuid.New())) // not there
	for range 2 {
		d.ok(d.Leave(d.T.Context(), a.Session))
		row, other := d.row(a.Session), d.row(b.Session)
		effort.ErrorIf(d.T, row.Status != ledger.NodeLeft || row.Dead || row.Generation != before.Generation+1 ||
			row.Since.Before(row.Seen), "got %+v", row)
		effort.ErrorIf(d.T, other.Status != ledger.NodeIn || other.Generation != before.Generation,
			"the other: %+v", other)
	}
	d.ok(d.Retire(d.T.Context(), a.Session, 0, true)) // has left, that is the end of it
	row := d.row(a.Session)
	effort.ErrorIf(d.T, row.Status != ledger.NodeLeft || row.Dead, "retired after it left: %+v", row)
	d.ok(d.Retire(d.T.Context(), b.Session, 0, false))
	lost := d.row(b.Session)
	d.ok(d.Leave(d.T.Context(), b.Session))
	if row := d.row(b.Session); row.Status != ledger.NodeLeft || row.Generation != lost.Generation {
		d.T.Errorf("left after it was lost: %+v", row)
	}
}

func retiresInTime(d *Fixture) {
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(a)
	_, before := d.Beats(b)
	ctx := d.T.Context()
	d.ok(d.Retire(ctx, uuid.New(), 0, true)) // not there
	d.ok(d.Retire(ctx, a.Session, Hour, true))
	if row := d.row(a.Session); row.Status != ledger.NodeIn || row.Dead || row.Generation > before.Generation {
		d.T.Errorf("seen lately: %+v", row)
	}
	for range 2 {
		d.ok(d.Retire(ctx, a.Session, 0, false))
		row := d.row(a.Session)
		effort.ErrorIf(d.T, row.Status != ledger.NodeLost || row.Dead || row.Generation != before.Generation+1 ||
			row.Since.Before(row.Seen), "got %+v after turn %d", row, before.Generation)
	}
	row := d.row(b.Session)
	effort.ErrorIf(d.T, row.Status != ledger.NodeIn || row.Generation != before.Generation, "the other: %+v", row)
}

// deadLeases: others need not wait for the leases of a dead process, unless its node runs again.
func deadLeases(d *Fixture) {
	v, _ := d.Prepares(2)
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node))
	d.Beats(a)
	d.ok(d.Retire(d.T.Context(), a.Session, 0, false)) // nobody knows whether it is dead
	d.leased(uuid.New(), 5, Hour)
	d.Beats(b)
	d.ok(d.Retire(d.T.Context(), a.Session, 0, true))
	d.leased(uuid.New(), 5, Hour)
	d.ok(d.Retire(d.T.Context(), b.Session, 0, true))
	d.leased(uuid.New(), 5, Hour, v.ID)
}

func deadLater(d *Fixture) {
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(a)
	_, before := d.Beats(b)
	ctx := d.T.Context()
	d.ok(d.Retire(ctx, a.Session, 0, false))
	lost := d.row(a.Session)
	for other, _ := d.Beats(b); !other.Seen.After(lost.Since); { // until the ledger's clock has gone on
		other, _ = d.Beats(b)
	}
	d.ok(d.Retire(ctx, a.Session, Hour, true)) // a lost process isn't waited for
	d.ok(d.Retire(ctx, a.Session, 0, false))   // and a dead one stays dead
	row := d.row(a.Session)
	effort.ErrorIf(d.T, row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1 ||
		row.Since != lost.Since, "lost as %+v, then dead: %+v", lost, row)
	d.ok(d.Retire(ctx, b.Session, 0, true))
	if row := d.row(b.Session); row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+2 {
		d.T.Errorf("dead at once: %+v", row)
	}
}

func endsOfViews(d *Fixture) {
	for _, read := range []bool{true, false} {
		p := life(uuid.Nil)
		first, second := heartbeatOf(p), heartbeatOf(p, life(uuid.Nil))
		_, snapshot := d.Beats(first)
		second.Read = snapshot.Generation // of the view before
		_, snapshot = d.Beats(second)
		if second.Read = snapshot.Generation - 1; read {
			second.Read++
		}
		d.Beats(second)
		d.ok(d.Retire(d.T.Context(), p.Session, 0, false))
		row := d.row(p.Session)
		effort.ErrorIf(d.T, !slices.Equal(row.View, second.View) || read != (row.Before == nil) || !read &&
			!slices.Equal(row.Before, first.View), "it had read its publication: %v: view %+v, before it %+v", read,
			row.View, row.Before)
	}
}

// silentReceivers: they stay with a row whatever ends it, until a later beat of its process says
// otherwise, or an operator.
func silentReceivers(d *Fixture) {
	ctx := d.T.Context()
	longest := make([]uint64, ledger.SilentMax+1)
	for i := range longest {
		longest[i] = uint64(i) << 40
	}
	b := heartbeatOf(life(d.Node))
	b.Silent = longest
	denied(d.WriteHeartbeat(ctx, b))(d, ledger.ErrIllegal)
	silent := longest[:ledger.SilentMax]
	for name, end := range map[string]func(s uuid.UUID) error{
		"lost": func(s uuid.UUID) error { return d.Retire(ctx, s, 0, false) },
		"dead": func(s uuid.UUID) error { return d.Retire(ctx, s, 0, true) },
		"left": func(s uuid.UUID) error { return d.Leave(ctx, s) },
	} {
		b := heartbeatOf(life(d.Node))
		b.Silent = silent
		d.Beats(b)
		d.ok(end(b.Session))
		if row := d.row(b.Session); !slices.Equal(row.Silent, silent) {
			d.T.Errorf("%s: %d are silent, want %d", name, len(row.Silent), len(silent))
		}
		b.Silent = silent[:2] // it is back
		if row, _ := d.Beats(b); !slices.Equal(row.Silent, silent[:2]) {
			d.T.Errorf("%s, and back: %d are silent, want 2", name, len(row.Silent))
		}
		d.ok(end(b.Session))
	}
	reader := heartbeatOf(life(uuid.Nil))
	d.Beats(reader) // it has not read their ends
	d.ok(d.Forget(ctx, d.Node, 0))
	snapshot := effort.Must(d.ReadNodes(ctx))(d.T)
	for _, row := range snapshot.Nodes {
		effort.ErrorIf(d.T, row.Status == ledger.NodeIn && row.Session != reader.Session || len(row.Silent) > 0,
			"forgotten, and %d are silent: %+v", len(row.Silent), row.Status)
	}
}

func beginsAnew(d *Fixture) {
	ctx := d.T.Context()
	for name, ends := range map[string]func(session uuid.UUID) error{
		"retired":  func(s uuid.UUID) error { return d.Retire(ctx, s, 0, false) },
		"for dead": func(s uuid.UUID) error { return d.Retire(ctx, s, 0, true) },
		"left":     func(s uuid.UUID) error { return d.Leave(ctx, s) },
	} {
		p := life(uuid.Nil)
		d.Beats(heartbeatOf(p))
		b := heartbeatOf(p, life(uuid.Nil)) // published, so that there is a view before
		d.Beats(b)
		d.ok(ends(p.Session))
		ended := d.row(p.Session)
		row, snapshot := d.Beats(b)
		if row.Status != ledger.NodeIn || row.Dead || row.Before != nil || row.Generation != ended.Generation+1 ||
			row.Generation != snapshot.Generation || row.Since.Before(ended.Since) || row.Seen.Before(row.Since) {
			d.T.Errorf("%s: got %+v at turn %d after turn %d", name, row, snapshot.Generation, ended.Generation)
		}
	}
}

func drains(d *Fixture) {
	ctx := d.T.Context()
	d.refused(d.AskDrain(ctx, d.Node), ledger.ErrNoSuchNode)
	first, second, other := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(first)
	d.Beats(second)
	_, before := d.Beats(other)
	d.ok(d.Leave(ctx, first.Session))
	for range 2 {
		d.ok(d.AskDrain(ctx, d.Node))
	}
	for session, want := range map[uuid.UUID]bool{first.Session: false, second.Session: true,
		other.Session: false} {
		row := d.row(session)
		effort.ErrorIf(d.T, row.DrainAsked != want, "asked: %v, want %v, of %+v", row.DrainAsked, want, row)
	}
	row, snapshot := d.Beats(second)
	effort.ErrorIf(d.T, !row.DrainAsked || snapshot.Generation != before.Generation+1,
		"after a beat: %+v at turn %d", row, snapshot.Generation)
	second.View = nil
	row, _ = d.Beats(second)
	effort.ErrorIf(d.T, !row.DrainAsked, "after a publication: %+v", row)
	d.ok(d.Retire(ctx, second.Session, 0, false))
	d.ok(d.AskDrain(ctx, d.Node)) // it may come back
	row, _ = d.Beats(second)
	effort.ErrorIf(d.T, !row.DrainAsked, "after it came back: %+v", row)
	d.ok(d.Retire(ctx, second.Session, 0, true))
	d.refused(d.AskDrain(ctx, d.Node), ledger.ErrNoSuchNode)
}

// undrains: an undrain changes the rows that a drain could change, and no other.
func undrains(d *Fixture) {
	ctx := d.T.Context()
	d.refused(d.Undrain(ctx, d.Node), ledger.ErrNoSuchNode)
	left, back, other := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(left)
	d.Beats(back)
	_, before := d.Beats(other)
	d.ok(d.Undrain(ctx, d.Node)) // no drain is asked for
	d.ok(d.AskDrain(ctx, d.Node))
	d.ok(d.AskDrain(ctx, other.Node))
	d.ok(d.Leave(ctx, left.Session))
	for range 2 {
		d.ok(d.Undrain(ctx, d.Node))
	}
	for session, want := range map[uuid.UUID]bool{left.Session: true, back.Session: false, other.Session: true} {
		row := d.row(session)
		effort.ErrorIf(d.T, row.DrainAsked != want, "asked: %v, want %v, of %+v", row.DrainAsked, want, row)
	}
	row, snapshot := d.Beats(back)
	effort.ErrorIf(d.T, row.DrainAsked || snapshot.Generation != before.Generation+1,
		"after a beat: %+v at turn %d", row, snapshot.Generation)
	d.ok(d.AskDrain(ctx, d.Node))
	d.ok(d.Retire(ctx, back.Session, 0, false))
	d.ok(d.Undrain(ctx, d.Node)) // it may come back
	row, _ = d.Beats(back)
	effort.ErrorIf(d.T, row.DrainAsked, "after it came back: %+v", row)
	lines := d.logged("node undrain")
	effort.ErrorIf(d.T, len(lines) != 2 || lines[0].Subject != d.Node.String() || lines[0].New != back.Session.String(),
		"two wishes were taken back, the log has %+v", lines)
	d.ok(d.Retire(ctx, back.Session, 0, true))
	d.refused(d.Undrain(ctx, d.Node), ledger.ErrNoSuchNode)
}

func forgetsNoneAlive(d *Fixture) {
	ctx := d.T.Context()
	d.refused(d.Forget(ctx, d.Node, 0), ledger.ErrNoSuchNode)
	old, alive := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node))
	d.Beats(old)
	d.Beats(alive)
	d.ok(d.Retire(ctx, old.Session, 0, false))
	before := effort.Must(d.ReadNodes(ctx))(d.T)
	d.refused(d.Forget(ctx, d.Node, Hour), ledger.ErrNodeAlive)
	after := effort.Must(d.ReadNodes(ctx))(d.T)
	effort.ErrorIf(d.T, len(after.Nodes) != 2 || after.Generation != before.Generation || d.row(old.Session).Dead,
		"a refused forget left %+v", after)
}

func forgetsWhenRead(d *Fixture) {
	ctx := d.T.Context()
	gone, stays := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(gone)
	_, before := d.Beats(stays)
	for range 2 {
		d.ok(d.Forget(ctx, d.Node, 0))
		row := d.row(gone.Session)
		effort.ErrorIf(d.T, row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1,
			"not read by the other: %+v", row)
	}
	stays.Read = before.Generation
	d.Beats(stays)
	d.ok(d.Forget(ctx, d.Node, 0))
	d.row(gone.Session) // read, but not up to its end
	stays.Read++
	d.Beats(stays)
	d.ok(d.Forget(ctx, d.Node, 0))
	snapshot := effort.Must(d.ReadNodes(ctx))(d.T)
	effort.ErrorIf(d.T, len(snapshot.Nodes) != 1 || snapshot.Nodes[0].Session != stays.Session ||
		snapshot.Generation != before.Generation+1, "read by all: %+v", snapshot)
	d.refused(d.Forget(ctx, d.Node, 0), ledger.ErrNoSuchNode)
}

func forgetsLeft(d *Fixture) {
	ctx := d.T.Context()
	gone, other := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(gone)
	d.Beats(other)
	d.ok(d.Leave(ctx, gone.Session))
	d.ok(d.Forget(ctx, d.Node, Hour)) // not read by the other
	row := d.row(gone.Session)
	effort.ErrorIf(d.T, row.Status != ledger.NodeLeft || row.Dead, "got %+v", row)
	d.ok(d.Leave(ctx, other.Session))
	d.ok(d.Forget(ctx, d.Node, Hour)) // none is left that had to
	d.ok(d.Forget(ctx, other.Node, Hour))
	snapshot := effort.Must(d.ReadNodes(ctx))(d.T)
	effort.Is(d.T, len(snapshot.Nodes), 0, "left", snapshot)
}

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
	snapshot := effort.Must(d.WriteHeartbeat(d.T.Context(), b))(d.T)
	return rowIn(d, snapshot, b.Session), snapshot
}

func rowIn(d *Fixture, snapshot ledger.NodeSnapshot, session uuid.UUID) ledger.NodeRow {
	d.T.Helper()
	n := rowOf(snapshot, session)
	effort.FatalIf(d.T, n == nil, "process %s is not among the %d rows", session, len(snapshot.Nodes))
	return *n
}

// row reads the row of a session.
func (d *Fixture) row(session uuid.UUID) ledger.NodeRow {
	d.T.Helper()
	snapshot := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	return rowIn(d, snapshot, session)
}
