package egress_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/receivertest"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	sourceA, sourceB, sourceSix = "192.0.2.201", "192.0.2.202", "2001:db8::201"

	trial = 10 * time.Minute // for one receiver to take a source again
)

// poolOf makes a pool of sources with these addresses; without any, the one that the system chooses.
func poolOf(addresses ...string) *egress.Pool {
	return receivertest.SourcesOf(receivertest.NoSession, addresses...)
}

// TestNewPoolSaysWhatIsWrong: NewPool refuses unusable sources.
func TestNewPoolSaysWhatIsWrong(t *testing.T) {
	good := egress.Source{Hello: "probe.example", Open: receivertest.NoSession}
	for name, list := range map[string][]egress.Source{
		"none": nil, "no hello name": {{Open: receivertest.NoSession}}, "no way to open": {{Hello: "probe.example"}},
		"twice": {good, good},
	} {
		_, err := egress.NewPool(list)
		effort.ErrorIf(t, err == nil, "%s: no error", name)
	}
}

// TestSuspendedByMany: a source is suspended if enough receivers refuse it, and a large enough part of all. Then one
// receiver is asked, and all only if that one accepts it.
func TestSuspendedByMany(t *testing.T) {
	two, one, six := []string{sourceA, sourceB}, []string{sourceA}, []string{sourceA, sourceSix}
	for _, tc := range []struct {
		name            string
		sources         []string
		spoken, blocked int
		suspended       bool
	}{
		{"none", two, 50, 0, false},
		{"two", two, 2, 2, false},
		{"three", two, 3, 3, true},
		{"three of thirty", two, 30, 3, true},
		{"three of thirty-one", two, 31, 3, false},
		{"four of forty-one", two, 41, 4, false},
		{"four of forty", two, 40, 4, true},
		{"nine, and no other source", one, 9, 9, false},
		{"ten, and no other source", one, 10, 10, true},
		{"ten of twenty, and no other source", one, 20, 10, true},
		{"ten of twenty-one, and no other source", one, 21, 10, false},
		{"nine, and no other source of the family", six, 9, 9, false},
		{"ten, and no other source of the family", six, 10, 10, true},
	} {
		p := poolOf(tc.sources...)
		for n := range tc.spoken {
			p.NoteDialled(0, fmt.Sprint(n), begin)
		}
		last := false
		for n := range tc.blocked {
			last = p.NoteBlocked(0, fmt.Sprint(n), begin.Add(time.Duration(n)*time.Minute), smtp.SourceIdentity)
		}
		now := begin.Add(10 * time.Minute)
		st := p.State(now)
		usable, _ := p.Usable(0, "another", now)
		effort.ErrorIf(t, last != tc.suspended || usable == tc.suspended ||
			now.Before(st[0].SuspendedUntil) != tc.suspended, "%s: suspended %v, state %+v", tc.name, last, st)
		effort.ErrorIf(t, st[0].Spoken != tc.spoken || !tc.suspended && st[0].Blocked != tc.blocked,
			"%s: state %+v", tc.name, st[0])
		if tc.suspended && st[0].Reason != smtp.SourceIdentity {
			t.Errorf("%s: suspended because of %s", tc.name, st[0].Reason)
		}
	}
}

// TestRefusalsAreForgivenInAnHour: refusals of longer ago count no more, nor do those of
// receivers that have taken the source since.
func TestRefusalsAreForgivenInAnHour(t *testing.T) {
	p := poolOf(sourceA, sourceB)
	p.NoteBlocked(0, "a", begin, smtp.SourceBlocked)
	p.NoteBlocked(0, "b", begin, smtp.SourceBlocked)
	effort.ErrorIf(t, p.NoteBlocked(0, "c", begin.Add(time.Hour+time.Second), smtp.SourceBlocked),
		"suspended for refusals of more than an hour ago")
	p.NoteBlocked(0, "d", begin.Add(time.Hour+time.Second), smtp.SourceBlocked)
	p.NoteAnswered(0, "d", begin.Add(time.Hour+2*time.Second))
	effort.ErrorIf(t, p.NoteBlocked(0, "e", begin.Add(time.Hour+3*time.Second), smtp.SourceBlocked),
		"suspended though a receiver has taken it since")
	effort.ErrorIf(t, !p.NoteBlocked(0, "f", begin.Add(time.Hour+4*time.Second), smtp.SourceBlocked),
		"not suspended by three")
}

