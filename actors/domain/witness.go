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
// source: routes have 5 hosts that are tried, and nodes a few sources.
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

// hearAccepted notes that an address was accepted.
func (w *witnesses) hearAccepted(ordinal uint32, t evidence.Attempt) {
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

// nextDoubt is when something is to be done for them if nothing happens; zero: there are none.
func (w *witnesses) nextDoubt(now time.Time) time.Time {
	if len(w.doubted) == 0 {
		return time.Time{}
	}
	if soon := w.since.Add(witnessAfter); now.Before(soon) {
		return soon
	}
	return w.doubtedBy()
}

// addWitness gives a behaviour with the witness that an attempt needs, if there is one.
func (w *witnesses) addWitness(h evidence.AcceptBehaviour, t evidence.Attempt) evidence.AcceptBehaviour {
	if accepted, heard := w.heard[place{t.Host, t.Source}]; heard {
		probe := controlProbe{notes: h.Controls}
		probe.noteAttempts([]evidence.Attempt{accepted})
		h.Controls = probe.notes
	}
	return h
}

// doubtRefusal files an address that was refused in bare words, until it is known whether others are accepted.
func (k *controls) doubtRefusal(now time.Time, p pending, c evidence.Case) {
	w := &k.witnesses
	k.retries.log.keepCase(&p, c)
	p.due = k.since(now)
	if len(w.doubted) == 0 {
		w.since, w.asked = now, false
	}
	w.doubted = append(w.doubted, p)
}

// weighDoubted goes on with what was refused in bare words: it is believed beside a
// witness. While there are others to ask (busy), one of these may be it; then an address is asked
// once more that was accepted before. Whatever finds no witness is asked again later.
func (k *controls) weighDoubted(now time.Time, busy bool) {
	w := &k.witnesses
	if w.news {
		w.news = false
		doubted := w.doubted
		w.doubted = nil
		for i, p := range doubted {
			if k.isCut() {
				w.doubted, w.news = append(w.doubted, doubted[i:]...), true
				break
			}
			k.holdAgainst(now, p)
		}
	}
	soon, inTime := now.Before(w.since.Add(witnessAfter)), now.Before(w.doubtedBy())
	switch {
	case len(w.doubted) == 0 || k.isCut() || k.asking && inTime:
	case soon && busy:
	case w.known && !w.asked && inTime && !k.route.isResting(now):
		w.asked = true
		k.askWitness(now)
	case inTime && busy:
	default:
		k.deferDoubted(now, busy)
	}
}

// deferDoubted sees to it that those are asked again for whom a witness would come too late, or none comes.
func (k *controls) deferDoubted(now time.Time, busy bool) {
	w := &k.witnesses
	for len(w.doubted) > 0 && !k.isCut() {
		p := w.doubted[0]
		if w.since = k.start.Add(p.due); busy && now.Before(w.doubtedBy()) {
			w.asked = false
			return
		}
		w.doubted = w.doubted[1:]
		c := k.retries.log.takeCase(&p)
		k.askAgain(now, p, c, answerOf{reason: smtp.Policy, attempts: c.Attempts})
	}
	w.doubted = slices.Clone(w.doubted)
}

// holdAgainst concludes about an address that was refused in bare words, if it can.
func (k *controls) holdAgainst(now time.Time, p pending) {
	c := k.retries.log.takeCase(&p)
	last, _ := c.Last()
	if c.Behaviour = k.witnesses.addWitness(k.behaviourOf(now, last.Host), last); !k.conclude(now, p.ordinal, c) {
		c.Behaviour = evidence.AcceptBehaviour{}
		k.retries.log.keepCase(&p, c)
		k.witnesses.doubted = append(k.witnesses.doubted, p)
	}
}

// endDoubt gives up what was refused in bare words.
func (k *controls) endDoubt(now time.Time) {
	for len(k.witnesses.doubted) > 0 && !k.isCut() {
		p, c := k.retries.popOf(&k.witnesses.doubted)
		k.giveUp(now, p, c, smtp.Policy)
	}
}

// askWitness asks an address once more that was accepted, in place of a control probe.
func (k *controls) askWitness(now time.Time) {
	k.asking, k.witness, k.local = true, true, k.work.Local(k.witnesses.ordinal)
	k.offerControl(now)
}

// takeTestimony takes the answer to that.
func (k *controls) takeTestimony(now time.Time, c evidence.Case, m answerOf) {
	k.asking, k.witness = false, false
	refused := k.bare
	k.bare = evidence.Attempt{}
	last, asked := c.Last()
	if asked && len(m.attempts) > 0 && last.Stage == smtp.StageRcpt && last.Code/100 == 2 {
		last.Witness = true
		k.noteAttempts([]evidence.Attempt{last})
		k.witnesses.hearAccepted(controlOrdinal, last)
		if h := (evidence.AcceptBehaviour{Controls: k.notes}); !refused.At.IsZero() && h.Witnessed(&refused) {
			k.tellsApart(now, refused)
		}
		return
	}
	if !refused.At.IsZero() {
		k.tellsNothing(now, smtp.Policy)
	}
}
