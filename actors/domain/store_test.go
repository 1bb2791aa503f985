package domain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/ledger"
	"rollcall/smtp"
)

// emptyStore keeps nothing.
type emptyStore struct{}

func (emptyStore) Learn(context.Context, []ledger.Fact) error { return nil }

func (emptyStore) Known(context.Context, []string) ([]ledger.Fact, error) { return nil, nil }

// memory is a store that notes how it is called.
type memory struct {
	mu     sync.Mutex
	facts  map[string]ledger.Fact // guarded by mu
	learns []int                  // guarded by mu: facts of each call
	reads  []int                  // guarded by mu: keys of each call
	broken bool                   // guarded by mu
	slow   time.Duration          // of each Known; read only
	during func()                 // in each Learn; read only
}

var errBroken = errors.New("the ledger is away")

func (m *memory) Learn(ctx context.Context, facts []ledger.Fact) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learns = append(m.learns, len(facts))
	if m.during != nil {
		m.during()
	}
	if m.broken || ctx.Err() != nil {
		return errBroken
	}
	if err := ledger.CheckFacts(facts); err != nil {
		return err
	}
	for _, f := range facts {
		m.facts[f.Key] = f
	}
	return nil
}

func (m *memory) Known(ctx context.Context, keys []string) (list []ledger.Fact, err error) {
	if m.slow > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(m.slow):
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, len(keys))
	if m.broken || len(keys) > ledger.FactsMax {
		return nil, errBroken
	}
	for _, key := range keys {
		if f, ok := m.facts[key]; ok {
			list = append(list, f)
		}
	}
	return list, nil
}

// calls gives what was noted.
func (m *memory) calls() (learns, reads []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.learns), slices.Clone(m.reads)
}

func (m *memory) breaks(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

// withFacts runs a test with facts that are shared through m, in a bubble. stop
// ends Run, and may be called in the test.
func withFacts(t *testing.T, m *memory, test func(t *testing.T, f *Facts, log *bytes.Buffer, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.mu.Lock()
		if m.facts == nil {
			m.facts = map[string]ledger.Fact{}
		}
		m.mu.Unlock()
		var log bytes.Buffer // written by Run's goroutines, which rest when it is read
		f := ShareFacts(m, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { f.Run(ctx) })
		stop := func() {
			cancel()
			run.Wait()
		}
		test(t, f, &log, stop)
		stop()
	})
}

func TestFactsAreSavedTogetherAndReadByOthers(t *testing.T) {
	m := &memory{}
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, _ func()) {
		learnCatchAll(f, "all.test", time.Now())
		f.Learn("some.test", false, time.Now())
		<-time.After(saveEvery)
		synctest.Wait()
		if learns, _ := m.calls(); !slices.Equal(learns, []int{2}) {
			t.Fatalf("calls with %v facts, want one with 2", learns)
		}
		<-time.After(10 * saveEvery)
		if learns, _ := m.calls(); len(learns) != 1 {
			t.Errorf("calls with %v facts though nothing was learned", learns)
		}
	})
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, _ func()) {
		var askers sync.WaitGroup
		for i := range 100 {
			for _, name := range []string{"all.test", "some.test", fmt.Sprintf("new%d.test", i)} {
				askers.Go(func() { f.Recall(context.Background(), name) })
			}
		}
		askers.Wait()
		for name, want := range map[string]bool{"all.test": true, "some.test": false} {
			if got, known := f.Behaviour(name, time.Now()).CatchAll(); !known || got != want {
				t.Errorf("%s: catch-all %v, known %v; want %v", name, got, known, want)
			}
		}
		if _, known := f.Behaviour("new7.test", time.Now()).CatchAll(); known {
			t.Error("something is known of a domain that nobody learned of")
		}
		if _, reads := m.calls(); !slices.Equal(reads, []int{102}) {
			t.Errorf("reads of %v keys, want one of 102", reads)
		}
	})
}

