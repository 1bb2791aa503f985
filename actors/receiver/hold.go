package receiver

import (
	"fmt"
	"math"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

const (
	// heldSpan is over what it is judged whether the rate or the sessions hold a receiver
	// back. Guess: some times what most RCPTs wait for each other.
	heldSpan = 2 * time.Second

	// heldPart is for which part of that span sessions have to wait for the rate, before
	// that is what holds the receiver back. More sessions would not make it faster, and
	// they wait for each other's answers beside. Guess.
	heldPart = 0.25
)

// lacks is what kept a desk from asking more when it looked: by cause, until when.
type lacks struct {
	found [wire.Cause_UNREACHED + 1]bool
	until [wire.Cause_UNREACHED + 1]time.Time // zero: until something is answered
}

// add notes a cause; of several ends the soonest holds.
func (l *lacks) add(cause wire.Cause, until time.Time) {
	if !l.found[cause] || until.Before(l.until[cause]) {
		l.until[cause] = until
	}
	l.found[cause] = true
}

// blocked gives one of the causes.
func (l *lacks) blocked(cause wire.Cause) status.Blocked {
	return status.Blocked{Cause: cause, Until: l.until[cause]}
}

// held is for which part of the last while each cause was there.
type held struct {
	at   time.Time
	last lacks
	part [wire.Cause_UNREACHED + 1]float64
}

// note takes what is lacking from now on.
func (h *held) note(now time.Time, l lacks) {
	if keep := math.Exp(-now.Sub(h.at).Seconds() / heldSpan.Seconds()); now.After(h.at) {
		for i := range h.part {
			h.part[i] *= keep
			if h.last.found[i] {
				h.part[i] += 1 - keep
			}
		}
	}
	h.at, h.last = now, l
}

// over gives the parts as they are now.
func (h held) over(now time.Time, cause wire.Cause) float64 {
	h.note(now, h.last)
	return h.part[cause]
}

// hold says what keeps the desk from asking more.
func (d *desk) hold(now time.Time) status.Blocked {
	b := d.holds(now)
	b.Why = d.because(now, b.Cause)
	return b
}

// holds is hold without the sentence.
func (d *desk) holds(now time.Time) status.Blocked {
	b := d.found(now)
	if b.Cause == wire.Cause_NO_SOURCE {
		b.Until = d.boundEnds(now, b.Until)
	}
	return b
}

// found is holds, with the ends of days instead of those of their bounds.
func (d *desk) found(now time.Time) status.Blocked {
	if b := d.barred(now); !b.Free() {
		return b
	}
	if b := d.unreachable(now); !b.Free() || d.tasks.queue.Queued() == 0 {
		return b
	}
	h := &d.held
	if ok, next := d.spendable(now); !ok {
		return status.Blocked{Cause: wire.Cause_BUDGET, Until: next}
	}
	for _, cause := range [...]wire.Cause{wire.Cause_BUDGET, wire.Cause_NO_SOURCE} {
		if h.last.found[cause] && !d.asks() {
			return h.last.blocked(cause)
		}
	}
	switch {
	case h.last.found[wire.Cause_ALLOWANCE], h.over(now, wire.Cause_ALLOWANCE) >= heldPart:
		return h.last.blocked(wire.Cause_ALLOWANCE)
	case h.last.found[wire.Cause_CONNECTIONS], h.over(now, wire.Cause_CONNECTIONS) >= 1-heldPart:
		return h.last.blocked(wire.Cause_CONNECTIONS)
	}
	return status.Blocked{}
}

// barred is holds for what lets nothing be asked at all; FREE: there is no such thing.
func (d *desk) barred(now time.Time) status.Blocked {
	a, working := d.allowance, len(d.sessions) > d.closing
	switch {
	case a.Pause == throttle.PauseYes, a.Pause == throttle.PauseDrain && !working:
		return status.Blocked{Cause: wire.Cause_PAUSED, Until: d.pauseEnds(now, d.key)}
	case shut(a):
		return status.Blocked{Cause: wire.Cause_NO_SHARE}
	case d.options.Facts != nil && !d.known:
		return status.Blocked{Cause: wire.Cause_NO_SHARE, Until: d.asked.Add(knowWithin)}
	case now.Before(d.paused):
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: d.paused}
	}
	b := d.mute(now)
	if !b.Free() && !(b.Cause == wire.Cause_PAUSED && working) { // else they are drained
		if b.Cause == wire.Cause_PAUSED {
			b.Until = d.sourcesPaused(now, b.Until)
		}
		return b
	}
	if o := d.breather(now); o != nil {
		return status.Blocked{Cause: wire.Cause_PENALTY, Until: o.tempo.Explain(now).Until}
	}
	return status.Blocked{}
}

