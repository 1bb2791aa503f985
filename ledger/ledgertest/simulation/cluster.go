package simulation

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const (
	processesMax = 6 // of one life at once
	retireAfter  = 10 * time.Second
	factKeys     = 8
)

// processes is a life of processes that beat, leave, are lost and forgotten.
type processes struct {
	*world
	nodes  [3]uuid.UUID
	alive  []ledger.Incarnation
	was    *cluster      // after the commit before
	after  time.Duration // of the retirement or the forgetting at hand
	beaten uuid.UUID     // session of the heartbeat at hand
	wished wish          // of the operator at hand
	done   int           // operations so far
}

// wish is what an operator wants of a node.
type wish struct {
	node  uuid.UUID
	drain bool
}

// RunCluster lives such a life; the same seed gives the same.
func RunCluster(seed uint64, operations int) Life {
	return newProcesses(newWorld(seed)).live(operations)
}

// RunClusterBeside lives it on another database too, as RunBeside does.
func RunClusterBeside(second Second, seed uint64, operations int) Life {
	w := newWorld(seed)
	w.beside(second)
	return newProcesses(w).live(operations)
}

func newProcesses(w *world) *processes {
	p := &processes{world: w, was: w.memory.cluster}
	for i := range p.nodes {
		p.nodes[i] = w.id()
	}
	w.db.check, w.db.between = p.checkCommit, p.others
	return p
}

func (p *processes) live(operations int) Life {
	for range operations {
		if p.violation != "" {
			break
		}
		p.operation()
	}
	return Life{Answers: p.answers, Transactions: p.db.runs, Commits: p.commits, Faults: p.db.faults,
		Violation: p.violation}
}

// others run while a transaction waits to be run again.
func (p *processes) others() {
	if p.depth == depthMax {
		return
	}
	p.depth++
	after, beaten, wished := p.after, p.beaten, p.wished
	p.operation()
	p.after, p.beaten, p.wished = after, beaten, wished
	p.depth--
}

// operation is one thing that a process or an operator does.
func (p *processes) operation() {
	if len(p.alive) == 0 || len(p.alive) < processesMax && p.chance(50) {
		p.alive = append(p.alive, ledger.Incarnation{Session: p.id(), Node: p.nodes[p.random.IntN(len(p.nodes))]})
	}
	i := p.random.IntN(len(p.alive))
	one := p.alive[i]
	ctx := context.Background()
	p.after, p.beaten, p.wished = 0, uuid.Nil, wish{}
	p.done++
	switch at := p.random.IntN(100); {
	case at < 55:
		p.heartbeat(one)
	case at < 60:
		p.answered("leave", p.book.Leave(ctx, one.Session))
	case at < 63: // it dies
		p.alive = slices.Delete(p.alive, i, i+1)
	case at < 75:
		p.after = time.Duration(p.random.IntN(2)) * retireAfter
		p.answered("retire", p.book.Retire(ctx, one.Session, p.after, p.chance(500)))
	case at < 79:
		p.wish(one.Node, p.chance(500))
	case at < 82:
		p.after = retireAfter
		p.answered("forget", p.book.Forget(ctx, one.Node, p.after), ledger.ErrNoSuchNode, ledger.ErrNodeAlive)
	case at < 88:
		p.learn()
	case at < 93:
		p.insertOverride()
	default:
		p.memory.now += int64(p.random.IntN(4000))
	}
}

// heartbeat writes a heartbeat, with a change or without one, and checks its row.
func (p *processes) heartbeat(one ledger.Incarnation) {
	b := ledger.Heartbeat{Incarnation: one, Cluster: "simulated", Started: ledger.Clock(1), Leases: p.random.IntN(9),
		Read: p.memory.cluster.turn - int64(p.random.IntN(3))}
	b.Read = max(b.Read, 0)
	for _, other := range p.alive {
		if p.chance(800) {
			b.View = append(b.View, other)
		}
	}
	slices.SortFunc(b.View, func(x, y ledger.Incarnation) int { return slices.Compare(x.Session[:], y.Session[:]) })
	if row, found := p.memory.cluster.nodes[one.Session]; found && p.chance(600) {
		b.View = row.View
	}
	for h := range uint64(p.random.IntN(4)) {
		b.Silent = append(b.Silent, h<<60)
	}
	p.beaten = one.Session
	snapshot, err := p.book.WriteHeartbeat(context.Background(), b)
	if !p.answered("beat", err) {
		return
	}
	at := slices.IndexFunc(snapshot.Nodes, func(n ledger.NodeRow) bool { return n.Session == one.Session })
	if at < 0 {
		p.wrong("beat", "a row that was beaten is not there")
		return
	}
	if row := snapshot.Nodes[at]; !slices.Equal(row.View, b.View) || row.Leases != b.Leases ||
		row.Status != ledger.NodeIn || row.Read != b.Read || !slices.Equal(row.Silent, b.Silent) {
		p.wrong("beat", "said %+v, the row is %+v", b, row)
	}
}

