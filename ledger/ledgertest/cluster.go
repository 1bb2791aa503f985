package ledgertest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

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
	{"the view before goes with a process that had read its last", 0, endsOfViews},
	{"who was retired begins anew", 0, beginsAnew},
	{"silent receivers outlive their process", 0, silentReceivers},
	{"a wish to drain stays", 0, drains},
	{"a wish to drain is taken back", 0, undrains},
	{"a node that was seen is not forgotten", 0, forgetsNoneAlive},
	{"a node is forgotten when all have read its end", 0, forgetsWhenRead},
	{"who left is forgotten", 0, forgetsLeft},
}

func oneIdentity(d *Desk) {
	first, err := d.Identity(d.T.Context())
	d.ok(err)
	second, err := d.Identity(d.T.Context())
	d.ok(err)
	if first != second || first.Version() != 4 || first.Variant() != uuid.RFC4122 {
		d.T.Errorf("got %s, then %s", first, second)
	}
}

func rowAsSaid(d *Desk) {
	empty, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	if !reflect.DeepEqual(empty, ledger.NodeSnapshot{}) {
		d.T.Errorf("before the first beat: %+v", empty)
	}
	a, b := heartbeatOf(life(d.Node), life(uuid.Nil)), heartbeatOf(life(uuid.Nil))
	a.Draining, a.Read, a.Leases, a.Addresses, a.Receivers = true, 3, 4, 5, 6
	b.View, b.Cluster, b.Name, b.Version, b.Actors = nil, a.Cluster, "", "", ""
	for _, said := range []ledger.Heartbeat{a, b} {
		row, roll := d.Beats(said)
		if said.View == nil {
			said.View = []ledger.Incarnation{}
		}
		want := ledger.NodeRow{Heartbeat: said, Since: row.Since, Seen: row.Since, Generation: roll.Generation}
		if !reflect.DeepEqual(row, want) || row.Since.IsZero() || roll.Now.Before(row.Since) || roll.Generation == 0 {
			d.T.Errorf("got %+v at turn %d, %v, want %+v", row, roll.Generation, roll.Now, want)
		}
	}
	roll, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	sorted := slices.IsSortedFunc(roll.Nodes, func(a, b ledger.NodeRow) int {
		return strings.Compare(string(a.Session[:]), string(b.Session[:]))
	})
	if len(roll.Nodes) != 2 || !sorted {
		d.T.Errorf("got %d rows, by session: %v, want two", len(roll.Nodes), sorted)
	}
}

func refreshes(d *Desk) {
	b := heartbeatOf(life(d.Node), life(uuid.Nil))
	first, before := d.Beats(b)
	b.Draining, b.Read, b.Leases, b.Addresses, b.Receivers = true, before.Generation, 1, 2, 3
	b.Silent = []uint64{0, 1 << 63, 1<<64 - 1}
	b.Name, b.Version, b.Actors = "other.test", "2", "192.0.2.9:1"
	b.Started = b.Started.Add(time.Second)
	row, roll := d.Beats(b)
	for row.Seen == first.Seen && roll.Now.Sub(first.Seen) < time.Second { // until the ledger's clock has gone on
		row, roll = d.Beats(b)
	}
	want := first
	want.Heartbeat, want.Seen = b, row.Seen
	if !reflect.DeepEqual(row, want) || roll.Generation != before.Generation || !row.Seen.After(first.Seen) {
		d.T.Errorf("got %+v at turn %d, want %+v at turn %d", row, roll.Generation, want, before.Generation)
	}
}

