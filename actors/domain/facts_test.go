package domain

import (
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

func TestFactsAreBelievedForAWhile(t *testing.T) {
	f := NewFacts()
	learnCatchAll(f, "all.test", morning)
	f.Learn("strict.test", false, morning)
	for _, c := range []struct {
		domain          string
		after           time.Duration
		catchAll, known bool
	}{
		{"all.test", 0, true, true},
		{"strict.test", factLife, false, true},
		{"all.test", factLife + 1, false, false},
		{"strict.test", factLife + 1, false, false},
		{"other.test", 0, false, false},
	} {
		catchAll, known := f.Behaviour(c.domain, morning.Add(c.after)).CatchAll()
		effort.ErrorIf(t, catchAll != c.catchAll || known != c.known,
			"%s after %v: %v (known: %v), want %v (%v)", c.domain, c.after, catchAll, known, c.catchAll, c.known)
	}
	f.Learn("all.test", false, morning.Add(time.Hour)) // it changed its mind
	catchAll, known := f.Behaviour("all.test", morning.Add(factLife+time.Hour)).CatchAll()
	effort.ErrorIf(t, catchAll || !known, "what was learned last: %v (known: %v), want false", catchAll, known)
}

// learnCatchAll has as many control probes accepted as it takes.
func learnCatchAll(f *Facts, domain string, now time.Time) {
	for range evidence.ControlsEnough {
		f.Learn(domain, true, now)
	}
}

// TestAcceptancesAddUp: what too few control probes showed is kept for an hour, for
// others to go on from; what enough showed, for longer.
func TestAcceptancesAddUp(t *testing.T) {
	f := NewFacts()
	f.Learn("all.test", true, morning)
	at := morning.Add(partLife)
	f.Learn("all.test", true, at)
	effort.ErrorIf(t, partLife != time.Hour || factLife != 6*time.Hour,
		"believed for %v and %v; docs and operators count on 1 and 6 hours", partLife, factLife)
	short := NewFacts()
	short.Hour = throttle.Hour(time.Minute)
	short.Learn("strict.test", false, at)
	if life := 6 * time.Minute; short.Behaviour("strict.test", at.Add(life)).Refused != 1 ||
		short.Behaviour("strict.test", at.Add(life+1)).Refused != 0 {
		t.Error("where an hour lasts a minute six of them are not six minutes")
	}
	h := f.Behaviour("all.test", at.Add(partLife))
	if _, known := h.CatchAll(); known || h.Accepted != 2 || !h.First.Equal(morning) || !h.Last.Equal(at) {
		t.Fatalf("after two acceptances: %+v", h)
	}
	if h := f.Behaviour("all.test", at.Add(partLife+1)); h.Accepted != 0 {
		t.Errorf("believed for too long: %+v", h)
	}
	at = at.Add(partLife)
	f.Learn("all.test", true, at)
	for after, want := range map[time.Duration]bool{0: true, factLife: true, factLife + 1: false} {
		catchAll, known := f.Behaviour("all.test", at.Add(after)).CatchAll()
		effort.ErrorIf(t, known != want || catchAll != want, "after %v: catch-all %v, known %v", after, catchAll, known)
	}
	f.Learn("all.test", true, at.Add(factLife+1))
	if h := f.Behaviour("all.test", at.Add(factLife+1)); h.Accepted != 1 {
		t.Errorf("what is over counts on: %+v", h)
	}
}

func TestOptionsAreComplete(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"route": func(o *Options) { o.Route = nil }, "match": func(o *Options) { o.Match = nil },
		"resolve": func(o *Options) { o.Resolve = nil }, "facts": func(o *Options) { o.Facts = nil },
		"log": func(o *Options) { o.Log = nil }, "waits": func(o *Options) { o.Waits = nil },
		"version": func(o *Options) { o.Version = nil }, "no pauses": func(o *Options) { o.ControlPauses = nil },
		"give up":  func(o *Options) { o.GiveUpAfter = 0 },
		"no pause": func(o *Options) { o.ControlPauses = []time.Duration{time.Second, 0} },
	} {
		o := testOptions()
		change(&o)
		effort.ErrorIf(t, o.Validate() == nil, "%s: accepted", name)
	}
}
