package domain

import (
	"container/heap"
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// unclearMax is how many control probes in a row may tell nothing, such as those
	// that a policy refuses, before what was accepted is given up. Guess.
	unclearMax = 3

	// unclearFor is how long no control probe is asked then; what is accepted
	// meanwhile is given up too. Guess: long enough not to be a nuisance, short
	// enough that a large file is not lost.
	unclearFor = 10 * time.Minute
)

// defaultControlPauses are long enough for another session and to see a guard that
// counts by the minute, and short enough that a small file of a domain that accepts
// everything ends in half a minute. Guesses.
var defaultControlPauses = []time.Duration{2 * time.Second, 15 * time.Second}

// controls are the control probes of an agenda: questions about mailboxes that
// nobody has, each about another, one at a time and with growing pauses.
type controls struct {
	nobodies nobodies
	local    string           // of the one that is asked
	witness  bool             // that is one that was accepted, and no nobody's
	bare     evidence.Attempt // a nobody was refused so, and needs a witness; its zero value: none was
	asking   bool             // it is ready, out or deferred
	asked    int              // since the need arose
	next     time.Time
	notes    []evidence.Attempt // for the Habit; never changed, only replaced

	accepted []pending // until it is known what that is worth
	proven   []pending // accepted, and that is worth something
	// A control probe is asked for what is accepted at canaryBy at the latest, and it waits since canaryFrom; zero:
	// none has to be.
	canaryBy, canaryFrom time.Time
	recalled             bool      // the cluster was asked what it knows of the domain
	recallBy             time.Time // acceptances wait so long for its answer; zero: they do not

	unclear int // in a row
	doubt   smtp.Reason
	until   time.Time // no control probe before, because of doubt
}

// note files an attempt at a control probe.
func (k *controls) note(list []evidence.Attempt) {
	notes := slices.Concat(k.notes, list)
	k.notes = notes[max(0, len(notes)-evidence.ControlsMax):]
}

// at is when the next control probe is due; zero: it is not waited for.
func (k *controls) at() time.Time {
	if len(k.accepted) == 0 || k.asking {
		return time.Time{}
	}
	if k.next.Before(k.canaryBy) {
		return k.canaryBy
	}
	return k.next
}

// begin makes another control probe, which goes to the receiver now.
func (k *controls) begin() {
	k.canaryBy, k.canaryFrom = time.Time{}, time.Time{}
	k.asking, k.witness, k.next, k.local = true, false, time.Time{}, k.nobodies.next()
	k.asked++
}

// endControls: nothing has to be known any more. One that is out comes back.
func (k *controls) end() {
	k.asking, k.asked, k.unclear = false, 0, 0
	k.next = time.Time{}
}

// inDoubt says whether acceptances cannot be believed at present, nor be examined.
func (k *controls) inDoubt(now time.Time) bool { return now.Before(k.until) }

// recallOver goes on when the cluster has told what it knows.
func (k *controls) recallOver() { k.recallBy = time.Time{} }

// control sees to it that a control probe is asked, at once or after the pause.
func (a *agenda) control(now time.Time) {
	k := &a.controls
	if k.asking || now.Before(k.next) {
		return
	}
	a.controls.begin()
	a.offerControl(now)
}

// offerControl offers the control probe as what is due: many addresses may wait for it.
func (a *agenda) offerControl(now time.Time) {
	p := pending{ordinal: controlOrdinal, since: a.since(now), due: a.since(now) - 1} // never 0: see tally.control
	a.tally.push(&p, p.due)
	heap.Push(&a.shardOf(controlOrdinal).deferred, p)
}

// controlBehind is behind how many addresses of a domain's first chunk the first control probe goes with them.
// Nearly always one of so many is accepted, and it would be asked then anyway, a round trip and a queue
// later. A domain with fewer may not need it.
const controlBehind = 4

