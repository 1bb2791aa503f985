package domain

import (
	"slices"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// witnessAfter is how long we wait for another address to be accepted. After witnessAfter we ask an accepted address
// again. Guess.
const witnessAfter = evidence.WitnessWithin / 4

// heardMax bounds the acceptances kept as witnesses, one for each host and source. We try at most 5 hosts of a route,
// and nodes have a few sources.
const heardMax = 64

// witnesses decide about bare refusals. A bare refusal may be about the mailbox or about us. The refusal is about the
// mailbox if a witness, another address of the domain, is accepted soon after.
type witnesses struct {
	heard   map[place]evidence.Attempt // the newest acceptance at each host and source
	news    bool                       // an acceptance came that the doubted addresses haven't been checked against
	ordinal uint32                     // an accepted address, if known is true
	known   bool

	doubted []pending // addresses with a bare refusal, oldest first; due is the time of the refusal
	since   time.Time // time of the first such refusal
	asked   bool      // an accepted address was asked again for the doubted ones
}

// place is the host that answered and the source that asked.
type place struct{ host, source string }

// hearAccepted keeps an acceptance as a witness.
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

// doubtedBy returns until when bare refusals wait for a witness.
func (w *witnesses) doubtedBy() time.Time { return w.since.Add(evidence.WitnessWithin) }

// nextDoubt returns when to check bare refusals again; zero: there are none.
func (w *witnesses) nextDoubt(now time.Time) time.Time {
	if len(w.doubted) == 0 {
		return time.Time{}
	}
	if soon := w.since.Add(witnessAfter); now.Before(soon) {
		return soon
	}
	return w.doubtedBy()
}

// addWitness adds to a behaviour the witness for an attempt, if there is one.
func (w *witnesses) addWitness(h evidence.AcceptBehaviour, t evidence.Attempt) evidence.AcceptBehaviour {
	if accepted, heard := w.heard[place{t.Host, t.Source}]; heard {
		probe := controlProbe{notes: h.Controls}
		probe.noteAttempts([]evidence.Attempt{accepted})
		h.Controls = probe.notes
	}
	return h
}

// doubtRefusal keeps an address with a bare refusal until we know whether other addresses are accepted.
func (k *controls) doubtRefusal(now time.Time, p pending, c evidence.Case) {
	w := &k.witnesses
	k.retries.log.keepCase(&p, c)
	p.due = k.since(now)
	if len(w.doubted) == 0 {
		w.since, w.asked = now, false
	}
	w.doubted = append(w.doubted, p)
}

// weighDoubted judges bare refusals; a refusal with a witness counts. While there are other addresses to ask (busy),
// one of these addresses may become the witness. When none is left, an address that was accepted before is asked once
// more. Refused addresses without a witness are asked again later.
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
	case w.known && !w.asked && inTime && !k.route.isPaused(now):
		w.asked = true
		k.askWitness(now)
	case inTime && busy:
	default:
		k.deferDoubted(now, busy)
	}
}

// deferDoubted defers addresses with a bare refusal whose witness would come too late.
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

// holdAgainst concludes that an address with a bare refusal doesn't exist, if there is a witness.
func (k *controls) holdAgainst(now time.Time, p pending) {
	c := k.retries.log.takeCase(&p)
	last, _ := c.Last()
	if c.Behaviour = k.witnesses.addWitness(k.behaviourOf(now, last.Host), last); !k.conclude(now, p.ordinal, c) {
		c.Behaviour = evidence.AcceptBehaviour{}
		k.retries.log.keepCase(&p, c)
		k.witnesses.doubted = append(k.witnesses.doubted, p)
	}
}

func (k *controls) endDoubt(now time.Time) {
	for len(k.witnesses.doubted) > 0 && !k.isCut() {
		p, c := k.retries.popOf(&k.witnesses.doubted)
		k.giveUp(now, p, c, smtp.Policy)
	}
}

// askWitness asks an accepted address again, in place of a control probe.
func (k *controls) askWitness(now time.Time) {
	k.asking, k.witness, k.local = true, true, k.work.Local(k.witnesses.ordinal)
	k.offerControl(now)
}

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