func publishes(d *Desk) {
	a, b := life(d.Node), life(uuid.Nil)
	views := [][]ledger.Incarnation{heartbeatOf(a).View, heartbeatOf(a, b).View, {}, heartbeatOf(a).View}
	turn := int64(0)
	for i, view := range views {
		said := heartbeatOf(a)
		said.View = view
		for range 2 { // the second says nothing new
			row, roll := d.Beats(said)
			if row.Generation != roll.Generation || roll.Generation != turn+1 || !slices.Equal(row.View, view) {
				d.T.Errorf("view %d: got %+v at turn %d after %d", i, row, roll.Generation, turn)
			}
			if (i == 0 || len(views[i-1]) == 0) && row.Before != nil {
				d.T.Errorf("view %d: before it there was none, not %+v", i, row.Before)
			}
			if i > 0 && !slices.Equal(row.Before, views[i-1]) {
				d.T.Errorf("view before view %d: got %+v, want %+v", i, row.Before, views[i-1])
			}
		}
		turn++
	}
}

func longViews(d *Desk) {
	others := make([]ledger.Incarnation, ledger.ViewMax)
	for i := range others {
		others[i] = life(uuid.Nil)
	}
	self := life(d.Node)
	_, err := d.WriteHeartbeat(d.T.Context(), heartbeatOf(self, others...))
	d.refused(err, ledger.ErrIllegal)
	b := heartbeatOf(self, others[1:]...)
	if row, _ := d.Beats(b); !slices.Equal(row.View, b.View) {
		d.T.Errorf("a view of %d came back with %d", len(b.View), len(row.View))
	}
}

func badHeartbeats(d *Desk) {
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
		if _, err := d.WriteHeartbeat(d.T.Context(), b); err == nil {
			d.T.Errorf("%s: accepted", name)
		} else {
			d.refused(err, ledger.ErrIllegal)
		}
	}
	longest := heartbeatOf(life(d.Node))
	longest.Name = long[1:]
	if _, roll := d.Beats(longest); len(roll.Nodes) != 1 || roll.Generation != 1 {
		d.T.Errorf("refused beats left %+v", roll)
	}
}

func otherCluster(d *Desk) {
	ours, theirs := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	theirs.Cluster = "there"
	d.Beats(ours)
	before, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	_, err = d.WriteHeartbeat(d.T.Context(), theirs)
	d.refused(err, ledger.ErrOtherCluster)
	after, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	if len(after.Nodes) != 1 || after.Generation != before.Generation {
		d.T.Errorf("the refused beat left %+v", after)
	}
	d.ok(d.Leave(d.T.Context(), ours.Session))
	row, _ := d.Beats(theirs)
	if row.Cluster != "there" {
		d.T.Errorf("got %+v", row)
	}
	_, err = d.WriteHeartbeat(d.T.Context(), ours)
	d.refused(err, ledger.ErrOtherCluster)
	// Alone it may take another name, as one that begins.
	theirs.Cluster, theirs.View = "elsewhere", nil
	if row, _ := d.Beats(theirs); row.Cluster != "elsewhere" || row.Before != nil {
		d.T.Errorf("got %+v", row)
	}
}

func leaves(d *Desk) {
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(a)
	_, before := d.Beats(b)
	d.ok(d.Leave(d.T.Context(), uuid.New())) // not there
	for range 2 {
		d.ok(d.Leave(d.T.Context(), a.Session))
		row, other := d.row(a.Session), d.row(b.Session)
		if row.Status != ledger.NodeLeft || row.Dead || row.Generation != before.Generation+1 || row.Since.Before(row.Seen) {
			d.T.Errorf("got %+v", row)
		}
		if other.Status != ledger.NodeIn || other.Generation != before.Generation {
			d.T.Errorf("the other: %+v", other)
		}
	}
	d.ok(d.Retire(d.T.Context(), a.Session, 0, true)) // has left, that is the end of it
	if row := d.row(a.Session); row.Status != ledger.NodeLeft || row.Dead {
		d.T.Errorf("retired after it left: %+v", row)
	}
	d.ok(d.Retire(d.T.Context(), b.Session, 0, false))
	lost := d.row(b.Session)
	d.ok(d.Leave(d.T.Context(), b.Session))
	if row := d.row(b.Session); row.Status != ledger.NodeLeft || row.Generation != lost.Generation {
		d.T.Errorf("left after it was lost: %+v", row)
	}
}
