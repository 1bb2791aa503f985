package domain

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/receivertest"
	"rollcall/config/effort"
	"rollcall/smtp"
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

// sharing makes facts that are shared through a shelf.
func sharing(s *receivertest.Shelf) *Facts {
	return ShareFacts(facts.NewWriter(facts.Options{Store: s, Of: "domains", Log: slog.New(slog.DiscardHandler)}))
}

// TestFactsAreReadByOthers: another node can read a fact as soon as it is written.
func TestFactsAreReadByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		f := sharing(s)
		learnCatchAll(f, "all.test", time.Now())
		f.Learn("some.test", false, time.Now())
		f.Learn("some.test", true, time.Now()) // the newest is kept
		effort.OK(t, f.Flush(t.Context()))
		got := string(s.Fact("domain/some.test").Data)
		effort.ErrorIf(t, !strings.HasPrefix(got, "behaviour1 accepted=1 refused=1 "), "the store has %q", got)
		f = sharing(s)
		f.Recall(t.Context(), "all.test", "some.test", "new.test")
		for name, want := range map[string]bool{"all.test": true, "some.test": false} {
			got, known := f.Behaviour(name, time.Now()).CatchAll()
			effort.ErrorIf(t, !known || got != want, "%s: catch-all %v, known %v; want %v", name, got, known, want)
		}
		_, known := f.Behaviour("new.test", time.Now()).CatchAll()
		effort.ErrorIf(t, known, "something is known of a domain that nobody learned of")
	})
}

// TestNobodyWaitsLongForAStoreThatIsAway: neither who asks nor who ends.
func TestNobodyWaitsLongForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Take(time.Hour)
		f := sharing(s)
		f.Learn("all.test", true, time.Now())
		began := time.Now()
		within, cancel := context.WithTimeout(t.Context(), recallWithin)
		defer cancel()
		f.Recall(within, "other.test")
		effort.ErrorIf(t, f.Flush(t.Context()) == nil, "flushed to a store that is away")
		took := time.Since(began)
		effort.ErrorIf(t, took > recallWithin+flushWithin, "both took %v", took)
		s.Take(0)
		<-time.After(time.Minute) // the question is asked again until then
		effort.OK(t, f.Flush(t.Context()))
	})
}

// TestFactsThatAreKept: what is in the store, and what is believed of it.
func TestFactsThatAreKept(t *testing.T) {
	for _, c := range []struct {
		name     string
		data     string
		expires  time.Duration
		catchAll bool
		known    time.Duration // for how long; 0: not at all
	}{
		{"enough", "behaviour1 accepted=3 refused=0 first=1 last=2", 2 * time.Hour, true, 2 * time.Hour},
		{"enough, by a clock that is wrong", "behaviour1 accepted=3 refused=0 first=1 last=2", 99 * time.Hour, true,
			factLife},
		{"told apart", "behaviour1 accepted=2 refused=1 first=2 last=2", time.Hour, false, time.Hour},
		{"too few", "behaviour1 accepted=2 refused=0 first=1 last=2", time.Hour, false, 0},
		{"nothing counted", "behaviour1 accepted=0 refused=0 first=1 last=2", time.Hour, false, 0},
		{"less than nothing", "behaviour1 accepted=-3 refused=4 first=1 last=2", time.Hour, false, 0},
		{"too much", "behaviour1 accepted=1000001 refused=0 first=1 last=2", time.Hour, false, 0},
		{"backwards", "behaviour1 accepted=3 refused=0 first=3 last=2", time.Hour, false, 0},
		{"more than was meant", "behaviour1 accepted=3 refused=0 first=1 last=2 ", time.Hour, false, 0},
		{"a newer line", "habit2 accepted=3 refused=0 first=1 last=2", time.Hour, false, 0},
		{"for ever, by a clock that is wrong", "behaviour1 accepted=0 refused=1 first=1 last=1", 10_000 * time.Hour, false,
			factLife},
		{"over", "behaviour1 accepted=0 refused=1 first=1 last=1", -time.Second, false, 0},
		{"a word of a newer program", "sometimes", time.Hour, false, 0},
		{"nothing", "", time.Hour, false, 0},
		{"garbage", "\xff\x00", time.Hour, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := sharing(receivertest.Holding(facts.Fact{Key: "domain/x.test", Data: []byte(c.data),
					Expires: time.Now().Add(c.expires)}))
				f.Recall(t.Context(), "x.test")
				catchAll, known := f.Behaviour("x.test", time.Now()).CatchAll()
				effort.FatalIf(t, known != (c.known > 0) || catchAll != c.catchAll,
					"catch-all %v, known %v", catchAll, known)
				if _, known := f.Behaviour("x.test", time.Now().Add(c.known+time.Second)).CatchAll(); known {
					t.Errorf("known for more than %v", c.known)
				}
			})
		})
	}
}

func TestNewestFactStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sharing(receivertest.Holding(facts.Fact{Key: "domain/x.test",
			Data:    []byte("behaviour1 accepted=3 refused=0 first=1 last=90000"),
			Expires: time.Now().Add(24 * 365 * 10 * time.Hour)}))
		f.Learn("x.test", false, time.Now())
		f.Recall(t.Context(), "x.test")
		if catchAll, known := f.Behaviour("x.test", time.Now()).CatchAll(); !known || catchAll {
			t.Errorf("catch-all %v, known %v: what was learned here was overwritten", catchAll, known)
		}
		_ = f.Flush(t.Context())
	})
}

// TestFactsThatAreNotSharedAskNobody: without a store all is as in one process.
func TestFactsThatAreNotSharedAskNobody(t *testing.T) {
	f := NewFacts()
	f.Recall(context.Background(), "x.test")
	learnCatchAll(f, "x.test", morning)
	if catchAll, known := f.Behaviour("x.test", morning).CatchAll(); !known || !catchAll || f.Shared() {
		t.Errorf("catch-all %v, known %v, shared %v", catchAll, known, f.Shared())
	}
}

// TestAcceptancesWaitForTheCluster: what others know of the domain is asked for with its route, and only when nobody
// does, or nobody answers in time, the receiver is asked by a control probe.
func TestAcceptancesWaitForTheCluster(t *testing.T) {
	for _, c := range []struct {
		name    string
		learned bool // by another node
		silent  bool // the store does not answer
		want    smtp.Outcome
	}{
		{"others know", true, false, smtp.CatchAll},
		{"nobody knows", false, false, smtp.Valid},
		{"nobody answers", false, true, smtp.Valid},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.Facts = sharing(&receivertest.Shelf{})
			b := newBench(t, o, 3)
			b.wants(findRoute{})
			b.reach()
			offer := b.offered()
			b.answers(offer, 1, refused, 0)
			b.answers(offer, 2, accepted, 1)
			b.wants()
			b.answers(offer, 3, accepted, 2)
			b.wants()
			effort.FatalIf(t, len(b.offers()) > 0 || len(b.done) != 1, "the acceptances do not wait")
			if c.learned {
				learnCatchAll(o.Facts, testBehaviour, b.now)
			}
			if c.silent {
				effort.FatalIf(t, !b.wakes.Equal(b.now.Add(recallWithin)), "woken at %v", b.wakes)
				b.pass(recallWithin)
			} else {
				b.controls.recallOver(b.now)
				b.look()
			}
			if !c.learned {
				control := b.offered()
				effort.FatalIf(t, !isControl(control), "offered: %v, want a control probe", locals(control))
				b.controls.recallOver(b.now) // once more, too late
				b.answers(control, 1, refused)
			}
			b.is(1, c.want, map[smtp.Outcome]smtp.Reason{smtp.Valid: smtp.MailboxExists,
				smtp.CatchAll: smtp.AcceptAll}[c.want])
			effort.ErrorIf(t, b.left != 0 || len(b.offers()) > 0, "%d are left, offers %v", b.left, b.offers())
		})
	}
}
