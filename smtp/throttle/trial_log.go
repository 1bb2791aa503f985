package throttle

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// trialsHalf is how many events a half of a log holds: with two halves the newest 1,000 to 2,000
	// are there. Guess: some minutes of a busy receiver.
	trialsHalf = 1000

	// trialTextsMost and trialTextBytes bound the names, replies and sentences of a half; at them
	// the next one is begun.
	trialTextsMost = 4000
	trialTextBytes = 64 << 10

	// TrialLogsMost bounds the logs of a process. Each takes 100 KB as it mostly is, and 300 KB at
	// most.
	TrialLogsMost = 500
)

// TrialRoom counts the logs of trials that a process keeps. The zero value is ready. Safe for
// concurrent use.
type TrialRoom struct{ taken atomic.Int64 }

// take reports whether there is room for one more log.
func (r *TrialRoom) take() bool {
	if r.taken.Add(1) > TrialLogsMost {
		r.taken.Add(-1)
		return false
	}
	return true
}

// trialKind is what an event is.
type trialKind uint8

// The kinds of events: each is a call of a method that changes what Causes or Experiment know.
const (
	kindNote trialKind = iota
	kindFine
	kindSettle
	kindAssume
	kindLook
	kindUsual
	kindClear
	kindBegin
	kindTrial
	kindLooked
	kindEnd
	trialKinds
)

// Bits of trialEvent.flags.
const (
	trialAgain = 1 << iota
	trialOfUs
	trialOfItself
	trialOtherDomain
	trialOtherTenant
	trialOtherHost
	trialYes   // odd, bad or passed, as the kind has it
	trialFine  // a note whose trial was told to Fine right after
	trialFound // an end whose finding was the experiment's own
)

// trialEvent is one call with its arguments, and what it led to.
type trialEvent struct {
	sent, at                        int64   // Unix nanoseconds; noTime: zero
	value                           float64 // a pace, or the share of kindUsual
	domain, tenant, host, said, why uint16  // places in the texts of its half
	flags                           uint16
	kind                            trialKind
	result                          Result // or the Finding of kindEnd
	scope                           Scope
	refused                         bool
}

// noTime stands for the zero time.
const noTime = math.MinInt64

// trialHalf is what was known when it was begun, and what happened since.
type trialHalf struct {
	state  *TrialState
	events []trialEvent
	texts  []string // the first is empty
	places map[string]uint16
	bytes  int
}

// place gives the place of a text.
func (h *trialHalf) place(text string) uint16 {
	n, known := h.places[text]
	if !known {
		n = uint16(len(h.texts))
		h.texts, h.places[text], h.bytes = append(h.texts, text), n, h.bytes+len(text)
	}
	return n
}

func (h *trialHalf) full() bool {
	return len(h.events) >= trialsHalf || len(h.texts) >= trialTextsMost || h.bytes >= trialTextBytes
}

// trialLog keeps the newest calls of one Causes and its Experiment, from a known state on.
type trialLog struct{ older, newer *trialHalf }

// KeepTrials lets the log of trials begin with the first bad one, if there is room then. Pace gives
// the RCPTs a second that are let go, for people.
func (c *Causes) KeepTrials(room *TrialRoom, pace func(at time.Time) float64) {
	c.room, c.pace = room, pace
}

// DropTrials ends the log of trials for good.
func (c *Causes) DropTrials() {
	if c.log != nil {
		c.room.taken.Add(-1)
	}
	c.log, c.room = nil, nil
}

// logs reports whether calls are logged; a bad trial begins it.
func (c *Causes) logs(bad bool) bool {
	if c.log == nil && bad && c.room != nil && c.room.take() {
		c.log = &trialLog{}
	}
	return c.log != nil
}

// logCall notes a call before anything is changed by it.
func (c *Causes) logCall(e trialEvent) *trialEvent {
	l := c.log
	if l.newer == nil || l.newer.full() {
		l.older = l.newer
		l.newer = &trialHalf{state: c.state(), texts: []string{""}, places: map[string]uint16{"": 0}}
	}
	l.newer.events = append(l.newer.events, e)
	return &l.newer.events[len(l.newer.events)-1]
}

// logTrial notes a call with a trial.
func (c *Causes) logTrial(kind trialKind, t *Trial, flags uint16) {
	if c.log == nil {
		return
	}
	flags |= flagIf(t.Again, trialAgain) | flagIf(t.OfUs, trialOfUs) | flagIf(t.OfItself, trialOfItself)
	e := c.logCall(trialEvent{kind: kind, result: t.Result, flags: flags, sent: nanos(t.Sent), at: nanos(t.At)})
	h := c.log.newer
	e.domain, e.tenant, e.host, e.said = h.place(t.Domain), h.place(t.Tenant), h.place(t.Host), h.place(t.Said)
	if kind == kindNote && c.pace != nil {
		e.value = c.pace(t.At)
	}
}

// logFine notes that the trial of the newest call was told to Fine.
func (c *Causes) logFine(t *Trial) {
	if c.log == nil {
		return
	}
	if h := c.log.newer; h != nil && len(h.events) > 0 {
		if e := &h.events[len(h.events)-1]; e.kind == kindNote && e.sent == nanos(t.Sent) && e.result == t.Result &&
			h.texts[e.domain] == t.Domain && h.texts[e.tenant] == t.Tenant && h.texts[e.host] == t.Host && e.flags&trialFine == 0 {
			e.flags |= trialFine
			return
		}
	}
	c.logTrial(kindFine, t, 0)
}

// logSmall notes a call without a trial.
func (c *Causes) logSmall(kind trialKind, yes bool, value float64) {
	if c == nil || c.log == nil {
		return
	}
	c.logCall(trialEvent{kind: kind, value: value, sent: noTime, at: noTime, flags: flagIf(yes, trialYes)})
}

// logEnd notes the end of an experiment; found: it ends with its own finding.
func (c *Causes) logEnd(f Finding, found bool, now time.Time) {
	if c == nil || c.log == nil {
		return
	}
	c.logCall(trialEvent{kind: kindEnd, result: Result(f), sent: noTime, at: nanos(now), flags: flagIf(found, trialFound)})
}

// logBelief notes what the newest call led to.
func (c *Causes) logBelief(b Belief) {
	if c == nil || c.log == nil || b.Why == "" {
		return
	}
	h := c.log.newer
	e := &h.events[len(h.events)-1]
	e.scope, e.refused, e.why = b.Scope, b.Refused, h.place(b.Why)
}

// flagIf gives a bit of trialEvent.flags if it is to be set.
func flagIf(on bool, bit uint16) uint16 {
	if on {
		return bit
	}
	return 0
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixNano()
}

func timeOfNanos(n int64) time.Time {
	if n == noTime {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
