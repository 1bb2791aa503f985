package receiver

import (
	"cmp"
	"errors"
	"hash/fnv"
	"net/netip"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/state"
	"rollcall/actors/receiver/status"
	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
	"slices"
	"time"
)

// paths are our sources, as this receiver takes them.
type paths struct {
	*env
	allowance *allowance
	inbox     *inbox
	pool      *pool
	outlets   []*outlet      // in the order in which this receiver gets to know them
	others    []state.Source // what was read of the sources of other nodes
	othersAt  time.Time
}

func newPaths(e *env, a *allowance, in *inbox, po *pool, now time.Time) *paths {
	ps := &paths{env: e, allowance: a, inbox: in, pool: po, outlets: outletsOf(e.key, e.options.Sources, a.limits)}
	ps.tune(now, e.options.Allow(e.key))
	return ps
}

// errFamily says that a host has no address that an operator lets us dial.
var errFamily = errors.New("addresses of this family are not to be dialled (address_family)")

// reaches says whether addresses of a host's family may be dialled.
func reaches(f throttle.Family, at netip.Addr) bool {
	switch f {
	case throttle.FamilyV4:
		return at.Unmap().Is4()
	case throttle.FamilyV6:
		return !at.Unmap().Is4()
	}
	return true
}

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

// heed takes what an operator wants of our sources.
func (ps *paths) heed() {
	for _, o := range ps.outlets {
		pause := ps.options.Sources.Limits(o.index).Pause
		if pause == throttle.PauseYes && o.pause != pause {
			ps.pool.halt(func(s *session) bool { return s.outlet == o })
		}
		o.pause = pause
	}
}

// fit says whether a source may be used toward this receiver, as far as it is not the
// receiver that keeps it away; and if not, until when and why.
func (ps *paths) fit(now time.Time, o *outlet) status.Blocked {
	if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
		return status.Blocked{Cause: wire.Cause_PAUSED}
	}
	today, waits := ps.options.clock(now), ps.inbox.tasks.queue.Queued() > 0
	if left, next := ps.options.Sources.Remaining(o.index, ps.key, today, waits); left == 0 {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: now.Add(next)}
	}
	if ok, until := ps.options.Sources.Usable(o.index, ps.key, now); !ok {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: until}
	}
	return status.Blocked{}
}

// idle says whether a lane of which no host can be dialled only waits for sources of ours
// that rest, are paused, or have had their day, and until when; zero: it is not known.
func (ps *paths) idle(now time.Time, l *lane) (bool, time.Time) {
	var soonest time.Time
	waits := false
	for _, c := range l.candidates {
		if now.Before(c.until) || !reaches(ps.allowance.limits.Family, c.at) {
			continue
		}
		for _, o := range ps.outlets {
			if !o.Reaches(c.at) || l.away(now, o) != nil {
				continue
			}
			if b := ps.fit(now, o); !b.Free() {
				waits = true
				if soonest.IsZero() || b.Until.Before(soonest) {
					soonest = b.Until
				}
			}
		}
	}
	return waits, soonest
}

// tune gives every source a tempo of its own.
func (ps *paths) tune(now time.Time, whole throttle.Limits) {
	for _, o := range ps.outlets {
		o.tempo = throttle.NewAdaptiveRate(ps.allowance.bounds(whole), now)
		rate, _ := o.tempo.Permits(now)
		o.rcpts = throttle.NewWindow(rate, now)
	}
}