// controlEarly begins the first control probe when it is its turn in a chunk, and reports whether it
// belongs there.
func (a *agenda) controlEarly(now time.Time, s *shard, o *open) bool {
	k := &a.controls
	if len(o.left) != controlBehind || !s.unasked() || !a.offeredAt.IsZero() || k.asking || !a.controls.recallBy.IsZero() {
		return false
	}
	if _, known := a.habit(now).CatchAll(); known {
		return false
	}
	a.controls.begin()
	if a.shardOf(controlOrdinal) == s {
		return true
	}
	a.offerControl(now)
	return false
}

// pauseControls lets some time pass before the next control probe.
func (a *agenda) pauseControls(now time.Time) {
	pauses := a.options.controlPauses()
	k := &a.controls
	k.asking = false
	k.next = now.Add(pauses[min(k.asked, len(pauses))-1])
}

// controlsEnd is when it is expected to be known whether the domain takes everything:
// nearly all refuse the first control probe, and one that does not, refuses none.
func (a *agenda) controlsEnd(now time.Time) time.Time {
	end, pauses := later(now, a.controls.at()), a.options.controlPauses()
	if a.tally.control > 0 {
		end = later(end, a.start.Add(a.tally.control))
	}
	if accepted := a.habit(now).Accepted; accepted > 0 {
		for i := accepted + 1; i < evidence.ControlsEnough; i++ {
			end = end.Add(pauses[min(i-1, len(pauses)-1)])
		}
	}
	return end
}

// Kinds of answers to a control probe.
const (
	tellsNothing = iota
	refusesIt    // this mailbox, which nobody has
	acceptsIt
)

// kindOf says what the answer to a control probe shows.
func kindOf(a evidence.Attempt) int {
	switch accepted, refused := verdict.Control(a); {
	case accepted:
		return acceptsIt
	case refused:
		return refusesIt
	}
	return tellsNothing
}

// controlled takes the answer to a control probe.
func (a *agenda) controlled(now time.Time, s *shard, p pending, c evidence.Case, m answerOf) {
	if a.controls.witness {
		a.testified(now, c, m)
		return
	}
	last, asked := c.Last()
	kind := tellsNothing
	if asked && len(m.attempts) > 0 {
		kind = kindOf(last)
	}
	if kind == acceptsIt && a.options.Facts.Suspect(a.work.Domain, now) {
		m.attempts[len(m.attempts)-1].Void = true
		a.controls.note(m.attempts)
		a.controls.end()
		a.guarded(now)
		return
	}
	a.controls.note(m.attempts)
	switch {
	case kind == refusesIt:
		a.tellsApart(now, last.At)
	case kind == acceptsIt:
		a.options.Facts.Learn(a.work.Domain, true, now)
		a.controls.unclear = 0
		a.pauseControls(now)
	case asked && len(m.attempts) > 0 && last.Outcome == smtp.Invalid && last.Bare && a.witnesses.known:
		a.controls.bare = last
		a.askWitness(now)
	case !asked || len(m.attempts) == 0 || last.Outcome == smtp.Undecided && !closed(c):
		a.again(now, s, p, c, m)
	default:
		a.unclear(now, last.Reason)
	}
}

// tellsApart: a mailbox that nobody has was refused at a time.
func (a *agenda) tellsApart(now, at time.Time) {
	a.options.Facts.Learn(a.work.Domain, false, now)
	a.controls.end()
	a.prove(at)
}

// closed says whether a case has an outcome.
func closed(c evidence.Case) bool {
	outcome, _ := verdict.Conclude(c)
	return outcome.Final()
}

// unclear: a control probe was answered, and nothing is known.
func (a *agenda) unclear(now time.Time, reason smtp.Reason) {
	a.pauseControls(now)
	if a.controls.unclear++; a.controls.unclear >= unclearMax {
		a.uncontrolled(now, reason)
	}
}

// uncontrolled gives up what was accepted: nobody knows what that is worth.
func (a *agenda) uncontrolled(now time.Time, reason smtp.Reason) {
	a.controls.end()
	a.controls.doubt, a.controls.until = reason, now.Add(unclearFor)
}
