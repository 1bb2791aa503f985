package receiver

import (
	"slices"
	"time"

	"rollcall/actors/wire"
)

// silentFor is how long a client may leave results unacknowledged before what it
// has waiting is not asked any more: its node is dead, paused or cut off, and who
// takes its verification over would ask the same again. Results are sent again
// after resendEvery, so that one lost message is not silence.
const silentFor = 3 * time.Second

// clientsLost tells an actor that the clients at an address are out of reach.
type clientsLost struct{ address string }

// silent says whether the task's client has left results unacknowledged for too long.
func (t *task) silent(now time.Time) bool {
	return !t.owed.IsZero() && now.Sub(t.owed) >= silentFor
}

// listen notes that the client was heard.
func (t *task) listen(now time.Time) {
	t.owed = time.Time{}
	if slices.ContainsFunc(t.chunks, func(c *chunk) bool { return len(c.sent) > 0 }) {
		t.owed = now
	}
}

// shed gives up what a task has waiting: its client does not answer. What is on
// the wire is still reported, and results wait for an acknowledgement. Pulses do
// not name the chunks any more, so that a client that lives offers them again.
func (d *desk) shed(t *task) {
	shed := false
	for _, c := range t.chunks {
		if !c.shed && c.open > 0 {
			c.shed, shed, d.tasks.stale = true, true, true
		}
	}
	d.tasks.tell(t, behind{})
	if shed {
		d.options.Metrics.silent.Inc()
		d.options.Log.Debug("client does not answer", "receiver", d.key, "domain", t.key.Domain, "epoch", t.epoch)
	}
}

// lost sheds the tasks of all clients at an address.
func (d *desk) lost(address string) {
	for t := range d.tasks.busy {
		if t.client.address == address {
			d.shed(t)
		}
	}
}

// keep remembers a final answer that nobody took, for the next owner of the task:
// an ordinal means the same address to all of them. The highest ordinal does not:
// it is the control probe, for another address each time.
func (t *task) keep(a answer) {
	if !a.outcome.Final() || a.ordinal == wire.ControlOrdinal {
		return
	}
	if t.known == nil {
		t.known = map[uint32]answer{}
	}
	t.known[a.ordinal] = a
}

// hand answers a probe with what an earlier owner of its task has not taken.
func (d *desk) hand(now time.Time, p *probe) bool {
	a, ok := p.chunk.task.known[p.ordinal]
	if !ok {
		return false
	}
	delete(p.chunk.task.known, p.ordinal)
	d.options.Metrics.handed.Inc()
	p.deliver(a, now)
	d.due(p.chunk)
	return true
}
