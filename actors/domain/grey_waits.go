package domain

import (
	"container/heap"
	"math"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// notePassed notes that a greylisted address was answered at the source that was greylisted. Most implementations let a
// client through from then on, so the others are asked again soon: once each, and only after they waited as long as
// this one, because some greylists punish an early retry.
func (r *retries) notePassed(now time.Time, p pending, last evidence.Attempt) {
	if p.from == 0 || p.reason != smtp.Greylisted || last.Stage != smtp.StageRcpt || last.Outcome == smtp.Undecided ||
		r.log.sourceNumber(last.Source) != p.from {
		return
	}
	waited := r.since(now) - p.grey
	if least, known := r.greyWaits[p.from]; known && waited > least-least/4 {
		return // they were sped up for about as short a wait before
	}
	r.greyWaits[p.from] = waited
	r.speedUpGreylisted(now, p.from, waited)
	r.recountGreylisted(waited)
}

// speedUpGreylisted makes greylisted addresses due as soon as they have waited so long. A wait that the receiver named
// stays.
func (r *retries) speedUpGreylisted(now time.Time, from uint16, waited time.Duration) {
	at := r.since(now)
	for i := range r.deferred {
		p := &r.deferred[i]
		if due := max(at, p.grey+waited); p.reason == smtp.Greylisted && p.from == from &&
			p.marks&(markNamed|markEarly) == 0 && due < p.due {
			at += earlyApart
			p.due = min(max(due, at), p.due)
			p.marks |= markEarly
		}
	}
	heap.Init(&r.deferred)
}

// recountGreylisted updates the counts of greylisted addresses whose due times changed.
func (r *retries) recountGreylisted(waited time.Duration) {
	c := r.stats.countOf(smtp.Greylisted)
	if c.wait = min(c.wait, waited); c.addresses == 0 {
		return
	}
	c.addresses = 0
	for i := range r.deferred {
		if p := &r.deferred[i]; p.reason == smtp.Greylisted {
			r.stats.push(p, r.expectAnswer(p))
		}
	}
	c.wait = min(c.wait, waited)
}

const (
	// vainAgree greylisted addresses that were asked again in vain show that their wait is too short for the others
	// too, if at least vainOthers wait. One in vainSample of these is asked all the same.
	vainAgree, vainOthers, vainSample = 3, 50, 8

	// A wait that is longer by one in vainMore than one in vain counts as in vain too.
	vainMore = 8
)

// greyVain is how long greylisted addresses of a source waited in vain while none has passed.
type greyVain struct {
	from   uint16
	n      int
	waited time.Duration // the longest of them
	used   time.Duration // no address is asked again after so short a wait; 0: after any
}

// noteInVain notes that a greylisted address was asked again and is still greylisted. Where several were, the others
// use up their configured waits up to that one without being asked.
func (r *retries) noteInVain(now time.Time, p *pending, m *answerOf) {
	if _, known := r.greyWaits[p.from]; known || len(m.attempts) == 0 || p.from == 0 ||
		p.reason != smtp.Greylisted || m.reason != smtp.Greylisted {
		return
	}
	last := m.attempts[len(m.attempts)-1]
	if r.log.sourceNumber(last.Source) != p.from {
		return
	}
	v := &r.vain
	if v.from != p.from {
		*v = greyVain{from: p.from}
	}
	v.n++
	v.waited = max(v.waited, r.since(now)-min(max(0, now.Sub(last.At)), m.out)-p.grey)
	if v.n < vainAgree || v.waited <= v.used || len(r.deferred) < vainOthers {
		return
	}
	v.used = v.waited + v.waited/vainMore
	waits := r.options.Waits(r.route.key)
	for i := range r.deferred {
		if p := &r.deferred[i]; p.reason == smtp.Greylisted && p.marks&markNamed == 0 {
			ends := p.since + r.options.GiveUpAfter
			p.due = max(p.due, min(v.skipShort(p, p.due, waits), ends))
		}
	}
	heap.Init(&r.deferred)
	r.recountGreylisted(math.MaxInt64)
}

// skipShort gives when a greylisted address that was due at a time is asked instead, by the waits that follow.
func (v *greyVain) skipShort(p *pending, due time.Duration, waits []time.Duration) time.Duration {
	for p.from == v.from && p.ordinal%vainSample != 0 && due-p.grey <= v.used && p.waits < waitsMax {
		due += waits[min(int(p.waits), len(waits)-1)]
		p.waits++
	}
	return due
}
