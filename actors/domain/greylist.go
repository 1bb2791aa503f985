package domain

import (
	"container/heap"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// earlyApart is the time between two addresses that are asked again early, so that
// they do not all come at once; the receiver's pacing does the rest. Guess.
const earlyApart = 100 * time.Millisecond

// putOffBy notes that an address was greylisted, from where, and since when. From
// another source it begins anew: most implementations know a client by its address,
// so what was waited for before is worth nothing there.
func (a *agenda) putOffBy(now time.Time, p *pending, from evidence.Attempt) {
	number := a.archive.source(from.Source)
	if number == p.from && number != 0 {
		return // its clock runs
	}
	p.from, p.grey, p.waits = number, a.since(now), 0
	p.marks &^= markEarly | markHeld
}

// passed notes that a greylisted address got an answer from the source that it was
// greylisted from. Most implementations let a client through from then on, so the
// others are asked again soon: once each, and not before they waited as long as this
// one did, because some make those wait longer that come too early.
func (a *agenda) passed(now time.Time, p pending, last evidence.Attempt) {
	if p.from == 0 || last.Stage != smtp.StageRcpt || last.Outcome == smtp.Undecided ||
		a.archive.source(last.Source) != p.from {
		return
	}
	waited := a.since(now) - p.grey
	if least, known := a.greyWaits[p.from]; known && waited > least-least/4 {
		return // what waits was looked at for about as short a time: not all of it each time
	}
	a.greyWaits[p.from] = waited
	for _, s := range a.shards {
		a.hurry(now, s, p.from, waited)
	}
	a.hurried(waited)
}

// hurry has the greylisted addresses of a shard asked as soon as they waited so long.
// Those whose wait the receiver named keep it.
func (a *agenda) hurry(now time.Time, s *shard, from uint16, waited time.Duration) {
	at := a.since(now)
	for i := range s.deferred {
		p := &s.deferred[i]
		if due := max(at, p.grey+waited); p.from == from && p.marks&^markHeld == 0 && due < p.due {
			at += earlyApart
			p.due = min(max(due, at), p.due)
			p.marks |= markEarly
		}
	}
	heap.Init(&s.deferred)
}

// probe makes the question about an address; a greylisted one says since when, unless our
// ledger stalled meanwhile: that it waited for so long says nothing about the receiver.
func (a *agenda) probe(now time.Time, s *shard, ordinal uint32) *wire.Probe {
	q := &wire.Probe{Ordinal: ordinal, Local: a.local(ordinal)}
	p, before := s.history[ordinal]
	if q.Retry = before; p.from != 0 && p.marks&markHeld == 0 {
		q.Greylist(a.since(now)-p.grey, a.archive.sources[p.from-1])
	}
	return q
}
