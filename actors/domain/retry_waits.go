package domain

import (
	"container/heap"
	"slices"
	"time"
	"unique"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// These are the rules for when a deferred address is asked again.
//   - If the receiver names a wait, that wait holds. Without a named wait the configured waits hold (5, 10, 20, 40
//     minutes, 1, 2 hours: retry.greylist_waits); the last one repeats.
//   - A greylisted address is asked sooner once another one has passed after a shorter wait (notePassed).
//   - A greylisted address skips waits that were too short for other addresses (noteInVain).
//
// Before an address comes here, the receiver actor may have asked it twice within seconds. The receiver actor also
// knows how long its source has to wait (greyWait in actors/receiver/scheduler/ask_again.go). give_up.go says when an
// address is given up.

// namedInRow is how many waits in a row may be as short as the receiver or a rule names them. Later waits are at least
// as long as the configured ones. Otherwise a mailbox that is deferred for a minute each time would be asked hundreds
// of times. Guess.
const namedInRow = 4

// answerOf is what an answer says about the next attempt.
type answerOf struct {
	reason   smtp.Reason
	wait     time.Duration      // the wait that the receiver named; 0: none
	attempts []evidence.Attempt // attempts since the last answer
	out      time.Duration      // how long the address was at the receiver
}

// wasDeferred reports whether the address itself was deferred. Addresses that weren't asked also get a deferral, if
// their host is paused or our source is suspended.
func wasDeferred(list []evidence.Attempt) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
}

// askLater defers an address or the control probe. If the time of the address is over, askLater returns why instead.
// askLater never shortens a wait that the receiver named. A wait in which the address isn't asked doesn't count towards
// giving up. Such a wait of a control probe counts, so that acceptances never wait too long for it.
func (r *retries) askLater(now time.Time, p pending, c evidence.Case, m answerOf) (why smtp.Reason, over bool) {
	if r.barren != smtp.ReasonNone {
		return r.whyBarren(c), true
	}
	if m.reason == smtp.Greylisted || p.ordinal != controlOrdinal {
		r.noteDeferred(now, &p, &m)
	}
	r.noteInVain(now, &p, &m)
	wait := r.nextWait(now, &p, m)
	if untimed(m) && p.ordinal != controlOrdinal { // neither the last wait nor the next one counts
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
		wait += min(wait/20+50*time.Millisecond, time.Second) // add a little, because receivers count whole seconds
		nth -= namedInRow
	}
	if m.wait <= 0 || nth >= 0 && wasDeferred(m.attempts) {
		waits := r.options.Waits(r.route.key)
		own := waits[min(nth, len(waits)-1)]
		if p.waits == 0 && p.from != nil {
			own = max(0, own-(r.since(now)-p.grey)) // the wait counts from the first answer
		}
		if m.reason == smtp.Greylisted {
			own = skipShort(p, r.since(now)+own, waits[min(1, len(waits)-1):]) - r.since(now)
		}
		left := p.since + r.options.GiveUpAfter - r.since(now)
		if left > 0 && (left >= own/2 || !slices.ContainsFunc(m.attempts, isRcptFor)) {
			own = min(own, left) // try the address a last time when its time is up, unless it was asked just before
		}
		wait = max(wait, own)
	}
	return wait
}

// earlyApart is the time between two retries that were brought forward. The receiver's rate limits them further.
const earlyApart = 100 * time.Millisecond

// noteDeferred notes that the address itself was deferred, at which source, and since when. At another source the clock
// starts again: most greylists know a client by its IP address.
func (r *retries) noteDeferred(now time.Time, p *pending, m *answerOf) {
	for _, first := range m.attempts {
		if first.Stage != smtp.StageRcpt || first.Code/100 != 4 || first.Others || first.Void {
			continue
		}
		last := m.attempts[len(m.attempts)-1]
		if first.Source != last.Source || p.from != nil && p.from.address == last.Source { // the clock runs already
			continue
		}
		ago := min(max(0, now.Sub(first.At)), m.out) // measured by the clock of another node
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

// notePassed notes that a greylisted address was answered at the source where it was greylisted. Most greylists accept
// a client from then on. So the other addresses are asked again soon, each once. Each address first waits as long as
// the passed one did, because some greylists punish an early retry.
func (r *retries) notePassed(now time.Time, p pending, last evidence.Attempt) {
	if p.from == nil || p.reason != smtp.Greylisted || last.Stage != smtp.StageRcpt || last.Outcome == smtp.Undecided ||
		last.Source != p.from.address {
		return
	}
	waited := max(1, r.since(now)-p.grey)
	if least := p.from.enough; least > 0 && waited > least-least/4 {
		return // a wait nearly as short has brought the addresses forward before
	}
	p.from.enough = waited
	r.speedUpGreylisted(now, p.from, waited)
}

// speedUpGreylisted makes greylisted addresses due when they have waited for a given time. speedUpGreylisted doesn't
// shorten a wait that the receiver named.
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
	// A wait is skipped as too short if vainAgree greylisted addresses were asked again after it in vain, and at least
	// vainOthers other addresses wait. One address in vainSample is asked nevertheless.
	vainAgree, vainOthers, vainSample = 3, 50, 8

	// A wait also counts as too short if it is at most 1/vainMore longer than a wait in vain.
	vainMore = 8
)

// greySource is one of our sources, and how long greylisted addresses wait there.
type greySource struct {
	address string
	enough  time.Duration // the shortest wait after which one passed; 0: none
	vain    int           // addresses asked again in vain while none has passed
	waited  time.Duration // the longest wait in vain
	used    time.Duration // waits up to this length are skipped; 0: none
}

// sourceOf returns the source with an address, or makes it.
func (r *retries) sourceOf(address string) *greySource {
	s := r.sources[address]
	if s == nil {
		s = &greySource{address: unique.Make(address).Value()}
		r.sources[s.address] = s
	}
	return s
}

// noteInVain notes that a greylisted address was asked again and is still greylisted. After several such failures,
// other addresses skip configured waits that are as short.
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

// skipShort skips waits that are too short for a greylisted address, and returns when it is due then.
func skipShort(p *pending, due time.Duration, waits []time.Duration) time.Duration {
	for p.from != nil && p.ordinal%vainSample != 0 && due-p.grey <= p.from.used && p.waits < waitsMax {
		due += waits[min(int(p.waits), len(waits)-1)]
		p.waits++
	}
	return due
}
