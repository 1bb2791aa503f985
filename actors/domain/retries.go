package domain

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// When an address is asked again: as the receiver names it, and if it names nothing by the configured waits, the
// last of which repeats; a greylisted one early, when another one that was greylisted has passed. When its
// time is over instead, see give_up.go. What is due goes before what was never asked: see backlog.go.

// retries are the addresses that were answered and have no outcome, and what is known of them.
type retries struct {
	*job
	route     *route
	log       *attemptLog // what was said about them
	deferred  deferrals
	again     map[uint32]pending       // those that were deferred and are out again
	ripe      int                      // due addresses in deferred, counted at ripeAt, less those taken since
	ripeAt    time.Duration            // since the start of the planner
	stats     deferralStats            // of deferred
	greyWaits map[uint16]time.Duration // the shortest wait after which a greylisted address passed, by source
	vain      greyVain
	barren    smtp.Reason // the receiver gives nobody an answer, so all that waits is given up; why
}

func newRetries(j *job, r *route) retries {
	return retries{job: j, route: r, log: newAttemptLog(j.options.Load), again: map[uint32]pending{},
		stats: deferralStats{by: map[smtp.Reason]*deferralCount{}}, greyWaits: map[uint16]time.Duration{}}
}

// hasDue reports whether the time of a deferred address has come.
func (r *retries) hasDue(now time.Time) bool {
	return len(r.deferred) > 0 && r.deferred[0].due <= r.since(now)
}

// nextDue is when the first deferred address is asked again; zero: there is none.
func (r *retries) nextDue() time.Time {
	if len(r.deferred) == 0 {
		return time.Time{}
	}
	return r.start.Add(r.deferred[0].due)
}

// pushDeferred defers an address.
func (r *retries) pushDeferred(p pending) {
	r.stats.push(&p, r.expectAnswer(&p))
	heap.Push(&r.deferred, p)
}

// popDue takes the deferred address that is due first.
func (r *retries) popDue() uint32 {
	p := heap.Pop(&r.deferred).(pending)
	if p.ordinal != controlOrdinal {
		r.ripe = max(0, r.ripe-1)
	}
	r.stats.pop(&p)
	r.again[p.ordinal] = p
	return p.ordinal
}

// giveBack defers an address that was popped and not asked. It reports whether it was one.
func (r *retries) giveBack(ordinal uint32) bool {
	p, known := r.again[ordinal]
	if !known {
		return false
	}
	delete(r.again, ordinal)
	r.pushDeferred(p)
	if ordinal != controlOrdinal {
		r.ripe++ // its time had come
	}
	return true
}

// takeCase returns the record and the case of an answered or ended address: the kept ones, or new ones.
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

// ripeEvery is how often it is counted how many deferred addresses are due: there may be
// a million of them, and an offer is made for each few.
const ripeEvery = time.Second

// countRipe returns how many deferred addresses were due at the last count, at most ripeEvery ago.
func (r *retries) countRipe(now time.Time) int {
	if since := r.since(now); since-r.ripeAt >= ripeEvery {
		r.ripe, r.ripeAt = 0, since
		r.deferred.due(since, func(p *pending) bool {
			if p.ordinal != controlOrdinal {
				r.ripe++
			}
			return true
		})
	}
	return r.ripe
}

// namedInRow is how many waits in a row may be as short as the receiver or a rule names them. After that they grow as
// the configured ones do: a mailbox deferred by a minute each time would be asked about hundreds of times. Guess.
const namedInRow = 4

// answerOf is what an answer says about the next attempt.
type answerOf struct {
	reason   smtp.Reason
	wait     time.Duration      // as the receiver named it; 0: the configured waits
	attempts []evidence.Attempt // since the last answer
	out      time.Duration      // for which it was out
}

// wasDeferred reports whether the address itself was put off. When its host or our source has to rest, addresses that
// weren't asked get that answer too.
func wasDeferred(list []evidence.Attempt) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
}

// askLater has an address, or the control probe, asked again later, or reports that its time is over, and why. A wait
// that the receiver named is never cut short. A wait in which the address isn't asked doesn't count towards giving up,
// except for a control probe, so that acceptances never wait longer for it.
func (r *retries) askLater(now time.Time, p pending, c evidence.Case, m answerOf) (why smtp.Reason, over bool) {
	if r.barren != smtp.ReasonNone {
		return r.whyBarren(c), true
	}
	if m.reason == smtp.Greylisted || p.ordinal != controlOrdinal {
		r.noteDeferred(now, &p, &m)
	}
	r.noteInVain(now, &p, &m)
	wait := r.nextWait(now, &p, m)
	if untimed(m) && p.ordinal != controlOrdinal { // neither the last wait nor this one counts
		p.since += r.since(now) - max(p.due, p.since) + wait
	} else if p.waits < waitsMax {
		p.waits++
	}
	p.due = r.since(now) + wait
	if r.outOfTime(now, &p, c) {
		return m.reason, true
	}
	r.log.keepCase(&p, c)
	if len(m.attempts) > 0 {
		r.stats.noteAsked(p.reason, true)
	}
	p.reason = m.reason
	r.pushDeferred(p)
	return smtp.ReasonNone, false
}

