package domain

import (
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	// tellEvery is how often a domain says what its addresses wait for, at most. Guess:
	// as soon as a person looks again, and no work at all beside a question each.
	tellEvery = 2 * time.Second

	// dueMax bounds the addresses that are looked at to tell those whose time has come
	// from the others that are put off. Where there are more, it is the receiver that
	// holds all of them up.
	dueMax = 10_000
)

// Waits is what a domain tells its parent when it has changed, at most each tellEvery:
// what its addresses wait for that have no outcome.
type Waits struct {
	Domain string
	Waits  []inspect.Wait // each address once

	// Ends is when the last of them is expected to be final if receivers let us ask as
	// soon as there is somebody to ask for; zero: none waits for a time.
	Ends time.Time

	// PutOff is how many of those that were not asked yet are expected to be put off, from
	// 0 to 1, and Wait for how long.
	PutOff float64
	Wait   time.Duration
}

// equal says whether there is nothing new in another one.
func (w Waits) equal(o Waits) bool {
	return w.Ends.Equal(o.Ends) && slices.EqualFunc(w.Waits, o.Waits, func(a, b inspect.Wait) bool {
		same := a.Until.Equal(b.Until) && a.Last.Equal(b.Last)
		a.Until, a.Last, b.Until, b.Last = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		return same && a == b
	})
}

// waits says what the addresses without an outcome wait for. It takes a moment, however
// many there are.
func (pl *planner) waits(now time.Time) Waits {
	out := Waits{Domain: pl.work.Domain}
	out.PutOff, out.Wait = pl.retries.stats.part()
	due := pl.dueByReason(now)
	out.add(pl.askable(now, due))
	if n := pl.weighed(); n > 0 {
		w := inspect.Wait{Addresses: n, For: inspect.ForControl, Until: after(now, pl.controls.at())}
		if pl.resting(now) {
			w.Until = pl.restUntil()
		}
		w.Last = after(now, pl.controlsEnd(now))
		w.Receiver = pl.route.key
		out.add(w)
		out.Ends = w.Last
	}
	for _, r := range pl.retries.stats.reasons() {
		pl.addPutOff(now, &out, r, due)
	}
	if d := pl.work.Deadline; !d.IsZero() && out.Ends.After(d) {
		out.Ends = d
	}
	return out
}

// addPutOff says what those wait for that were put off for a reason and are not due.
func (pl *planner) addPutOff(now time.Time, out *Waits, r smtp.Reason, due map[smtp.Reason]int) {
	c := pl.retries.stats.of(r)
	n := c.addresses - due[r]
	if n <= 0 {
		return
	}
	out.add(inspect.Wait{Addresses: n, For: inspect.ForRetry, Reason: r.String(),
		Receiver: pl.route.key, Until: after(now, pl.start.Add(max(c.first, pl.backlog.nextDue()))),
		Last: after(now, pl.start.Add(c.last))})
	ends, gaveUp := max(c.ends, c.last), max(c.last, c.since+pl.options.GiveUpAfter)
	switch _, known := pl.habit(now, pl.answering()).CatchAll(); {
	case c.hopeless(r):
		ends = gaveUp
	case r == smtp.Greylisted && !known: // the control probe behind them is put off too
		ends += c.wait
		gaveUp += c.wait
	}
	out.Ends = later(out.Ends, pl.start.Add(min(ends, gaveUp)))
}

func (w *Waits) add(n inspect.Wait) {
	if n.Addresses > 0 {
		w.Waits = append(w.Waits, n)
	}
}

// askable says what the addresses wait for that could be asked now.
func (pl *planner) askable(now time.Time, due map[smtp.Reason]int) inspect.Wait {
	s := &pl.backlog
	w := inspect.Wait{Addresses: len(s.ready) + len(s.ordinals) - s.next, For: inspect.ForReceiver}
	for _, n := range due {
		w.Addresses += n
	}
	for _, o := range s.chunks {
		w.Addresses += len(o.left)
	}
	if pl.controls.asking && pl.retries.stats.control == 0 {
		w.Addresses-- // it is no address of the file
	}
	switch rest := pl.restUntil(); {
	case rest.After(now):
		w.For, w.Reason, w.Until, w.Last = inspect.ForRetry, smtp.HarvestGuard.String(), rest, rest
	case pl.route.hosts == nil:
		w.For = inspect.ForRoute
	default:
		w.Receiver, w.Cause = pl.route.key, inspect.Causes[wire.Cause_FREE]
		switch {
		case pl.held || s.reaching && s.failures > missedMax:
			w.Cause = inspect.Causes[wire.Cause_NO_SHARE]
		case int(s.cause) < len(inspect.Causes):
			w.Cause = inspect.Causes[s.cause]
		}
		w.Until, w.PerHour = after(now, s.heldUntil), int(s.perHour)
	}
	return w
}

// dueByReason counts the addresses that were put off and could be asked again now, if
// the receiver lets us.
func (pl *planner) dueByReason(now time.Time) map[smtp.Reason]int {
	out := map[smtp.Reason]int{}
	if pl.backlog.countDue(pl.since(now), dueMax, out) < dueMax {
		return out
	}
	clear(out)
	for _, r := range pl.retries.stats.reasons() { // more than are looked at: as good as all of them
		out[r] = pl.retries.stats.of(r).addresses
	}
	return out
}

// countDue counts the addresses whose time has come, at most so many: those of a heap
// lie together at its top.
func (s *backlog) countDue(since time.Duration, most int, by map[smtp.Reason]int) int {
	n := 0
	var below func(i int)
	below = func(i int) {
		if i >= len(s.deferred) || n >= most || s.deferred[i].due > since {
			return
		}
		if n++; s.deferred[i].ordinal != controlOrdinal {
			by[s.deferred[i].reason]++
		}
		below(2*i + 1)
		below(2*i + 2)
	}
	below(0)
	return n
}

// nextDue is when the first address is asked again.
func (s *backlog) nextDue() time.Duration {
	if len(s.deferred) == 0 {
		return 0
	}
	return s.deferred[0].due
}

// after is a time, or the zero time when it is over.
func after(now, t time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