func TestQuestionsThatAreTooManyForOneCall(t *testing.T) {
	m := &memory{}
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, _ func()) {
		var askers sync.WaitGroup
		for i := range ledger.FactsMax + 7 {
			askers.Go(func() { f.Recall(context.Background(), fmt.Sprintf("d%d.test", i)) })
		}
		askers.Wait()
		if _, reads := m.calls(); !slices.Equal(reads, []int{ledger.FactsMax, 7}) {
			t.Errorf("reads of %v keys", reads)
		}
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
			m := &memory{facts: map[string]ledger.Fact{}}
			withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, _ func()) {
				m.mu.Lock()
				m.facts["domain/x.test"] = ledger.Fact{Key: "domain/x.test", Data: []byte(c.data),
					Expires: time.Now().Add(c.expires)}
				m.mu.Unlock()
				f.Recall(context.Background(), "x.test")
				catchAll, known := f.Behaviour("x.test", time.Now()).CatchAll()
				if known != (c.known > 0) || catchAll != c.catchAll {
					t.Fatalf("catch-all %v, known %v", catchAll, known)
				}
				if _, known := f.Behaviour("x.test", time.Now().Add(c.known+time.Second)).CatchAll(); known {
					t.Errorf("known for more than %v", c.known)
				}
			})
		})
	}
}

// TestFactsWhileTheStoreIsAway: nothing waits for long, what was learned is written
// when the store is back, and the log says little.
func TestFactsWhileTheStoreIsAway(t *testing.T) {
	m := &memory{broken: true}
	withFacts(t, m, func(t *testing.T, f *Facts, log *bytes.Buffer, _ func()) {
		f.Learn("all.test", true, time.Now())
		began := time.Now()
		f.Recall(context.Background(), "other.test")
		if took := time.Since(began); took > recallWithin {
			t.Errorf("a question took %v", took)
		}
		<-time.After(40 * saveEvery)
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines < 3 || lines > 8 {
			t.Errorf("%d lines about 40 failures", lines)
		}
		m.breaks(false)
		<-time.After(saveEvery)
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		if !strings.HasPrefix(string(m.facts["domain/all.test"].Data), "habit1 accepted=1 refused=0 ") {
			t.Errorf("the store has %v", m.facts)
		}
	})
}

// TestWhatIsLearnedMeanwhileIsSavedToo: a domain that is learned anew while its
// fact is being written.
func TestWhatIsLearnedMeanwhileIsSavedToo(t *testing.T) {
	m := &memory{}
	var once sync.Once
	var learn func()
	m.during = func() { once.Do(learn) }
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, stop func()) {
		learn = func() { f.Learn("x.test", false, time.Now()) }
		f.Learn("x.test", true, time.Now())
		stop()
		if got := string(m.facts["domain/x.test"].Data); !strings.HasPrefix(got, "habit1 accepted=1 refused=1 ") {
			t.Errorf("the store has %q, want what was learned last", got)
		}
	})
}

func TestFactsAreSavedAtTheEnd(t *testing.T) {
	m := &memory{}
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, stop func()) {
		for i := range ledger.FactsMax + 1 {
			f.Learn(fmt.Sprintf("d%d.test", i), true, time.Now())
		}
		stop()
		if learns, _ := m.calls(); !slices.Equal(learns, []int{ledger.FactsMax, 1}) {
			t.Errorf("calls with %v facts at the end, want all of them", learns)
		}
	})
}

// TestWhatWaitsForTheStoreIsBounded: whatever is learned and asked while the store is slow, little
// waits for it.
func TestWhatWaitsForTheStoreIsBounded(t *testing.T) {
	m := &memory{slow: time.Hour}
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, stop func()) {
		var askers sync.WaitGroup
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for i := range askedMax + 10 {
			f.Learn(fmt.Sprintf("d%d.test", i), true, time.Now())
			askers.Go(func() { f.Recall(ctx, fmt.Sprintf("e%d.test", i)) })
		}
		askers.Wait()
		f.mu.Lock()
		if len(f.unsaved) > unsavedMax || len(f.asked) > askedMax {
			t.Errorf("%d wait to be saved, %d to be answered", len(f.unsaved), len(f.asked))
		}
		f.mu.Unlock()
		began := time.Now()
		stop()
		if took := time.Since(began); took > saveEvery {
			t.Errorf("the end took %v", took)
		}
	})
}