// breather gives the source that is the first to speak again when all of ours that the
// receiver takes rest for a short while, by their tempos; nil: one may speak.
func (d *desk) breather(now time.Time) (first *outlet) {
	for _, o := range d.outlets {
		if now.Before(o.until) {
			continue
		}
		rests := o.tempo.Explain(now).Until
		if !now.Before(rests) {
			return nil
		}
		if first == nil || rests.Before(first.tempo.Explain(now).Until) {
			first = o
		}
	}
	return first
}

// slowest gives the source whose tempo, rather than the allowance, says how fast the
// receiver is asked; nil: it is the allowance.
func (d *desk) slowest(now time.Time) *outlet {
	for _, o := range d.outlets {
		if !now.Before(o.until) {
			if o.tempo.Limits(now) {
				return o
			}
			return nil
		}
	}
	return nil
}

// unreachable says whether no host can be dialled now, or from none of our sources, and until when:
// UNREACHED when nobody answers there, PENALTY when they answer that they don't want us now.
func (d *desk) unreachable(now time.Time) (b status.Blocked) {
	for _, l := range d.lanes {
		if l.Sessions() > 0 {
			return status.Blocked{}
		}
		for _, c := range l.candidates {
			if d.outlet(now, l, c.at) != nil && !now.Before(c.until) {
				return status.Blocked{}
			}
			told, until, _ := d.shutBy(now, l, c)
			if b.Until.IsZero() || until.Before(b.Until) {
				b = status.Blocked{Cause: wire.Cause_UNREACHED, Until: until}
				if told.attempt.Code != 0 {
					b.Cause = wire.Cause_PENALTY
				}
			}
		}
	}
	return b
}

// because puts what holds the desk back into a sentence.
func (d *desk) because(now time.Time, cause wire.Cause) string {
	a := d.allowance
	switch cause {
	case wire.Cause_ALLOWANCE:
		if o := d.slowest(now); o != nil {
			return fmt.Sprintf("RCPT commands at %.3g/s are let go here now, of %s that are allowed: %s",
				d.permitted(now), a.RcptRate, o.tempo.Explain(now).Why)
		}
		return fmt.Sprintf("RCPT commands at %s are permitted here now, and used", a.RcptRate)
	case wire.Cause_CONNECTIONS:
		return fmt.Sprintf("%d of %d sessions are open, and %s may be opened", len(d.sessions)-d.closing,
			a.Connections, a.ConnectionRate)
	case wire.Cause_BUDGET:
		if a.RefusedShare > 0 {
			return fmt.Sprintf("it may refuse %d addresses in an hour, or %d %% of its answers, and has",
				a.RefusedPerHour, a.RefusedShare)
		}
		return fmt.Sprintf("it may refuse %d addresses in an hour, and has", a.RefusedPerHour)
	case wire.Cause_PAUSED:
		return d.pausedBecause()
	case wire.Cause_PENALTY:
		if o := d.breather(now); o != nil && !now.Before(d.paused) {
			return o.tempo.Explain(now).Why
		}
		if !d.excuse.asked() {
			return "it wanted less of us, and rests"
		}
		return fmt.Sprintf("it wanted less of us, and rests: %d %s, %s (rule %s)", d.excuse.attempt.Code,
			d.excuse.attempt.Enhanced, d.excuse.verdict.Reason, d.excuse.verdict.Rule)
	case wire.Cause_NO_SOURCE:
		return d.sourceless(now)
	case wire.Cause_NO_SHARE:
		return d.shareless()
	case wire.Cause_UNREACHED:
		return "its hosts cannot be reached"
	}
	if d.tasks.queue.Queued() == 0 {
		return "nothing waits"
	}
	return "it asks as fast as it is answered"
}

