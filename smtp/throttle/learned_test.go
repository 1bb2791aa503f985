package throttle

import (
	"testing"
	"time"

	"rollcall/config/effort"
)

// TestLearned: for each thing learned, which limit it changes, how, and for how long.
func TestLearned(t *testing.T) {
	later := start.Add(time.Minute)
	for _, tc := range []struct {
		name  string
		teach func(l *Learned)
		at    time.Time
		want  func(a *Limits)
	}{
		{"nothing", func(*Learned) {}, start, func(*Limits) {}},
		{"one lost session", func(l *Learned) { l.SessionEnded(37, 3, start) }, later, func(*Limits) {}},
		{"two of one length", func(l *Learned) { l.SessionEnded(37, 3, start); l.SessionEnded(37, 9, start) }, later,
			func(*Limits) {}},
		{"three of one length", func(l *Learned) {
			l.SessionEnded(37, 3, start)
			l.SessionEnded(37, 9, start)
			l.SessionEnded(37, 4, start)
		}, later, func(a *Limits) { a.RcptsPerConnection = 37 }},
		{"three of one length, not in a row", func(l *Learned) {
			l.SessionEnded(37, 3, start)
			l.SessionEnded(37, 9, start)
			l.SessionEnded(36, 4, start)
			l.SessionEnded(37, 5, start)
		}, later, func(*Limits) {}},
		{"three of one length, another went further", func(l *Learned) {
			l.Went(38, 3, start)
			l.SessionEnded(37, 3, start)
			l.SessionEnded(37, 9, start)
			l.SessionEnded(37, 4, start)
		}, later, func(*Limits) {}},
		{"two of as many refusals", func(l *Learned) { endedAfter(l, 3, 3) }, later, func(*Limits) {}},
		{"three of as many refusals", func(l *Learned) { endedAfter(l, 3, 3, 3) }, later,
			func(a *Limits) { a.RefusedPerSession = 3 }},
		{"three of as many refusals, another went further", func(l *Learned) {
			l.Went(5, 4, start)
			endedAfter(l, 3, 3, 3)
		}, later, func(*Limits) {}},
		{"three of as many refusals, then one of fewer", func(l *Learned) { endedAfter(l, 3, 3, 3, 2) }, later,
			func(*Limits) {}},
		{"three without refusals", func(l *Learned) { endedAfter(l, 0, 0, 0) }, later, func(*Limits) {}},
		{"three that differ", func(l *Learned) { endedAfter(l, 3, 2, 3) }, later, func(*Limits) {}},
		{"never above the allowance", func(l *Learned) { l.Connections.Tighten(1000, start) }, later, func(*Limits) {}},
		{"never up", func(l *Learned) { l.Refused.Tighten(2, start); l.Refused.Tighten(3, start) }, later,
			func(a *Limits) { a.RefusedPerSession = 2 }},
		{"never none", func(l *Learned) { l.PerTransaction.Tighten(0, start) }, later,
			func(a *Limits) { a.RcptsPerTransaction = 1 }},
		{"for a while", func(l *Learned) { l.Refused.Tighten(2, start) }, start.Add(LearnedFor), func(*Limits) {}},
		{"not revived", func(l *Learned) {
			l.Refused.Tighten(1, start)
			l.Refused.Tighten(3, start.Add(2*LearnedFor))
		}, start.Add(2*LearnedFor + time.Minute), func(a *Limits) { a.RefusedPerSession = 3 }},
		{"one does not prolong another", func(l *Learned) {
			l.PerSession.Tighten(5, start)
			l.Refused.Tighten(5, start.Add(LearnedFor))
		}, start.Add(LearnedFor), func(a *Limits) { a.RefusedPerSession = 5 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := Learned{Transaction: Together{most: 9}}
			tc.teach(&l)
			want := Limits{Connections: 4, RcptsPerConnection: 1000, RefusedPerSession: 1000}
			want.RcptsPerTransaction, want.PipeliningDepth = 9, 1
			got := l.Apply(want, true, tc.at)
			if tc.want(&want); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// endedAfter ends sessions of different lengths, each after a number of refusals.
func endedAfter(l *Learned, refused ...int) {
	for i, n := range refused {
		l.SessionEnded(37-i, n, start)
	}
}

// TestCapacity: how many sessions a receiver takes is tried again: one more, then two, four, as long
// as that goes well, and ever more rarely when it was too many.
func TestCapacity(t *testing.T) {
	type word struct {
		after time.Duration // since the startning
		took  int           // sessions when one more was refused; 0: nothing was said
		want  int           // from then on, of ten
	}
	for _, tc := range []struct {
		name  string
		words []word
	}{
		{"nothing", []word{{0, 0, 10}}},
		{"holds", []word{{0, 4, 4}, {59 * time.Second, 0, 4}}},
		{"said by three at once", []word{{0, 4, 4}, {0, 5, 4}, {0, 6, 4}}},
		{"said again of fewer", []word{{0, 4, 4}, {time.Second, 2, 2}}},
		{"one more, then two, then four", []word{{0, 3, 3}, {59 * time.Second, 0, 3}, {time.Minute, 0, 4},
			{69 * time.Second, 0, 4}, {70 * time.Second, 0, 6}, {80 * time.Second, 0, 10}}},
		{"two more were too many", []word{{0, 3, 3}, {time.Minute, 0, 4}, {70 * time.Second, 0, 6},
			{71 * time.Second, 4, 4}, {3 * time.Minute, 0, 4}, {3*time.Minute + 11*time.Second, 0, 5}}},
		{"one more was too many", []word{{0, 4, 4}, {time.Minute, 0, 5}, {61 * time.Second, 4, 4},
			{2*time.Minute + 30*time.Second, 0, 4}, {3*time.Minute + 2*time.Second, 0, 5}}},
		{"nobody looked for long", []word{{0, 1, 1}, {5 * time.Hour, 0, 2}}},
		{"never none", []word{{0, -3, 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Capacity
			for i, w := range tc.words {
				now := start.Add(w.after)
				if w.took != 0 {
					c.Tighten(w.took, now)
				}
				effort.MustBe(t, c.Apply(10, true, now), w.want, "word", i, "sessions")
			}
		})
	}
}

// TestGreylistMargin: a margin is kept whatever the wait.
func TestGreylistMargin(t *testing.T) {
	for _, waited := range []time.Duration{time.Millisecond, time.Second, time.Minute, 24 * time.Hour} {
		var g Greylist
		g.Passed(waited, false)
		if margin := g.Wait() - waited; margin < greyLonger {
			t.Errorf("after %s: %s more", waited, margin)
		}
	}
	var g Greylist
	g.Again(time.Minute)
	if g.Passed(2*time.Minute, false); g.Wait() == 0 {
		t.Error("a longer time that sufficed is not believed")
	}
}

// TestWaitsThatMayHaveBegunEarlier: an address that an earlier owner may have asked shows how long to wait, but not
// that others have waited long enough.
func TestWaitsThatMayHaveBegunEarlier(t *testing.T) {
	var g Greylist
	for _, step := range []struct {
		waited      time.Duration
		again, sure bool
		enough      time.Duration
		due         bool
	}{
		{waited: 40 * time.Second, enough: 40 * time.Second},
		{waited: 10 * time.Second, enough: 10 * time.Second},
		{waited: 30 * time.Second, again: true},
		{waited: 20 * time.Second}, // others waited longer in vain
		{waited: 35 * time.Second, enough: 35 * time.Second},
		{waited: 45 * time.Second, again: true},
		{waited: time.Minute, sure: true, enough: time.Minute, due: true},
		{waited: 46 * time.Second, enough: time.Minute, due: true},
		{waited: 50 * time.Second, sure: true, enough: 50 * time.Second, due: true},
	} {
		if step.again {
			g.Again(step.waited)
		} else {
			g.Passed(step.waited, !step.sure)
		}
		enough := max(0, g.Wait()-greyLonger)
		effort.ErrorIf(t, enough != step.enough || g.IsDue(time.Hour) != step.due, "%+v: %+v", step, g)
	}
}
