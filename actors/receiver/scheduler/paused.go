package scheduler

import (
	"fmt"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/status"
	"rollcall/smtp/throttle"
)

// soonEnds: if a pause should have ended already, we expect its end this soon.
const soonEnds = time.Second

// whoSaid returns who set a field of a receiver, or of one of our sources, to which value; none: not known.
func (e *env) whoSaid(name string, f throttle.Field) []throttle.Said {
	if e.options.Said == nil {
		return nil
	}
	return e.options.Said(name, f)
}

// hostTime converts a time of the ledger's clock to this host's clock. The result is at least soonEnds after now.
func (e *env) hostTime(now, at time.Time) time.Time {
	return now.Add(max(soonEnds, at.Sub(e.options.ledgerTime(now))))
}

// pauseEnds returns until when a receiver or source is paused; zero: until an operator ends the pause.
func (e *env) pauseEnds(now time.Time, name string) time.Time {
	var until time.Time
	for _, s := range slices.Backward(e.whoSaid(name, throttle.FieldPause)) {
		switch {
		case s.Text == string(throttle.PauseNo): // this value is in force when the pauses set after it have ended
			return until
		case s.Until.IsZero():
			return time.Time{}
		}
		until = later(until, e.hostTime(now, s.Until))
	}
	return until
}

// sourcesPaused returns when the first paused source that the receiver accepts resumes, but not after until.
func (ps *paths) sourcesPaused(now, until time.Time) time.Time {
	for o := range ps.all.eachAccepting(now) {
		if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
			until = sooner(until, ps.pauseEnds(now, throttle.SourcePrefix+o.name))
		}
	}
	return until
}

// pausedBy says who paused a receiver or source, and why. what names the receiver or source in the sentence.
func (e *env) pausedBy(name, what string, how throttle.Pause) string {
	by, reason := "an operator", ""
	if said := e.whoSaid(name, throttle.FieldPause); len(said) > 0 {
		s := said[len(said)-1]
		switch {
		case s.Author != "":
			by = s.Author
		case s.Where != "":
			by = s.Where
		}
		if s.Reason != "" {
			reason = ": " + status.Clip(s.Reason)
		}
	}
	if how == throttle.PauseDrain {
		return fmt.Sprintf("%s drains %s, no session is opened any more%s", by, what, reason)
	}
	return fmt.Sprintf("%s paused %s%s", by, what, reason)
}

// pausedBecause says who paused the receiver, or our sources.
func (ps *paths) pausedBecause() string {
	if how := ps.limits.Pause; how == throttle.PauseYes || how == throttle.PauseDrain {
		return ps.pausedBy(ps.key, "it", how)
	}
	for _, o := range ps.all {
		if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
			return ps.pausedBy(throttle.SourcePrefix+o.name, "our source "+inspect.SourceName(o.name), o.pause)
		}
	}
	return "an operator has paused the sources of ours that it accepts"
}

// capEnds returns when the first override of a source's daily cap ends; zero: no override ends.
func (ps *paths) capEnds(now time.Time) (first time.Time) {
	today := ps.options.ledgerTime(now)
	for o := range ps.all.eachAccepting(now) {
		if egress.DailyCap(ps.options.Sources.Limits(o.index), today) == 0 {
			continue
		}
		if ok, _ := ps.options.Sources.Usable(o.index, ps.key, now); !ok {
			continue
		}
		said := ps.whoSaid(throttle.SourcePrefix+o.name, throttle.FieldRcptsPerDay)
		if len(said) == 0 || said[len(said)-1].Until.IsZero() {
			continue
		}
		first = sooner(first, ps.hostTime(now, said[len(said)-1].Until))
	}
	return first
}

// noSourceBecause says why none of our sources may ask.
func (ps *paths) noSourceBecause(now time.Time) string {
	today := ps.options.ledgerTime(now)
	for o := range ps.all.eachAccepting(now) {
		if most := egress.DailyCap(ps.options.Sources.Limits(o.index), today); most > 0 {
			name := inspect.SourceName(o.name)
			if left, _ := ps.options.Sources.Remaining(o.index, "", today, false); left > 0 {
				return fmt.Sprintf("our source %s may ask %d addresses today, and other receivers have the %d that are left",
					name, most, left)
			}
			return fmt.Sprintf("our source %s has asked the %d addresses that it may ask today", name, most)
		}
	}
	return "our sources are suspended, because many receivers refuse them"
}
