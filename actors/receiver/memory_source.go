package receiver

import (
	"time"

	"rollcall/smtp/throttle"
)

const (
	// memoSources bounds the sources of a memo; more have to be learned again. Guess:
	// nodes that a receiver lived on lately, times their sources.
	memoSources = 8

	// memoGrey is how long what was learned of greylisting is kept. Guess: receivers
	// change that rarely, and remember clients for 35 days mostly.
	memoGrey = 24 * time.Hour

	// memoTempoFor is how long a tempo is of use. Guess: finding it again takes minutes,
	// and a receiver's mind changes within hours.
	memoTempoFor = 4 * time.Hour
)

// memoSource is what one source of one node has done at the receiver, and how it
// was taken.
type memoSource struct {
	Source  string       `json:"source,omitempty"`
	Left    int64        `json:"left_ms,omitempty"` // of its rest
	Rests   int          `json:"rests,omitempty"`
	Last    memoAttempt  `json:"last,omitzero"`
	Enough  int64        `json:"enough_ms,omitempty"` // of greylist
	Short   int64        `json:"short_ms,omitempty"`
	Minutes []memoMinute `json:"minutes,omitempty"`
	Tempo   memoTempo    `json:"tempo,omitzero"`
}

// memoTempo is a tempo: RCPTs in a thousand seconds.
type memoTempo struct {
	Rate  int64 `json:"rate"`
	Edge  int64 `json:"edge,omitempty"`
	Proof int64 `json:"proof_ms,omitempty"`
}

// noteTempo gives what a tempo knows, in a memo's numbers.
func noteTempo(t *throttle.AdaptiveRate) memoTempo {
	m, worth := t.Remember()
	if !worth {
		return memoTempo{}
	}
	return memoTempo{max(1, int64(m.Rate*1000)), int64(m.Edge * 1000), m.Proof.Milliseconds()}
}

// memory is what a memo says, for a tempo.
func (m memoTempo) memory() throttle.RateMemory {
	return throttle.RateMemory{Rate: float64(m.Rate) / 1000, Edge: float64(m.Edge) / 1000,
		Proof: time.Duration(clamp(m.Proof, memoFor.Milliseconds())) * time.Millisecond}
}

// memoMinute is one minute of a quota, so many milliseconds ago.
type memoMinute struct {
	Ago      int64 `json:"ago_ms"`
	Accepted int   `json:"accepted,omitempty"`
	Refused  int   `json:"refused,omitempty"`
}

// life is how long it is of use.
func (m *memoSource) life() time.Duration {
	switch {
	case m.Enough > 0 || m.Short > 0:
		return memoGrey
	case m.Left > 0:
		return min(time.Duration(m.Left)*time.Millisecond, memoFor) + learnedFor
	case m.Tempo != memoTempo{}:
		return memoTempoFor
	}
	return learnedFor
}

// empty says whether nothing is worth keeping.
func (m *memoSource) empty() bool {
	return m.Left == 0 && m.Rests == 0 && m.Enough == 0 && m.Short == 0 && len(m.Minutes) == 0 &&
		m.Tempo == memoTempo{}
}

// noteSources gives what our sources did and what was read of those of other nodes.
func (d *desk) noteSources(now time.Time) []memoSource {
	var out []memoSource
	for _, o := range d.outlets {
		m := memoSource{Source: o.name, Rests: min(o.rests, memoCountMax),
			Enough: o.grey.enough.Milliseconds(), Short: o.grey.short.Milliseconds(),
			Tempo: noteTempo(o.tempo)}
		if left := o.until.Sub(now); left > 0 {
			m.Left, m.Last = left.Milliseconds(), noteAttempt(o.last.attempt)
		}
		if most := o.budget.perHour; most < quotaUnlimited && o.budget.refused(now)*worthShare >= max(1, most) {
			for _, one := range o.budget.minutes {
				m.Minutes = append(m.Minutes, memoMinute{now.Sub(one.began).Milliseconds(), one.accepted, one.refused})
			}
		}
		if !m.empty() && len(out) < memoSources {
			out = append(out, m)
		}
	}
	passed := now.Sub(d.othersAt)
	for _, m := range d.others {
		m.Left = max(0, m.Left-passed.Milliseconds())
		minutes := m.Minutes
		m.Minutes = nil
		for _, one := range minutes {
			if one.Ago += passed.Milliseconds(); one.Ago <= d.options.lasts(time.Hour+time.Minute).Milliseconds() {
				m.Minutes = append(m.Minutes, one)
			}
		}
		if passed < m.life() && !m.empty() && len(out) < memoSources {
			out = append(out, m)
		}
	}
	return out
}