func TestNewestFactStands(t *testing.T) {
	m := &memory{facts: map[string]ledger.Fact{"domain/x.test": {Key: "domain/x.test",
		Data: []byte("habit1 accepted=3 refused=0 first=1 last=90000"), Expires: time.Now().Add(24 * 365 * 10 * time.Hour)}}}
	withFacts(t, m, func(t *testing.T, f *Facts, _ *bytes.Buffer, _ func()) {
		f.Learn("x.test", false, time.Now())
		f.Recall(context.Background(), "x.test")
		if catchAll, known := f.Behaviour("x.test", time.Now()).CatchAll(); !known || catchAll {
			t.Errorf("catch-all %v, known %v: what was learned here was overwritten", catchAll, known)
		}
	})
}

// TestFactsThatAreNotSharedAskNobody: without a store all is as in one process.
func TestFactsThatAreNotSharedAskNobody(t *testing.T) {
	f := NewFacts()
	f.Run(context.Background())
	f.Recall(context.Background(), "x.test")
	learnCatchAll(f, "x.test", morning)
	if catchAll, known := f.Behaviour("x.test", morning).CatchAll(); !known || !catchAll || f.Shared() {
		t.Errorf("catch-all %v, known %v, shared %v", catchAll, known, f.Shared())
	}
}

// TestAcceptancesWaitForTheCluster: what others know of the domain is asked for with its route, and only when
// nobody does, or nobody answers in time, the receiver is
// asked by a control probe.
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
			o.Facts = ShareFacts(emptyStore{}, o.Log)
			b := newBench(t, o, 3)
			b.wants(findRoute{})
			b.reach()
			offer := b.offered()
			b.answers(offer, 1, refused, 0)
			b.answers(offer, 2, accepted, 1)
			b.wants()
			b.answers(offer, 3, accepted, 2)
			b.wants()
			if len(b.offers()) > 0 || len(b.done) != 1 {
				t.Fatal("the acceptances do not wait")
			}
			if c.learned {
				learnCatchAll(o.Facts, testBehaviour, b.now)
			}
			if c.silent {
				if !b.wakes.Equal(b.now.Add(recallWithin)) {
					t.Fatalf("woken at %v", b.wakes)
				}
				b.pass(recallWithin)
			} else {
				b.controls.recallOver(b.now)
				b.look()
			}
			if !c.learned {
				control := b.offered()
				if !isControl(control) {
					t.Fatalf("offered: %v, want a control probe", locals(control))
				}
				b.controls.recallOver(b.now) // once more, too late
				b.answers(control, 1, refused)
			}
			b.is(1, c.want, map[smtp.Outcome]smtp.Reason{smtp.Valid: smtp.MailboxExists,
				smtp.CatchAll: smtp.AcceptAll}[c.want])
			if b.left != 0 || len(b.offers()) > 0 {
				t.Errorf("%d are left, offers %v", b.left, b.offers())
			}
		})
	}
}

// TestTheClusterIsAskedOnce: a domain whose behaviours stay unknown does not ask again
// with every acceptance.
func TestTheClusterIsAskedOnce(t *testing.T) {
	o := testOptions()
	o.Facts = ShareFacts(emptyStore{}, o.Log)
	b := newBench(t, o, 4)
	b.reach()
	offer := b.offered()
	b.answers(offer, 1, accepted, 0)
	b.controls.recallOver(b.now)
	b.look()
	for range unclearMax {
		b.nextControl(20*time.Second, told{outcome: smtp.Unknown, reason: smtp.Policy})
	}
	b.lives(unclearFor)
	b.answers(offer, 2, accepted, 1)
	for _, s := range b.steps {
		if _, again := s.(recall); again {
			t.Error("the cluster is asked again")
		}
	}
	if !isControl(b.offered()) {
		t.Errorf("offered: %v, want another control probe", locals(b.offered()))
	}
}
