package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// witnessAfter is how long one of the others is waited for to be a witness, before an address
// is asked again that was accepted. Guess.
const witnessAfter = evidence.WitnessWithin / 4

// heardMax bounds the acceptances that are kept as witnesses, one for each host and
// source. Guess: routes have 5 hosts that are tried, and nodes a few sources.
const heardMax = 64

// witnesses are what decides about refusals in bare words, which may mean us as well as
// the mailbox: other addresses of the domain that are accepted soon after.
type witnesses struct {
	heard   map[place]evidence.Attempt // the newest acceptance of an address
	news    bool                       // there is one that doubted was not held against yet
	ordinal uint32                     // of an address that was accepted, if known
	known   bool

	doubted []pending // refused in bare words, by the time of that, which their due says
	since   time.Time // the first of them
	asked   bool      // the known address was asked again for them
}

// place is where an answer came from, and to whom.
type place struct{ host, source string }

// hear notes that an address was accepted.
func (w *witnesses) hear(ordinal uint32, t evidence.Attempt) {
	if w.heard == nil || len(w.heard) >= heardMax {
		w.heard = map[place]evidence.Attempt{}
	}
	t.Witness, t.Cause, t.Others = true, evidence.Cause{}, false
	w.heard[place{t.Host, t.Source}] = t
	w.news = true
	if ordinal != controlOrdinal {
		w.ordinal, w.known = ordinal, true
	}
}

// doubtedBy is how long those that were refused in bare words wait for a witness.
func (w *witnesses) doubtedBy() time.Time { return w.since.Add(evidence.WitnessWithin) }

// nextDoubt is when something is to be done for them if nothing happens.
func (w *witnesses) nextDoubt(now time.Time) time.Time {
	if soon := w.since.Add(witnessAfter); now.Before(soon) {
		return soon
	}
	return w.doubtedBy()
}

// beside gives the domain's habit with the witness that an attempt needs, if there is one.
func (pl *planner) beside(now time.Time, t evidence.Attempt) evidence.Habit {
	h := pl.habit(now, t.Host)
	if w, heard := pl.witnesses.heard[place{t.Host, t.Source}]; heard {
		k := controls{notes: h.Controls}
		k.note([]evidence.Attempt{w})
		h.Controls = k.notes
	}
	return h
}

// doubt files an address that was refused in bare words, until it is known whether
// others are accepted.
func (pl *planner) doubt(now time.Time, p pending, c evidence.Case) {
	w := &pl.witnesses
	pl.retries.log.keep(&p, c)
	p.due = pl.since(now)
	if len(w.doubted) == 0 {
		w.since, w.asked = now, false
	}
	w.doubted = append(w.doubted, p)
}

// weighDoubted goes on with what was refused in bare words: it is believed beside a
// witness. While there are others to ask, one of these may be it; then an address is asked
// once more that was accepted before. Whatever finds no witness is asked again later.
func (pl *planner) weighDoubted(now time.Time) {
	w := &pl.witnesses
	if w.news {
		w.news = false
		doubted := w.doubted
		w.doubted = nil
		for i, p := range doubted {
			if pl.cut() {
				w.doubted, w.news = append(w.doubted, doubted[i:]...), true
				break
			}
			pl.holdAgainst(now, p)
		}
	}
	soon := now.Before(w.since.Add(witnessAfter))
	switch {
	case len(w.doubted) == 0 || pl.cut() || pl.controls.asking && now.Before(pl.witnesses.doubtedBy()):
	case soon && pl.busy(now):
	case w.known && !w.asked && now.Before(pl.witnesses.doubtedBy()) && !pl.resting(now):
		w.asked = true
		pl.askWitness(now)
	case now.Before(pl.witnesses.doubtedBy()) && pl.busy(now):
	default:
		pl.putDoubtedOff(now)
	}
}

// putDoubtedOff sees to it that those are asked again for whom a witness would come too late,
// or none comes.
func (pl *planner) putDoubtedOff(now time.Time) {
	w := &pl.witnesses
	busy := pl.busy(now)
	for len(w.doubted) > 0 && !pl.cut() {
		p := w.doubted[0]
		if w.since = pl.start.Add(p.due); busy && now.Before(pl.witnesses.doubtedBy()) {
			w.asked = false
			return
		}
		w.doubted = w.doubted[1:]
		c := pl.retries.log.take(&p)
		pl.again(now, p, c, answerOf{reason: smtp.Policy, attempts: c.Attempts})
	}
	w.doubted = slices.Clone(w.doubted)
}

// holdAgainst concludes about an address that was refused in bare words, if it can.
func (pl *planner) holdAgainst(now time.Time, p pending) {
	c := pl.retries.log.take(&p)
	last, _ := c.Last()
	if c.Habit = pl.beside(now, last); !pl.conclude(now, p.ordinal, c) {
		c.Habit = evidence.Habit{}
		pl.retries.log.keep(&p, c)
		pl.witnesses.doubted = append(pl.witnesses.doubted, p)
	}
}

// endDoubt gives up what was refused in bare words.
func (pl *planner) endDoubt(now time.Time) {
	for len(pl.witnesses.doubted) > 0 && !pl.cut() {
		p, c := pl.pop(&pl.witnesses.doubted)
		pl.giveUp(now, p, c, smtp.Policy)
	}
}

// askWitness asks an address once more that was accepted, in place of a control probe.
func (pl *planner) askWitness(now time.Time) {
	k := &pl.controls
	k.asking, k.witness, k.local = true, true, pl.work.Local(pl.witnesses.ordinal)
	pl.offerControl(now)
}

// testified takes the answer to that.
func (pl *planner) testified(now time.Time, c evidence.Case, m answerOf) {
	k := &pl.controls
	k.asking, k.witness = false, false
	refused := k.bare
	k.bare = evidence.Attempt{}
	last, asked := c.Last()
	if asked && len(m.attempts) > 0 && last.Stage == smtp.StageRcpt && last.Code/100 == 2 {
		last.Witness = true
		k.note([]evidence.Attempt{last})
		pl.witnesses.hear(controlOrdinal, last)
		if h := (evidence.Habit{Controls: k.notes}); !refused.At.IsZero() && h.Witnessed(&refused) {
			pl.tellsApart(now, refused)
		}
		return
	}
	if !refused.At.IsZero() {
		pl.unclear(now, smtp.Policy)
	}
}