// TestSourceOnTrial: after a suspension one receiver is asked, and its answer decides.
func TestSourceOnTrial(t *testing.T) {
	p := poolOf(sourceA, sourceB)
	for _, key := range []string{"a", "b", "c"} {
		p.NoteBlocked(0, key, begin, smtp.SourceBlocked)
	}
	usable := func(key string, at time.Time) bool {
		ok, _ := p.Usable(0, key, at)
		return ok
	}
	use := func(key string, at time.Time) bool {
		ok, _ := p.Use(0, key, at)
		return ok
	}
	effort.ErrorIf(t, use("d", begin.Add(time.Hour-time.Second)), "a suspended source speaks")
	now := begin.Add(time.Hour)
	effort.ErrorIf(t, !usable("d", now) || !use("e", now) || usable("d", now) || !use("e", now),
		"not one receiver is asked first")
	st := p.State(now)[0]
	effort.ErrorIf(t, !st.OnTrial || now.Before(st.SuspendedUntil), "state %+v", st)
	if p.NoteBlocked(0, "d", now, smtp.SourceBlocked) { // said by a session from before
		t.Error("suspended by a receiver that was not asked")
	}
	effort.ErrorIf(t, !p.NoteBlocked(0, "e", now, smtp.SourceBlocked) || use("e", now.Add(2*time.Hour-time.Second)),
		"not suspended for twice as long")
	now = now.Add(2 * time.Hour)
	effort.ErrorIf(t, !use("f", now) || use("g", now) || !use("g", now.Add(trial)),
		"a receiver that says nothing keeps the source for ever")
	p.NoteAnswered(0, "f", now.Add(trial)) // too late, it is another one's turn
	effort.ErrorIf(t, use("h", now.Add(trial)), "taken for healthy by a receiver that was not asked")
	p.NoteAnswered(0, "g", now.Add(trial))
	effort.ErrorIf(t, !use("h", now.Add(trial)) || p.State(now.Add(trial))[0].OnTrial, "still on trial")
	for n := range 12 { // however often, never for more than a day
		for _, key := range []string{"a", "b", "c"} {
			p.NoteBlocked(0, key, now.Add(trial), smtp.SourceBlocked)
		}
		left := p.State(now.Add(trial))[0].SuspendedUntil.Sub(now.Add(trial))
		effort.ErrorIf(t, left > 24*time.Hour, "suspension %d lasts %s", n, left)
		now = now.Add(48 * time.Hour)
		p.Use(0, "a", now.Add(trial))
	}
}

// TestShortHour: sources are forgiven, suspended and tried again by the hour of the pool.
func TestShortHour(t *testing.T) {
	hour := throttle.Hour(36 * time.Second)
	p := poolOf(sourceA, sourceB)
	p.Hour = hour
	p.NoteBlocked(0, "a", begin, smtp.SourceBlocked)
	p.NoteBlocked(0, "b", begin, smtp.SourceBlocked)
	now := begin.Add(hour.Of(time.Hour) + 1)
	effort.ErrorIf(t, p.NoteBlocked(0, "c", now, smtp.SourceBlocked) || p.State(now)[0].Blocked != 1,
		"suspended for refusals of more than its hour ago: %+v", p.State(now)[0])
	p.NoteBlocked(0, "d", now, smtp.SourceBlocked)
	effort.ErrorIf(t, !p.NoteBlocked(0, "e", now, smtp.SourceBlocked) ||
		!p.State(now)[0].SuspendedUntil.Equal(now.Add(hour.Of(time.Hour))), "suspended: %+v", p.State(now)[0])
	now = now.Add(hour.Of(time.Hour))
	ok, _ := p.Use(0, "f", now)
	effort.FatalIf(t, !ok, "not tried after its hour")
	ok, next := p.Use(0, "g", now)
	effort.ErrorIf(t, ok || !next.Equal(now.Add(hour.Of(trial))), "another one is tried: %v, at %v", ok, next.Sub(now))
}

