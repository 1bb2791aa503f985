package ledgertest

import (
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
)

func retiresInTime(d *Desk) {
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
		if row.Status != ledger.NodeLost || row.Dead || row.Generation != before.Generation+1 || row.Since.Before(row.Seen) {
			d.T.Errorf("got %+v after turn %d", row, before.Generation)
		}
	}
	if row := d.row(b.Session); row.Status != ledger.NodeIn || row.Generation != before.Generation {
		d.T.Errorf("the other: %+v", row)
	}
}

func deadLater(d *Desk) {
	a, b := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(a)
	_, before := d.Beats(b)
	ctx := d.T.Context()
	d.ok(d.Retire(ctx, a.Session, 0, false))
	lost := d.row(a.Session)
	for other, _ := d.Beats(b); !other.Seen.After(lost.Since); { // until the ledger's clock has gone on
		other, _ = d.Beats(b)
	}
	d.ok(d.Retire(ctx, a.Session, Hour, true)) // what is lost has no time to wait for
	d.ok(d.Retire(ctx, a.Session, 0, false))   // and who is dead stays dead
	row := d.row(a.Session)
	if row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1 || row.Since != lost.Since {
		d.T.Errorf("lost as %+v, then dead: %+v", lost, row)
	}
	d.ok(d.Retire(ctx, b.Session, 0, true))
	if row := d.row(b.Session); row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+2 {
		d.T.Errorf("dead at once: %+v", row)
	}
}

func endsOfViews(d *Desk) {
	for _, read := range []bool{true, false} {
		p := life(uuid.Nil)
		first, second := heartbeatOf(p), heartbeatOf(p, life(uuid.Nil))
		_, roll := d.Beats(first)
		second.Read = roll.Generation // of the view before
		_, roll = d.Beats(second)
		if second.Read = roll.Generation - 1; read {
			second.Read++
		}
		d.Beats(second)
		d.ok(d.Retire(d.T.Context(), p.Session, 0, false))
		row := d.row(p.Session)
		if !slices.Equal(row.View, second.View) || read != (row.Before == nil) ||
			!read && !slices.Equal(row.Before, first.View) {
			d.T.Errorf("it had read its publication: %v: view %+v, before it %+v", read, row.View, row.Before)
		}
	}
}

// silentReceivers: they stay with a row whatever ends it, until a later beat of its process says
// otherwise, or an operator.
func silentReceivers(d *Desk) {
	ctx := d.T.Context()
	longest := make([]uint64, ledger.SilentMax+1)
	for i := range longest {
		longest[i] = uint64(i) << 40
	}
	b := heartbeatOf(life(d.Node))
	b.Silent = longest
	_, err := d.WriteHeartbeat(ctx, b)
	d.refused(err, ledger.ErrIllegal)
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
	roll, err := d.ReadNodes(ctx)
	d.ok(err)
	for _, row := range roll.Nodes {
		if row.Status == ledger.NodeIn && row.Session != reader.Session || len(row.Silent) > 0 {
			d.T.Errorf("forgotten, and %d are silent: %+v", len(row.Silent), row.Status)
		}
	}
}

func beginsAnew(d *Desk) {
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
		row, roll := d.Beats(b)
		if row.Status != ledger.NodeIn || row.Dead || row.Before != nil || row.Generation != ended.Generation+1 ||
			row.Generation != roll.Generation || row.Since.Before(ended.Since) || row.Since != row.Seen {
			d.T.Errorf("%s: got %+v at turn %d after turn %d", name, row, roll.Generation, ended.Generation)
		}
	}
}

func drains(d *Desk) {
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
		if row := d.row(session); row.DrainAsked != want {
			d.T.Errorf("asked: %v, want %v, of %+v", row.DrainAsked, want, row)
		}
	}
	row, roll := d.Beats(second)
	if !row.DrainAsked || roll.Generation != before.Generation+1 {
		d.T.Errorf("after a beat: %+v at turn %d", row, roll.Generation)
	}
	second.View = nil
	if row, _ = d.Beats(second); !row.DrainAsked {
		d.T.Errorf("after a publication: %+v", row)
	}
	d.ok(d.Retire(ctx, second.Session, 0, false))
	d.ok(d.AskDrain(ctx, d.Node)) // it may come back
	if row, _ = d.Beats(second); !row.DrainAsked {
		d.T.Errorf("after it came back: %+v", row)
	}
	d.ok(d.Retire(ctx, second.Session, 0, true))
	d.refused(d.AskDrain(ctx, d.Node), ledger.ErrNoSuchNode)
}

