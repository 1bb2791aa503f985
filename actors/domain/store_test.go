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
)

// sharing makes facts that are shared through a shelf.
func sharing(s *receivertest.Shelf) *Facts {
	return ShareFacts(facts.NewWriter(facts.Options{Store: s, Of: "domains", Log: slog.New(slog.DiscardHandler)}))
}

// TestFactsAreReadByOthers, as soon as they are written.
func TestFactsAreReadByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		f := sharing(s)
		learnCatchAll(f, "all.test", time.Now())
		f.Learn("some.test", false, time.Now())
		f.Learn("some.test", true, time.Now()) // the newest is kept
		effort.OK(t, f.Flush(t.Context()))
		got := string(s.Fact("domain/some.test").Data)
		effort.ErrorIf(t, !strings.HasPrefix(got, "habit1 accepted=1 refused=1 "), "the store has %q", got)
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
		{"enough", "habit1 accepted=3 refused=0 first=1 last=2", 2 * time.Hour, true, 2 * time.Hour},
		{"enough, by a clock that is wrong", "habit1 accepted=3 refused=0 first=1 last=2", 99 * time.Hour, true,
			factLife},
		{"told apart", "habit1 accepted=2 refused=1 first=2 last=2", time.Hour, false, time.Hour},
		{"too few", "habit1 accepted=2 refused=0 first=1 last=2", time.Hour, false, 0},
		{"nothing counted", "habit1 accepted=0 refused=0 first=1 last=2", time.Hour, false, 0},
		{"less than nothing", "habit1 accepted=-3 refused=4 first=1 last=2", time.Hour, false, 0},
		{"too much", "habit1 accepted=1000001 refused=0 first=1 last=2", time.Hour, false, 0},
		{"backwards", "habit1 accepted=3 refused=0 first=3 last=2", time.Hour, false, 0},
		{"more than was meant", "habit1 accepted=3 refused=0 first=1 last=2 ", time.Hour, false, 0},
		{"a newer line", "habit2 accepted=3 refused=0 first=1 last=2", time.Hour, false, 0},
		{"for ever, by a clock that is wrong", "habit1 accepted=0 refused=1 first=1 last=1", 10_000 * time.Hour, false,
			factLife},
		{"over", "habit1 accepted=0 refused=1 first=1 last=1", -time.Second, false, 0},
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
			Data: []byte("habit1 accepted=3 refused=0 first=1 last=90000"), Expires: time.Now().Add(24 * 365 * 10 * time.Hour)}))
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