// sourceless is because for NO_SOURCE.
func (d *desk) sourceless(now time.Time) string {
	for _, o := range d.outlets {
		today := d.options.clock(now)
		if most := egress.DailyCap(d.options.Sources.Limits(o.index), today); most > 0 && !now.Before(o.until) {
			name := view.SourceName(o.name)
			if left, _ := d.options.Sources.Remaining(o.index, "", today, false); left > 0 {
				return fmt.Sprintf("our source %s may ask %d addresses today; other receivers have their part of "+
					"the %d that are left", name, most, left)
			}
			return fmt.Sprintf("our source %s has asked the %d addresses that it may ask today", name, most)
		}
	}
	return "our sources rest, because many receivers refuse them"
}

// shareless is because for NO_SHARE.
func (d *desk) shareless() string {
	switch {
	case d.share.none():
		return "this node has no share of the allowance, or has lost the ledger"
	case shut(d.allowance):
		return fmt.Sprintf("this node's share of the allowance, %d of %d, is too small to ask anything", d.share.k,
			d.share.n)
	}
	return "what other nodes know of it is being read"
}

// asks says whether a session is asking something.
func (d *desk) asks() bool { return len(d.sessions) > len(d.free)+d.closing }

// pausedWait is named by a pulse while an operator has paused a receiver and nobody knows
// until when. It is said again each second.
const pausedWait = time.Minute

// pulsing is what a pulse tells of what holds the desk back, and how long nothing can be asked.
func (d *desk) pulsing(now time.Time) (wire.Cause, int64) {
	b := d.holds(now)
	switch b.Cause {
	case wire.Cause_PAUSED:
		if b.Until.IsZero() {
			b.Until = now.Add(pausedWait)
		}
		return b.Cause, wire.Left(now, b.Until)
	case wire.Cause_NO_SHARE:
		return b.Cause, shareWait.Milliseconds()
	case wire.Cause_BUDGET, wire.Cause_NO_SOURCE:
		return b.Cause, wire.Left(now, b.Until)
	}
	return b.Cause, 0
}

// tellingRefusals is how many refusals say which part of the addresses is refused, unless
// fewer use up what may be refused in an hour: the first one is often that of an address
// that was made up to see whether there are any. Guess.
const tellingRefusals = 3

// perHourOf is how many addresses of a task's verification the desk expects to ask in an
// hour; 0: it cannot say.
func (d *desk) perHourOf(now time.Time, t *task) int64 {
	all := d.perHour(now)
	if all <= 0 {
		return 0
	}
	return max(1, int64(all*d.tasks.queue.Fraction(d.tasks.flow(t))))
}

// perHour is how many addresses the desk expects to ask in an hour as things are, by what
// is permitted, by how many are refused, and by how fast it is answered; 0: it cannot say.
// In a rest or a pause of which the end is known it is what is expected after it.
func (d *desk) perHour(now time.Time) float64 {
	a := d.allowance
	switch b := d.barred(now); {
	case b.Free(), b.Cause == wire.Cause_PENALTY:
	case b.Cause == wire.Cause_PAUSED && !b.Until.IsZero():
	default:
		return 0
	}
	n := min(a.RcptRate.PerSecond(), d.outlets[0].tempo.Lasting()) * 3600
	accepted, refused := d.answeredOf(now)
	perSession := float64(a.RcptsPerConnection)
	if refused >= max(1, min(tellingRefusals, a.RefusedPerHour)) {
		part := float64(refused) / float64(accepted+refused)
		if part*100 > float64(a.RefusedShare) {
			n = min(n, d.perHourByRefusals(now, part))
		}
		perSession = max(1, min(perSession, float64(a.RefusedPerSession)/part))
	}
	n = min(n, a.ConnectionRate.PerSecond()*3600*perSession)
	if turn := d.replies.lowest.Seconds(); turn > 0 {
		n = min(n, 3600*float64(a.Connections)/(d.turns()*turn+2*d.openings.lowest.Seconds()/perSession))
	}
	return n
}

// turns is how many turns an address takes.
func (d *desk) turns() float64 {
	a := d.allowance
	n := float64(min(a.RcptsPerTransaction, workMax))
	if a.Pipelining {
		return 2 / n
	}
	return (turnsPerProbe - 1 + n) / n
}

// answeredOf is what the source that is used refused and accepted in the last hour.
func (d *desk) answeredOf(now time.Time) (accepted, refused int) {
	for _, o := range d.outlets {
		for _, m := range o.budget.minutes {
			if !o.budget.over(m.began, now) {
				accepted += m.accepted
				refused += m.refused
			}
		}
		if accepted+refused > 0 {
			break
		}
	}
	return accepted, refused
}
