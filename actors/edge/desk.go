package edge

import (
	"time"
)

const (
	// slotLife is how long a download slot is held for a node that says nothing any
	// more, and tellEvery how often a node says what it holds: two of its messages
	// may be lost.
	slotLife  = 30 * time.Second
	tellEvery = 10 * time.Second

	// nodesMax bounds the nodes that hold slots of one key; more get none. Far above
	// any cluster, and above the restarts that fit into slotLife.
	nodesMax = 1024

	// wantMax bounds what one message may want: above the requests that a node has
	// in work at once.
	wantMax = 1 << 16
)

// nodeID is the process life of a node.
type nodeID [16]byte

// hold is what one node said last.
type hold struct {
	number uint64
	slots  int
	until  time.Time
}

// desk counts what one key uses. It takes the time as an argument and sends nothing.
type desk struct {
	key            string
	activation     uint64 // its name; a desk that comes after it has another
	limits         Limits // of all nodes together
	reads, creates debt

	// What nodes heard from desks before this one. A debt of theirs becomes part of
	// ours once: from a second report only what it is more than the first.
	readsBefore, createsBefore debt

	holds map[nodeID]hold
}

func newDesk(key string, activation uint64, limits Limits) *desk {
	return &desk{key: key, activation: activation, limits: limits, holds: map[nodeID]hold{}}
}

// ask answers one question by k/n of the limits; nil for one that is not for this
// desk, repeated or overtaken.
func (d *desk) ask(now time.Time, m *Ask, k, n int) *Answer {
	if m.Key != d.key || len(m.Node) != len(nodeID{}) {
		return nil
	}
	node := nodeID(m.Node)
	d.expire(now)
	last, known := d.holds[node]
	if known && m.Number <= last.number {
		return nil
	}
	limits := d.limits.part(k, n)
	d.reads.pass(now, limits.Reads.PerSecond)
	d.creates.pass(now, limits.Creates.PerSecond)
	if m.Activation != d.activation {
		d.reads.tokens += d.readsBefore.news(now, m.ReadsDebt, d.limits.Reads)
		d.creates.tokens += d.createsBefore.news(now, m.CreatesDebt, d.limits.Creates)
	}
	a := &Answer{Key: m.Key, Number: m.Number, Activation: d.activation}
	a.Reads, a.ReadsWaitNs = grant(now, &d.reads, m.Reads, limits.Reads)
	a.Creates, a.CreatesWaitNs = grant(now, &d.creates, m.Creates, limits.Creates)
	a.ReadsDebt, a.CreatesDebt = d.reads.tokens, d.creates.tokens
	if !known && len(d.holds) >= nodesMax {
		return a
	}
	held := int(min(m.Held, wantMax))
	free := max(0, limits.Downloads-d.held(node)-held)
	granted := min(int(min(m.Downloads, wantMax)), free)
	a.Downloads = uint32(granted)
	d.holds[node] = hold{number: m.Number, slots: held + granted, until: now.Add(slotLife)}
	return a
}

func grant(now time.Time, d *debt, want uint32, r Rate) (uint32, int64) {
	taken, wait := d.take(now, int(min(want, wantMax)), r)
	return uint32(taken), int64(wait)
}

// held counts the slots of all nodes but one.
func (d *desk) held(but nodeID) (slots int) {
	for node, h := range d.holds {
		if node != but {
			slots += h.slots
		}
	}
	return slots
}

// expire forgets nodes that said nothing for slotLife.
func (d *desk) expire(now time.Time) {
	for node, h := range d.holds {
		if !now.Before(h.until) {
			delete(d.holds, node)
		}
	}
}

// idle says whether a new desk would be the same as this one.
func (d *desk) idle(now time.Time, k, n int) bool {
	d.expire(now)
	limits := d.limits.part(k, n)
	return len(d.holds) == 0 && d.reads.pass(now, limits.Reads.PerSecond) == 0 &&
		d.creates.pass(now, limits.Creates.PerSecond) == 0
}