// noteEvery is how often daily caps are noted at most.
const noteEvery = 2 * time.Second

// capped are settings in which each source may send most RCPTs a day.
func capped(most int, facts facts.Store) egress.Settings {
	return egress.Settings{Facts: facts, Log: slog.New(slog.DiscardHandler),
		Limits: func(string) throttle.Limits { return throttle.Limits{RcptsPerDay: most} }}
}

// untilMidnight is how long a day of UTC still lasts.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// TestDailyCap: a warm-up doubles each day until it bounds nothing.
func TestDailyCap(t *testing.T) {
	first := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	a := throttle.Limits{RcptsPerDay: 50, WarmUpFrom: first}
	for days, want := range map[int]int{-3: 50, 0: 50, 1: 100, 5: 1600, 14: 819_200, 15: 0, 4000: 0} {
		effort.Is(t, egress.DailyCap(a, first.AddDate(0, 0, days).Add(23*time.Hour)), want, "day", days)
	}
	effort.Is(t, egress.DailyCap(throttle.Limits{RcptsPerDay: 7}, first), 7, "without a warm-up")
}

// TestNothingIsClaimedBlindly: while it is unknown what an earlier process asked today, a source with a cap asks
// nothing, a source without one asks freely, and Flush returns an error.
func TestNothingIsClaimedBlindly(t *testing.T) {
	for most, want := range map[int]int{50: 0, 0: 7} {
		synctest.Test(t, func(t *testing.T) {
			gone := &receivertest.Shelf{}
			gone.Fail(1 << 30)
			p := poolOf(sourceA)
			p.Bind(capped(most, gone))
			for range 5 {
				got, wait := p.Claim(0, "a", time.Now(), 7)
				left, next := p.Remaining(0, "a", time.Now(), true)
				effort.ErrorIf(t, got != want || want == 0 && (left != 0 || wait != noteEvery || next != noteEvery),
					"cap %d: %d claimed, %d left, again in %s and %s", most, got, left, wait, next)
				<-time.After(2 * noteEvery)
				synctest.Wait()
			}
			effort.Is(t, p.State(time.Now())[0].Today, 5*want, fmt.Sprintf("cap %d", most))
			synctest.Wait()
			effort.ErrIs(t, p.Flush(t.Context()), receivertest.ErrGone, "cap", most, "flushed with")
		})
	}
}

// TestWithoutALedgerNothingIsFlushed: whoever asks once and is gone keeps no cap.
func TestWithoutALedgerNothingIsFlushed(t *testing.T) {
	p := poolOf(sourceA)
	effort.ErrIs(t, p.Flush(t.Context()), nil, "before it is bound")
	p.Bind(capped(5, nil))
	n, _ := p.Claim(0, "a", begin, 7)
	effort.ErrorIf(t, n != 5, "%d of 5 claimed", n)
	effort.OK(t, p.Flush(t.Context()))
}

// TestCapOutlivesCrashes: over processes that crash again and again no more than the day
// allows is claimed, and what one of them can lose is bounded.
func TestCapOutlivesCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, processes, lostMost = 400, 5, 2 * 20
		kept := &receivertest.Shelf{}
		claimed := 0
		for process := range processes {
			p := poolOf(sourceA)
			p.Bind(capped(most, kept))
			for round := range 20 {
				<-time.After(2 * noteEvery)
				if process < processes-1 && round == 3 {
					break
				}
				if process < processes-1 && round == 2 { // what it claims now is the last that it does
					kept.Fail(1 << 30)
				}
				for _, key := range []string{"a", "b"} {
					got, _ := p.Claim(0, key, time.Now(), 50)
					claimed += got
				}
				synctest.Wait()
			}
			kept.Fail(0)
			if used := p.State(time.Now())[0].Today; used > most || claimed > used {
				t.Errorf("process %d: %d claimed, %d counted, of %d", process, claimed, used, most)
			}
		}
		effort.ErrorIf(t, claimed > most || claimed < most-processes*lostMost, "%d of %d claimed", claimed, most)
		var fact struct{ Used int }
		facts, _ := kept.Known(t.Context(), []string{throttle.SourcePrefix + sourceA})
		err := json.Unmarshal(facts[0].Data, &fact)
		effort.ErrorIf(t, err != nil || fact.Used > most, "kept %+v: %v", fact, err)
	})
}