// wish says that an operator wants a node to drain, or takes that back, and looks whether
// every row that can drain says the same.
func (p *processes) wish(node uuid.UUID, drain bool) {
	say, name := p.book.Undrain, "undrain"
	if drain {
		say, name = p.book.AskDrain, "drain"
	}
	p.wished = wish{node, drain}
	if !p.answered(name, say(context.Background(), node), ledger.ErrNoSuchNode) {
		return
	}
	for _, row := range p.memory.cluster.nodes {
		if row.Node == node && canDrain(row) && row.DrainAsked != drain {
			p.wrong("drain", "%s was answered, and the row is %+v", name, row)
		}
	}
}

// canDrain reports whether a row is of a process that may drain.
func canDrain(row ledger.NodeRow) bool { return row.Status != ledger.NodeLeft && !row.Dead }

// learn keeps a fact about a receiver and asks for all.
func (p *processes) learn() {
	keys := make([]string, factKeys)
	for i := range keys {
		keys[i] = string(rune('a' + i))
	}
	fact := ledger.Fact{Key: keys[p.random.IntN(factKeys)], Data: []byte{byte(p.random.IntN(256))},
		Expires: ledger.Clock(p.memory.now + int64(p.random.IntN(20_000)))}
	p.answered("learn", p.book.Learn(context.Background(), []ledger.Fact{fact}))
	if _, err := p.book.Known(context.Background(), keys); err != nil {
		p.wrong("facts", "known: %v", err)
	}
}

// checkCommit compares the rows with those of the commit before: nothing that
// others count by changes without a turn of its own.
func (p *processes) checkCommit() {
	p.commits++
	now, turns := p.memory.cluster, map[int64]bool{}
	for session, row := range now.nodes {
		if turns[row.Generation] || row.Generation < 1 || row.Generation > now.turn {
			p.wrong("turns", "turn %d of %d is taken twice, or was never", row.Generation, now.turn)
		}
		turns[row.Generation] = true
		old, known := p.was.nodes[session]
		p.checkStep(old, known, row)
	}
	for session, old := range p.was.nodes {
		if _, stays := now.nodes[session]; !stays && (old.Status == ledger.NodeIn || !readByAll(p.was, old)) {
			p.wrong("turns", "a row is gone whose end somebody had not read: %+v", old)
		}
	}
	p.checkOverrides()
	p.was = now
}

// checkStep looks at what became of one row.
func (p *processes) checkStep(old ledger.NodeRow, known bool, row ledger.NodeRow) {
	began := row.Status == ledger.NodeIn && (!known || old.Status != ledger.NodeIn)
	ended := known && old.Status == ledger.NodeIn && row.Status != ledger.NodeIn
	published := known && !began && !slices.Equal(old.View, row.View)
	if inTurn := row.Generation > p.was.turn; inTurn != (began || ended || published) {
		p.wrong("turns", "began %v, ended %v, published %v: from %+v to %+v", began, ended, published, old, row)
	}
	switch {
	case old.DrainAsked != row.DrainAsked && (p.wished != wish{row.Node, row.DrainAsked} || !canDrain(old)):
		p.wrong("drain", "an operator wished %+v: from %+v to %+v", p.wished, old, row)
	case began && (row.Before != nil || row.Dead || row.Session != p.beaten):
		p.wrong("turns", "began as %+v", row)
	case published && !slices.Equal(row.Before, old.View):
		p.wrong("turns", "published as %+v after %+v", row, old)
	case ended && row.Status == ledger.NodeLost && p.memory.ran-old.Seen.UnixMilli() < p.after.Milliseconds():
		p.wrong("turns", "retired before its time: %+v", old)
	case known && old.Dead && !row.Dead && !began && row.Status != ledger.NodeLeft:
		p.wrong("turns", "dead, and then not: %+v", row)
	}
}

