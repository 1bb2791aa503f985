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

// controls are the control probes of an planner: questions about mailboxes that
// nobody has, each about another unless a greylist let one through, one at a time and with growing pauses.
type controls struct {
	locals  randomLocals
	local   string           // of the one that is asked
	let     string           // of one that was greylisted and then refused: asked again it is not put off; empty: none
	witness bool             // that is one that was accepted, and no nobody's
	bare    evidence.Attempt // a nobody was refused so, and needs a witness; its zero value: none was
	asking  bool             // it is ready, out or deferred
	asked   int              // since the need arose
	next    time.Time
	notes   []evidence.Attempt // for the Habit; never changed, only replaced

	host     string    // where those in accepted were
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
	k.asking, k.witness, k.next, k.local = true, false, time.Time{}, k.let
	if k.local == "" {
		k.local = k.locals.next()
	}
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
func (pl *planner) control(now time.Time) {
	k := &pl.controls
	if k.asking || now.Before(k.next) {
		return
	}
	pl.controls.begin()
	pl.offerControl(now)
}

// offerControl offers the control probe as what is due: many addresses may wait for it.
func (pl *planner) offerControl(now time.Time) {
	p := pending{ordinal: controlOrdinal, since: pl.since(now), due: pl.since(now) - 1} // never 0: see deferralStats.control
	pl.retries.stats.push(&p, p.due)
	heap.Push(&pl.backlog.deferred, p)
}

// controlBehind is behind how many addresses of a domain's first chunk the first control probe goes with them.
// Nearly always one of so many is accepted, and it would be asked then anyway, a round trip and a queue
// later. A domain with fewer may not need it.
const controlBehind = 4

// controlEarly begins the first control probe when it is its turn in a chunk, and reports whether it
// belongs there.
func (pl *planner) controlEarly(now time.Time, o *open) bool {
	k := &pl.controls
	if len(o.left) != controlBehind || !pl.backlog.unasked() || !pl.offeredAt.IsZero() || k.asking || !pl.controls.recallBy.IsZero() {
		return false
	}
	if _, known := pl.habit(now, pl.answering()).CatchAll(); known {
		return false
	}
	pl.controls.begin()
	return true
}

// pauseControls lets some time pass before the next control probe.
func (pl *planner) pauseControls(now time.Time) {
	pauses := pl.options.controlPauses()
	k := &pl.controls
	k.asking = false
	k.next = now.Add(pauses[min(k.asked, len(pauses))-1])
}

// controlsEnd is when it is expected to be known whether the domain takes everything:
// nearly all refuse the first control probe, and one that does not, refuses none.
func (pl *planner) controlsEnd(now time.Time) time.Time {
	end, pauses := later(now, pl.controls.at()), pl.options.controlPauses()
	if pl.retries.stats.control > 0 {
		end = later(end, pl.start.Add(pl.retries.stats.control))
	}
	if accepted := pl.habit(now, pl.controls.host).Accepted; accepted > 0 {
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
func (pl *planner) controlled(now time.Time, p pending, c evidence.Case, m answerOf) {
	if pl.controls.witness {
		pl.testified(now, c, m)
		return
	}
	last, asked := c.Last()
	kind := tellsNothing
	if asked && len(m.attempts) > 0 {
		kind = kindOf(last)
	}
	if kind != tellsNothing {
		pl.route.hear(last)
	}
	if kind == acceptsIt && pl.options.Facts.Suspect(habitKey(pl.work.Domain, last.Host), now) {
		m.attempts[len(m.attempts)-1].Void = true
		pl.controls.note(m.attempts)
		pl.controls.end()
		pl.guarded(now)
		return
	}
	pl.controls.note(m.attempts)
	switch {
	case kind == refusesIt || pl.staysRefused(c):
		if p.from != 0 {
			pl.controls.let = pl.controls.local
		}
		pl.tellsApart(now, last)
	case kind == acceptsIt:
		pl.controls.let = ""
		pl.options.Facts.Learn(habitKey(pl.work.Domain, last.Host), true, now)
		pl.controls.unclear = 0
		pl.pauseControls(now)
		pl.moveControls(now, last.Host)
	case asked && len(m.attempts) > 0 && last.Outcome == smtp.Invalid && last.Bare && pl.witnesses.known:
		pl.controls.bare = last
		pl.askWitness(now)
	case !asked || len(m.attempts) == 0 || last.Outcome == smtp.Undecided && !closed(c):
		if last.Reason == smtp.NotAccepted && m.wait == 0 {
			m.wait = pl.options.Facts.Hour.Of(staysRefusedFor)
		}
		pl.again(now, p, c, m)
	default:
		pl.unclear(now, last.Reason)
	}
}

// staysRefusedFor is how long a control probe is refused for now, as a mailbox that doesn't exist, until that
// is a refusal. Greylisting says nothing of mailboxes, and a verification that is under way takes seconds. Guess.
const staysRefusedFor = time.Minute

// staysRefused reports whether a receiver that refuses missing mailboxes for now only has refused a control probe
// again, while others are accepted: the same name, by the same host.
func (pl *planner) staysRefused(c evidence.Case) bool {
	last, _ := c.Last()
	return last.Reason == smtp.NotAccepted && len(pl.controls.accepted) > 0 && pl.controls.host == last.Host &&
		slices.ContainsFunc(c.Attempts, func(t evidence.Attempt) bool {
			return t.Reason == smtp.NotAccepted && !t.Void && !t.Others && t.Host == last.Host &&
				last.At.Sub(t.At) >= pl.options.Facts.Hour.Of(staysRefusedFor)
		})
}

// tellsApart: a mailbox that nobody has was refused.
func (pl *planner) tellsApart(now time.Time, refused evidence.Attempt) {
	pl.options.Facts.Learn(habitKey(pl.work.Domain, refused.Host), false, now)
	pl.controls.end()
	pl.moveControls(now, refused.Host)
	pl.prove(refused.At)
}

// moveControls has everything asked again that waits for control probes at another host than the one that
// answers now: it says nothing about that one.
func (pl *planner) moveControls(now time.Time, host string) {
	if pl.controls.host == host {
		return
	}
	accepted := pl.controls.accepted
	pl.controls.accepted, pl.controls.canaryBy, pl.controls.canaryFrom = nil, time.Time{}, time.Time{}
	for _, p := range accepted {
		pl.disregard(now, p, pl.retries.log.take(&p))
	}
}

// closed says whether a case has an outcome.
func closed(c evidence.Case) bool {
	outcome, _ := verdict.Conclude(c)
	return outcome.Final()
}

// unclear: a control probe was answered, and nothing is known.
func (pl *planner) unclear(now time.Time, reason smtp.Reason) {
	pl.pauseControls(now)
	if pl.controls.unclear++; pl.controls.unclear >= unclearMax {
		pl.uncontrolled(now, reason)
	}
}

// uncontrolled gives up what was accepted: nobody knows what that is worth.
func (pl *planner) uncontrolled(now time.Time, reason smtp.Reason) {
	pl.controls.end()
	pl.controls.doubt, pl.controls.until = reason, now.Add(unclearFor)
}