// breather gives the source that is the first to speak again when all of ours that the
// receiver takes rest for a short while, by their tempos; nil: one may speak.
func (ps *paths) breather(now time.Time) (first *outlet) {
	for _, o := range ps.outlets {
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
func (ps *paths) slowest(now time.Time) *outlet {
	for _, o := range ps.outlets {
		if !now.Before(o.until) {
			if o.tempo.Limits(now) {
				return o
			}
			return nil
		}
	}
	return nil
}

// answeredOf is what the source that is used refused and accepted in the last hour.
func (ps *paths) answeredOf(now time.Time) (accepted, refused int) {
	for _, o := range ps.outlets {
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

// outlet gives the source from which an address of a lane may be dialled now, nil
// when there is none.
func (ps *paths) outlet(now time.Time, l *lane, at netip.Addr) *outlet {
	for _, o := range ps.outlets {
		if !o.Reaches(at) || l.away(now, o) != nil {
			continue
		}
		if ps.fit(now, o).Free() {
			return o
		}
	}
	return nil
}

// mute says whether this node may not speak to the receiver for a while though the
// receiver takes one of its sources, because they are paused, rested altogether, or have
// asked what they may in a day; until when, zero for a pause; and why.
func (ps *paths) mute(now time.Time) (first status.Blocked) {
	for _, o := range ps.outlets {
		if now.Before(o.until) {
			continue
		}
		b := ps.fit(now, o)
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
func (ps *paths) spendable(now time.Time) (bool, time.Time) {
	var soonest time.Time
	usable := false
	for _, o := range ps.outlets {
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
func (ps *paths) next(now time.Time, l *lane) (*candidate, *outlet) {
	for _, c := range l.candidates {
		if now.Before(c.until) || !reaches(ps.allowance.limits.Family, c.at) {
			continue
		}
		if o := ps.outlet(now, l, c.at); o != nil {
			return c, o
		}
	}
	return nil, nil
}

// shutBy says why a candidate may not be dialled now, until when, and whether it or our sources
// rest: else none of ours can ask it at all. Of our sources, that speaks which may be used first.
func (ps *paths) shutBy(now time.Time, l *lane, c *candidate) (told verdictOf, until time.Time, rests bool) {
	if now.Before(c.until) {
		return c.last, c.until, true
	}
	if !reaches(ps.allowance.limits.Family, c.at) {
		told = ps.options.judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errFamily})
		return told, now.Add(ps.allowance.wait(told.verdict, len(ps.options.Waits))), false
	}
	var first *rested
	for _, o := range ps.outlets {
		if r := l.away(now, o); r != nil && o.Reaches(c.at) && (first == nil || r.until.Before(first.until)) {
			first = r
		}
	}
	if first == nil {
		told = ps.options.judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errNoSource})
		return told, now.Add(ps.allowance.wait(told.verdict, len(ps.options.Waits))), false
	}
	return first.last, first.until, true
}

// shut is what to tell the probes of a lane none of whose hosts may be dialled:
// again when the first of them may, with the reason why it may not. Why are the
// reasons of all hosts, that one last: one for each host, and of several addresses
// one that does not say that there is no mail at all (RFC 7504 §3), because that
// has to be said by all of them.
func (ps *paths) shut(now time.Time, l *lane) (told verdictOf, why []verdictOf) {
	reasons, untils := map[string]verdictOf{}, map[string]time.Time{}
	var names []string
	first, until := "", time.Time{}
	for _, c := range l.candidates {
		one, free, _ := ps.shutBy(now, l, c)
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

// blame counts a refusal of a source against it on this node.
func (ps *paths) blame(now time.Time, o *outlet, told verdictOf) {
	if r := told.verdict.Reason; r != smtp.SourceBlocked && r != smtp.SourceIdentity {
		return
	}
	if ps.options.Sources.NoteBlocked(o.index, ps.key, now, told.verdict.Reason) {
		ps.options.Metrics.sourcesOut.Inc()
		ps.options.Log.Error("source is refused by many receivers and speaks to none for a while; "+
			"look at its name, its return path and the block lists", "source", o.name, "reason",
			told.verdict.Reason.String())
	}
}

// took notes that the receiver has answered about an address to one of our sources.
func (ps *paths) took(now time.Time, s *session) {
	o := s.outlet
	if r := s.lane.refusals[o]; r != nil {
		r.rests = 0
	}
	o.rests = 0
	clear(o.refusing)
	ps.options.Sources.NoteAnswered(o.index, ps.key, now)
}

// setBudgets changes the refusals that each source may cause in an hour.
func (ps *paths) setBudgets(a throttle.Limits) {
	for _, o := range ps.outlets {
		o.budget.Set(a.RefusedPerHour, a.RefusedShare)
	}
}

// permitted is how many RCPTs a second may be sent now, short rests left aside: what is
// allowed here, and what a source that the receiver takes was found to be let go.
func (ps *paths) permitted(now time.Time) float64 {
	found := 0.0
	for _, o := range ps.outlets {
		if !now.Before(o.until) {
			rate, _ := o.tempo.Permits(now)
			found = max(found, rate.PerSecond())
		}
	}
	return min(ps.allowance.limits.RcptRate.PerSecond(), found)
}

// tellSources says how each of our sources does here.
func (ps *paths) tellSources(now time.Time) []view.ReceiverSource {
	out := make([]view.ReceiverSource, 0, len(ps.outlets))
	for _, o := range ps.outlets {
		one := view.ReceiverSource{Source: o.name, State: "spare"}
		for _, s := range ps.pool.sessions {
			if s.outlet == o {
				one.Sessions++
			}
		}
		budget, _ := o.budget.Ready(now)
		one.Budget = max(0, budget)
		one.Tempo = ps.tempo(now, o)
		ok, until := ps.options.Sources.Usable(o.index, ps.key, now)
		_, rests := o.tempo.Permits(now)
		switch pause := ps.options.Sources.Limits(o.index).Pause; {
		case pause == throttle.PauseYes:
			one.State = "paused"
		case pause == throttle.PauseDrain:
			one.State = "draining"
		case now.Before(o.until):
			one.State, one.Until, one.Reason = "resting", o.until, o.last.verdict.Reason.String()
		case !ok:
			one.State, one.Until = "resting", until
		case now.Before(rests):
			one.State, one.Until = "resting", rests
		case one.Sessions > 0:
			one.State = "used"
		}
		out = append(out, one)
	}
	return out
}

// tempo is how fast the receiver lets a source go.
func (ps *paths) tempo(now time.Time, o *outlet) view.Tempo {
	e := o.tempo.Explain(now)
	return view.Tempo{Rate: e.Rate, Floor: e.Floor, Ceiling: e.Ceiling, Edge: e.Edge, Phase: string(e.Phase),
		Since: e.Since, Why: e.Why}
}