// undrains: the wish is taken back in the rows in which it could be said, and in no other.
func undrains(d *Desk) {
	ctx := d.T.Context()
	d.refused(d.Undrain(ctx, d.Node), ledger.ErrNoSuchNode)
	left, back, other := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(left)
	d.Beats(back)
	_, before := d.Beats(other)
	d.ok(d.Undrain(ctx, d.Node)) // nobody wants it to drain
	d.ok(d.AskDrain(ctx, d.Node))
	d.ok(d.AskDrain(ctx, other.Node))
	d.ok(d.Leave(ctx, left.Session))
	for range 2 {
		d.ok(d.Undrain(ctx, d.Node))
	}
	for session, want := range map[uuid.UUID]bool{left.Session: true, back.Session: false, other.Session: true} {
		if row := d.row(session); row.DrainAsked != want {
			d.T.Errorf("asked: %v, want %v, of %+v", row.DrainAsked, want, row)
		}
	}
	row, roll := d.Beats(back)
	if row.DrainAsked || roll.Generation != before.Generation+1 {
		d.T.Errorf("after a beat: %+v at turn %d", row, roll.Generation)
	}
	d.ok(d.AskDrain(ctx, d.Node))
	d.ok(d.Retire(ctx, back.Session, 0, false))
	d.ok(d.Undrain(ctx, d.Node)) // it may come back
	if row, _ = d.Beats(back); row.DrainAsked {
		d.T.Errorf("after it came back: %+v", row)
	}
	lines := d.logged("node undrain")
	if len(lines) != 2 || lines[0].Subject != d.Node.String() || lines[0].New != back.Session.String() {
		d.T.Errorf("two wishes were taken back, the log has %+v", lines)
	}
	d.ok(d.Retire(ctx, back.Session, 0, true))
	d.refused(d.Undrain(ctx, d.Node), ledger.ErrNoSuchNode)
}

func forgetsNoneAlive(d *Desk) {
	ctx := d.T.Context()
	d.refused(d.Forget(ctx, d.Node, 0), ledger.ErrNoSuchNode)
	old, alive := heartbeatOf(life(d.Node)), heartbeatOf(life(d.Node))
	d.Beats(old)
	d.Beats(alive)
	d.ok(d.Retire(ctx, old.Session, 0, false))
	before, err := d.ReadNodes(ctx)
	d.ok(err)
	d.refused(d.Forget(ctx, d.Node, Hour), ledger.ErrNodeAlive)
	after, err := d.ReadNodes(ctx)
	d.ok(err)
	if len(after.Nodes) != 2 || after.Generation != before.Generation || d.row(old.Session).Dead {
		d.T.Errorf("a refused forget left %+v", after)
	}
}

func forgetsWhenRead(d *Desk) {
	ctx := d.T.Context()
	gone, stays := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(gone)
	_, before := d.Beats(stays)
	for range 2 {
		d.ok(d.Forget(ctx, d.Node, 0))
		row := d.row(gone.Session)
		if row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1 {
			d.T.Errorf("not read by the other: %+v", row)
		}
	}
	stays.Read = before.Generation
	d.Beats(stays)
	d.ok(d.Forget(ctx, d.Node, 0))
	d.row(gone.Session) // read, but not up to its end
	stays.Read++
	d.Beats(stays)
	d.ok(d.Forget(ctx, d.Node, 0))
	roll, err := d.ReadNodes(ctx)
	d.ok(err)
	if len(roll.Nodes) != 1 || roll.Nodes[0].Session != stays.Session || roll.Generation != before.Generation+1 {
		d.T.Errorf("read by all: %+v", roll)
	}
	d.refused(d.Forget(ctx, d.Node, 0), ledger.ErrNoSuchNode)
}

func forgetsLeft(d *Desk) {
	ctx := d.T.Context()
	gone, other := heartbeatOf(life(d.Node)), heartbeatOf(life(uuid.Nil))
	d.Beats(gone)
	d.Beats(other)
	d.ok(d.Leave(ctx, gone.Session))
	d.ok(d.Forget(ctx, d.Node, Hour)) // not read by the other
	if row := d.row(gone.Session); row.Status != ledger.NodeLeft || row.Dead {
		d.T.Errorf("got %+v", row)
	}
	d.ok(d.Leave(ctx, other.Session))
	d.ok(d.Forget(ctx, d.Node, Hour)) // nobody is left who had to
	d.ok(d.Forget(ctx, other.Node, Hour))
	roll, err := d.ReadNodes(ctx)
	d.ok(err)
	if len(roll.Nodes) != 0 {
		d.T.Errorf("left: %+v", roll)
	}
}
