package scheduler

import (
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/smtp/throttle"
)

// noteRate gives what a pace knows, as a snapshot has it.
func noteRate(t *throttle.Pace) state.Rate {
	m, worth := t.Remember()
	if !worth {
		return state.Rate{}
	}
	return state.RateOf(m)
}

// noteSources gives what our sources did and what was read of those of other nodes.
func (ps *paths) noteSources(now time.Time) []state.Source {
	var out []state.Source
	for _, o := range ps.all {
		m := state.Source{Source: o.name, Rests: min(o.count, state.CountMax),
			Enough: o.grey.Enough.Milliseconds(), Short: o.grey.Short.Milliseconds(),
			Tempo: noteRate(o.pace)}
		if left := o.until.Sub(now); left > 0 {
			m.Left, m.Last = left.Milliseconds(), state.AttemptOf(o.last.Attempt)
		}
		most := o.refusals.PerHour
		if most < throttle.RefusalsUnlimited && o.refusals.RefusedAt(now)*worthShare >= max(1, most) {
			for _, one := range o.refusals.Minutes {
				m.Minutes = append(m.Minutes, state.Minute{Ago: now.Sub(one.Began).Milliseconds(), Accepted: one.Accepted,
					Refused: one.Refused})
			}
		}
		if !m.Empty() && len(out) < state.SourcesMax {
			out = append(out, m)
		}
	}
	passed := now.Sub(ps.othersAt)
	for _, m := range ps.others {
		m.Left = max(0, m.Left-passed.Milliseconds())
		minutes := m.Minutes
		m.Minutes = nil
		for _, one := range minutes {
			if one.Ago += passed.Milliseconds(); one.Ago <= ps.options.scaleHour(time.Hour+time.Minute).Milliseconds() {
				m.Minutes = append(m.Minutes, one)
			}
		}
		if passed < m.Life() && !m.Empty() && len(out) < state.SourcesMax {
			out = append(out, m)
		}
	}
	return out
}

// recallSources takes what was noted of our sources, and keeps what is of others.
func (ps *paths) recallSources(now time.Time, age time.Duration, noted []state.Source, unused bool) {
	ps.others, ps.othersAt = nil, now.Add(-age)
	for _, m := range noted[:min(len(noted), state.SourcesMax)] {
		ours := false
		for _, o := range ps.all {
			if o.name == m.Source {
				ps.recallPath(now, age, o, &m, unused)
				ours = true
			}
		}
		if !ours {
			ps.others = append(ps.others, m)
		}
	}
}

// recallPath takes what was noted of one source. Of what is known already the
// stricter holds.
func (ps *paths) recallPath(now time.Time, age time.Duration, o *egressPath, m *state.Source, unused bool) {
	left := state.Millis(m.Left, state.HoldMost)
	if until := now.Add(min(left-age, state.HoldMost)); m.Left > 0 && until.After(now) && until.After(o.until) {
		o.until, o.last = until, ps.options.judgeRecalled(m.Last)
	}
	if age < left+throttle.LearnedFor {
		o.count = max(o.count, state.Count(m.Rests))
	}
	if age < state.RateFor {
		o.pace.Recall(m.Tempo.Memory(), now)
	}
	if age < state.GreyFor && o.grey == (throttle.Greylist{}) {
		o.grey = throttle.Greylist{Enough: state.Millis(m.Enough, state.GreyFor),
			Short: state.Millis(m.Short, state.GreyFor)}
	}
	if unused {
		ps.recallRefusals(now, age, o, m.Minutes)
	}
}

// recallRefusals books the refusals of the last hour that others counted.
func (ps *paths) recallRefusals(now time.Time, age time.Duration, o *egressPath, noted []state.Minute) {
	var minutes []throttle.RefusalMinute
	for _, n := range noted {
		began := now.Add(-age - state.Millis(n.Ago, state.HoldMost))
		if last := len(minutes) - 1; o.refusals.IsOver(began, now) ||
			last >= 0 && !began.After(minutes[last].Began) {
			continue // over, or not in order
		}
		minutes = append(minutes, throttle.RefusalMinute{Began: began, Accepted: max(0, n.Accepted),
			Refused: max(0, n.Refused)})
	}
	if len(minutes) > 0 {
		o.refusals = o.refusals.Inherit(minutes)
	}
}

// beginAfterLoss begins as after a loss: nobody knows what was learned before.
func (me *memory) beginAfterLoss(now time.Time) {
	me.ready = true
	for _, o := range me.paths.all {
		if most := o.refusals.PerHour; most < throttle.RefusalsUnlimited && len(me.sessions.all) == 0 {
			o.refusals = o.refusals.Inherit([]throttle.RefusalMinute{{Began: now, Refused: most / lossShare}})
		}
	}
}
