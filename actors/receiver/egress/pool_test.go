package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	sourceA, sourceB, sourceSix = "192.0.2.201", "192.0.2.202", "2001:db8::201"

	trial    = 10 * time.Minute // for one receiver to take a source again
	contacts = 20_000           // that are remembered
)

// poolOf makes a pool of sources with these addresses; without any, the one that the system chooses.
func poolOf(addresses ...string) *egress.Pool {
	list := make([]egress.Source, max(1, len(addresses)))
	for i := range list {
		list[i] = egress.Source{Hello: "probe.example", Open: noSession}
		if len(addresses) > 0 {
			list[i].Addr = netip.MustParseAddr(addresses[i])
		}
	}
	p, err := egress.NewPool(list)
	if err != nil {
		panic(err)
	}
	return p
}

func noSession(context.Context, string, netip.Addr, smtp.TLSMode) (*smtp.Session, error) {
	return nil, errors.New("there are no sessions here")
}

// TestNewPoolSaysWhatIsWrong with its sources.
func TestNewPoolSaysWhatIsWrong(t *testing.T) {
	good := egress.Source{Hello: "probe.example", Open: noSession}
	for name, list := range map[string][]egress.Source{
		"none": nil, "no hello name": {{Open: noSession}}, "no way to open": {{Hello: "probe.example"}},
		"twice": {good, good},
	} {
		_, err := egress.NewPool(list)
		effort.ErrorIf(t, err == nil, "%s: no error", name)
	}
}

// TestSuspendedByMany: a source is suspended when enough receivers refuse it, and
// these are enough of all; then one receiver is asked, and only if that takes it, all.
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

// TestSourceOnTrial: after a suspension one receiver is spoken to; what it says decides.
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

// TestContactsAreBounded: at most so many receivers are remembered of a source, and those of
// more than an hour ago make room.
func TestContactsAreBounded(t *testing.T) {
	p := poolOf()
	for n := range contacts + 500 {
		p.NoteDialled(0, fmt.Sprint(n), begin)
	}
	p.NoteDialled(0, "later", begin.Add(time.Minute+time.Second))
	effort.Is(t, p.State(begin)[0].Spoken, contacts, "receivers are remembered")
	p.NoteDialled(0, "much later", begin.Add(2*time.Hour))
	effort.Is(t, p.State(begin.Add(2 * time.Hour))[0].Spoken, 1, "receivers are remembered an hour later")
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