// readByAll reports whether every process that is in has read a row's turn.
func readByAll(c *cluster, row ledger.NodeRow) bool {
	for _, other := range c.nodes {
		if other.Status == ledger.NodeIn && other.Read < row.Generation {
			return false
		}
	}
	return true
}

// keys are the receivers that operators of a life change something about.
var keys = [...]string{"a.test", "b.test", "c.test"}

// insertOverride is an operator who sets an override, or clears some.
func (p *processes) insertOverride() {
	ctx, key := context.Background(), keys[p.random.IntN(len(keys))]
	if p.chance(300) {
		p.clear(ledger.Clearing{Key: key, Only: []string{"", "rate"}[p.random.IntN(2)]})
		return
	}
	o := ledger.ThrottleOverride{ID: p.id(), Key: key, Fields: map[string]string{"rate": "5"}}
	if p.chance(500) {
		o.Fields["pause"] = "yes"
	}
	holds := ledger.OverrideMin + time.Duration(p.random.IntN(60_000))*time.Millisecond
	call := func() {
		before, known := p.memory.cluster.overrides[o.ID]
		over := known && !before.holds(p.memory.now)
		kept, err := p.book.SetOverride(ctx, o, holds)
		var may []error
		if now := p.memory.cluster.overrides[o.ID]; known && !now.holds(p.memory.now) {
			may = append(may, ledger.ErrIllegal) // an earlier call set it; it was cleared, or is over
		}
		ok := p.answered("set override", err, may...)
		if ok && over {
			p.wrong("overrides", "answered as set, and does not hold: %+v", kept)
		}
		if ok && (kept.ID != o.ID || kept.Key != key ||
			!maps.Equal(kept.Fields, o.Fields) || kept.Expires.Sub(kept.Created) != holds) {
			p.wrong("overrides", "set %+v for %v, answered %+v", o, holds, kept)
		}
	}
	call()
	p.again(call)
	if _, found := p.memory.cluster.overrides[o.ID]; found && p.chance(100) {
		other := o
		other.Key += "x"
		if _, err := p.book.SetOverride(ctx, other, holds); err == nil {
			p.wrong("overrides", "one id, two overrides")
		}
	}
	if p.chance(200) {
		p.deliver()
	}
}

// clear ends overrides, and looks whether just those ended that held and were meant.
func (p *processes) clear(c ledger.Clearing) {
	meant, done, now := 0, p.done, p.memory.now
	for _, o := range p.memory.cluster.overrides {
		if o.holds(p.memory.now) && c.Covers(o.ThrottleOverride) {
			meant++
		}
	}
	ended, err := p.book.ClearOverrides(context.Background(), c)
	if !p.answered("clear overrides", err) {
		return
	}
	if done == p.done && now == p.memory.now && len(ended) != meant { // nothing happened meanwhile
		p.wrong("overrides", "%+v: %d held, answered %+v", c, meant, ended)
	}
	for _, o := range ended {
		if in := p.memory.cluster.overrides[o.ID]; !in.cleared || !c.Covers(o) {
			p.wrong("overrides", "%+v: answered %+v, the row is %+v", c, o, in)
		}
	}
}

// checkOverrides: each override was set in one line of the log and cleared in at most
// one, no override changes but by its end, and none ends that did not hold.
func (p *processes) checkOverrides() {
	now := p.memory.cluster
	lines, cleared := map[string]int{}, 0
	for _, l := range now.log {
		lines[l.Action]++
	}
	for id, o := range now.overrides {
		before, known := p.was.overrides[id]
		if o.cleared {
			cleared++
		}
		switch {
		case known && (before.cleared && !o.cleared || before.Key != o.Key || !before.Expires.Equal(o.Expires) ||
			!maps.Equal(before.Fields, o.Fields)):
			p.wrong("overrides", "from %+v to %+v", before, o)
		case known && o.cleared && !before.cleared && !before.holds(p.memory.ran):
			p.wrong("overrides", "cleared after its end: %+v", o)
		case o.ID == uuid.Nil || o.Key == "":
			p.wrong("overrides", "of nothing: %+v", o)
		}
	}
	if set, ended := lines["throttle set"], lines["throttle clear"]; set != len(now.overrides) || ended != cleared {
		p.wrong("overrides", "%d are set in %d lines, %d cleared in %d", len(now.overrides), set, cleared, ended)
	}
}
