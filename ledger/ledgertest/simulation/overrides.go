package simulation

import (
	"context"
	"maps"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

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
