package main

import (
	"fmt"
	"time"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/throttle"
)

// limitWords are learned limits in words: what is at most so much, and what comes after its
// end.
var limitWords = map[string]struct{ what, then string }{
	throttle.FieldConnections.String():         {"sessions at once", "one more is tried"},
	throttle.FieldRcptsPerConnection.String():  {"addresses in a session", "the allowance is believed again"},
	throttle.FieldRefusedPerSession.String():   {"refusals in a session", "the allowance is believed again"},
	throttle.FieldRcptsPerTransaction.String(): {"addresses in a transaction", "the allowance is believed again"},
}

// lessons says what was learned of a receiver that is below its allowance, in a sentence each:
// the value, since when, from what, and until when.
func lessons(d inspect.ReceiverDetail, now time.Time) (texts []string) {
	for _, l := range d.Learned {
		texts = append(texts, limitLesson(l, now))
	}
	for _, s := range d.Sources {
		if text := paceLesson(s, now); text != "" {
			texts = append(texts, text)
		}
		if text := restLesson(s, now); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// softwareLine says which software a receiver runs, what follows for its refusals, and who says so.
func softwareLine(s *inspect.Software) string {
	text := s.Words() + "; "
	switch {
	case s.Decides && s.PerHour > 0:
		text += fmt.Sprintf("at most %d refusals in an hour", s.PerHour)
	case s.Decides:
		text += fmt.Sprintf("at most %d refusals in a session, any number in an hour", s.PerSession)
	case s.PerSession > 0, s.PerHour > 0:
		text += "not used, because refused_per_hour is set"
	default:
		text += "refused_per_hour holds"
	}
	if s.Where != "" {
		text += " (" + s.Where + ")"
	}
	return text
}

// limitLesson is the sentence about a learned limit.
func limitLesson(l inspect.Limit, now time.Time) string {
	words, known := limitWords[l.Field]
	text := fmt.Sprintf("At most %s %s (%s)", l.Value, words.what, l.Field)
	if !known {
		text = fmt.Sprintf("%s is %s", l.Field, l.Value)
	}
	if !l.Since.IsZero() {
		text += ", learned at " + term.Clock(l.Since, now)
	}
	if l.From != "" {
		text += " because " + l.From
	}
	if l.Until.IsZero() {
		return text + "."
	}
	text += ", " + term.Until(l.Until, now)
	if known {
		text += "; then " + words.then
	}
	return text + "."
}

// paceLesson is the sentence about the pace of a source; "": nothing below the allowance.
func paceLesson(s inspect.ReceiverSource, now time.Time) string {
	t := s.Tempo
	if t.Rate <= 0 || t.Rate >= t.Ceiling {
		return ""
	}
	text := fmt.Sprintf("Asked %s/s of the %s/s allowed from %s", term.Figure(t.Rate), term.Figure(t.Ceiling),
		sourceName(s.Source))
	if !t.Since.IsZero() {
		text += " since " + term.Clock(t.Since, now)
	}
	if t.Phase != "" {
		text += " (" + t.Phase + ")"
	}
	if t.Why != "" {
		text += " because " + t.Why
	}
	if t.Edge > 0 {
		text += fmt.Sprintf("; %s/s was too fast", term.Figure(t.Edge))
	}
	return text + "; until higher rates go well."
}

// restLesson is the sentence about a source that is kept away; "": it is not.
func restLesson(s inspect.ReceiverSource, now time.Time) string {
	if s.State != "resting" && s.State != "paused" && s.State != "draining" {
		return ""
	}
	text := fmt.Sprintf("%s is %s here", sourceName(s.Source), s.State)
	if s.Reason != "" {
		text += " because of " + s.Reason
	}
	if !s.Until.IsZero() {
		text += ", " + term.Until(s.Until, now)
	}
	return text + "."
}
