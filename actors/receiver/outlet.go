package receiver

import (
	"cmp"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/status"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// restHere is how long a source is rested at a receiver that refuses it, the first
	// time; each rest that follows another one doubles it, up to restHereMost. So a block
	// costs at most twice as long as it lasts, and one of days ten questions and then
	// one in four hours.
	restHere     = 15 * time.Second
	restHereMost = 4 * time.Hour

	// restTold is up to how long a rest of our sources lasts of which those who wait are told nothing.
	restTold = 20 * time.Second

	// lanesInRow is how many lanes of a receiver refuse a source, without an answer
	// about an address between them, before it is rested at all of them: an operator's
	// customers have lists of their own. Guess.
	lanesInRow = 3
)

// errNoSource says that none of our sources has an address of the family of a host's.
var errNoSource = errors.New("no source address of this family is configured")

// outlet is what a desk knows of one of our sources: whether its receiver takes
// it, and what harm it has done there.
type outlet struct {
	*egress.Source
	index  int // in the pool
	name   string
	budget *quota
	tempo  *throttle.AdaptiveRate
	rcpts  *throttle.Window // that keeps to the tempo, in times of sending as the desk's
	pause  throttle.Pause   // as an operator wants it of the source
	grey   greylist

	causes     *throttle.Causes
	experiment throttle.Experiment // whether it is our pace
	transients throttle.Transients // put-offs now and then that aren't
	lesson     time.Time           // what was sent before says nothing about the newest belief
	cautious   bool                // one address at a time, until one is answered
	cause      evidence.Cause      // the newest belief about the receiver, for evidence
	rested                         // at all of this receiver
	refusing   map[string]struct{} // lanes that rested it, without an answer about an address since
}

// rested is how a source is kept away. The zero value: it is not.
type rested struct {
	until time.Time // nothing is asked from it before
	rests int       // in a row, without an answer about an address between them
	last  verdictOf // the newest refusal
}

// add prolongs it; each rest in a row is twice as long.
func (r *rested) add(now time.Time, told verdictOf, hour throttle.Hour) {
	r.until = now.Add(max(told.verdict.Wait, hour.Of(min(restHere<<min(r.rests, 10), restHereMost))))
	r.rests++
	r.last = told
}

// refusal is what a lane has against one of our sources.
type refusal struct {
	rested
}

// against gives what a lane has against a source; to be changed.
func (l *lane) against(o *outlet) *refusal {
	if l.refusals == nil {
		l.refusals = map[*outlet]*refusal{}
	}
	r := l.refusals[o]
	if r == nil {
		r = &refusal{}
		l.refusals[o] = r
	}
	return r
}

// away gives the rest that keeps a source from a lane, nil when none does.
func (l *lane) away(now time.Time, o *outlet) *rested {
	r := l.refusals[o]
	switch {
	case r != nil && now.Before(r.until) && !r.until.Before(o.until):
		return &r.rested
	case now.Before(o.until):
		return &o.rested
	}
	return nil
}

// outletsOf puts a node's sources in the order in which a receiver gets to know
// them: the same one first at all times, because greylisting remembers it, and
// another one for each receiver (rendezvous hashing).
func outletsOf(key string, s *egress.Pool, a throttle.Limits) []*outlet {
	out := make([]*outlet, s.Len())
	score := make(map[*outlet]uint64, len(out))
	for i := range out {
		o := &outlet{Source: s.Source(i), index: i, name: s.Source(i).Name(),
			causes: throttle.NewCauses(),
			budget: newQuota(a.RefusedPerHour, a.RefusedShare, s.Hour), refusing: map[string]struct{}{}}
		h := fnv.New64a()
		_, _ = h.Write([]byte(key + " " + o.name))
		out[i], score[o] = o, h.Sum64()
	}
	slices.SortStableFunc(out, func(a, b *outlet) int { return cmp.Compare(score[a], score[b]) })
	return out
}

// outlet gives the source from which an address of a lane may be dialled now, nil
// when there is none.
func (d *desk) outlet(now time.Time, l *lane, at netip.Addr) *outlet {
	for _, o := range d.outlets {
		if !o.Reaches(at) || l.away(now, o) != nil {
			continue
		}
		if d.fit(now, o).Free() {
			return o
		}
	}
	return nil
}

// mute says whether this node may not speak to the receiver for a while though the
// receiver takes one of its sources, because they are paused, rested altogether, or have
// asked what they may in a day; until when, zero for a pause; and why.
func (d *desk) mute(now time.Time) (first status.Blocked) {
	for _, o := range d.outlets {
		if now.Before(o.until) {
			continue
		}
		b := d.fit(now, o)
		switch {
		case b.Free():
			return b
		case first.Free(), first.Until.IsZero(), !b.Until.IsZero() && b.Until.Before(first.Until):
			first = b
		}
	}
	return first
}

// spendable says whether a source has refusals left that it may cause within the
// hour, and if not, when one will have; zero: when an open probe is answered.
func (d *desk) spendable(now time.Time) (bool, time.Time) {
	var soonest time.Time
	usable := false
	for _, o := range d.outlets {
		if now.Before(o.until) {
			continue
		}
		usable = true
		n, next := o.budget.Ready(now)
		if rests := o.tempo.Explain(now).Until; now.Before(rests) {
			n, next = 0, later(rests, next)
		}
		if n > 0 {
			return true, time.Time{}
		}
		if !next.IsZero() && (soonest.IsZero() || next.Before(soonest)) {
			soonest = next
		}
	}
	return !usable, soonest // none usable: the lanes will be told
}

// next gives the best candidate of a lane that may be dialled now, and from where.
func (d *desk) next(now time.Time, l *lane) (*candidate, *outlet) {
	for _, c := range l.candidates {
		if now.Before(c.until) || !reaches(d.allowance.Family, c.at) {
			continue
		}
		if o := d.outlet(now, l, c.at); o != nil {
			return c, o
		}
	}
	return nil, nil
}