// TestReceiversShareACap: a greedy receiver and a slow one get the same, and what is returned
// can be claimed again, until midnight.
func TestReceiversShareACap(t *testing.T) {
	const most = 400
	p := poolOf(sourceA)
	p.Bind(capped(most, nil))
	a, b := 0, 0
	p.Claim(0, "b", begin, 1)
	for range most {
		got, _ := p.Claim(0, "a", begin, 10)
		a += got
		got, _ = p.Claim(0, "b", begin, 1)
		b += got
	}
	effort.ErrorIf(t, a < most/2-20 || a > most/2+20 || a+b > most,
		"of %d a greedy receiver has %d, a slow one %d", most, a, b)
	got, wait := p.Claim(0, "a", begin, 1)
	effort.ErrorIf(t, got != 0 || wait != untilMidnight(begin), "%d more, wait %s", got, wait)
	p.Return(0, "a", egress.DayOf(begin), 3)
	got, _ = p.Claim(0, "a", begin, 10)
	effort.ErrorIf(t, got != 3, "%d of three that were returned", got)
	tomorrow := begin.Add(untilMidnight(begin))
	got, _ = p.Claim(0, "a", tomorrow, 10)
	effort.ErrorIf(t, got != 10, "%d of ten on the next day", got)
	p.Return(0, "a", egress.DayOf(begin), 5)
	effort.Is(t, p.State(tomorrow)[0].Today, 10, "of today count after yesterday's were returned")
}

// TestCapOutlivesTheProcess: whoever asks how the sources do before they are bound, what
// an earlier process asked today counts, of a source with a bound and of one without.
func TestCapOutlivesTheProcess(t *testing.T) {
	for name, most := range map[string]int{"bounded": 50, "unbounded": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings := capped(most, &receivertest.Shelf{})
				first, now := poolOf(sourceA), time.Now()
				first.State(now)
				first.Bind(settings)
				for range 10 { // what may be asked is noted ahead, beside
					first.Claim(0, "a", now, 50)
					<-time.After(noteEvery)
					synctest.Wait()
					now = time.Now()
				}
				used := first.State(now)[0].Today
				effort.FatalIf(t, used == 0 || most > 0 && used != most, "%d of %d were asked", used, most)
				effort.OK(t, first.Flush(t.Context()))
				second := poolOf(sourceA)
				second.State(now) // who looks at sources does so before they are bound
				second.Bind(settings)
				second.State(now)
				synctest.Wait()
				effort.Is(t, second.State(now)[0].Today, used, "asked, as the next process has it")
				got, _ := second.Claim(0, "a", now, 10)
				effort.ErrorIf(t, most > 0 && got > 0, "%d more than %d in a day", got, most)
				synctest.Wait()
			})
		})
	}
}

// TestAllOfACapIsUsed: any number of receivers together can use the whole daily cap of a source.
func TestAllOfACapIsUsed(t *testing.T) {
	for _, tc := range []struct{ most, receivers int }{{1000, 600}, {1000, 999}, {1000, 3}, {7, 5}, {7, 50}} {
		p, now, got := poolOf(sourceA), begin, 0
		p.Bind(capped(tc.most, nil))
		for range 300 {
			now = now.Add(time.Second)
			for k := range tc.receivers {
				n, _ := p.Claim(0, fmt.Sprint(k), now, 5)
				got += n
			}
		}
		effort.Is(t, got, tc.most, "taken by", tc.receivers, "receivers")
	}
}
