package domain

import (
	"container/heap"
	"strings"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// retries holds the addresses that were answered and have no outcome.
type retries struct {
	*job
	route    *route
	log      *attemptLog // the attempts at these addresses
	deferred deferrals
	again    map[uint32]pending // deferred before, and now at the receiver again
	ripe     int                // due addresses at ripeAt, less those popped since
	ripeAt   time.Duration      // counted from the start of the planner
	stats    deferralStats
	sources  map[string]*greySource // sources by their address
	barren   smtp.Reason            // why all waiting addresses are given up: the receiver gives no good answer
}

func newRetries(j *job, r *route) retries {
	return retries{job: j, route: r, log: newAttemptLog(j.options.Load), again: map[uint32]pending{},
		stats: deferralStats{by: map[smtp.Reason]askedAgain{}}, sources: map[string]*greySource{}}
}

func (r *retries) hasDue(now time.Time) bool {
	return len(r.deferred) > 0 && r.deferred[0].due <= r.since(now)
}

// nextDue returns when the first deferred address is asked again; zero: none is deferred.
func (r *retries) nextDue() time.Time {
	if len(r.deferred) == 0 {
		return time.Time{}
	}
	return r.start.Add(r.deferred[0].due)
}

func (r *retries) pushDeferred(p pending) {
	heap.Push(&r.deferred, p)
}

// popDue removes and returns the deferred address that is due first.
func (r *retries) popDue() uint32 {
	p := heap.Pop(&r.deferred).(pending)
	if p.ordinal != controlOrdinal {
		r.ripe = max(0, r.ripe-1)
	}
	r.again[p.ordinal] = p
	return p.ordinal
}

// giveBack defers an address that was popped and not asked. giveBack reports whether the address was popped.
func (r *retries) giveBack(ordinal uint32) bool {
	p, known := r.again[ordinal]
	if !known {
		return false
	}
	delete(r.again, ordinal)
	r.pushDeferred(p)
	if ordinal != controlOrdinal {
		r.ripe++ // the address was due
	}
	return true
}

// takeCase returns the record and the case of an address that was answered or has ended: kept ones, or new ones if
// nothing is kept.
func (r *retries) takeCase(now time.Time, ordinal uint32) (pending, evidence.Case) {
	p, before := r.again[ordinal]
	delete(r.again, ordinal)
	if !before {
		p = pending{ordinal: ordinal}
	}
	if !before || ordinal == controlOrdinal && p.reason == smtp.ReasonNone {
		p.since = r.since(now)
	}
	c := r.log.takeCase(&p)
	return p, c
}

// popOf takes the last address of a waiting list, and its case.
func (r *retries) popOf(list *[]pending) (pending, evidence.Case) {
	n := len(*list) - 1
	p := (*list)[n]
	if *list = (*list)[:n]; n == 0 {
		*list = nil
	}
	c := r.log.takeCase(&p)
	return p, c
}

// ripeEvery is the least time between two counts of the due addresses. A million addresses may be deferred, and every
// few due ones make an offer.
const ripeEvery = time.Second

// countRipe returns how many deferred addresses were due, at most ripeEvery ago.
func (r *retries) countRipe(now time.Time) int {
	if since := r.since(now); since-r.ripeAt >= ripeEvery {
		r.ripe, r.ripeAt = 0, since
		for i := range r.deferred {
			if p := &r.deferred[i]; p.due <= since && p.ordinal != controlOrdinal {
				r.ripe++
			}
		}
	}
	return r.ripe
}

// makeProbes makes the probes of addresses. The probe of a deferred address says how long the address has waited. The
// probe doesn't say this if the ledger stalled meanwhile, because then the wait says nothing about the receiver.
func (r *retries) makeProbes(now time.Time, ordinals []uint32, localOf func(ordinal uint32) string) []*wire.Probe {
	list, all := make([]*wire.Probe, len(ordinals)), make([]wire.Probe, len(ordinals))
	var locals strings.Builder // a copy, because a receiver may keep a probe for long
	locals.Grow(16 * len(ordinals))
	for i, ordinal := range ordinals {
		q, from := &all[i], locals.Len()
		locals.WriteString(localOf(ordinal))
		q.Ordinal, q.Local = ordinal, locals.String()[from:]
		p, before := r.again[ordinal]
		q.Asked = p.marks&markAsked != 0
		if q.Retry = before; p.from != nil && p.marks&markHeld == 0 {
			q.Greylist(r.since(now)-p.grey, p.from.address)
		}
		list[i] = q
	}
	return list
}

// extendWaits adds the time in which nothing could be asked to the times of waiting addresses. The added time doesn't
// count towards giving up, and no greylist wait is learned from that time.
func (r *retries) extendWaits(now time.Time, lost time.Duration) {
	excused := func(since time.Duration) time.Duration { return max(since, min(since+lost, r.since(now))) }
	for i := range r.deferred {
		p := &r.deferred[i]
		p.since, p.marks = excused(p.since), p.marks|markHeld
	}
	for ordinal, p := range r.again {
		p.since, p.marks = excused(p.since), p.marks|markHeld
		r.again[ordinal] = p
	}
}

// pending is what is kept of one address from its first answer to its outcome. A file may have as many pending
// addresses as it has rows. Each pending takes 56 bytes, and the attempt log takes 24 for each attempt. Times count
// from the start of the planner.
type pending struct {
	since   time.Duration // time of the first answer; the time until giving up counts from here
	due     time.Duration // time of the next attempt
	grey    time.Duration // when the address itself was first deferred at the source
	from    *greySource   // the source; nil: the address itself wasn't deferred
	newest  *note         // the newest attempt; nil: none
	ordinal uint32
	omitted uint16      // attempts that the log doesn't keep
	reason  smtp.Reason // why the address was last deferred
	waits   uint8       // used configured waits, at most waitsMax
	kept    uint8       // attempts that the log keeps
	marks   uint8
}

// waitsMax bounds the count of used waits. No configuration has so many.
const waitsMax = 1<<8 - 1

// The bits of pending.marks.
const (
	markNamed = 1 << iota // the receiver named the wait
	markEarly             // asked again before the configured wait was over
	markHeld              // waited longer than necessary, because the ledger stalled
	markAsked             // a RCPT was sent for the address
)

// deferrals is a heap of the addresses that wait for their next attempt, soonest first.
type deferrals []pending

func (d deferrals) Len() int           { return len(d) }
func (d deferrals) Less(i, j int) bool { return d[i].due < d[j].due }
func (d deferrals) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *deferrals) Push(x any) { *d = append(*d, x.(pending)) }

// Pop implements heap.Interface.
func (d *deferrals) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