// shutBy says why a candidate may not be dialled now, until when, and whether it or our sources
// rest: else none of ours can ask it at all. Of our sources, that speaks which may be used first.
func (d *desk) shutBy(now time.Time, l *lane, c *candidate) (told verdictOf, until time.Time, rests bool) {
	if now.Before(c.until) {
		return c.last, c.until, true
	}
	if !reaches(d.allowance.Family, c.at) {
		told = d.options.judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errFamily})
		return told, now.Add(d.wait(told.verdict, len(d.options.Waits))), false
	}
	var first *rested
	for _, o := range d.outlets {
		if r := l.away(now, o); r != nil && o.Reaches(c.at) && (first == nil || r.until.Before(first.until)) {
			first = r
		}
	}
	if first == nil {
		told = d.options.judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errNoSource})
		return told, now.Add(d.wait(told.verdict, len(d.options.Waits))), false
	}
	return first.last, first.until, true
}

// shut is what to tell the probes of a lane none of whose hosts may be dialled:
// again when the first of them may, with the reason why it may not. Why are the
// reasons of all hosts, that one last: one for each host, and of several addresses
// one that does not say that there is no mail at all (RFC 7504 §3), because that
// has to be said by all of them.
func (d *desk) shut(now time.Time, l *lane) (told verdictOf, why []verdictOf) {
	reasons, untils := map[string]verdictOf{}, map[string]time.Time{}
	var names []string
	first, until := "", time.Time{}
	for _, c := range l.candidates {
		one, free, _ := d.shutBy(now, l, c)
		if known, ok := reasons[c.host]; !ok || known.verdict.Reason == smtp.NoMailService {
			reasons[c.host] = one
		}
		if _, ok := untils[c.host]; !ok {
			names = append(names, c.host)
		}
		untils[c.host] = free
		if until.IsZero() || free.Before(until) {
			first, until = c.host, free
		}
	}
	for _, name := range names {
		if name != first {
			why = append(why, reasons[name])
		}
	}
	told = reasons[first]
	why = append(why, told)
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	told.verdict.Wait = until.Sub(now)
	return told, why
}

// refused follows a refusal of a source, whatever the address, by one host, before
// any RCPT. When no other host of the lane can be asked from it the source is
// rested at this receiver.
func (d *desk) refused(now time.Time, s *session, told verdictOf) {
	told = spoken(told)
	d.avoid(now, s.host, told, d.wait(told.verdict, s.host.failures))
	for _, c := range s.lane.candidates {
		if !now.Before(c.until) && s.outlet.Reaches(c.at) {
			return
		}
	}
	d.rest(now, s.lane, s.outlet, told)
}

// rest keeps a source away from the hosts of a lane for hours, and from the whole
// receiver when one lane after the other refuses it. The next source takes over,
// with sessions and a harm budget of its own.
func (d *desk) rest(now time.Time, l *lane, o *outlet, told verdictOf) {
	if l.away(now, o) != nil {
		return // said by several sessions at once
	}
	told.verdict.Outcome, told.verdict.Action = smtp.Undecided, verdict.ActRetry
	r := l.against(o)
	r.add(now, told, d.options.restHour())
	for _, c := range l.candidates { // another source may be taken where this one was not
		if c.last.verdict.Action == verdict.ActOtherSource {
			c.until, c.failures = now, 0
		}
	}
	o.refusing[l.Key()] = struct{}{}
	everywhere := len(o.refusing) >= lanesInRow
	if everywhere {
		o.add(now, told, d.options.restHour())
		clear(o.refusing)
	}
	d.halt(func(s *session) bool { return s.outlet == o && (everywhere || s.lane == l) })
	d.dirty = true
	if everywhere || len(d.lanes) == 1 {
		d.blame(now, o, told)
	}
	d.options.Metrics.sourcesRested.Inc()
	d.options.Log.Warn("source rested at a receiver", "receiver", d.key, "source", o.name, "stage",
		told.attempt.Stage.String(), "code", told.attempt.Code, "enhanced", told.attempt.Enhanced.String(),
		"reason", told.verdict.Reason.String(), "rule", told.verdict.Rule, "whole", everywhere, "until", r.until)
}

// blame counts a refusal of a source against it on this node.
func (d *desk) blame(now time.Time, o *outlet, told verdictOf) {
	if r := told.verdict.Reason; r != smtp.SourceBlocked && r != smtp.SourceIdentity {
		return
	}
	if d.options.Sources.NoteBlocked(o.index, d.key, now, told.verdict.Reason) {
		d.options.Metrics.sourcesOut.Inc()
		d.options.Log.Error("source is refused by many receivers and speaks to none for a while; "+
			"look at its name, its return path and the block lists", "source", o.name, "reason",
			told.verdict.Reason.String())
	}
}

// took notes that the receiver has answered about an address to one of our sources.
func (d *desk) took(now time.Time, s *session) {
	o := s.outlet
	if r := s.lane.refusals[o]; r != nil {
		r.rests = 0
	}
	o.rests = 0
	clear(o.refusing)
	d.options.Sources.NoteAnswered(o.index, d.key, now)
}

// halt lets sessions begin nothing more of what they were given.
func (d *desk) halt(which func(*session) bool) {
	for _, s := range d.sessions {
		if which(s) {
			s.socket.halted.Store(true)
		}
	}
}

// setBudgets changes the refusals that each source may cause in an hour.
func (d *desk) setBudgets(a throttle.Limits) {
	for _, o := range d.outlets {
		o.budget.Set(a.RefusedPerHour, a.RefusedShare)
	}
}