// nextWait is how long an address waits until it is asked again.
func (r *retries) nextWait(now time.Time, p *pending, m answerOf) time.Duration {
	wait, nth := m.wait, int(p.waits)
	if p.marks &^= markNamed; wait > 0 {
		p.marks |= markNamed
		wait += min(wait/20+50*time.Millisecond, time.Second) // receivers count whole seconds
		nth -= namedInRow
	}
	if m.wait <= 0 || nth >= 0 && wasDeferred(m.attempts) {
		waits := r.options.Waits(r.route.key)
		own := waits[min(nth, len(waits)-1)]
		if p.waits == 0 && p.from != 0 {
			own = max(0, own-(r.since(now)-p.grey)) // it counts from the first answer
		}
		if m.reason == smtp.Greylisted {
			own = r.vain.skipShort(p, r.since(now)+own, waits[min(1, len(waits)-1):]) - r.since(now)
		}
		left := p.since + r.options.GiveUpAfter - r.since(now)
		if left > 0 && (left >= own/2 || !slices.ContainsFunc(m.attempts, isRcptFor)) {
			own = min(own, left) // a last try when the time is up, unless it was asked just before
		}
		wait = max(wait, own)
	}
	return wait
}

// earlyApart spreads addresses that are asked again early to ten a second; the receiver's pacing does the rest.
const earlyApart = 100 * time.Millisecond

// noteDeferred notes that an address was put off itself, from where, and since when. For another source that begins
// anew, and if it is greylisted the waits do too: most implementations know a client by its address.
func (r *retries) noteDeferred(now time.Time, p *pending, m *answerOf) {
	for _, first := range m.attempts {
		if first.Stage != smtp.StageRcpt || first.Code/100 != 4 || first.Others || first.Void {
			continue
		}
		last := m.attempts[len(m.attempts)-1]
		number := r.log.sourceNumber(last.Source)
		if first.Source != last.Source || number == p.from && number != 0 { // its clock runs
			continue
		}
		ago := min(max(0, now.Sub(first.At)), m.out) // by the clock of another node
		if p.from == 0 || m.reason == smtp.Greylisted {
			p.waits = 0
		}
		p.from, p.grey = number, r.since(now)-ago
		p.marks &^= markEarly | markHeld
		return
	}
}

// expectAnswer is when an address that is put off is expected to be answered.
func (r *retries) expectAnswer(p *pending) time.Duration {
	if p.reason != smtp.Greylisted || p.from == 0 || p.marks&markNamed != 0 {
		return p.due
	}
	least, known := r.greyWaits[p.from]
	if known {
		return max(p.due, p.grey+least)
	}
	least = greyPrior
	at, waits := p.due, r.options.Waits(r.route.key)
	for i := int(p.waits); i < greyTries && at-p.grey < least; i++ {
		at += waits[min(i, len(waits)-1)]
	}
	return at
}

// makeProbes makes the questions about addresses. One that was put off carries how long it has waited, unless our
// ledger stalled meanwhile: then the wait says nothing about the receiver.
func (r *retries) makeProbes(now time.Time, ordinals []uint32, localOf func(ordinal uint32) string) []*wire.Probe {
	list, all := make([]*wire.Probe, len(ordinals)), make([]wire.Probe, len(ordinals))
	var locals strings.Builder // a copy, since a receiver may keep one for long
	locals.Grow(16 * len(ordinals))
	for i, ordinal := range ordinals {
		q, from := &all[i], locals.Len()
		locals.WriteString(localOf(ordinal))
		q.Ordinal, q.Local = ordinal, locals.String()[from:]
		p, before := r.again[ordinal]
		q.Asked = p.marks&markAsked != 0
		if q.Retry = before; p.from != 0 && p.marks&markHeld == 0 {
			q.Greylist(r.since(now)-p.grey, r.log.sources[p.from-1])
		}
		list[i] = q
	}
	return list
}

// extendWaits gives waiting addresses back the time in which nothing could be asked: it doesn't count towards giving
// up, and no greylist wait is learned from it.
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
	for _, c := range r.stats.by {
		c.since = excused(c.since)
	}
}

// countDue counts, by reason, the deferred addresses that are due. Where more than dueMax are due, all deferred ones
// count as due.
func (r *retries) countDue(now time.Time) map[smtp.Reason]int {
	out, n := map[smtp.Reason]int{}, 0
	r.deferred.due(r.since(now), func(p *pending) bool {
		if n++; p.ordinal != controlOrdinal {
			out[p.reason]++
		}
		return n < dueMax
	})
	if n < dueMax {
		return out
	}
	for _, reason := range r.stats.reasons() {
		out[reason] = r.stats.countOf(reason).addresses
	}
	return out
}

// pending is what is kept of one address from its first answer to its outcome. There may be as many as a file has rows:
// 40 bytes each, and 16 for each attempt, which the attempt log holds. Its times count from the start of the planner.
type pending struct {
	since   time.Duration // the first answer, from which the time to give up counts
	due     time.Duration // the next attempt
	grey    time.Duration // put off itself for the first time, at the source that from names
	ordinal uint32
	newest  uint32      // note of the newest attempt; 0: there is none
	omitted uint16      // attempts that are not kept
	from    uint16      // number of a source; 0: not put off itself
	reason  smtp.Reason // why it was put off last
	waits   uint8       // how many of the configured waits are used up, at most waitsMax
	kept    uint8       // notes
	marks   uint8
}

// waitsMax is where the count of waits stops: no configuration has as many.
const waitsMax = 1<<8 - 1

// Bits of pending.marks.
const (
	markNamed = 1 << iota // the receiver named the wait
	markEarly             // asked again before the configured wait was over
	markHeld              // waited for longer than it had to, because our ledger stalled
	markAsked             // a RCPT was sent for it
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

// due calls do for each address whose time has come, until it returns false: those lie together at the top of the heap.
func (d deferrals) due(since time.Duration, do func(p *pending) bool) {
	var below func(i int) bool
	below = func(i int) bool {
		if i >= len(d) || d[i].due > since {
			return true
		}
		return do(&d[i]) && below(2*i+1) && below(2*i+2)
	}
	below(0)
}
