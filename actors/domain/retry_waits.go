package domain

import (
	"container/heap"
	"slices"
	"time"
	"unique"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// An address is asked again when the mail server says, or else by the configured waits, the last of which repeats. If
// it is greylisted, it is asked early once another greylisted address has passed (notePassed), and skips waits as
// short as those of others that came back in vain (noteInVain). Before that the receiver actor may have asked it
// twice within seconds, and knows how long its source has to wait: ask_again.go in actors/receiver/scheduler,
// greyWait. See give_up.go for when its time is over, and backlog.go for why due addresses go before fresh ones.

// namedInRow is how many waits in a row may be as short as the receiver or a rule names them. Later waits are at least
// the configured ones: otherwise a mailbox deferred by a minute each time would be asked hundreds of times. Guess.
const namedInRow = 4

// answerOf is what an answer says about the next attempt.
type answerOf struct {
	reason   smtp.Reason
	wait     time.Duration      // as the receiver named it; 0: the configured waits
	attempts []evidence.Attempt // since the last answer
	out      time.Duration      // for which it was out
}

// wasDeferred reports whether the address itself was deferred. When its host is paused or our source suspended,
// addresses that weren't asked get that answer too.
func wasDeferred(list []evidence.Attempt) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
}

// askLater defers an address or the control probe, or reports that its time is over, and why. A wait that the receiver
// named is never cut short. A wait in which the address isn't asked doesn't count towards giving up, except for a
// control probe, so that acceptances never wait longer for it.
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

// nextWait returns how long an address waits until it is asked again.
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
		if p.waits == 0 && p.from != nil {
			own = max(0, own-(r.since(now)-p.grey)) // from the first answer
		}
		if m.reason == smtp.Greylisted {
			own = skipShort(p, r.since(now)+own, waits[min(1, len(waits)-1):]) - r.since(now)
		}
		left := p.since + r.options.GiveUpAfter - r.since(now)
		if left > 0 && (left >= own/2 || !slices.ContainsFunc(m.attempts, isRcptFor)) {
			own = min(own, left) // a last try when the time is up, unless it was asked just before
		}
		wait = max(wait, own)
	}
	return wait
}

// earlyApart is the time between two retries brought forward. The receiver's rate limits them further.
const earlyApart = 100 * time.Millisecond

// noteDeferred notes that an address was deferred itself, at which source, and since when. Another source restarts the
// clock and, if it is greylisted, the waits: most implementations know a client by its address.
func (r *retries) noteDeferred(now time.Time, p *pending, m *answerOf) {
	for _, first := range m.attempts {
		if first.Stage != smtp.StageRcpt || first.Code/100 != 4 || first.Others || first.Void {
			continue
		}
		last := m.attempts[len(m.attempts)-1]
		if first.Source != last.Source || p.from != nil && p.from.address == last.Source { // its clock runs
			continue
		}
		ago := min(max(0, now.Sub(first.At)), m.out) // by the clock of another node
		if p.from == nil || m.reason == smtp.Greylisted {
			p.waits = 0
		}
		p.from, p.grey = r.sourceOf(last.Source), r.since(now)-ago
		p.marks &^= markEarly | markHeld
		return
	}
}

// expectAnswer returns when a deferred address is expected to be answered, by the configured waits.
func expectAnswer(p *pending, waits []time.Duration) time.Duration {
	if p.reason != smtp.Greylisted || p.from == nil || p.marks&markNamed != 0 {
		return p.due
	}
	if p.from.enough > 0 {
		return max(p.due, p.grey+p.from.enough)
	}
	at := p.due
	for i := int(p.waits); i < greyTries && at-p.grey < greyPrior; i++ {
		at += waits[min(i, len(waits)-1)]
	}
	return at
}

// notePassed notes that a greylisted address was answered at the source that was greylisted. Most implementations let a
// client through from then on, so the others are asked again soon: once each, and only after they waited as long as
// this one, because some greylists punish an early retry.
func (r *retries) notePassed(now time.Time, p pending, last evidence.Attempt) {
	if p.from == nil || p.reason != smtp.Greylisted || last.Stage != smtp.StageRcpt || last.Outcome == smtp.Undecided ||
		last.Source != p.from.address {
		return
	}
	waited := max(1, r.since(now)-p.grey)
	if least := p.from.enough; least > 0 && waited > least-least/4 {
		return // they were sped up for about as short a wait before
	}
	p.from.enough = waited
	r.speedUpGreylisted(now, p.from, waited)
}

// speedUpGreylisted makes greylisted addresses due once they have waited that long. A wait that the receiver named
// stays.
func (r *retries) speedUpGreylisted(now time.Time, from *greySource, waited time.Duration) {
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

const (
	// If vainAgree greylisted addresses were asked again in vain, and at least vainOthers others wait, that wait is
	// too short for these as well: they skip it. One in vainSample of them is asked nevertheless.
	vainAgree, vainOthers, vainSample = 3, 50, 8

	// A wait also counts as in vain if it is at most 1/vainMore longer than a wait in vain.
	vainMore = 8
)

// greySource is one of our sources, and how long greylisted addresses waited there.
type greySource struct {
	address string
	enough  time.Duration // the shortest wait after which one passed; 0: none has
	vain    int           // waits in vain while none has passed
	waited  time.Duration // the longest of them
	used    time.Duration // no address is asked again after so short a wait; 0: after any
}

// sourceOf returns the source with an address, a new one if it isn't known.
func (r *retries) sourceOf(address string) *greySource {
	s := r.sources[address]
	if s == nil {
		s = &greySource{address: unique.Make(address).Value()}
		r.sources[s.address] = s
	}
	return s
}

// noteInVain notes that a greylisted address was asked again and is still greylisted. If several are, the others skip
// the configured waits that are as short.
func (r *retries) noteInVain(now time.Time, p *pending, m *answerOf) {
	v := p.from
	if v == nil || v.enough > 0 || len(m.attempts) == 0 || p.reason != smtp.Greylisted || m.reason != smtp.Greylisted {
		return
	}
	last := m.attempts[len(m.attempts)-1]
	if last.Source != v.address {
		return
	}
	v.vain++
	v.waited = max(v.waited, r.since(now)-min(max(0, now.Sub(last.At)), m.out)-p.grey)
	if v.vain < vainAgree || v.waited <= v.used || len(r.deferred) < vainOthers {
		return
	}
	v.used = v.waited + v.waited/vainMore
	waits := r.options.Waits(r.route.key)
	for i := range r.deferred {
		if p := &r.deferred[i]; p.reason == smtp.Greylisted && p.from == v && p.marks&markNamed == 0 {
			ends := p.since + r.options.GiveUpAfter
			p.due = max(p.due, min(skipShort(p, p.due, waits), ends))
		}
	}
	heap.Init(&r.deferred)
}

// skipShort skips waits that are too short for a greylisted address, and returns when it is due instead.
func skipShort(p *pending, due time.Duration, waits []time.Duration) time.Duration {
	for p.from != nil && p.ordinal%vainSample != 0 && due-p.grey <= p.from.used && p.waits < waitsMax {
		due += waits[min(int(p.waits), len(waits)-1)]
		p.waits++
	}
	return due
}