// shorter leaves something out: the source that came last, or when it is the only
// one its oldest minute, or all of it.
func shorter(sources []memoSource) []memoSource {
	switch n := len(sources); {
	case n == 1 && len(sources[0].Minutes) > 0:
		sources[0].Minutes = sources[0].Minutes[1:]
		return sources
	case n > 0:
		return sources[:n-1]
	}
	return nil
}

// recallSources takes what was noted of our sources, and keeps what is of others.
func (d *desk) recallSources(now time.Time, age time.Duration, noted []memoSource) {
	d.others, d.othersAt = nil, now.Add(-age)
	for _, m := range noted[:min(len(noted), memoSources)] {
		ours := false
		for _, o := range d.outlets {
			if o.name == m.Source {
				d.recallOutlet(now, age, o, &m)
				ours = true
			}
		}
		if !ours {
			d.others = append(d.others, m)
		}
	}
}

// recallOutlet takes what was noted of one source. Of what is known already the
// stricter holds.
func (d *desk) recallOutlet(now time.Time, age time.Duration, o *outlet, m *memoSource) {
	left := time.Duration(clamp(m.Left, memoFor.Milliseconds())) * time.Millisecond
	if until := now.Add(min(left-age, memoFor)); m.Left > 0 && until.After(now) && until.After(o.until) {
		o.until, o.last = until, d.options.recalled(m.Last)
	}
	if age < left+learnedFor {
		o.rests = max(o.rests, count(m.Rests))
	}
	if age < memoTempoFor {
		o.tempo.Recall(m.Tempo.memory(), now)
	}
	if age < memoGrey && o.grey == (greylist{}) {
		grey := func(ms int64) time.Duration {
			return time.Duration(clamp(ms, memoGrey.Milliseconds())) * time.Millisecond
		}
		o.grey = greylist{enough: grey(m.Enough), short: grey(m.Short)}
	}
	d.recallQuota(now, age, o, m.Minutes)
}

// recallQuota books the refusals of the last hour that others counted.
func (d *desk) recallQuota(now time.Time, age time.Duration, o *outlet, noted []memoMinute) {
	var minutes []minute
	for _, n := range noted {
		began := now.Add(-age - time.Duration(clamp(n.Ago, memoFor.Milliseconds()))*time.Millisecond)
		if last := len(minutes) - 1; o.budget.over(began, now) ||
			last >= 0 && !began.After(minutes[last].began) {
			continue // over, or not in order
		}
		minutes = append(minutes, minute{began, max(0, n.Accepted), max(0, n.Refused)})
	}
	if len(minutes) > 0 && len(d.sessions) == 0 {
		o.budget = o.budget.inherit(minutes)
	}
}

// forgotten begins as after a loss: nobody knows what was learned before.
func (d *desk) forgotten(now time.Time) {
	d.known = true
	for _, o := range d.outlets {
		if most := o.budget.perHour; most < quotaUnlimited && len(d.sessions) == 0 {
			o.budget = o.budget.inherit([]minute{{began: now, refused: most / lossShare}})
		}
	}
}

// memoRest is how a lane keeps away one source.
type memoRest struct {
	Source string      `json:"source,omitempty"`
	Left   int64       `json:"left_ms"`
	Rests  int         `json:"rests"`
	Last   memoAttempt `json:"last,omitzero"`
}

// noteRests gives the sources that a lane refuses.
func (l *lane) noteRests(now time.Time) []memoRest {
	var out []memoRest
	for o, r := range l.refusals {
		if left := r.until.Sub(now); left > 0 && len(out) < memoSources {
			out = append(out, memoRest{o.name, left.Milliseconds(), min(r.rests, memoCountMax),
				noteAttempt(r.last.attempt)})
		}
	}
	return out
}

// remindRests tells a lane which sources it refused. Of what is known already the
// stricter holds.
func (d *desk) remindRests(now time.Time, l *lane, noted []memoRest, until func(ms int64) time.Time) {
	for _, m := range noted[:min(len(noted), memoSources)] {
		for _, o := range d.outlets {
			if o.name != m.Source || !now.Before(until(m.Left)) {
				continue
			}
			if r := l.against(o); until(m.Left).After(r.until) {
				r.until, r.rests, r.last = until(m.Left), max(1, count(m.Rests)), d.options.recalled(m.Last)
			}
		}
	}
}
