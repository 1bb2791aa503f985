package domain

import (
	"container/heap"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// When an address is asked again: as the receiver names it, and if it names nothing by the configured waits, the
// last of which repeats; a greylisted one early, when another one that was greylisted has passed. When its
// time is over instead, see give_up.go. What is due goes before what was never asked: see backlog.go.

// retries are what is known of the addresses that have no outcome.
type retries struct {
	log       *attemptLog              // what was said about them
	stats     *deferralStats           // of those that are put off
	greyWaits map[uint16]time.Duration // the shortest that was enough, by source
}

func newRetries(load *Load) retries {
	return retries{log: newAttemptLog(load), stats: &deferralStats{by: map[smtp.Reason]*deferralCount{}},
		greyWaits: map[uint16]time.Duration{}}
}

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

// namedInRow is how many waits in a row may be as short as the receiver or a rule names
// them. From then on they grow like those of the configuration: a mailbox that is put off
// for a minute each time would be asked for hundreds of times. Guess.
const namedInRow = 4

// putOff says whether an address was put off itself. That its host or we have to rest is
// told of addresses that nobody asked for, too: they wait for that alone.
func putOff(list []evidence.Attempt) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
}

// again puts an address off, or gives it up when its time is over. A wait that the
// receiver named is never cut short. What it waits while nobody asks for it uses none of
// its time; of a control probe's it does, so that what was accepted never waits for it longer.
func (pl *planner) again(now time.Time, p pending, c evidence.Case, m answerOf) {
	if pl.backlog.barren != smtp.ReasonNone {
		pl.giveUpAt(now, p, c)
		return
	}
	if last, asked := c.Last(); asked && len(m.attempts) > 0 && m.reason == smtp.Greylisted {
		pl.putOffBy(now, &p, last)
	}
	wait, nth := m.wait, int(p.waits)
	if p.marks &^= markNamed; wait > 0 {
		p.marks |= markNamed
		wait += min(wait/20+50*time.Millisecond, 30*time.Second) // clocks differ
		nth -= namedInRow
	}
	if m.wait <= 0 || nth >= 0 && putOff(m.attempts) {
		waits := pl.options.waits(pl.route.key)
		own := waits[min(nth, len(waits)-1)]
		if left := p.since + pl.options.GiveUpAfter - pl.since(now); left > 0 {
			own = min(own, left) // one last try when the time is up
		}
		wait = max(wait, own)
	}
	if untimed(m) && p.ordinal != controlOrdinal { // neither that nor this wait counts
		p.since += pl.since(now) - max(p.due, p.since) + wait
	} else if p.waits < waitsMax {
		p.waits++
	}
	p.due = pl.since(now) + wait
	switch {
	case !pl.outOfTime(now, &p, c):
		pl.retries.log.keep(&p, c)
		if len(m.attempts) > 0 {
			pl.retries.stats.asked(p.reason, true)
		}
		p.reason = m.reason
		pl.retries.stats.push(&p, pl.passes(&p))
		heap.Push(&pl.backlog.deferred, p)
	case p.ordinal == controlOrdinal:
		pl.uncontrolled(now, m.reason)
	default:
		pl.giveUp(now, p, c, m.reason)
	}
}

// earlyApart is the time between two addresses that are asked again early, so that
// they do not all come at once; the receiver's pacing does the rest. Guess.
const earlyApart = 100 * time.Millisecond

// putOffBy notes that an address was greylisted, from where, and since when. From
// another source it begins anew: most implementations know a client by its address,
// so what was waited for before is worth nothing there.
func (pl *planner) putOffBy(now time.Time, p *pending, from evidence.Attempt) {
	number := pl.retries.log.source(from.Source)
	if number == p.from && number != 0 {
		return // its clock runs
	}
	p.from, p.grey, p.waits = number, pl.since(now), 0
	p.marks &^= markEarly | markHeld
}

// passed notes that a greylisted address got an answer from the source that it was
// greylisted from. Most implementations let a client through from then on, so the
// others are asked again soon: once each, and not before they waited as long as this
// one did, because some make those wait longer that come too early.
func (pl *planner) passed(now time.Time, p pending, last evidence.Attempt) {
	if p.from == 0 || last.Stage != smtp.StageRcpt || last.Outcome == smtp.Undecided ||
		pl.retries.log.source(last.Source) != p.from {
		return
	}
	waited := pl.since(now) - p.grey
	if least, known := pl.retries.greyWaits[p.from]; known && waited > least-least/4 {
		return // what waits was looked at for about as short a time: not all of it each time
	}
	pl.retries.greyWaits[p.from] = waited
	pl.hurry(now, p.from, waited)
	pl.hurried(waited)
}

// hurry has the greylisted addresses asked as soon as they waited so long.
// Those whose wait the receiver named keep it.
func (pl *planner) hurry(now time.Time, from uint16, waited time.Duration) {
	s, at := &pl.backlog, pl.since(now)
	for i := range s.deferred {
		p := &s.deferred[i]
		if due := max(at, p.grey+waited); p.from == from && p.marks&(markNamed|markEarly) == 0 && due < p.due {
			at += earlyApart
			p.due = min(max(due, at), p.due)
			p.marks |= markEarly
		}
	}
	heap.Init(&s.deferred)
}

// probe makes the question about an address; a greylisted one says since when, unless our
// ledger stalled meanwhile: that it waited for so long says nothing about the receiver.
func (pl *planner) probe(now time.Time, ordinal uint32) *wire.Probe {
	q := &wire.Probe{Ordinal: ordinal, Local: pl.local(ordinal)}
	p, before := pl.backlog.history[ordinal]
	q.Asked = p.marks&markAsked != 0
	if q.Retry = before; p.from != 0 && p.marks&markHeld == 0 {
		q.Greylist(pl.since(now)-p.grey, pl.retries.log.sources[p.from-1])
	}
	return q
}
